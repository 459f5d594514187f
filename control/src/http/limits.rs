//! How many requests a key or an address may make: token buckets.
//!
//! A bucket holds twice a minute's worth of requests and fills at a minute's worth a minute. The
//! arithmetic is a function of *now*, a moment of this process that no setting of the machine's clock
//! moves; the table of buckets is bounded.
//!
//! Several nodes share their buckets through Redis (`bucket.lua`, the same arithmetic there). While it
//! does not answer each node counts by itself, but for what costs money: that is refused.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use ::redis::Script;
use http::HeaderMap;

use super::endpoint::Class;
use super::error::ApiError;
use crate::config::Limits as Settings;
use crate::ids::ApiKeyId;
use crate::redis_link::{Link, SERVER_CLOCK};
use crate::time::Moment;

/// Buckets kept at most. A full bucket can be forgotten without harm; if none is full, the fullest
/// go. 100,000 of them are about 6 MB.
const MAX_BUCKETS: usize = 100_000;
/// A bucket holds this many minutes' worth.
const BURST: u32 = 2;

/// All request limits.
#[derive(Debug)]
pub struct Limits {
    settings: Settings,
    keys: Table<(ApiKeyId, Class)>,
    failed_auth: Table<IpAddr>,
    keyless: Table<IpAddr>,
    shared: Option<Shared>,
}

/// The shared buckets do not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unmetered;

impl From<Unmetered> for ApiError {
    fn from(_: Unmetered) -> Self {
        Self::Unavailable {
            code: "rate_limiter_unavailable",
            message: "Requests that cost money cannot be counted right now".to_owned(),
            retry_after: 5,
        }
    }
}

impl Limits {
    /// Counts in this process, or through Redis where there is a link.
    pub fn new(settings: &Settings, link: Option<Arc<Link>>) -> Self {
        Self {
            settings: settings.clone(),
            keys: Table::default(),
            failed_auth: Table::default(),
            keyless: Table::default(),
            shared: link.map(|link| Shared::new(link, SERVER_CLOCK)),
        }
    }

    /// One request of this class by this key. `None`: the class is not limited. `Err`: it costs money
    /// and cannot be counted.
    pub async fn request(
        &self,
        key: ApiKeyId,
        class: Class,
        now: Moment,
    ) -> Result<Option<Decision>, Unmetered> {
        let (per_minute, name, costs) = match class {
            Class::Read => (self.settings.reads_per_minute, "read", false),
            Class::Write => (self.settings.writes_per_minute, "write", false),
            Class::CallCreation => (self.settings.call_creations_per_minute, "call", true),
            Class::Tts => (self.settings.tts_per_minute, "tts", true),
            Class::Exempt => return Ok(None),
        };
        if let Some(shared) = &self.shared {
            match shared.take(&format!("{name}:{key}"), per_minute).await {
                Some(decision) => return Ok(Some(decision)),
                None if costs => return Err(Unmetered),
                None => {}
            }
        }
        Ok(Some(self.keys.take((key, class), per_minute, now)))
    }

    /// One failed authentication from this address.
    pub async fn failed_auth(&self, ip: IpAddr, now: Moment) -> Decision {
        let per_minute = self.settings.failed_auth_per_minute;
        self.of_address("auth", &self.failed_auth, ip, per_minute, now)
            .await
    }

    /// One session asked for without a key from this address.
    pub async fn keyless_connect(&self, ip: IpAddr, now: Moment) -> Decision {
        let per_minute = self.settings.keyless_per_minute;
        self.of_address("keyless", &self.keyless, ip, per_minute, now)
            .await
    }

    async fn of_address(
        &self,
        name: &str,
        own: &Table<IpAddr>,
        ip: IpAddr,
        per_minute: u32,
        now: Moment,
    ) -> Decision {
        let network = network(ip);
        if let Some(shared) = &self.shared
            && let Some(decision) = shared.take(&format!("{name}:{network}"), per_minute).await
        {
            return decision;
        }
        own.take(network, per_minute, now)
    }
}

/// Buckets that several nodes share.
#[derive(Debug)]
pub struct Shared {
    link: Arc<Link>,
    script: Script,
}

impl Shared {
    /// `clock`: the Lua function that tells the time.
    pub fn new(link: Arc<Link>, clock: &str) -> Self {
        Self {
            link,
            script: Script::new(&format!("{clock}\n{}", include_str!("bucket.lua"))),
        }
    }

    /// One request out of the bucket of this name. `None`: no answer.
    pub async fn take(&self, name: &str, per_minute: u32) -> Option<Decision> {
        // The braces keep a bucket in a slot of its own.
        let key = format!("sidetone:limit:{{{name}}}");
        let args = [per_minute.to_string(), size(per_minute).to_string()];
        let answer = self.link.run(&self.script, &[&key], &args).await.ok()?;
        let [passed, tokens] = answer.as_slice() else {
            tracing::error!(?answer, "a shared bucket answers something else");
            return None;
        };
        let tokens = tokens.parse().ok()?;
        Some(decision(passed == "1", tokens, per_minute))
    }
}

/// Whether a request may pass, and what the client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The bucket's size.
    pub limit: u32,
    /// Requests that could follow at once.
    pub remaining: u32,
    /// Seconds until the bucket is full again.
    pub reset: u32,
    /// Refused: seconds until the next request can pass.
    pub retry_after: Option<u32>,
}

impl Decision {
    /// The refusal, if it is one.
    pub fn refusal(&self) -> Result<(), ApiError> {
        self.retry_after.map_or(Ok(()), |retry_after| {
            Err(ApiError::RateLimited { retry_after })
        })
    }

    /// `RateLimit-Limit`, `-Remaining`, `-Reset`.
    pub fn write(&self, headers: &mut HeaderMap) {
        for (name, value) in [
            ("ratelimit-limit", self.limit),
            ("ratelimit-remaining", self.remaining),
            ("ratelimit-reset", self.reset),
        ] {
            headers.insert(name, value.into());
        }
    }
}

/// Requests left, in millionths, at a time.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: u64,
    at: Moment,
}

const ONE: u64 = 1_000_000;

impl Bucket {
    const fn full(per_minute: u32, now: Moment) -> Self {
        Self {
            tokens: size(per_minute),
            at: now,
        }
    }

    fn refilled(self, per_minute: u32, now: Moment) -> Self {
        // Micro-tokens a microsecond = requests a second = per_minute / 60.
        let elapsed = u64::try_from(now.since(self.at).as_micros()).unwrap_or(u64::MAX);
        let gained = elapsed.saturating_mul(u64::from(per_minute)) / 60;
        // Where the clock went back (that of Redis may), the time from there on counts.
        Self {
            tokens: self.tokens.saturating_add(gained).min(size(per_minute)),
            at: now,
        }
    }

    fn take(&mut self, per_minute: u32, now: Moment) -> Decision {
        *self = self.refilled(per_minute, now);
        let passes = self.tokens >= ONE;
        if passes {
            self.tokens -= ONE;
        }
        decision(passes, self.tokens, per_minute)
    }
}

/// What a client is told of a bucket with these tokens left.
fn decision(passes: bool, tokens: u64, per_minute: u32) -> Decision {
    Decision {
        limit: per_minute.saturating_mul(BURST),
        remaining: u32::try_from(tokens / ONE).unwrap_or(u32::MAX),
        reset: seconds_to_gain(size(per_minute).saturating_sub(tokens), per_minute),
        retry_after: (!passes)
            .then(|| seconds_to_gain(ONE.saturating_sub(tokens), per_minute).max(1)),
    }
}

const fn size(per_minute: u32) -> u64 {
    per_minute as u64 * BURST as u64 * ONE
}

fn seconds_to_gain(tokens: u64, per_minute: u32) -> u32 {
    match u64::from(per_minute) {
        0 => 60,
        rate => u32::try_from((tokens * 60).div_ceil(rate * ONE)).unwrap_or(u32::MAX),
    }
}

#[derive(Debug)]
struct Table<K>(Mutex<HashMap<K, Bucket>>);

impl<K> Default for Table<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Hash + Eq + Copy> Table<K> {
    fn take(&self, key: K, per_minute: u32, now: Moment) -> Decision {
        // A panic while the lock was held leaves whole buckets behind.
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= MAX_BUCKETS && !buckets.contains_key(&key) {
            make_room(&mut buckets, per_minute, now);
        }
        buckets
            .entry(key)
            .or_insert_with(|| Bucket::full(per_minute, now))
            .take(per_minute, now)
    }
}

fn make_room<K: Hash + Eq + Copy>(buckets: &mut HashMap<K, Bucket>, per_minute: u32, now: Moment) {
    buckets.retain(|_, bucket| bucket.refilled(per_minute, now).tokens < size(per_minute));
    if buckets.len() >= MAX_BUCKETS {
        let mut levels: Vec<u64> = buckets.values().map(|bucket| bucket.tokens).collect();
        let middle = levels.len() / 2;
        let (_, median, _) = levels.select_nth_unstable(middle);
        let median = *median;
        buckets.retain(|_, bucket| bucket.tokens < median);
    }
    if buckets.len() >= MAX_BUCKETS {
        buckets.clear();
    }
}

/// The part of an address that one subscriber holds: all of IPv4, the /64 of IPv6.
pub fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6((u128::from(v6) & !u128::from(u64::MAX)).into()),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at a surprise")]

    use super::*;
    use crate::time::{Clock, Timestamp};
    use std::time::Duration;

    #[test]
    fn a_burst_of_two_minutes_then_one_a_second() {
        let now = Moment::from_micros(1_000_000_000);
        let mut bucket = Bucket::full(60, now);
        for left in (0..120).rev() {
            let decision = bucket.take(60, now);
            assert_eq!(
                (decision.remaining, decision.retry_after, decision.limit),
                (left, None, 120)
            );
        }
        assert_eq!(
            bucket.take(60, now),
            Decision {
                limit: 120,
                remaining: 0,
                reset: 120,
                retry_after: Some(1)
            }
        );
        assert_eq!(
            bucket
                .take(60, now.plus(Duration::from_millis(999)))
                .retry_after,
            Some(1)
        );
        assert_eq!(
            bucket
                .take(60, now.plus(Duration::from_secs(1)))
                .retry_after,
            None
        );
    }

    #[test]
    fn a_clock_that_goes_back_gives_nothing_and_holds_nothing_back() {
        let now = Moment::from_micros(86_400_000_000);
        let mut bucket = Bucket::full(60, now);
        for _ in 0..120 {
            assert_eq!(bucket.take(60, now).retry_after, None);
        }
        let back = now.minus(Duration::from_secs(3600));
        assert_eq!(bucket.take(60, back).retry_after, Some(1));
        let second = back.plus(Duration::from_secs(1));
        assert_eq!(bucket.take(60, second).retry_after, None);
        assert_eq!(bucket.take(60, second).retry_after, Some(1));
    }

    #[tokio::test]
    async fn no_limit_follows_the_wall_clock() {
        let settings = crate::config::Config::defaults().unwrap().limits;
        let ip = IpAddr::from(std::net::Ipv4Addr::LOCALHOST);
        for seconds in [3_600, -3_600, 86_400, -86_400] {
            let clock = Clock::fixed(Timestamp(1_767_323_045_000_006));
            let limits = Limits::new(&settings, None);
            let key = ApiKeyId::new(&clock);
            let mut left = Vec::new();
            // A second before and after the jump gains the same, of each kind of limit.
            for jump in [0, seconds, 0] {
                let all = [
                    limits.failed_auth(ip, clock.moment()).await,
                    limits.keyless_connect(ip, clock.moment()).await,
                ];
                let keys = limits.request(key, Class::Write, clock.moment()).await;
                let all = all.into_iter().chain(keys.unwrap());
                left.push(all.map(|decision| decision.remaining).collect::<Vec<_>>());
                clock.step(jump);
            }
            let down = |by: u32| left[0].iter().map(|most| most - by).collect::<Vec<_>>();
            assert_eq!(left[1..], [down(1), down(2)], "{seconds} s");
            clock.advance(Duration::from_secs(120));
            let full = limits.failed_auth(ip, clock.moment()).await.remaining;
            assert_eq!(full, left[0][0], "{seconds} s");
        }
    }

    #[test]
    fn the_table_is_bounded() {
        let table = Table::default();
        for key in 0..(MAX_BUCKETS as u64 + 5000) {
            table.take(key, 60, Moment::default());
        }
        assert!(
            table
                .0
                .lock()
                .is_ok_and(|buckets| buckets.len() <= MAX_BUCKETS)
        );
    }

    #[test]
    fn one_subscriber_has_one_ipv6_network() {
        let a: IpAddr = std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 2, 3, 4, 5).into();
        let b: IpAddr = std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 9, 9, 9, 9).into();
        assert_eq!(network(a), network(b));
        let mapped: IpAddr = std::net::Ipv4Addr::LOCALHOST.to_ipv6_mapped().into();
        assert_eq!(network(mapped), IpAddr::from(std::net::Ipv4Addr::LOCALHOST));
    }
}
