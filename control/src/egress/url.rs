//! What the text of a user's address must be. What a name resolves to is judged again at each
//! connection. Pure.

use std::{fmt, net::IpAddr};

use reqwest::Url;

use super::address::{is_global, unwrapped};

/// Hosts that are let through although they are not public: for development and tests
/// (`egress.allow`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allow {
    /// In lower case.
    names: Vec<String>,
    ranges: Vec<(IpAddr, u8)>,
}

impl Allow {
    /// Reads the setting: host names, addresses and CIDR ranges. The error is the entry that is none.
    pub fn parse<S: AsRef<str>>(entries: &[S]) -> Result<Self, String> {
        let mut allow = Self::default();
        for entry in entries.iter().map(|entry| entry.as_ref().trim()) {
            let (host, length) = entry
                .split_once('/')
                .map_or((entry, None), |(host, length)| (host, Some(length)));
            match (host.parse::<IpAddr>(), length) {
                (Ok(address), length) => {
                    let whole = if address.is_ipv4() { 32 } else { 128 };
                    let length = length.map_or(Some(whole), |length| length.parse().ok());
                    let length = length
                        .filter(|length| *length <= whole)
                        .ok_or_else(|| entry.to_owned())?;
                    allow.ranges.push((address, length));
                }
                (Err(_), None) if is_host_name(host) => allow.names.push(host.to_ascii_lowercase()),
                (Err(_), _) => return Err(entry.to_owned()),
            }
        }
        Ok(allow)
    }

    /// Whether the host is named by the setting.
    pub fn name(&self, host: &str) -> bool {
        let host = host.trim_end_matches('.');
        self.names
            .iter()
            .any(|name| name.eq_ignore_ascii_case(host))
    }

    /// Whether the address lies in an allowed range.
    pub fn address(&self, address: IpAddr) -> bool {
        self.ranges
            .iter()
            .any(|(network, length)| in_range(address, *network, *length))
    }
}

/// Which ports an address may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ports {
    /// 443 only: webhooks.
    Https,
    /// Any: tools, integrations, links.
    Any,
}

/// Why an address is refused as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    Syntax,
    Scheme,
    UserInfo,
    Port,
    /// An IP address in any of its spellings.
    Literal,
    /// A name that no public resolver answers for.
    PrivateName,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Syntax => "Input should be a valid URL",
            Self::Scheme => "URL scheme should be 'https'",
            Self::UserInfo => "URL should not hold a user name or password",
            Self::Port => "URL port should be 443",
            Self::Literal => "URL should name a host, not an IP address",
            Self::PrivateName => "URL should name a public host",
        })
    }
}

/// A webhook's address: https, port 443, no user info, a public DNS name. An allowed host may also be
/// an address, use http and another port.
pub fn check_webhook_url(text: &str, allow: &Allow) -> Result<(), Refusal> {
    check(text, Ports::Https, allow).map(drop)
}

/// A user's address, read, if it may be talked to as far as its text tells.
pub fn check(text: &str, ports: Ports, allow: &Allow) -> Result<Url, Refusal> {
    let url = Url::parse(text).map_err(|_| Refusal::Syntax)?;
    if !matches!(url.scheme(), "https" | "http") {
        return Err(Refusal::Scheme);
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Refusal::UserInfo);
    }
    let host = url.host_str().ok_or(Refusal::Syntax)?;
    let literal = host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .parse::<IpAddr>()
        .ok();
    if literal.is_some_and(|address| allow.address(address)) || allow.name(host) {
        return Ok(url);
    }
    if url.scheme() != "https" {
        return Err(Refusal::Scheme);
    }
    if ports == Ports::Https && url.port_or_known_default() != Some(443) {
        return Err(Refusal::Port);
    }
    if literal.is_some() {
        return Err(Refusal::Literal);
    }
    if is_public_name(host) {
        Ok(url)
    } else {
        Err(Refusal::PrivateName)
    }
}

/// Whether this address may be talked to: it is public, or allowed.
pub fn permits(address: IpAddr, allow: &Allow) -> bool {
    allow.address(address) || allow.address(unwrapped(address)) || is_global(address)
}

/// A host that is no URL's, a telephone carrier's: a public name or a public address, as far as its
/// text tells. The error is for people.
pub fn check_host(host: &str, allow: &Allow) -> Result<(), &'static str> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let public = match bare.parse() {
        Ok(address) => permits(address, allow),
        Err(_) => is_public_name(host),
    };
    if public || allow.name(host) {
        Ok(())
    } else {
        Err("Host should be a public one")
    }
}

/// A DNS name with a dot whose last label is not one that private networks use.
fn is_public_name(host: &str) -> bool {
    const PRIVATE: [&str; 9] = [
        "localhost",
        "local",
        "localdomain",
        "internal",
        "intranet",
        "lan",
        "private",
        "corp",
        "home",
    ];
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    let Some((_, last)) = host.rsplit_once('.') else {
        return false;
    };
    is_host_name(&host) && !PRIVATE.contains(&last) && !host.ends_with(".home.arpa")
}

/// RFC 1123, section 2.1.
fn is_host_name(host: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    host.len() <= 253 && host.split('.').all(label)
}

fn in_range(address: IpAddr, network: IpAddr, length: u8) -> bool {
    match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            address.to_bits() & mask == network.to_bits() & mask
        }
        (IpAddr::V6(address), IpAddr::V6(network)) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            address.to_bits() & mask == network.to_bits() & mask
        }
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

    use super::*;

    #[track_caller]
    fn refused(text: &str, why: Refusal) {
        assert_eq!(
            check_webhook_url(text, &Allow::default()),
            Err(why),
            "{text}"
        );
    }

    #[test]
    fn public_https_on_443_passes() {
        for text in [
            "https://hooks.example.com/in?x=1",
            "https://example.com:443",
            "https://EXAMPLE.com.",
            "https://bücher.example/",
        ] {
            assert_eq!(check_webhook_url(text, &Allow::default()), Ok(()), "{text}");
        }
    }

    #[test]
    fn every_spelling_of_a_private_address_is_refused() {
        for host in [
            "127.0.0.1",
            "127.1",
            "2130706433",
            "0x7f000001",
            "0x7f.1",
            "0177.0.0.1",
            "017700000001",
            "0",
            "0.0.0.0",
            "10.0.0.1",
            "169.254.169.254",
            "192.168.1.1",
            "8.8.8.8",
            "[::1]",
            "[::]",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
            "[64:ff9b::7f00:1]",
            "[2002:7f00:1::]",
            "[2001:0:7f00:1::]",
            "[fe80::1]",
            "[fd00::1]",
            "127。0。0。1",
            "①②⑦.0.0.1",
            "127.0.0.1.",
        ] {
            refused(&format!("https://{host}/"), Refusal::Literal);
        }
    }

    #[test]
    fn other_schemes_ports_users_and_private_names_are_refused() {
        for text in [
            "http://example.com/",
            "ftp://example.com/",
            "file:///etc/passwd",
            "javascript:alert(1)",
            "gopher://example.com",
        ] {
            refused(text, Refusal::Scheme);
        }
        for text in [
            "https://example.com:8443/",
            "https://example.com:80/",
            "https://example.com:22",
        ] {
            refused(text, Refusal::Port);
        }
        for text in [
            "https://user@example.com/",
            "https://a:b@example.com/",
            "https://example.com@127.0.0.1/",
        ] {
            refused(text, Refusal::UserInfo);
        }
        for host in [
            "localhost",
            "a.localhost",
            "LOCALHOST.",
            "metadata.google.internal",
            "printer.local",
            "x.home.arpa",
            "intranet",
            "nas.lan",
        ] {
            refused(&format!("https://{host}/"), Refusal::PrivateName);
        }
        for text in [
            "",
            "example.com",
            "//example.com",
            "https://",
            "https:// a.com",
            "https://exa mple.com",
            "https://[::1",
            "https://a.com:99999",
        ] {
            refused(text, Refusal::Syntax);
        }
    }

    #[test]
    fn what_the_setting_names_is_let_through() {
        let allow = Allow::parse(&["localhost", "127.0.0.0/8", "fd00::/8", "10.1.2.3"]).unwrap();
        for text in [
            "http://localhost:9000/hook",
            "http://127.0.0.1:1/",
            "https://[fd12::1]/",
            "https://10.1.2.3:8443",
        ] {
            assert_eq!(check_webhook_url(text, &allow), Ok(()), "{text}");
        }
        assert_eq!(
            check_webhook_url("https://10.1.2.4/", &allow),
            Err(Refusal::Literal)
        );
        assert_eq!(
            check_webhook_url("ftp://localhost/", &allow),
            Err(Refusal::Scheme)
        );
        assert_eq!(
            check_webhook_url("http://u@localhost/", &allow),
            Err(Refusal::UserInfo)
        );
    }

    #[test]
    fn a_wrong_entry_is_named() {
        for entry in [
            "10.0.0.0/33",
            "fd00::/129",
            "a b",
            "example.com/8",
            "10.0.0.0/x",
            "",
        ] {
            assert_eq!(Allow::parse(&[entry]), Err(entry.to_owned()));
        }
    }
}
