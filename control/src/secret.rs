//! Things that must not be seen: secrets, which have no `Serialize` and print dots; private data,
//! which prints dots in logs; and the master key from which every signing key is derived.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

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
    /// Requests of one node to another.
    Node,
    /// The seed of the key that signs call tokens.
    CallToken,
    /// What keyless visitors are told apart by.
    Visitor,
    /// Passwords of SIP trunks, as they lie in the database.
    TrunkPassword,
}

impl Purpose {
    const fn label(self) -> &'static [u8] {
        match self {
            Self::WebSocketToken => b"sidetone ws token v1",
            Self::AudioToken => b"sidetone audio token v1",
            Self::DownloadUrl => b"sidetone download url v1",
            Self::WebhookSecret => b"sidetone webhook secret v1",
            Self::VoicePreview => b"sidetone voice preview v1",
            Self::Node => b"sidetone node request v1",
            Self::CallToken => b"sidetone call token v1",
            Self::Visitor => b"sidetone visitor v1",
            Self::TrunkPassword => b"sidetone trunk password v1",
        }
    }
}

/// The root secret of an installation: 32 bytes, and those that it took the place of. The first key
/// signs and seals; what the others made is still accepted until they are retired.
#[derive(Clone, Debug)]
pub struct MasterKey {
    keys: Arc<RwLock<Vec<RootKey>>>,
    /// Where they are kept, if this server keeps them.
    file: Option<PathBuf>,
}

/// One key of the ring.
type RootKey = Secret<[u8; 32]>;

impl MasterKey {
    /// From 32 bytes in base64 (the setting). More keys may follow, with commas, spaces or lines
    /// between, newest first: those before this one.
    pub fn from_base64(text: &str) -> Option<Self> {
        Self::of(parse_keys(text)?, None)
    }

    fn of(keys: Vec<RootKey>, file: Option<PathBuf>) -> Option<Self> {
        (!keys.is_empty()).then(|| Self {
            keys: Arc::new(RwLock::new(keys)),
            file,
        })
    }

    /// From the file; makes it (mode 600) when there is none.
    pub fn load_or_create(path: &Path) -> io::Result<Self> {
        let keys = match read_keys(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let key = Secret::new(random_bytes::<32>()?);
                let text = written(std::slice::from_ref(&key));
                if let Err(error) = write_private(path, text.as_bytes()) {
                    // On a full disk there may be a file without a key, which the next start could not read.
                    if error.kind() != io::ErrorKind::AlreadyExists {
                        drop(std::fs::remove_file(path));
                    }
                    return Err(error);
                }
                vec![key]
            }
            read => read?,
        };
        Self::of(keys, Some(path.to_owned())).ok_or_else(|| no_keys(path))
    }

    /// Reads the file again: another process may have added a key. Whether anything changed.
    pub fn reload(&self) -> io::Result<bool> {
        let Some(file) = &self.file else {
            return Ok(false);
        };
        let read = read_keys(file)?;
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        let changed = read.len() != keys.len()
            || read
                .iter()
                .zip(keys.iter())
                .any(|(a, b)| !same(a.expose(), b.expose()));
        *keys = read;
        Ok(changed)
    }

    /// Puts a new key before those of the file. Servers that run pick it up within seconds, or at once
    /// when they meet a secret that it sealed.
    pub fn rotate_file(path: &Path) -> io::Result<()> {
        let mut keys = read_keys(path)?;
        keys.insert(0, Secret::new(random_bytes::<32>()?));
        replace_private(path, written(&keys).as_bytes())
    }

    /// Keeps the newest key of the file only: what older ones signed or sealed is worth nothing from now
    /// on.
    pub fn retire_file(path: &Path) -> io::Result<()> {
        let mut keys = read_keys(path)?;
        keys.truncate(1);
        replace_private(path, written(&keys).as_bytes())
    }

    /// Each key by itself, newest first: for checking what one of them may have signed.
    pub fn each(&self) -> Vec<Self> {
        let keys = self.ring();
        let alone = |key: RootKey| Self {
            keys: Arc::new(RwLock::new(vec![key])),
            file: None,
        };
        keys.into_iter().map(alone).collect()
    }

    fn ring(&self) -> Vec<RootKey> {
        // Whole after any panic: it is only ever replaced.
        self.keys
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn current(&self) -> [u8; 32] {
        // Never empty; a key of zeros would open nothing.
        self.ring().first().map_or([0; 32], |key| *key.expose())
    }

    /// Signs with the key of this purpose: HMAC-SHA-256 (RFC 2104).
    pub fn sign(&self, purpose: Purpose, message: &[u8]) -> [u8; 32] {
        hmac(&hmac(&self.current(), purpose.label()), message)
    }

    /// Encrypts a secret for the database: AES-256-GCM with the key of this purpose and a random nonce.
    /// `row` names the row that it belongs to; elsewhere it does not open. The text tells which master
    /// key made it: `<key id>.<base64 of nonce, ciphertext and tag>`.
    pub fn seal(&self, purpose: Purpose, row: &str, plain: &[u8]) -> io::Result<String> {
        let nonce = random_bytes::<NONCE_LEN>()?;
        let mut sealed = plain.to_vec();
        let root = self.current();
        aead(&root, purpose)
            .and_then(|key| {
                let nonce = Nonce::assume_unique_for_key(nonce);
                key.seal_in_place_append_tag(nonce, Aad::from(row), &mut sealed)
                    .ok()
            })
            .ok_or_else(|| io::Error::other("a secret could not be encrypted"))?;
        let text = BASE64.encode_to_string([&nonce[..], &sealed].concat());
        Ok(format!("{}.{text}", key_id(&root)))
    }

    /// Decrypts what [`MasterKey::seal`] made for this purpose and row; `None` for anything else, a
    /// secret of a master key that is not known too.
    pub fn open(&self, purpose: Purpose, row: &str, sealed: &str) -> Option<Secret<Vec<u8>>> {
        let (id, text) = sealed.split_once('.')?;
        let bytes = BASE64.decode_to_vec(text).ok()?;
        let (nonce, rest) = bytes.split_first_chunk::<NONCE_LEN>()?;
        let root = self.key_of(id)?;
        let (key, mut rest) = (aead(&root, purpose)?, rest.to_vec());
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let plain = key.open_in_place(nonce, Aad::from(row), &mut rest).ok()?;
        Some(Secret::new(plain.to_vec()))
    }

    /// The key of this id. One that is not known may have been added to the file a moment ago.
    fn key_of(&self, id: &str) -> Option<[u8; 32]> {
        let find = || {
            let keys = self.ring();
            let key = keys.iter().find(|key| key_id(key.expose()) == id)?;
            Some(*key.expose())
        };
        find().or_else(|| match self.reload() {
            Ok(true) => find(),
            Ok(false) => None,
            Err(error) => {
                tracing::error!(%error, "the file of the master key cannot be read");
                None
            }
        })
    }

    /// Whether the newest key sealed this.
    pub fn is_current(&self, sealed: &str) -> bool {
        let id = key_id(&self.current());
        sealed
            .split_once('.')
            .is_some_and(|(made_by, _)| made_by == id)
    }

    /// Compares in constant time, with each key there is.
    pub fn verify(&self, purpose: Purpose, message: &[u8], signature: &[u8]) -> bool {
        self.each()
            .iter()
            .any(|key| same(&key.sign(purpose, message), signature))
    }
}

fn aead(root: &[u8; 32], purpose: Purpose) -> Option<LessSafeKey> {
    let key = hmac(root, purpose.label());
    UnboundKey::new(&AES_256_GCM, &key)
        .ok()
        .map(LessSafeKey::new)
}

/// Tells master keys apart and nothing more: eight hexadecimal digits.
fn key_id(root: &[u8; 32]) -> String {
    let digest = hmac(root, b"sidetone key id v1");
    digest[..4]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn parse_keys(text: &str) -> Option<Vec<RootKey>> {
    text.split(|c: char| c == ',' || c.is_whitespace())
        .filter(|word| !word.is_empty())
        .map(|word| {
            let bytes = base64_simd::STANDARD.decode_to_vec(word).ok()?;
            Some(Secret::new(bytes.try_into().ok()?))
        })
        .collect()
}

fn read_keys(path: &Path) -> io::Result<Vec<RootKey>> {
    parse_keys(&std::fs::read_to_string(path)?)
        .filter(|keys| !keys.is_empty())
        .ok_or_else(|| no_keys(path))
}

fn no_keys(path: &Path) -> io::Error {
    let why = format!("{} does not hold 32 bytes in base64", path.display());
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn written(keys: &[RootKey]) -> String {
    let lines = keys
        .iter()
        .map(|key| base64_simd::STANDARD.encode_to_string(key.expose()));
    lines.collect::<Vec<String>>().join("\n")
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

/// Writes beside the file and renames, so that it is never half there.
fn replace_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    // Left by one that was interrupted.
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    write_private(&new, bytes)?;
    std::fs::rename(&new, path)
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

    fn key_of_bytes(byte: u8) -> MasterKey {
        MasterKey::of(vec![Secret::new([byte; 32])], None).unwrap()
    }

    #[test]
    fn a_rotated_key_opens_and_verifies_what_the_old_one_made_until_it_is_retired() {
        let dir = crate::testing::TempDir::new().unwrap();
        let path = dir.path().join("master.key");
        let server = MasterKey::load_or_create(&path).unwrap();
        let (purpose, row) = (Purpose::WebhookSecret, "a");
        let old = server.seal(purpose, row, b"open sesame").unwrap();
        let signed = server.sign(Purpose::AudioToken, b"x");

        MasterKey::rotate_file(&path).unwrap();
        let other = MasterKey::load_or_create(&path).unwrap();
        let new = other.seal(purpose, row, b"open sesame").unwrap();
        assert!(other.is_current(&new) && !other.is_current(&old));
        // A server that runs meets the new key and reads the file again.
        for sealed in [&old, &new] {
            let plain = server.open(purpose, row, sealed).unwrap();
            assert_eq!(plain.expose(), b"open sesame");
        }
        assert!(server.is_current(&new));
        assert!(server.verify(Purpose::AudioToken, b"x", &signed));
        assert_ne!(server.sign(Purpose::AudioToken, b"x"), signed);

        MasterKey::retire_file(&path).unwrap();
        assert!(server.reload().unwrap());
        assert!(server.open(purpose, row, &old).is_none());
        assert!(server.open(purpose, row, &new).is_some());
        assert!(!server.verify(Purpose::AudioToken, b"x", &signed));
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn several_keys_may_be_set_newest_first() {
        let text = |byte: u8| base64_simd::STANDARD.encode_to_string([byte; 32]);
        let both = MasterKey::from_base64(&format!("{}, {}", text(8), text(7))).unwrap();
        let old = key_of_bytes(7)
            .seal(Purpose::WebhookSecret, "a", b"x")
            .unwrap();
        assert!(both.open(Purpose::WebhookSecret, "a", &old).is_some());
        assert_eq!(
            both.sign(Purpose::AudioToken, b"x"),
            key_of_bytes(8).sign(Purpose::AudioToken, b"x")
        );
        for wrong in ["", ",", "short", &format!("{},short", text(7))] {
            assert!(MasterKey::from_base64(wrong).is_none(), "{wrong}");
        }
    }

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
        let dir = crate::testing::TempDir::new().unwrap();
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
        let key = key_of_bytes(7);
        let signature = key.sign(Purpose::AudioToken, b"x");
        assert!(key.verify(Purpose::AudioToken, b"x", &signature));
        assert!(!key.verify(Purpose::DownloadUrl, b"x", &signature));
        assert!(!key.verify(Purpose::AudioToken, b"y", &signature));
    }

    #[test]
    fn a_sealed_secret_opens_where_it_was_made_for() {
        let key = key_of_bytes(7);
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
        let other = key_of_bytes(8);
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
