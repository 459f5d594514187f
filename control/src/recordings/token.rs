//! Signed audio tokens: an id, an expiry and a tag that binds both to what may be heard. Each has a
//! row as well, so that it can be taken back; without its row a token is refused.

use std::time::Duration;

use base64_simd::URL_SAFE_NO_PAD as BASE64;
use uuid::Uuid;

use crate::config::Config;
use crate::ids::CallId;
use crate::secret::{self, MasterKey, Purpose};
use crate::time::Timestamp;

/// How long a signed audio URL is good for, seconds.
pub const LIFETIME_SECONDS: u64 = 3600;
/// Bytes of the tag: half of HMAC-SHA-256 is still 128 bits against a guess.
const TAG: usize = 16;

/// What a genuine token says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AudioToken {
    pub id: Uuid,
    pub expires_at: Timestamp,
}

/// A new token that is good for [`LIFETIME_SECONDS`].
pub fn fresh(now: Timestamp) -> AudioToken {
    AudioToken {
        id: Uuid::new_v4(),
        expires_at: now.plus(Duration::from_secs(LIFETIME_SECONDS)),
    }
}

/// Writes a token for one conversation or recording, `subject`.
pub fn mint(key: &MasterKey, purpose: Purpose, subject: Uuid, token: AudioToken) -> String {
    let id = *token.id.as_bytes();
    let expires_at = token.expires_at.micros().to_be_bytes();
    let tag = tag(key, purpose, subject, id, expires_at);
    BASE64.encode_to_string([&id[..], &expires_at, &tag].concat())
}

/// Reads a token; `None` when this server did not make it for this subject and purpose. Expiry and
/// revocation are the caller's to look at.
pub fn open(key: &MasterKey, purpose: Purpose, subject: Uuid, text: &str) -> Option<AudioToken> {
    let bytes = BASE64.decode_to_vec(text).ok()?;
    let (id, rest) = bytes.split_first_chunk::<16>()?;
    let (expires_at, given) = rest.split_first_chunk::<8>()?;
    let genuine = key
        .each()
        .iter()
        .any(|key| secret::same(&tag(key, purpose, subject, *id, *expires_at), given));
    genuine.then(|| AudioToken {
        id: Uuid::from_bytes(*id),
        expires_at: Timestamp::from_micros(i64::from_be_bytes(*expires_at)),
    })
}

fn tag(
    key: &MasterKey,
    purpose: Purpose,
    subject: Uuid,
    id: [u8; 16],
    expires_at: [u8; 8],
) -> [u8; TAG] {
    let full = key.sign(
        purpose,
        &[&subject.as_bytes()[..], &id, &expires_at].concat(),
    );
    let mut tag = [0; TAG];
    tag.copy_from_slice(&full[..TAG]);
    tag
}

/// The signed URL of a conversation's audio.
pub fn audio_url(config: &Config, id: CallId, token: &str) -> String {
    format!(
        "{}/api/v1/conversations/{id}/audio.wav?token={token}",
        config.server.public_url
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that fails should stop at once")]

    use super::*;

    fn key(byte: u8) -> MasterKey {
        MasterKey::from_base64(&base64_simd::STANDARD.encode_to_string([byte; 32])).unwrap()
    }

    #[test]
    fn a_token_opens_where_it_was_made_for() {
        let (subject, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let token = AudioToken {
            id: Uuid::from_u128(3),
            expires_at: Timestamp(1_700_000_000_000_000),
        };
        let text = mint(&key(5), Purpose::AudioToken, subject, token);
        assert_eq!(
            open(&key(5), Purpose::AudioToken, subject, &text),
            Some(token)
        );
        assert_eq!(open(&key(5), Purpose::DownloadUrl, subject, &text), None);
        assert_eq!(open(&key(5), Purpose::AudioToken, other, &text), None);
        assert_eq!(open(&key(6), Purpose::AudioToken, subject, &text), None);
    }

    #[test]
    fn no_altered_token_opens() {
        let subject = Uuid::from_u128(1);
        let token = AudioToken {
            id: Uuid::from_u128(3),
            expires_at: Timestamp(5),
        };
        let text = mint(&key(5), Purpose::DownloadUrl, subject, token);
        let bytes = BASE64.decode_to_vec(&text).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut altered = bytes.clone();
            altered[bit / 8] ^= 1 << (bit % 8);
            let altered = BASE64.encode_to_string(altered);
            assert_eq!(
                open(&key(5), Purpose::DownloadUrl, subject, &altered),
                None,
                "bit {bit}"
            );
        }
        for bad in [
            "",
            "a",
            "no base64!",
            &text[..text.len() - 4],
            &"A".repeat(1 << 20),
        ] {
            assert_eq!(open(&key(5), Purpose::DownloadUrl, subject, bad), None);
        }
    }
}
