//! The core's clock, which stands still while its caller is away.
//!
//! What SCTP has sent and nobody acknowledges it sends again at times that double, up to a minute apart (RFC 9260
//! section 6.3.3): after an outage of 16 s the next time is 15 s later, though the way is back, and until then no event
//! comes through, for they come in order. On a clock that stands still it is soon after the caller is back.

use std::time::Duration;

use crate::time::Time;

#[derive(Debug, Default)]
pub(super) struct Hours {
    /// Since when the clock stands.
    stopped: Option<Time>,
    /// How long it stood before, in all.
    stood: Duration,
}

impl Hours {
    /// What the core is told.
    pub(super) fn at(&self, now: Time) -> Time {
        self.stopped.unwrap_or(now).min(now).before(self.stood)
    }

    /// When the core's clock will show `at`, unless it is stopped before.
    pub(super) fn when(&self, at: Time) -> Time {
        if self.stopped.is_some() {
            Time::NEVER
        } else {
            at + self.stood
        }
    }

    pub(super) fn stop(&mut self, now: Time) {
        self.stopped.get_or_insert(now);
    }

    pub(super) fn go_on(&mut self, now: Time) {
        if let Some(since) = self.stopped.take() {
            self.stood += now - since;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_core_waits_for_waits_as_long_as_the_caller_is_away() {
        let s = Time::from_millis;
        let mut hours = Hours::default();
        assert_eq!(hours.at(s(5_000)), s(5_000));
        assert_eq!(hours.when(s(7_000)), s(7_000));

        hours.stop(s(5_000));
        assert_eq!(hours.at(s(6_000)), s(5_000));
        assert_eq!(hours.when(s(7_000)), Time::NEVER);
        // It stands already.
        hours.stop(s(8_000));

        hours.go_on(s(20_000));
        assert_eq!(hours.at(s(20_000)), s(5_000));
        assert_eq!(hours.at(s(21_000)), s(6_000));
        assert_eq!(hours.when(s(7_000)), s(22_000));
        // It goes already.
        hours.go_on(s(21_000));
        assert_eq!(hours.at(s(22_000)), s(7_000));
        assert_eq!(hours.when(Time::NEVER), Time::NEVER);

        // And once more.
        hours.stop(s(30_000));
        hours.go_on(s(31_000));
        assert_eq!(hours.at(s(32_000)), s(16_000));
    }
}
