//! Who may speak to us at all.
//!
//! Admission is judged before a byte is parsed: the addresses of trunks and the peers of live dialogs
//! are let in, everybody else gets silence, so that a scan finds nothing. Only when some trunk is known
//! by its credentials alone are strangers heard, at a limited rate (`strangers`), and then only to be
//! challenged.

mod strangers;

use core::net::IpAddr;

use rustc_hash::FxHashMap;

use self::strangers::Strangers;
use crate::time::Time;
use crate::trunk::{InboundAuth, Net, Trunk, TrunkId};

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
    strangers: Strangers,
    /// How many were dropped unheard.
    pub silenced: u64,
}

impl Gate {
    /// Judges a source. Nothing of what it sent is looked at.
    pub fn judge(&mut self, now: Time, source: IpAddr) -> Admission {
        let source = source.to_canonical();
        if self.knows(source) {
            return Admission::Known;
        }
        if self.open > 0 && self.strangers.hears(now, source) {
            return Admission::Challenge;
        }
        self.silenced += 1;
        Admission::Silence
    }

    /// Whether a source is let in without being asked who it is.
    pub fn knows(&self, source: IpAddr) -> bool {
        let source = source.to_canonical();
        self.peers.contains_key(&source) || self.covering(source).next().is_some()
    }

    /// A stranger gave a trunk's credentials: it is heard whatever other strangers do.
    pub(crate) fn proved(&mut self, now: Time, source: IpAddr) {
        self.strangers.proved(now, source.to_canonical());
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
        self.add_net(Net::single(ip), trunk);
    }

    /// A trunk's host is not at that address any more. One that its settings name stays.
    pub(crate) fn remove_address(&mut self, ip: IpAddr, trunk: &Trunk) {
        let net = Net::single(ip);
        if trunk.allowed.contains(&net) {
            return;
        }
        if let Some(trunks) = self.nets.get_mut(&net) {
            trunks.retain(|id| *id != trunk.id);
        }
        self.forget_empty();
    }

    fn add_net(&mut self, net: Net, trunk: TrunkId) {
        let trunks = self.nets.entry(net).or_default();
        if !trunks.contains(&trunk) {
            trunks.push(trunk);
        }
        let lengths = &mut self.lengths[usize::from(net.is_ipv6())];
        if !lengths.contains(&net.bits()) {
            lengths.push(net.bits());
        }
    }

    pub(crate) fn remove_trunk(&mut self, trunk: &Trunk) {
        for trunks in self.nets.values_mut() {
            trunks.retain(|id| *id != trunk.id);
        }
        self.forget_empty();
        self.open -= u32::from(trunk.inbound == InboundAuth::Digest);
    }

    /// Forgets blocks that are of no trunk any more.
    fn forget_empty(&mut self) {
        self.nets.retain(|_, trunks| !trunks.is_empty());
        for (v6, lengths) in [false, true].into_iter().zip(&mut self.lengths) {
            lengths.retain(|bits| {
                self.nets
                    .keys()
                    .any(|net| net.bits() == *bits && net.is_ipv6() == v6)
            });
        }
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Transport;
    use crate::trunk::{Outbound, RegistrarRealms, Tenant};

    fn trunk(id: u64, allowed: &[&str], inbound: InboundAuth) -> Trunk {
        Trunk {
            id: TrunkId(id),
            tenant: Tenant::default(),
            host: None,
            port: None,
            transport: Transport::Udp,
            allowed: allowed.iter().map(|net| Net::parse(net).unwrap()).collect(),
            inbound,
            credentials: None,
            domain: None,
            outbound: Outbound::Host,
            register: None,
            registrar_realms: RegistrarRealms::Unknown,
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
        // Each comes once.
        let mut number = 0;
        let mut heard = |gate: &mut Gate, now: Time| {
            (0..10_000)
                .filter(|_| {
                    number += 1;
                    let stranger = IpAddr::V4((0xcb00_0000_u32 + number).into());
                    gate.judge(now, stranger) == Admission::Challenge
                })
                .count()
        };
        assert_eq!(heard(&mut gate, Time::from_secs(100)), 40);
        assert_eq!(heard(&mut gate, Time::from_secs(101)), 20);
        assert_eq!(heard(&mut gate, Time::from_secs(900)), 40);
        gate.remove_trunk(&open);
        assert_eq!(heard(&mut gate, Time::from_secs(999)), 0);
    }

    #[test]
    fn an_address_that_a_host_left_is_a_stranger_again() {
        let mut gate = Gate::default();
        let mut own = trunk(1, &["192.0.2.5"], InboundAuth::Address);
        gate.add_trunk(&own);
        for (address, trunk) in [("192.0.2.5", 1), ("192.0.2.6", 1), ("192.0.2.6", 2)] {
            gate.add_address(ip(address), TrunkId(trunk));
        }
        for address in ["192.0.2.5", "192.0.2.6"] {
            gate.remove_address(ip(address), &own);
        }
        // Allowed by name of the one, resolved for the other.
        assert!(gate.knows(ip("192.0.2.5")));
        let others: Vec<TrunkId> = gate.trunks(ip("192.0.2.6")).collect();
        assert_eq!(others, [TrunkId(2)]);
        own.id = TrunkId(2);
        gate.remove_address(ip("192.0.2.6"), &own);
        assert!(!gate.knows(ip("192.0.2.6")));
    }
}
