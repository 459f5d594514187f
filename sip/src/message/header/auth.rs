//! The grammar of challenges and credentials (RFC 3261 20.7, 20.44): a scheme and its parameters.

use std::fmt;

use crate::message::scan;

/// Parameters of one value; RFC 7616 knows about a dozen.
const MOST_PARAMS: usize = 32;

/// `Digest realm="…", nonce="…"`: quotes taken off when read; [`AuthValue::push`] says which to put.
#[derive(Clone, PartialEq, Eq)]
pub struct AuthValue {
    pub scheme: String,
    params: Vec<(String, String, bool)>,
}

impl AuthValue {
    pub fn new(scheme: &str) -> Self {
        Self {
            scheme: scheme.to_owned(),
            params: Vec::new(),
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = scan::trim(text).split_once(scan::is_space)?;
        if !scan::is_token(scheme) {
            return None;
        }
        let mut value = Self::new(scheme);
        for part in scan::split(rest, b',').filter(|part| !part.is_empty()) {
            let (name, text) = part.split_once('=')?;
            let (name, text) = (scan::trim(name), scan::trim(text));
            if !scan::is_token(name) || value.params.len() >= MOST_PARAMS {
                return None;
            }
            let quoted = text.starts_with('"');
            if quoted && scan::quoted_end(text) != Some(text.len()) {
                return None;
            }
            value
                .params
                .push((name.to_owned(), scan::unquote(text), quoted));
        }
        Some(value)
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.params
            .iter()
            .find(|(own, ..)| own.eq_ignore_ascii_case(name))
            .map(|(_, value, _)| value.as_str())
    }

    /// The parameters in their order: name, value, and whether it stood in quotes.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str, bool)> {
        self.params
            .iter()
            .map(|(name, value, quoted)| (name.as_str(), value.as_str(), *quoted))
    }

    /// Adds a parameter, `quoted` or as a bare token.
    pub fn push(&mut self, name: &str, value: impl Into<String>, quoted: bool) {
        self.params.push((name.to_owned(), value.into(), quoted));
    }
}

impl fmt::Display for AuthValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.scheme)?;
        for (index, (name, value, quoted)) in self.params.iter().enumerate() {
            let comma = if index == 0 { " " } else { ", " };
            match quoted {
                true => write!(f, "{comma}{name}={}", scan::quote(value))?,
                false => write!(f, "{comma}{name}={value}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for AuthValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} …", self.scheme)
    }
}
