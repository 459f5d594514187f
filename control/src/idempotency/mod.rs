//! `Idempotency-Key`: a request that is sent again makes nothing anew (document 1 leaves it open; 24 hours).
//!
//! What a request made is written down in the transaction that made it, under the account and the key.
//! Whoever comes second, later or at the same moment, finds it: the same request is answered with what
//! it made ([`Seen::Again`]), another one with 409. Requests that were refused made nothing, and may be
//! sent again. Neither key nor body is kept, only their digests.

pub mod store;

use std::time::Duration;

use http::HeaderMap;
use serde::Serialize;

use crate::http::ApiError;
use crate::http::endpoint::{IDEMPOTENCY_KEY as HEADER, LONGEST_IDEMPOTENCY_KEY as LONGEST};
use crate::http::validate::{FieldError, Loc};
use crate::ids::AccountId;
use crate::node::Node;
use crate::secret::sha256;

/// The header of an answer that was given before.
pub const REPLAYED: &str = "Idempotent-Replayed";
/// How long a request is remembered.
pub const REMEMBERED: Duration = Duration::from_secs(24 * 3600);

/// A request that names itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    hash: String,
    fingerprint: String,
}

impl Key {
    /// The key of a request to this route, if it has one. 422 names the header where it is no key: 1 to
    /// [`LONGEST`] visible ASCII characters.
    pub fn read(
        headers: &HeaderMap,
        route: &str,
        body: &impl Serialize,
    ) -> Result<Option<Self>, ApiError> {
        let Some(value) = headers.get(HEADER) else {
            return Ok(None);
        };
        let wrong = |kind, msg: String| {
            ApiError::Fields(vec![FieldError {
                loc: vec![Loc::from("header"), Loc::from(HEADER)],
                msg,
                kind,
            }])
        };
        let key = value.to_str().map_err(|_| {
            wrong(
                "string_pattern_mismatch",
                "String should have visible ASCII characters only".to_owned(),
            )
        })?;
        match key.len() {
            0 => Err(wrong(
                "string_too_short",
                "String should have at least 1 character".to_owned(),
            )),
            1..=LONGEST => {
                let body = serde_json::to_string(body).map_err(ApiError::internal)?;
                Ok(Some(Self {
                    hash: digest(key),
                    fingerprint: digest(&format!("{route}\n{body}")),
                }))
            }
            _ => Err(wrong(
                "string_too_long",
                format!("String should have at most {LONGEST} characters"),
            )),
        }
    }
}

/// What is known of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    Never,
    /// It made this.
    Again(String),
}

/// Whether this request was here within the last day. 409 `idempotency_conflict` when another one was,
/// under the same key.
pub async fn find(app: &Node, account: AccountId, key: &Key) -> Result<Seen, ApiError> {
    let since = app.clock.shared().minus(REMEMBERED);
    match store::find(&app.db, account, &key.hash, since).await? {
        None => Ok(Seen::Never),
        Some(known) if known.fingerprint == key.fingerprint => Ok(Seen::Again(known.resource)),
        Some(_) => Err(ApiError::conflict(
            "idempotency_conflict",
            "This Idempotency-Key belongs to a request with another body or to another route",
        )),
    }
}

fn digest(text: &str) -> String {
    use std::fmt::Write as _;
    let mut hex = String::with_capacity(64);
    for byte in sha256(text.as_bytes()) {
        // Writing into a string does not fail.
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at a surprise")]

    use serde_json::json;

    use super::*;

    fn read(key: &[u8]) -> Result<Option<Key>, ApiError> {
        let mut headers = HeaderMap::new();
        headers.insert(HEADER, http::HeaderValue::from_bytes(key).unwrap());
        Key::read(&headers, "/calls", &json!({"to_number": "+15550100"}))
    }

    #[test]
    fn a_key_is_1_to_200_visible_characters() {
        let none = Key::read(&HeaderMap::new(), "/calls", &json!({}));
        assert_eq!(none.unwrap(), None);
        assert!(read(b"order 4711").unwrap().is_some());
        assert!(read(&[b'k'; 200]).unwrap().is_some());
        for (wrong, kind) in [
            (&b""[..], "string_too_short"),
            (&[b'k'; 201], "string_too_long"),
            (b"caf\xc3\xa9", "string_pattern_mismatch"),
        ] {
            let body = read(wrong).unwrap_err().body("id");
            assert_eq!(body["detail"][0]["type"], kind);
            assert_eq!(
                body["detail"][0]["loc"],
                json!(["header", "Idempotency-Key"])
            );
        }
    }

    #[test]
    fn route_and_body_make_the_fingerprint() {
        let mut headers = HeaderMap::new();
        headers.insert(HEADER, http::HeaderValue::from_static("one"));
        let key = |route, body| Key::read(&headers, route, &body).unwrap().unwrap();
        let first = key("/calls", json!({"a": 1, "b": 2}));
        assert_eq!(first, key("/calls", json!({"b": 2, "a": 1})));
        assert_ne!(first, key("/calls/trigger", json!({"a": 1, "b": 2})));
        assert_ne!(first, key("/calls", json!({"a": 1, "b": 3})));
        assert!(!format!("{first:?}").contains("one"), "no key is shown");
    }
}
