//! What is counted, in which parts; what it costs; periods and thresholds. Pure, whole numbers.

use serde_json::Number;

use crate::config::{Prices, UsageLimits};
use crate::time::Timestamp;
use crate::words::words;

/// Microseconds of a day.
pub const DAY: i64 = 86_400_000_000;

words! {
    /// Something that is metered.
    pub enum Resource {
        CallMinutes = "call_minutes",
        TtsCharacters = "tts_characters",
        TranscriptionSeconds = "transcription_seconds",
        SmsSegments = "sms_segments",
        ChatappMessages = "chatapp_messages",
        LlmTokens = "llm_tokens",
    }
}

impl Resource {
    /// What one of it is called.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::CallMinutes => "minutes",
            Self::TtsCharacters => "characters",
            Self::TranscriptionSeconds => "seconds",
            Self::SmsSegments => "segments",
            Self::ChatappMessages => "messages",
            Self::LlmTokens => "tokens",
        }
    }

    /// How many stored parts make one unit: time is stored in milliseconds, all else in units.
    pub const fn parts(self) -> i64 {
        match self {
            Self::CallMinutes => 60_000,
            Self::TranscriptionSeconds => 1_000,
            Self::TtsCharacters | Self::SmsSegments | Self::ChatappMessages | Self::LlmTokens => 1,
        }
    }

    /// An amount in units, as the API shows it: whole where the unit is not divided, else to the
    /// millionth.
    pub fn quantity(self, amount: i64) -> Number {
        if self.parts() == 1 {
            return amount.into();
        }
        // Amounts are far below 2^53, so only the division rounds.
        let units = amount as f64 / self.parts() as f64;
        Number::from_f64((units * 1e6).round() / 1e6).unwrap_or_else(|| 0.into())
    }

    /// The price of so many stored parts: (millicents, for parts).
    fn price(self, prices: &Prices) -> (u32, i64) {
        match self {
            Self::CallMinutes => (prices.call_minute_millicents, 60_000),
            Self::TtsCharacters => (prices.tts_thousand_characters_millicents, 1_000),
            Self::TranscriptionSeconds => (prices.transcription_minute_millicents, 60_000),
            Self::SmsSegments => (prices.sms_segment_millicents, 1),
            Self::ChatappMessages => (prices.chatapp_message_millicents, 1),
            Self::LlmTokens => (prices.llm_thousand_tokens_millicents, 1_000),
        }
    }

    /// What an amount costs, millionths of a cent, rounded half up.
    pub fn cost(self, amount: i64, prices: &Prices) -> i64 {
        let (millicents, per) = self.price(prices);
        let (amount, per) = (i128::from(amount.max(0)), i128::from(per));
        let cost = (amount * i128::from(millicents) * 1_000 + per / 2) / per;
        i64::try_from(cost).unwrap_or(i64::MAX)
    }

    /// The account's limit of it for a calendar month, in units; 0: none.
    pub const fn monthly_limit(self, limits: &UsageLimits) -> u32 {
        match self {
            Self::CallMinutes => limits.call_minutes,
            Self::TtsCharacters => limits.tts_characters,
            Self::TranscriptionSeconds => limits.transcription_seconds,
            Self::SmsSegments => limits.sms_segments,
            Self::ChatappMessages => limits.chatapp_messages,
            Self::LlmTokens => limits.llm_tokens,
        }
    }
}

/// Millionths of a cent as cents, rounded half up (−0.5 becomes 0).
pub const fn cents(microcents: i64) -> i64 {
    microcents.saturating_add(500_000).div_euclid(1_000_000)
}

words! {
    /// What a trigger counts within.
    pub enum Period {
        Day = "day",
        /// Monday to Sunday.
        Week = "week",
        /// A calendar month.
        Month = "month",
        AllTime = "all_time",
    }
}

impl Period {
    /// The days of the period around `now`, UTC: first, and first after its end. All time has no end
    /// and begins in 1970.
    pub fn days(self, now: Timestamp) -> (i64, Option<i64>) {
        let today = now.micros().div_euclid(DAY);
        match self {
            Self::Day => (today, Some(today + 1)),
            Self::Week => {
                // 1970-01-01 was a Thursday, the fourth day of its week.
                let monday = today - (today + 3).rem_euclid(7);
                (monday, Some(monday + 7))
            }
            Self::Month => {
                let (first, next) = month(now);
                (first, Some(next))
            }
            Self::AllTime => (0, None),
        }
    }

    /// When the period around `now` began.
    pub fn began(self, now: Timestamp) -> Timestamp {
        Timestamp(self.days(now).0 * DAY)
    }
}

/// The first days of this month and of the next, since 1970-01-01.
fn month(now: Timestamp) -> (i64, i64) {
    let day_of = |time: jiff::civil::Date| {
        i64::from(
            jiff::civil::date(1970, 1, 1)
                .until(time)
                .map_or(0, |span| span.get_days()),
        )
    };
    let date = jiff::Timestamp::from_microsecond(now.micros())
        .unwrap_or_default()
        .to_zoned(jiff::tz::TimeZone::UTC)
        .date();
    let first = date.first_of_month();
    let next = date
        .last_of_month()
        .tomorrow()
        .unwrap_or(jiff::civil::Date::MAX);
    (day_of(first), day_of(next))
}

/// The beginning of the current month.
pub fn month_start(now: Timestamp) -> Timestamp {
    Timestamp(month(now).0 * DAY)
}

words! {
    /// What a trigger's value is measured in.
    pub enum ThresholdType {
        /// Units of the resource.
        Absolute = "absolute",
        /// Percent of the monthly limit of the resource.
        PercentOfLimit = "percent_of_limit",
    }
}

/// How far a period's amount is, in the unit of the threshold, and whether that is at or over it.
/// `None`: a percentage without a limit.
pub fn measure(
    resource: Resource,
    kind: ThresholdType,
    value: i64,
    amount: i64,
    limits: &UsageLimits,
) -> Option<(Number, bool)> {
    let amount_wide = i128::from(amount);
    match kind {
        ThresholdType::Absolute => {
            let reached = amount_wide >= i128::from(value) * i128::from(resource.parts());
            Some((resource.quantity(amount), reached))
        }
        ThresholdType::PercentOfLimit => {
            let limit = i128::from(resource.monthly_limit(limits)) * i128::from(resource.parts());
            if limit == 0 {
                return None;
            }
            let reached = amount_wide * 100 >= i128::from(value) * limit;
            let percent = amount as f64 * 100.0 / limit as f64;
            let percent = Number::from_f64((percent * 1e6).round() / 1e6)?;
            Some((percent, reached))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at a surprise")]

    use super::*;

    fn time(text: &str) -> Timestamp {
        Timestamp::parse(text).unwrap()
    }

    #[test]
    fn costs_are_whole_millionths_of_a_cent_rounded_half_up() {
        let prices = Prices {
            call_minute_millicents: 1_500,
            tts_thousand_characters_millicents: 1,
            llm_thousand_tokens_millicents: 3,
            ..Prices::default()
        };
        // 90 s at 1.5 cents a minute.
        assert_eq!(Resource::CallMinutes.cost(90_000, &prices), 2_250_000);
        // 1 ms: 1,500,000 / 60,000 = 25.
        assert_eq!(Resource::CallMinutes.cost(1, &prices), 25);
        assert_eq!(Resource::TtsCharacters.cost(650, &prices), 650);
        assert_eq!(Resource::LlmTokens.cost(1, &prices), 3);
        assert_eq!(Resource::SmsSegments.cost(7, &prices), 0);
        assert_eq!(Resource::CallMinutes.cost(i64::MAX, &prices), i64::MAX);
        for (micro, whole) in [
            (0, 0),
            (499_999, 0),
            (500_000, 1),
            (2_250_000, 2),
            (-500_000, 0),
            (-500_001, -1),
        ] {
            assert_eq!(cents(micro), whole, "{micro}");
        }
    }

    #[test]
    fn quantities_are_in_units() {
        assert_eq!(Resource::CallMinutes.quantity(90_000).to_string(), "1.5");
        assert_eq!(
            Resource::CallMinutes.quantity(1_000).to_string(),
            "0.016667"
        );
        assert_eq!(
            Resource::TranscriptionSeconds.quantity(1_250).to_string(),
            "1.25"
        );
        assert_eq!(Resource::TtsCharacters.quantity(12).to_string(), "12");
        for resource in Resource::ALL {
            assert_eq!(resource.name().parse(), Ok(*resource));
        }
    }

    #[test]
    fn periods_are_those_of_the_utc_calendar() {
        let days = |period: Period, text: &str| {
            let (first, next) = period.days(time(text));
            let told = |day: i64| Timestamp(day * DAY).to_string()[..10].to_owned();
            (told(first), next.map(told))
        };
        let span = |first: &str, next: &str| (first.to_owned(), Some(next.to_owned()));
        // A Sunday, and a leap day.
        let sunday = "2026-02-01T23:59:59.999999Z";
        assert_eq!(days(Period::Day, sunday), span("2026-02-01", "2026-02-02"));
        assert_eq!(days(Period::Week, sunday), span("2026-01-26", "2026-02-02"));
        assert_eq!(
            days(Period::Month, sunday),
            span("2026-02-01", "2026-03-01")
        );
        let leap = "2028-02-29T00:00:00Z";
        assert_eq!(days(Period::Month, leap), span("2028-02-01", "2028-03-01"));
        assert_eq!(
            days(Period::Month, "2026-12-31T12:00:00Z"),
            span("2026-12-01", "2027-01-01")
        );
        assert_eq!(days(Period::AllTime, leap), ("1970-01-01".to_owned(), None));
    }

    #[test]
    fn a_threshold_is_crossed_when_it_is_reached() {
        let limits = UsageLimits {
            call_minutes: 10,
            ..UsageLimits::default()
        };
        let at = |kind, value, amount| measure(Resource::CallMinutes, kind, value, amount, &limits);
        let absolute = |amount| at(ThresholdType::Absolute, 2, amount).unwrap();
        assert_eq!((absolute(119_999).1, absolute(120_000).1), (false, true));
        let percent = |amount| at(ThresholdType::PercentOfLimit, 80, amount).unwrap();
        assert_eq!((percent(479_999).1, percent(480_000).1), (false, true));
        assert_eq!(percent(480_000).0.to_string(), "80.0");
        let none = UsageLimits::default();
        let kind = ThresholdType::PercentOfLimit;
        assert_eq!(measure(Resource::CallMinutes, kind, 1, 1, &none), None);
    }
}
