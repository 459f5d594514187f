//! The signed URL under which a voice can be heard without a key. Pure.
//!
//! The signature is that of a signed audio token; there is nothing to take back, so it has no row. It
//! lasts until the end of the next full hour, so that a player finds the same URL again for a while.

use uuid::Uuid;

use super::catalogue::Voice;
use crate::recordings::token::{self, AudioToken, LIFETIME_SECONDS};
use crate::secret::{MasterKey, Purpose};
use crate::time::Timestamp;

/// A token for this voice: good for one to two hours.
pub fn sign(key: &MasterKey, voice: &Voice, now: Timestamp) -> String {
    let hour = i64::try_from(LIFETIME_SECONDS).unwrap_or(i64::MAX);
    let end = (now.seconds() / hour + 2) * hour;
    let token = AudioToken {
        id: Uuid::nil(),
        expires_at: Timestamp::from_micros(end * 1_000_000),
    };
    token::mint(key, Purpose::VoicePreview, voice.id, token)
}

/// When a token of this voice expires; `None`: it is none.
pub fn open(key: &MasterKey, voice: &Voice, text: &str) -> Option<Timestamp> {
    token::open(key, Purpose::VoicePreview, voice.id, text).map(|token| token.expires_at)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

    use super::*;
    use crate::voices::catalogue::known;

    #[test]
    fn a_url_is_the_same_for_an_hour_and_good_for_one_more() {
        let key = MasterKey::from_base64(&base64_simd::STANDARD.encode_to_string([7; 32])).unwrap();
        let voice = known("scripted-tone").unwrap();
        let at = |seconds: i64| Timestamp::from_micros(seconds * 1_000_000);
        let first = sign(&key, voice, at(7200));
        assert_eq!(first, sign(&key, voice, at(10_799)));
        assert_ne!(first, sign(&key, voice, at(10_800)));
        assert_eq!(open(&key, voice, &first), Some(at(14_400)));
        assert_eq!(open(&key, known("flite-slt").unwrap(), &first), None);
        assert_eq!(open(&key, voice, ""), None);
    }
}
