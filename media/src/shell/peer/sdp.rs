//! The few facts that are read from descriptions (RFC 8866) beside what the core reads of them.

use rtc::rtp_transceiver::RTCRtpTransceiverDirection as Direction;

/// The longest description that is looked at, bytes: a browser's with every codec has some 10 KiB.
pub(super) const LONGEST: usize = 64 << 10;

/// The description without the end of a C string, which some send along.
pub(super) fn without_end(sdp: &str) -> &str {
    sdp.trim_end_matches('\0')
}

/// The value of the first line `a=<name>:<value>`, and of the session or any medium.
pub(super) fn attribute<'a>(sdp: &'a str, name: &str) -> Option<&'a str> {
    sdp.lines().find_map(|line| {
        let value = line.trim_end().strip_prefix("a=")?.strip_prefix(name)?;
        value.strip_prefix(':')
    })
}

/// All fingerprints of a part of a description, in one spelling.
pub(super) fn fingerprints(sdp: &str) -> Vec<String> {
    let mut all: Vec<String> = sdp
        .lines()
        .filter_map(|line| line.trim_end().strip_prefix("a=fingerprint:"))
        .map(|print| {
            let words: Vec<&str> = print.split_ascii_whitespace().collect();
            words.join(" ").to_ascii_lowercase()
        })
        .collect();
    all.sort();
    all.dedup();
    all
}

/// The one hash of certificates that the core computes. A caller may name several, and in any letters (RFC 8122 section 5).
pub(super) const HASH: &str = "sha-256";

/// The description with one stream in its first audio, the first that it names, and the SSRC of that; 0: it names none. The
/// core wants one where there are media beside it: then it is `instead`.
pub(super) fn with_one_stream(sdp: &str, instead: u32) -> (String, u32) {
    let sections = sections(sdp);
    let Some(audio) = audio_of(&sections) else {
        return (sdp.to_owned(), 0);
    };
    let ssrc_of = |line: &str| {
        let value = line.strip_prefix("a=ssrc:")?;
        let ssrc = value.split_ascii_whitespace().next()?;
        ssrc.parse::<u32>().ok().filter(|ssrc| *ssrc != 0)
    };
    let named = sections[audio].lines().find_map(ssrc_of);
    let media = ["m=audio ", "m=video "];
    let others = sections
        .iter()
        .filter(|section| media.iter().any(|kind| section.starts_with(kind)));
    let several = others.count() > 1;
    let mut one = String::with_capacity(sdp.len() + 64);
    for (at, section) in sections.iter().enumerate() {
        if at != audio {
            one.push_str(section);
            continue;
        }
        let is_other = |line: &str| {
            let is_named = || named.is_some() && ssrc_of(line) == named;
            line.starts_with("a=ssrc-group:") || line.starts_with("a=ssrc:") && !is_named()
        };
        let kept = section.split_inclusive('\n');
        one.extend(kept.filter(|line| !is_other(line)));
        if named.is_none() && several {
            if !one.ends_with('\n') {
                one.push_str("\r\n");
            }
            one.push_str(&format!("a=ssrc:{instead} cname:caller\r\n"));
        }
    }
    (one, named.unwrap_or(if several { instead } else { 0 }))
}

/// The parts of a description: the session's, then each medium's, which begins with its line `m=`.
pub(super) fn sections(sdp: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut from = 0;
    for (at, _) in sdp.match_indices("m=") {
        if at == 0 || sdp.as_bytes()[at - 1] == b'\n' {
            parts.push(&sdp[from..at]);
            from = at;
        }
    }
    parts.push(&sdp[from..]);
    parts
}

/// Which part is the first audio that is offered.
pub(super) fn audio_of(sections: &[&str]) -> Option<usize> {
    let mut media = sections.iter().enumerate().skip(1);
    media
        .find(|(_, section)| is_audio(section))
        .map(|(at, _)| at)
}

/// Whether a part is an audio that is offered. A port of 0 refuses a medium, unless it says that another's port is its
/// own (RFC 9143 section 6).
pub(super) fn is_audio(section: &str) -> bool {
    head(section)[0] == "m=audio" && is_offered(section)
}

/// Whether a medium is offered, whatever it is.
pub(super) fn is_offered(section: &str) -> bool {
    head(section)[1] != "0" || has_line(section, "a=bundle-only")
}

/// Medium, port and protocol of the line `m=`.
pub(super) fn head(medium: &str) -> [&str; 3] {
    let mut words = words(medium);
    std::array::from_fn(|_| words.next().unwrap_or_default())
}

/// The formats of the line `m=`.
pub(super) fn formats(medium: &str) -> impl Iterator<Item = &str> {
    words(medium).skip(3)
}

fn words(medium: &str) -> impl Iterator<Item = &str> {
    let first = medium.lines().next().unwrap_or_default();
    first.split_ascii_whitespace()
}

pub(super) fn has_line(section: &str, wanted: &str) -> bool {
    lines(section).any(|line| line == wanted)
}

/// Which way a part of a description flows, if it says so.
pub(super) fn direction(section: &str) -> Option<Direction> {
    lines(section).find_map(direction_in)
}

/// The direction that a line tells.
fn direction_in(line: &str) -> Option<Direction> {
    match line.trim_end() {
        "a=sendrecv" => Some(Direction::Sendrecv),
        "a=sendonly" => Some(Direction::Sendonly),
        "a=recvonly" => Some(Direction::Recvonly),
        "a=inactive" => Some(Direction::Inactive),
        _ => None,
    }
}

/// Which way media flow that do not say so themselves (RFC 8866 section 6.7).
pub(super) fn usual_direction(sections: &[&str]) -> Direction {
    let session = sections.first().and_then(|session| direction(session));
    session.unwrap_or(Direction::Sendrecv)
}

pub(super) fn lines(section: &str) -> impl Iterator<Item = &str> {
    section.lines().map(str::trim_end)
}

/// Which way the first audio flows, as its sender sees it. `None`: no audio is offered.
pub(super) fn audio_direction(sdp: &str) -> Option<Direction> {
    let sections = sections(sdp);
    let audio = audio_of(&sections)?;
    Some(direction(sections[audio]).unwrap_or_else(|| usual_direction(&sections)))
}

/// What we do for an offer of this: both ways where we are let.
pub(super) fn mirrored(offered: Direction) -> Direction {
    match offered {
        Direction::Sendonly => Direction::Recvonly,
        Direction::Recvonly => Direction::Sendonly,
        Direction::Inactive => Direction::Inactive,
        _ => Direction::Sendrecv,
    }
}

/// Whether who says this of the audio holds the call: they do not hear us.
pub(super) fn holds(said: Direction) -> bool {
    matches!(said, Direction::Sendonly | Direction::Inactive)
}

/// Our answer as one of the side that waits for the key exchange (RFC 8842 section 5.3): the core's says `active` always.
pub(super) fn as_passive(answer: &str) -> String {
    answer.replace("a=setup:active", "a=setup:passive")
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFER: &str = "v=0\r\na=group:BUNDLE 0 1\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111 0 126\r\n\
        a=ice-ufrag:abcd\r\na=fingerprint:SHA-256 AA:BB\r\na=sendonly\r\na=rtpmap:111 opus/48000/2\r\n\
        a=rtpmap:126 telephone-event/8000\r\nm=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\n\
        a=fingerprint:sha-256 aa:bb\r\n";

    #[test]
    fn the_facts_of_an_offer() {
        assert_eq!(attribute(OFFER, "ice-ufrag"), Some("abcd"));
        assert_eq!(attribute(OFFER, "ice-pwd"), None);
        assert_eq!(fingerprints(OFFER), ["sha-256 aa:bb"]);
        assert_eq!(audio_direction(OFFER), Some(Direction::Sendonly));
        assert_eq!(mirrored(Direction::Sendonly), Direction::Recvonly);
        assert!(holds(Direction::Sendonly) && !holds(Direction::Recvonly));
    }

    #[test]
    fn the_audio_has_one_stream() {
        let of = |sdp: &str| with_one_stream(sdp, 7);
        let names = "v=0\r\nm=audio 9 X 0\r\na=ssrc-group:FID 5 6\r\na=ssrc:5 cname:x\r\na=ssrc:6 cname:x\r\n\
            a=ssrc:5 msid:a b\r\nm=video 9 X 1\r\na=ssrc:9 cname:x\r\n";
        let one = "v=0\r\nm=audio 9 X 0\r\na=ssrc:5 cname:x\r\na=ssrc:5 msid:a b\r\nm=video 9 X 1\r\na=ssrc:9 cname:x\r\n";
        assert_eq!(of(names), (one.to_owned(), 5));
        assert_eq!(of(one), (one.to_owned(), 5));
        let alone = "v=0\r\nm=audio 9 X 0\r\na=mid:0\r\nm=application 9 Y webrtc-datachannel\r\n";
        assert_eq!(of(alone), (alone.to_owned(), 0));
        for nonsense in ["0 cname:x", "x", "4294967296 cname:x", ""] {
            let sdp =
                format!("{alone}a=ssrc:1 x\r\n").replace("a=mid:0", &format!("a=ssrc:{nonsense}"));
            let told = of(&sdp);
            assert_eq!(told.1, 0, "{nonsense}");
            assert!(
                !told.0.contains(&format!("a=ssrc:{nonsense}\r")),
                "{nonsense}"
            );
        }
        let beside = format!("{alone}m=video 9 X 1\r\n");
        let (told, ssrc) = of(&beside);
        assert_eq!(ssrc, 7);
        assert!(
            told.contains("a=mid:0\r\na=ssrc:7 cname:caller\r\nm=application"),
            "{told}"
        );
        assert_eq!(of("v=0\r\nm=video 9 X 1\r\n").1, 0);
    }

    #[test]
    fn a_direction_of_the_session_holds_for_media_without_their_own() {
        let held = "v=0\r\na=inactive\r\nm=audio 9 X 0\r\nm=video 9 X 1\r\na=sendrecv\r\n";
        assert_eq!(audio_direction(held), Some(Direction::Inactive));
        assert_eq!(audio_direction("v=0\r\nm=audio 0 X 0\r\n"), None);
        let bundled = "v=0\r\nm=audio 0 X 0\r\nm=audio 0 X 0\r\na=bundle-only\r\na=recvonly\r\n";
        assert_eq!(audio_direction(bundled), Some(Direction::Recvonly));
        assert_eq!(
            audio_direction("v=0\r\nm=video 9 X 0\r\na=sendrecv\r\n"),
            None
        );
    }
}
