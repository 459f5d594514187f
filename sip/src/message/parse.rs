//! Bytes to a message, or to the answer that the bytes deserve. Total: any bytes give one of the two.
//!
//! Bounded: a datagram is at most 64 KiB; header fields are counted and measured; no single
//! allocation is larger than twice what came in. What is wrong is found in one pass, and the fields that a
//! 400 must echo are saved all the same, since the sender of a faulty request should hear of it
//! (RFC 3261 8.2, RFC 4475).
//!
//! Strict only with what a message is needed for. Bytes that are no UTF-8 are read as Latin-1, which is what
//! old gateways write, except in the fields that an answer must return byte for byte. A response, and a request
//! that ends, acknowledges or cancels something, is not lost over a field that it is not read for: a call whose
//! answer is dropped is neither acknowledged nor ended.

use std::borrow::Cow;

use super::header::{CSeq, Headers, Name, NameAddr, Via, one_line};
use super::{Message, Method, Request, Response, Uri, scan};
use crate::ids::MAGIC_COOKIE;

/// The largest message that is read: what a UDP datagram can hold. The same on a stream, so that a
/// peer cannot make us keep more.
pub const MOST_BYTES: usize = 65_535;

/// Header fields of a message; RFC 4475's longest has about 50.
pub const MOST_HEADERS: usize = 256;

/// Bytes of a line, folds included; RFC 4475's longest is below 1 KiB, a Request-URI or an
/// Identity header may have a few.
pub const MOST_LINE: usize = 8_192;

/// Elements of one kind (Via, Route, Record-Route, Contact): more hops than Max-Forwards lets through.
pub const MOST_ELEMENTS: usize = 100;

/// What is wrong with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is no SIP message at all: silence.
    NotSip,
    /// 400, with what is wrong as its reason phrase.
    Bad(&'static str),
    /// 505.
    Version,
    /// 513: larger than [`MOST_BYTES`] or than one of the other bounds here.
    TooLarge,
}

const VIA_NOT_UTF_8: &str = "Via Not UTF-8";
const CALL_ID_NOT_UTF_8: &str = "Call-ID Not UTF-8";

impl Fault {
    /// The field that is at fault, as far as it is one.
    pub fn header(self) -> Option<&'static str> {
        let Self::Bad(why) = self else {
            return None;
        };
        const OTHERS: [(&str, &str); 6] = [
            ("CSeq Method Mismatch", "CSeq"),
            ("Empty Branch", "Via"),
            ("Content-Length Beyond Message", "Content-Length"),
            ("Headers In Request-URI", "Request-URI"),
            (VIA_NOT_UTF_8, "Via"),
            (CALL_ID_NOT_UTF_8, "Call-ID"),
        ];
        if let Some((_, header)) = OTHERS.iter().find(|(own, _)| *own == why) {
            return Some(header);
        }
        let (kind, header) = why.split_once(' ')?;
        let of_field = matches!(kind, "Bad" | "Missing" | "Several");
        (of_field && !header.contains(' ')).then_some(header)
    }

    /// What is wrong, in words.
    pub fn why(self) -> &'static str {
        match self {
            Self::NotSip => "No SIP Message",
            Self::Bad(why) => why,
            Self::Version => "Version Not Supported",
            Self::TooLarge => "Too Large",
        }
    }

    /// The answer: a code and a reason phrase; `None` is silence.
    pub fn answer(self) -> Option<(u16, &'static str)> {
        match self {
            Self::NotSip => None,
            Self::Bad(why) => Some((400, why)),
            Self::Version => Some((505, "")),
            Self::TooLarge => Some((513, "")),
        }
    }
}

/// A message that is not to be used, and what is needed to answer it.
#[derive(Clone, Debug)]
pub struct Malformed {
    pub fault: Fault,
    /// The method and fields of a request that can be answered: it has a Via. `None` for responses and ACKs,
    /// which are never answered.
    pub answerable: Option<Box<(Method, Headers)>>,
    /// What it was, as far as it could be read. `None`: no SIP message.
    pub about: Option<Box<About>>,
}

/// What a message was that is not to be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// `INVITE` of a request, `200 INVITE` of a response.
    pub what: String,
    /// Empty when it has none.
    pub call_id: String,
}

impl About {
    pub(crate) fn of_message(message: &Message) -> Self {
        match message {
            Message::Request(request) => Self::of(Ok(&request.method), &request.headers),
            Message::Response(response) => Self::of(Err(response.code), &response.headers),
        }
    }

    fn of_start(start: &Start<'_>, headers: &Headers) -> Self {
        match start {
            Start::Request { method, .. } => Self::of(Ok(method), headers),
            Start::Response { status } => {
                Self::of(Err(status.map_or(0, |(code, _)| code)), headers)
            }
        }
    }

    /// A request of that method, or a response of that code.
    fn of(what: Result<&Method, u16>, headers: &Headers) -> Self {
        let what = match what {
            Ok(method) => method.to_string(),
            Err(code) => {
                let cseq = headers.get(&Name::CSeq).unwrap_or_default();
                let method = cseq.split(scan::is_space).next_back();
                let method = method.and_then(Method::parse);
                method.map_or_else(|| code.to_string(), |method| format!("{code} {method}"))
            }
        };
        Self {
            what,
            call_id: headers.get(&Name::CallId).unwrap_or_default().to_owned(),
        }
    }
}

impl Malformed {
    fn silent(fault: Fault) -> Self {
        Self {
            fault,
            answerable: None,
            about: None,
        }
    }
}

/// How the end of the body is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// A datagram: Content-Length may be missing, bytes beyond it are dropped (RFC 3261 18.3).
    Datagram,
    /// Exactly one message, cut from a stream by its Content-Length.
    Stream,
}

/// Reads one message. `Ok(None)`: nothing but line ends, a keep-alive.
pub fn parse(bytes: &[u8], framing: Framing) -> Result<Option<Message>, Malformed> {
    let start = bytes.iter().position(|byte| !matches!(byte, b'\r' | b'\n'));
    let Some(start) = start else {
        return Ok(None);
    };
    if bytes.len() > MOST_BYTES {
        return Err(Malformed::silent(Fault::TooLarge));
    }
    let mut lines = Lines {
        rest: &bytes[start..],
        fault: None,
    };
    let first = lines
        .next()
        .filter(|_| lines.fault.is_none())
        .ok_or(Malformed::silent(Fault::NotSip))?;
    // A reason phrase is for people (RFC 3261 7.2); a method, URI or version beyond ASCII is refused as one.
    let first = text_of(first);
    let start = start_line(&first).map_err(Malformed::silent)?;
    let mut fault = match &start {
        Start::Request {
            uri: Err(fault), ..
        }
        | Start::Response {
            status: Err(fault), ..
        } => Some(*fault),
        _ => None,
    };
    let (headers, length) = header_fields(&mut lines, &mut fault);
    let fault = fault
        .or_else(|| validate(&start, &headers))
        .or_else(|| body_fault(length, lines.rest.len(), framing));
    let body = match length {
        Some(length) => &lines.rest[..length.min(lines.rest.len())],
        None => lines.rest,
    };
    match (start, fault) {
        (
            Start::Request {
                method,
                uri: Ok(uri),
            },
            None,
        ) => Ok(Some(Message::Request(Request {
            method,
            uri,
            headers,
            body: body.to_vec(),
            strict: false,
        }))),
        (
            Start::Response {
                status: Ok((code, reason)),
            },
            None,
        ) => Ok(Some(Message::Response(Response {
            code,
            // As it is printed.
            reason: one_line(reason.to_owned()),
            headers,
            body: body.to_vec(),
        }))),
        (start, fault) => Err(Malformed {
            fault: fault.unwrap_or(Fault::NotSip),
            about: Some(Box::new(About::of_start(&start, &headers))),
            answerable: match start {
                Start::Request { method, .. } if method != Method::Ack && can_answer(&headers) => {
                    Some(Box::new((method, headers)))
                }
                _ => None,
            },
        }),
    }
}

enum Start<'a> {
    Request {
        method: Method,
        uri: Result<Uri, Fault>,
    },
    Response {
        status: Result<(u16, &'a str), Fault>,
    },
}

impl Start<'_> {
    /// Whether it is a request that begins or changes something. All others are for what is under way: whoever
    /// waits for them must not wait in vain because of a field that they are not read for.
    fn begins(&self) -> bool {
        match self {
            Self::Request { method, .. } => !matches!(
                method,
                Method::Ack | Method::Bye | Method::Cancel | Method::Prack | Method::Info
            ),
            Self::Response { .. } => false,
        }
    }
}

/// RFC 3261 7.1 and 7.2: single spaces, nothing before or after.
fn start_line(line: &str) -> Result<Start<'_>, Fault> {
    if line
        .get(..4)
        .is_some_and(|begin| begin.eq_ignore_ascii_case("SIP/"))
    {
        let mut words = line.splitn(3, ' ');
        let version = words.next().unwrap_or_default();
        let code = words.next().unwrap_or_default();
        let status = match code.parse::<u16>() {
            _ if !is_ours(version) => Err(Fault::Version),
            Ok(number @ 100..=699) if code.len() == 3 => {
                Ok((number, words.next().unwrap_or_default()))
            }
            _ => Err(Fault::Bad("Bad Status Code")),
        };
        return Ok(Start::Response { status });
    }
    let (method, rest) = line.split_once(' ').ok_or(Fault::NotSip)?;
    let method = Method::parse(method).ok_or(Fault::NotSip)?;
    // Whoever speaks SIP ends the line with a version; anything else gets silence.
    let trimmed = scan::trim(rest);
    let (uri, version) = trimmed.rsplit_once(scan::is_space).ok_or(Fault::NotSip)?;
    if !version
        .get(..4)
        .is_some_and(|begin| begin.eq_ignore_ascii_case("SIP/"))
    {
        return Err(Fault::NotSip);
    }
    let uri = if !is_ours(version) {
        Err(Fault::Version)
    } else if rest != trimmed || uri.contains(scan::is_space) {
        Err(Fault::Bad("Bad Request Line"))
    } else {
        Uri::parse(uri).map_err(|_| Fault::Bad("Bad Request-URI"))
    };
    // Escaped headers have no place in a Request-URI (RFC 3261 19.1.1, table 1).
    let uri = match uri {
        Ok(Uri::Sip(sip)) if sip.headers.is_some() => Err(Fault::Bad("Headers In Request-URI")),
        uri => uri,
    };
    Ok(Start::Request { method, uri })
}

fn is_ours(version: &str) -> bool {
    version.eq_ignore_ascii_case("SIP/2.0")
}

/// The lines of the head with folds still in them; ends after the empty line.
struct Lines<'a> {
    rest: &'a [u8],
    fault: Option<Fault>,
}

impl<'a> Lines<'a> {
    fn next(&mut self) -> Option<&'a [u8]> {
        let whole = self.rest;
        let mut end = 0;
        loop {
            let Some(newline) = memchr::memchr(b'\n', &whole[end..]) else {
                self.fault = Some(Fault::Bad("Unfinished Header"));
                self.rest = &[];
                return None;
            };
            end += newline + 1;
            if end > MOST_LINE {
                self.fault = Some(Fault::TooLarge);
                return None;
            }
            // An empty line is never folded; any other goes on where the next begins with space.
            let folded = end > 2 && matches!(whole.get(end), Some(b' ' | b'\t'));
            if !folded {
                break;
            }
        }
        self.rest = &whole[end..];
        let line = &whole[..end];
        match line.strip_suffix(b"\r\n") {
            Some(line) => Some(line),
            None => {
                self.fault = Some(Fault::Bad("Bare Line Feed"));
                Some(&line[..line.len() - 1])
            }
        }
    }
}

/// Reads all fields. The first fault is kept and reading goes on, so that an answer can be made.
fn header_fields(lines: &mut Lines<'_>, fault: &mut Option<Fault>) -> (Headers, Option<usize>) {
    let mut headers = Headers::with_capacity(16);
    let mut length = None;
    while let Some(line) = lines.next() {
        if line.is_empty() {
            break;
        }
        if headers.len() >= MOST_HEADERS {
            fault.get_or_insert(Fault::TooLarge);
            break;
        }
        let (name, value) = match field(line, fault) {
            Field::Is(name, value) => (name, value),
            Field::Foreign => continue,
            Field::Bad => {
                fault.get_or_insert(Fault::Bad("Bad Header Field"));
                continue;
            }
        };
        if name == Name::ContentLength {
            let number = scan::number(&value).and_then(|number| usize::try_from(number).ok());
            match (number, length) {
                (Some(number), None) => length = Some(number),
                (None, _) => _ = fault.get_or_insert(Fault::Bad("Bad Content-Length")),
                (Some(_), Some(_)) => {
                    fault.get_or_insert(Fault::Bad("Several Content-Length"));
                }
            }
            continue;
        }
        headers.push(name, value);
    }
    if let Some(found) = lines.fault {
        fault.get_or_insert(found);
    }
    (headers, length)
}

/// The text of a line: UTF-8 (RFC 3261 7.1), and what is none of it as Latin-1.
fn text_of(line: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(line) {
        return text.into();
    }
    let mut text = String::with_capacity(line.len() * 2);
    for chunk in line.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().copied().map(char::from));
    }
    text.into()
}

enum Field {
    Is(Name, String),
    /// Its name is beyond ASCII: an extension that nobody here knows, which is passed over (RFC 3261 8.2.2).
    Foreign,
    Bad,
}

/// A name and its value with folds made single spaces.
fn field(line: &[u8], fault: &mut Option<Fault>) -> Field {
    let text = text_of(line);
    let Some((name, value)) = text.split_once(':') else {
        return Field::Bad;
    };
    let name = name.trim_end_matches(scan::is_space);
    if !name.is_ascii() && !name.contains(['\r', '\n']) {
        return Field::Foreign;
    }
    if !scan::is_token(name) {
        return Field::Bad;
    }
    let name = Name::parse(name);
    // What an answer returns must be what came, and what came cannot be told from the text.
    match (&text, &name) {
        (Cow::Owned(_), Name::Via) => _ = fault.get_or_insert(Fault::Bad(VIA_NOT_UTF_8)),
        (Cow::Owned(_), Name::CallId) => _ = fault.get_or_insert(Fault::Bad(CALL_ID_NOT_UTF_8)),
        _ => {}
    }
    let value = scan::trim(value);
    if !value.contains(['\r', '\n']) {
        return Field::Is(name, value.to_owned());
    }
    let mut whole = String::with_capacity(value.len());
    for (index, piece) in value.split("\r\n").enumerate() {
        // A line end that is not a whole CRLF is none.
        if piece.contains(['\r', '\n']) {
            return Field::Bad;
        }
        if index > 0 && !whole.is_empty() {
            whole.truncate(whole.trim_end_matches(scan::is_space).len());
            whole.push(' ');
        }
        whole.push_str(if index > 0 {
            piece.trim_start_matches(scan::is_space)
        } else {
            piece
        });
    }
    Field::Is(name, scan::trim(&whole).to_owned())
}

fn body_fault(length: Option<usize>, left: usize, framing: Framing) -> Option<Fault> {
    match length {
        Some(length) if length > left => Some(Fault::Bad("Content-Length Beyond Message")),
        None if framing == Framing::Stream => Some(Fault::Bad("Missing Content-Length")),
        _ => None,
    }
}

/// Whoever sent it gets its Via back, whatever that says: the answer goes to where the request came from.
fn can_answer(headers: &Headers) -> bool {
    headers.list(&Name::Via).next().is_some()
}

/// What every message must carry, once, and well formed (RFC 3261 8.1.1, 20).
fn validate(start: &Start<'_>, headers: &Headers) -> Option<Fault> {
    const ALWAYS: [(Name, Fault); 4] = [
        (Name::From, Fault::Bad("Several From")),
        (Name::To, Fault::Bad("Several To")),
        (Name::CallId, Fault::Bad("Several Call-ID")),
        (Name::CSeq, Fault::Bad("Several CSeq")),
    ];
    const ONCE: [(Name, Fault); 8] = [
        (Name::MaxForwards, Fault::Bad("Several Max-Forwards")),
        (Name::ContentType, Fault::Bad("Several Content-Type")),
        (Name::Expires, Fault::Bad("Several Expires")),
        (Name::RSeq, Fault::Bad("Several RSeq")),
        (Name::RAck, Fault::Bad("Several RAck")),
        (Name::SessionExpires, Fault::Bad("Several Session-Expires")),
        (Name::ReferTo, Fault::Bad("Several Refer-To")),
        (Name::Event, Fault::Bad("Several Event")),
    ];
    let begins = start.begins();
    let once = ONCE.iter().filter(|_| begins);
    for (name, fault) in ALWAYS.iter().chain(once) {
        if headers.all(name).nth(1).is_some() {
            return Some(*fault);
        }
    }
    let lists = [Name::Via, Name::Route, Name::RecordRoute, Name::Contact];
    for name in &lists {
        if headers.list(name).nth(MOST_ELEMENTS).is_some() {
            return Some(Fault::TooLarge);
        }
    }
    vias(headers)
        .or_else(|| ends(headers))
        .or_else(|| begins.then(|| ways(headers)).flatten())
        .or_else(|| numbers(start, headers))
}

fn vias(headers: &Headers) -> Option<Fault> {
    let mut any = false;
    // Empty elements are told too: `Via: …;,,` is no list.
    for value in headers
        .all(&Name::Via)
        .flat_map(|all| scan::split(all, b','))
    {
        let Some(via) = Via::parse(value) else {
            return Some(Fault::Bad("Bad Via"));
        };
        if via.branch() == Some(MAGIC_COOKIE) {
            return Some(Fault::Bad("Empty Branch"));
        }
        any = true;
    }
    (!any).then_some(Fault::Bad("Missing Via"))
}

/// From and To.
fn ends(headers: &Headers) -> Option<Fault> {
    for (name, missing, bad) in [
        (
            Name::From,
            Fault::Bad("Missing From"),
            Fault::Bad("Bad From"),
        ),
        (Name::To, Fault::Bad("Missing To"), Fault::Bad("Bad To")),
    ] {
        match headers.get(&name).map(NameAddr::parse) {
            None => return Some(missing),
            Some(None) => return Some(bad),
            Some(Some(_)) => {}
        }
    }
    None
}

/// Where the sender can be reached, and over whom.
fn ways(headers: &Headers) -> Option<Fault> {
    for (name, bad) in [
        (Name::Contact, Fault::Bad("Bad Contact")),
        (Name::Route, Fault::Bad("Bad Route")),
        (Name::RecordRoute, Fault::Bad("Bad Record-Route")),
    ] {
        let star = name == Name::Contact && headers.get(&name) == Some("*");
        if !star && !headers.all(&name).all(are_addresses) {
            return Some(bad);
        }
    }
    None
}

/// Whether a list is one of addresses. A display name without quotes may have commas, so that its pieces stand
/// before the element that has the address.
fn are_addresses(list: &str) -> bool {
    let mut is_open = false;
    for element in scan::split(list, b',') {
        is_open = match NameAddr::parse(element) {
            Some(_) => false,
            None if element.is_empty() || element.contains(['<', '>', ':', ';']) => return false,
            None => true,
        };
    }
    !is_open
}

fn numbers(start: &Start<'_>, headers: &Headers) -> Option<Fault> {
    if headers.get(&Name::CallId).is_none_or(str::is_empty) {
        return Some(Fault::Bad("Missing Call-ID"));
    }
    let Some(cseq) = headers.get(&Name::CSeq) else {
        return Some(Fault::Bad("Missing CSeq"));
    };
    let Some(cseq) = CSeq::parse(cseq) else {
        return Some(Fault::Bad("Bad CSeq"));
    };
    if let Start::Request { method, .. } = start
        && cseq.method != *method
    {
        return Some(Fault::Bad("CSeq Method Mismatch"));
    }
    if !start.begins() {
        return None;
    }
    // A request of RFC 2543 carries no Max-Forwards.
    match headers.get(&Name::MaxForwards).map(scan::number) {
        Some(Some(0..=255)) | None => None,
        Some(_) => Some(Fault::Bad("Bad Max-Forwards")),
    }
}
