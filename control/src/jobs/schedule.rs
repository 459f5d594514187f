//! When an event that was not taken is tried again. Pure: the jitter comes from a seed.

use std::time::Duration;

use super::backoff::{doubled, jittered};
use crate::words::words;

words! {
    /// How hard an event is delivered (document 1, Delivery), as it stands in the outbox.
    pub enum Class {
        /// Short attempts, then rounds over about three days.
        Durable = "durable",
        /// Short attempts only.
        Short = "short",
        /// Short attempts and a few minutes more.
        BestEffort = "best_effort",
    }
}

/// Attempts that follow one another closely.
pub const SHORT_ATTEMPTS: u32 = 3;
/// Longer rounds of a durable event, one attempt each.
pub const ROUNDS: u32 = 20;
/// Rounds of a best-effort event: with half a minute, doubling, three and a half minutes.
const BEST_EFFORT_ROUNDS: u32 = 3;
/// The pauses; a setting, so that a test need not wait for three days.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The longest one attempt.
    pub attempt: Duration,
    /// The pause after the first short attempt; it doubles.
    pub short: Duration,
    /// The pause before the first round; it doubles up to `longest`.
    pub first_round: Duration,
    pub longest: Duration,
}

impl Default for Schedule {
    fn default() -> Self {
        Self {
            attempt: Duration::from_secs(10),
            short: Duration::from_secs(1),
            first_round: Duration::from_secs(60),
            longest: Duration::from_secs(6 * 3600),
        }
    }
}

impl Schedule {
    /// How long to wait after `made` failed attempts (1 and more); `None`: there is no other. `seed` is
    /// the event's own, so that its jitter does not change from one reading to the next.
    pub fn pause(&self, class: Class, made: u32, seed: u64) -> Option<Duration> {
        let plain = if made < SHORT_ATTEMPTS {
            doubled(self.short, made.saturating_sub(1), self.longest)
        } else {
            let round = made - SHORT_ATTEMPTS;
            let (rounds, first) = match class {
                Class::Durable => (ROUNDS, self.first_round),
                Class::BestEffort => (BEST_EFFORT_ROUNDS, self.first_round / 2),
                Class::Short => (0, Duration::ZERO),
            };
            if round >= rounds {
                return None;
            }
            doubled(first, round, self.longest)
        };
        Some(jittered(plain, seed, made))
    }

    /// No event waits for longer between two attempts, jitter and claims included.
    pub fn longest_wait(&self) -> Duration {
        (self.longest + self.lease()) * 2
    }

    /// How long a claim holds: an attempt and the time to write down how it went.
    pub fn lease(&self) -> Duration {
        self.attempt + Duration::from_secs(5)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at a surprise")]

    use proptest::prelude::*;

    use super::*;

    /// Seconds of all pauses until there is no other attempt.
    fn pauses(class: Class, seed: u64) -> Vec<f64> {
        (1..)
            .map_while(|made| Schedule::default().pause(class, made, seed))
            .map(|pause| pause.as_secs_f64())
            .collect()
    }

    #[test]
    fn a_durable_event_has_three_short_attempts_and_twenty_rounds() {
        let plain: Vec<f64> = [1.0, 2.0]
            .into_iter()
            .chain((0..20).map(|round| (60.0 * 2_f64.powi(round)).min(21_600.0)))
            .collect();
        for seed in 0..200 {
            let found = pauses(Class::Durable, seed);
            assert_eq!(found.len(), 22);
            for (found, plain) in found.iter().zip(&plain) {
                assert!((found / plain - 1.0).abs() <= 0.1001, "{found} for {plain}");
            }
        }
        let total: f64 = plain[2..].iter().sum();
        assert!((total / 3600.0 - 74.5).abs() < 0.05, "{total} s");
    }

    #[test]
    fn a_short_one_has_three_attempts_and_a_best_effort_one_a_few_minutes() {
        assert_eq!(pauses(Class::Short, 7).len(), 2);
        let best = pauses(Class::BestEffort, 7);
        assert_eq!(best.len(), 5);
        let total: f64 = best.iter().sum();
        assert!((180.0..300.0).contains(&total), "{total} s");
    }

    #[test]
    fn the_jitter_uses_its_whole_range_evenly() {
        let schedule = Schedule::default();
        let drawn: Vec<f64> = (0..2000)
            .map(|seed| {
                schedule
                    .pause(Class::Durable, 3, seed)
                    .unwrap()
                    .as_secs_f64()
            })
            .collect();
        let mean = drawn.iter().sum::<f64>() / 2000.0;
        assert!((mean - 60.0).abs() < 0.5, "{mean}");
        let low = drawn.iter().copied().fold(f64::MAX, f64::min);
        let high = drawn.iter().copied().fold(0.0, f64::max);
        assert!(low < 54.1 && high > 65.9, "{low} to {high}");
    }

    proptest! {
        #[test]
        fn no_count_and_no_setting_overflows(made: u32, seed: u64, short: u64, first: u64, longest: u64) {
            let schedule = Schedule {
                attempt: Duration::from_secs(1),
                short: Duration::from_millis(short),
                first_round: Duration::from_millis(first),
                longest: Duration::from_millis(longest),
            };
            for class in [Class::Durable, Class::Short, Class::BestEffort] {
                let pause = schedule.pause(class, made, seed);
                prop_assert!(made < 23 || pause.is_none());
            }
        }
    }
}
