//! After warm-up, a frame through a WebSocket leg takes nothing from the heap, either way.

use benches_kit::allocations;
use media::audio::tones::noise;
use media::config::{AudioFormat, Protocol};
use media::frame::FRAME;
use media::leg::LegEvent;
use media::leg::ws::{ServerHeader, WsLeg};

#[test]
fn a_frame_of_a_websocket_allocates_nothing() {
    let frame = noise(1, -20.0, FRAME);
    let header = ServerHeader {
        event_id: 123_456,
        ts_ms: 1_234_567,
    };
    for (protocol, format) in [
        (Protocol::Native, AudioFormat::Pcm16000),
        (Protocol::Native, AudioFormat::Ulaw8000),
        (Protocol::Telco, AudioFormat::Ulaw8000),
    ] {
        let mut leg = WsLeg::new(protocol, format);
        leg.receive(
            r#"{"event":"start","start":{"streamSid":"MZ1"}}"#,
            &mut |_| {},
        );
        let mut out = String::new();
        leg.audio(&mut out, &header, &frame, "turn", 0);
        // The server's audio with its number and time has the shape of a client's, and the vendor's
        // shape of media comes back as it goes out.
        let message = out.clone();
        let mut pass = || {
            let mut samples = 0;
            leg.receive(&message, &mut |event| {
                if let LegEvent::Audio(audio) = event {
                    samples += audio.len();
                }
            });
            out.clear();
            leg.audio(&mut out, &header, &frame, "turn", 1000);
            leg.mark(&mut out, 320);
            samples
        };
        assert_eq!(pass(), FRAME, "{protocol:?} {format:?}");
        let count = allocations(|| (0..1000).for_each(|_| _ = pass()));
        assert_eq!(count, 0, "{protocol:?} {format:?}");
    }
}
