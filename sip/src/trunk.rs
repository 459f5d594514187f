//! Trunks: all that the stack knows of a carrier.

use core::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use crate::auth::Credentials;
use crate::message::{Host, Transport};

/// A trunk's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrunkId(pub u64);

/// Whose a trunk is, as a number that the user chose: the trunks of one tenant share what a tenant may have. 0 is of
/// nobody in particular.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenant(pub u64);

/// How a trunk's inbound calls prove where they come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InboundAuth {
    /// By address.
    Address,
    /// By digest, from anywhere.
    Digest,
    /// By both.
    AddressAndDigest,
}

/// How we register with the carrier (document 3, trunks of `auth_mode` `register`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Register {
    /// Seconds asked for.
    pub expires: u32,
    /// The user of the address of record.
    pub user: String,
}

/// In which realms the registrar of a trunk asks for its password, as far as the user of the stack knows it: another
/// stack may register the trunk, or may have done so before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RegistrarRealms {
    /// The trunk does not register, or whoever registers it does not tell.
    #[default]
    Unknown,
    /// The trunk registers, and its registrar was not heard yet. Calls give no password until then.
    Awaited,
    /// The registrar asks in these. There is none where it takes a REGISTER without asking.
    Known(Vec<String>),
}

/// Where a trunk's calls go out (document 3, `outbound_auth`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outbound {
    /// To the trunk's host, which stands in the Request-URI.
    #[default]
    Host,
    /// To the trunk's host as an outbound proxy; its domain stands in the Request-URI.
    Proxy,
    /// To the trunk's domain itself, wherever its name leads (RFC 3263).
    Direct,
}

/// All that the stack knows of a trunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trunk {
    pub id: TrunkId,
    pub tenant: Tenant,
    /// The carrier's host or registrar. `None` for a trunk that only receives.
    pub host: Option<Host>,
    /// `None`: SRV, then the transport's port.
    pub port: Option<u16>,
    pub transport: Transport,
    /// Where inbound calls may come from.
    pub allowed: Vec<Net>,
    pub inbound: InboundAuth,
    /// Ours with the carrier; for inbound digest, the carrier's with us.
    pub credentials: Option<Credentials>,
    /// The host of From and To; the carrier's own when `None`.
    pub domain: Option<Host>,
    pub outbound: Outbound,
    pub register: Option<Register>,
    pub registrar_realms: RegistrarRealms,
    /// How often OPTIONS asks whether the carrier is there, which also keeps a NAT's mapping open; `None`
    /// for never. A trunk that registers is asked for the first time after as long, any other at once.
    pub keep_alive: Option<Duration>,
}

impl Trunk {
    /// Whether both have the same carrier and the same credentials with it.
    pub(crate) fn is_same_carrier(&self, other: &Self) -> bool {
        let of = |trunk: &Self| (trunk.port, trunk.transport, trunk.outbound);
        of(self) == of(other)
            && self.host == other.host
            && self.domain == other.domain
            && self.credentials == other.credentials
    }

    /// Whether both differ in nothing but what is known of the registrar's realms.
    pub(crate) fn differs_in_realms_alone(&self, other: &Self) -> bool {
        let alike = Self {
            registrar_realms: self.registrar_realms.clone(),
            ..other.clone()
        };
        self.registrar_realms != other.registrar_realms && *self == alike
    }

    /// The names of its host and its domain: a realm is to have such a name in it (RFC 3261 section 22.1).
    pub(crate) fn names(&self) -> Vec<String> {
        let both = [&self.domain, &self.host].into_iter().flatten();
        both.map(ToString::to_string).collect()
    }

    /// Whether its calls in may prove themselves by its credentials.
    pub(crate) fn is_known_by_password(&self) -> bool {
        self.inbound != InboundAuth::Address
    }

    /// Host and port of a call's Request-URI; `None` for a trunk that only receives. A domain that is the
    /// host itself has the host's port.
    pub fn called_at(&self) -> Option<(&Host, Option<u16>)> {
        let host = self.host.as_ref()?;
        Some(match (self.outbound, &self.domain) {
            (Outbound::Proxy | Outbound::Direct, Some(domain)) if domain != host => (domain, None),
            _ => (host, self.port),
        })
    }

    /// Host and port to which a call's INVITE goes.
    pub fn next_hop(&self) -> Option<(&Host, Option<u16>)> {
        match self.outbound {
            Outbound::Direct => self.called_at(),
            Outbound::Host | Outbound::Proxy => Some((self.host.as_ref()?, self.port)),
        }
    }
}

/// A block of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Net {
    ip: IpAddr,
    bits: u8,
}

impl Net {
    /// `192.0.2.0/24`, `2001:db8::/64` or a single address.
    pub fn parse(text: &str) -> Option<Self> {
        let (ip, bits) = match text.split_once('/') {
            Some((ip, bits)) => (ip, Some(bits.parse::<u8>().ok()?)),
            None => (text, None),
        };
        let ip: IpAddr = ip.parse().ok()?;
        let most = if ip.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(most);
        match ip.to_canonical() {
            _ if bits > most => None,
            // Sources are known by the address inside.
            IpAddr::V4(inside) if ip.is_ipv6() => {
                Some(Self::of(IpAddr::V4(inside), bits.checked_sub(96)?))
            }
            _ => Some(Self::of(ip, bits)),
        }
    }

    /// Whether the address lies in the block.
    pub fn contains(self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        ip.is_ipv4() == self.ip.is_ipv4() && Self::of(ip, self.bits) == self
    }

    /// The block of so many leading bits that has that address; more bits than it has are all of them.
    pub(crate) fn of(ip: IpAddr, bits: u8) -> Self {
        let ip = match ip {
            IpAddr::V4(ip) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from(u32::from(ip) & mask))
            }
            IpAddr::V6(ip) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
                IpAddr::V6((u128::from(ip) & mask).into())
            }
        };
        Self { ip, bits }
    }

    /// The block of that address alone.
    pub(crate) fn single(ip: IpAddr) -> Self {
        Self::of(ip, if ip.is_ipv4() { 32 } else { 128 })
    }

    pub(crate) fn bits(self) -> u8 {
        self.bits
    }

    pub(crate) fn is_ipv6(self) -> bool {
        self.ip.is_ipv6()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks() {
        assert_eq!(Net::parse("192.0.2.77/24"), Net::parse("192.0.2.0/24"));
        for bad in [
            "",
            "x",
            "192.0.2.0/33",
            "192.0.2.0/-1",
            "::/129",
            "192.0.2/24",
        ] {
            assert_eq!(Net::parse(bad), None, "{bad}");
        }
        assert!(Net::parse("0.0.0.0/0").is_some());
        // An IPv4 address that is written as one of IPv6.
        let mapped = [
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("::ffff:192.0.2.0/120", "192.0.2.0/24"),
        ];
        for (written, same) in mapped {
            assert_eq!(Net::parse(written), Net::parse(same), "{written}");
        }
        assert_eq!(Net::parse("::ffff:0.0.0.0/90"), None);
        let block = Net::parse("192.0.2.0/24").unwrap();
        for (inside, within) in [
            ("192.0.2.255", true),
            ("::ffff:192.0.2.7", true),
            ("192.0.3.0", false),
            ("2001:db8::1", false),
        ] {
            let ip: IpAddr = inside.parse().unwrap();
            assert_eq!(block.contains(ip), within, "{inside}");
        }
    }
}
