//! Keys both ways, as events and as tones.

use super::*;
use crate::audio::g711;

#[test]
fn digits_are_sent_instead_of_audio_and_heard_once() {
    let (mut one, mut other) = (Bed::new(plan()), Bed::new(plan()));
    one.until(start() + ms(55));
    assert!(one.leg.press(one.now, '4') && one.leg.press(one.now, '#'));
    assert!(!one.leg.press(one.now, 'x'));
    for _ in 0..30 {
        one.until(one.now + ms(20));
        one.speak(|leg, now, out| leg.audio(now, &[500; FRAME], false, out));
    }
    let events: Vec<Event> = one
        .sent
        .iter()
        .filter(|sent| sent.1 == 101)
        .map(|sent| Event::parse(&sent.5).expect("an event"))
        .collect();
    assert_eq!(events.len(), 20);
    for sent in &one.sent {
        other.now = sent.0;
        other.receive(sent);
    }
    assert_eq!(other.digits, "4#");
    let heard = Samples(other.audio.len() as u64).ms();
    let lasted = one.now.since(start()).as_millis() as u64 + 20;
    assert!(heard.abs_diff(lasted) <= 20, "{heard} {lasted}");
    // Neither events nor a codec that carries tones.
    let mut deaf = RtpLeg::new(RtpPlan {
        codec: Codec::Opus,
        events: None,
        ..plan()
    })
    .expect("a codec");
    assert!(!deaf.press(start(), '1'));
}

#[test]
fn keys_go_as_tones_where_no_events_were_agreed() {
    const SAID: &str = "0123456789*#ABCD1155";
    for (codec, comfort_noise) in [
        (Codec::Pcmu, None),
        (Codec::Pcma, Some(13)),
        (Codec::G722, None),
    ] {
        let plan = RtpPlan {
            codec,
            events: None,
            comfort_noise,
            ..plan()
        };
        let (mut one, mut other) = (Bed::new(plan), Bed::new(plan));
        one.until(start() + ms(55));
        for key in SAID.chars() {
            assert!(one.leg.press(one.now, key), "{key}");
        }
        assert!(!one.leg.press(one.now, 'x'));
        // The agent says what nobody hears while keys are pressed: whole waves a frame.
        let talk = sine(RATE, 450.0, -10.0, FRAME);
        for _ in 0..200 {
            one.until(one.now + ms(20));
            let frame = talk.first_chunk().expect("a frame");
            one.speak(|leg, now, out| leg.audio(now, frame, false, out));
        }
        for sent in &one.sent {
            other.now = sent.0;
            other.receive(sent);
        }
        assert_eq!(other.digits, SAID, "{codec:?}");
        // 160 ms a key, then the agent again, in one stream.
        let level = db(goertzel(
            &other.audio[165 * FRAME..195 * FRAME],
            RATE,
            450.0,
        ));
        assert!((level + 10.0).abs() < 1.5, "{codec:?} {level}");
        let during = db(goertzel(&other.audio[10 * FRAME..160 * FRAME], RATE, 450.0));
        assert!(during < -40.0, "{codec:?} {during}");
    }
}

#[test]
fn a_stream_that_counts_anew_has_keys_that_are_heard() {
    let mut bed = Bed::new(plan());
    let press = |bed: &mut Bed, sequence: u16, timestamp: u32| {
        bed.packet(&RtpPacket {
            payload_type: 101,
            ..audio_packet(sequence, timestamp, &[4, 0x80, 3, 0x20])
        });
    };
    let talk = |bed: &mut Bed, sequence: u16, timestamp: u32| {
        for count in 0..10 {
            bed.until(bed.now + ms(20));
            let timestamp = timestamp + 160 * u32::from(count);
            bed.packet(&audio_packet(sequence + count, timestamp, &[0xff; 160]));
        }
    };
    talk(&mut bed, 100, 1_000_000);
    press(&mut bed, 110, 1_001_600);
    // The same stream under other numbers and timestamps that lie a little behind.
    talk(&mut bed, 40_000, 950_000);
    press(&mut bed, 40_010, 951_600);
    assert_eq!(bed.digits, "44");
}

#[test]
fn keys_that_are_nearly_all_numbers_apart_are_heard() {
    let mut bed = Bed::new(plan());
    let (mut sequence, mut timestamp) = (0_u16, 0_u32);
    for number in [4, 5, 5] {
        for end in [false, true, true] {
            let duration = if end { 0x320 } else { 0xa0_u16 };
            let [high, low] = duration.to_be_bytes();
            bed.packet(&RtpPacket {
                payload_type: 101,
                ..audio_packet(
                    sequence,
                    timestamp,
                    &[number, u8::from(end) << 7, high, low],
                )
            });
            sequence = sequence.wrapping_add(1);
            bed.now = bed.now + ms(20);
        }
        timestamp += 480;
        for _ in 0..65_300_u32 {
            bed.packet(&audio_packet(sequence, timestamp, &[0xff; 160]));
            sequence = sequence.wrapping_add(1);
            timestamp = timestamp.wrapping_add(160);
            bed.now = bed.now + ms(20);
            bed.audio.clear();
            bed.first = None;
        }
    }
    assert_eq!(bed.digits, "455");
}

#[test]
fn digits_come_as_tones_where_no_events_were_agreed() {
    let mut bed = Bed::new(RtpPlan {
        events: None,
        ..plan()
    });
    let mut tone = sine(8_000, 770.0, -16.0, 800);
    crate::audio::tones::mix(&mut tone, &sine(8_000, 1_336.0, -14.0, 800));
    tone.resize(1_600, 0);
    let mut payload = vec![0; tone.len()];
    g711::ulaw_encode(&tone, &mut payload);
    for (count, piece) in (0..).zip(payload.chunks(160)) {
        bed.now = start() + ms(20 * count);
        bed.packet(&audio_packet(count as u16, 160 * count as u32, piece));
    }
    assert_eq!(bed.digits, "5");
}
