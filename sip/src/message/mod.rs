//! Messages (RFC 3261 7): requests and responses, with their header fields as text that is parsed
//! where it is needed, and a body of bytes.

pub mod header;
mod multipart;
pub mod parse;
pub(crate) mod print;
pub(crate) mod scan;
pub mod stream;
pub mod uri;

#[cfg(test)]
mod tests;

use std::fmt;

pub use self::header::{CSeq, Headers, Name, NameAddr, RAck, Transport, Via};
pub use self::parse::{About, Fault, Malformed};
pub use self::scan::Params;
pub use self::uri::{Host, SipUri, Uri};

/// A whole message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    Request(Request),
    Response(Response),
}

#[derive(Clone, PartialEq, Eq)]
pub struct Request {
    pub method: Method,
    pub uri: Uri,
    pub headers: Headers,
    pub body: Vec<u8>,
    /// Of a request of ours, and no part of the message: its URI is a strict router's, to which it goes
    /// whatever its Route says (RFC 3261 8.1.2).
    pub(crate) strict: bool,
}

#[derive(Clone, PartialEq, Eq)]
pub struct Response {
    /// 100 to 699.
    pub code: u16,
    pub reason: String,
    pub headers: Headers,
    pub body: Vec<u8>,
}

/// A method. Its name is compared by case (RFC 3261 7.1).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    Invite,
    Ack,
    Bye,
    Cancel,
    Register,
    Options,
    Prack,
    Update,
    Info,
    Refer,
    Notify,
    Subscribe,
    Message,
    Publish,
    Other(Box<str>),
}

/// What a body is, in `Content-Type`, and its bytes. What it says is not this crate's.
#[derive(Clone, PartialEq, Eq)]
pub struct Body {
    pub content_type: String,
    pub bytes: Vec<u8>,
}

impl Body {
    pub fn new(content_type: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            content_type: content_type.into(),
            bytes: bytes.into(),
        }
    }

    /// An `application/sdp` body.
    pub fn sdp(bytes: impl Into<Vec<u8>>) -> Self {
        Self::new("application/sdp", bytes)
    }

    /// Whether the type is `kind`, whatever its parameters.
    pub fn is(&self, kind: &str) -> bool {
        multipart::is(&self.content_type, kind)
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} bytes", self.content_type, self.bytes.len())
    }
}

impl Method {
    const KNOWN: [(Self, &'static str); 14] = [
        (Self::Invite, "INVITE"),
        (Self::Ack, "ACK"),
        (Self::Bye, "BYE"),
        (Self::Cancel, "CANCEL"),
        (Self::Register, "REGISTER"),
        (Self::Options, "OPTIONS"),
        (Self::Prack, "PRACK"),
        (Self::Update, "UPDATE"),
        (Self::Info, "INFO"),
        (Self::Refer, "REFER"),
        (Self::Notify, "NOTIFY"),
        (Self::Subscribe, "SUBSCRIBE"),
        (Self::Message, "MESSAGE"),
        (Self::Publish, "PUBLISH"),
    ];

    /// Any token is a method.
    pub fn parse(text: &str) -> Option<Self> {
        for (method, name) in &Self::KNOWN {
            if *name == text {
                return Some(method.clone());
            }
        }
        scan::is_token(text).then(|| Self::Other(text.into()))
    }

    pub fn as_str(&self) -> &str {
        if let Self::Other(name) = self {
            return name;
        }
        Self::KNOWN
            .iter()
            .find(|(method, _)| method == self)
            .map_or("", |(_, name)| name)
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Request {
    /// A request without a Via: whoever sends it adds one.
    pub fn new(method: Method, uri: Uri) -> Self {
        Self {
            method,
            uri,
            headers: Headers::with_capacity(16),
            body: Vec::new(),
            strict: false,
        }
    }

    pub fn via(&self) -> Option<Via> {
        via(&self.headers)
    }

    pub fn from(&self) -> Option<NameAddr> {
        address(&self.headers, &Name::From)
    }

    pub fn to(&self) -> Option<NameAddr> {
        address(&self.headers, &Name::To)
    }

    pub fn cseq(&self) -> Option<CSeq> {
        self.headers.get(&Name::CSeq).and_then(CSeq::parse)
    }

    pub fn call_id(&self) -> &str {
        self.headers.get(&Name::CallId).unwrap_or_default()
    }

    /// The first Contact that is an address.
    pub fn contact(&self) -> Option<NameAddr> {
        contact(&self.headers)
    }

    pub fn set_body(&mut self, body: Option<Body>) {
        set_body(&mut self.headers, &mut self.body, body);
    }

    /// The body; of one of several parts the session description, where there is one.
    pub fn body(&self) -> Option<Body> {
        body(&self.headers, &self.body)
    }

    /// Whether its body is read: it describes a session, alone or among parts that need not be understood.
    pub(crate) fn describes_session(&self) -> bool {
        let kind = self.headers.get(&Name::ContentType).unwrap_or_default();
        match multipart::read(kind, &self.body) {
            Some(parts) => parts.required.is_none() && parts.session_description().is_some(),
            None => multipart::is(kind, "application/sdp"),
        }
    }

    /// Whether its body may be passed over by who does not understand it (RFC 3261 20.11).
    pub(crate) fn has_optional_body(&self) -> bool {
        let disposition = self.headers.get(&Name::ContentDisposition);
        disposition.is_some_and(multipart::is_optional)
    }
}

impl Response {
    /// The answer `code` to a request with these header fields (RFC 3261 8.2.6.2), without a tag of
    /// our own. `reason` of `""` is the code's usual text.
    pub fn to(request: &Headers, code: u16, reason: &str) -> Self {
        let mut headers = Headers::with_capacity(12);
        headers.copy(&Name::Via, request);
        // A faulty request may carry several of these.
        for name in [Name::From, Name::To, Name::CallId, Name::CSeq] {
            if let Some(value) = request.get(&name) {
                headers.push(name, value);
            }
        }
        if code == 100 {
            headers.copy(&Name::Timestamp, request);
        }
        Self {
            code,
            reason: match reason {
                "" => usual_reason(code).to_owned(),
                reason => reason.to_owned(),
            },
            headers,
            body: Vec::new(),
        }
    }

    /// Adds our tag to To unless one is there.
    pub fn set_to_tag(&mut self, tag: &str) {
        if let Some(to) = address(&self.headers, &Name::To)
            && to.tag().is_none()
        {
            self.headers.set(Name::To, to.with_tag(tag).to_string());
        }
    }

    pub fn via(&self) -> Option<Via> {
        via(&self.headers)
    }

    pub fn to_tag(&self) -> Option<String> {
        address(&self.headers, &Name::To)?.tag().map(str::to_owned)
    }

    pub fn cseq(&self) -> Option<CSeq> {
        self.headers.get(&Name::CSeq).and_then(CSeq::parse)
    }

    pub fn call_id(&self) -> &str {
        self.headers.get(&Name::CallId).unwrap_or_default()
    }

    pub fn contact(&self) -> Option<NameAddr> {
        contact(&self.headers)
    }

    pub fn set_body(&mut self, body: Option<Body>) {
        set_body(&mut self.headers, &mut self.body, body);
    }

    /// What it says of the session. Whatever else it may hold, such as the ISUP of an exchange, is passed over.
    pub fn body(&self) -> Option<Body> {
        body(&self.headers, &self.body).filter(|body| body.is("application/sdp"))
    }
}

fn via(headers: &Headers) -> Option<Via> {
    headers.list(&Name::Via).next().and_then(Via::parse)
}

fn address(headers: &Headers, name: &Name) -> Option<NameAddr> {
    headers.get(name).and_then(NameAddr::parse)
}

fn contact(headers: &Headers) -> Option<NameAddr> {
    headers.list(&Name::Contact).find_map(NameAddr::parse)
}

fn set_body(headers: &mut Headers, bytes: &mut Vec<u8>, body: Option<Body>) {
    headers.remove(&Name::ContentType);
    bytes.clear();
    if let Some(body) = body {
        headers.push(Name::ContentType, body.content_type);
        *bytes = body.bytes;
    }
}

fn body(headers: &Headers, bytes: &[u8]) -> Option<Body> {
    let content_type = headers.get(&Name::ContentType)?;
    match multipart::read(content_type, bytes) {
        Some(parts) => parts.session_description(),
        None => (!bytes.is_empty()).then(|| Body::new(content_type, bytes)),
    }
}

/// The text that usually stands behind a code (RFC 3261 21).
pub fn usual_reason(code: u16) -> &'static str {
    match code {
        100 => "Trying",
        180 => "Ringing",
        181 => "Call Is Being Forwarded",
        183 => "Session Progress",
        200 => "OK",
        202 => "Accepted",
        302 => "Moved Temporarily",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        413 => "Request Entity Too Large",
        415 => "Unsupported Media Type",
        416 => "Unsupported URI Scheme",
        420 => "Bad Extension",
        422 => "Session Interval Too Small",
        423 => "Interval Too Brief",
        480 => "Temporarily Unavailable",
        481 => "Call/Transaction Does Not Exist",
        482 => "Loop Detected",
        483 => "Too Many Hops",
        486 => "Busy Here",
        487 => "Request Terminated",
        488 => "Not Acceptable Here",
        489 => "Bad Event",
        491 => "Request Pending",
        500 => "Server Internal Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        504 => "Server Time-out",
        505 => "Version Not Supported",
        513 => "Message Too Large",
        600 => "Busy Everywhere",
        603 => "Decline",
        _ => match code / 100 {
            1 => "Progress",
            2 => "Success",
            3 => "Redirection",
            4 => "Request Failure",
            5 => "Server Failure",
            _ => "Global Failure",
        },
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} {:?}", self.method, self.uri, self.headers)
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.code, self.headers)
    }
}
