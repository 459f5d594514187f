//! Keys as events and as tones: bytes and sounds of any kind, and our own keys back.

use std::time::Duration;

use arbitrary::Arbitrary;
use media::rtp::dtmf::{Detector, Event, Listener, Sender, key, number};
use media::time::Time;

#[derive(Arbitrary, Debug)]
struct Input {
    events: Vec<(u16, u32, Vec<u8>)>,
    sound: Vec<i16>,
    cut: u8,
    keys: Vec<u8>,
    clock: u16,
}

/// Runs the body on what `bytes` spell.
pub fn fuzz(bytes: &[u8]) {
    let Some(input) = crate::spelled::<Input>(bytes) else {
        return;
    };
    let mut listener = Listener::default();
    for (sequence, timestamp, payload) in &input.events {
        if let Some(heard) = listener.hear(*sequence, *timestamp, payload) {
            assert_eq!(number(heard).and_then(key), Some(heard));
            assert_eq!(listener.hear(*sequence, *timestamp, payload), None, "once");
        }
        if let Some(event) = Event::parse(payload) {
            assert_eq!(Event::parse(&event.to_bytes()), Some(event));
        }
    }
    let heard = |cut: usize| {
        let (mut detector, mut keys) = (Detector::default(), String::new());
        for piece in input.sound.chunks(cut) {
            detector.hear(piece, |key| keys.push(key));
        }
        keys
    };
    assert_eq!(heard(usize::from(input.cut).max(1)), heard(usize::MAX));

    // What is pressed is sent, and heard in its order.
    let (mut sender, mut listener) = (Sender::default(), Listener::default());
    let (mut now, mut pressed, mut told) = (Time::from_millis(1_000), String::new(), String::new());
    let start = now;
    let mut sequence = 0_u16;
    for key in input.keys.iter().map(|byte| char::from(*byte)) {
        if sender.press(now, key) {
            pressed.push(key.to_ascii_uppercase());
        }
    }
    while sender.is_busy() {
        now = now.max(sender.deadline());
        let timestamp = (now.since(start).as_millis() as u32).wrapping_mul(8);
        if let Some(packet) = sender.send(now, timestamp, u32::from(input.clock)) {
            sequence = sequence.wrapping_add(1);
            told.extend(listener.hear(sequence, packet.timestamp, &packet.payload));
        }
        assert!(now.since(start) < Duration::from_secs(3_600));
    }
    assert_eq!(told, pressed);
}
