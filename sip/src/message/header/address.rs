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

    /// One value, without the commas of a list. The address and the parameters count: a display name may be
    /// anything that leaves no doubt where it ends, whether the grammar wants quotes around it or not.
    pub fn parse(text: &str) -> Option<Self> {
        let text = scan::trim(text);
        if !text.starts_with('"') {
            // `Sales <Berlin> <sip:…>`: the first brackets that hold an address.
            let mut opens = text.match_indices('<').map(|(open, _)| open);
            let open = opens.find(|open| {
                let inside = &text[open + 1..];
                // Up to the next bracket of either kind: whoever sends many of them has each looked at once.
                inside.find(['<', '>']).is_some_and(|end| {
                    inside[end..].starts_with('>') && Uri::parse(&inside[..end]).is_ok()
                })
            });
            return match open {
                Some(open) => Self::in_brackets(words(&text[..open]), &text[open + 1..]),
                None => Self::without_brackets(text),
            };
        }
        if let Some(end) = scan::quoted_end(text) {
            let (quoted, rest) = text.split_at(end);
            let display = scan::unquote(quoted);
            let named = match rest.split_once('<') {
                Some((more, rest)) if scan::trim(more).is_empty() => {
                    Self::in_brackets(Some(display), rest)
                }
                Some((more, rest)) => Self::in_brackets(words(&format!("{display} {more}")), rest),
                None => Self::without_brackets(scan::trim(rest)).map(|bare| Self {
                    display: Some(display),
                    ..bare
                }),
            };
            if named.is_some() {
                return named;
            }
        }
        // `"Sami\" <sip:…>`: the backslash took the closing quote. Without another quote there is none to
        // take for it (RFC 4475 3.1.2.6).
        let (display, rest) = text.split_once('<')?;
        let display = scan::trim(display);
        let display = display.get(1..).filter(|inner| inner.contains("\\\""))?;
        let display = display.strip_suffix('"').unwrap_or(display);
        Self::in_brackets(Some(display.to_owned()), rest)
    }

    /// Parameters are the header's then, and a `?` or a comma cannot be told apart (RFC 3261 20.10).
    fn without_brackets(text: &str) -> Option<Self> {
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

/// The words of a display name, a space apart.
fn words(text: &str) -> Option<String> {
    let words = text.split(scan::is_space).filter(|word| !word.is_empty());
    let words: Vec<&str> = words.collect();
    (!words.is_empty()).then(|| words.join(" "))
}

impl fmt::Display for NameAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(display) = &self.display {
            write!(f, "{} ", scan::quote(display))?;
        }
        write!(f, "<{}>{}", self.uri, self.params)
    }
}
