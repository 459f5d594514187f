//! What the core is given to offer: its codec and our candidates, and which of the caller's candidates are of use.

use std::net::{IpAddr, SocketAddr};

use rtc::peer_connection::configuration::media_engine::MIME_TYPE_OPUS;
use rtc::peer_connection::transport::{
    CandidateConfig, CandidateHostConfig, RTCIceCandidate, RTCIceCandidateInit,
};
use rtc::rtp_transceiver::rtp_sender::{RTCRtpCodec, RTCRtpCodecParameters};
use rtc::shared::error::Result;

use crate::leg::webrtc::OPUS;

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

/// Whether packets can be sent to a candidate: by UDP, to an address that a caller may have. `loopback`: whether
/// callers may be on this machine. `None`: it is no candidate.
pub(super) fn reachable(line: &str, loopback: bool) -> Option<bool> {
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
    if typ != "typ" || fields.next().is_none() {
        return None;
    }
    let address = address.parse::<IpAddr>();
    let of_a_caller = address.is_ok_and(|address| may_be_a_callers(address, loopback));
    Some(transport.eq_ignore_ascii_case("udp") && of_a_caller)
}

/// Nobody who calls from elsewhere is at the others, and something on this machine or beside it may be.
fn may_be_a_callers(address: IpAddr, loopback: bool) -> bool {
    let address = address.to_canonical();
    let near = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    let nobody = near || address.is_unspecified() || address.is_multicast();
    !nobody && (loopback || !address.is_loopback())
}

/// A description without the candidates that are not reachable, and how many are left.
pub(super) fn with_reachable(sdp: &str, loopback: bool) -> (String, usize) {
    let mut left = 0;
    let kept = sdp.split_inclusive('\n').filter(|line| {
        let Some(candidate) = line.trim().strip_prefix("a=candidate:") else {
            return true;
        };
        let keep = reachable(candidate, loopback) != Some(false);
        left += usize::from(keep);
        keep
    });
    (kept.collect(), left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_of_use_are_told_from_others_and_from_nonsense() {
        let of = |rest: &str| reachable(&format!("candidate:1 1 {rest}"), true);
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
            assert_eq!(reachable(&line, true), Some(here), "{address}");
            assert_eq!(reachable(&line, false), Some(false), "{address}");
        }
        let sdp = "v=0\r\na=candidate:1 1 udp 1 127.0.0.1 5000 typ host\r\n\
            a=candidate:2 1 udp 1 192.0.2.7 5000 typ host\r\na=mid:0\r\n";
        assert_eq!(with_reachable(sdp, true), (sdp.to_owned(), 2));
        let left = sdp.replace("a=candidate:1 1 udp 1 127.0.0.1 5000 typ host\r\n", "");
        assert_eq!(with_reachable(sdp, false), (left, 1));
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
}
