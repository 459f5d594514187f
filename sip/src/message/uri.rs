//! SIP, SIPS and other URIs (RFC 3261 19.1).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::fmt;

use super::scan::{self, Params};

/// A URI. What is not SIP is kept as text: it can be compared and printed, not called.
#[derive(Clone, PartialEq, Eq)]
pub enum Uri {
    Sip(SipUri),
    /// `tel:` and whatever else, with its scheme.
    Other(String),
}

/// `sip:` or `sips:`.
#[derive(Clone, PartialEq, Eq)]
pub struct SipUri {
    /// `sips:`
    pub secure: bool,
    /// As written, escapes and all; see [`SipUri::user`].
    pub user_escaped: Option<String>,
    pub password: Option<String>,
    pub host: Host,
    pub port: Option<u16>,
    pub params: Params,
    /// What follows `?`, as written.
    pub headers: Option<String>,
}

/// A host of a URI or a Via.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    Name(String),
    Ip(IpAddr),
}

/// Why a text is no URI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadUri;

impl Uri {
    pub fn parse(text: &str) -> Result<Self, BadUri> {
        let (scheme, rest) = text.split_once(':').ok_or(BadUri)?;
        let mut letters = scheme.bytes();
        if !letters
            .next()
            .is_some_and(|first| first.is_ascii_alphabetic())
            || !letters.all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
        {
            return Err(BadUri);
        }
        if scheme.eq_ignore_ascii_case("sip") {
            return SipUri::parse(rest, false).map(Self::Sip);
        }
        if scheme.eq_ignore_ascii_case("sips") {
            return SipUri::parse(rest, true).map(Self::Sip);
        }
        let plain = !rest.is_empty()
            && rest
                .chars()
                .all(|c| !c.is_whitespace() && !c.is_control() && !"<>\"".contains(c));
        plain.then(|| Self::Other(text.to_owned())).ok_or(BadUri)
    }

    /// The scheme in lower case.
    pub fn scheme(&self) -> String {
        match self {
            Self::Sip(uri) if uri.secure => "sips".to_owned(),
            Self::Sip(_) => "sip".to_owned(),
            Self::Other(text) => text
                .split(':')
                .next()
                .unwrap_or_default()
                .to_ascii_lowercase(),
        }
    }

    pub fn sip(&self) -> Option<&SipUri> {
        match self {
            Self::Sip(uri) => Some(uri),
            Self::Other(_) => None,
        }
    }

    /// Who is called: the user part of a SIP URI, the number of a `tel:` one, escapes decoded. A number has
    /// lost its parameters, such as `;npdi` and `;phone-context` (RFC 3261 19.1.6), wherever it stood.
    pub fn user(&self) -> Option<String> {
        match self {
            Self::Sip(uri) => {
                let user = uri.user_escaped.as_deref()?;
                let number = user.split(';').next().filter(|number| is_number(number));
                Some(scan::percent_decode(number.unwrap_or(user)))
            }
            Self::Other(text) => {
                let (scheme, rest) = text.split_once(':')?;
                scheme
                    .eq_ignore_ascii_case("tel")
                    .then(|| scan::percent_decode(rest.split(';').next().unwrap_or_default()))
            }
        }
    }
}

/// Whether it is a number that can be dialled, with or without what makes it easier to read (RFC 3966 3).
fn is_number(text: &str) -> bool {
    let text = scan::percent_decode(text);
    let digits = text.strip_prefix('+').unwrap_or(&text);
    digits.bytes().any(|byte| byte.is_ascii_digit())
        && digits
            .bytes()
            .all(|byte| byte.is_ascii_digit() || b"*#-.()".contains(&byte))
}

impl SipUri {
    /// `sip:user@host:port`; the user is escaped where it must be.
    pub fn new(user: Option<&str>, host: Host, port: Option<u16>) -> Self {
        Self {
            secure: false,
            user_escaped: user.map(escape_user),
            password: None,
            host,
            port,
            params: Params::default(),
            headers: None,
        }
    }

    fn parse(rest: &str, secure: bool) -> Result<Self, BadUri> {
        // `@` cannot stand unescaped anywhere else, while `?` and `;` may stand in a user.
        let (user_info, host_part) = match rest.split_once('@') {
            Some((user, host)) if !host.contains('@') => (Some(user), host),
            Some(_) => return Err(BadUri),
            None => (None, rest),
        };
        let (user, password) =
            match user_info.map(|info| info.split_once(':').unwrap_or((info, ""))) {
                Some((user, password)) => {
                    let coloned = user_info.is_some_and(|info| info.contains(':'));
                    if user.is_empty()
                        || !user.bytes().all(is_user_byte)
                        || !password.bytes().all(is_user_byte)
                        || !scan::escapes_are_whole(user)
                        || !scan::escapes_are_whole(password)
                    {
                        return Err(BadUri);
                    }
                    (Some(user.to_owned()), coloned.then(|| password.to_owned()))
                }
                None => (None, None),
            };
        let (address, headers) = match host_part.split_once('?') {
            Some((address, headers)) => (address, Some(headers)),
            None => (host_part, None),
        };
        if headers.is_some_and(|headers| {
            !headers
                .bytes()
                .all(|byte| byte.is_ascii_graphic() && !b"<>\"".contains(&byte))
        }) {
            return Err(BadUri);
        }
        let mut parts = address.split(';');
        let (host, port) = host_port(parts.next().unwrap_or_default()).ok_or(BadUri)?;
        let mut params = Params::default();
        for part in parts {
            let (name, value) = match part.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (part, None),
            };
            let fits = |text: &str| {
                !text.is_empty() && text.bytes().all(is_param_byte) && scan::escapes_are_whole(text)
            };
            if !fits(name) || !value.is_none_or(fits) || params.is_full() {
                return Err(BadUri);
            }
            params.push(name, value);
        }
        Ok(Self {
            secure,
            user_escaped: user,
            password,
            host,
            port,
            params,
            headers: headers.map(str::to_owned),
        })
    }

    /// The user with its escapes decoded, whole; [`Uri::user`] has a number without its parameters.
    pub fn user(&self) -> Option<String> {
        self.user_escaped.as_deref().map(scan::percent_decode)
    }

    /// Whether this names a loose router (RFC 3261 16.12.1.1).
    pub fn is_loose_router(&self) -> bool {
        self.params.has("lr")
    }

    /// What the `transport` parameter says, in lower case.
    pub fn transport(&self) -> Option<String> {
        self.params
            .get("transport")
            .map(|transport| transport.to_ascii_lowercase())
    }
}

fn is_user_byte(byte: u8) -> bool {
    // `#` and the brackets are not of the grammar, but dialled feature codes carry the first.
    byte.is_ascii_alphanumeric() || b"-_.!~*'()%&=+$,;?/#".contains(&byte)
}

fn is_param_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.!~*'()%[]/:&+$".contains(&byte)
}

/// Percent-encodes what may not stand in a user part.
fn escape_user(user: &str) -> String {
    let mut escaped = String::with_capacity(user.len());
    for byte in user.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.!~*'()&=+$,;?/".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

/// `host[:port]`.
pub(crate) fn host_port(text: &str) -> Option<(Host, Option<u16>)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (inside, after) = rest.split_once(']')?;
            let ip = Host::Ip(IpAddr::V6(inside.parse::<Ipv6Addr>().ok()?));
            (
                ip,
                after.strip_prefix(':').or(after.is_empty().then_some(""))?,
            )
        }
        None => {
            let (host, port) = text.split_once(':').unwrap_or((text, ""));
            if text.ends_with(':') {
                return None;
            }
            (Host::parse(host)?, port)
        }
    };
    if port.is_empty() {
        return (!text.ends_with(':')).then_some((host, None));
    }
    let port = scan::number(port).and_then(|port| u16::try_from(port).ok())?;
    Some((host, Some(port)))
}

impl Host {
    /// A name, an IPv4 address or an IPv6 address with or without brackets.
    pub fn parse(text: &str) -> Option<Self> {
        let bare = text
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
            .unwrap_or(text);
        if let Ok(ip) = bare.parse::<IpAddr>() {
            return Some(Self::Ip(ip));
        }
        // Underscores are in no host name's grammar but in many a private zone.
        let named = !text.is_empty()
            && text.len() <= 255
            && text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
        named.then(|| Self::Name(text.to_owned()))
    }

    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::Ip(ip) => Some(*ip),
            Self::Name(_) => None,
        }
    }
}

impl From<Ipv4Addr> for Host {
    fn from(ip: Ipv4Addr) -> Self {
        Self::Ip(IpAddr::V4(ip))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]"),
            Self::Ip(ip) => write!(f, "{ip}"),
        }
    }
}

impl fmt::Display for SipUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.secure { "sips:" } else { "sip:" })?;
        if let Some(user) = &self.user_escaped {
            f.write_str(user)?;
            if let Some(password) = &self.password {
                write!(f, ":{password}")?;
            }
            f.write_str("@")?;
        }
        write!(f, "{}", self.host)?;
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        write!(f, "{}", self.params)?;
        match &self.headers {
            Some(headers) => write!(f, "?{headers}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sip(uri) => uri.fmt(f),
            Self::Other(text) => f.write_str(text),
        }
    }
}

/// The user is a phone number as a rule: it is not printed.
impl fmt::Debug for SipUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = if self.user_escaped.is_some() {
            "…@"
        } else {
            ""
        };
        write!(f, "sip:{user}{}", self.host)
    }
}

impl fmt::Debug for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sip(uri) => uri.fmt(f),
            Self::Other(_) => write!(f, "{}:…", self.scheme()),
        }
    }
}
