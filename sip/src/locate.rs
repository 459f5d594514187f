//! Where a host's requests go (RFC 3263), given what the resolver found. NAPTR is not asked: a trunk
//! names its transport, and so does a URI that wants another than UDP.

use core::net::{IpAddr, SocketAddr};

use crate::ids::Ids;
use crate::message::{Host, SipUri, Transport};

/// Addresses of one host that are tried, in their order; more make a failing call only slower.
pub const MOST_TARGETS: usize = 8;

/// What has to be looked up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lookup {
    pub host: String,
    /// With a port only addresses are asked for, without one SRV first (RFC 3263 4.2).
    pub port: Option<u16>,
    pub transport: Transport,
}

impl Lookup {
    /// The name whose SRV records are asked for; `None` when the port is known.
    pub fn service(&self) -> Option<String> {
        let label = match self.transport {
            Transport::Udp => "_sip._udp",
            Transport::Tcp => "_sip._tcp",
            Transport::Tls => "_sips._tcp",
        };
        self.port
            .is_none()
            .then(|| format!("{label}.{}", self.host))
    }
}

/// An SRV record with the addresses of its target (RFC 2782).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Srv {
    pub priority: u16,
    pub weight: u16,
    pub port: u16,
    pub addresses: Vec<IpAddr>,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    pub srv: Vec<Srv>,
    /// Of the host itself, used when there is no SRV.
    pub addresses: Vec<IpAddr>,
}

/// Where a URI leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Located {
    /// An address needs no look-up.
    At(Transport, SocketAddr),
    Ask(Lookup),
}

/// Where requests to `uri` go, when nothing says otherwise over `default`.
pub fn locate(uri: &SipUri, default: Transport) -> Located {
    let transport = match uri.transport().as_deref() {
        _ if uri.secure => Transport::Tls,
        Some(named) => Transport::parse(named).unwrap_or(default),
        None => default,
    };
    // `maddr` is not followed: it would let a stranger name the victim of our answers.
    locate_host(&uri.host, uri.port, transport)
}

/// Where a trunk's host and port lead.
pub fn locate_host(host: &Host, port: Option<u16>, transport: Transport) -> Located {
    match host {
        Host::Ip(ip) => Located::At(
            transport,
            SocketAddr::new(ip.to_canonical(), port.unwrap_or(transport.default_port())),
        ),
        Host::Name(name) => Located::Ask(Lookup {
            host: name.to_ascii_lowercase(),
            port,
            transport,
        }),
    }
}

/// All targets of a host, in no order.
pub(crate) fn all_targets(lookup: &Lookup, answers: &Answers) -> Vec<SocketAddr> {
    if lookup.port.is_none() && !answers.srv.is_empty() {
        let of = |srv: &Srv| {
            let port = srv.port;
            let addresses = srv.addresses.clone();
            addresses
                .into_iter()
                .map(move |ip| SocketAddr::new(ip, port))
        };
        return answers.srv.iter().flat_map(of).collect();
    }
    let port = lookup.port.unwrap_or(lookup.transport.default_port());
    let own = answers.addresses.iter();
    own.map(|ip| SocketAddr::new(*ip, port)).collect()
}

/// The targets in the order in which they are tried: by priority, then drawn by weight (RFC 2782).
pub fn targets(lookup: &Lookup, answers: &Answers, ids: &mut Ids) -> Vec<SocketAddr> {
    let mut targets = Vec::new();
    if lookup.port.is_none() && !answers.srv.is_empty() {
        for srv in in_order(answers.srv.clone(), ids) {
            let own = srv.addresses.iter();
            targets.extend(own.map(|ip| SocketAddr::new(*ip, srv.port)));
        }
    } else {
        let port = lookup.port.unwrap_or(lookup.transport.default_port());
        let own = answers.addresses.iter();
        targets.extend(own.map(|ip| SocketAddr::new(*ip, port)));
    }
    let mut unique = Vec::with_capacity(targets.len().min(MOST_TARGETS));
    for target in targets {
        if !unique.contains(&target) && unique.len() < MOST_TARGETS {
            unique.push(target);
        }
    }
    unique
}

fn in_order(mut records: Vec<Srv>, ids: &mut Ids) -> Vec<Srv> {
    records.sort_by_key(|srv| (srv.priority, srv.weight));
    let mut ordered = Vec::with_capacity(records.len());
    while let Some(first) = records.first() {
        let priority = first.priority;
        let alike = records
            .iter()
            .take_while(|srv| srv.priority == priority)
            .count();
        // Those of weight 0 come first in the running sum, so they are drawn with a small chance.
        let sum: u64 = records[..alike]
            .iter()
            .map(|srv| u64::from(srv.weight))
            .sum();
        let drawn = ids.below(sum + 1);
        let mut running = 0;
        let chosen = records[..alike]
            .iter()
            .position(|srv| {
                running += u64::from(srv.weight);
                running >= drawn
            })
            .unwrap_or(0);
        ordered.push(records.remove(chosen));
    }
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Uri;

    fn srv(priority: u16, weight: u16, last: u8) -> Srv {
        Srv {
            priority,
            weight,
            port: 5080,
            addresses: vec![IpAddr::from([192, 0, 2, last])],
        }
    }

    fn ask(port: Option<u16>, transport: Transport) -> Lookup {
        Lookup {
            host: "sip.example.com".to_owned(),
            port,
            transport,
        }
    }

    fn located(text: &str) -> Located {
        let uri = Uri::parse(text).unwrap();
        locate(uri.sip().unwrap(), Transport::Udp)
    }

    #[test]
    fn an_address_needs_no_look_up() {
        let at = |text: &str| text.parse().unwrap();
        assert_eq!(
            located("sip:a@192.0.2.4"),
            Located::At(Transport::Udp, at("192.0.2.4:5060"))
        );
        assert_eq!(
            located("sip:a@[2001:db8::1]:5090;transport=TCP"),
            Located::At(Transport::Tcp, at("[2001:db8::1]:5090"))
        );
        // An IPv4 address, whatever it is written as.
        assert_eq!(
            located("sip:a@[::ffff:192.0.2.4]:5090"),
            Located::At(Transport::Udp, at("192.0.2.4:5090"))
        );
        assert_eq!(
            located("sips:a@192.0.2.4"),
            Located::At(Transport::Tls, at("192.0.2.4:5061"))
        );
        // An unlisted transport cannot be spoken, and maddr is not followed.
        assert_eq!(
            located("sip:a@192.0.2.4;transport=sctp;maddr=203.0.113.1"),
            Located::At(Transport::Udp, at("192.0.2.4:5060"))
        );
    }

    #[test]
    fn a_name_with_a_port_asks_for_addresses_only() {
        assert_eq!(
            located("sip:a@SIP.example.com:5070"),
            Located::Ask(ask(Some(5070), Transport::Udp))
        );
        let answers = Answers {
            srv: vec![srv(1, 1, 1)],
            addresses: vec![IpAddr::from([192, 0, 2, 50])],
        };
        let mut ids = Ids::from_number(1);
        let found = targets(&ask(Some(5070), Transport::Udp), &answers, &mut ids);
        assert_eq!(found, ["192.0.2.50:5070".parse().unwrap()]);
        assert_eq!(ask(Some(5070), Transport::Udp).service(), None);
        assert_eq!(
            ask(None, Transport::Tls).service().as_deref(),
            Some("_sips._tcp.sip.example.com")
        );
    }

    #[test]
    fn without_srv_the_host_itself_is_asked_at_the_default_port() {
        let answers = Answers {
            srv: Vec::new(),
            addresses: vec![IpAddr::from([192, 0, 2, 50]), IpAddr::from([192, 0, 2, 50])],
        };
        let found = targets(
            &ask(None, Transport::Tls),
            &answers,
            &mut Ids::from_number(1),
        );
        assert_eq!(found, ["192.0.2.50:5061".parse().unwrap()]);
    }

    #[test]
    fn a_lower_priority_comes_first_whatever_its_weight() {
        let answers = Answers {
            srv: vec![srv(20, 100, 3), srv(10, 0, 1), srv(10, 0, 2)],
            addresses: Vec::new(),
        };
        for seed in 0..50 {
            let found = targets(
                &ask(None, Transport::Udp),
                &answers,
                &mut Ids::from_number(seed),
            );
            assert_eq!(found.len(), 3);
            assert_eq!(found[2], "192.0.2.3:5080".parse().unwrap());
        }
    }

    #[test]
    fn weights_are_shares() {
        let answers = Answers {
            srv: vec![srv(10, 75, 1), srv(10, 25, 2)],
            addresses: Vec::new(),
        };
        let mut ids = Ids::from_number(7);
        let heavy = (0..4_000)
            .filter(|_| {
                let found = targets(&ask(None, Transport::Udp), &answers, &mut ids);
                found[0] == "192.0.2.1:5080".parse().unwrap()
            })
            .count();
        assert!((2_850..3_150).contains(&heavy), "{heavy} of 4,000");
    }
}
