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

    /// One speaks; up to three others send what they like between, under numbers and timestamps that wrap.
    #[test]
    fn nothing_of_the_speaking_source_is_lost_and_each_key_is_heard_once(
        first in prop::array::uniform4((prop_oneof![any::<u16>(), 65_400..=u16::MAX], prop_oneof![any::<u32>(), u32::MAX - 20_000..=u32::MAX])),
        others in 0..=3_usize,
        frames in prop::collection::vec((prop::array::uniform3(beside()), any::<bool>()), 60..300),
    ) {
        let mut bed = Bed::new(plan());
        let voice = spoken();
        let mut numbers = first.map(|(sequence, _)| sequence);
        // The key that each of them is pressing: which, its timestamp, and how many packets were sent.
        let mut pressing = [None::<(u8, u32, u16)>; 4];
        let (mut pressed, mut count) = (String::new(), 0_u8);
        for (frame, (beside, before)) in (0..).zip(&frames) {
            bed.until(start() + ms(20 * u64::from(frame as u32)));
            let speak = |bed: &mut Bed, numbers: &mut [u16; 4]| {
                let timestamp = first[0].1.wrapping_add(160 * frame as u32);
                bed.of(1, numbers[0], timestamp, &voice);
                numbers[0] = numbers[0].wrapping_add(1);
            };
            if *before || frame == 0 {
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
            if !*before && frame > 0 {
                speak(&mut bed, &mut numbers);
            }
        }
        prop_assert_eq!(&bed.digits, &pressed);
        prop_assert_eq!((bed.voiced(), bed.reconnected), (frames.len(), 0));
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
