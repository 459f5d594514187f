//! Digest authentication on both sides (RFC 3261 22, RFC 7616, RFC 8760): MD5, SHA-256 and
//! SHA-512-256, with `qop=auth` or without.
//!
//! A server's nonce is its time and a salt under a keyed hash, so nothing is stored for a stranger
//! who only asks. What is stored is the last nonce count of those who answered rightly.

mod choice;
mod realms;

use core::net::IpAddr;
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use hmac::{Hmac, KeyInit as _, Mac as _};
use md5::Md5;
use rustc_hash::FxHashMap;
use sha2::{Digest as _, Sha256, Sha512_256};
use subtle::ConstantTimeEq as _;

pub use self::choice::Withheld;
pub(crate) use self::realms::{Challenged, Realms};
use crate::ids::Ids;
use crate::message::header::AuthValue;
use crate::message::{Name, Request, Uri};
use crate::time::Time;

/// A user and a password. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub username: String,
    pub password: String,
    /// The realm of the challenges that are answered; `None`: those in which the trunk's own hosts asked first.
    pub realm: Option<String>,
    /// Answer MD5 without qop (RFC 2069) too, where nothing better is asked for: whoever overhears such an
    /// answer, or chose its nonce, tries passwords on it with tables that were made before.
    pub md5_without_qop: bool,
}

impl Credentials {
    /// Of any realm, and not for MD5 without qop.
    pub fn new(username: impl Into<String>, password: impl Into<String>) -> Self {
        Self {
            username: username.into(),
            password: password.into(),
            realm: None,
            md5_without_qop: false,
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(…)")
    }
}

/// The hashes that are known, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Algorithm {
    Md5,
    Sha256,
    Sha512_256,
}

impl Algorithm {
    const ALL: [Self; 3] = [Self::Md5, Self::Sha256, Self::Sha512_256];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Md5 => "MD5",
            Self::Sha256 => "SHA-256",
            Self::Sha512_256 => "SHA-512-256",
        }
    }

    /// The algorithm and whether it is the `-sess` form.
    fn parse(text: &str) -> Option<(Self, bool)> {
        let (text, session) = match text.len().checked_sub(5) {
            Some(at) if text.is_char_boundary(at) && text[at..].eq_ignore_ascii_case("-sess") => {
                (&text[..at], true)
            }
            _ => (text, false),
        };
        Self::ALL
            .into_iter()
            .find(|own| own.as_str().eq_ignore_ascii_case(text))
            .map(|own| (own, session))
    }

    /// The hash in lower-case hexadecimal.
    fn hash(self, text: &str) -> String {
        match self {
            Self::Md5 => hex(&Md5::digest(text)),
            Self::Sha256 => hex(&Sha256::digest(text)),
            Self::Sha512_256 => hex(&Sha512_256::digest(text)),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: [u8; 16] = *b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|byte| {
            [
                DIGITS[usize::from(byte >> 4)],
                DIGITS[usize::from(byte & 15)],
            ]
        })
        .map(char::from)
        .collect()
}

/// A challenge of a server that we can answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge {
    pub realm: String,
    nonce: String,
    opaque: Option<String>,
    /// The nonce was old, the password was right.
    pub stale: bool,
    algorithm: Algorithm,
    session: bool,
    /// `None`: the scheme of RFC 2069, without a nonce count.
    qop: bool,
}

impl Challenge {
    /// `None` for another scheme, an unknown algorithm or a qop other than `auth`.
    pub fn parse(text: &str) -> Option<Self> {
        let value = AuthValue::parse(text)?;
        if !value.scheme.eq_ignore_ascii_case("Digest") {
            return None;
        }
        let (algorithm, session) = Algorithm::parse(value.get("algorithm").unwrap_or("MD5"))?;
        let qop = match value.get("qop") {
            Some(offered) => {
                let auth = offered
                    .split(',')
                    .any(|one| one.trim().eq_ignore_ascii_case("auth"));
                auth.then_some(true)?
            }
            None => false,
        };
        Some(Self {
            realm: value.get("realm")?.to_owned(),
            nonce: value.get("nonce")?.to_owned(),
            opaque: value.get("opaque").map(str::to_owned),
            stale: value
                .get("stale")
                .is_some_and(|stale| stale.eq_ignore_ascii_case("true")),
            algorithm,
            session,
            qop,
        })
    }

    /// The credentials for a request. `count` is how often this nonce was used, from 1.
    pub fn answer(
        &self,
        credentials: &Credentials,
        method: &str,
        uri: &str,
        count: u32,
        cnonce: &str,
    ) -> AuthValue {
        let count = format!("{count:08x}");
        let response = response(&Parts {
            algorithm: self.algorithm,
            session: self.session,
            username: &credentials.username,
            realm: &self.realm,
            password: &credentials.password,
            nonce: &self.nonce,
            qop: self.qop.then_some((count.as_str(), cnonce, "auth")),
            cnonce,
            method,
            uri,
        });
        let mut value = AuthValue::new("Digest");
        value.push("username", &credentials.username, true);
        value.push("realm", &self.realm, true);
        value.push("nonce", &self.nonce, true);
        value.push("uri", uri, true);
        value.push("response", response, true);
        let algorithm = self.algorithm.as_str();
        let suffix = if self.session { "-sess" } else { "" };
        value.push("algorithm", format!("{algorithm}{suffix}"), false);
        if self.qop || self.session {
            value.push("cnonce", cnonce, true);
        }
        if self.qop {
            value.push("qop", "auth", false);
            value.push("nc", count, false);
        }
        if let Some(opaque) = &self.opaque {
            value.push("opaque", opaque, true);
        }
        value
    }
}

/// Answers to challenges within one call or registration, bounded so that no server can keep us
/// hashing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retry {
    given: u8,
    /// The latest challenge of each server that asked, oldest first.
    asked: Vec<Asked>,
}

/// Challenges that a call or registration answers until something succeeds: each of its requests may be asked
/// once, and again when stale.
const MOST_RETRIES: u8 = 12;

/// Servers whose challenges are remembered: the one that is called, and the proxies on the way.
const MOST_ASKED: usize = 4;

/// A challenge that was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Asked {
    /// The header of its answers.
    answer: Name,
    challenge: Challenge,
    /// One for all answers, which a `-sess` algorithm wants (RFC 7616 3.4.2).
    cnonce: String,
    /// The answers that were given with its nonce.
    count: u32,
}

impl Asked {
    /// Credentials for the next request under its nonce.
    fn next(&mut self, credentials: &Credentials, request: &Request) -> String {
        self.count += 1;
        let (method, uri) = (request.method.as_str(), request.uri.to_string());
        self.challenge
            .answer(credentials, method, &uri, self.count, &self.cnonce)
            .to_string()
    }
}

impl Retry {
    /// Something succeeded: what comes later is challenged anew. The counts go on, for a server may ask
    /// with the same nonce again.
    pub fn start_over(&mut self) {
        self.given = 0;
    }

    /// The request again, with credentials for this challenge of its 401 or 407 and for those that it had
    /// answered before, and without a new CSeq and branch. `None` when there is nothing to answer, or the
    /// credentials were wrong.
    pub fn answer(
        &mut self,
        request: &Request,
        code: u16,
        challenge: Challenge,
        credentials: &Credentials,
        ids: &mut Ids,
    ) -> Option<Request> {
        let answer = choice::answer_to(code)?;
        let has = |answer: &Name, realm: &str| {
            let mut given = request.headers.all(answer).filter_map(AuthValue::parse);
            given.any(|given| given.get("realm") == Some(realm))
        };
        if (has(&answer, &challenge.realm) && !challenge.stale) || self.given >= MOST_RETRIES {
            return None;
        }
        self.given += 1;
        self.remember(answer, challenge, ids);
        let mut again = request.clone();
        for name in [Name::Via, Name::Authorization, Name::ProxyAuthorization] {
            again.headers.remove(&name);
        }
        let latest = self.asked.len() - 1;
        for (place, asked) in self.asked.iter_mut().enumerate() {
            if place == latest || has(&asked.answer, &asked.challenge.realm) {
                let value = asked.next(credentials, request);
                again.headers.push(asked.answer.clone(), value);
            }
        }
        Some(again)
    }

    /// Puts a challenge last of those that were asked. A nonce is counted on whoever asks with it.
    fn remember(&mut self, answer: Name, challenge: Challenge, ids: &mut Ids) {
        let (cnonce, count) = self
            .asked
            .iter()
            .filter(|asked| asked.challenge.nonce == challenge.nonce)
            .max_by_key(|asked| asked.count)
            .map_or_else(
                || (ids.tag(), 0),
                |asked| (asked.cnonce.clone(), asked.count),
            );
        self.asked
            .retain(|asked| asked.answer != answer || asked.challenge.realm != challenge.realm);
        if self.asked.len() >= MOST_ASKED {
            self.asked.remove(0);
        }
        self.asked.push(Asked {
            answer,
            challenge,
            cnonce,
            count,
        });
    }
}

struct Parts<'a> {
    algorithm: Algorithm,
    session: bool,
    username: &'a str,
    realm: &'a str,
    password: &'a str,
    nonce: &'a str,
    /// Count, client nonce, qop.
    qop: Option<(&'a str, &'a str, &'a str)>,
    cnonce: &'a str,
    method: &'a str,
    uri: &'a str,
}

/// RFC 7616 3.4.1 to 3.4.3.
fn response(parts: &Parts<'_>) -> String {
    let hash = |text: String| parts.algorithm.hash(&text);
    let Parts {
        username,
        realm,
        password,
        nonce,
        cnonce,
        method,
        uri,
        ..
    } = parts;
    let mut secret = hash(format!("{username}:{realm}:{password}"));
    if parts.session {
        secret = hash(format!("{secret}:{nonce}:{cnonce}"));
    }
    let what = hash(format!("{method}:{uri}"));
    match parts.qop {
        Some((count, cnonce, qop)) => {
            hash(format!("{secret}:{nonce}:{count}:{cnonce}:{qop}:{what}"))
        }
        None => hash(format!("{secret}:{nonce}:{what}")),
    }
}

/// Nonces whose counts are remembered; beyond it the oldest are called stale before their time.
const MOST_NONCES: usize = 4_096;

/// What a server thinks of a request's credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict<T> {
    /// They are right for one of those who have the name.
    Known(T),
    /// They are right for several, who have the password in common too.
    Ambiguous(Vec<T>),
    /// The nonce is old, or its count was used: ask again with `stale=true`.
    Stale,
    /// None, wrong ones, or of an unknown user: which of these is not told.
    Refused,
}

/// The server's side.
#[derive(Debug)]
pub struct Authenticator {
    key: [u8; 32],
    realm: String,
    /// How long a nonce is good.
    lifetime: Duration,
    ids: Ids,
    /// The highest count of each nonce that was used rightly, oldest first in `order`.
    counts: FxHashMap<String, u32>,
    order: VecDeque<String>,
    /// Nonces made before this are stale, whatever their age.
    floor: u64,
    /// Takes the place of an unknown user's password.
    nobody: String,
}

impl Authenticator {
    pub fn new(realm: impl Into<String>, mut ids: Ids) -> Self {
        let mut key = [0; 32];
        for chunk in key.chunks_mut(8) {
            chunk.copy_from_slice(&ids.number().to_le_bytes());
        }
        Self {
            key,
            realm: realm.into(),
            lifetime: Duration::from_secs(300),
            nobody: ids.call_id(),
            ids,
            counts: FxHashMap::default(),
            order: VecDeque::new(),
            floor: 0,
        }
    }

    /// The challenges for a source, strongest first (RFC 8760 2.3).
    pub fn challenge(&mut self, now: Time, source: IpAddr, stale: bool) -> [AuthValue; 2] {
        let salt = self.ids.number();
        let nonce = self.nonce(now.as_micros(), salt, source);
        [Algorithm::Sha256, Algorithm::Md5].map(|algorithm| {
            let mut value = AuthValue::new("Digest");
            value.push("realm", &self.realm, true);
            value.push("nonce", &nonce, true);
            value.push("algorithm", algorithm.as_str(), false);
            value.push("qop", "auth", true);
            if stale {
                value.push("stale", "true", false);
            }
            value
        })
    }

    /// Judges an Authorization value. `passwords_of` gives the passwords of those with a user name who may
    /// call: `most` of them at most, and as many hashes and comparisons does every name cost, also one that
    /// nobody has.
    #[expect(
        clippy::too_many_arguments,
        reason = "each is of another kind and used once"
    )]
    pub fn verify<'a, T>(
        &mut self,
        now: Time,
        source: IpAddr,
        method: &str,
        uri: &Uri,
        authorization: Option<&str>,
        most: usize,
        passwords_of: impl FnOnce(&str) -> Vec<(T, &'a str)>,
    ) -> Verdict<T> {
        let Some(given) = authorization.and_then(AuthValue::parse) else {
            return Verdict::Refused;
        };
        let digest = given.scheme.eq_ignore_ascii_case("Digest");
        let algorithm = Algorithm::parse(given.get("algorithm").unwrap_or("MD5"));
        let (
            Some(username),
            Some(nonce),
            Some(answer),
            Some(asked),
            Some((algorithm, false)),
            true,
        ) = (
            given.get("username"),
            given.get("nonce"),
            given.get("response"),
            given.get("uri"),
            algorithm,
            digest,
        )
        else {
            return Verdict::Refused;
        };
        // Only `auth` was offered, so its count and client nonce must be there.
        let qop = given
            .get("qop")
            .filter(|qop| qop.eq_ignore_ascii_case("auth"));
        let (Some(qop), Some(count), Some(cnonce)) = (qop, given.get("nc"), given.get("cnonce"))
        else {
            return Verdict::Refused;
        };
        let mut candidates = passwords_of(username).into_iter();
        let mut right = Vec::new();
        for _ in 0..most.max(candidates.len()).max(1) {
            let (whose, password) = match candidates.next() {
                Some((whose, password)) => (Some(whose), password),
                None => (None, self.nobody.as_str()),
            };
            let expected = response(&Parts {
                algorithm,
                session: false,
                username,
                realm: &self.realm,
                password,
                nonce,
                // As it was written, which is what was hashed.
                qop: Some((count, cnonce, qop)),
                cnonce,
                method,
                uri: asked,
            });
            let fits = expected
                .as_bytes()
                .ct_eq(answer.to_ascii_lowercase().as_bytes());
            right.extend(whose.filter(|_| bool::from(fits)));
        }
        let known = !right.is_empty() & (given.get("realm") == Some(self.realm.as_str()));
        let Some(made) = self.made_at(nonce, source) else {
            return Verdict::Refused;
        };
        if !known || !same_resource(asked, uri) {
            return Verdict::Refused;
        }
        let age = now.since(Time::from_micros(made));
        let Ok(count) = u32::from_str_radix(count, 16) else {
            return Verdict::Refused;
        };
        if age > self.lifetime || made < self.floor || !self.count(nonce, count) {
            return Verdict::Stale;
        }
        match right.pop() {
            Some(only) if right.is_empty() => Verdict::Known(only),
            last => {
                right.extend(last);
                Verdict::Ambiguous(right)
            }
        }
    }

    /// Whether this count is new for the nonce; remembers it.
    fn count(&mut self, nonce: &str, count: u32) -> bool {
        if let Some(last) = self.counts.get_mut(nonce) {
            let new = count > *last;
            *last = count.max(*last);
            return new;
        }
        if self.order.len() >= MOST_NONCES
            && let Some(oldest) = self.order.pop_front()
        {
            // A forgotten nonce must not be usable again, nor any made before it.
            self.floor = self.floor.max(time_of(&oldest).map_or(0, |made| made + 1));
            self.counts.remove(&oldest);
        }
        self.counts.insert(nonce.to_owned(), count);
        self.order.push_back(nonce.to_owned());
        count > 0
    }

    fn nonce(&self, made: u64, salt: u64, source: IpAddr) -> String {
        format!("{made:016x}{salt:016x}{}", self.mac(made, salt, source))
    }

    /// When we made this nonce for this source; `None` when we did not.
    fn made_at(&self, nonce: &str, source: IpAddr) -> Option<u64> {
        let made = time_of(nonce)?;
        let salt = u64::from_str_radix(nonce.get(16..32)?, 16).ok()?;
        let right = self.nonce(made, salt, source);
        bool::from(right.as_bytes().ct_eq(nonce.as_bytes())).then_some(made)
    }

    fn mac(&self, made: u64, salt: u64, source: IpAddr) -> String {
        // A key of 32 bytes always fits.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.key) else {
            return String::new();
        };
        mac.update(&made.to_be_bytes());
        mac.update(&salt.to_be_bytes());
        mac.update(source.to_string().as_bytes());
        mac.update(self.realm.as_bytes());
        hex(&mac.finalize().into_bytes()[..16])
    }
}

fn time_of(nonce: &str) -> Option<u64> {
    u64::from_str_radix(nonce.get(..16)?, 16).ok()
}

/// Whether the URI of the credentials is the one that is asked for. Proxies rewrite parameters, so
/// user and host decide when the texts differ.
fn same_resource(given: &str, asked: &Uri) -> bool {
    if given == asked.to_string() {
        return true;
    }
    match (Uri::parse(given), asked) {
        (Ok(Uri::Sip(given)), Uri::Sip(asked)) => {
            given.user() == asked.user() && given.host == asked.host
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
