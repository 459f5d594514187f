//! Several streams on one port: the one that speaks is heard, whatever comes beside it, and each key once.

use proptest::prelude::*;

use super::*;
use crate::audio::g711;

/// A frame of a voice, of a length of waves that fits.
fn spoken() -> Vec<u8> {
    let mut payload = vec![0; 160];
    g711::ulaw_encode(&sine(8_000, 400.0, -12.0, 160), &mut payload);
    payload
}

const SILENCE: [u8; 160] = [0xff; 160];

impl Bed {
    fn of(&mut self, ssrc: u32, sequence: u16, timestamp: u32, payload: &[u8]) {
        self.packet(&RtpPacket {
            ssrc,
            ..audio_packet(sequence, timestamp, payload)
        });
    }

    /// One of the six packets of a key, 20 ms apart: the end three times.
    fn key(&mut self, ssrc: u32, (sequence, timestamp): (u16, u32), key: u8, step: u16) {
        let event = Event {
            number: key,
            end: step > 2,
            volume: 10,
            duration: 160 * (step + 1).min(4),
        };
        self.packet(&RtpPacket {
            payload_type: 101,
            ssrc,
            ..audio_packet(sequence, timestamp, &event.to_bytes())
        });
    }

    fn noise(&mut self, ssrc: u32, sequence: u16, timestamp: u32) {
        self.packet(&RtpPacket {
            payload_type: 13,
            ssrc,
            ..audio_packet(sequence, timestamp, &[60])
        });
    }

    /// Frames of the audio in which a voice is.
    fn voiced(&self) -> usize {
        let loud = |frame: &&[i16]| frame.iter().any(|sample| sample.unsigned_abs() > 3_000);
        self.audio.chunks(FRAME).filter(loud).count()
    }
}

#[test]
fn keys_of_another_source_are_heard_beside_the_audio() {
    // Two and a half seconds between keys; a second, and right behind each other.
    for every in [125, 50, 7] {
        let mut bed = Bed::new(plan());
        let (voice, mut pressed) = (spoken(), String::new());
        for frame in 0..every * 5 + 10 {
            bed.until(start() + ms(20 * u64::from(frame)));
            bed.of(SSRC, frame as u16, 160 * frame, &voice);
            let (press, step) = (frame / every, (frame % every) as u16);
            if step < 6 && press < 5 {
                let sequence = (press as u16 * 6 + step).wrapping_add(65_530);
                bed.key(
                    7,
                    (
                        sequence,
                        4_294_960_000_u32.wrapping_add(160 * every * press),
                    ),
                    press as u8 + 1,
                    step,
                );
                if step == 0 {
                    pressed.push(char::from(b'1' + press as u8));
                }
            }
        }
        assert_eq!(bed.digits, pressed);
        assert_eq!(bed.voiced(), (every * 5 + 10) as usize);
        assert_eq!((bed.reconnected, bed.leg.totals().lost), (0, 0));
        assert!(bed.timeline.is_whole());
    }
}

#[test]
fn a_source_of_its_own_for_each_key_is_heard() {
    let mut bed = Bed::new(plan());
    for press in 0..40_u32 {
        for step in 0..6 {
            bed.until(bed.now + ms(20));
            // All have the same numbers and timestamps.
            bed.key(100 + press, (step, 5), (press % 10) as u8, step);
        }
        bed.until(bed.now + ms(100));
    }
    assert_eq!(bed.digits, "0123456789".repeat(4));
}

#[test]
fn an_event_that_two_sources_bring_counts_once() {
    let mut bed = Bed::new(plan());
    for step in 0..6 {
        bed.until(bed.now + ms(20));
        bed.key(1, (step, 800), 4, step);
        bed.key(2, (step + 77, 800), 4, step);
    }
    assert_eq!(bed.digits, "4");
}

#[test]
fn a_stray_packet_or_a_few_mute_nothing() {
    // Late music on hold, comfort noise, and a key: one packet, three, and ten.
    for count in [1_u32, 3, 10] {
        let mut bed = Bed::new(plan());
        let voice = spoken();
        for frame in 0..100_u32 {
            bed.until(start() + ms(20 * u64::from(frame)));
            bed.of(SSRC, frame as u16, 160 * frame, &voice);
            if (40..40 + count).contains(&frame) {
                bed.of(9, frame as u16 * 3, 7 + 160 * frame, &voice);
                bed.noise(10, frame as u16, 90_000);
            }
        }
        assert_eq!((bed.voiced(), bed.reconnected), (100, 0), "{count}");
        assert_eq!(bed.leg.totals().packets, 100);
    }
}

#[test]
fn a_source_that_takes_the_place_of_another_loses_nothing() {
    let voice = spoken();
    // At once; after a pause; while packets of the old one still trickle in.
    for (pause, trickling) in [(0_u32, 0_u32), (30, 0), (0, 8)] {
        let mut bed = Bed::new(plan());
        for frame in 0..100_u32 {
            bed.until(start() + ms(20 * u64::from(frame)));
            bed.of(SSRC, frame as u16, 160 * frame, &SILENCE);
        }
        for frame in 100 + pause..200 + pause {
            bed.until(start() + ms(20 * u64::from(frame)));
            if frame < 100 + trickling {
                bed.of(SSRC, frame as u16, 160 * frame, &SILENCE);
            }
            bed.of(5, 40_000 + frame as u16, 777 + 160 * frame, &voice);
        }
        assert_eq!(bed.voiced(), 100, "{pause} {trickling}");
        assert_eq!(bed.reconnected, 1, "{pause} {trickling}");
        // Each frame stands where it was said, or right behind what was heard of the other.
        let first = bed.audio.iter().position(|sample| sample.abs() > 3_000);
        let said = (100 + pause) as usize * FRAME;
        assert!(
            first.is_some_and(|at| at.abs_diff(said) < 3 * FRAME),
            "{first:?} {said}"
        );
    }
}

#[test]
fn of_two_that_both_send_the_one_is_heard_that_speaks() {
    let voice = spoken();
    let mut bed = Bed::new(plan());
    let mut said = 0;
    // They take turns, a second each, with half a second between; the second begins in the midst.
    for frame in 0..1_000_u32 {
        bed.until(start() + ms(20 * u64::from(frame)));
        for (at, ssrc) in (0..).zip([SSRC, 3]) {
            let speaks = frame % 150 >= at * 75 && frame % 150 < at * 75 + 50;
            let payload = if speaks { &voice[..] } else { &SILENCE };
            if at == 0 || frame > 30 {
                said += usize::from(speaks);
                bed.of(ssrc, frame as u16, 160 * frame, payload);
            }
        }
    }
    // The codec's filter carries the end of each of the fourteen words into the frame behind it.
    let heard = bed.voiced();
    assert!((said..=said + 14).contains(&heard), "{heard} of {said}");
}

#[test]
fn music_that_goes_on_ends_when_somebody_speaks_behind_it() {
    let voice = spoken();
    let mut bed = Bed::new(plan());
    // Music alone; then the caller is back, and the music stops two packets later.
    for frame in 0..300_u32 {
        bed.until(start() + ms(20 * u64::from(frame)));
        if frame < 152 {
            bed.of(8, frame as u16, 160 * frame, &voice);
        }
        if frame >= 150 {
            bed.of(SSRC, frame as u16, 160 * frame, &voice);
        }
    }
    let heard = bed.voiced();
    assert!(heard.abs_diff(300) <= 1, "{heard}");
}

#[test]
fn who_speaks_beside_music_that_goes_on_is_heard() {
    let voice = spoken();
    let low: Vec<u8> = {
        let mut payload = vec![0; 160];
        g711::ulaw_encode(&sine(8_000, 1_000.0, -12.0, 160), &mut payload);
        payload
    };
    // The music was there before the caller speaks; or it begins while the caller, who was heard, listens.
    for (heard_before, begins, speaks) in [(false, 0, 250), (true, 100, 150)] {
        let mut bed = Bed::new(plan());
        let mut said = None;
        for frame in 0..900_u32 {
            bed.until(start() + ms(20 * u64::from(frame)));
            if frame >= begins {
                bed.of(8, frame as u16, 160 * frame, &low);
            }
            // Sentences of five seconds and pauses of one.
            let says = frame >= speaks && (frame - speaks) % 300 < 250;
            if heard_before || frame >= speaks {
                let payload = if says { &voice[..] } else { &SILENCE };
                bed.of(SSRC, frame as u16, 160 * frame, payload);
            }
            if frame == speaks + 249 {
                said = Some(bed.audio.len());
            }
        }
        let level = |from: usize, to: usize, hz: f64| db(goertzel(&bed.audio[from..to], RATE, hz));
        // At the sentence's end, and all through the next, the caller alone is heard; the music does not come back in
        // the pause between.
        let end = said.expect("a sentence");
        let (voice, music) = (
            level(end - 40 * FRAME, end, 400.0),
            level(end - 40 * FRAME, end, 1_000.0),
        );
        assert!(voice > -16.0 && music < -40.0, "{voice} {music}");
        let rest = (end, end + 280 * FRAME);
        let (voice, music) = (
            level(rest.0 + 60 * FRAME, rest.1, 400.0),
            level(rest.0 + FRAME, rest.1, 1_000.0),
        );
        assert!(voice > -16.0 && music < -40.0, "{voice} {music}");
    }
}

#[test]
fn last_notes_beside_noise_without_a_pause_mute_nobody() {
    let voice = spoken();
    let mut bed = Bed::new(plan());
    for frame in 0..500_u32 {
        bed.until(start() + ms(20 * u64::from(frame)));
        bed.of(SSRC, frame as u16, 160 * frame, &voice);
        if (400..412).contains(&frame) {
            bed.of(9, frame as u16 * 3, 7 + 160 * frame, &voice);
        }
    }
    assert_eq!((bed.voiced(), bed.reconnected), (500, 0));
}

#[test]
fn a_source_that_begins_in_a_gap_of_the_talkers_packets_mutes_nobody() {
    let voice = spoken();
    // Two packets of 20 ms are lost; one of 40 ms is late; one of 60 ms is on its way. The other begins meanwhile, and
    // the talker's next packet comes behind one of it.
    for (length, begins) in [(1_u32, 39), (2, 39), (3, 40)] {
        let mut bed = Bed::new(plan());
        let long = voice.repeat(length as usize);
        for frame in 0..150_u32 {
            bed.until(start() + ms(20 * u64::from(frame)));
            if frame >= begins {
                bed.of(4, frame as u16, 160 * frame, &voice);
            }
            let sent = match length {
                1 => (frame != 38 && frame != 39).then_some(frame),
                2 if frame == 41 => Some(40),
                2 if frame == 40 => None,
                _ => Some(frame).filter(|frame| frame.is_multiple_of(length)),
            };
            if let Some(first) = sent {
                bed.of(SSRC, (first / length) as u16, 160 * first, &long);
            }
        }
        assert_eq!(bed.reconnected, 0, "{length}");
    }
}

#[test]
fn a_key_of_a_source_that_nobody_hears_is_not_told_when_it_is_heard() {
    let mut tone = sine(8_000, 770.0, -16.0, 800);
    crate::audio::tones::mix(&mut tone, &sine(8_000, 1_336.0, -14.0, 800));
    let mut pressed = vec![0; 800];
    g711::ulaw_encode(&tone, &mut pressed);
    let voice = spoken();
    // Pressed while the other is heard, long before that ends; and right after its end.
    for (press, told) in [(20, ""), (100, "5")] {
        let mut bed = Bed::new(RtpPlan {
            events: None,
            ..plan()
        });
        for frame in 0..200_u32 {
            bed.until(start() + ms(20 * u64::from(frame)));
            if frame < 100 {
                bed.of(SSRC, frame as u16, 160 * frame, &voice);
            }
            let at = 160 * frame.saturating_sub(press) as usize;
            let tone = pressed.get(at..at + 160).filter(|_| frame >= press);
            bed.of(4, frame as u16, 160 * frame, tone.unwrap_or(&SILENCE));
        }
        assert_eq!((bed.digits.as_str(), bed.reconnected), (told, 1), "{press}");
    }
}

/// What another source than the speaker's does in one frame.
#[derive(Clone, Copy, Debug)]
enum Beside {
    Nothing,
    Sound,
    Noise,
    Key,
}

fn beside() -> impl Strategy<Value = Beside> {
    prop_oneof![
        6 => Just(Beside::Nothing),
        2 => Just(Beside::Sound),
        1 => Just(Beside::Noise),
        2 => Just(Beside::Key),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// One speaks, in packets of 20 or 60 ms; up to three others send what they like between, under numbers and timestamps
    /// that wrap.
    #[test]
    fn nothing_of_the_speaking_source_is_lost_and_each_key_is_heard_once(
        first in prop::array::uniform4((prop_oneof![any::<u16>(), 65_480..=u16::MAX], prop_oneof![any::<u32>(), u32::MAX - 20_000..=u32::MAX])),
        others in 0..=3_usize,
        length in prop_oneof![Just(1_usize), Just(3)],
        frames in prop::collection::vec((prop::array::uniform3(beside()), any::<bool>()), 60..190),
    ) {
        let mut bed = Bed::new(plan());
        let voice = spoken();
        let packet = voice.repeat(length);
        let mut numbers = first.map(|(sequence, _)| sequence);
        // The key that each of them is pressing: which, its timestamp, and how many packets were sent.
        let mut pressing = [None::<(u8, u32, u16)>; 4];
        let (mut pressed, mut count) = (String::new(), 0_u8);
        for (frame, (beside, before)) in (0_usize..).zip(&frames) {
            bed.until(start() + ms(20 * u64::from(frame as u32)));
            let speak = |bed: &mut Bed, numbers: &mut [u16; 4]| {
                let timestamp = first[0].1.wrapping_add(160 * frame as u32);
                bed.of(1, numbers[0], timestamp, &packet);
                numbers[0] = numbers[0].wrapping_add(1);
            };
            let due = frame.is_multiple_of(length);
            if due && (*before || frame == 0) {
                speak(&mut bed, &mut numbers);
            }
            for at in 1..=others {
                let ssrc = 1 + at as u32;
                let timestamp = first[at].1.wrapping_add(160 * frame as u32);
                let number = numbers[at];
                match beside[at - 1] {
                    _ if pressing[at].is_some() => {}
                    Beside::Nothing => continue,
                    Beside::Sound => bed.of(ssrc, number, timestamp, &voice),
                    Beside::Noise => bed.noise(ssrc, number, timestamp),
                    Beside::Key => {
                        count = (count + 1) % 10;
                        pressed.push(char::from(b'0' + count));
                        pressing[at] = Some((count, timestamp, 0));
                    }
                }
                if let Some((key, timestamp, step)) = pressing[at] {
                    bed.key(ssrc, (number, timestamp), key, step);
                    pressing[at] = (step < 5).then_some((key, timestamp, step + 1));
                }
                numbers[at] = number.wrapping_add(1);
            }
            if due && !*before && frame > 0 {
                speak(&mut bed, &mut numbers);
            }
        }
        prop_assert_eq!(&bed.digits, &pressed);
        let said = frames.len().next_multiple_of(length);
        prop_assert_eq!((bed.voiced(), bed.reconnected), (said, 0));
        let lost = bed.leg.totals().lost;
        prop_assert_eq!(lost, 0);
    }
}

#[test]
fn stragglers_of_a_stream_that_was_left_do_not_bring_it_back() {
    let mut bed = Bed::new(plan());
    let payload = [0xff; 160];
    for count in 0..50_u32 {
        bed.now = start() + ms(20 * u64::from(count));
        bed.packet(&audio_packet(count as u16, 160 * count, &payload));
    }
    for count in 50..100_u32 {
        bed.now = start() + ms(20 * u64::from(count));
        bed.packet(&RtpPacket {
            ssrc: 99,
            ..audio_packet(30_000 + count as u16, 160 * count + 77_777, &payload)
        });
        bed.packet(&audio_packet(count as u16, 160 * count, &payload));
    }
    assert_eq!(bed.audio.len(), 100 * FRAME);
}
