//! To whom the TURN server of `deploy/` relays: to the nodes, wherever they are, and into no other network of one's own.
//! Read off its options, by coturn's own rule.

use std::net::IpAddr;

/// Addresses inside networks of one's own, none of them a node's: this host, neighbours of every private range, where clouds
/// tell machines their secrets, Docker's network of `compose.yaml`, and pods and Services of Kubernetes; some of them as they
/// are written as addresses of IPv6 (IPv4-compatible, IPv4-mapped, behind NAT64).
const STRANGERS: [&str; 29] = [
    "0.0.0.1",
    "10.1.0.1",
    "10.96.0.1",
    "10.244.0.7",
    "10.255.255.254",
    "100.64.0.1",
    "100.127.255.254",
    "127.0.0.1",
    "127.255.255.254",
    "169.254.0.1",
    "169.254.169.254",
    "172.16.0.1",
    "172.29.76.2",
    "172.31.255.254",
    "192.168.0.1",
    "192.168.255.254",
    "::",
    "::1",
    "::7f00:1",
    "::a01:1",
    "::ffff:10.1.0.1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:192.168.0.1",
    "64:ff9b::a01:1",
    "64:ff9b::a9fe:a9fe",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
];

/// Ranges of addresses, both ends included.
type Ranges = Vec<(IpAddr, IpAddr)>;

/// Whom a coturn may send to.
pub(crate) struct Peers {
    allowed: Ranges,
    denied: Ranges,
}

impl Peers {
    /// Reads the options of a coturn.
    pub(crate) fn new(arguments: &[String]) -> Self {
        let of = |option: &str| {
            let values = arguments.iter().filter_map(|one| one.strip_prefix(option));
            values.map(range).collect()
        };
        Self {
            allowed: of("--allowed-peer-ip="),
            denied: of("--denied-peer-ip="),
        }
    }

    /// Whether it relays to this address. coturn's rule (turnserver(1), `--allowed-peer-ip`): an address that is allowed is
    /// relayed to, no matter what; of the others one that is denied is not.
    fn relays_to(&self, peer: IpAddr) -> bool {
        let are_of = |ranges: &Ranges| {
            let mut ranges = ranges.iter();
            ranges.any(|(first, last)| {
                first.is_ipv4() == peer.is_ipv4() && *first <= peer && peer <= *last
            })
        };
        are_of(&self.allowed) || !are_of(&self.denied)
    }

    /// What is wrong with it for these nodes.
    pub(crate) fn faults(&self, nodes: &[IpAddr], faults: &mut Vec<String>) {
        for node in nodes.iter().filter(|node| !self.relays_to(**node)) {
            faults.push(format!("turn: does not relay to the node at {node}"));
        }
        let strangers = STRANGERS.map(|address| address.parse::<IpAddr>().unwrap());
        for stranger in strangers.iter().filter(|one| !nodes.contains(one)) {
            if self.relays_to(*stranger) {
                faults.push(format!("turn: relays to {stranger}, which is no node"));
            }
        }
    }
}

/// `FIRST-LAST`, or one address.
fn range(text: &str) -> (IpAddr, IpAddr) {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let address = |text: &str| {
        text.parse()
            .unwrap_or_else(|_| panic!("{text:?} is no address"))
    };
    (address(first), address(last))
}

#[test]
fn what_is_allowed_goes_before_what_is_denied_wherever_it_stands() {
    let denied = "--denied-peer-ip=10.0.0.0-10.255.255.255";
    let allowed = "--allowed-peer-ip=10.0.3.20";
    for order in [[denied, allowed], [allowed, denied]] {
        let peers = Peers::new(&order.map(str::to_owned));
        let relays = |address: &str| peers.relays_to(address.parse().unwrap());
        assert!(relays("10.0.3.20") && relays("203.0.113.5") && relays("::1"));
        assert!(!relays("10.0.3.19") && !relays("10.0.3.21"));
    }
}
