//! The rules for plain text, host names and web addresses that a user gives.

use std::net::IpAddr;

use crate::egress;

/// Whether this is plain text of at most 255 characters.
pub fn is_plain(text: &str) -> bool {
    text.chars().count() <= 255 && !text.chars().any(|c| c.is_control() || "<>".contains(c))
}

/// A DNS host name (RFC 1123 section 2.1) with at least two labels, the last one not a number.
pub fn is_hostname(text: &str) -> bool {
    text.contains('.') && is_dns_name(text)
}

/// A host as it stands in a page's origin: a DNS name of any number of labels (`localhost`), or an IP
/// address, IPv6 with its brackets or without.
pub fn is_origin_host(text: &str) -> bool {
    is_dns_name(text) || origin_address(text).is_some()
}

/// The address that a host of an origin is, if it is one.
pub fn origin_address(host: &str) -> Option<IpAddr> {
    let inner = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    match inner {
        Some(inner) => inner.parse().ok().map(IpAddr::V6),
        None => host.parse().ok(),
    }
}

fn is_dns_name(text: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let last = text.rsplit('.').next().unwrap_or_default();
    text.len() <= 253
        && text.split('.').all(label)
        && last.bytes().any(|byte| byte.is_ascii_alphabetic())
}

/// Names that never lead to the public internet (RFC 6761, RFC 8375 and the habits of clouds).
const PRIVATE_SUFFIXES: &[&str] = &[
    "localhost",
    "local",
    "internal",
    "intranet",
    "lan",
    "home",
    "corp",
    "arpa",
    "test",
    "invalid",
    "example",
    "onion",
];

/// A web address with a host and no user info; whether it may be called is another question. The error
/// says what is wrong.
pub fn is_web_url(text: &str) -> Result<(), &'static str> {
    read_web_url(text).map(drop)
}

/// A web address that may be called from here: https, port 443, a public DNS name, no user info; or one
/// whose host is allowed. The error says what is wrong.
pub fn is_https_url(text: &str, allow: &egress::Allow) -> Result<(), &'static str> {
    let url = read_web_url(text)?;
    let is_public = egress::check_webhook_url(text, &egress::Allow::default()).is_ok();
    let is_named = url.host().is_some_and(|host| allow.name(host));
    if (is_named || !is_public) && egress::check_webhook_url(text, allow).is_ok() {
        return Ok(());
    }
    if url.scheme_str() != Some("https") {
        return Err("the scheme must be https");
    }
    let authority = url.authority().ok_or("no host")?;
    if authority.port_u16().is_some_and(|port| port != 443) || authority.as_str().ends_with(':') {
        return Err("the port must be 443");
    }
    let host = authority.host().to_ascii_lowercase();
    let host = host.strip_suffix('.').unwrap_or(&host);
    if !is_hostname(host) {
        return Err("the host must be a DNS name");
    }
    let is_private = PRIVATE_SUFFIXES
        .iter()
        .any(|suffix| host.ends_with(&format!(".{suffix}")));
    // What a client would make of it decides: 0x7f.1 is an address too.
    if is_private || !is_public {
        return Err("the host must be public");
    }
    Ok(())
}

fn read_web_url(text: &str) -> Result<http::Uri, &'static str> {
    if text.len() > 2048 {
        return Err("at most 2048 characters");
    }
    if text
        .bytes()
        .any(|byte| byte.is_ascii_whitespace() || byte.is_ascii_control() || byte == b'\\')
    {
        return Err("no spaces, control characters or backslashes");
    }
    if !is_percent_encoded(text) {
        return Err("a % must be followed by two hexadecimal digits");
    }
    let url: http::Uri = text.parse().map_err(|_| "not a URL")?;
    if !matches!(url.scheme_str(), Some("https" | "http")) {
        return Err("the scheme must be https");
    }
    let authority = url.authority().ok_or("no host")?;
    if authority.as_str().contains('@') {
        return Err("no user info");
    }
    Ok(url)
}

/// Whether every `%` begins an encoded byte (RFC 3986 section 2.1).
fn is_percent_encoded(text: &str) -> bool {
    text.split('%').skip(1).all(|rest| {
        let digits = rest.as_bytes().get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_origins() {
        for good in [
            "shop.example.org",
            "localhost",
            "intranet",
            "a-b.c",
            "192.168.1.5",
            "2001:db8::7",
            "[2001:db8::7]",
        ] {
            assert!(is_origin_host(good), "{good}");
        }
        for bad in [
            "",
            "https://localhost",
            "localhost:3000",
            "a b",
            "-a.example",
            "a..b",
            "256.1.1.1",
            "12",
            "[localhost]",
            "[192.168.1.5]",
            "*.example.org",
        ] {
            assert!(!is_origin_host(bad), "{bad}");
        }
    }

    #[test]
    fn web_addresses() {
        let nobody = egress::Allow::default();
        for good in [
            "https://hooks.acme.com/a?b=c",
            "https://acme.com:443",
            "https://a-b.co.uk/",
            "https://acme.com.",
            "https://acme.com/a%20b?c=%C3%A9",
        ] {
            assert_eq!(is_https_url(good, &nobody), Ok(()), "{good}");
        }
        for bad in [
            "http://acme.com",
            "https://acme.com:8443/",
            "https://acme.com:/",
            "https://user@acme.com/",
            "https://127.0.0.1/",
            "https://[::1]/",
            "https://2130706433/",
            "https://0x7f.1/",
            "https://0x7F.0x0.0x0.0x1/",
            "https://0177.0.0.1/",
            "https://localhost/",
            "https://db.internal/",
            "https://metadata.google.internal/",
            "https://acme .com/",
            "https://acme.com\\@evil.com/",
            "acme.com",
            "https://",
            "ftp://acme.com",
            "https://acme.com/100%",
            "https://acme.com/?a=%2g",
        ] {
            assert!(is_https_url(bad, &nobody).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_the_operator_allows_is_called_whatever_its_host() {
        let allow = ["10.1.0.0/16", "hooks.internal", "hooks.test"];
        let allow = egress::Allow::parse(&allow).expect("hosts");
        for good in [
            "http://hooks.internal:9000/a",
            "https://hooks.test/",
            "https://10.1.2.3/",
            "https://acme.com/",
        ] {
            assert_eq!(is_https_url(good, &allow), Ok(()), "{good}");
        }
        for bad in [
            "http://other.internal/",
            "https://10.2.2.3/",
            "http://acme.com/",
            "ftp://hooks.internal/",
            "http://user@hooks.internal/",
        ] {
            assert!(is_https_url(bad, &allow).is_err(), "{bad}");
        }
    }
}
