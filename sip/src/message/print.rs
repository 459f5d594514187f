//! Messages to bytes: long header names, one field a line, Content-Length counted from the body.

use std::io::Write as _;

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
        let mut out = Vec::with_capacity(room(&self.headers, &self.body));
        // Writing to a vector cannot fail.
        _ = write!(out, "{} {} SIP/2.0\r\n", self.method, self.uri);
        finish(out, &self.headers, &self.body)
    }
}

impl Response {
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(room(&self.headers, &self.body));
        let reason = one_line(self.reason.clone());
        _ = write!(out, "SIP/2.0 {:03} {reason}\r\n", self.code);
        finish(out, &self.headers, &self.body)
    }
}

fn room(headers: &Headers, body: &[u8]) -> usize {
    let fields: usize = headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + 4)
        .sum();
    fields + body.len() + 160
}

fn finish(mut out: Vec<u8>, headers: &Headers, body: &[u8]) -> Vec<u8> {
    for (name, value) in headers.iter() {
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    _ = write!(
        out,
        "{}: {}\r\n\r\n",
        Name::ContentLength.as_str(),
        body.len()
    );
    out.extend_from_slice(body);
    out
}
