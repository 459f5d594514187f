//! Senders whose timestamps stand still while they send nothing (against RFC 3550 section 5.1): by its timestamp the
//! first packet after their pause follows the last one before it.
//!
//! A network that stalled brings its packets as late, but what was sent meanwhile comes with them, faster than it was
//! said. So the first packets that are late all at once are held, until their pace tells which it was.

use std::time::Duration;

use crate::time::Time;

/// So much later than its timestamp says (200 ms) comes no packet for jitter alone.
pub(super) const LATE: Duration = Duration::from_millis(200);

/// Packets that keep their pace for so long come from no queue.
const PACE: Duration = Duration::from_millis(100);

/// A packet may be less late than those before it by so much, µs, and the pace is kept.
const SLACK: u64 = 10_000;

/// Packets that are less late than the first by more than this, µs, were waiting somewhere: jitter is hardly as much.
const MOST_FALLEN: u64 = 120_000;

/// Whose packets keep no pace for so long is not waited for: the network is taken for the cause.
const LONGEST: Duration = Duration::from_millis(200);

/// Packets that are late all at once. How late, is counted against the fastest of those before, µs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doubt {
    began: Time,
    /// How late the first was.
    first: u64,
    /// The least that one of them was late.
    least: u64,
    /// From when on the pace was kept, and how late the packet was that began it.
    since: Time,
    kept: u64,
    /// When the newest came.
    newest: Time,
}

/// What the packets have shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Open,
    /// The sender's clock stood still for so long.
    Stood(Duration),
    /// The network held them.
    Stalled,
    /// They were too few to show anything.
    Unknown,
}

impl Doubt {
    pub(super) const fn new(at: Time, late: u64) -> Self {
        Self {
            began: at,
            first: late,
            least: late,
            since: at,
            kept: late,
            newest: at,
        }
    }

    /// Another packet came.
    pub(super) fn note(&mut self, at: Time, late: u64) {
        self.newest = at;
        self.least = self.least.min(late);
        if late + SLACK < self.kept {
            (self.since, self.kept) = (at, late);
        }
    }

    /// When the verdict is there though nothing more comes.
    pub(super) fn deadline(&self) -> Time {
        (self.since + PACE).min(self.began + LONGEST)
    }

    pub(super) fn verdict(&self, now: Time) -> Verdict {
        let late = Duration::from_micros(self.least);
        if self.first - self.least > MOST_FALLEN || 2 * late < LATE {
            return Verdict::Stalled;
        }
        if now < self.deadline() {
            return Verdict::Open;
        }
        if now < self.since + PACE {
            Verdict::Stalled
        } else if self.newest >= self.since + PACE / 2 {
            Verdict::Stood(late)
        } else {
            // A packet or a few that came at once, and nothing behind them, have no pace.
            Verdict::Unknown
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Time = Time::from_millis(60_000);

    /// What is found of packets that came so many ms after the first, each so many ms late; and when it was, ms.
    fn verdict(packets: &[(u64, u64)]) -> (Verdict, u64) {
        let mut coming = packets.iter().map(|(at, late)| (*at, late * 1_000));
        let (at, late) = coming.next().unwrap_or_default();
        let mut doubt = Doubt::new(START + Duration::from_millis(at), late);
        for (at, late) in coming {
            let now = START + Duration::from_millis(at);
            if doubt.deadline() < now {
                break;
            }
            doubt.note(now, late);
            if doubt.verdict(now) != Verdict::Open {
                return (doubt.verdict(now), at);
            }
        }
        let due = doubt.deadline();
        (doubt.verdict(due), (due - START).as_millis() as u64)
    }

    /// A packet every 20 ms, the first one late by so much and the others as `late` has it.
    fn every_20_ms(late: impl Fn(u64) -> u64) -> Vec<(u64, u64)> {
        (0..20).map(|n| (20 * n, late(n))).collect()
    }

    #[test]
    fn packets_at_pace_show_a_clock_that_stood_still() {
        let stood = |ms| Verdict::Stood(Duration::from_millis(ms));
        assert_eq!(verdict(&every_20_ms(|_| 2_000)), (stood(2_000), 100));
        // A little jitter is no haste, and the fastest packet tells the length.
        let jitter = every_20_ms(|n| 300 + n * 7 % 10);
        assert_eq!(verdict(&jitter), (stood(300), 100));
        // The first was slow: the pace begins with the second.
        let slow = every_20_ms(|n| if n == 0 { 345 } else { 300 });
        assert_eq!(verdict(&slow), (stood(300), 120));
        let long_packets = [(0, 400), (60, 400)];
        assert_eq!(verdict(&long_packets), (stood(400), 100));
    }

    #[test]
    fn packets_in_a_burst_show_a_network_that_stalled() {
        // All at once, at twice the pace, and at one and a half.
        let burst: Vec<_> = (0..50).map(|n| (0, 1_000 - 20 * n)).collect();
        assert_eq!(verdict(&burst), (Verdict::Stalled, 0));
        let twice: Vec<_> = (0..50).map(|n| (10 * n, 1_000 - 10 * n)).collect();
        assert_eq!(verdict(&twice), (Verdict::Stalled, 130));
        let faster: Vec<_> = (0..50).map(|n| (14 * n, 1_000 - 7 * n)).collect();
        assert_eq!(verdict(&faster), (Verdict::Stalled, 200));
        // The end of what was said, and silence behind it.
        assert_eq!(verdict(&[(0, 900)]), (Verdict::Unknown, 100));
        let end: Vec<_> = (0..5).map(|n| (0, 900 - 20 * n)).collect();
        assert_eq!(verdict(&end), (Verdict::Unknown, 100));
        // What was late is soon in time again.
        assert_eq!(verdict(&[(0, 205), (5, 90)]), (Verdict::Stalled, 5));
    }
}
