//! What a description or a candidate must have before anything is begun with it. Pure. The engine reads
//! them in full; here is only what spares a session that would fail: a first offer that is refused here
//! leaves the session open for a better one.

use std::net::IpAddr;

/// Why this cannot be the description of a browser that wants to speak (RFC 8866, RFC 8829).
pub fn description_problem(sdp: &str) -> Option<&'static str> {
    // Some send the end of a C string along.
    let sdp = sdp.trim_end_matches('\0');
    let lines = || sdp.lines().map(str::trim_end);
    if sdp
        .chars()
        .any(|c| c.is_control() && !matches!(c, '\r' | '\n' | '\t'))
    {
        return Some("it holds control characters");
    }
    if lines().find(|line| !line.is_empty()) != Some("v=0") {
        return Some("its first line is not v=0");
    }
    let has = |prefix: &str| lines().any(|line| line.starts_with(prefix));
    let wanted = [
        ("o=", "it has no origin (o=)"),
        ("m=audio ", "it has no audio section (m=audio)"),
        ("a=ice-ufrag:", "it has no ICE user name (a=ice-ufrag)"),
        ("a=ice-pwd:", "it has no ICE password (a=ice-pwd)"),
        (
            "a=fingerprint:",
            "it has no fingerprint of a certificate (a=fingerprint)",
        ),
    ];
    wanted
        .into_iter()
        .find_map(|(prefix, problem)| (!has(prefix)).then_some(problem))
}

/// Why this is no ICE candidate (RFC 8839 section 5.1). An empty one says that there are no more.
pub fn candidate_problem(candidate: &str) -> Option<&'static str> {
    let text = candidate.strip_prefix("a=").unwrap_or(candidate);
    let text = text.strip_prefix("candidate:").unwrap_or(text);
    if text.is_empty() {
        return None;
    }
    let mut words = text.split(' ');
    let mut next = || words.next().unwrap_or_default();
    let (foundation, component, transport) = (next(), next(), next());
    let (priority, address, port) = (next(), next(), next());
    let (typ, kind) = (next(), next());
    let ice_char = |c: char| c.is_ascii_alphanumeric() || c == '+' || c == '/';
    if !(1..=32).contains(&foundation.len()) || !foundation.chars().all(ice_char) {
        return Some("its foundation is not 1 to 32 letters and digits");
    }
    if !component
        .parse::<u16>()
        .is_ok_and(|component| (1..=256).contains(&component))
    {
        return Some("its component is not a number from 1 to 256");
    }
    if !transport.eq_ignore_ascii_case("udp") && !transport.eq_ignore_ascii_case("tcp") {
        return Some("its transport is neither udp nor tcp");
    }
    if !priority
        .parse::<u32>()
        .is_ok_and(|priority| priority > 0 && priority < 1 << 31)
    {
        return Some("its priority is not a number below 2^31");
    }
    let name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    if address.parse::<IpAddr>().is_err() && (address.is_empty() || !address.chars().all(name)) {
        return Some("its address is neither an IP address nor a name");
    }
    if port.parse::<u16>().is_err() {
        return Some("its port is not a number below 65536");
    }
    if typ != "typ" || !["host", "srflx", "prflx", "relay"].contains(&kind) {
        return Some("its type is not host, srflx, prflx or relay");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const SDP: &str = "v=0\r\no=- 1 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\n\
        a=ice-ufrag:abcd\r\na=ice-pwd:abcdefghijklmnopqrstuv\r\na=fingerprint:sha-256 AA:BB\r\n";

    #[test]
    fn a_description_needs_its_parts() {
        assert_eq!(description_problem(SDP), None);
        for odd in [
            SDP.replace('\r', ""),
            format!("{SDP}\0"),
            format!("{SDP}a=mid:0\0\0"),
            format!("\r\n{SDP}"),
            SDP.replace("s=-", "s=Caf\u{e9}"),
        ] {
            assert_eq!(description_problem(&odd), None, "{odd:?}");
        }
        for part in [
            "v=",
            "o=",
            "m=audio",
            "a=ice-ufrag",
            "a=ice-pwd",
            "a=fingerprint",
        ] {
            let without: Vec<&str> = SDP.lines().filter(|line| !line.starts_with(part)).collect();
            assert!(
                description_problem(&without.join("\r\n")).is_some(),
                "{part}"
            );
        }
        for bad in [
            "",
            "{}",
            "v=1",
            "hello",
            &format!("{SDP}\u{1}"),
            &format!("v=0\0{SDP}"),
        ] {
            assert!(description_problem(bad).is_some(), "{bad:?}");
        }
        assert!(description_problem(&SDP.replace("m=audio", "m=video")).is_some());
    }

    #[test]
    fn candidates_of_browsers_are_read() {
        for good in [
            "",
            "candidate:",
            "candidate:842163049 1 udp 1677729535 192.0.2.7 46154 typ srflx raddr 0.0.0.0 rport 0 generation 0 ufrag EEtu",
            "candidate:1 1 UDP 2122252543 4a8b5c9e-1f2d-4c55-a0e1-3f5b.local 54021 typ host",
            "a=candidate:1 1 UDP 2122252543 2001:db8::7 54021 typ host",
            "1 1 tcp 1518280447 192.0.2.7 9 typ host tcptype active",
            "candidate:x/+9 2 udp 1 192.0.2.7 0 typ relay raddr 192.0.2.8 rport 7",
        ] {
            assert_eq!(candidate_problem(good), None, "{good}");
        }
    }

    #[test]
    fn what_is_no_candidate_is_named() {
        for bad in [
            "nonsense",
            "candidate:a-b 1 udp 1 192.0.2.7 9 typ host",
            "candidate:1 0 udp 1 192.0.2.7 9 typ host",
            "candidate:1 257 udp 1 192.0.2.7 9 typ host",
            "candidate:1 1 sctp 1 192.0.2.7 9 typ host",
            "candidate:1 1 udp 0 192.0.2.7 9 typ host",
            "candidate:1 1 udp 2147483648 192.0.2.7 9 typ host",
            "candidate:1 1 udp 1 192.0.2.7;x 9 typ host",
            "candidate:1 1 udp 1  9 typ host",
            "candidate:1 1 udp 1 192.0.2.7 65536 typ host",
            "candidate:1 1 udp 1 192.0.2.7 9 typ smoke",
            "candidate:1 1 udp 1 192.0.2.7 9 host",
            "candidate:1 1 udp 1 192.0.2.7 9",
        ] {
            assert!(candidate_problem(bad).is_some(), "{bad}");
        }
    }
}
