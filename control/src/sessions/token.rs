//! The one-time token of a `ws_url`: 16 random bytes and a tag that binds them to the session, so a
//! made-up token is refused without a look into the database. The database keeps its SHA-256 only.

use base64_simd::URL_SAFE_NO_PAD as BASE64;

use crate::ids::CallId;
use crate::secret::{self, MasterKey, Purpose};

/// Random bytes of a token.
pub const RANDOM: usize = 16;
/// Bytes of the tag: half of HMAC-SHA-256 is still 128 bits against a guess.
const TAG: usize = 16;

/// Makes the token of a session, 43 characters that a URL path takes as they are.
pub fn mint(key: &MasterKey, session: CallId, random: [u8; RANDOM]) -> String {
    BASE64.encode_to_string([random, tag(key, session, random)].concat())
}

/// Whether this server made `token` for `session`. Says nothing of whether it was used.
pub fn genuine(key: &MasterKey, session: CallId, token: &str) -> bool {
    let Ok(bytes) = BASE64.decode_to_vec(token) else {
        return false;
    };
    let Some((random, given)) = bytes.split_first_chunk::<RANDOM>() else {
        return false;
    };
    key.each()
        .iter()
        .any(|key| secret::same(&tag(key, session, *random), given))
}

/// What is stored of a token: its SHA-256 in hex.
pub fn fingerprint(token: &str) -> String {
    secret::sha256(token.as_bytes())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn tag(key: &MasterKey, session: CallId, random: [u8; RANDOM]) -> [u8; TAG] {
    let full = key.sign(
        Purpose::WebSocketToken,
        &[*session.0.as_bytes(), random].concat(),
    );
    let mut tag = [0; TAG];
    tag.copy_from_slice(&full[..TAG]);
    tag
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that fails should stop at once")]

    use uuid::Uuid;

    use super::*;

    fn key(byte: u8) -> MasterKey {
        MasterKey::from_base64(&base64_simd::STANDARD.encode_to_string([byte; 32])).unwrap()
    }

    #[test]
    fn a_token_is_good_for_its_session_only() {
        let (session, other) = (CallId(Uuid::from_u128(1)), CallId(Uuid::from_u128(2)));
        let token = mint(&key(3), session, [9; RANDOM]);
        assert_eq!(token.len(), 43);
        assert!(
            token
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
        );
        assert!(genuine(&key(3), session, &token));
        assert!(!genuine(&key(3), other, &token));
        assert!(!genuine(&key(4), session, &token));
        for bad in [
            "",
            "A",
            "====",
            "not base64 at all!",
            &token[..42],
            &format!("{token}A"),
            &"A".repeat(100_000),
        ] {
            assert!(!genuine(&key(3), session, bad));
        }
    }

    #[test]
    fn a_fingerprint_is_sha_256_in_hex() {
        assert_eq!(
            fingerprint("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
