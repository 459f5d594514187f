//! Streams that do anything: no packet is too much, and time goes on as it should.

use proptest::prelude::*;

use super::*;

/// What a network and a sender may do to a stream of 20 ms packets.
#[derive(Clone, Copy, Debug)]
enum Event24 {
    Lose,
    Duplicate,
    Swap,
    NewSsrc,
    JumpTimestamp(u32),
    JumpSequence(u16),
    /// Nothing is sent for so many frames, and the timestamps say so.
    Pause(u8),
}

fn event() -> impl Strategy<Value = Event24> {
    prop_oneof![
        3 => Just(Event24::Lose),
        3 => Just(Event24::Duplicate),
        3 => Just(Event24::Swap),
        1 => Just(Event24::NewSsrc),
        1 => any::<u32>().prop_map(Event24::JumpTimestamp),
        1 => any::<u16>().prop_map(Event24::JumpSequence),
        // As far back as packets are overtaken, and a little farther.
        1 => (1..200_u16).prop_map(|back| Event24::JumpSequence(back.wrapping_neg())),
        2 => (1..60_u8).prop_map(Event24::Pause),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn the_recording_is_as_long_as_the_stream(
        first in any::<(u16, u32)>(),
        events in proptest::collection::vec((5..40_u32, event()), 0..12),
    ) {
        let mut bed = Bed::new(plan());
        let (mut sequence, mut timestamp) = first;
        let mut ssrc = SSRC;
        let payload = [0xff; 160];
        let mut frame = 0_u64;
        let steady = |bed: &mut Bed, frames: u32, sequence: &mut u16, timestamp: &mut u32, ssrc: u32, frame: &mut u64| {
            for _ in 0..frames {
                bed.until(start() + ms(20 * *frame));
                bed.packet(&RtpPacket { ssrc, ..audio_packet(*sequence, *timestamp, &payload) });
                *sequence = sequence.wrapping_add(1);
                *timestamp = timestamp.wrapping_add(160);
                *frame += 1;
            }
        };
        steady(&mut bed, 10, &mut sequence, &mut timestamp, ssrc, &mut frame);
        for (frames, event) in events {
            match event {
                Event24::Lose => {
                    sequence = sequence.wrapping_add(1);
                    timestamp = timestamp.wrapping_add(160);
                    frame += 1;
                }
                Event24::Duplicate => {
                    bed.packet(&RtpPacket { ssrc, ..audio_packet(sequence.wrapping_sub(1), timestamp.wrapping_sub(160), &payload) });
                }
                Event24::Swap => {
                    bed.until(start() + ms(20 * (frame + 1)));
                    for ahead in [1_u16, 0] {
                        bed.packet(&RtpPacket { ssrc, ..audio_packet(
                            sequence.wrapping_add(ahead),
                            timestamp.wrapping_add(160 * u32::from(ahead)),
                            &payload,
                        ) });
                    }
                    sequence = sequence.wrapping_add(2);
                    timestamp = timestamp.wrapping_add(320);
                    frame += 2;
                }
                Event24::NewSsrc => {
                    ssrc = ssrc.wrapping_add(1);
                    sequence = sequence.wrapping_mul(31).wrapping_add(7);
                    timestamp = timestamp.wrapping_mul(17).wrapping_add(3);
                }
                Event24::JumpTimestamp(by) => timestamp = timestamp.wrapping_add(by),
                Event24::JumpSequence(by) => sequence = sequence.wrapping_add(by),
                Event24::Pause(frames) => {
                    timestamp = timestamp.wrapping_add(160 * u32::from(frames));
                    frame += u64::from(frames);
                }
            }
            steady(&mut bed, frames, &mut sequence, &mut timestamp, ssrc, &mut frame);
        }
        // A last stretch in peace; then what is still missing is given up.
        steady(&mut bed, 20, &mut sequence, &mut timestamp, ssrc, &mut frame);
        bed.until(start() + ms(20 * frame + 400));
        let heard = Samples(bed.audio.len() as u64).ms();
        // A timestamp that jumps by less than 3 s looks like a pause of so long, and is one.
        prop_assert!(heard.abs_diff(20 * frame) <= 20, "{heard} of {}", 20 * frame);
    }

    #[test]
    fn any_packets_are_taken_or_left(packets in proptest::collection::vec(
        (any::<u8>(), any::<u16>(), any::<u32>(), 0..3_u32, proptest::collection::vec(any::<u8>(), 0..400), 0..2_000_u64),
        0..60,
    )) {
        let mut bed = Bed::new(RtpPlan { events: Some(1), comfort_noise: Some(2), ..plan() });
        for (kind, sequence, timestamp, ssrc, payload, wait) in packets {
            bed.until(bed.now + ms(wait));
            bed.packet(&RtpPacket {
                payload_type: kind % 4,
                marker: kind > 127,
                sequence,
                timestamp,
                ssrc,
                payload: &payload,
            });
        }
    }
}
