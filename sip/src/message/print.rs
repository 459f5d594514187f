//! Messages to bytes: long header names, one field a line, Content-Length counted from the body.

use super::header::one_line;
use super::{Headers, Message, Name, Request, Response};

impl Message {
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Request(request) => request.to_bytes(),
            Self::Response(response) => response.to_bytes(),
        }
    }
}

impl Request {
    pub fn to_bytes(&self) -> Vec<u8> {
        let line = format!("{} {} SIP/2.0\r\n", self.method, self.uri);
        write(&line, &self.headers, &self.body)
    }
}

impl Response {
    pub fn to_bytes(&self) -> Vec<u8> {
        write(&self.line(), &self.headers, &self.body)
    }

    /// How many bytes it has, which [`Response::to_bytes`] would take at once.
    pub(crate) fn length(&self) -> usize {
        length(&self.line(), &self.headers, &self.body)
    }

    fn line(&self) -> String {
        let reason = one_line(self.reason.clone());
        format!("SIP/2.0 {:03} {reason}\r\n", self.code)
    }
}

/// The bytes of a field, with its line's end.
pub(crate) fn field(name: &Name, value: &str) -> usize {
    name.as_str().len() + value.len() + ": \r\n".len()
}

fn length(line: &str, headers: &Headers, body: &[u8]) -> usize {
    let fields: usize = headers.iter().map(|(name, value)| field(name, value)).sum();
    let end = content_length(body).len();
    line.len() + fields + end + body.len()
}

fn content_length(body: &[u8]) -> String {
    format!("{}: {}\r\n\r\n", Name::ContentLength.as_str(), body.len())
}

/// In one allocation of just that size: a message may be as large as a datagram can be.
fn write(line: &str, headers: &Headers, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(length(line, headers, body));
    out.extend_from_slice(line.as_bytes());
    for (name, value) in headers.iter() {
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(content_length(body).as_bytes());
    out.extend_from_slice(body);
    out
}
