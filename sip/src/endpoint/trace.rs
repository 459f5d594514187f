//! The messages of calls, for people to look at: each one as an [`Event::Message`], in its order, with
//! what authenticates, keys, keypad digits and who callers are that withhold it masked before it leaves the
//! endpoint.
//!
//! Whose a message is follows from its Call-ID and the tag that is ours. Messages that come before a
//! call is made (a challenge and what it answers) or belong to none (registrations, OPTIONS) are not
//! told.

use std::collections::VecDeque;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::Peer;
use super::requests::is_withheld;
use crate::event::{CallId, Direction, Event, Traced};
use crate::message::header::AuthValue;
use crate::message::parse::{Framing, parse};
use crate::message::{Headers, Message, Method, Name, NameAddr, Uri, scan};
use crate::time::Time;

/// How long the last transactions of a call that is over may send again: 64 T1 (RFC 3261 17).
const LINGER: Duration = Duration::from_secs(32);

/// The most text of one message, bytes; the rest is cut off. An INVITE with a long description has 3 KiB.
pub const MOST_TEXT: usize = 16_384;

/// The shortest number that is masked wherever it stands: a shorter one may be any other, such as a status code.
const SHORTEST: usize = 5;

/// What stands in the place of something masked.
const MASK: &str = "***";

/// Parameters of credentials that help and give nothing away; all others are masked.
const SHOWN: [&str; 9] = [
    "username",
    "realm",
    "uri",
    "algorithm",
    "qop",
    "nc",
    "nonce",
    "stale",
    "domain",
];

/// Which messages are of which call.
#[derive(Debug, Default)]
pub(super) struct Tracer {
    on: bool,
    now: Time,
    /// Calls by Call-ID. A call that comes back to its own endpoint has two ends under one.
    calls: FxHashMap<String, Vec<End>>,
    /// Calls that are over, and until when they are told of.
    over: VecDeque<(Time, String, CallId)>,
}

#[derive(Debug)]
struct End {
    call: CallId,
    /// Our tag.
    tag: String,
    /// Numbers that its caller withholds, without a plus; `None`: it withholds nothing.
    withheld: Option<Vec<String>>,
}

impl Tracer {
    pub(super) fn new(on: bool) -> Self {
        Self {
            on,
            ..Self::default()
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.on
    }

    /// Time goes on.
    pub(super) fn at(&mut self, now: Time) {
        self.now = now;
        while let Some((_, call_id, call)) = self.over.pop_front_if(|(until, ..)| *until <= now) {
            if let Some(ends) = self.calls.get_mut(&call_id) {
                ends.retain(|end| end.call != call);
                if ends.is_empty() {
                    self.calls.remove(&call_id);
                }
            }
        }
    }

    /// A call begins; `key`: its Call-ID and our tag. `withheld`: the numbers of a caller who withholds them.
    pub(super) fn begin(
        &mut self,
        key: &(String, String),
        call: CallId,
        withheld: Option<Vec<String>>,
    ) {
        if self.on {
            let (call_id, tag) = key.clone();
            self.calls.entry(call_id).or_default().push(End {
                call,
                tag,
                withheld,
            });
        }
    }

    /// A call is over; what its transactions still say is told.
    pub(super) fn end(&mut self, call_id: &str, call: CallId) {
        if self.on {
            self.over
                .push_back((self.now + LINGER, call_id.to_owned(), call));
        }
    }

    /// A message that came.
    pub(super) fn received(&self, peer: &Peer, message: Message) -> Option<Event> {
        self.tell(peer, message, Direction::Received)
    }

    /// A message that is sent.
    pub(super) fn sent(&self, peer: &Peer, wire: &[u8]) -> Option<Event> {
        if self.calls.is_empty() {
            return None;
        }
        // What we print we can read; a ping is no message.
        let message = parse(wire, Framing::Datagram).ok()??;
        self.tell(peer, message, Direction::Sent)
    }

    fn tell(&self, peer: &Peer, mut message: Message, direction: Direction) -> Option<Event> {
        let end = self.end_of(&message, direction)?;
        if end.withheld.is_some() {
            hide_caller(&mut message, direction);
        }
        let mut text = text(message);
        for number in end.withheld.iter().flatten() {
            text = text.replace(number.as_str(), MASK);
        }
        Some(Event::Message(Box::new(Traced {
            call: end.call,
            at: self.now,
            direction,
            peer: peer.clone(),
            text,
        })))
    }

    fn end_of(&self, message: &Message, direction: Direction) -> Option<&End> {
        let (headers, is_request) = match message {
            Message::Request(request) => (&request.headers, true),
            Message::Response(response) => (&response.headers, false),
        };
        let ends = self.calls.get(headers.get(&Name::CallId)?)?;
        // Ours is the tag in From where we asked, and the one in To where we were asked.
        let we_asked = did_we_ask(is_request, direction);
        let ours = if we_asked { Name::From } else { Name::To };
        let ours = headers.get(&ours).and_then(NameAddr::parse);
        let tag = ours.as_ref().and_then(NameAddr::tag);
        let of_tag = ends.iter().find(|end| Some(end.tag.as_str()) == tag);
        // Nothing is tagged yet: an INVITE that begins a call, its 100, its CANCEL.
        let untagged = || {
            let incoming = |end: &&End| end.call.0 >= CallId::FIRST_INCOMING;
            ends.iter()
                .find(|end| incoming(end) != we_asked && tag.is_none())
        };
        of_tag.or_else(untagged)
    }
}

/// Whether it is a request of ours, or what answers one.
fn did_we_ask(is_request: bool, direction: Direction) -> bool {
    is_request == (direction == Direction::Sent)
}

/// Takes out who calls, in a message of a call whose caller withholds it: the other side's address wherever the message
/// has it.
fn hide_caller(message: &mut Message, direction: Direction) {
    let (is_request, headers) = match message {
        Message::Request(request) => {
            // The Contact of theirs is what our requests go to.
            if direction == Direction::Sent {
                hide_user(&mut request.uri);
            }
            (true, &mut request.headers)
        }
        Message::Response(response) => (false, &mut response.headers),
    };
    let theirs = match did_we_ask(is_request, direction) {
        true => Name::To,
        false => Name::From,
    };
    headers.rewrite(|name, value| {
        if is_identity(name) {
            return Some(MASK.to_owned());
        }
        let contact = *name == Name::Contact && direction == Direction::Received;
        match contact {
            true => Some(hidden_each(value)),
            false => (*name == theirs).then(|| hidden(value)),
        }
    });
}

/// An address without its display name and user.
fn hidden(value: &str) -> String {
    let Some(mut address) = NameAddr::parse(value) else {
        return MASK.to_owned();
    };
    if let Some(display) = &mut address.display {
        MASK.clone_into(display);
    }
    hide_user(&mut address.uri);
    address.to_string()
}

fn hidden_each(values: &str) -> String {
    let hidden: Vec<String> = scan::split(values, b',').map(hidden).collect();
    hidden.join(", ")
}

fn hide_user(uri: &mut Uri) {
    match uri {
        Uri::Sip(uri) => {
            if let Some(user) = &mut uri.user_escaped {
                MASK.clone_into(user);
            }
            uri.password = None;
            uri.headers = None;
        }
        Uri::Other(text) => {
            let scheme = text.split(':').next().unwrap_or_default();
            *text = format!("{scheme}:{MASK}");
        }
    }
}

/// The message as it is told.
fn text(mut message: Message) -> String {
    match &mut message {
        Message::Request(request) => {
            let digits = request.method == Method::Info;
            mask(&mut request.headers, &mut request.body, digits);
        }
        Message::Response(response) => mask(&mut response.headers, &mut response.body, false),
    }
    let bytes = message.to_bytes();
    let mut text = String::from_utf8_lossy(&bytes[..bytes.len().min(MOST_TEXT)]).into_owned();
    if bytes.len() > MOST_TEXT {
        text.push_str("\r\n[…]");
    }
    text
}

/// Takes out what nobody needs to see who looks at a call.
fn mask(headers: &mut Headers, body: &mut Vec<u8>, is_info: bool) {
    let withheld = is_withheld(headers);
    headers.rewrite(|name, value| {
        if withheld && is_identity(name) {
            return Some(MASK.to_owned());
        }
        let credentials = match name {
            Name::Authorization | Name::ProxyAuthorization => true,
            Name::AuthenticationInfo => return Some(MASK.to_owned()),
            Name::Other(name) => {
                return name
                    .eq_ignore_ascii_case("Proxy-Authentication-Info")
                    .then(|| MASK.to_owned());
            }
            _ => false,
        };
        credentials.then(|| masked_credentials(value))
    });
    let kind = headers.get(&Name::ContentType).unwrap_or_default();
    if is_info && !body.is_empty() {
        // Keypad digits, of which some are card numbers.
        *body = MASK.as_bytes().to_vec();
    } else if kind.to_ascii_lowercase().contains("sdp")
        || kind.to_ascii_lowercase().starts_with("multipart/")
    {
        *body = masked_description(body);
    }
}

/// Whether a field says who calls, in the words of a network that trusts whom it tells.
fn is_identity(name: &Name) -> bool {
    let others = ["P-Preferred-Identity", "Remote-Party-ID"];
    match name {
        Name::PAssertedIdentity => true,
        Name::Other(name) => others.iter().any(|own| name.eq_ignore_ascii_case(own)),
        _ => false,
    }
}

/// The numbers that an INVITE tells of a caller who withholds them, without a plus: as they are written, and without
/// what makes them easier to read. `None`: nothing is withheld.
pub(super) fn withheld_numbers(headers: &Headers) -> Option<Vec<String>> {
    if !is_withheld(headers) {
        return None;
    }
    let fields = headers
        .iter()
        .filter(|(name, _)| is_identity(name) || matches!(name, Name::From | Name::Contact));
    let numbers = fields
        .flat_map(|(_, value)| scan::split(value, b','))
        .filter_map(|value| NameAddr::parse(value)?.uri.user())
        .flat_map(|user| {
            let written = user.trim_start_matches('+').to_owned();
            let digits: String = written
                .chars()
                .filter(|c| !matches!(c, '-' | '.' | '(' | ')' | ' '))
                .collect();
            let is_number =
                digits.len() >= SHORTEST && digits.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then_some([written, digits])
        })
        .flatten();
    let mut numbers: Vec<String> = numbers.collect();
    // One that holds another is masked whole.
    numbers.sort_by(|one, other| (other.len(), other).cmp(&(one.len(), one)));
    numbers.dedup();
    Some(numbers)
}

fn masked_credentials(value: &str) -> String {
    let Some(read) = AuthValue::parse(value) else {
        return MASK.to_owned();
    };
    let mut shown = AuthValue::new(&read.scheme);
    if !read.scheme.eq_ignore_ascii_case("Digest") {
        return format!("{} {MASK}", read.scheme);
    }
    for (name, value, quoted) in read.iter() {
        let show = SHOWN.iter().any(|known| name.eq_ignore_ascii_case(known));
        shown.push(name, if show { value } else { MASK }, quoted);
    }
    shown.to_string()
}

/// A session description without its keys (RFC 4568 `a=crypto`, RFC 4566 `k=`, RFC 8839 `a=ice-pwd`,
/// RFC 4567 `a=key-mgmt`).
fn masked_description(body: &[u8]) -> Vec<u8> {
    let mut masked = Vec::with_capacity(body.len());
    for line in body.split_inclusive(|byte| *byte == b'\n') {
        let end = line.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n'));
        let (text, ending) = line.split_at(end.map_or(0, |end| end + 1));
        let lower = text.to_ascii_lowercase();
        let keep = if lower.starts_with(b"a=crypto:") {
            memchr::memmem::find(&lower, b"inline:")
                .map_or(b"a=crypto:".len(), |at| at + b"inline:".len())
        } else if lower.starts_with(b"a=ice-pwd:") || lower.starts_with(b"a=key-mgmt:") {
            memchr::memchr(b':', text).map_or(text.len(), |at| at + 1)
        } else if lower.starts_with(b"k=") {
            2
        } else {
            text.len()
        };
        masked.extend_from_slice(&text[..keep]);
        if keep < text.len() {
            masked.extend_from_slice(MASK.as_bytes());
        }
        masked.extend_from_slice(ending);
    }
    masked
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(message: &str) -> String {
        let wire = message.replace('\n', "\r\n");
        text(parse(wire.as_bytes(), Framing::Datagram).unwrap().unwrap())
    }

    #[test]
    fn what_authenticates_is_masked() {
        let shown = told(
            "INVITE sip:bob@example.com SIP/2.0\nVia: SIP/2.0/UDP h;branch=z9hG4bK1\nFrom: <sip:a@h>;tag=1\n\
             To: <sip:bob@example.com>\nCall-ID: c\nCSeq: 2 INVITE\n\
             Authorization: Digest username=\"alice\", realm=\"r\", nonce=\"n\", uri=\"sip:bob@example.com\",\n \
             response=\"6629fae49393a05397450978507c4ef1\", cnonce=\"0a4f113b\", nc=00000001, qop=auth\n\
             Proxy-Authorization: Basic c2VjcmV0\nAuthentication-Info: rspauth=\"77\"\n\
             Proxy-Authentication-Info: rspauth=\"78\"\n\n",
        );
        for secret in ["6629fae4", "0a4f113b", "c2VjcmV0", "77", "78"] {
            assert!(!shown.contains(secret), "{secret}: {shown}");
        }
        for kept in [
            "username=\"alice\"",
            "nc=00000001",
            "response=\"***\"",
            "Proxy-Authorization: ***",
        ] {
            assert!(shown.contains(kept), "{kept}: {shown}");
        }
        // Whatever cannot be read is not shown either.
        for odd in [
            "Digest response",
            "x",
            "Digest a=\"",
            "Digest response=\"abc",
        ] {
            assert!(!masked_credentials(odd).contains("response"), "{odd}");
        }
    }

    #[test]
    fn keys_of_the_audio_and_digits_are_masked() {
        let sdp = "v=0\r\na=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:c2VjcmV0a2V5|2^20\r\nA=CRYPTO:2 x c2VjcmV0\r\n\
                   a=ice-pwd:c2VjcmV0\r\nk=base64:c2VjcmV0\r\na=key-mgmt:mikey c2VjcmV0\na=ptime:20";
        let shown = String::from_utf8(masked_description(sdp.as_bytes())).unwrap();
        assert!(!shown.contains("c2Vj"), "{shown}");
        assert!(shown.starts_with("v=0\r\na=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:***\r\n"));
        assert!(shown.ends_with("***\na=ptime:20"), "{shown}");
        let shown = told(
            "INFO sip:a@h SIP/2.0\nVia: SIP/2.0/UDP h;branch=z9hG4bK1\nFrom: <sip:a@h>;tag=1\nTo: <sip:b@h>;tag=2\n\
             Call-ID: c\nCSeq: 3 INFO\nContent-Type: application/dtmf-relay\nContent-Length: 9\n\nSignal=5\n",
        );
        assert!(
            !shown.contains("Signal") && shown.ends_with("\r\n\r\n***"),
            "{shown}"
        );
    }

    #[test]
    fn a_long_message_is_cut() {
        let long = "x".repeat(8_000);
        let shown = told(&format!(
            "OPTIONS sip:a@h SIP/2.0\nVia: SIP/2.0/UDP h;branch=z9hG4bK1\nFrom: <sip:a@h>;tag=1\nTo: <sip:b@h>\n\
             Call-ID: c\nCSeq: 3 OPTIONS\nX-One: {long}\nX-Two: {long}\nX-Three: {long}\n\n"
        ));
        assert!(shown.len() < MOST_TEXT + 16 && shown.ends_with("[…]"));
    }
}
