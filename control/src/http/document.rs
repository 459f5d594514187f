//! The OpenAPI document as it is sent: written once, compressed once, each form with a strong validator of its own
//! (RFC 9110, sections 8.8.3 and 12.5.3).

use std::io::Write;

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use sha2::{Digest, Sha256};

use super::range::none_match_hits;

/// The document in both forms.
#[derive(Debug)]
pub struct Written {
    plain: Form,
    gzip: Option<Form>,
}

/// One representation.
#[derive(Debug)]
struct Form {
    body: Bytes,
    etag: String,
}

impl Written {
    pub fn of(text: Vec<u8>) -> Self {
        let digest: String = Sha256::digest(&text)[..16]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Self {
            gzip: compressed(&text).map(|body| Form {
                body: body.into(),
                etag: format!("\"{digest}-gzip\""),
            }),
            plain: Form {
                body: text.into(),
                etag: format!("\"{digest}\""),
            },
        }
    }

    pub fn answer(&self, asked: &HeaderMap) -> Response {
        let gzip = self.gzip.as_ref().filter(|_| takes_gzip(asked));
        let form = gzip.unwrap_or(&self.plain);
        let mut headers = HeaderMap::new();
        // Hexadecimal digits in quotes always make a header value.
        if let Ok(etag) = HeaderValue::from_str(&form.etag) {
            headers.insert(header::ETAG, etag);
        }
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
        let known = asked.get(header::IF_NONE_MATCH);
        if none_match_hits(known.and_then(|value| value.to_str().ok()), &form.etag) {
            return (StatusCode::NOT_MODIFIED, headers).into_response();
        }
        let json = HeaderValue::from_static("application/json");
        headers.insert(header::CONTENT_TYPE, json);
        if gzip.is_some() {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        (headers, form.body.clone()).into_response()
    }
}

/// The text in gzip (RFC 1952).
fn compressed(text: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let written = encoder.write_all(text).and_then(|()| encoder.finish());
    written
        .inspect_err(|error| tracing::warn!(%error, "the API's document could not be compressed"))
        .ok()
}

/// Whether a client takes gzip, and likes it no less than the plain text.
fn takes_gzip(asked: &HeaderMap) -> bool {
    let mut gzip = None;
    let mut any = None;
    let mut identity = 0.0_f32;
    for line in asked.get_all(header::ACCEPT_ENCODING) {
        for part in line.to_str().unwrap_or_default().split(',') {
            let (coding, weight) = weighed(part);
            match coding.to_ascii_lowercase().as_str() {
                "gzip" | "x-gzip" => gzip = Some(weight),
                "*" => any = Some(weight),
                "identity" => identity = weight,
                _ => {}
            }
        }
    }
    let weight = gzip.or(any).unwrap_or(0.0);
    weight > 0.0 && weight >= identity
}

/// A coding and its weight; one that cannot be read is none.
fn weighed(part: &str) -> (&str, f32) {
    let mut pieces = part.split(';').map(str::trim);
    let coding = pieces.next().unwrap_or_default();
    let weight = pieces
        .find_map(|piece| piece.strip_prefix("q=").or(piece.strip_prefix("Q=")))
        .map_or(1.0, |weight| weight.parse().unwrap_or(0.0));
    (coding, weight)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at a surprise")]

    use super::*;

    #[test]
    fn a_client_says_which_codings_it_takes() {
        for (header, takes) in [
            ("gzip", true),
            ("GZIP", true),
            ("x-gzip", true),
            ("br, gzip;q=0.5", true),
            ("*", true),
            ("gzip;q=0", false),
            ("*, gzip;q=0", false),
            ("br", false),
            ("", false),
            ("identity, gzip;q=0.1", false),
            ("identity;q=0.5, gzip;q=0.5", true),
            ("gzip;q=x", false),
            ("gzip ; q=1", true),
        ] {
            let mut asked = HeaderMap::new();
            asked.insert(header::ACCEPT_ENCODING, header.parse().unwrap());
            assert_eq!(takes_gzip(&asked), takes, "{header}");
        }
        assert!(!takes_gzip(&HeaderMap::new()));
    }
}
