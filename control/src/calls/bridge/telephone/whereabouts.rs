//! Where the other side of a call is, and where its audio may be sent.
//!
//! A session description may name any address, and who wrote it may be a stranger's carrier: what it names
//! is judged by the rule that holds for trunks' addresses (`egress.allow`), so that nothing is sent to a
//! place inside our own network.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use media::rtp::sdp::Agreed;
use sip::message::Host;
use sip::trunk::Net;

use crate::egress::{self, Allow};

/// Names of carriers that are remembered, and addresses of each; beyond it the list is emptied.
const MOST_NAMES: usize = 4_096;
const MOST_ADDRESSES: usize = 64;

/// The rule for addresses that others name, and where carriers' names have led.
pub(super) struct Rules {
    allow: Allow,
    found: Mutex<HashMap<String, Vec<IpAddr>>>,
}

impl Rules {
    pub(super) fn new(allow: Allow) -> Arc<Self> {
        let found = Mutex::default();
        Arc::new(Self { allow, found })
    }

    /// Whether `host`, a carrier's name or an address that a carrier named, may be called at this address.
    pub(super) fn permit(&self, host: &str, ip: IpAddr) -> bool {
        let permitted = self.allow.name(host) || egress::permits(ip, &self.allow);
        if permitted && host.parse::<IpAddr>().is_err() {
            let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
            if found.len() >= MOST_NAMES {
                found.clear();
            }
            let addresses = found.entry(host.to_ascii_lowercase()).or_default();
            if addresses.len() >= MOST_ADDRESSES {
                addresses.clear();
            }
            if !addresses.contains(&ip) {
                addresses.push(ip);
            }
        }
        permitted
    }

    fn addresses(&self, host: &Host) -> Vec<IpAddr> {
        match host {
            Host::Ip(ip) => vec![*ip],
            Host::Name(name) => {
                let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
                let addresses = found.get(&name.to_ascii_lowercase());
                addresses.cloned().unwrap_or_default()
            }
        }
    }
}

/// Where one call's other side is.
#[derive(Clone)]
pub(super) struct Whereabouts {
    pub(super) rules: Arc<Rules>,
    /// Where its signalling comes from or goes to.
    pub(super) hosts: Vec<Host>,
    /// Blocks that the operator's own settings name for it.
    pub(super) blocks: Vec<Net>,
}

impl Whereabouts {
    /// Where its signalling is, as far as that is known.
    pub(super) fn heard(&self) -> Vec<IpAddr> {
        let hosts = self.hosts.iter();
        hosts
            .flat_map(|host| self.rules.addresses(host))
            .map(|ip| ip.to_canonical())
            .collect()
    }

    /// The agreement as it may be kept: an address that nothing may be sent to is taken for that of a
    /// telephone behind a NAT, whose audio is where its signalling is until its packets say otherwise; and so is a name.
    /// `None`: no address of it is known in the family of `ours`, where our audio is.
    pub(super) fn settle(&self, mut agreed: Agreed, ours: IpAddr) -> Option<Agreed> {
        let mut heard = self.heard();
        heard.retain(|ip| ip.is_ipv4() == ours.is_ipv4());
        let may = |ip: IpAddr| {
            let ip = ip.to_canonical();
            let permitted = || {
                heard.contains(&ip)
                    || self.blocks.iter().any(|block| block.contains(ip))
                    || egress::permits(ip, &self.rules.allow)
            };
            !ip.is_unspecified() && permitted()
        };
        if !may(agreed.remote.ip()) {
            agreed.remote.set_ip(*heard.first()?);
        }
        if !may(agreed.remote_reports.ip()) {
            agreed.remote_reports.set_ip(agreed.remote.ip());
        }
        Some(agreed)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed step is a failed test")]
mod tests {
    use media::rtp::sdp::{self, Encryption, Flow, Local};

    use super::*;

    const OURS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 9));

    fn agreed(address: &str, reports: &str) -> Agreed {
        let offer = format!(
            "v=0\r\no=- 1 1 IN IP4 {address}\r\ns=-\r\nc=IN IP4 {address}\r\nt=0 0\r\n\
             m=audio 4000 RTP/AVP 0\r\na=rtcp:4010 IN IP4 {reports}\r\n"
        );
        let local = Local {
            address: OURS,
            port: 20_000,
            session: 7,
            version: 1,
            codecs: sdp::Codec::ALL.to_vec(),
            encryption: Encryption::Allow,
            random: [0x42; 46],
        };
        let answered = sdp::answer(offer.as_bytes(), &local, Flow::SendRecv);
        answered.unwrap().1
    }

    fn host(text: &str) -> Host {
        Host::parse(text).unwrap()
    }

    #[test]
    fn audio_goes_to_no_address_inside_that_a_carrier_names() {
        let rules = Rules::new(Allow::parse(&["172.16.0.9", "pbx.lan"]).unwrap());
        assert!(rules.permit("pbx.lan", "10.0.0.7".parse().unwrap()));
        assert!(rules.permit("sip.example.com", "8.8.4.4".parse().unwrap()));
        assert!(!rules.permit("evil.example.com", "10.0.0.8".parse().unwrap()));
        let whereabouts = |name: &str, blocks: &[&str]| Whereabouts {
            rules: Arc::clone(&rules),
            hosts: vec![host(name)],
            blocks: blocks.iter().map(|net| Net::parse(net).unwrap()).collect(),
        };
        let public = whereabouts("8.8.8.8", &[]);
        let named = whereabouts("sip.example.com", &[]);
        let allowed = whereabouts("PBX.lan", &[]);
        let unknown = whereabouts("evil.example.com", &[]);
        let own = whereabouts("10.1.0.1", &["10.1.0.0/24"]);
        for (at, address, reports, expected) in [
            // Public, and what the setting names.
            (&public, "9.9.9.9", "9.9.9.9", "9.9.9.9:4000 9.9.9.9:4010"),
            (
                &public,
                "172.16.0.9",
                "172.16.0.9",
                "172.16.0.9:4000 172.16.0.9:4010",
            ),
            // Inside: the telephone is where its signalling is.
            (&public, "10.0.0.5", "10.0.0.5", "8.8.8.8:4000 8.8.8.8:4010"),
            (&public, "127.0.0.1", "9.9.9.9", "8.8.8.8:4000 9.9.9.9:4010"),
            (&public, "9.9.9.9", "127.0.0.1", "9.9.9.9:4000 9.9.9.9:4010"),
            (&public, "0.0.0.0", "0.0.0.0", "8.8.8.8:4000 8.8.8.8:4010"),
            (
                &named,
                "192.168.1.4",
                "192.168.1.4",
                "8.8.4.4:4000 8.8.4.4:4010",
            ),
            // A private trunk that the operator allowed by name, and a block of his own.
            (
                &allowed,
                "10.0.0.7",
                "10.0.0.7",
                "10.0.0.7:4000 10.0.0.7:4010",
            ),
            (
                &allowed,
                "10.0.0.8",
                "10.0.0.8",
                "10.0.0.7:4000 10.0.0.7:4010",
            ),
            (
                &own,
                "10.1.0.20",
                "10.1.0.20",
                "10.1.0.20:4000 10.1.0.20:4010",
            ),
            (
                &own,
                "10.1.1.20",
                "10.1.1.20",
                "10.1.0.1:4000 10.1.0.1:4010",
            ),
            // A name is nowhere else either, whoever allows what.
            (
                &public,
                "media.example.com",
                "media.example.com",
                "8.8.8.8:4000 8.8.8.8:4010",
            ),
            (
                &whereabouts("8.8.8.8", &["0.0.0.0/0"]),
                "media.example.com",
                "9.9.9.9",
                "8.8.8.8:4000 9.9.9.9:4010",
            ),
            (&unknown, "9.9.9.9", "9.9.9.9", "9.9.9.9:4000 9.9.9.9:4010"),
            (&unknown, "10.0.0.8", "10.0.0.8", ""),
        ] {
            let settled = at.settle(agreed(address, reports), OURS);
            let settled = settled.map(|s| format!("{} {}", s.remote, s.remote_reports));
            assert_eq!(settled.unwrap_or_default(), expected, "{address} {reports}");
        }
    }
}
