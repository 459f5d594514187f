//! Time. The control plane alone knows it; the engine counts samples.
//!
//! A [`Clock`] tells three times, for three uses. [`Clock::now`] is wall time: for what people read, for
//! signatures, and for the expiry of tokens and URLs. [`Clock::moment`] only grows, whoever sets the
//! machine's clock: for waits, limits and leases inside this process. [`Clock::shared`] is the time by
//! which deadlines stand in the database: all processes of one database have the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

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

/// A point of the time that this process has lived through: microseconds since its clock was made.
/// Setting the machine's clock does not move it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(i64);

impl Moment {
    /// So many microseconds after the clock was made.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since the clock was made.
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// `duration` later, at most at the end of time.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(Timestamp(self.0).plus(duration).0)
    }

    /// `duration` earlier.
    #[must_use]
    pub fn minus(self, duration: Duration) -> Self {
        Self(Timestamp(self.0).minus(duration).0)
    }

    /// How long after `earlier` this is; zero when it is not.
    pub fn since(self, earlier: Self) -> Duration {
        Timestamp(self.0).since(Timestamp(earlier.0))
    }
}

/// Where time comes from. Handed in, so that tests own it.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System(Arc<System>),
    Set(Arc<Hands>),
}

/// The machine's clocks.
#[derive(Debug)]
struct System {
    made: Instant,
    /// What the shared time was when this clock was made, in microseconds.
    shared_at: AtomicI64,
}

/// The clock of a test, in microseconds.
#[derive(Debug)]
struct Hands {
    origin: i64,
    /// Since `origin`.
    passed: AtomicI64,
    /// How far somebody has set the wall clock forward; back: below zero.
    ahead: AtomicI64,
}

impl Clock {
    /// The machine's clock. The shared time is that of the wall until [`Clock::agree`] knows better.
    pub fn system() -> Self {
        Self(Source::System(Arc::new(System {
            made: Instant::now(),
            shared_at: AtomicI64::new(wall().0),
        })))
    }

    /// A clock that stands until [`Clock::advance`], [`Clock::set`] or [`Clock::step`] moves it.
    pub fn fixed(now: Timestamp) -> Self {
        Self(Source::Set(Arc::new(Hands {
            origin: now.0,
            passed: AtomicI64::new(0),
            ahead: AtomicI64::new(0),
        })))
    }

    /// Wall time, which an operator or NTP may set forward and back.
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::System(_) => wall(),
            Source::Set(hands) => Timestamp(
                hands.origin
                    + hands.passed.load(Ordering::SeqCst)
                    + hands.ahead.load(Ordering::SeqCst),
            ),
        }
    }

    /// The time that this process has lived through: for all that it alone waits for and measures.
    pub fn moment(&self) -> Moment {
        match &self.0 {
            Source::System(system) => Moment(micros(system.made.elapsed())),
            Source::Set(hands) => Moment(hands.passed.load(Ordering::SeqCst)),
        }
    }

    /// The time of deadlines that other processes read, or this one after a restart. With a database
    /// server it is that server's, see [`Clock::agree`]. With a file it is the wall time at which this
    /// process began, and the time that has passed since: nobody moves a deadline by setting a clock.
    pub fn shared(&self) -> Timestamp {
        match &self.0 {
            Source::System(system) => {
                Timestamp(system.shared_at.load(Ordering::SeqCst) + self.moment().0)
            }
            Source::Set(hands) => Timestamp(hands.origin + hands.passed.load(Ordering::SeqCst)),
        }
    }

    /// Takes over the time of the database server: `theirs` was read at `at`.
    pub fn agree(&self, theirs: Timestamp, at: Moment) {
        if let Source::System(system) = &self.0 {
            system.shared_at.store(theirs.0 - at.0, Ordering::SeqCst);
        }
    }

    /// Time passes until a fixed clock's wall shows `now`; the system's clock does not obey.
    pub fn set(&self, now: Timestamp) {
        if let Source::Set(hands) = &self.0 {
            hands
                .passed
                .fetch_add(now.0 - self.now().0, Ordering::SeqCst);
        }
    }

    /// Time passes on a fixed clock.
    pub fn advance(&self, by: Duration) {
        self.set(self.now().plus(by));
    }

    /// Somebody sets the wall of a fixed clock by so many seconds, forward or back, and no time passes.
    pub fn step(&self, seconds: i64) {
        if let Source::Set(hands) = &self.0 {
            hands.ahead.fetch_add(seconds * 1_000_000, Ordering::SeqCst);
        }
    }
}

fn wall() -> Timestamp {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp::default().plus(since)
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
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

    #[test]
    fn setting_the_wall_moves_neither_moments_nor_deadlines() {
        let clock = Clock::fixed(Timestamp(5_000_000));
        clock.advance(Duration::from_secs(2));
        for seconds in [3_600, -7_200, 86_400, -86_400 * 2] {
            let before = clock.now();
            clock.step(seconds);
            assert_eq!(clock.now().0 - before.0, seconds * 1_000_000);
            assert_eq!(clock.moment(), Moment(2_000_000));
            assert_eq!(clock.shared(), Timestamp(7_000_000));
        }
        clock.advance(Duration::from_secs(1));
        assert_eq!(clock.moment().since(Moment(2_000_000)).as_secs(), 1);
    }

    #[test]
    fn the_shared_time_of_the_machine_is_the_database_s_once_it_is_known() {
        let clock = Clock::system();
        let apart = |a: Timestamp, b: Timestamp| a.since(b).max(b.since(a));
        assert!(apart(clock.shared(), clock.now()) < Duration::from_secs(5));
        let theirs = clock.now().minus(Duration::from_secs(86_400));
        clock.agree(theirs, clock.moment());
        assert!(apart(clock.clone().shared(), theirs) < Duration::from_secs(5));
    }
}
