//! Descriptions as the core reads them: what RFC 8866 and RFC 9143 leave to be understood, said outright; and the
//! core's own as the other side reads them.

use rtc::rtp_transceiver::RTCRtpTransceiverDirection as Direction;

use super::codecs::{Codecs, none_known, opus_alone, refused};
use super::sdp::{
    attribute, audio_of, direction, direction_in, is_audio, sections, usual_direction,
};

/// Lines that say where a medium of its own is.
const OWN_WAY: [&str; 3] = ["a=ice-", "a=candidate:", "a=fingerprint:"];

/// Lines that say how the way of an answer's media is gone: those that share it take it from the first of them that is
/// not refused (RFC 9143 sections 7.1.3 and 7.3). In their order.
const WAY: [&str; 7] = [
    "a=setup:",
    "a=ice-ufrag:",
    "a=ice-pwd:",
    "a=ice-options:",
    "a=fingerprint:",
    "a=candidate:",
    "a=end-of-candidates",
];

/// A description as the core is given it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plain {
    pub(super) sdp: String,
    /// Its media share one way (RFC 9143), as the core's always do. Where they do not, all but the audio are refused.
    pub(super) bundled: bool,
    /// What its first audio really says.
    pub(super) codecs: Codecs,
}

/// The description with a direction in each of its media and with the group that the core looks for. Its first audio
/// flows as `audio` says, or as it does. An error tells why the core could not answer all of it.
///
/// The core has a sender for audio that flows both ways alone, and keeps it: an offer whose audio begins on hold is
/// told to it as one of both ways, and what is answered is ours to say.
///
/// `opus`: the number under which the core knows Opus; `None`: it is to learn the description's. It never learns another.
pub(super) fn plain(
    sdp: &str,
    audio: Option<Direction>,
    opus: Option<u8>,
) -> Result<Plain, &'static str> {
    let sections = sections(sdp);
    let ours = audio_of(&sections).ok_or("no audio")?;
    let codecs = Codecs::of(sections[ours])
        .ok_or("no audio codec in common: its audio needs opus/48000/2 (RFC 7587)")?;
    let opus = opus.unwrap_or(codecs.opus);
    let mid = attribute(sections[ours], "mid").filter(|mid| !mid.is_empty());
    let group = sections[0].lines().find(|line| {
        let mut names = line
            .strip_prefix("a=group:BUNDLE ")
            .unwrap_or_default()
            .split_ascii_whitespace();
        names.any(|name| Some(name) == mid)
    });
    let bundled = group.is_some();
    if !bundled && ours != 1 {
        return Err("without a BUNDLE group its audio has to come first");
    }
    let usual = usual_direction(&sections);
    let mut plain = String::with_capacity(sdp.len() + 64);
    for (at, section) in sections.iter().enumerate() {
        let is_medium = at > 0;
        let kind = section.split(' ').next().unwrap_or_default();
        let flows = match kind {
            _ if !is_medium => None,
            "m=audio" | "m=video" => Some(direction(section).unwrap_or(usual)),
            "m=application" if section.lines().next().is_some_and(is_channel) => None,
            _ => return Err("a medium that is none of audio, video and webrtc-datachannel"),
        };
        let flows = flows.map(|flows| audio.filter(|_| at == ours).unwrap_or(flows));
        let told = match kind {
            "m=audio" => opus_alone(section, opus),
            "m=video" => none_known(section),
            _ => (*section).to_owned(),
        };
        for line in told.split_inclusive('\n') {
            let elsewhere = is_medium && at != ours && !bundled;
            let drop = (!is_medium && line.starts_with("a=group:"))
                || (elsewhere && OWN_WAY.iter().any(|own| line.starts_with(own)))
                || (flows.is_some() && direction_in(line).is_some());
            if !drop {
                plain.push_str(line);
            }
        }
        if !plain.is_empty() && !plain.ends_with('\n') {
            plain.push_str("\r\n");
        }
        if let Some(flows) = flows {
            plain.push_str(&format!("a={flows}\r\n"));
        }
        if let Some(group) = group.filter(|_| !is_medium) {
            plain.push_str(&format!("{}\r\n", group.trim_end()));
        } else if let Some(mid) = mid.filter(|_| !is_medium) {
            plain.push_str(&format!("a=group:BUNDLE {mid}\r\n"));
        }
    }
    Ok(Plain {
        sdp: plain,
        bundled,
        codecs,
    })
}

/// The core's answer to an offer with the offer's own codecs. An audio is refused that has none which is spoken here, or
/// that the offer itself refuses. The core says of its first medium where we are, whether that is refused or not; here the
/// first says it that is not.
pub(super) fn answering(answer: &str, offer: &str) -> String {
    let (ours, theirs) = (sections(answer), sections(offer));
    let mut media: Vec<String> = Vec::new();
    let mut gone: Vec<&str> = Vec::new();
    for (at, medium) in ours.iter().enumerate().skip(1) {
        let offered = theirs.get(at).copied().unwrap_or_default();
        media.push(if !medium.starts_with("m=audio ") {
            (*medium).to_owned()
        } else if let Some(codecs) = Codecs::of(offered).filter(|_| is_audio(offered)) {
            codecs.written_into(medium)
        } else {
            gone.extend(attribute(medium, "mid"));
            refused(medium, offered)
        });
    }
    lead_by_the_first_kept(&mut media, &ours[1..]);
    // A medium that is refused shares no way (RFC 9143 section 7.3.2).
    let mut written = String::with_capacity(answer.len() + 256);
    for line in ours[0].split_inclusive('\n') {
        match line.strip_prefix("a=group:BUNDLE ") {
            Some(names) if !gone.is_empty() => {
                let left = names.split_ascii_whitespace();
                let left: Vec<&str> = left.filter(|name| !gone.contains(name)).collect();
                written.push_str(&format!("a=group:BUNDLE {}\r\n", left.join(" ")));
            }
            _ => written.push_str(line),
        }
    }
    written + &media.concat()
}

/// Takes the way out of the `media` that are refused. The first of the others has what it lacks of it from the first of
/// the core's that has it.
fn lead_by_the_first_kept(media: &mut [String], ours: &[&str]) {
    let is_way = |line: &str| WAY.iter().any(|own| line.starts_with(own));
    let mut leads = true;
    for medium in media {
        let is_refused = medium.split(' ').nth(1) == Some("0");
        if is_refused {
            let kept = medium.split_inclusive('\n').filter(|line| !is_way(line));
            *medium = kept.collect();
        } else if std::mem::take(&mut leads) {
            for own in WAY {
                let lines = |medium: &str| -> String {
                    let lines = medium.split_inclusive('\n');
                    lines.filter(|line| line.starts_with(own)).collect()
                };
                if lines(medium).is_empty() {
                    let of_ours = ours.iter().map(|medium| lines(medium));
                    medium.extend(of_ours.into_iter().find(|lines| !lines.is_empty()));
                }
            }
        }
    }
}

/// The core's offer with our codecs.
pub(super) fn offering(offer: &str) -> String {
    let sections = sections(offer);
    let written = sections.iter().map(|section| {
        if section.starts_with("m=audio ") {
            Codecs::ours().written_into(section)
        } else {
            (*section).to_owned()
        }
    });
    written.collect()
}

/// An answer to an offer that has no group has none either (RFC 9143 section 7.3).
pub(super) fn without_group(answer: &str) -> String {
    let lines = answer.split_inclusive('\n');
    lines.filter(|line| !line.starts_with("a=group:")).collect()
}

/// Whether a line `m=application` is a data channel's (RFC 8841 section 4.2).
fn is_channel(medium: &str) -> bool {
    medium.trim_end().ends_with(" webrtc-datachannel")
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPUS: &str = "a=rtpmap:111 opus/48000/2\r\n";

    fn sdp_of(offer: &str, audio: Option<Direction>) -> String {
        plain(offer, audio, None).expect("a description").sdp
    }

    #[test]
    fn every_medium_says_its_direction() {
        let offer = format!(
            "v=0\r\na=group:BUNDLE 0 1 2\r\na=sendonly\r\n\
             m=audio 9 X 111\r\n{OPUS}a=mid:0\r\nm=video 9 X 34\r\na=recvonly\r\na=mid:1\r\n\
             m=application 9 X webrtc-datachannel\r\na=mid:2"
        );
        let said = format!(
            "v=0\r\na=sendonly\r\na=group:BUNDLE 0 1 2\r\n\
             m=audio 9 X 111\r\n{OPUS}a=mid:0\r\na=sendonly\r\n\
             m=video 9 X 96\r\na=rtpmap:96 none/90000\r\na=mid:1\r\na=recvonly\r\n\
             m=application 9 X webrtc-datachannel\r\na=mid:2\r\n"
        );
        assert_eq!(sdp_of(&offer, None), said);
        let both = said.replacen("a=mid:0\r\na=sendonly", "a=mid:0\r\na=sendrecv", 1);
        assert_eq!(sdp_of(&offer, Some(Direction::Sendrecv)), both);
        assert_eq!(sdp_of(&said, None), said);
        assert!(plain(&offer, None, None).expect("a description").bundled);
    }

    #[test]
    fn without_a_group_the_audio_alone_is_there() {
        let offer = format!(
            "v=0\r\na=group:LS 0 1\r\nm=audio 9 X 111\r\n{OPUS}a=mid:0\r\na=ice-ufrag:a\r\na=sendrecv\r\n\
             m=application 9 X webrtc-datachannel\r\na=mid:1\r\na=ice-ufrag:b\r\na=fingerprint:x\r\n"
        );
        let said = format!(
            "v=0\r\na=group:BUNDLE 0\r\nm=audio 9 X 111\r\n{OPUS}a=mid:0\r\na=ice-ufrag:a\r\na=sendrecv\r\n\
             m=application 9 X webrtc-datachannel\r\na=mid:1\r\n"
        );
        let plain = plain(&offer, None, None).expect("a description");
        assert_eq!(plain.sdp, said);
        assert!(!plain.bundled);
        assert_eq!(
            without_group(&said),
            said.replace("a=group:BUNDLE 0\r\n", "")
        );
    }

    #[test]
    fn what_cannot_be_answered_whole_is_refused() {
        let of = |offer: &str| plain(offer, None, None).expect_err("a refusal");
        assert_eq!(of("v=0\r\nm=video 9 X 96\r\n"), "no audio");
        let audio = format!("m=audio 9 X 111\r\n{OPUS}a=mid:0\r\n");
        let text = format!("v=0\r\na=group:BUNDLE 0\r\n{audio}m=text 9 X 98\r\n");
        assert!(of(&text).contains("none of audio"));
        let second = format!("v=0\r\nm=video 9 X 96\r\na=mid:1\r\n{audio}");
        assert!(of(&second).contains("BUNDLE"));
        let other = "v=0\r\na=group:BUNDLE 0\r\nm=audio 9 X 0 111\r\na=rtpmap:111 opus/16000/2\r\na=mid:0\r\n";
        assert!(of(other).contains("opus/48000/2"));
    }

    #[test]
    fn the_first_medium_that_is_kept_says_the_way() {
        let offer = format!(
            "v=0\r\na=group:BUNDLE 0 1 2 3\r\nm=video 9 X 34\r\na=mid:0\r\nm=audio 0 X 8\r\na=mid:1\r\n\
             m=application 9 X webrtc-datachannel\r\na=mid:2\r\nm=audio 9 X 111\r\n{OPUS}a=mid:3\r\n"
        );
        let candidates = "a=candidate:1 1 udp 1 192.0.2.7 5000 typ host\r\na=candidate:2 1 udp 1 192.0.2.8 5000 typ host\r\n\
            a=end-of-candidates\r\n";
        let names = "a=ice-ufrag:u\r\na=ice-pwd:p\r\n";
        let answer = format!(
            "v=0\r\na=fingerprint:sha-256 AA\r\na=group:BUNDLE 1 2 3\r\n\
             m=video 0 Y 0\r\na=mid:0\r\n{candidates}m=audio 9 Y 111\r\na=setup:active\r\na=mid:1\r\n{names}\
             m=application 9 Y webrtc-datachannel\r\na=mid:2\r\n{names}\
             m=audio 9 Y 111\r\na=setup:active\r\na=mid:3\r\n{names}"
        );
        let written = answering(&answer, &offer);
        let asked = super::super::codecs::ASKED;
        let expected = format!(
            "v=0\r\na=fingerprint:sha-256 AA\r\na=group:BUNDLE 2 3\r\n\
             m=video 0 Y 0\r\na=mid:0\r\nm=audio 0 Y 8\r\na=mid:1\r\n\
             m=application 9 Y webrtc-datachannel\r\na=mid:2\r\n{names}a=setup:active\r\n{candidates}\
             m=audio 9 Y 111\r\n{OPUS}a=fmtp:111 {asked}\r\na=setup:active\r\na=mid:3\r\n{names}"
        );
        assert_eq!(written, expected);
        // What is so written stays so.
        assert_eq!(answering(&written, &offer), written);
    }

    #[test]
    fn the_core_knows_opus_under_one_number() {
        let offer = format!(
            "v=0\r\na=group:BUNDLE 0 1\r\nm=audio 9 X 0 111 126\r\n{OPUS}a=fmtp:111 stereo=1\r\na=mid:0\r\na=sendrecv\r\n\
             m=audio 9 X 8\r\na=mid:1\r\na=sendrecv\r\nm=audio 0 X 111\r\n{OPUS}a=mid:2\r\na=inactive\r\n"
        );
        let told = plain(&offer, None, Some(96)).expect("a description");
        assert_eq!(told.codecs.opus, 111);
        let lines = "m=audio 9 X 96\r\na=rtpmap:96 opus/48000/2\r\n";
        assert_eq!(told.sdp.matches(lines).count(), 2, "{}", told.sdp);
        assert!(told.sdp.contains("m=audio 0 X 96\r\n"), "{}", told.sdp);
        // The core's answer speaks of its own number, and takes the audio that has no Opus.
        let answer = "v=0\r\na=group:BUNDLE 0 1\r\nm=audio 9 Y 96\r\na=rtpmap:96 opus/48000/2\r\na=mid:0\r\n\
            m=audio 9 Y 96\r\na=rtpmap:96 opus/48000/2\r\na=mid:1\r\n\
            m=audio 9 Y 96\r\na=rtpmap:96 opus/48000/2\r\na=mid:2\r\n";
        let written = answering(answer, &offer);
        let asked = super::super::codecs::ASKED;
        let expected = format!(
            "v=0\r\na=group:BUNDLE 0\r\nm=audio 9 Y 111\r\n{OPUS}a=fmtp:111 {asked}\r\na=mid:0\r\n\
             m=audio 0 Y 8\r\na=mid:1\r\nm=audio 0 Y 111\r\na=mid:2\r\n"
        );
        assert_eq!(written, expected);
    }
}
