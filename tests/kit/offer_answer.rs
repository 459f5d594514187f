//! The rules of an answer, whoever gave it: RFC 3264 for all, RFC 8829 and RFC 9143 for what comes by ICE, RFC 5761, RFC
//! 5506, RFC 8842 and RFC 4568 where the offer speaks of their things. Written from those documents, and knows nothing of
//! how our own descriptions are made.

use std::collections::BTreeMap;

/// Panics with all that an answer breaks.
pub fn check(offer: &str, answer: &str) {
    let faults = faults(offer, answer);
    assert!(
        faults.is_empty(),
        "{}\n--- offer\n{offer}\n--- answer\n{answer}",
        faults.join("\n")
    );
}

/// What an answer to this offer breaks, with the number of the medium.
pub fn faults(offer: &str, answer: &str) -> Vec<String> {
    let mut faults = Faults::default();
    faults.form(answer);
    let (offer, answer) = (Description::read(offer), Description::read(answer));
    if offer.media.len() != answer.media.len() {
        let (offered, answered) = (offer.media.len(), answer.media.len());
        faults.say(
            "RFC 3264 section 6",
            format!("{answered} media answer {offered}"),
        );
        return faults.0;
    }
    for (at, (offered, answered)) in offer.media.iter().zip(&answer.media).enumerate() {
        let pair = Pair {
            at,
            offer: &offer,
            offered,
            answer: &answer,
            answered,
        };
        pair.check(&mut faults);
    }
    groups(&offer, &answer, &mut faults);
    faults.0
}

#[derive(Default)]
struct Faults(Vec<String>);

impl Faults {
    fn say(&mut self, rule: &str, what: impl AsRef<str>) {
        self.0.push(format!("{rule}: {}", what.as_ref()));
    }

    /// Lines as RFC 8866 section 5 has them.
    fn form(&mut self, text: &str) {
        const RULE: &str = "RFC 8866 section 5";
        if !text.ends_with("\r\n") || text.replace("\r\n", "").contains(['\r', '\n']) {
            self.say(RULE, "a line does not end with CR LF");
        }
        let session: Vec<&str> = text
            .lines()
            .take_while(|line| !line.starts_with("m="))
            .collect();
        let kinds: String = session
            .iter()
            .filter_map(|line| line.chars().next())
            .collect();
        for (line, first) in ["v=0", "o=", "s="].iter().zip(&session) {
            if !first.starts_with(line) {
                self.say(RULE, format!("{first} where {line} belongs"));
            }
        }
        if kinds.matches('t').count() != 1 {
            self.say(RULE, "not one line t=");
        }
        let order = "vosiuepcbtrzka";
        let places = kinds.chars().filter_map(|kind| order.find(kind));
        if !places.is_sorted() {
            self.say(RULE, format!("lines in the order {kinds}"));
        }
        for line in text.lines() {
            if line.as_bytes().get(1) != Some(&b'=') {
                self.say(RULE, format!("{line:?} is no line"));
            }
        }
    }
}

struct Description<'a> {
    session: Vec<&'a str>,
    media: Vec<Medium<'a>>,
}

struct Medium<'a> {
    kind: &'a str,
    port: &'a str,
    protocol: &'a str,
    formats: Vec<&'a str>,
    lines: Vec<&'a str>,
}

impl<'a> Description<'a> {
    fn read(text: &'a str) -> Self {
        let mut description = Self {
            session: Vec::new(),
            media: Vec::new(),
        };
        let lines = text.split(['\r', '\n', '\0']).map(str::trim);
        for line in lines.filter(|line| !line.is_empty()) {
            if let Some(first) = line.strip_prefix("m=") {
                let mut words = first.split_ascii_whitespace();
                let mut word = || words.next().unwrap_or_default();
                description.media.push(Medium {
                    kind: word(),
                    port: word(),
                    protocol: word(),
                    formats: words.collect(),
                    lines: Vec::new(),
                });
            } else if let Some(medium) = description.media.last_mut() {
                medium.lines.push(line);
            } else {
                description.session.push(line);
            }
        }
        description
    }

    /// The names of each BUNDLE group.
    fn groups(&self) -> Vec<Vec<&'a str>> {
        let groups = values(&self.session, "group");
        let groups = groups.filter_map(|group| group.strip_prefix("BUNDLE"));
        groups
            .map(|names| names.split_ascii_whitespace().collect())
            .collect()
    }

    /// An attribute of a medium, or of the session for all.
    fn said(&self, medium: &Medium<'a>, name: &str) -> Option<&'a str> {
        let own = values(&medium.lines, name).next();
        own.or_else(|| values(&self.session, name).next())
    }

    /// The medium whose way this one shares.
    fn first_beside(&self, medium: &Medium<'a>) -> Option<&Medium<'a>> {
        let mid = medium.mid()?;
        let group = self
            .groups()
            .into_iter()
            .find(|group| group.contains(&mid))?;
        let first = *group.first()?;
        self.media.iter().find(|medium| medium.mid() == Some(first))
    }

    fn direction(&self, medium: &Medium<'_>) -> &'static str {
        let all = ["sendrecv", "sendonly", "recvonly", "inactive"];
        let of = |lines: &[&str]| all.into_iter().find(|way| has(lines, way));
        of(&medium.lines)
            .or_else(|| of(&self.session))
            .unwrap_or("sendrecv")
    }
}

impl<'a> Medium<'a> {
    fn is_refused(&self) -> bool {
        self.port == "0"
    }

    fn is_offered(&self) -> bool {
        !self.is_refused() || has(&self.lines, "bundle-only")
    }

    fn is_rtp(&self) -> bool {
        self.protocol.contains("RTP/")
    }

    fn mid(&self) -> Option<&'a str> {
        values(&self.lines, "mid").next()
    }

    /// Name, clock and channels of a payload type, in one spelling; the first line about it counts.
    fn maps(&self) -> BTreeMap<&'a str, String> {
        let mut maps = BTreeMap::new();
        for map in values(&self.lines, "rtpmap") {
            let mut words = map.split_ascii_whitespace();
            if let (Some(number), Some(encoding)) = (words.next(), words.next()) {
                let encoding = encoding.to_ascii_lowercase();
                let one = encoding.trim_end_matches("/1").to_owned();
                maps.entry(number).or_insert(one);
            }
        }
        maps
    }
}

fn values<'a>(lines: &[&'a str], name: &str) -> impl Iterator<Item = &'a str> {
    lines.iter().filter_map(move |line| {
        let rest = line.strip_prefix("a=")?.strip_prefix(name)?;
        Some(rest.strip_prefix(':')?.trim())
    })
}

fn has(lines: &[&str], name: &str) -> bool {
    lines
        .iter()
        .any(|line| line.strip_prefix("a=") == Some(name))
}

/// What RFC 3551 section 6 says of a payload type that has no map.
fn usual(number: &str) -> Option<&'static str> {
    Some(match number {
        "0" => "pcmu/8000",
        "8" => "pcma/8000",
        "9" => "g722/8000",
        "13" => "cn/8000",
        _ => return None,
    })
}

/// A medium of both.
struct Pair<'a, 'b> {
    at: usize,
    offer: &'b Description<'a>,
    offered: &'b Medium<'a>,
    answer: &'b Description<'a>,
    answered: &'b Medium<'a>,
}

impl Pair<'_, '_> {
    fn check(&self, faults: &mut Faults) {
        let Self {
            at,
            offered,
            answered,
            ..
        } = *self;
        let mut say = |rule: &str, what: String| faults.say(rule, format!("medium {at}: {what}"));
        if answered.kind != offered.kind {
            say(
                "RFC 3264 section 6",
                format!("{} answers {}", answered.kind, offered.kind),
            );
        }
        if answered.protocol != offered.protocol {
            let protocol = answered.protocol;
            say(
                "RFC 8829 section 5.3.1",
                format!("protocol {protocol} answers {}", offered.protocol),
            );
        }
        if answered.formats.is_empty() {
            say("RFC 8866 section 5.14", "no format".to_owned());
        }
        if answered.port.parse::<u16>().is_err() {
            say("RFC 8866 section 5.14", format!("port {:?}", answered.port));
        }
        if answered.mid() != offered.mid() {
            say(
                "RFC 5888 section 9",
                format!("mid {:?} answers {:?}", answered.mid(), offered.mid()),
            );
        }
        if answered.is_refused() {
            return;
        }
        if !offered.is_offered() {
            say("RFC 3264 section 6", "takes what is not offered".to_owned());
        }
        let is_bundle_only = offered.is_refused();
        let shared = self.answer.groups();
        let is_shared = answered
            .mid()
            .is_some_and(|mid| shared.iter().any(|group| group.contains(&mid)));
        if is_bundle_only && !is_shared {
            say(
                "RFC 9143 section 7.3.3",
                "bundle-only, and in no group".to_owned(),
            );
        }
        let is_c = |line: &&str| line.starts_with("c=");
        if !answered.lines.iter().any(is_c) && !self.answer.session.iter().any(is_c) {
            say("RFC 8866 section 5.7", "no line c=".to_owned());
        }
        self.flow(faults);
        self.reports(faults);
        self.keys(faults);
        if offered.is_rtp() {
            self.formats(faults);
        }
    }

    fn say(&self, faults: &mut Faults, rule: &str, what: impl AsRef<str>) {
        faults.say(rule, format!("medium {}: {}", self.at, what.as_ref()));
    }

    fn formats(&self, faults: &mut Faults) {
        const RULE: &str = "RFC 3264 section 6.1";
        let (offered, answered) = (self.offered.maps(), self.answered.maps());
        for (at, number) in self.answered.formats.iter().enumerate() {
            if self.answered.formats[..at].contains(number) {
                self.say(faults, RULE, format!("payload type {number} twice"));
            }
            if !self.offered.formats.contains(number) {
                self.say(faults, RULE, format!("payload type {number} not offered"));
                continue;
            }
            let usual = || usual(number).map(str::to_owned);
            let one = offered.get(number).cloned().or_else(usual);
            let other = answered.get(number).cloned().or_else(usual);
            let means_less = one
                .as_ref()
                .zip(other.as_ref())
                .is_some_and(|(one, other)| other.starts_with(&format!("{one}/")));
            if other.is_none() || (one != other && !means_less) {
                self.say(
                    faults,
                    RULE,
                    format!("payload type {number} is {other:?} and was {one:?}"),
                );
            }
        }
        let maps = values(&self.answered.lines, "rtpmap");
        let numbers = maps.filter_map(|map| map.split_ascii_whitespace().next());
        let mut known: Vec<&str> = Vec::new();
        for number in numbers {
            if known.contains(&number) || !self.answered.formats.contains(&number) {
                self.say(faults, RULE, format!("a map too many of {number}"));
            }
            known.push(number);
        }
    }

    fn flow(&self, faults: &mut Faults) {
        let offered = self.offer.direction(self.offered);
        let answered = self.answer.direction(self.answered);
        let may: &[&str] = match offered {
            "sendonly" => &["recvonly", "inactive"],
            "recvonly" => &["sendonly", "inactive"],
            "inactive" => &["inactive"],
            _ => &["sendrecv", "sendonly", "recvonly", "inactive"],
        };
        // A channel's direction is nobody's.
        if self.offered.is_rtp() && !may.contains(&answered) {
            self.say(
                faults,
                "RFC 3264 section 6.1",
                format!("{answered} answers {offered}"),
            );
        }
    }

    fn reports(&self, faults: &mut Faults) {
        let (offered, answered) = (&self.offered.lines, &self.answered.lines);
        for (name, rule) in [
            ("rtcp-mux", "RFC 5761 section 5.1.1"),
            ("rtcp-rsize", "RFC 5506 section 5.1"),
        ] {
            if has(answered, name) && !has(offered, name) {
                self.say(faults, rule, format!("{name} was not offered"));
            }
        }
        if has(answered, "rtcp-mux-only") {
            self.say(faults, "RFC 8858 section 4.3", "rtcp-mux-only in an answer");
        }
        let mut candidates = values(answered, "candidate");
        let second = |line: &str| line.split_ascii_whitespace().nth(1) == Some("2");
        if candidates.any(second) {
            self.say(
                faults,
                "RFC 8829 section 5.3.1",
                "a candidate of component 2",
            );
        }
        let extensions = |lines: &[&str]| -> Vec<String> {
            let all = values(lines, "extmap");
            all.filter_map(|map| map.split_ascii_whitespace().nth(1).map(str::to_owned))
                .collect()
        };
        let known = extensions(offered);
        for extension in extensions(answered) {
            if !known.contains(&extension) {
                self.say(
                    faults,
                    "RFC 8285 section 6",
                    format!("{extension} was not offered"),
                );
            }
        }
    }

    fn keys(&self, faults: &mut Faults) {
        // Who shares a way need not tell it again (RFC 9143 section 7.1.3).
        let first = self.answer.first_beside(self.answered);
        let said = |name| {
            let own = self.answer.said(self.answered, name);
            own.or_else(|| self.answer.said(first?, name))
        };
        if self.offer.said(self.offered, "fingerprint").is_some() {
            if said("fingerprint").is_none() {
                self.say(faults, "RFC 8842 section 5.3", "no fingerprint");
            }
            let offered = self.offer.said(self.offered, "setup");
            let fits = match (offered, said("setup")) {
                (Some("active"), setup) => setup == Some("passive"),
                (Some("passive"), setup) => setup == Some("active"),
                (_, setup) => matches!(setup, Some("active" | "passive")),
            };
            if !fits {
                let setup = said("setup");
                self.say(
                    faults,
                    "RFC 8842 section 5.3",
                    format!("setup {setup:?} answers {offered:?}"),
                );
            }
        }
        if self.offer.said(self.offered, "ice-ufrag").is_some()
            && (said("ice-ufrag").is_none() || said("ice-pwd").is_none())
        {
            self.say(faults, "RFC 8839 section 5.4", "no name or password of ICE");
        }
        let line = |text: &str| -> Vec<String> {
            let words = text.split_ascii_whitespace().take(2);
            words.map(str::to_ascii_uppercase).collect()
        };
        let offered: Vec<_> = values(&self.offered.lines, "crypto").map(line).collect();
        let answered: Vec<_> = values(&self.answered.lines, "crypto").map(line).collect();
        let is_keyed = self.offered.protocol.starts_with("RTP/SAVP") && !offered.is_empty();
        if answered.len() != usize::from(is_keyed)
            || !answered.iter().all(|line| offered.contains(line))
        {
            self.say(
                faults,
                "RFC 4568 section 5.1.2",
                format!("crypto {answered:?} answers {offered:?}"),
            );
        }
    }
}

/// BUNDLE (RFC 9143 section 7.3).
fn groups(offer: &Description<'_>, answer: &Description<'_>, faults: &mut Faults) {
    const RULE: &str = "RFC 9143 section 7.3";
    let offered = offer.groups();
    for group in answer.groups() {
        let within = |wider: &Vec<&str>| group.iter().all(|name| wider.contains(name));
        if !offered.iter().any(within) {
            faults.say(RULE, format!("{group:?} is in no group of {offered:?}"));
        }
        for (at, name) in group.iter().enumerate() {
            if group[..at].contains(name) {
                faults.say(RULE, format!("{name} twice in {group:?}"));
            }
            let named = answer.media.iter().find(|m| m.mid() == Some(*name));
            if named.is_none_or(Medium::is_refused) {
                faults.say(RULE, format!("{name} is in {group:?} and not taken"));
            }
        }
        let shared = answer.media.iter().filter(|medium| {
            let mid = medium.mid();
            mid.is_some_and(|mid| group.contains(&mid))
        });
        for medium in shared {
            let is_first = medium.mid() == group.first().copied();
            if !is_first && values(&medium.lines, "candidate").next().is_some() {
                let mid = medium.mid().unwrap_or_default();
                faults.say("RFC 8829 section 5.3.1", format!("candidates in {mid}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFER: &str = "v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=-\r\nt=0 0\r\na=group:BUNDLE a d\r\n\
        a=fingerprint:sha-256 AA\r\na=ice-ufrag:u\r\na=ice-pwd:p\r\na=setup:actpass\r\n\
        m=audio 9 UDP/TLS/RTP/SAVPF 111 0\r\nc=IN IP4 0.0.0.0\r\na=mid:a\r\na=rtcp-mux\r\n\
        a=rtpmap:111 opus/48000/2\r\na=sendonly\r\n\
        m=application 0 UDP/DTLS/SCTP webrtc-datachannel\r\nc=IN IP4 0.0.0.0\r\na=mid:d\r\na=bundle-only\r\n";

    fn good() -> String {
        OFFER
            .replace("actpass", "active")
            .replace("sendonly", "recvonly")
            .replace("m=application 0", "m=application 9")
            .replace("a=bundle-only\r\n", "")
    }

    #[test]
    fn a_good_answer_breaks_nothing() {
        assert_eq!(faults(OFFER, &good()), [""; 0]);
        let refused = good()
            .replace("m=application 9", "m=application 0")
            .replace("BUNDLE a d", "BUNDLE a");
        assert_eq!(faults(OFFER, &refused), [""; 0]);
    }

    /// RFC 8829 section 7.1: the second medium has no way of its own any more.
    #[test]
    fn the_answer_of_the_first_example_of_jsep_breaks_nothing() {
        let offer =
            include_str!("../../fixtures/sdp/browsers/jsep_simple.sdp").replace('\n', "\r\n");
        let (audio, video) = offer.split_at(offer.find("m=video").expect("a video"));
        let of_reports = |line: &&str| !line.contains(" 2 udp ") && !line.starts_with("a=rtcp:");
        let way = [
            "a=ice-",
            "a=fingerprint:",
            "a=setup:",
            "a=tls-id:",
            "a=candidate:",
            "a=end-",
        ];
        let of_its_own = |line: &&str| !way.iter().any(|own| line.starts_with(own));
        let audio = audio.split_inclusive('\n').filter(of_reports);
        let video = video
            .split_inclusive('\n')
            .filter(of_reports)
            .filter(of_its_own);
        let answer = audio.chain(video).collect::<String>();
        let answer = answer
            .replace("actpass", "active")
            .replace("10102", "10100");
        assert_eq!(faults(&offer, &answer), [""; 0]);
        let two_ways = answer.replace(
            "a=mid:v1",
            "a=mid:v1\r\na=candidate:1 1 udp 1 192.0.2.1 9 typ host",
        );
        assert!(faults(&offer, &two_ways)[0].contains("candidates in v1"));
    }

    #[test]
    fn each_rule_is_seen_to_be_broken() {
        for (from, to, words) in [
            ("m=application 9", "m=video 9", "video answers application"),
            ("UDP/TLS/RTP/SAVPF", "RTP/SAVPF", "protocol"),
            (" 111 0\r\n", " 111 111\r\n", "twice"),
            (" 111 0\r\n", " 111 8\r\n", "8 not offered"),
            ("opus/48000/2", "opus/16000/2", "is Some"),
            ("a=rtpmap:111 opus/48000/2\r\n", "", "is None"),
            (
                "a=rtpmap:111",
                "a=rtpmap:112 x/1\r\na=rtpmap:111",
                "too many",
            ),
            ("a=recvonly", "a=sendrecv", "sendrecv answers sendonly"),
            ("a=rtcp-mux\r\n", "a=rtcp-mux\r\na=rtcp-rsize\r\n", "rsize"),
            ("a=rtcp-mux", "a=rtcp-mux-only", "mux-only"),
            (
                "a=rtcp-mux\r\n",
                "a=rtcp-mux\r\na=candidate:1 2 udp 1 192.0.2.1 9 typ host\r\n",
                "component 2",
            ),
            ("a=mid:d\r\n", "a=mid:e\r\n", "mid"),
            (
                "a=mid:d\r\n",
                "a=mid:d\r\na=candidate:1 1 udp 1 192.0.2.1 9 typ host\r\n",
                "candidates in d",
            ),
            ("a=setup:active", "a=setup:actpass", "setup"),
            ("a=fingerprint:sha-256 AA\r\n", "", "fingerprint"),
            ("a=ice-pwd:p\r\n", "", "password"),
            ("BUNDLE a d", "BUNDLE a d x", "no group"),
            ("BUNDLE a d", "BUNDLE a a", "twice"),
            ("BUNDLE a d", "BUNDLE a", "bundle-only"),
            ("m=application 9", "m=application 0", "not taken"),
            ("t=0 0\r\n", "", "t="),
            ("s=-\r\nt=0 0\r\n", "t=0 0\r\ns=-\r\n", "order"),
            ("c=IN IP4 0.0.0.0\r\na=mid:a", "a=mid:a", "no line c="),
            ("a=mid:a\r\n", "a=mid:a\n", "CR LF"),
            (
                "a=mid:a\r\n",
                "a=mid:a\r\na=extmap:1 urn:x\r\n",
                "urn:x was not offered",
            ),
            (
                "a=mid:a\r\n",
                "a=mid:a\r\na=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:x\r\n",
                "crypto",
            ),
        ] {
            let answer = good().replacen(from, to, 1);
            assert_ne!(answer, good(), "{from}");
            let faults = faults(OFFER, &answer).join("\n");
            assert!(faults.contains(words), "{from} to {to}: {faults}");
        }
        let one = good();
        let one = one.split("m=application").next().unwrap_or_default();
        assert!(faults(OFFER, one)[0].contains("1 media answer 2"));
    }
}
