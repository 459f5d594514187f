//! The one time that SIP needs: monotonic microseconds since an origin that the shell chose.

use std::ops::Add;
use std::time::Duration;

/// A point of monotonic time, microseconds. Never goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// Later than any deadline: "wait for input only".
    pub const NEVER: Self = Self(u64::MAX);

    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000)
    }

    pub const fn from_secs(secs: u64) -> Self {
        Self(secs * 1_000_000)
    }

    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Whole seconds, rounded down.
    pub const fn as_secs(self) -> u64 {
        self.0 / 1_000_000
    }

    /// How long after `earlier` this is; zero when it is not.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)),
        )
    }
}
