//! The signature of an event (document 1, Request shape): `t=<unix seconds>,v1=<hex>`, where the hex is
//! HMAC-SHA-256 with the account's secret over `<t>.<body>`. Pure.

use std::fmt::Write as _;

use crate::secret;

/// The header of the event's type.
pub const EVENT_HEADER: &str = "x-svc-event";
/// The header of the signature.
pub const SIGNATURE_HEADER: &str = "x-svc-signature";
/// A receiver refuses a signature that is older than this, seconds.
pub const TOLERANCE: i64 = 300;

/// The header's value for a body that is sent at `t` (unix seconds).
pub fn header(secret: &[u8], t: i64, body: &[u8]) -> String {
    let mut value = format!("t={t},v1=");
    for byte in tag(secret, t, body) {
        // Writing to a String does not fail.
        let _ = write!(value, "{byte:02x}");
    }
    value
}

/// Why a signature does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsigned {
    /// There is no header, or it has another form.
    Malformed,
    /// Made too long ago, or for a time to come.
    Stale,
    /// Another secret, or another body.
    Wrong,
}

impl std::fmt::Display for Unsigned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Malformed => "no signature of the form t=…,v1=…",
            Self::Stale => "the signature's time is more than 5 minutes away",
            Self::Wrong => "the signature is not that of this body and secret",
        })
    }
}

/// Holds a header against a body, at `now` (unix seconds). The comparison takes the same time wherever
/// the two differ.
pub fn verify(secret: &[u8], now: i64, body: &[u8], header: &str) -> Result<(), Unsigned> {
    let (mut time, mut given) = (None, Vec::new());
    for part in header.split(',') {
        match part.trim().split_once('=') {
            Some(("t", text)) => time = text.parse::<i64>().ok(),
            Some(("v1", text)) => given.extend(unhex(text)),
            // Versions to come stand beside this one.
            _ => {}
        }
    }
    let (Some(time), false) = (time, given.is_empty()) else {
        return Err(Unsigned::Malformed);
    };
    let expected = tag(secret, time, body);
    if !given.iter().any(|given| secret::same(given, &expected)) {
        return Err(Unsigned::Wrong);
    }
    if now.abs_diff(time) > TOLERANCE.unsigned_abs() {
        return Err(Unsigned::Stale);
    }
    Ok(())
}

fn tag(secret: &[u8], t: i64, body: &[u8]) -> [u8; 32] {
    secret::hmac(secret, &[format!("{t}.").as_bytes(), body].concat())
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let bytes: &[u8; 64] = text.as_bytes().try_into().ok()?;
    let mut out = [0; 32];
    for (byte, pair) in out.iter_mut().zip(bytes.chunks_exact(2)) {
        let digit = |c: u8| char::from(c).to_digit(16);
        *byte = u8::try_from(digit(pair[0])? << 4 | digit(pair[1])?).ok()?;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8] = b"whsec_test";
    const BODY: &[u8] = br#"{"event_id":"1"}"#;

    #[test]
    fn the_header_is_that_of_the_document() {
        // printf '1700000000.{"event_id":"1"}' | openssl dgst -sha256 -hmac whsec_test
        assert_eq!(
            header(SECRET, 1_700_000_000, BODY),
            "t=1700000000,v1=fe60a799db49b94ac6d1666f9e0bcd5c1d47a0c4d40a642fbbe3f4b9dd74cb66"
        );
    }

    #[test]
    fn a_signature_holds_for_its_body_secret_and_time() {
        let now = 1_700_000_000;
        let good = header(SECRET, now, BODY);
        let check =
            |secret: &[u8], now, body: &[u8], header: &str| verify(secret, now, body, header);
        assert_eq!(check(SECRET, now, BODY, &good), Ok(()));
        assert_eq!(check(SECRET, now + 300, BODY, &good), Ok(()));
        assert_eq!(check(SECRET, now - 300, BODY, &good), Ok(()));
        assert_eq!(check(SECRET, now + 301, BODY, &good), Err(Unsigned::Stale));
        assert_eq!(check(SECRET, now - 301, BODY, &good), Err(Unsigned::Stale));
        assert_eq!(check(b"other", now, BODY, &good), Err(Unsigned::Wrong));
        assert_eq!(check(SECRET, now, b"{}", &good), Err(Unsigned::Wrong));
        let later = good.replace("t=1700000000", "t=1700000001");
        assert_eq!(check(SECRET, now, BODY, &later), Err(Unsigned::Wrong));
        // A header may carry the signatures of two secrets, and versions to come.
        let two = format!("{},{}", header(b"old", now, BODY), &good[13..]);
        assert_eq!(check(SECRET, now, BODY, &format!("v2=x,{two}")), Ok(()));
    }

    #[test]
    fn no_other_text_is_a_signature() {
        let good = header(SECRET, 1, BODY);
        for bad in [
            "",
            "t=1",
            "v1=",
            "t=1,v1=",
            "t=x,v1=00",
            "t=1,v1=zz",
            &good[..good.len() - 1],
            &format!("{good}0"),
            &good.replace("t=1", "t="),
            &good.replace("v1", "v0"),
        ] {
            assert_eq!(
                verify(SECRET, 1, BODY, bad),
                Err(Unsigned::Malformed),
                "{bad}"
            );
        }
    }
}
