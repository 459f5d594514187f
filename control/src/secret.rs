//! Things that must not be seen: secrets, which have no `Serialize` and print dots; private data,
//! which prints dots in logs; and the master key from which every signing key is derived.

use std::fmt;
use std::io;
use std::path::Path;

use hmac::{Hmac, KeyInit, Mac};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use base64_simd::URL_SAFE_NO_PAD as BASE64;

/// A value that is used but never shown.
#[derive(Clone)]
pub struct Secret<T>(T);

impl<T> Secret<T> {
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// The value itself. Every caller is a place to look at in a review.
    pub const fn expose(&self) -> &T {
        &self.0
    }
}

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("•••")
    }
}

/// Personal data (a phone number, spoken words): part of answers, never of logs.
#[derive(Clone, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Private(pub String);

impl fmt::Debug for Private {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "‹{} characters›", self.0.chars().count())
    }
}

/// What a derived key is for. Two purposes never share a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// One-time `ws_url` tokens.
    WebSocketToken,
    /// Signed audio tokens of conversations.
    AudioToken,
    /// Signed download URLs of recordings.
    DownloadUrl,
    /// Secrets with which events are signed, as they lie in the database.
    WebhookSecret,
    /// Signed URLs of voices' previews.
    VoicePreview,
}

impl Purpose {
    const fn label(self) -> &'static [u8] {
        match self {
            Self::WebSocketToken => b"sidetone ws token v1",
            Self::AudioToken => b"sidetone audio token v1",
            Self::DownloadUrl => b"sidetone download url v1",
            Self::WebhookSecret => b"sidetone webhook secret v1",
            Self::VoicePreview => b"sidetone voice preview v1",
        }
    }
}

/// The one root secret of an installation: 32 bytes.
#[derive(Clone, Debug)]
pub struct MasterKey(Secret<[u8; 32]>);

impl MasterKey {
    /// From 32 bytes in base64 (the setting).
    pub fn from_base64(text: &str) -> Option<Self> {
        let bytes = base64_simd::STANDARD.decode_to_vec(text.trim()).ok()?;
        Some(Self(Secret::new(bytes.try_into().ok()?)))
    }

    /// From the file; makes it (mode 600) when there is none.
    pub fn load_or_create(path: &Path) -> io::Result<Self> {
        match std::fs::read_to_string(path) {
            Ok(text) => Self::from_base64(&text).ok_or_else(|| {
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("{} does not hold 32 bytes in base64", path.display()),
                )
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let key = random_bytes::<32>()?;
                write_private(path, base64_simd::STANDARD.encode_to_string(key).as_bytes())?;
                Ok(Self(Secret::new(key)))
            }
            Err(error) => Err(error),
        }
    }

    /// Signs with the key of this purpose: HMAC-SHA-256 (RFC 2104).
    pub fn sign(&self, purpose: Purpose, message: &[u8]) -> [u8; 32] {
        hmac(&hmac(self.0.expose(), purpose.label()), message)
    }

    /// Encrypts a secret for the database: AES-256-GCM with the key of this purpose and a random nonce.
    /// `row` names the row that it belongs to; elsewhere it does not open. The text tells which master
    /// key made it: `<key id>.<base64 of nonce, ciphertext and tag>`.
    pub fn seal(&self, purpose: Purpose, row: &str, plain: &[u8]) -> io::Result<String> {
        let nonce = random_bytes::<NONCE_LEN>()?;
        let mut sealed = plain.to_vec();
        self.aead(purpose)
            .and_then(|key| {
                let nonce = Nonce::assume_unique_for_key(nonce);
                key.seal_in_place_append_tag(nonce, Aad::from(row), &mut sealed)
                    .ok()
            })
            .ok_or_else(|| io::Error::other("a secret could not be encrypted"))?;
        let text = BASE64.encode_to_string([&nonce[..], &sealed].concat());
        Ok(format!("{}.{text}", self.id()))
    }

    /// Decrypts what [`MasterKey::seal`] made for this purpose and row; `None` for anything else, a
    /// secret of another master key too.
    pub fn open(&self, purpose: Purpose, row: &str, sealed: &str) -> Option<Secret<Vec<u8>>> {
        let (id, text) = sealed.split_once('.')?;
        let bytes = BASE64.decode_to_vec(text).ok()?;
        let (nonce, rest) = bytes.split_first_chunk::<NONCE_LEN>()?;
        let (key, mut rest) = (self.aead(purpose)?, rest.to_vec());
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let plain = key.open_in_place(nonce, Aad::from(row), &mut rest).ok()?;
        (id == self.id()).then(|| Secret::new(plain.to_vec()))
    }

    fn aead(&self, purpose: Purpose) -> Option<LessSafeKey> {
        let key = hmac(self.0.expose(), purpose.label());
        UnboundKey::new(&AES_256_GCM, &key)
            .ok()
            .map(LessSafeKey::new)
    }

    /// Tells master keys apart and nothing more: eight hexadecimal digits.
    fn id(&self) -> String {
        let digest = hmac(self.0.expose(), b"sidetone key id v1");
        digest[..4]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    /// Compares in constant time.
    pub fn verify(&self, purpose: Purpose, message: &[u8], signature: &[u8]) -> bool {
        same(&self.sign(purpose, message), signature)
    }
}

/// HMAC-SHA-256 (RFC 2104).
pub fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    // Any length of key is allowed by the RFC, so the error cannot come; hashing is the fallback
    // that would keep the result secret all the same.
    match Hmac::<Sha256>::new_from_slice(key) {
        Ok(mut mac) => {
            mac.update(message);
            mac.finalize().into_bytes().into()
        }
        Err(_) => sha256(&[key, message].concat()),
    }
}

/// SHA-256 (FIPS 180-4).
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// Whether the two are equal, in time that depends on their lengths only.
pub fn same(a: &[u8], b: &[u8]) -> bool {
    a.ct_eq(b).into()
}

/// Bytes from the operating system's source of randomness.
pub fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes)
}

/// `N` random bytes as unpadded URL-safe base64: a token for a URL.
pub fn random_token<const N: usize>() -> io::Result<String> {
    Ok(base64_simd::URL_SAFE_NO_PAD.encode_to_string(random_bytes::<N>()?))
}

fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at a surprise")]

    use super::*;

    #[test]
    fn nothing_prints_a_secret() {
        assert_eq!(format!("{:?}", Secret::new("open sesame")), "•••");
        assert_eq!(
            format!("{:?}", Private("+15550100".into())),
            "‹9 characters›"
        );
    }

    #[test]
    fn the_master_key_is_made_once_and_kept_private() {
        use std::os::unix::fs::PermissionsExt;
        let dir = crate::app::testing::TempDir::new().unwrap();
        let path = dir.path().join("master.key");
        let made = MasterKey::load_or_create(&path).unwrap();
        let read = MasterKey::load_or_create(&path).unwrap();
        assert_eq!(
            made.sign(Purpose::AudioToken, b"x"),
            read.sign(Purpose::AudioToken, b"x")
        );
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
    }

    #[test]
    fn purposes_do_not_share_keys() {
        let key = MasterKey(Secret::new([7; 32]));
        let signature = key.sign(Purpose::AudioToken, b"x");
        assert!(key.verify(Purpose::AudioToken, b"x", &signature));
        assert!(!key.verify(Purpose::DownloadUrl, b"x", &signature));
        assert!(!key.verify(Purpose::AudioToken, b"y", &signature));
    }

    #[test]
    fn a_sealed_secret_opens_where_it_was_made_for() {
        let key = MasterKey(Secret::new([7; 32]));
        let sealed = key
            .seal(Purpose::WebhookSecret, "a", b"open sesame")
            .unwrap();
        let again = key
            .seal(Purpose::WebhookSecret, "a", b"open sesame")
            .unwrap();
        assert_ne!(sealed, again);
        assert!(!sealed.contains("sesame"));
        let open = |key: &MasterKey, purpose, row, text: &str| {
            key.open(purpose, row, text)
                .map(|plain| plain.expose().clone())
        };
        let purpose = Purpose::WebhookSecret;
        assert_eq!(open(&key, purpose, "a", &sealed).unwrap(), b"open sesame");
        assert_eq!(open(&key, purpose, "b", &sealed), None);
        assert_eq!(open(&key, Purpose::AudioToken, "a", &sealed), None);
        let other = MasterKey(Secret::new([8; 32]));
        assert_eq!(open(&other, purpose, "a", &sealed), None);
        for bad in ["", ".", "x.y", &sealed[1..], &sealed[..sealed.len() - 1]] {
            assert_eq!(open(&key, purpose, "a", bad), None, "{bad}");
        }
    }

    #[test]
    fn hmac_matches_rfc_4231_case_2() {
        let mac = hmac(b"Jefe", b"what do ya want for nothing?");
        assert_eq!(mac[..4], [0x5b, 0xdc, 0xc1, 0x46]);
    }
}
