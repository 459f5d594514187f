//! Bytes to a message, or to the answer that the bytes deserve. Total: any bytes give one of the two.
//!
//! Bounded: a datagram is at most 64 KiB; header fields are counted and measured; no single
//! allocation is larger than what came in. What is wrong is found in one pass, and the fields that a
//! 400 must echo are saved all the same, since the sender of a faulty request should hear of it
//! (RFC 3261 8.2, RFC 4475).

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

impl Fault {
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
    /// The method and fields of a request that can be answered: its first Via could be read. `None`
    /// for responses and ACKs, which are never answered.
    pub answerable: Option<Box<(Method, Headers)>>,
}

impl Malformed {
    fn silent(fault: Fault) -> Self {
        Self {
            fault,
            answerable: None,
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
    let first = std::str::from_utf8(first).map_err(|_| Malformed::silent(Fault::NotSip))?;
    let start = start_line(first).map_err(Malformed::silent)?;
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
        let Some((name, value)) = field(line, fault) else {
            fault.get_or_insert(Fault::Bad("Bad Header Field"));
            continue;
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

/// A name and its value with folds made single spaces.
fn field(line: &[u8], fault: &mut Option<Fault>) -> Option<(Name, String)> {
    let text = match std::str::from_utf8(line) {
        Ok(text) => text.into(),
        Err(_) => {
            fault.get_or_insert(Fault::Bad("Not UTF-8"));
            String::from_utf8_lossy(line)
        }
    };
    let (name, value) = text.split_once(':')?;
    let name = name.trim_end_matches(scan::is_space);
    if !scan::is_token(name) {
        return None;
    }
    let value = scan::trim(value);
    if !value.contains(['\r', '\n']) {
        return Some((Name::parse(name), value.to_owned()));
    }
    let mut whole = String::with_capacity(value.len());
    for (index, piece) in value.split("\r\n").enumerate() {
        // A line end that is not a whole CRLF is none.
        if piece.contains(['\r', '\n']) {
            return None;
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
    Some((Name::parse(name), scan::trim(&whole).to_owned()))
}

fn body_fault(length: Option<usize>, left: usize, framing: Framing) -> Option<Fault> {
    match length {
        Some(length) if length > left => Some(Fault::Bad("Content-Length Beyond Message")),
        None if framing == Framing::Stream => Some(Fault::Bad("Missing Content-Length")),
        _ => None,
    }
}

fn can_answer(headers: &Headers) -> bool {
    headers
        .list(&Name::Via)
        .next()
        .is_some_and(|via| Via::parse(via).is_some())
}

/// What every message must carry, once, and well formed (RFC 3261 8.1.1, 20).
fn validate(start: &Start<'_>, headers: &Headers) -> Option<Fault> {
    const ONCE: [(Name, Fault); 12] = [
        (Name::From, Fault::Bad("Several From")),
        (Name::To, Fault::Bad("Several To")),
        (Name::CallId, Fault::Bad("Several Call-ID")),
        (Name::CSeq, Fault::Bad("Several CSeq")),
        (Name::MaxForwards, Fault::Bad("Several Max-Forwards")),
        (Name::ContentType, Fault::Bad("Several Content-Type")),
        (Name::Expires, Fault::Bad("Several Expires")),
        (Name::RSeq, Fault::Bad("Several RSeq")),
        (Name::RAck, Fault::Bad("Several RAck")),
        (Name::SessionExpires, Fault::Bad("Several Session-Expires")),
        (Name::ReferTo, Fault::Bad("Several Refer-To")),
        (Name::Event, Fault::Bad("Several Event")),
    ];
    for (name, fault) in &ONCE {
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
        .or_else(|| addresses(headers))
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

fn addresses(headers: &Headers) -> Option<Fault> {
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
    for (name, bad) in [
        (Name::Contact, Fault::Bad("Bad Contact")),
        (Name::Route, Fault::Bad("Bad Route")),
        (Name::RecordRoute, Fault::Bad("Bad Record-Route")),
    ] {
        let star = name == Name::Contact && headers.get(&name) == Some("*");
        let mut values = headers.all(&name).flat_map(|all| scan::split(all, b','));
        if !star && values.any(|value| NameAddr::parse(value).is_none()) {
            return Some(bad);
        }
    }
    None
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
    // A request of RFC 2543 carries no Max-Forwards.
    match headers.get(&Name::MaxForwards).map(scan::number) {
        Some(Some(0..=255)) | None => None,
        Some(_) => Some(Fault::Bad("Bad Max-Forwards")),
    }
}
