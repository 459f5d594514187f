//! A telephone's leg and what is before it, told packets in any order: nothing waits for a time that is
//! past, and the sound that comes out is never longer than the time that went by and what was in it.

use std::time::Duration;

use arbitrary::Arbitrary;
use media::audio::pacing::Arrivals;
use media::leg::rtp::{RtpLeg, RtpPlan};
use media::leg::{LegEvent, RtpPacket};
use media::rtp::packet::{HEADER, Packet, header_length};
use media::rtp::sdp::{Codec, Flow};
use media::rtp::srtp::{Keys, Opener, Sealer, Suite};
use media::time::Time;

#[derive(Arbitrary, Debug)]
enum Step {
    Packet {
        kind: u8,
        sequence: i8,
        timestamp: i16,
        other: bool,
        payload: Vec<u8>,
    },
    /// A packet with any numbers.
    Far(u16, u32, u8),
    /// Bytes as they come from the network, and through decryption.
    Bytes(Vec<u8>),
    Wait(u8),
    Speak(i16),
    Press(u8),
    Renew(u8),
}

const FLOWS: [Flow; 4] = [
    Flow::SendRecv,
    Flow::SendOnly,
    Flow::RecvOnly,
    Flow::Inactive,
];

/// Runs the body on what `bytes` spell.
pub fn fuzz(bytes: &[u8]) {
    let Some(input) = crate::spelled::<(u8, bool, Option<u32>, Vec<Step>)>(bytes) else {
        return;
    };
    let (codec, events, most_bits, steps) = input;
    let plan = RtpPlan {
        codec: Codec::ALL[usize::from(codec) % 4],
        payload_type: 0,
        events: events.then_some(101),
        events_clock: 8_000,
        comfort_noise: None,
        heard: None,
        most_bits,
        packet_ms: 20,
        flow: Flow::SendRecv,
        ssrc: 7,
        sequence: u16::MAX - 3,
        timestamp: u32::MAX - 1_000,
    };
    let mut leg = RtpLeg::new(plan).expect("a codec");
    let mut now = Time::from_millis(100_000);
    leg.start(now);
    let keys = Keys::new(Suite::Aes128Tag80, &[7; 30]).expect("keys");
    let mut opener = Opener::new(&keys);
    let mut sealer = Sealer::new(&keys);
    let (mut sequence, mut timestamp) = (0_u16, 0_u32);
    let mut arrivals = Arrivals::default();
    let mut sink = |event: LegEvent<'_>| {
        if let LegEvent::Audio(samples) = event {
            assert!(samples.len() <= 16_000, "more than a second at once");
        }
    };
    for step in steps.into_iter().take(200) {
        // What is due goes out with a packet that comes.
        let packet = matches!(step, Step::Packet { .. } | Step::Far(..));
        match step {
            Step::Packet {
                kind,
                sequence: ahead,
                timestamp: later,
                other,
                payload,
            } => {
                sequence = sequence.wrapping_add_signed(ahead.into());
                timestamp = timestamp.wrapping_add_signed(later.into());
                let payload_type = [0, 0, 0, 13, 101][usize::from(kind) % 5];
                let packet = RtpPacket {
                    payload_type,
                    marker: kind > 127,
                    sequence,
                    timestamp,
                    ssrc: 1 + u32::from(other),
                    payload: &payload,
                };
                leg.packet(now, &packet, &mut sink);
            }
            Step::Far(sequence, timestamp, length) => {
                let packet = RtpPacket {
                    payload_type: 0,
                    marker: false,
                    sequence,
                    timestamp,
                    ssrc: 1,
                    payload: &[0xd5; 255][..usize::from(length)],
                };
                leg.packet(now, &packet, &mut sink);
            }
            Step::Bytes(mut bytes) => {
                if let Some(packet) = Packet::parse(&bytes) {
                    assert!(packet.payload.len() + HEADER <= bytes.len());
                    let packet = RtpPacket {
                        payload_type: packet.payload_type,
                        marker: packet.marker,
                        sequence: packet.sequence,
                        timestamp: packet.timestamp,
                        ssrc: packet.ssrc,
                        payload: packet.payload,
                    };
                    leg.packet(now, &packet, &mut sink);
                    // What we seal ourselves opens again as it was, unless it is a replay.
                    let mut sealed = bytes.clone();
                    sealer.seal(&mut sealed);
                    if let Ok(length) = opener.open(&mut sealed) {
                        assert_eq!(sealed[..length], bytes);
                    }
                }
                assert!(header_length(&bytes).is_none_or(|length| length <= bytes.len()));
                // Nobody who lacks the keys is heard.
                assert!(opener.open(&mut bytes).is_err());
                assert!(opener.open_report(&mut bytes).is_err());
            }
            Step::Wait(ms) => {
                let until = now + Duration::from_millis(ms.into());
                while leg.deadline() <= until {
                    now = now.max(leg.deadline());
                    leg.timeout(now, &mut sink);
                    arrivals.note(now, false);
                    leg.send_due(now, &arrivals, &mut |packet| {
                        assert!(packet.payload.len() <= 1_275);
                    });
                    assert!(leg.deadline() > now, "it waits for the past");
                }
                now = until;
            }
            Step::Speak(loud) => leg.audio(now, &[loud; 320], loud < 0, &mut |_| {}),
            Step::Press(key) => {
                leg.press(now, char::from(key));
            }
            Step::Renew(kind) => {
                let plan = RtpPlan {
                    codec: Codec::ALL[usize::from(kind) % 4],
                    flow: FLOWS[usize::from(kind >> 2) % 4],
                    ..plan
                };
                leg.renew(now, plan).expect("a codec");
            }
        }
        if packet {
            arrivals.note(now, true);
            leg.send_due(now, &arrivals, &mut |_| {});
        }
    }
    let totals = leg.totals();
    assert!(totals.late <= totals.lost + totals.packets);
}
