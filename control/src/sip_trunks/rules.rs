//! What a trunk may be. Pure.

use crate::http::validate::Kind;
use crate::http::wire::body;
use crate::words::words;

words! {
    /// Which way its calls go.
    pub enum TrunkType { Inbound = "inbound", Outbound = "outbound" }

    /// How the two sides know one another.
    pub enum AuthMode {
        /// By user name and password.
        Digest = "digest",
        /// By address.
        IpAcl = "ip_acl",
        /// By both.
        DigestPlusIpAcl = "digest_plus_ip_acl",
        /// We register with the carrier, and its calls come to where we registered.
        Register = "register",
    }

    /// What SIP goes over to the carrier.
    pub enum Transport { Udp = "udp", Tcp = "tcp", Tls = "tls" }

    /// Whether audio is encrypted (SDES, RFC 4568).
    pub enum MediaEncryption {
        /// As the other side wants.
        Allow = "allow",
        Disable = "disable",
        Require = "require",
    }

    /// Where a trunk that registers sends its calls.
    pub enum OutboundAuth {
        /// Through the registrar.
        Proxy = "proxy",
        /// To the host of the number.
        Direct = "direct",
    }

    /// Who the user part of From is, on a trunk that registers.
    pub enum FromUser {
        /// The number that calls.
        Number = "number",
        /// The user name it registers with.
        Username = "username",
    }

    /// Whether calls go over it.
    pub enum Status { Active = "active", Disabled = "disabled" }

    /// Where a trunk that registers stands with its registrar.
    pub enum RegistrationStatus {
        /// It has not answered yet.
        Unregistered = "unregistered",
        Registered = "registered",
        Failed = "failed",
    }

    /// Whether the entries are the only destinations, or none.
    pub enum ListMode { Allowlist = "allowlist", Blocklist = "blocklist" }
}

impl AuthMode {
    /// Whether it takes a user name and a password.
    pub const fn has_credentials(self) -> bool {
        !matches!(self, Self::IpAcl)
    }

    /// Whether an inbound trunk of this mode lists the addresses that calls come from.
    pub const fn has_addresses(self) -> bool {
        matches!(self, Self::IpAcl | Self::DigestPlusIpAcl)
    }
}

const ENTRY: Kind = Kind::pattern(r"^\+[1-9][0-9]{0,14}$", is_destination);
const ENTRIES: Kind = Kind::list(&ENTRY, 0, 1000);

body! {
    /// Whom a trunk may call.
    #[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
    pub struct Destinations = "Destinations";
    required mode: ListMode, "Whether only the entries may be called, or all others.";
    required entries: Vec<String> = ENTRIES, "Numbers, or how they begin: +49, +4930123456.";
}

impl Destinations {
    /// Whether this number (E.164) may be called.
    pub fn allow(&self, number: &str) -> bool {
        let listed = self.entries.iter().any(|entry| number.starts_with(entry));
        listed == (self.mode == ListMode::Allowlist)
    }
}

/// Whether this may stand in a list of destinations: a plus and the first 1 to 15 digits of numbers.
pub fn is_destination(text: &str) -> bool {
    text.strip_prefix('+').is_some_and(|digits| {
        (1..=15).contains(&digits.len())
            && digits.bytes().all(|byte| byte.is_ascii_digit())
            && !digits.starts_with('0')
    })
}

/// Seconds asked of a registrar, when a trunk does not say.
pub const REGISTER_EXPIRES: u32 = 120;

/// Reads `host` or `host:port`; an IPv6 address stands in brackets (RFC 3986 section 3.2.2).
pub fn host_and_port(text: &str) -> Option<(&str, Option<u16>)> {
    let after = text.rfind(']').map_or(0, |at| at + 1);
    let (host, port) = match text.get(after..)?.split_once(':') {
        Some((between, port)) => {
            let port: u16 = port.parse().ok().filter(|port| *port > 0)?;
            (text.get(..after + between.len())?, Some(port))
        }
        None => (text, None),
    };
    let inside = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    let is_host = match inside {
        Some(inside) => inside.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            crate::http::validate::is_hostname(host) || host.parse::<std::net::Ipv4Addr>().is_ok()
        }
    };
    is_host.then_some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_judged_by_how_the_number_begins() {
        let entries = vec!["+49".to_owned(), "+3312".to_owned()];
        let only = Destinations {
            mode: ListMode::Allowlist,
            entries,
        };
        let none = Destinations {
            mode: ListMode::Blocklist,
            ..only.clone()
        };
        for (number, listed) in [
            ("+4930123456", true),
            ("+33123456789", true),
            ("+33199999999", false),
            ("+1900555", false),
            ("4930123456", false),
        ] {
            assert_eq!(only.allow(number), listed, "{number}");
            assert_eq!(none.allow(number), !listed, "{number}");
        }
    }
}
