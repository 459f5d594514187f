//! Pauses between attempts: they double, and jitter keeps those who failed together from coming back
//! together. Pure: the jitter comes from a seed.

use std::time::Duration;

/// Every pause is up to this much shorter or longer, per cent: vendors and receivers that came back are not
/// met by all at once.
const JITTER_PERCENT: u64 = 10;

/// The pause `first`, doubled so many times, and `longest` at most.
pub fn doubled(first: Duration, times: u32, longest: Duration) -> Duration {
    2_u32
        .checked_pow(times)
        .and_then(|factor| first.checked_mul(factor))
        .map_or(longest, |pause| pause.min(longest))
}

/// The pause after `made` attempts with its jitter. `seed` is the job's own, so that the jitter does not
/// change from one reading to the next.
pub fn jittered(pause: Duration, seed: u64, made: u32) -> Duration {
    let micros = u64::try_from(pause.as_micros()).unwrap_or(u64::MAX / 200);
    let spread = micros / 100 * JITTER_PERCENT;
    let drawn = mixed(seed ^ u64::from(made)) % (2 * spread + 1);
    Duration::from_micros(micros - spread + drawn)
}

/// A well-mixed number (the finaliser of SplitMix64).
const fn mixed(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_doubles_up_to_the_longest() {
        let second = Duration::from_secs(1);
        let longest = Duration::from_secs(10);
        let found: Vec<u64> = (0..6)
            .map(|times| doubled(second, times, longest).as_secs())
            .collect();
        assert_eq!(found, [1, 2, 4, 8, 10, 10]);
        assert_eq!(doubled(second, u32::MAX, longest), longest);
        assert_eq!(doubled(Duration::MAX, 2, longest), longest);
    }

    #[test]
    fn jitter_is_of_the_seed_and_stays_within_a_tenth() {
        let minute = Duration::from_secs(60);
        for seed in 0..1000 {
            let pause = jittered(minute, seed, 3);
            assert_eq!(pause, jittered(minute, seed, 3));
            assert!((54.0..=66.0).contains(&pause.as_secs_f64()), "{pause:?}");
        }
        assert_eq!(jittered(Duration::ZERO, 1, 1), Duration::ZERO);
    }
}
