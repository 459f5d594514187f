//! How many strangers are heard: a bucket for each source under one for all, and one apart for each that
//! gave a trunk's credentials lately. A carrier's first INVITE passes, a flood costs next to nothing, and it
//! does not drown out who was known by password yesterday.

use core::net::IpAddr;
use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::time::Time;
use crate::trunk::Net;

/// What a bucket holds and what it is filled with.
struct Rate {
    per_second: u64,
    burst: u64,
}

/// Of all strangers together.
const ALL: Rate = Rate {
    per_second: 20,
    burst: 40,
};

/// Of one source: a call is an INVITE, an ACK, and the INVITE with credentials.
const EACH: Rate = Rate {
    per_second: 5,
    burst: 10,
};

/// Of one source that gave credentials.
const PROVED: Rate = Rate {
    per_second: 10,
    burst: 20,
};

/// How long a source is remembered that gave credentials, and how many are.
const REMEMBERED: Duration = Duration::from_secs(3_600);
const MOST_PROVED: usize = 256;

/// Sources whose buckets are kept. A bucket is full again after two seconds and forgotten then, so that
/// under the common rate fewer than a hundred are not.
const MOST_SOURCES: usize = 1_024;

/// Tokens in millionths, of which a rate of one a second earns one each microsecond.
const ONE: u64 = 1_000_000;

#[derive(Debug, Default)]
struct Bucket {
    tokens: u64,
    filled: Time,
}

impl Bucket {
    fn full(now: Time, rate: &Rate) -> Self {
        Self {
            tokens: rate.burst * ONE,
            filled: now,
        }
    }

    fn fill(&mut self, now: Time, rate: &Rate) {
        let elapsed = u64::try_from(now.since(self.filled).as_micros()).unwrap_or(u64::MAX);
        let earned = elapsed.saturating_mul(rate.per_second);
        self.tokens = self.tokens.saturating_add(earned).min(rate.burst * ONE);
        self.filled = now;
    }

    /// Whether one may be taken.
    fn has_one(&mut self, now: Time, rate: &Rate) -> bool {
        self.fill(now, rate);
        self.tokens >= ONE
    }

    fn take(&mut self, now: Time, rate: &Rate) -> bool {
        let one = self.has_one(now, rate);
        if one {
            self.tokens -= ONE;
        }
        one
    }
}

#[derive(Debug)]
struct Proved {
    bucket: Bucket,
    until: Time,
}

/// Who was heard of late.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    all: Bucket,
    each: FxHashMap<Net, Bucket>,
    proved: FxHashMap<Net, Proved>,
}

impl Strangers {
    /// Whether this one is heard now; then it has had its turn.
    pub(super) fn hears(&mut self, now: Time, source: IpAddr) -> bool {
        let source = whose(source);
        if let Some(proved) = self.proved.get_mut(&source)
            && proved.until > now
        {
            return proved.bucket.take(now, &PROVED);
        }
        // A source that has had its share takes nothing from the others.
        let spent = |own: &mut Bucket| !own.has_one(now, &EACH);
        if self.each.get_mut(&source).is_some_and(spent) || !self.all.take(now, &ALL) {
            return false;
        }
        if self.each.len() >= MOST_SOURCES {
            self.each.retain(|_, own| {
                own.fill(now, &EACH);
                own.tokens < EACH.burst * ONE
            });
        }
        let fresh = || Bucket::full(now, &EACH);
        self.each
            .entry(source)
            .or_insert_with(fresh)
            .take(now, &EACH)
    }

    /// A source gave credentials that are right.
    pub(super) fn proved(&mut self, now: Time, source: IpAddr) {
        let source = whose(source);
        let until = now + REMEMBERED;
        if let Some(known) = self.proved.get_mut(&source) {
            known.until = until;
            return;
        }
        if self.proved.len() >= MOST_PROVED
            && let Some(oldest) = self
                .proved
                .iter()
                .min_by_key(|(_, proved)| proved.until)
                .map(|(source, _)| *source)
        {
            self.proved.remove(&oldest);
        }
        let bucket = Bucket::full(now, &PROVED);
        self.proved.insert(source, Proved { bucket, until });
    }
}

/// A source: an address, or the 64 bits of an IPv6 one that its network gave out.
fn whose(source: IpAddr) -> Net {
    match source {
        IpAddr::V4(_) => Net::single(source),
        IpAddr::V6(_) => Net::of(source, 64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(strangers: &mut Strangers, secs: u64, source: &str) -> usize {
        let (now, source) = (Time::from_secs(secs), source.parse().unwrap());
        (0..1_000).filter(|_| strangers.hears(now, source)).count()
    }

    #[test]
    fn one_source_does_not_take_what_is_for_all() {
        let mut strangers = Strangers::default();
        assert_eq!(heard(&mut strangers, 100, "203.0.113.1"), 10);
        assert_eq!(heard(&mut strangers, 100, "203.0.113.2"), 10);
        assert_eq!(heard(&mut strangers, 101, "203.0.113.1"), 5);
        // A network has as many addresses of its own as it likes.
        assert_eq!(heard(&mut strangers, 200, "2001:db8::1"), 10);
        assert_eq!(heard(&mut strangers, 200, "2001:db8::2"), 0);
        assert_eq!(heard(&mut strangers, 200, "2001:db8:0:1::2"), 10);
    }

    #[test]
    fn who_gave_a_password_is_heard_through_a_flood_for_an_hour() {
        let mut strangers = Strangers::default();
        let flood = |strangers: &mut Strangers, now: Time| {
            for number in 0..100_u32 {
                strangers.hears(now, IpAddr::V4((0xc600_0000 + number).into()));
            }
        };
        let now = Time::from_secs(100);
        strangers.proved(now, "203.0.113.1".parse().unwrap());
        flood(&mut strangers, now);
        assert_eq!(heard(&mut strangers, 100, "203.0.113.2"), 0);
        assert_eq!(heard(&mut strangers, 100, "203.0.113.1"), 20);
        assert_eq!(heard(&mut strangers, 101, "203.0.113.1"), 10);
        flood(&mut strangers, Time::from_secs(3_701));
        assert_eq!(heard(&mut strangers, 3_701, "203.0.113.1"), 0);
    }

    #[test]
    fn neither_table_grows_without_end() {
        let mut strangers = Strangers::default();
        for number in 0..100_000_u32 {
            let now = Time::from_millis(u64::from(number) * 50);
            let source = IpAddr::V4((0xc600_0000 + number).into());
            strangers.hears(now, source);
            if number % 10 == 0 {
                strangers.proved(now, source);
            }
        }
        assert!(strangers.each.len() <= MOST_SOURCES);
        assert_eq!(strangers.proved.len(), MOST_PROVED);
    }
}
