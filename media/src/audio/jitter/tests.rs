//! Any stream over any network: what comes out is in order and covers its time.

use proptest::prelude::*;

use super::*;

/// 20 ms of a 48 kHz clock.
const FRAME: u32 = 960;

const START: Time = Time::from_millis(60_000);

/// What was handed out, each with its length; the payload of packets is their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Out {
    Packet(u32, u64),
    Missing(u64, Option<u32>),
    Pause(u64),
    Restart,
}

impl Out {
    fn duration(self) -> u64 {
        match self {
            Self::Packet(_, duration) | Self::Missing(duration, _) | Self::Pause(duration) => {
                duration
            }
            Self::Restart => 0,
        }
    }
}

fn number(payload: &[u8]) -> u32 {
    u32::from_le_bytes(payload.try_into().unwrap_or_default())
}

fn drain(buffer: &mut JitterBuffer, now: Time, out: &mut Vec<Out>) {
    while let Some(next) = buffer.next(now) {
        out.push(match next {
            Next::Packet {
                payload, duration, ..
            } => Out::Packet(number(payload), duration.into()),
            Next::Missing {
                duration,
                following,
                ..
            } => Out::Missing(duration.into(), following.map(number)),
            Next::Pause { duration } => Out::Pause(duration),
            Next::Restart => Out::Restart,
        });
    }
}

/// One packet of a stream: when it comes (ms after the start), its number, its timestamp.
type Sent = (u64, u32, u32);

/// Gives the packets in the order of their arrival, waking at the buffer's deadlines in between.
fn run(buffer: &mut JitterBuffer, packets: Vec<Sent>, first: u16) -> Vec<Out> {
    run_by(buffer, packets, first, true)
}

/// `short`: packets in their turn are passed.
fn run_by(buffer: &mut JitterBuffer, mut packets: Vec<Sent>, first: u16, short: bool) -> Vec<Out> {
    packets.sort_by_key(|packet| packet.0);
    let mut out = Vec::new();
    for (at, number, timestamp) in packets {
        let now = START + Duration::from_millis(at);
        while buffer.deadline() < now {
            let due = buffer.deadline();
            let before = out.len();
            drain(buffer, due, &mut out);
            assert!(out.len() > before, "nothing was due at the deadline");
        }
        let packet = Arrival {
            sequence: first.wrapping_add(number as u16),
            timestamp,
            duration: FRAME,
            payload: &number.to_le_bytes(),
        };
        if short && buffer.pass(now, &packet) {
            out.push(Out::Packet(number, FRAME.into()));
        } else {
            buffer.insert(now, &packet);
            drain(buffer, now, &mut out);
        }
    }
    while buffer.deadline() != Time::NEVER {
        let due = buffer.deadline();
        drain(buffer, due, &mut out);
    }
    out
}

/// A packet every 20 ms without pauses.
fn steady(numbers: impl Iterator<Item = u32>, late: impl Fn(u32) -> u64) -> Vec<Sent> {
    numbers
        .map(|n| (u64::from(n) * 20 + late(n), n, n.wrapping_mul(FRAME)))
        .collect()
}

proptest! {
    /// Whatever is lost, doubled, delayed and paused: packets come out once and in order, and what comes
    /// out covers the stream's time exactly, so a recording is as long as the talk was.
    #[test]
    fn what_comes_out_covers_the_stream_in_order(
        fates in proptest::collection::vec((0_u32..100, 0_u64..120, 0_u32..100), 2..400),
        first in any::<u16>(), origin in any::<u32>(),
    ) {
        let mut packets = Vec::new();
        let (mut timestamp, mut at) = (origin, 0);
        for (n, (fate, late, pause)) in fates.iter().enumerate() {
            let late = if n == 0 { 0 } else { *late };
            if *fate >= 15 || n == 0 {
                packets.push((at + late, n as u32, timestamp));
            }
            if *fate >= 95 {
                packets.push((at + late + 3, n as u32, timestamp));
            }
            // Now and then the sender is silent for 100 ms.
            let silent = if *pause < 3 { 100 } else { 0 };
            at += 20 + silent;
            timestamp = timestamp.wrapping_add(FRAME + silent as u32 * 48);
        }
        let distinct: std::collections::BTreeSet<u32> = packets.iter().map(|p| p.1).collect();
        let doubled = (packets.len() - distinct.len()) as u64;
        let mut buffer = JitterBuffer::new(48_000);
        let out = run(&mut buffer, packets.clone(), first);
        // That packets in their turn are not kept is nowhere seen.
        let mut keeping = JitterBuffer::new(48_000);
        prop_assert_eq!(&out, &run_by(&mut keeping, packets.clone(), first, false));
        prop_assert_eq!(buffer.counts(), keeping.counts());
        prop_assert_eq!((buffer.delay(), buffer.jitter()), (keeping.delay(), keeping.jitter()));
        prop_assert!(!out.contains(&Out::Restart));
        let numbers: Vec<u32> = out.iter().filter_map(|o| match o { Out::Packet(n, _) => Some(*n), _ => None }).collect();
        prop_assert!(numbers.is_sorted_by(|a, b| a < b), "out of order or twice: {:?}", numbers);
        let last = packets.iter().find(|p| Some(&p.1) == numbers.last()).map_or(0, |p| p.2);
        let covered: u64 = out.iter().map(|o| o.duration()).sum();
        prop_assert_eq!(covered, u64::from(last.wrapping_sub(origin) + FRAME));
        let counts = buffer.counts();
        prop_assert_eq!(counts.packets, numbers.len() as u64);
        prop_assert_eq!(counts.packets + counts.late + counts.duplicates, packets.len() as u64);
        prop_assert!(counts.duplicates <= doubled, "{:?}", counts);
        prop_assert!(counts.late <= counts.lost);
    }

    /// Packets that nobody would send: no panic, no endless loop, nothing held for ever.
    #[test]
    fn nonsense_is_survived(packets in proptest::collection::vec((0_u64..400, any::<u16>(), any::<u32>(), 0_u32..6000), 1..300)) {
        let mut buffer = JitterBuffer::new(8_000);
        let mut now = START;
        let mut out = Vec::new();
        for (later, sequence, timestamp, duration) in packets {
            now = now + Duration::from_millis(later);
            buffer.insert(now, &Arrival { sequence, timestamp, duration, payload: &[1, 2, 3, 4] });
            drain(&mut buffer, now, &mut out);
        }
        for _ in 0..1000 {
            if buffer.deadline() == Time::NEVER { break; }
            let due = buffer.deadline().max(now);
            drain(&mut buffer, due, &mut out);
        }
        prop_assert_eq!(buffer.deadline(), Time::NEVER);
    }
}

#[test]
fn what_was_overtaken_by_the_first_packet_is_late_and_lost() {
    let mut buffer = JitterBuffer::new(48_000);
    let mut packets = steady(0..10, |n| if n < 2 { 50 } else { 0 });
    packets.sort_by_key(|(at, ..)| *at);
    run(&mut buffer, packets, 0);
    let counts = buffer.counts();
    assert_eq!((counts.packets, counts.late, counts.lost), (8, 2, 2));
}

#[test]
fn a_packet_in_its_turn_does_not_wait() {
    let mut buffer = JitterBuffer::new(48_000);
    let mut out = Vec::new();
    for (at, n, timestamp) in steady(0..200, |n| u64::from(n % 5) * 15) {
        let now = START + Duration::from_millis(at);
        buffer.insert(
            now,
            &Arrival {
                sequence: n as u16,
                timestamp,
                duration: FRAME,
                payload: &n.to_le_bytes(),
            },
        );
        drain(&mut buffer, now, &mut out);
        assert_eq!(out.last(), Some(&Out::Packet(n, FRAME.into())));
    }
    assert_eq!(out.len(), 200);
}

#[test]
fn numbers_and_timestamps_wrap() {
    let mut buffer = JitterBuffer::new(48_000);
    let packets: Vec<Sent> = (0..2000_u32)
        .map(|n| {
            (
                u64::from(n) * 20,
                n,
                (u32::MAX - 5000).wrapping_add(n * FRAME),
            )
        })
        .collect();
    let out = run(&mut buffer, packets, u16::MAX - 900);
    assert_eq!(out.len(), 2000);
    assert!(out.iter().all(|o| matches!(o, Out::Packet(..))));
}

#[test]
fn a_lost_packet_is_given_up_with_the_one_behind_it() {
    let mut buffer = JitterBuffer::new(48_000);
    let out = run(&mut buffer, steady((0..10).filter(|n| *n != 4), |_| 0), 7);
    assert_eq!(out[4], Out::Missing(FRAME.into(), Some(5)));
    assert_eq!(out.len(), 10);
    assert_eq!(buffer.counts().lost, 1);
}

#[test]
fn the_first_packet_after_a_pause_may_be_overtaken() {
    let mut buffer = JitterBuffer::new(48_000);
    // Ten packets, a second of silence, ten more of which the first two change places.
    let packets = (0..20_u32)
        .map(|n| {
            let sent = if n < 10 { n } else { n + 50 };
            let late = if n == 10 { 25 } else { 0 };
            (u64::from(sent) * 20 + late, n, sent * FRAME)
        })
        .collect();
    let out = run(&mut buffer, packets, 0);
    assert_eq!(buffer.counts().lost, 0);
    assert_eq!(out[10], Out::Pause(50 * u64::from(FRAME)));
    assert_eq!(out[11], Out::Packet(10, FRAME.into()));
    assert_eq!(out.len(), 21);
}

#[test]
fn the_first_packet_after_a_pause_is_waited_for_no_longer_than_any() {
    let mut buffer = JitterBuffer::new(48_000);
    run(&mut buffer, steady(0..10, |_| 0), 0);
    let packet = Arrival {
        sequence: 11,
        timestamp: 61 * FRAME,
        duration: FRAME,
        payload: &[],
    };
    let now = START + Duration::from_millis(1_220);
    buffer.insert(now, &packet);
    assert_eq!(buffer.next(now), None);
    let due = buffer.deadline();
    let waited = buffer.delay();
    assert_eq!(due, now + waited);
    let mut last = None;
    while let Some(next) = buffer.next(due) {
        last = match next {
            Next::Packet { held, .. } => Some(held),
            Next::Missing { .. } | Next::Pause { .. } | Next::Restart => None,
        };
    }
    assert_eq!(last, Some(waited));
    assert_eq!(buffer.counts().lost, 1);
}

#[test]
fn the_delay_follows_the_jitter_and_shrinks_within_ten_seconds() {
    let mut buffer = JitterBuffer::new(48_000);
    // A second of calm, ten of jitter up to 100 ms, then calm again. 7919 spreads the delays.
    let late = |n: u32| {
        if (50..550).contains(&n) {
            u64::from(n * 7919 % 101)
        } else {
            0
        }
    };
    let mut delays = Vec::new();
    let mut packets = steady(0..1100, late);
    packets.sort_by_key(|packet| packet.0);
    let mut out = Vec::new();
    for (at, n, timestamp) in packets {
        let now = START + Duration::from_millis(at);
        while buffer.deadline() <= now {
            let due = buffer.deadline();
            drain(&mut buffer, due, &mut out);
        }
        buffer.insert(
            now,
            &Arrival {
                sequence: n as u16,
                timestamp,
                duration: FRAME,
                payload: &n.to_le_bytes(),
            },
        );
        drain(&mut buffer, now, &mut out);
        delays.push((at, buffer.delay().as_millis()));
    }
    let at = |ms: u64| {
        let found = delays.iter().rfind(|(at, _)| *at <= ms);
        found.map_or(0, |(_, delay)| *delay)
    };
    assert_eq!(at(900), 20);
    assert!(
        (90..=180).contains(&at(3000)),
        "{} ms after 2 s of jitter",
        at(3000)
    );
    assert!(
        at(11_000 + 10_000) < 80,
        "{} ms after 10 s of calm",
        at(21_000)
    );
    let counts = buffer.counts();
    assert!(
        counts.late * 100 < counts.packets,
        "late loss is 1 % or more: {counts:?}"
    );
}

#[test]
fn an_outage_is_a_pause_of_its_length() {
    let mut buffer = JitterBuffer::new(48_000);
    let packets = steady((0..50).chain(450..500), |_| 0);
    let out = run(&mut buffer, packets, 65_500);
    assert_eq!(out[50], Out::Pause(400 * u64::from(FRAME)));
    assert_eq!(out.len(), 101);
    assert_eq!(buffer.counts().lost, 400);
}

#[test]
fn a_sender_that_counts_anew_is_followed_from_its_second_packet() {
    let mut buffer = JitterBuffer::new(48_000);
    let mut packets = steady(0..50, |_| 0);
    packets
        .extend((0..50_u32).map(|n| (1000 + u64::from(n) * 20, 30_000 + n, 9_000_000 + n * FRAME)));
    let out = run(&mut buffer, packets, 0);
    assert_eq!(out[50], Out::Restart);
    assert_eq!(out[51], Out::Packet(30_001, FRAME.into()));
    assert_eq!(out.len(), 100);
}

/// Fifty packets, so many ms in which neither numbers nor timestamps go on, and fifty more, each as late as `late` has it.
fn standing(ms: u64, late: impl Fn(u32) -> u64) -> Vec<Sent> {
    let pause = |n: u32| if n < 50 { 0 } else { ms };
    steady(0..100, |n| pause(n) + late(n))
}

#[test]
fn timestamps_that_stood_still_leave_room_for_the_pause() {
    for ms in [200, 240, 2_000, 9_000, 600_000] {
        for short in [true, false] {
            let mut buffer = JitterBuffer::new(48_000);
            let out = run_by(&mut buffer, standing(ms, |_| 0), 65_500, short);
            assert_eq!(out[50], Out::Pause(ms * 48), "{ms}");
            assert_eq!(out.len(), 101);
            let counts = buffer.counts();
            assert_eq!((counts.packets, counts.lost, counts.late), (100, 0, 0));
            // Neither is it jitter.
            assert_eq!(buffer.delay(), LEAST_DELAY);
            assert!(buffer.jitter() < Duration::from_millis(1));
        }
    }
    // A shorter one is not told from jitter.
    let mut buffer = JitterBuffer::new(48_000);
    assert_eq!(run(&mut buffer, standing(180, |_| 0), 0).len(), 100);
}

#[test]
fn packets_are_held_after_a_pause_until_their_pace_is_known() {
    let mut buffer = JitterBuffer::new(48_000);
    let mut held = Vec::new();
    for (at, n, timestamp) in standing(1_000, |_| 0) {
        let now = START + Duration::from_millis(at);
        let packet = Arrival {
            sequence: n as u16,
            timestamp,
            duration: FRAME,
            payload: &[],
        };
        if buffer.pass(now, &packet) {
            continue;
        }
        buffer.insert(now, &packet);
        while let Some(next) = buffer.next(now) {
            if let Next::Packet { held: ms, .. } = next {
                held.push(ms.as_millis());
            }
        }
    }
    // The very first, and those of 100 ms.
    assert_eq!(held, [0, 100, 80, 60, 40, 20, 0]);
}

#[test]
fn a_packet_alone_shows_nothing_and_those_behind_it_do() {
    let mut buffer = JitterBuffer::new(48_000);
    let mut packets = standing(400, |_| 0);
    // After the first, which keeps the other side's door open, 400 ms of silence that the timestamps tell.
    for (at, n, timestamp) in &mut packets[51..] {
        (*at, *timestamp) = (*at + 400, *timestamp + 400 * 48);
        assert!(*n > 50);
    }
    let out = run(&mut buffer, packets, 0);
    let pauses: Vec<_> = out
        .iter()
        .enumerate()
        .filter(|(_, out)| matches!(out, Out::Pause(_)))
        .collect();
    assert_eq!(
        pauses,
        [(51, &Out::Pause(400 * 48)), (52, &Out::Pause(400 * 48))]
    );
    assert_eq!(out.len(), 102);
}

#[test]
fn what_is_lost_and_overtaken_after_a_pause_is_found_there() {
    let mut buffer = JitterBuffer::new(48_000);
    let mut packets = standing(1_000, |n| if n == 53 { 25 } else { 0 });
    packets.retain(|(_, n, _)| ![50, 56].contains(n));
    let out = run(&mut buffer, packets, 0);
    assert_eq!(out[50], Out::Pause(48_000));
    assert_eq!(out[51], Out::Missing(FRAME.into(), Some(51)));
    assert_eq!(out[57], Out::Missing(FRAME.into(), Some(57)));
    assert_eq!(out.len(), 101);
    assert_eq!(buffer.counts().lost, 2);
}

#[test]
fn a_network_that_stalls_makes_no_pause() {
    for stalled in [10, 40, 60, 150] {
        // All come at once with the one behind them, or only the last of a talkspurt do, with silence behind them.
        let late = |n: u32| match n {
            50.. if n < 50 + stalled => u64::from(50 + stalled - n) * 20,
            _ => 0,
        };
        let mut buffer = JitterBuffer::new(48_000);
        let out = run(&mut buffer, steady(0..300, late), 0);
        assert!(
            !out.iter().any(|out| matches!(out, Out::Pause(_))),
            "{stalled}: {out:?}"
        );
        let heard: u64 = out.iter().map(|out| out.duration()).sum();
        assert_eq!(heard, 300 * u64::from(FRAME), "{stalled}");
        let few = stalled.min(5);
        let end = steady(0..50 + few, late);
        let mut buffer = JitterBuffer::new(48_000);
        assert_eq!(run(&mut buffer, end, 0).len() as u32, 50 + few, "{stalled}");
    }
}

#[test]
fn timestamps_that_jump_are_a_restart_and_no_pause_of_hours() {
    let mut buffer = JitterBuffer::new(48_000);
    let packets = (0..100_u32)
        .map(|n| {
            (
                u64::from(n) * 20,
                n,
                n * FRAME + if n >= 50 { 1 << 30 } else { 0 },
            )
        })
        .collect();
    let out = run(&mut buffer, packets, 0);
    assert_eq!(out[50], Out::Restart);
    assert_eq!(out.len(), 101);
}

/// A PBX that was silent for a moment goes on with timestamps of another stream, from far back: no clock stood still.
#[test]
fn timestamps_that_jump_back_after_a_silence_are_a_restart_at_once() {
    // At pace, and a packet alone with the others seconds behind it.
    for alone in [0, 3_000] {
        for back in [FRAME * 60, 1 << 20, 1 << 30] {
            let mut buffer = JitterBuffer::new(8_000);
            let packets = (0..100_u32)
                .map(|n| {
                    let silence = if n >= 50 { 400 } else { 0 };
                    let more = if n >= 51 { alone } else { 0 };
                    let jump = if n >= 50 { back } else { 0 };
                    (
                        u64::from(n) * 20 + silence + more,
                        n,
                        (1 << 31) + n * FRAME + (more as u32) * 8 - jump,
                    )
                })
                .collect();
            let out = run(&mut buffer, packets, 0);
            let restarts = out.iter().filter(|one| **one == Out::Restart).count();
            assert_eq!((&out[50], restarts), (&Out::Restart, 1), "{back}");
            let covered: u64 = out.iter().map(|one| one.duration()).sum();
            let second_pause = alone * 8;
            assert_eq!(
                covered,
                100 * u64::from(FRAME) + second_pause,
                "{back}, {alone}"
            );
        }
    }
}

#[test]
fn a_packet_a_second_is_a_stream_of_pauses() {
    let mut buffer = JitterBuffer::new(8_000);
    let packets = (0..30_u32)
        .map(|n| (u64::from(n) * 1000, n, n * 8_000))
        .collect();
    let out = run(&mut buffer, packets, 0);
    let covered: u64 = out.iter().map(|o| o.duration()).sum();
    assert_eq!(covered, 29 * 8_000 + u64::from(FRAME));
}

#[test]
fn a_packet_without_sound_takes_a_number_and_no_time() {
    let mut buffer = JitterBuffer::new(48_000);
    let mut out = Vec::new();
    for n in 0..20_u32 {
        let now = START + Duration::from_millis(u64::from(n) * 20);
        let silent = (5..8).contains(&n);
        let before = n.min(5) + n.saturating_sub(8);
        let packet = Arrival {
            sequence: n as u16,
            timestamp: before * FRAME,
            duration: if silent { 0 } else { FRAME },
            payload: &n.to_le_bytes(),
        };
        buffer.insert(now, &packet);
        drain(&mut buffer, now, &mut out);
        assert_eq!(buffer.deadline(), Time::NEVER);
    }
    assert_eq!(out.len(), 17);
    assert!(out.iter().all(|o| matches!(o, Out::Packet(..))), "{out:?}");
}

#[test]
fn what_comes_in_its_turn_needs_no_room() {
    let packets = steady(0..2_000, |n| if n % 50 == 7 { 19 } else { 0 });
    let mut buffer = JitterBuffer::new(48_000);
    assert_eq!(run(&mut buffer, packets, 9).len(), 2_000);
    let room: usize = buffer
        .slots
        .iter()
        .map(|slot| slot.payload.capacity())
        .sum();
    // That of the first.
    assert_eq!(room, ROOM);
}

#[test]
fn what_was_skipped_on_purpose_is_neither_lost_nor_late_however_long_it_was() {
    // So many packets of a hold: within the slots, beyond them, and over half a round of numbers and a whole one.
    for held in [1, 63, 64, 3_000, 40_000, 65_536, 70_000] {
        let mut buffer = JitterBuffer::new(48_000);
        let mut out = run(&mut buffer, steady(0..10, |_| 0), 65_530);
        buffer.skip();
        let first = 10 + held;
        let mut packets = steady(first..first + 10, |_| 0);
        // One of the hold comes after its end.
        packets.push((
            u64::from(first) * 20 + 5,
            first - 1,
            (first - 1).wrapping_mul(FRAME),
        ));
        out.extend(run(&mut buffer, packets, 65_530));
        let pause = out.remove(10);
        assert_eq!(
            pause,
            Out::Pause(u64::from(held) * u64::from(FRAME)),
            "{held}"
        );
        let heard: Vec<_> = (0..10).chain(first..first + 10).collect();
        let packets = |out: &Out| match out {
            Out::Packet(number, _) => Some(*number),
            _ => None,
        };
        assert_eq!(out.len(), heard.len(), "{held}: {out:?}");
        assert_eq!(
            out.iter().filter_map(packets).collect::<Vec<_>>(),
            heard,
            "{held}"
        );
        let counts = buffer.counts();
        assert_eq!(
            (counts.packets, counts.lost, counts.late),
            (20, 0, 0),
            "{held}"
        );
        // What is lost from here on counts.
        run(&mut buffer, steady(first + 12..first + 14, |_| 0), 65_530);
        assert_eq!(buffer.counts().lost, 2, "{held}");
    }
}
