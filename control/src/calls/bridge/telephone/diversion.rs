//! The judge of forwarding: whether a call may be forwarded once more, and what the call that goes out tells of its
//! way. Pure.
//!
//! A call that is forwarded from number to number may come back to one that forwarded it: over another account's
//! rule, or because a carrier diverts it. Such a call is known by, in this order,
//!
//! 1. Max-Forwards, which the call that goes out carries on, less one (RFC 3261 section 16.3, RFC 7332 section 4);
//! 2. the marks of the numbers that forwarded it, which proxies leave in the branches of its Vias;
//! 3. the numbers in Diversion (RFC 5806) and History-Info (RFC 7044), which many carriers pass on. Where they name
//!    the called number once, that may be a PBX which diverts its own number to the same one here: it is a loop where
//!    a forwarded call of this number is under way that may be the same;
//! 4. the forwarded calls that are under way, on any node and of any account, where a carrier leaves nothing of the
//!    rest.
//!
//! It is refused with 483 (Too Many Hops), which passes through every call of the loop back to the caller.

use std::collections::BTreeSet;
use std::time::Duration;

use sip::event::{Forwarded, Hops};
use sip::message::{NameAddr, Uri};

use crate::calls::dial::rules::LiveForward;
use crate::ids::PhoneNumberId;
use crate::numbers::spelling::means;
use crate::phone_numbers::routing::Lack;
use crate::time::Timestamp;

/// Times that a call may be diverted, as telephone networks have it (ITU-T Q.732.2, the redirection counter).
pub(super) const MOST_DIVERSIONS: u32 = 5;

/// Calls of one caller to one number that may ring at once where it is forwarded: a loop over a carrier that shows
/// nothing but one number of its own is one such call a lap, each with two of the ten that a trunk has by default.
const MOST_ALIKE: usize = 4;

/// The same of calls that show no caller: they may be of as many people.
const MOST_HIDDEN: usize = 16;

/// Clocks of nodes may differ by so much.
const SKEW: Duration = Duration::from_secs(2);

/// Hops of a call that begins here, or whose sender counts none (RFC 3261 section 8.1.1.6).
const MAX_FORWARDS: u8 = 70;

/// The longest entry that is passed on, bytes, and how many of History-Info, the latest: the INVITE is to fit a
/// datagram.
const LONGEST_ENTRY: usize = 256;
const MOST_HISTORY: usize = 8;

/// Who was called, and how the call got here.
pub(super) struct Arrival<'a> {
    pub(super) id: PhoneNumberId,
    /// The number as it is registered.
    pub(super) number: &'a str,
    /// The user of the Request-URI, which may be that of a registration.
    pub(super) dialled: &'a str,
    /// As the record has it, which is without an extension.
    pub(super) caller: Option<&'a str>,
    /// Of the caller's number (see [`extension`]).
    pub(super) extension: Option<&'a str>,
    pub(super) hops: &'a Hops,
}

/// Why a call is not forwarded once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Looped {
    /// No hop is left.
    NoHops,
    /// This number has forwarded it before.
    Again,
    /// It was diverted too often.
    TooOften,
    /// Too many calls of this caller ring where the number is forwarded.
    TooManyAlike,
}

impl Looped {
    /// Too Many Hops (RFC 3261 section 21.4.21).
    pub(super) const CODE: u16 = 483;

    pub(super) fn why(self) -> String {
        match self {
            Self::NoHops => "its Max-Forwards is 0".to_owned(),
            Self::Again => "it came back to a number that had forwarded it".to_owned(),
            Self::TooOften => format!("it was diverted {MOST_DIVERSIONS} times before"),
            Self::TooManyAlike => {
                format!("{MOST_ALIKE} calls of this caller ring where the number is forwarded")
            }
        }
    }
}

/// A call that may be forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Onward {
    pub(super) forwarded: Forwarded,
    diversion: Vec<String>,
    history: Vec<String>,
}

/// Whether the call may be forwarded. `live`: the forwarded calls that are not over, of all accounts.
pub(super) fn judge(call: &Arrival<'_>, live: &[LiveForward]) -> Result<Onward, Looped> {
    let hops = call.hops;
    let left = hops.max_forwards.unwrap_or(MAX_FORWARDS);
    let max_forwards = left.checked_sub(1).ok_or(Looped::NoHops)?;
    let mut marks = marks(hops);
    let own = mark(call.id);
    if marks.contains(&own) {
        return Err(Looped::Again);
    }
    let (diverted, retargeted) = (diversions(call), retargetings(call));
    if [&diverted, &retargeted]
        .into_iter()
        .any(|told| told.is_loop(call, live))
    {
        return Err(Looped::Again);
    }
    let marked = u32::try_from(marks.len()).unwrap_or(u32::MAX);
    if diverted.times.max(retargeted.times).max(marked) >= MOST_DIVERSIONS {
        return Err(Looped::TooOften);
    }
    comes_back(call, live)?;
    marks.insert(own);
    let mark = marks.into_iter().collect::<Vec<_>>().join("-");
    let short = |entry: &&String| entry.len() <= LONGEST_ENTRY && NameAddr::parse(entry).is_some();
    let skipped = hops.history.len().saturating_sub(MOST_HISTORY);
    Ok(Onward {
        forwarded: Forwarded { max_forwards, mark },
        diversion: hops.diversion.iter().filter(short).cloned().collect(),
        history: hops
            .history
            .iter()
            .skip(skipped)
            .filter(short)
            .cloned()
            .collect(),
    })
}

impl Onward {
    /// What the INVITE says beside its hops: that `number` diverted the call, and where the caller's INVITE had its
    /// history, the same in it. `host`: the carrier's, as in From.
    pub(super) fn headers(
        &self,
        number: &str,
        to: &str,
        host: &str,
        lack: Lack,
    ) -> Vec<(String, String)> {
        let (reason, cause) = match lack {
            Lack::Agent => ("no-answer", 408),
            Lack::Room => ("user-busy", 486),
            Lack::Server => ("unavailable", 503),
        };
        let own = format!("<sip:{number}@{host}>;reason={reason};counter=1");
        let mut headers = vec![("Diversion".to_owned(), own)];
        let before = self.diversion.iter();
        headers.extend(before.map(|entry| ("Diversion".to_owned(), entry.clone())));
        let Some(latest) = self.history.last() else {
            return headers;
        };
        let latest = NameAddr::parse(latest);
        let index = latest
            .as_ref()
            .and_then(|entry| entry.params.get("index"))
            .filter(|index| is_index(index))
            .unwrap_or_else(|| "1".to_owned());
        let is_of_number = latest
            .and_then(|entry| user_of(&entry.uri))
            .is_some_and(|user| is_same(&user, number));
        let mut history = self.history.clone();
        let index = if is_of_number {
            index
        } else {
            history.push(format!("<sip:{number}@{host}>;index={index}.1"));
            format!("{index}.1")
        };
        // RFC 4458 section 5, RFC 7044 section 5: why it goes on, and from where.
        history.push(format!(
            "<sip:{to}@{host};cause={cause}>;index={index}.1;mp={index}"
        ));
        headers.push(("History-Info".to_owned(), history.join(", ")));
        headers
    }
}

/// The mark of a number: the same on every node, and no two of one call are alike by chance.
fn mark(id: PhoneNumberId) -> String {
    format!("{:08x}", id.0.as_u64_pair().1 & 0xffff_ffff)
}

/// The marks in the branches of a call: what stands behind the dot, each of eight hexadecimal digits.
fn marks(hops: &Hops) -> BTreeSet<String> {
    let is_mark =
        |text: &&str| text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    hops.branches
        .iter()
        .filter_map(|branch| branch.rsplit_once('.'))
        .flat_map(|(_, marks)| marks.split('-').filter(is_mark))
        .map(str::to_owned)
        .collect()
}

/// What Diversion or History-Info tells of a call's way.
struct DiversionInfo {
    /// How often the call was diverted.
    times: u32,
    /// By whom, where that can be read.
    users: Vec<String>,
}

impl DiversionInfo {
    /// Whether the called number diverted the call, as one that is forwarded here: twice, or once while a forwarded
    /// call of it is under way that may be the same, for it has the same caller (shown or not) or went to a number that
    /// is told of.
    fn is_loop(&self, call: &Arrival<'_>, live: &[LiveForward]) -> bool {
        let own = self.users.iter().filter(|user| is_same(user, call.number));
        let may_be_this = |forward: &LiveForward| {
            let went_to = |to: &String| self.users.iter().any(|user| is_same(user, to));
            forward.number == Some(call.id)
                && (forward.caller.as_deref() == call.caller
                    || forward.to.as_ref().is_some_and(went_to))
        };
        match own.count() {
            0 => false,
            1 => live.iter().any(may_be_this),
            _ => true,
        }
    }
}

/// What Diversion tells.
fn diversions(call: &Arrival<'_>) -> DiversionInfo {
    let entries = call.hops.diversion.iter();
    let mut entries: Vec<Option<NameAddr>> = entries.map(|entry| NameAddr::parse(entry)).collect();
    let user = |entry: &Option<NameAddr>| entry.as_ref().and_then(|entry| user_of(&entry.uri));
    // A carrier that leads a number to the user that registered may call that a diversion: it is the way here.
    let leads_here = |entry| user(entry).is_some_and(|user| is_same(&user, call.number));
    if !is_same(call.dialled, call.number) && entries.first().is_some_and(leads_here) {
        entries.remove(0);
    }
    let counter = |entry: &Option<NameAddr>| {
        let told = entry.as_ref().and_then(|entry| entry.params.get("counter"));
        told.and_then(|told| told.parse::<u32>().ok())
            .map_or(1, |told| told.max(1))
    };
    DiversionInfo {
        times: entries.iter().map(counter).fold(0, u32::saturating_add),
        users: entries.iter().filter_map(user).collect(),
    }
}

/// What History-Info tells: one entry may be of each hop on the way to the same number.
fn retargetings(call: &Arrival<'_>) -> DiversionInfo {
    let users = call
        .hops
        .history
        .iter()
        .filter_map(|entry| user_of(&NameAddr::parse(entry)?.uri))
        .map(|user| match user == call.dialled {
            // As the last carrier addressed it.
            true => call.number.to_owned(),
            false => user,
        })
        .filter(|user| is_number(parts(user).0));
    let mut chain: Vec<String> = Vec::new();
    for user in users {
        if chain.last().is_none_or(|last| !is_same(last, &user)) {
            chain.push(user);
        }
    }
    if chain.last().is_some_and(|last| is_same(last, call.number)) {
        chain.pop();
    }
    DiversionInfo {
        times: u32::try_from(chain.len()).unwrap_or(u32::MAX),
        users: chain,
    }
}

/// Whether the call may come of a forwarded one for which this number was called, or of one that may come of such a
/// one. One comes of another where its number is called there, or where its caller is who calls there, or who is rung
/// there and has not answered.
fn comes_back(call: &Arrival<'_>, live: &[LiveForward]) -> Result<(), Looped> {
    let of_number = |forward: &&LiveForward| forward.number == Some(call.id);
    let alike = live.iter().filter(of_number).filter(|forward| {
        let same_caller = forward.caller.as_deref() == call.caller;
        same_caller && !forward.answered
    });
    let most = call.caller.map_or(MOST_HIDDEN, |_| MOST_ALIKE);
    if alike.count() >= most {
        return Err(Looped::TooManyAlike);
    }
    let same = |one: Option<&str>, other: &Option<String>| {
        let pair = one.zip(other.as_deref());
        pair.is_some_and(|(one, other)| is_same(one, other))
    };
    let mut left: Vec<&LiveForward> = live.iter().collect();
    // What went out later than a call came in was not on its way. (Clocks of nodes may differ a little.)
    let caller = call.caller.map(|caller| whole(caller, call.extension));
    let mut open = vec![(caller.as_deref(), Some(call.number), None::<Timestamp>)];
    while let Some((caller, called, came)) = open.pop() {
        let (parents, others): (Vec<_>, Vec<_>) = left.into_iter().partition(|forward| {
            let before = came.is_none_or(|came| forward.went <= came.plus(SKEW));
            let on_the_way = same(called, &forward.to)
                || same(caller, &forward.from)
                || (!forward.answered && same(caller, &forward.to));
            before && on_the_way
        });
        if parents.iter().any(of_number) {
            return Err(Looped::Again);
        }
        let theirs = parents.iter();
        open.extend(theirs.map(|forward| {
            let came = Some(forward.came);
            (forward.caller.as_deref(), forward.called.as_deref(), came)
        }));
        left = others;
    }
    Ok(())
}

/// The extension at a PBX that a number has as its parameter (RFC 3966 section 3), digits only. [`Uri::user`] leaves it
/// out, for it is the number that is dialled; but the number with it is another telephone than the one without.
pub(super) fn extension(uri: &Uri) -> Option<String> {
    let text = match uri {
        Uri::Sip(uri) => uri.user()?,
        Uri::Other(text) => text.clone(),
    };
    text.split(';').skip(1).find_map(|param| {
        let (name, value) = param.split_once('=')?;
        let digits: String = value.chars().filter(char::is_ascii_digit).collect();
        (name.eq_ignore_ascii_case("ext") && !digits.is_empty()).then_some(digits)
    })
}

/// What stands between a number and its extension here.
const EXTENSION: &str = ";ext=";

/// The user of a URI; a number with its extension.
fn user_of(uri: &Uri) -> Option<String> {
    let user = uri.user()?;
    let extension = extension(uri).filter(|_| is_number(&user));
    Some(whole(&user, extension.as_deref()))
}

fn whole(number: &str, extension: Option<&str>) -> String {
    let behind = extension.map(|extension| format!("{EXTENSION}{extension}"));
    format!("{number}{}", behind.unwrap_or_default())
}

/// A number and its extension.
fn parts(user: &str) -> (&str, Option<&str>) {
    user.split_once(EXTENSION)
        .map_or((user, None), |(number, extension)| {
            (number, Some(extension))
        })
}

/// Whether two spellings are of one number, and of one extension of it.
fn is_same(one: &str, other: &str) -> bool {
    let ((one, of_one), (other, of_other)) = (parts(one), parts(other));
    if of_one != of_other {
        return false;
    }
    // What ends differently is not looked at for long.
    let end = |text: &str| {
        let digits = text.chars().rev().filter(char::is_ascii_digit);
        digits.take(4).collect::<Vec<_>>()
    };
    if !is_number(one) || !is_number(other) {
        return one == other;
    }
    let digits = |text: &str| {
        text.chars()
            .filter(char::is_ascii_digit)
            .collect::<String>()
    };
    end(one) == end(other)
        && (digits(one) == digits(other) || means(one, other) || means(other, one))
}

/// Whether it is a number, and not the name of a telephone.
fn is_number(user: &str) -> bool {
    let bare = user.strip_prefix('+').unwrap_or(user);
    let separates = |byte: u8| matches!(byte, b'-' | b'.' | b'(' | b')');
    bare.bytes().any(|byte| byte.is_ascii_digit())
        && bare
            .bytes()
            .all(|byte| byte.is_ascii_digit() || separates(byte))
}

fn is_index(text: &str) -> bool {
    (1..=40).contains(&text.len())
        && text
            .split('.')
            .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests;
