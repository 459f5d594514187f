//! A token bucket: how often a stranger may do what costs something.

use crate::time::Time;

/// Tokens that come back at a rate, up to a burst. What is refused takes none: whoever asks for more than the
/// rate gets the rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    /// Tokens a second.
    rate: u64,
    /// In millionths of a token, as is `level`.
    burst: u64,
    level: u64,
    filled: Time,
}

impl Bucket {
    /// It begins full.
    pub(crate) const fn new(rate: u64, burst: u64) -> Self {
        Self {
            rate,
            burst: burst * 1_000_000,
            level: burst * 1_000_000,
            filled: Time::from_micros(0),
        }
    }

    /// Takes so many tokens. `false`: there are fewer, and all stay.
    pub(crate) fn take(&mut self, now: Time, tokens: u64) -> bool {
        let gained = (now - self.filled).as_micros() as u64;
        self.level = self
            .level
            .saturating_add(gained.saturating_mul(self.rate))
            .min(self.burst);
        self.filled = now;
        let left = self.level.checked_sub(tokens.saturating_mul(1_000_000));
        self.level = left.unwrap_or(self.level);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(bucket: &mut Bucket, at: u64, asked: usize) -> usize {
        let at = Time::from_millis(at);
        (0..asked).filter(|_| bucket.take(at, 1)).count()
    }

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate() {
        let mut socket = Bucket::new(200, 400);
        assert_eq!(taken(&mut socket, 5_000, 1_000), 400);
        assert_eq!(taken(&mut socket, 5_500, 1_000), 100);

        let mut typed = Bucket::new(4, 8);
        assert_eq!(taken(&mut typed, 1_000, 100), 8);
        assert_eq!(taken(&mut typed, 1_249, 100), 0);
        assert_eq!(taken(&mut typed, 1_250, 100), 1);
        assert_eq!(taken(&mut typed, 2_250, 100), 4);
        assert_eq!(taken(&mut typed, 60_000, 100), 8);
    }

    #[test]
    fn who_asks_for_far_more_than_the_rate_still_gets_the_rate() {
        let mut bucket = Bucket::new(200, 400);
        let given: usize = (0..10_000).map(|at| taken(&mut bucket, at, 3)).sum();
        assert_eq!(given, 400 + 200 * 9_999 / 1_000);
    }

    #[test]
    fn a_request_for_more_than_there_is_leaves_what_there_is() {
        let mut bucket = Bucket::new(10, 10);
        let now = Time::from_millis(1);
        assert!(!bucket.take(now, 11));
        assert!(bucket.take(now, 10));
        assert!(!bucket.take(now, u64::MAX));
    }
}
