//! The two times the engine knows. *Now* ([`Time`]) is monotonic and rules deadlines; *media time*
//! ([`Samples`]) counts samples of the recording and rules everything a listener can hear. Wall
//! time is not known here.

use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The engine's one sample rate, Hz. Legs and voices convert to and from it.
pub const RATE: u32 = 16_000;

/// A point of monotonic time: microseconds since an origin that the shell chose. Never goes back.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Time(u64);

impl Time {
    /// Later than any deadline: "wait for input only".
    pub const NEVER: Self = Self(u64::MAX);

    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1000)
    }

    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Whole milliseconds, rounded down.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1000
    }

    /// How long after `earlier` this is; zero when it is not.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// `duration` earlier, and never before the origin.
    #[must_use]
    pub fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(micros(duration)))
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(micros(duration)))
    }
}

impl Sub<Self> for Time {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

/// A position on a call's sample clock, or a length on it: samples at [`RATE`]. Position 0 is the
/// first sample of the recording.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Samples(pub u64);

impl Samples {
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms * (RATE as u64) / 1000)
    }

    /// Whole milliseconds, rounded to the nearest.
    pub const fn ms(self) -> u64 {
        (self.0 * 1000 + (RATE as u64) / 2) / (RATE as u64)
    }

    /// The samples that fit into `duration`, rounded down.
    pub const fn in_duration(duration: Duration) -> Self {
        Self((duration.as_micros() as u64) * (RATE as u64) / 1_000_000)
    }

    pub const fn duration(self) -> Duration {
        Duration::from_micros(self.0 * 1_000_000 / (RATE as u64))
    }

    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add for Samples {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
