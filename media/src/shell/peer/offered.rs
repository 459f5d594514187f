//! What the core is given to offer: its codec and our candidates, and which of the caller's candidates are of use.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use rtc::peer_connection::configuration::media_engine::MIME_TYPE_OPUS;
use rtc::peer_connection::transport::{
    CandidateConfig, CandidateHostConfig, RTCIceCandidate, RTCIceCandidateInit,
};
use rtc::rtp_transceiver::rtp_sender::{RTCRtpCodec, RTCRtpCodecParameters};
use rtc::shared::error::Result;

use crate::leg::webrtc::OPUS;
use crate::peer::Reach;

/// Opus as the core knows it: without parameters, which it would take for a part of the name.
pub(super) fn opus() -> RTCRtpCodec {
    RTCRtpCodec {
        mime_type: MIME_TYPE_OPUS.to_owned(),
        clock_rate: 48_000,
        channels: 2,
        sdp_fmtp_line: String::new(),
        rtcp_feedback: Vec::new(),
    }
}

/// The one codec of the core.
pub(super) fn codec() -> RTCRtpCodecParameters {
    RTCRtpCodecParameters {
        rtp_codec: opus(),
        payload_type: OPUS,
    }
}

/// An address of ours as a candidate.
pub(super) fn candidate(public: SocketAddr) -> Result<RTCIceCandidateInit> {
    let host = CandidateHostConfig {
        base_config: CandidateConfig {
            network: "udp".to_owned(),
            address: public.ip().to_string(),
            port: public.port(),
            component: 1,
            ..Default::default()
        },
        ..Default::default()
    };
    RTCIceCandidate::from(&host.new_candidate_host()?).to_json()
}

/// How near callers may be whose candidates are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Near {
    /// At public addresses.
    Nobody,
    /// In private networks, too.
    Network,
    /// On this machine, too.
    Machine,
}

impl Near {
    /// A server that is reached on this machine is one for trying out: all of its callers are near.
    pub(super) fn of(reach: Reach, ours: &[SocketAddr]) -> Self {
        match reach {
            _ if ours.iter().any(|ours| ours.ip().is_loopback()) => Self::Machine,
            Reach::Private => Self::Network,
            Reach::Public => Self::Nobody,
        }
    }
}

/// Whether packets can be sent to a candidate: by UDP, to an address that a caller may have. `None`: it is no candidate.
pub(super) fn reachable(line: &str, near: Near) -> Option<bool> {
    let line = line.strip_prefix("candidate:").unwrap_or(line);
    let mut fields = line.split_ascii_whitespace();
    let (_foundation, component, transport, priority, address, port, typ) = (
        fields.next()?,
        fields.next()?,
        fields.next()?,
        fields.next()?,
        fields.next()?,
        fields.next()?,
        fields.next()?,
    );
    component.parse::<u16>().ok()?;
    priority.parse::<u32>().ok()?;
    port.parse::<u16>().ok()?;
    if typ != "typ" {
        return None;
    }
    // What later versions of ICE may have is passed over (RFC 8839 section 5.1).
    let known = ["host", "srflx", "prflx", "relay"].contains(&fields.next()?);
    let address = address.parse::<IpAddr>();
    let of_a_caller = address.is_ok_and(|address| may_be_a_callers(address, near));
    Some(known && transport.eq_ignore_ascii_case("udp") && of_a_caller)
}

/// Nobody who calls from elsewhere is at the others, and something on this machine or beside it may be.
fn may_be_a_callers(address: IpAddr, near: Near) -> bool {
    let address = address.to_canonical();
    let beside = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    if beside || address.is_unspecified() || address.is_multicast() {
        return false;
    }
    match near {
        Near::Machine => true,
        Near::Network => !address.is_loopback(),
        Near::Nobody => !address.is_loopback() && !is_private(address),
    }
}

/// Whether an address is one of networks that are not the internet: RFC 1918, RFC 6598 (carriers' NAT), RFC 2544
/// (benchmarks), RFC 6890 (protocols, the future); RFC 4193 and site-local of IPv6, and what leads to one of IPv4
/// (RFC 6052, RFC 3056).
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, _] = address.octets();
            address.is_private()
                || a == 0
                || (a == 100 && b & 0xc0 == 64)
                || (a == 192 && b == 0 && c == 0)
                || (a == 198 && b & 0xfe == 18)
                || a >= 240
        }
        IpAddr::V6(address) => match address.segments() {
            [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
                let inner = Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
                is_private(inner.into()) || inner.is_loopback() || inner.is_link_local()
            }
            // Translation of one's own (RFC 8215), IPv4 in its old spelling.
            [0x64, 0xff9b, 1, ..] | [0, 0, 0, 0, 0, 0, ..] => true,
            [first, ..] => first & 0xfe00 == 0xfc00 || first & 0xffc0 == 0xfec0,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_of_use_are_told_from_others_and_from_nonsense() {
        let of = |rest: &str| reachable(&format!("candidate:1 1 {rest}"), Near::Machine);
        assert_eq!(of("udp 2122260223 192.0.2.7 5000 typ host"), Some(true));
        assert_eq!(
            of("UDP 1 2001:db8::7 5000 typ srflx raddr 0.0.0.0 rport 0"),
            Some(true)
        );
        assert_eq!(of("udp 2122260223 4d6e.local 5000 typ host"), Some(false));
        assert_eq!(
            of("tcp 1518280447 192.0.2.7 9 typ host tcptype active"),
            Some(false)
        );
        assert_eq!(of("udp 1 192.0.2.7 5000 typ quantum"), Some(false));
        // Where nobody is who calls from elsewhere.
        for (address, here) in [
            ("127.0.0.1", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("0.0.0.0", false),
            ("::", false),
            ("169.254.169.254", false),
            ("fe80::1", false),
            ("224.0.0.1", false),
            ("ff02::1", false),
            ("255.255.255.255", false),
        ] {
            let line = format!("candidate:1 1 udp 1 {address} 5000 typ host");
            assert_eq!(reachable(&line, Near::Machine), Some(here), "{address}");
            assert_eq!(reachable(&line, Near::Network), Some(false), "{address}");
        }
        for nonsense in [
            "",
            "udp",
            "udp x 192.0.2.7 5000 typ host",
            "udp 1 192.0.2.7 70000 typ host",
            "udp 1 192.0.2.7 5000 host",
        ] {
            assert_eq!(of(nonsense), None, "{nonsense}");
        }
    }
    #[test]
    fn a_stranger_s_candidates_lead_into_no_private_network() {
        let to =
            |address: &str, near| reachable(&format!("1 1 udp 1 {address} 5000 typ host"), near);
        for address in [
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.254",
            "192.168.178.20",
            "::ffff:192.168.0.1",
            "100.64.0.1",
            "100.127.255.254",
            "192.0.0.8",
            "198.18.0.1",
            "240.0.0.1",
            "0.1.2.3",
            "fd00::7",
            "fc00::7",
            "fec0::1",
            "64:ff9b::10.0.0.1",
            "64:ff9b:1::1",
            "2002:a00:1::1",
            "::10.0.0.1",
        ] {
            assert_eq!(to(address, Near::Nobody), Some(false), "{address}");
            assert_eq!(to(address, Near::Network), Some(true), "{address}");
        }
        for address in [
            "8.8.8.8",
            "172.15.0.1",
            "172.32.0.1",
            "100.63.0.1",
            "100.128.0.1",
            "192.169.0.1",
            "198.20.0.1",
            "2001:4860::8",
            "64:ff9b::8.8.8.8",
            "2002:808:808::1",
        ] {
            assert_eq!(to(address, Near::Nobody), Some(true), "{address}");
        }
    }

    #[test]
    fn whoever_calls_a_server_that_is_tried_out_here_is_near() {
        let at = |address: [u8; 4]| [SocketAddr::from((address, 5000))];
        let (here, there) = (at([127, 0, 0, 1]), at([192, 0, 2, 1]));
        assert_eq!(Near::of(Reach::Public, &here), Near::Machine);
        assert_eq!(Near::of(Reach::Public, &there), Near::Nobody);
        assert_eq!(Near::of(Reach::Private, &there), Near::Network);
    }
}
