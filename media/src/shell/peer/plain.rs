//! Descriptions as the core reads them, and the core's own as the other side reads them.
//!
//! The core is told of what is taken alone, in our own words: one audio, the data channel beside it, and the one way that
//! both share. It sees nothing else that a description may have: other media, formats without a map, ways of their own.
//! What it does not see is refused by our answer, medium for medium (RFC 8829 section 5.3.1).

use rtc::rtp_transceiver::RTCRtpTransceiverDirection as Direction;

use super::codecs::Codecs;
use super::offered::{Near, reachable};
use super::sdp::{
    HASH, attribute, direction, fingerprints, formats, has_line, head, is_audio, is_offered, lines,
    sections, usual_direction,
};

/// A description that can be taken.
#[derive(Debug)]
pub(super) struct Plain {
    /// As the core is given it.
    pub(super) sdp: String,
    /// What its audio says.
    pub(super) codecs: Codecs,
    /// Which way its audio flows, as its sender sees it.
    pub(super) flows: Direction,
    pub(super) way: Way,
    taken: Taken,
}

/// How the other side is reached, and how it is known.
#[derive(Debug)]
pub(super) struct Way {
    /// Name and password of ICE.
    pub(super) name: String,
    pub(super) password: String,
    /// All of them, in one spelling.
    pub(super) fingerprints: Vec<String>,
    /// Who begins the key exchange, if it is said.
    pub(super) setup: Option<String>,
    /// Those that can be reached.
    pub(super) candidates: Vec<String>,
    options: Option<String>,
}

/// Which parts of a description are taken.
#[derive(Debug)]
struct Taken {
    audio: usize,
    channel: Option<usize>,
    /// Those whose media share one way (RFC 9143), in the order of their group; none: the audio is alone.
    group: Vec<usize>,
}

/// What the core calls the audio and the channel, whatever their names are.
const AUDIO: &str = "0";
const CHANNEL: &str = "1";

/// Media of a description, and names of a group: more offers nobody, and each is looked for among all.
const MOST_MEDIA: usize = 64;

/// Candidates of a way that are read: one more than a caller may have, as each is looked for among all.
const MOST_CANDIDATES: usize = 101;

/// Lines of an audio that tell its streams.
const STREAMS: [&str; 3] = ["a=ssrc:", "a=ssrc-group:", "a=msid:"];

/// Lines that say how a medium's way is gone, as a medium that is refused has them, too: some peers take no description
/// in which one is without.
const WAY: [&str; 3] = ["a=ice-ufrag:", "a=ice-pwd:", "a=setup:"];

/// Reads a description. An error tells why it cannot be taken.
///
/// The core has a sender for audio that flows both ways alone, and keeps it: an offer whose audio begins on hold is
/// told to it as one of both ways (`flows`), and what is answered is ours to say. `None`: the core is told what is said.
///
/// `opus`: the number under which the core knows Opus; `None`: it is to learn the description's. It never learns another.
pub(super) fn plain(
    sdp: &str,
    flows: Option<Direction>,
    opus: Option<u8>,
    near: Near,
) -> Result<Plain, &'static str> {
    let parts = sections(sdp);
    if parts.len() > 1 + MOST_MEDIA {
        return Err("more than 64 media");
    }
    let mut offered = (1..parts.len()).filter(|at| is_audio(parts[*at]));
    let first = offered.clone().next().ok_or("no audio")?;
    let audio = offered.find_map(|at| Some((at, Codecs::of(parts[at])?)));
    let taken = Taken::of(&parts, audio.as_ref().map_or(first, |(at, _)| *at))?;
    let way = Way::of(&parts, &taken, near)?;
    let (audio, codecs) =
        audio.ok_or("no audio codec in common: its audio needs opus/48000/2 (RFC 7587)")?;
    let said = direction(parts[audio]).unwrap_or_else(|| usual_direction(&parts));
    let opus = opus.unwrap_or(codecs.opus);
    Ok(Plain {
        sdp: taken.told(&parts, &way, flows.unwrap_or(said), opus),
        codecs,
        flows: said,
        way,
        taken,
    })
}

impl Taken {
    fn of(parts: &[&str], audio: usize) -> Result<Self, &'static str> {
        let of_media = parts.iter().skip(1).map(|part| mid(part));
        let names: Vec<Option<&str>> = [None].into_iter().chain(of_media).collect();
        for (at, name) in names.iter().enumerate().skip(1) {
            if name.is_some() && names[1..at].contains(name) {
                return Err("two of its media have one mid");
            }
        }
        let group = lines(parts[0])
            .filter_map(|line| line.strip_prefix("a=group:BUNDLE "))
            .map(|group| group.split_ascii_whitespace().take(MOST_MEDIA))
            .find(|group| names[audio].is_some_and(|own| group.clone().any(|name| name == own)));
        let mut shared: Vec<usize> = Vec::new();
        for name in group.into_iter().flatten() {
            let place = names.iter().position(|own| *own == Some(name));
            shared.extend(place.filter(|at| !shared.contains(at)));
        }
        let group = shared;
        let channel = (1..parts.len())
            .find(|at| group.contains(at) && is_channel(parts[*at]) && is_offered(parts[*at]));
        Ok(Self {
            audio,
            channel,
            group,
        })
    }

    /// Those that are taken, the one first whose way is gone: the first of the group that has a port (RFC 9143 section
    /// 7.3.1).
    fn kept(&self, parts: &[&str]) -> Vec<usize> {
        let is_kept = |at: &usize| *at == self.audio || Some(*at) == self.channel;
        let mut kept: Vec<usize> = self.group.iter().copied().filter(is_kept).collect();
        if kept.is_empty() {
            kept.push(self.audio);
        }
        kept.sort_by_key(|at| parts.get(*at).is_some_and(|part| head(part)[1] == "0"));
        kept
    }

    /// The description as the core is told it.
    fn told(&self, parts: &[&str], way: &Way, flows: Direction, opus: u8) -> String {
        let mut told = "v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\n".to_owned();
        let mut line = |line: &str| {
            told.push_str(line);
            told.push_str("\r\n");
        };
        if has_line(parts[0], "a=ice-lite") {
            line("a=ice-lite");
        }
        match self.channel {
            Some(_) => line(&format!("a=group:BUNDLE {AUDIO} {CHANNEL}")),
            None => line(&format!("a=group:BUNDLE {AUDIO}")),
        }
        let mut media = vec![(
            format!("m=audio 9 UDP/TLS/RTP/SAVPF {opus}"),
            vec![
                format!("a=rtpmap:{opus} opus/48000/2"),
                format!("a=mid:{AUDIO}"),
                "a=rtcp-mux".to_owned(),
                format!("a={flows}"),
            ],
        )];
        let streams =
            lines(parts[self.audio]).filter(|line| STREAMS.iter().any(|own| line.starts_with(own)));
        media[0].1.extend(streams.map(str::to_owned));
        if let Some(channel) = self.channel {
            let number = |name| attribute(parts[channel], name)?.trim().parse::<u32>().ok();
            let port = number("sctp-port").filter(|port| (1..=65_535).contains(port));
            let mut own = vec![
                format!("a=mid:{CHANNEL}"),
                format!("a=sctp-port:{}", port.unwrap_or(5_000)),
            ];
            own.extend(number("max-message-size").map(|size| format!("a=max-message-size:{size}")));
            let first = "m=application 9 UDP/DTLS/SCTP webrtc-datachannel".to_owned();
            media.push((first, own));
        }
        let last = media.len() - 1;
        for (at, (first, own)) in media.iter().enumerate() {
            line(first);
            line("c=IN IP4 0.0.0.0");
            own.iter().for_each(|own| line(own));
            line(&format!("a=ice-ufrag:{}", way.name));
            line(&format!("a=ice-pwd:{}", way.password));
            if let Some(options) = &way.options {
                line(&format!("a=ice-options:{options}"));
            }
            if let Some(setup) = &way.setup {
                line(&format!("a=setup:{setup}"));
            }
            if let Some(print) = way.fingerprints.iter().find(|print| is_known(print)) {
                line(&format!("a=fingerprint:{print}"));
            }
            // Once, for they are the way's; the core passes over those of an audio that does not flow.
            for candidate in way.candidates.iter().filter(|_| at == last) {
                line(&format!("a=candidate:{candidate}"));
            }
        }
        told
    }
}

impl Way {
    /// The way of what is taken. What its first part does not say the session says, or another part of its group: media
    /// that share a way need not all tell it.
    fn of(parts: &[&str], taken: &Taken, near: Near) -> Result<Self, &'static str> {
        let own = taken.kept(parts).first().copied().into_iter();
        let order: Vec<usize> = own.chain([0]).chain(taken.group.iter().copied()).collect();
        let said = |name: &str| {
            let values = order.iter().filter_map(|at| attribute(parts[*at], name));
            values
                .map(str::trim)
                .find(|value| !value.is_empty())
                .map(str::to_owned)
        };
        let (Some(name), Some(password)) = (said("ice-ufrag"), said("ice-pwd")) else {
            return Err("no ice-ufrag or ice-pwd");
        };
        let prints = order.iter().map(|at| fingerprints(parts[*at]));
        let prints = prints.into_iter().find(|prints| !prints.is_empty());
        let fingerprints = prints.ok_or("no fingerprint")?;
        if !fingerprints.iter().any(|print| is_known(print)) {
            return Err("no fingerprint of sha-256");
        }
        let roles = ["active", "passive", "actpass"];
        let setup = said("setup").filter(|setup| roles.contains(&setup.as_str()));
        let mut candidates: Vec<String> = Vec::new();
        for at in order.iter().filter(|at| **at != 0) {
            // Media may have ways of their own until it is agreed that they share one.
            let own = attribute(parts[*at], "ice-ufrag").map(str::trim);
            if own.is_some_and(|own| own != name) {
                continue;
            }
            for line in lines(parts[*at]).filter_map(|line| line.strip_prefix("a=candidate:")) {
                let fields: Vec<&str> = line.split_ascii_whitespace().take(8).collect();
                let line = fields.join(" ");
                // One that is none, or of no use, is a way less.
                if candidates.len() < MOST_CANDIDATES
                    && reachable(&line, near) == Some(true)
                    && !candidates.contains(&line)
                {
                    candidates.push(line);
                }
            }
        }
        Ok(Self {
            name,
            password,
            fingerprints,
            setup,
            candidates,
            options: said("ice-options"),
        })
    }
}

impl Plain {
    /// The core's answer as one to the `offer` that this was read of: medium for medium under the offer's own names,
    /// protocols and numbers, and with nothing that it did not offer.
    pub(super) fn answering(&self, answer: &str, offer: &str) -> String {
        let (ours, theirs) = (sections(answer), sections(offer));
        let of_ours = |at: usize| ours.get(at).copied().unwrap_or_default();
        let kept = self.taken.kept(&theirs);
        let mut written: String = lines(ours[0])
            .filter(|line| !line.starts_with("a=group:"))
            .map(|line| format!("{line}\r\n"))
            .collect();
        if !self.taken.group.is_empty() {
            let in_order = self.taken.group.iter().filter(|at| kept.contains(at));
            let names: Vec<&str> = in_order.filter_map(|at| mid(theirs[*at])).collect();
            written.push_str(&format!("a=group:BUNDLE {}\r\n", names.join(" ")));
        }
        for (at, offered) in theirs.iter().enumerate().skip(1) {
            let medium = if at == self.taken.audio {
                self.codecs.written_into(of_ours(1))
            } else if Some(at) == self.taken.channel {
                of_ours(2).to_owned()
            } else {
                written.push_str(&refused(offered, of_ours(1)));
                continue;
            };
            written.push_str(&named_as(&medium, offered));
            if kept.first() == Some(&at) {
                let candidates = lines(of_ours(1)).filter(|line| is_candidate(line));
                for line in candidates.filter(|line| !is_of_reports(line)) {
                    written.push_str(&format!("{line}\r\n"));
                }
            }
        }
        written
    }
}

/// A medium of the core's under the name and the protocol of the one that is `offered`, without a way.
fn named_as(medium: &str, offered: &str) -> String {
    let [name, port, _] = head(medium);
    let [_, _, protocol] = head(offered);
    let numbers: Vec<&str> = formats(medium).collect();
    let mut named = format!("{name} {port} {protocol} {}\r\n", numbers.join(" "));
    for line in lines(medium).skip(1) {
        match line {
            _ if is_candidate(line) => {}
            "a=rtcp-mux" | "a=rtcp-rsize" if !has_line(offered, line) => {}
            _ if line.starts_with("a=mid:") => named.extend(mid_line(offered)),
            _ => named.extend([line, "\r\n"]),
        }
    }
    named
}

/// The refusal of a medium (RFC 3264 section 6), with the way of one of `ours`.
fn refused(offered: &str, ours: &str) -> String {
    let [name, _, protocol] = head(offered);
    let format = formats(offered).next().unwrap_or("0");
    let mut refused = format!("{name} 0 {protocol} {format}\r\nc=IN IP4 0.0.0.0\r\n");
    let of_the_format = [format!("a=rtpmap:{format} "), format!("a=fmtp:{format} ")];
    let is_said_again = |line: &&str| {
        *line == "a=rtcp-mux" || of_the_format.iter().any(|own| line.starts_with(own))
    };
    for line in lines(offered).filter(is_said_again) {
        refused.extend([line, "\r\n"]);
    }
    refused.extend(mid_line(offered));
    if name != "m=application" {
        refused.push_str("a=inactive\r\n");
    }
    for line in lines(ours).filter(|line| WAY.iter().any(|own| line.starts_with(own))) {
        refused.extend([line, "\r\n"]);
    }
    refused
}

fn mid(part: &str) -> Option<&str> {
    attribute(part, "mid").filter(|name| !name.is_empty())
}

fn mid_line(part: &str) -> Option<String> {
    mid(part).map(|name| format!("a=mid:{name}\r\n"))
}

fn is_candidate(line: &str) -> bool {
    line.starts_with("a=candidate:") || line == "a=end-of-candidates"
}

/// Whether a candidate is of the port that reports would have if they did not share the one of the audio (RFC 5761).
fn is_of_reports(line: &str) -> bool {
    line.starts_with("a=candidate:") && line.split_ascii_whitespace().nth(1) == Some("2")
}

/// Whether a fingerprint is one that the core can compare.
fn is_known(print: &str) -> bool {
    let words: Vec<&str> = print.split_ascii_whitespace().collect();
    words.len() == 2 && words[0] == HASH
}

/// Whether a medium is a data channel (RFC 8841 section 4.2). What was written before there was that word, with a port in
/// its place, is none.
fn is_channel(medium: &str) -> bool {
    head(medium)[0] == "m=application" && formats(medium).eq(["webrtc-datachannel"])
}

/// The core's offer with our codecs.
pub(super) fn offering(offer: &str) -> String {
    let written = sections(offer).into_iter().map(|section| {
        let medium = if section.starts_with("m=audio ") {
            Codecs::ours().written_into(section)
        } else {
            section.to_owned()
        };
        let kept = medium
            .split_inclusive('\n')
            .filter(|line| !is_of_reports(line));
        kept.collect::<String>()
    });
    written.collect()
}

#[cfg(test)]
mod tests;
