//! The values of From, To, Contact, Route, Record-Route, Refer-To and their like (RFC 3261 20.10).

use std::fmt;

use crate::message::scan::{self, Params};
use crate::message::uri::Uri;

/// `"Display" <uri>;params`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameAddr {
    /// Without its quotes.
    pub display: Option<String>,
    pub uri: Uri,
    /// Those of the header, not of the URI.
    pub params: Params,
}

impl NameAddr {
    pub fn new(uri: Uri) -> Self {
        Self {
            display: None,
            uri,
            params: Params::default(),
        }
    }

    /// The same with a tag.
    #[must_use]
    pub fn with_tag(mut self, tag: &str) -> Self {
        self.params.set("tag", Some(tag));
        self
    }

    pub fn tag(&self) -> Option<&str> {
        self.params
            .raw("tag")
            .flatten()
            .filter(|tag| !tag.is_empty())
    }

    /// One value, without the commas of a list.
    pub fn parse(text: &str) -> Option<Self> {
        let text = scan::trim(text);
        if text.starts_with('"') {
            let end = scan::quoted_end(text)?;
            let display = scan::unquote(&text[..end]);
            let rest = text[end..].trim_start_matches(scan::is_space);
            return Self::in_brackets(Some(display), rest.strip_prefix('<')?);
        }
        if let Some(open) = text.find('<') {
            let display = scan::trim(&text[..open]);
            let words = display
                .split(scan::is_space)
                .filter(|word| !word.is_empty());
            if !words.clone().all(scan::is_token) {
                return None;
            }
            let display = (!display.is_empty()).then(|| words.collect::<Vec<_>>().join(" "));
            return Self::in_brackets(display, &text[open + 1..]);
        }
        // Without brackets parameters are the header's, and a `?` or a comma cannot be told apart
        // (RFC 3261 20.10).
        let (uri, params) = text.split_once(';').unwrap_or((text, ""));
        let uri = scan::trim(uri);
        if uri.contains(['?', ',']) || text.ends_with(';') {
            return None;
        }
        Some(Self {
            display: None,
            uri: Uri::parse(uri).ok()?,
            params: Params::parse(params)?,
        })
    }

    fn in_brackets(display: Option<String>, rest: &str) -> Option<Self> {
        let (uri, after) = rest.split_once('>')?;
        let after = scan::trim(after);
        let params = match after.strip_prefix(';') {
            Some(params) if !scan::trim(params).is_empty() => Params::parse(params)?,
            None if after.is_empty() => Params::default(),
            _ => return None,
        };
        Some(Self {
            display,
            uri: Uri::parse(uri).ok()?,
            params,
        })
    }
}

impl fmt::Display for NameAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(display) = &self.display {
            write!(f, "{} ", scan::quote(display))?;
        }
        write!(f, "<{}>{}", self.uri, self.params)
    }
}
