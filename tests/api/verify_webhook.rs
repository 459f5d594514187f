//! The signature check in Rust of `docs/webhooks.md`, word for word: a test compares the two.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// `header` is X-Svc-Signature, `now` the time in Unix seconds, `body` the bytes as they came.
pub(crate) fn verify(secret: &str, now: i64, body: &[u8], header: &str) -> bool {
    let part = |name| header.split(',').find_map(|part| part.strip_prefix(name));
    let (Some(t), Some(hex)) = (part("t="), part("v1=")) else {
        return false;
    };
    let byte = |i| u8::from_str_radix(hex.get(i..i + 2)?, 16).ok();
    let Some(given) = (0..hex.len())
        .step_by(2)
        .map(byte)
        .collect::<Option<Vec<u8>>>()
    else {
        return false;
    };
    let fresh = t.parse::<i64>().is_ok_and(|t| now.abs_diff(t) <= 300);
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret.as_bytes()) else {
        return false;
    };
    mac.update(t.as_bytes());
    mac.update(b".");
    mac.update(body);
    fresh && mac.verify_slice(&given).is_ok() // compares in constant time
}
