//! Wall time. The control plane alone knows it; the engine counts samples.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A point of wall time: microseconds since 1970-01-01T00:00:00Z. In the API it is ISO 8601 with
/// six digits and `+00:00`; in the databases an integer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Microseconds since the epoch.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since the epoch.
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// Whole seconds since the epoch, rounded down.
    pub const fn seconds(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    /// `duration` later, at most at the end of time.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(
            self.0
                .saturating_add(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)),
        )
    }

    /// `duration` earlier.
    #[must_use]
    pub fn minus(self, duration: Duration) -> Self {
        Self(
            self.0
                .saturating_sub(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)),
        )
    }

    /// How long after `earlier` this is; zero when it is not.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// Reads ISO 8601 with an offset (`Z` too) and any number of digits; `None` when it is not that.
    pub fn parse(text: &str) -> Option<Self> {
        let parsed: jiff::Timestamp = text.parse().ok()?;
        Some(Self(parsed.as_microsecond()))
    }
}

impl std::fmt::Display for Timestamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let days = self.0.div_euclid(86_400_000_000);
        let in_day = self.0.rem_euclid(86_400_000_000);
        let (year, month, day) = civil(days);
        let seconds = in_day / 1_000_000;
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:06}+00:00",
            seconds / 3600,
            seconds / 60 % 60,
            seconds % 60,
            in_day % 1_000_000
        )
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl schemars::JsonSchema for Timestamp {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Timestamp".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string", "format": "date-time",
            "pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}\+00:00$"
        })
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text)
            .ok_or_else(|| serde::de::Error::custom("not an ISO 8601 time with an offset"))
    }
}

/// Where wall time comes from. Handed in, so that tests own it.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System,
    Set(Arc<AtomicI64>),
}

impl Clock {
    /// The machine's clock.
    pub const fn system() -> Self {
        Self(Source::System)
    }

    /// A clock that stands until [`Clock::set`] or [`Clock::advance`] moves it.
    pub fn fixed(now: Timestamp) -> Self {
        Self(Source::Set(Arc::new(AtomicI64::new(now.0))))
    }

    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::System => {
                let since = SystemTime::now()
                    .duration_since(UNIX_EPOCH)
                    .unwrap_or_default();
                Timestamp::default().plus(since)
            }
            Source::Set(micros) => Timestamp(micros.load(Ordering::SeqCst)),
        }
    }

    /// Moves a fixed clock; the system's clock does not obey.
    pub fn set(&self, now: Timestamp) {
        if let Source::Set(micros) = &self.0 {
            micros.store(now.0, Ordering::SeqCst);
        }
    }

    /// Moves a fixed clock forward.
    pub fn advance(&self, by: Duration) {
        self.set(self.now().plus(by));
    }
}

/// Year, month, day of a day number since 1970-01-01 (proleptic Gregorian calendar).
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 {
        month_index + 3
    } else {
        month_index - 9
    };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at a surprise")]

    use super::*;

    #[test]
    fn is_written_with_six_digits_and_an_offset() {
        assert_eq!(Timestamp(0).to_string(), "1970-01-01T00:00:00.000000+00:00");
        assert_eq!(
            Timestamp(1_767_323_045_000_006).to_string(),
            "2026-01-02T03:04:05.000006+00:00"
        );
        assert_eq!(
            Timestamp(-1).to_string(),
            "1969-12-31T23:59:59.999999+00:00"
        );
    }

    #[test]
    fn reads_what_it_writes_and_what_others_write() {
        for micros in [
            0,
            1_767_323_045_000_006,
            951_782_400_000_000,
            4_102_444_800_123_456,
        ] {
            let time = Timestamp(micros);
            assert_eq!(Timestamp::parse(&time.to_string()), Some(time));
        }
        assert_eq!(
            Timestamp::parse("2026-01-02T03:04:05Z"),
            Some(Timestamp(1_767_323_045_000_000))
        );
        assert_eq!(Timestamp::parse("2026-01-02"), None);
        assert_eq!(Timestamp::parse("soon"), None);
    }

    #[test]
    fn a_fixed_clock_moves_only_when_told() {
        let clock = Clock::fixed(Timestamp(5));
        clock.clone().advance(Duration::from_secs(1));
        assert_eq!(clock.now(), Timestamp(1_000_005));
    }
}
