//! Trunks, and who may speak to us at all.
//!
//! Admission is judged before a byte is parsed: the addresses of trunks and the peers of live dialogs
//! are let in, everybody else gets silence, so that a scan finds nothing. Only when some trunk is known
//! by its credentials alone are strangers heard, at a limited rate, and then only to be challenged.

use core::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::auth::Credentials;
use crate::message::{Host, Transport};
use crate::time::Time;

/// A trunk's number; whose it is, is the user's to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrunkId(pub u64);

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
    /// How often OPTIONS asks whether the carrier is there, which also keeps a NAT's mapping open; `None`
    /// for never. A trunk that registers is asked for the first time after as long, any other at once.
    pub keep_alive: Option<Duration>,
}

impl Trunk {
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
    /// `192.0.2.0/24` or a single address.
    pub fn parse(text: &str) -> Option<Self> {
        let (ip, bits) = match text.split_once('/') {
            Some((ip, bits)) => (ip, Some(bits.parse::<u8>().ok()?)),
            None => (text, None),
        };
        let ip: IpAddr = ip.parse().ok()?;
        let most = if ip.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(most);
        (bits <= most).then(|| Self::of(ip, bits))
    }

    /// Whether the address lies in the block.
    pub fn contains(self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        ip.is_ipv4() == self.ip.is_ipv4() && Self::of(ip, self.bits) == self
    }

    fn of(ip: IpAddr, bits: u8) -> Self {
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
}

/// What is done with a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Heard: an address of a trunk, or the peer of a dialog or of a request of ours.
    Known,
    /// A stranger that may be asked who it is.
    Challenge,
    /// Dropped before it is parsed, without an answer.
    Silence,
}

/// How many strangers are heard: 20 a second after a burst of 40, from all together. A carrier's first
/// INVITE passes, a flood costs next to nothing.
const STRANGERS_PER_SECOND: u64 = 20;
const STRANGERS_BURST: u64 = 40;

/// Who is let in.
#[derive(Debug, Default)]
pub struct Gate {
    nets: FxHashMap<Net, Vec<TrunkId>>,
    /// Prefix lengths in use, so that a look-up tries only these: IPv4, IPv6.
    lengths: [Vec<u8>; 2],
    /// Peers of live dialogs and of requests under way, and how many of them each has.
    peers: FxHashMap<IpAddr, u32>,
    /// Trunks that are known by digest alone.
    open: u32,
    /// Strangers that may still be heard, in millionths.
    tokens: u64,
    filled: Time,
    /// How many were dropped unheard.
    pub silenced: u64,
}

impl Gate {
    /// Judges a source. Nothing of what it sent is looked at.
    pub fn judge(&mut self, now: Time, source: IpAddr) -> Admission {
        let source = source.to_canonical();
        if self.peers.contains_key(&source) || self.covering(source).next().is_some() {
            return Admission::Known;
        }
        if self.open > 0 && self.take_token(now) {
            return Admission::Challenge;
        }
        self.silenced += 1;
        Admission::Silence
    }

    /// The trunks that a source may be of.
    pub fn trunks(&self, source: IpAddr) -> impl Iterator<Item = TrunkId> {
        self.covering(source.to_canonical()).flatten().copied()
    }

    fn covering(&self, source: IpAddr) -> impl Iterator<Item = &Vec<TrunkId>> {
        self.lengths[usize::from(source.is_ipv6())]
            .iter()
            .filter_map(move |bits| self.nets.get(&Net::of(source, *bits)))
    }

    /// Lets the trunk's own addresses in, and strangers if it asks for nothing but credentials.
    pub(crate) fn add_trunk(&mut self, trunk: &Trunk) {
        for net in &trunk.allowed {
            self.add_net(*net, trunk.id);
        }
        self.open += u32::from(trunk.inbound == InboundAuth::Digest);
    }

    /// Lets in an address that a trunk's host was resolved to.
    pub(crate) fn add_address(&mut self, ip: IpAddr, trunk: TrunkId) {
        let bits = if ip.is_ipv4() { 32 } else { 128 };
        self.add_net(Net::of(ip, bits), trunk);
    }

    fn add_net(&mut self, net: Net, trunk: TrunkId) {
        let trunks = self.nets.entry(net).or_default();
        if !trunks.contains(&trunk) {
            trunks.push(trunk);
        }
        let lengths = &mut self.lengths[usize::from(net.ip.is_ipv6())];
        if !lengths.contains(&net.bits) {
            lengths.push(net.bits);
        }
    }

    pub(crate) fn remove_trunk(&mut self, trunk: &Trunk) {
        for trunks in self.nets.values_mut() {
            trunks.retain(|id| *id != trunk.id);
        }
        self.nets.retain(|_, trunks| !trunks.is_empty());
        for (v6, lengths) in [false, true].into_iter().zip(&mut self.lengths) {
            lengths.retain(|bits| {
                self.nets
                    .keys()
                    .any(|net| net.bits == *bits && net.ip.is_ipv6() == v6)
            });
        }
        self.open -= u32::from(trunk.inbound == InboundAuth::Digest);
    }

    /// A peer is spoken with: it may speak too.
    pub(crate) fn add_peer(&mut self, ip: IpAddr) {
        *self.peers.entry(ip.to_canonical()).or_default() += 1;
    }

    pub(crate) fn remove_peer(&mut self, ip: IpAddr) {
        let ip = ip.to_canonical();
        if let Some(count) = self.peers.get_mut(&ip) {
            *count -= 1;
            if *count == 0 {
                self.peers.remove(&ip);
            }
        }
    }

    /// How many peers are let in for the time being.
    pub fn peers(&self) -> usize {
        self.peers.len()
    }

    fn take_token(&mut self, now: Time) -> bool {
        const ONE: u64 = 1_000_000;
        let elapsed = u64::try_from(now.since(self.filled).as_micros()).unwrap_or(u64::MAX);
        // A token's millionths are as many as the microseconds of a second.
        let earned = elapsed.saturating_mul(STRANGERS_PER_SECOND);
        self.tokens = self
            .tokens
            .saturating_add(earned)
            .min(STRANGERS_BURST * ONE);
        self.filled = now;
        let one = self.tokens >= ONE;
        if one {
            self.tokens -= ONE;
        }
        one
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trunk(id: u64, allowed: &[&str], inbound: InboundAuth) -> Trunk {
        Trunk {
            id: TrunkId(id),
            host: None,
            port: None,
            transport: Transport::Udp,
            allowed: allowed.iter().map(|net| Net::parse(net).unwrap()).collect(),
            inbound,
            credentials: None,
            domain: None,
            outbound: Outbound::Host,
            register: None,
            keep_alive: None,
        }
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn only_a_trunks_addresses_are_heard() {
        let mut gate = Gate::default();
        let one = trunk(1, &["192.0.2.0/28", "2001:db8::/64"], InboundAuth::Address);
        let two = trunk(2, &["192.0.2.5"], InboundAuth::Address);
        gate.add_trunk(&one);
        gate.add_trunk(&two);
        let now = Time::from_secs(1);
        for (source, expected) in [
            ("192.0.2.5", Admission::Known),
            ("192.0.2.15", Admission::Known),
            ("192.0.2.16", Admission::Silence),
            ("2001:db8::7", Admission::Known),
            ("2001:db8:0:1::7", Admission::Silence),
            // IPv4 as a dual socket shows it.
            ("::ffff:192.0.2.5", Admission::Known),
        ] {
            assert_eq!(gate.judge(now, ip(source)), expected, "{source}");
        }
        let mut both: Vec<TrunkId> = gate.trunks(ip("192.0.2.5")).collect();
        both.sort();
        assert_eq!(both, [TrunkId(1), TrunkId(2)]);
        gate.remove_trunk(&one);
        assert_eq!(gate.judge(now, ip("192.0.2.15")), Admission::Silence);
        assert_eq!(gate.judge(now, ip("192.0.2.5")), Admission::Known);
        assert_eq!(gate.silenced, 3);
    }

    #[test]
    fn a_peer_is_heard_as_long_as_something_with_it_lives() {
        let mut gate = Gate::default();
        let peer = ip("198.51.100.1");
        let now = Time::default();
        gate.add_peer(peer);
        gate.add_peer(peer);
        gate.remove_peer(peer);
        assert_eq!(gate.judge(now, peer), Admission::Known);
        gate.remove_peer(peer);
        assert_eq!(gate.judge(now, peer), Admission::Silence);
        assert_eq!(gate.peers(), 0);
    }

    #[test]
    fn strangers_are_challenged_only_for_a_digest_trunk_and_at_a_limited_rate() {
        let mut gate = Gate::default();
        let open = trunk(1, &[], InboundAuth::Digest);
        gate.add_trunk(&open);
        let stranger = ip("203.0.113.9");
        let heard = |gate: &mut Gate, now: Time| {
            (0..10_000)
                .filter(|_| gate.judge(now, stranger) == Admission::Challenge)
                .count()
        };
        assert_eq!(heard(&mut gate, Time::from_secs(100)), 40);
        assert_eq!(heard(&mut gate, Time::from_secs(101)), 20);
        assert_eq!(heard(&mut gate, Time::from_secs(900)), 40);
        gate.remove_trunk(&open);
        assert_eq!(heard(&mut gate, Time::from_secs(999)), 0);
    }

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
        let block = Net::parse("192.0.2.0/24").unwrap();
        for (inside, within) in [
            ("192.0.2.255", true),
            ("::ffff:192.0.2.7", true),
            ("192.0.3.0", false),
            ("2001:db8::1", false),
        ] {
            assert_eq!(block.contains(ip(inside)), within, "{inside}");
        }
    }
}
