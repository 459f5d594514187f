//! What a client may ask for in messages: each typed turn is a request to the model, each piece of background is kept.

use std::time::Duration;

use crate::time::Time;

/// One more every so often: four a second, more than anybody types.
const INTERVAL: Duration = Duration::from_millis(250);

/// So many may come at once.
const BURST: u32 = 8;

/// A token bucket, as the time at which it will be full again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Allowance {
    full_at: Time,
}

impl Allowance {
    /// Takes one of it. `false`: there is none.
    pub(super) fn take(&mut self, now: Time) -> bool {
        let full_at = self.full_at.max(now) + INTERVAL;
        let allowed = full_at <= now + INTERVAL * BURST;
        if allowed {
            self.full_at = full_at;
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_come_at_once_and_then_four_a_second() {
        let mut allowance = Allowance::default();
        let mut taken = |at| {
            let at = Time::from_millis(at);
            (0..100).filter(|_| allowance.take(at)).count()
        };
        assert_eq!(taken(1_000), 8);
        assert_eq!((taken(1_249), taken(1_250)), (0, 1));
        assert_eq!((taken(2_250), taken(60_000)), (4, 8));
    }
}
