//! The settings of telephone calls.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use media::rtp::sdp::Encryption;
use sip::message::{Host, Transport};
use sip::shell::Listen;
use sip::trunk::Net;

use super::Tls;
use super::read::Settings;
use crate::ids::AgentId;

/// `[sip]` and `[rtp]`.
#[derive(Clone, Debug)]
pub struct Sip {
    pub listen: Vec<Listen>,
    /// What the other side is told of where we are, one address of a family at most; the address listened on
    /// where none is of its family.
    pub public_addresses: Vec<IpAddr>,
    /// Whose calls are taken. Empty: nothing is listened on.
    pub sources: Vec<Net>,
    /// The name of the account whose agents answer.
    pub account: String,
    /// Who answers which number, and who answers all others.
    pub numbers: BTreeMap<String, AgentId>,
    pub agent: Option<AgentId>,
    pub encryption: Encryption,
    /// How many trunks an account may have.
    pub account_trunks: u32,
    /// How many calls at the same time one trunk may be given, and how many that are placed in an hour.
    pub trunk_calls: u32,
    pub trunk_calls_per_hour: u32,
    /// How often a carrier that a trunk registers with is asked with OPTIONS whether it is there.
    pub keep_alive: Option<Duration>,
    /// How long a message may be that a caller leaves, seconds.
    pub message_seconds: u32,
    /// What callers over TLS are shown.
    pub tls: Option<Tls>,
    /// The name in that certificate; callers over TLS are told the address when `None`.
    pub tls_name: Option<Host>,
    /// The first and the last port for audio.
    pub ports: (u16, u16),
}

impl Sip {
    /// What is told of a listener, besides its own address.
    pub fn public(&self, listener: IpAddr) -> impl Iterator<Item = IpAddr> {
        let public = self.public_addresses.iter().copied();
        public.filter(move |public| is_reached_at(listener, *public))
    }
}

/// Whether a listener has callers of that address's family. One on all addresses of IPv6 has those of IPv4, too
/// (RFC 3493 section 5.3).
fn is_reached_at(listener: IpAddr, address: IpAddr) -> bool {
    listener.is_ipv4() == address.is_ipv4() || listener == IpAddr::V6(Ipv6Addr::UNSPECIFIED)
}

pub(super) fn read(settings: &mut Settings) -> Sip {
    let listen: Vec<Option<Listen>> = settings
        .list("sip.listen")
        .iter()
        .map(|s| listen(s))
        .collect();
    if listen.contains(&None) {
        settings.wrong(
            "sip.listen",
            "must be addresses with ports, as in udp:127.0.0.1:5060",
        );
    }
    let listen: Vec<Listen> = listen.into_iter().flatten().collect();
    let sources: Vec<Option<Net>> = settings
        .list("sip.sources")
        .iter()
        .map(|s| Net::parse(s))
        .collect();
    if sources.contains(&None) {
        settings.wrong(
            "sip.sources",
            "must be addresses or blocks of them, as in 192.0.2.1, 198.51.100.0/24",
        );
    }
    let sources: Vec<Net> = sources.into_iter().flatten().collect();
    let tls = super::tls(settings, "sip.tls_certificate", "sip.tls_key");
    if tls.is_none() && listen.iter().any(|l| l.transport == Transport::Tls) {
        settings.wrong(
            "sip.tls_certificate",
            "must be set with sip.tls_key when sip.listen has tls:",
        );
    }
    let name = settings.text("sip.tls_name");
    let tls_name = Host::parse(&name).filter(|host| matches!(host, Host::Name(_)));
    if !name.is_empty() && tls_name.is_none() {
        settings.wrong("sip.tls_name", "must be a host name, as in sip.example.com");
    }
    let public_addresses = public_addresses(settings, &listen);
    let is_told = |listen: &Listen| {
        let own = listen.addr.ip();
        let mut public = public_addresses.iter();
        !own.is_unspecified() || public.any(|public| is_reached_at(own, *public))
    };
    if !sources.is_empty() && !listen.iter().all(is_told) {
        settings.wrong(
            "sip.public_address",
            "must be set when sip.listen names no address that callers reach",
        );
    }
    let mut numbers = BTreeMap::new();
    for entry in settings.list("sip.numbers") {
        let agent = entry.split_once('=').and_then(|(number, agent)| {
            let agent: AgentId = agent.trim().parse().ok()?;
            numbers
                .insert(number.trim().to_owned(), agent)
                .is_none()
                .then_some(())
        });
        if agent.is_none() {
            settings.wrong(
                "sip.numbers",
                "must be numbers with an agent's id each, as in +4930123456=<id>, each number once",
            );
        }
    }
    let agent = settings.text("sip.agent");
    let everybody = agent.parse().ok();
    if !agent.is_empty() && everybody.is_none() {
        settings.wrong("sip.agent", "must be the id of an agent");
    }
    let encryption = settings.word(
        "sip.media_encryption",
        &[
            ("allow", Encryption::Allow),
            ("disable", Encryption::Disable),
            ("require", Encryption::Require),
        ],
    );
    Sip {
        listen,
        public_addresses,
        sources,
        account: settings.text("sip.account"),
        numbers,
        agent: everybody,
        encryption,
        account_trunks: settings.int("sip.account_trunks", 1, 1_000_000),
        trunk_calls: settings.int("sip.trunk_calls", 1, 1_000_000),
        trunk_calls_per_hour: settings.int("sip.trunk_calls_per_hour", 1, 1_000_000),
        keep_alive: match settings.int("sip.keep_alive_seconds", 0, 3600) {
            0 => None,
            seconds => Some(Duration::from_secs(seconds.into())),
        },
        message_seconds: settings.int("sip.message_seconds", 5, 3600),
        tls,
        tls_name,
        ports: ports(settings),
    }
}

/// At most one address of each family, that something is listened on for.
fn public_addresses(settings: &mut Settings, listen: &[Listen]) -> Vec<IpAddr> {
    let named = settings.list("sip.public_address");
    let read: Option<Vec<IpAddr>> = named.iter().map(|text| text.parse().ok()).collect();
    let public = read.unwrap_or_default();
    let of_one_family = |pair: &[IpAddr]| pair[0].is_ipv4() == pair[1].is_ipv4();
    let is_none = public.len() != named.len() || public.iter().any(IpAddr::is_unspecified);
    if is_none || public.len() > 2 || public.windows(2).any(of_one_family) {
        settings.wrong(
            "sip.public_address",
            "must be an IP address, or one of IPv4 and one of IPv6 with a comma between",
        );
    }
    let is_heard = |public: &IpAddr| {
        let mut own = listen.iter().map(|listen| listen.addr.ip());
        own.any(|own| is_reached_at(own, *public))
    };
    if !public.iter().all(is_heard) {
        settings.wrong(
            "sip.public_address",
            "must be of a family, IPv4 or IPv6, that sip.listen has an address of",
        );
    }
    public
}

/// `udp:127.0.0.1:5060`; without a transport it is UDP.
fn listen(text: &str) -> Option<Listen> {
    let (transport, addr) = match text.split_once(':') {
        Some(("udp", addr)) => (Transport::Udp, addr),
        Some(("tcp", addr)) => (Transport::Tcp, addr),
        Some(("tls", addr)) => (Transport::Tls, addr),
        _ => (Transport::Udp, text),
    };
    let addr: SocketAddr = addr.parse().ok()?;
    Some(Listen { transport, addr })
}

fn ports(settings: &mut Settings) -> (u16, u16) {
    let text = settings.text("rtp.ports");
    let range = text
        .split_once('-')
        .and_then(|(first, last)| Some((first.parse::<u16>().ok()?, last.parse::<u16>().ok()?)));
    match range {
        Some((first, last)) if first > 0 && first < last => (first, last),
        _ => {
            settings.wrong("rtp.ports", "must be two ports, as in 20000-29999");
            (0, 0)
        }
    }
}
