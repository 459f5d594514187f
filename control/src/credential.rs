//! The form of a key: `st_live_<8 base62 id>_<43 base62 secret><6 base62 CRC32>`. The checksum
//! covers all that stands before it, so a typo is refused before the database is asked.

use std::io;

use crate::secret::{Secret, random_bytes, sha256};

const PREFIX: &str = "st_live_";
const ID: usize = 8;
const SECRET: usize = 43;
const CRC: usize = 6;
const LENGTH: usize = PREFIX.len() + ID + 1 + SECRET + CRC;
/// A key that the operator chose has at least this many characters.
const OPERATOR_MIN: usize = 16;
const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// A string that may be a key.
#[derive(Debug)]
pub struct Presented {
    text: Secret<String>,
    public_id: String,
    prefix: String,
}

impl Presented {
    /// `None` when it cannot be a key that was made here.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() != LENGTH || !text.is_ascii() || !text.starts_with(PREFIX) {
            return None;
        }
        let (body, crc) = text.split_at(LENGTH - CRC);
        let parts = &body.as_bytes()[PREFIX.len()..];
        let well_formed = parts[ID] == b'_'
            && parts
                .iter()
                .enumerate()
                .all(|(index, byte)| index == ID || byte.is_ascii_alphanumeric());
        (well_formed && checksum(body) == crc).then(|| Self::made_here(text.to_owned()))
    }

    /// A key that the operator chose: of the form above, or at least [`OPERATOR_MIN`] visible ASCII
    /// characters.
    pub fn chosen(text: &str) -> Option<Self> {
        if let Some(presented) = Self::parse(text) {
            return Some(presented);
        }
        if text.len() < OPERATOR_MIN || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return None;
        }
        // It has no part that may be public, so one is made of its hash.
        let hash = sha256(text.as_bytes());
        let public_id = format!(
            "chosen_{}",
            hash[..8]
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>()
        );
        Some(Self {
            text: Secret::new(text.to_owned()),
            public_id,
            prefix: text[..4].to_owned(),
        })
    }

    fn made_here(text: String) -> Self {
        let public_id = text[PREFIX.len()..PREFIX.len() + ID].to_owned();
        let prefix = text[..PREFIX.len() + ID].to_owned();
        Self {
            text: Secret::new(text),
            public_id,
            prefix,
        }
    }

    /// What finds the row.
    pub fn public_id(&self) -> &str {
        &self.public_id
    }

    /// The part that may be shown: `st_live_` and the id.
    pub fn prefix(&self) -> String {
        self.prefix.clone()
    }

    /// SHA-256 of the whole.
    pub fn hash(&self) -> [u8; 32] {
        sha256(self.text.expose().as_bytes())
    }
}

/// A new key.
#[derive(Debug)]
pub struct Minted(Presented);

impl std::ops::Deref for Minted {
    type Target = Presented;

    fn deref(&self) -> &Presented {
        &self.0
    }
}

impl Minted {
    pub fn new() -> io::Result<Self> {
        let body = format!("{PREFIX}{}_{}", base62::<ID>()?, base62::<SECRET>()?);
        Ok(Self(Presented::made_here(format!(
            "{body}{}",
            checksum(&body)
        ))))
    }

    /// The string, to be shown once.
    pub fn into_key(self) -> Secret<String> {
        self.0.text
    }
}

/// CRC-32 (IEEE 802.3) of the text as six base62 digits.
fn checksum(text: &str) -> String {
    let mut rest = crc32fast::hash(text.as_bytes());
    let mut digits = [b'0'; CRC];
    for digit in digits.iter_mut().rev() {
        *digit = BASE62[(rest % 62) as usize];
        rest /= 62;
    }
    digits.iter().map(|digit| char::from(*digit)).collect()
}

/// `N` even base62 digits.
fn base62<const N: usize>() -> io::Result<String> {
    let mut text = String::with_capacity(N);
    while text.len() < N {
        // Bytes from 248 on would make the first eight digits likelier.
        for byte in random_bytes::<64>()?
            .into_iter()
            .filter(|byte| *byte < 248)
            .take(N - text.len())
        {
            text.push(char::from(BASE62[usize::from(byte) % 62]));
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at a surprise")]

    use super::*;

    #[test]
    fn a_new_key_has_the_form() {
        let minted = Minted::new().unwrap();
        let (prefix, hash) = (minted.prefix(), minted.hash());
        let key = minted.into_key();
        let presented = Presented::parse(key.expose()).unwrap();
        assert_eq!((presented.prefix(), presented.hash()), (prefix, hash));
        assert_eq!(key.expose().len(), 66);
    }

    #[test]
    fn an_operator_may_choose_a_long_word() {
        let chosen = Presented::chosen("correct-horse-battery").unwrap();
        assert!(chosen.public_id().starts_with("chosen_") && chosen.prefix() == "corr");
        let minted = Minted::new().unwrap();
        let public_id = minted.public_id().to_owned();
        assert_eq!(
            Presented::chosen(minted.into_key().expose())
                .unwrap()
                .public_id(),
            public_id
        );
        assert!(
            Presented::chosen("short").is_none()
                && Presented::chosen("with spaces in the middle").is_none()
        );
    }

    #[test]
    fn every_typo_is_found() {
        let key = Minted::new().unwrap().into_key().expose().clone();
        for index in 0..key.len() {
            let mut bytes = key.clone().into_bytes();
            bytes[index] = if bytes[index] == b'x' { b'y' } else { b'x' };
            assert!(
                Presented::parse(&String::from_utf8(bytes).unwrap()).is_none(),
                "at {index}"
            );
        }
        for wrong in [
            "",
            "st_live_",
            &key[1..],
            &format!("{key}0"),
            &"é".repeat(33),
        ] {
            assert!(Presented::parse(wrong).is_none());
        }
    }
}
