//! Header fields: their names, the list a message carries, and a file for each kind of value.

mod address;
mod auth;
mod cseq;
mod timer;
mod via;

use std::fmt;

pub use self::address::NameAddr;
pub use self::auth::AuthValue;
pub use self::cseq::{CSeq, RAck};
pub use self::timer::{Refresher, SessionExpires};
pub use self::via::{Transport, Via};

use super::scan;

macro_rules! names {
    ($($variant:ident $text:literal $compact:literal)*) => {
        /// The name of a header field. Two spellings of one name are equal.
        #[derive(Clone, Debug)]
        pub enum Name {
            $($variant,)*
            /// Any other, as it was written.
            Other(Box<str>),
        }

        impl Name {
            /// `text` in any case, long or compact (RFC 3261 7.3.3).
            pub fn parse(text: &str) -> Self {
                if text.len() == 1 {
                    $(if text.eq_ignore_ascii_case($compact) { return Self::$variant; })*
                }
                $(if text.len() == $text.len() && text.eq_ignore_ascii_case($text) { return Self::$variant; })*
                Self::Other(text.into())
            }

            /// The long form.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $text,)*
                    Self::Other(text) => text,
                }
            }
        }
    };
}

// The frequent ones first: a look-up walks down.
names! {
    Via "Via" "v"
    From "From" "f"
    To "To" "t"
    CallId "Call-ID" "i"
    CSeq "CSeq" ""
    Contact "Contact" "m"
    MaxForwards "Max-Forwards" ""
    ContentLength "Content-Length" "l"
    ContentType "Content-Type" "c"
    Route "Route" ""
    RecordRoute "Record-Route" ""
    Allow "Allow" ""
    Supported "Supported" "k"
    Require "Require" ""
    UserAgent "User-Agent" ""
    Accept "Accept" ""
    AcceptEncoding "Accept-Encoding" ""
    AcceptLanguage "Accept-Language" ""
    AllowEvents "Allow-Events" "u"
    Authorization "Authorization" ""
    ProxyAuthorization "Proxy-Authorization" ""
    WwwAuthenticate "WWW-Authenticate" ""
    ProxyAuthenticate "Proxy-Authenticate" ""
    AuthenticationInfo "Authentication-Info" ""
    ContentDisposition "Content-Disposition" ""
    ContentEncoding "Content-Encoding" "e"
    Date "Date" ""
    Diversion "Diversion" ""
    Event "Event" "o"
    Expires "Expires" ""
    HistoryInfo "History-Info" ""
    MinExpires "Min-Expires" ""
    MinSe "Min-SE" ""
    SessionExpires "Session-Expires" "x"
    PAssertedIdentity "P-Asserted-Identity" ""
    Privacy "Privacy" ""
    ProxyRequire "Proxy-Require" ""
    RAck "RAck" ""
    Reason "Reason" ""
    ReferTo "Refer-To" "r"
    ReferredBy "Referred-By" "b"
    RetryAfter "Retry-After" ""
    RSeq "RSeq" ""
    Server "Server" ""
    Subject "Subject" "s"
    SubscriptionState "Subscription-State" ""
    Timestamp "Timestamp" ""
    Unsupported "Unsupported" ""
    Warning "Warning" ""
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Other(one), Self::Other(two)) => one.eq_ignore_ascii_case(two),
            (Self::Other(_), _) | (_, Self::Other(_)) => false,
            (one, two) => std::mem::discriminant(one) == std::mem::discriminant(two),
        }
    }
}

impl Eq for Name {}

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        Self::parse(text)
    }
}

/// The header fields of a message, in their order. Content-Length is not among them: it is counted
/// from the body when the message is written.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers(Vec<(Name, String)>);

impl Headers {
    pub fn with_capacity(capacity: usize) -> Self {
        Self(Vec::with_capacity(capacity))
    }

    /// The first value of that name.
    pub fn get(&self, name: &Name) -> Option<&str> {
        self.0
            .iter()
            .find(|(own, _)| own == name)
            .map(|(_, value)| value.as_str())
    }

    /// Every field of that name, whole.
    pub fn all<'a>(&'a self, name: &'a Name) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(own, _)| own == name)
            .map(|(_, value)| value.as_str())
    }

    /// Every element of a list that may stand in several fields (RFC 3261 7.3.1). Empty elements are
    /// left out.
    pub fn list<'a>(&'a self, name: &'a Name) -> impl Iterator<Item = &'a str> {
        self.all(name)
            .flat_map(|value| scan::split(value, b','))
            .filter(|element| !element.is_empty())
    }

    /// Whether a list names `token`, in any case.
    pub fn lists(&self, name: &Name, token: &str) -> bool {
        self.list(name)
            .any(|element| element.eq_ignore_ascii_case(token))
    }

    pub fn has(&self, name: &Name) -> bool {
        self.get(name).is_some()
    }

    /// Adds a field at the end. Line ends in `value` become spaces, so that no text which comes from
    /// elsewhere can add fields of its own.
    pub fn push(&mut self, name: Name, value: impl Into<String>) {
        self.0.push((name, one_line(value.into())));
    }

    /// Adds a field before all others.
    pub fn push_front(&mut self, name: Name, value: impl Into<String>) {
        self.0.insert(0, (name, one_line(value.into())));
    }

    /// Replaces the first field of that name, drops its others, or adds it.
    pub fn set(&mut self, name: Name, value: impl Into<String>) {
        let value = one_line(value.into());
        match self.0.iter().position(|(own, _)| *own == name) {
            Some(at) => {
                self.0[at].1 = value;
                let mut index = 0;
                self.0.retain(|(own, _)| {
                    index += 1;
                    index - 1 <= at || *own != name
                });
            }
            None => self.0.push((name, value)),
        }
    }

    /// Replaces the first field of that name and leaves its others.
    pub fn set_first(&mut self, name: &Name, value: impl Into<String>) {
        if let Some(first) = self.0.iter_mut().find(|(own, _)| own == name) {
            first.1 = one_line(value.into());
        }
    }

    pub fn remove(&mut self, name: &Name) {
        self.0.retain(|(own, _)| own != name);
    }

    /// Puts another value in the place of each for which there is one.
    pub(crate) fn rewrite(&mut self, other: impl Fn(&Name, &str) -> Option<String>) {
        for (name, value) in &mut self.0 {
            if let Some(other) = other(name, value) {
                *value = other;
            }
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Name, &str)> {
        self.0.iter().map(|(name, value)| (name, value.as_str()))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Copies all fields of that name from another message.
    pub fn copy(&mut self, name: &Name, from: &Self) {
        for value in from.all(name) {
            self.0.push((name.clone(), value.to_owned()));
        }
    }
}

/// Half a line end counts for a space.
pub(super) fn one_line(value: String) -> String {
    if memchr::memchr2(b'\r', b'\n', value.as_bytes()).is_none() {
        return value;
    }
    value.replace(['\r', '\n'], " ")
}

/// Values hold phone numbers and secrets: only the names are printed.
impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|(name, _)| name.as_str()))
            .finish()
    }
}
