//! What two sides agree on before the first packet: SDP (RFC 8866) by offer and answer (RFC 3264), with
//! keys in it (RFC 4568).
//!
//! [`answer`] answers an offer; [`offer`] makes one, [`offer_again`] one within a call, and
//! [`Offered::accept`] reads its answer. All end in an [`Agreed`]: one codec, both addresses, keys or
//! none. Only audio is taken; other media of an offer are refused by their port.

mod formats;
mod parse;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha512};

use self::parse::{Description, Media, Place};
use super::srtp::{Keys, Suite};

pub use self::formats::{Format, Formats, received};
pub use self::parse::Malformed;

/// An audio codec.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Codec {
    #[serde(rename = "PCMU")]
    Pcmu,
    #[serde(rename = "PCMA")]
    Pcma,
    G722,
    #[serde(rename = "opus")]
    Opus,
}

impl Codec {
    /// In the order in which they are preferred: better sound first.
    pub const ALL: [Self; 4] = [Self::Opus, Self::G722, Self::Pcmu, Self::Pcma];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Pcmu => "PCMU",
            Self::Pcma => "PCMA",
            Self::G722 => "G722",
            Self::Opus => "opus",
        }
    }

    /// Timestamps a second. G.722 has 16,000 samples a second and 8,000 timestamps, by an error that
    /// became the rule (RFC 3551 section 4.5.2).
    pub const fn clock(self) -> u32 {
        match self {
            Self::Pcmu | Self::Pcma | Self::G722 => 8_000,
            Self::Opus => 48_000,
        }
    }

    /// Its type when an offer gives it no other (RFC 3551 section 6), or the one that we offer.
    const fn payload_type(self) -> u8 {
        match self {
            Self::Pcmu => 0,
            Self::Pcma => 8,
            Self::G722 => 9,
            Self::Opus => 111,
        }
    }

    /// Opus is always said to have two channels (RFC 7587 section 7).
    const fn channels(self) -> u32 {
        match self {
            Self::Opus => 2,
            Self::Pcmu | Self::Pcma | Self::G722 => 1,
        }
    }

    fn is(self, name: &str, clock: u32, channels: u32) -> bool {
        self.name().eq_ignore_ascii_case(name)
            && self.clock() == clock
            && self.channels() == channels
    }
}

/// Which way audio goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Flow {
    #[default]
    SendRecv,
    SendOnly,
    RecvOnly,
    Inactive,
}

impl Flow {
    const ALL: [Self; 4] = [
        Self::SendRecv,
        Self::SendOnly,
        Self::RecvOnly,
        Self::Inactive,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::SendRecv => "sendrecv",
            Self::SendOnly => "sendonly",
            Self::RecvOnly => "recvonly",
            Self::Inactive => "inactive",
        }
    }

    const fn sends(self) -> bool {
        matches!(self, Self::SendRecv | Self::SendOnly)
    }

    const fn receives(self) -> bool {
        matches!(self, Self::SendRecv | Self::RecvOnly)
    }

    const fn of(sends: bool, receives: bool) -> Self {
        match (sends, receives) {
            (true, true) => Self::SendRecv,
            (true, false) => Self::SendOnly,
            (false, true) => Self::RecvOnly,
            (false, false) => Self::Inactive,
        }
    }
}

/// Whether media is encrypted (document 3, `media_encryption`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encryption {
    /// As the other side wants it.
    #[default]
    Allow,
    /// Never.
    Disable,
    /// Always: nothing goes out in plain.
    Require,
}

/// Our side of a session.
#[derive(Clone, Debug)]
pub struct Local {
    /// Where we receive, as the other side reaches us.
    pub address: IpAddr,
    /// An even port; reports have the next one.
    pub port: u16,
    /// Names the session in all of its descriptions.
    pub session: u64,
    /// Grows with each description of ours that differs from the one before.
    pub version: u64,
    /// The codecs that are spoken, the preferred ones first.
    pub codecs: Vec<Codec>,
    pub encryption: Encryption,
    /// Random bytes, of which the keys of our direction are made.
    pub random: [u8; Suite::Aes256Tag80.material()],
}

/// What both sides agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// The codec in which we send, and its payload type.
    pub codec: Codec,
    pub payload_type: u8,
    /// Keypad events that we send (RFC 4733).
    pub events: Option<u8>,
    /// In what they count their length, a second: the codec's clock, unless the other side has only
    /// another (many offer 8,000 beside Opus).
    pub events_clock: u32,
    /// Comfort noise that we send (RFC 3389).
    pub comfort_noise: Option<u8>,
    /// The payload types of our description, in which they send.
    pub heard: Formats,
    /// The audio in a packet of ours, ms: as they ask.
    pub packet_ms: u8,
    /// The most bits of Opus a second that they want (RFC 7587 section 6.1); `None`: they do not say.
    pub most_bits: Option<u32>,
    /// Where they receive. An unspecified address: where that is they did not say, or by a name, or by one of zeros, as
    /// telephones hold.
    pub remote: SocketAddr,
    pub remote_reports: SocketAddr,
    /// Reports go over the port of the audio (RFC 5761).
    pub mux: bool,
    /// As seen from us.
    pub flow: Flow,
    pub keys: Option<KeyPair>,
}

impl Agreed {
    /// What a packet of this payload type holds. `None`: it was not agreed.
    pub fn format(&self, payload_type: u8) -> Option<Format> {
        let codec = (self.codec, self.payload_type);
        let sent = Formats::of(codec, self.events, self.comfort_noise);
        received(Some(&self.heard), &sent, payload_type)
    }
}

/// The keys of both directions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPair {
    pub ours: Keys,
    pub theirs: Keys,
}

/// Why there is no agreement. The answer to a SIP request is 488 (RFC 3261 section 21.4.26) for all of
/// them but the first: 400.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    Malformed(Malformed),
    /// No audio is offered, or none with a port.
    NoAudio,
    /// None of our codecs.
    NoCodec,
    /// Their audio has no address, nor a name in its place.
    NoAddress,
    /// They want encryption and we must not, or the other way round.
    Encryption,
    /// They want encryption, but with none of our suites.
    NoSuite,
    /// Their audio is where ours cannot go: over IPv6 and ours over IPv4 or the other way round, in another network, or at
    /// many places.
    Family,
    /// The answer has what was not offered.
    NotOffered,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Malformed(why) => write!(f, "the SDP is malformed: {why}"),
            Self::NoAudio => f.write_str("the SDP has no audio"),
            Self::NoCodec => f.write_str("the SDP has none of the codecs that are spoken here"),
            Self::NoAddress => f.write_str("the SDP's audio has no IP address"),
            Self::Encryption => f.write_str(
                "the SDP's encryption of media is not what the trunk's setting asks for",
            ),
            Self::NoSuite => f.write_str("the SDP has none of the SRTP suites that are known here"),
            Self::Family => f.write_str(
                "the SDP's audio is where the call's cannot go: over IPv6 where that is over IPv4 or the other way round, in another network, or at many places",
            ),
            Self::NotOffered => f.write_str("the answer's SDP has what was not offered"),
        }
    }
}

impl std::error::Error for Refusal {}

impl From<Malformed> for Refusal {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

/// Answers an offer: our description, and what is agreed by it. `flow`: what we want, both ways as a
/// rule.
pub fn answer(offer: &[u8], local: &Local, flow: Flow) -> Result<(String, Agreed), Refusal> {
    let offer = Description::parse(offer)?;
    let mut why = Refusal::NoAudio;
    // An encrypted line is preferred to a plain one.
    let mut lines: Vec<usize> = (0..offer.media.len()).collect();
    lines.sort_by_key(|line| !offer.media[*line].is_secure());
    for line in lines {
        match choose(&offer, &offer.media[line], local, flow, Preferred::Ours) {
            Ok(chosen) => {
                let text = chosen.text(&offer, line, local);
                return Ok((text, chosen.agreed));
            }
            // The most telling reason is that of the first audio line.
            Err(reason) if why == Refusal::NoAudio => why = reason,
            Err(_) => {}
        }
    }
    Err(why)
}

struct Chosen {
    agreed: Agreed,
    /// The number of their crypto line that is answered.
    tag: u32,
}

/// Whose first codec is taken, of those that both speak.
#[derive(Clone, Copy)]
enum Preferred {
    Ours,
    /// Who answers says by the order what is sent (RFC 3264 section 6.1).
    Theirs,
}

fn choose(
    offer: &Description,
    media: &Media,
    local: &Local,
    flow: Flow,
    preferred: Preferred,
) -> Result<Chosen, Refusal> {
    if media.kind != "audio" || media.port == 0 || !media.is_rtp() {
        return Err(Refusal::NoAudio);
    }
    let (tag, keys) = match (media.is_secure(), local.encryption) {
        (true, Encryption::Disable) | (false, Encryption::Require) => {
            return Err(Refusal::Encryption);
        }
        (false, _) => (0, None),
        (true, _) => {
            let (tag, theirs) = media.crypto.first().ok_or(Refusal::NoSuite)?;
            let ours = local.keys(theirs.suite).ok_or(Refusal::NoSuite)?;
            let theirs = theirs.clone();
            (*tag, Some(KeyPair { ours, theirs }))
        }
    };
    let codec = match preferred {
        Preferred::Ours => media.codec(&local.codecs),
        Preferred::Theirs => media.first_codec(&local.codecs),
    };
    let (codec, payload_type) = codec.ok_or(Refusal::NoCodec)?;
    let theirs = media.flow(offer);
    // An address of zeros is how telephones said "hold" before there were attributes for it.
    let (address, is_somewhere) = match media.place(offer) {
        Place::At(address) => (address, !address.is_unspecified()),
        Place::Named => (unspecified(local.address), true),
        Place::Elsewhere => return Err(Refusal::Family),
        Place::Nowhere => return Err(Refusal::NoAddress),
    };
    if is_somewhere && address.is_ipv4() != local.address.is_ipv4() {
        return Err(Refusal::Family);
    }
    let hears = theirs.receives() && is_somewhere;
    let (events, events_clock) = media.events(codec.clock()).unzip();
    let comfort_noise = media.comfort_noise(codec);
    let agreed = Agreed {
        codec,
        payload_type,
        events,
        events_clock: events_clock.unwrap_or(codec.clock()),
        comfort_noise,
        heard: Formats::of((codec, payload_type), events, comfort_noise),
        packet_ms: media.packet_ms(codec),
        most_bits: media.most_bits(payload_type),
        remote: SocketAddr::new(address, media.port),
        remote_reports: media.reports(address),
        mux: media.mux,
        flow: Flow::of(hears && flow.sends(), theirs.sends() && flow.receives()),
        keys,
    };
    Ok(Chosen { agreed, tag })
}

impl Chosen {
    fn text(&self, offer: &Description, line: usize, local: &Local) -> String {
        let agreed = &self.agreed;
        let events = agreed.events.map(|number| (number, agreed.events_clock));
        let said = Said {
            protocol: &offer.media[line].protocol,
            codecs: &[(agreed.payload_type, agreed.codec)],
            events: events.as_slice(),
            comfort_noise: agreed.comfort_noise,
            packet_ms: agreed.packet_ms,
            flow: agreed.flow,
            mux: agreed.mux,
        };
        let keys = agreed.keys.as_ref().map(|keys| (self.tag, &keys.ours));
        local.described(offer, line, &said, keys)
    }
}

/// An offer of ours, kept until it is answered.
#[derive(Clone, Debug)]
pub struct Offered {
    pub text: String,
    local: Local,
    flow: Flow,
    keys: Vec<(u32, Keys)>,
    /// Which of the media lines is the audio.
    line: usize,
    numbers: Numbers,
}

/// Which payload types an offer of ours has for what.
#[derive(Clone, Debug)]
struct Numbers {
    codecs: Vec<(u8, Codec)>,
    /// Keypad events with their clocks.
    events: Vec<(u8, u32)>,
    comfort_noise: Option<u8>,
}

impl Numbers {
    /// Those of a first offer.
    fn first(local: &Local) -> Self {
        let codecs = local.codecs.iter();
        Self {
            codecs: codecs.map(|codec| (codec.payload_type(), *codec)).collect(),
            events: local.events().into_iter().flatten().collect(),
            comfort_noise: local.is_narrow().then_some(COMFORT_NOISE),
        }
    }

    /// Those of an offer within a call: all that is spoken here, the codec of the call first. What had a number of
    /// ours keeps it, and no number gets another meaning (RFC 3264 section 8.3.2).
    fn again(local: &Local, agreed: &Agreed) -> Self {
        let heard = &agreed.heard;
        let mut codecs = vec![agreed.codec];
        codecs.extend(local.codecs.iter().filter(|codec| **codec != agreed.codec));
        let mut taken: Vec<u8> = codecs.iter().filter_map(|c| heard.codec(*c)).collect();
        taken.extend(heard.events().chain(heard.comfort_noise()));
        let mut free = |usual: u8| {
            let mut others = 96..=127;
            let number = match taken.contains(&usual) {
                true => others.find(|number| !taken.contains(number))?,
                false => usual,
            };
            taken.push(number);
            Some(number)
        };
        let codecs = codecs.into_iter().filter_map(|codec| {
            let number = heard.codec(codec).or_else(|| free(codec.payload_type()));
            Some((number?, codec))
        });
        let codecs: Vec<(u8, Codec)> = codecs.collect();
        let usual = local.events();
        let clock = |number: u8| {
            // Two are those of an offer of ours; one alone has the clock that was agreed.
            let alone = heard.events().nth(1).is_none();
            let own = usual.iter().flatten().find(|(own, _)| *own == number);
            own.filter(|_| !alone)
                .map_or(agreed.events_clock, |(_, clock)| *clock)
        };
        let mut events: Vec<(u8, u32)> = heard.events().map(|own| (own, clock(own))).collect();
        for (number, clock) in usual.into_iter().flatten() {
            if events.iter().all(|(_, own)| *own != clock)
                && let Some(number) = free(number)
            {
                events.push((number, clock));
            }
        }
        let noise = heard.comfort_noise();
        let noise = noise.or_else(|| local.is_narrow().then_some(COMFORT_NOISE));
        Self {
            codecs,
            events,
            comfort_noise: noise,
        }
    }
}

/// The types that we offer; keypad events with the clock of narrow-band codecs and of Opus (RFC 4733
/// section 2.1).
const EVENTS: (u8, u32) = (101, 8_000);
const OPUS_EVENTS: (u8, u32) = (102, 48_000);
/// RFC 3551 section 6.
const COMFORT_NOISE: u8 = 13;

/// The audio in a packet where nobody asks for another length, ms (RFC 3551 section 4.2).
pub const PACKET_MS: u8 = 20;

/// Makes an offer: one audio line, encrypted when the setting requires it.
pub fn offer(local: &Local, flow: Flow) -> Offered {
    let secure = local.encryption == Encryption::Require;
    let protocol = if secure { "RTP/SAVP" } else { "RTP/AVP" };
    let mut text = local.head();
    let numbers = Numbers::first(local);
    local.audio(
        &mut text,
        &Said {
            protocol,
            codecs: &numbers.codecs,
            events: &numbers.events,
            comfort_noise: numbers.comfort_noise,
            packet_ms: PACKET_MS,
            flow,
            mux: true,
        },
    );
    let mut keys = Vec::new();
    if secure {
        for (tag, suite) in (1..).zip(Suite::ALL) {
            if let Some(ours) = local.keys(suite) {
                crypto(&mut text, tag, &ours);
                keys.push((tag, ours));
            }
        }
    }
    Offered {
        text,
        local: local.clone(),
        flow,
        keys,
        line: 0,
        numbers,
    }
}

/// Offers anew within a call (RFC 3264 section 8, RFC 3261 section 14.2): as many media lines as `described`, our
/// latest description of the session, in their order, and in the audio all that is spoken here, each payload type with
/// the meaning that it has by `agreed`. An encrypted session stays it. Refused only where `described` is none of ours.
pub fn offer_again(
    local: &Local,
    described: &str,
    agreed: &Agreed,
    flow: Flow,
) -> Result<Offered, Refusal> {
    let before = Description::parse(described.as_bytes())?;
    let (line, media) = before.audio()?;
    let ours = agreed.keys.as_ref().map(|keys| &keys.ours);
    let said = media.crypto.iter().find(|(_, keys)| Some(keys) == ours);
    let tag = said.map_or(1, |(tag, _)| *tag);
    let numbers = Numbers::again(local, agreed);
    let local = Local {
        codecs: numbers.codecs.iter().map(|(_, codec)| *codec).collect(),
        encryption: match ours {
            Some(_) => Encryption::Require,
            None => Encryption::Disable,
        },
        ..local.clone()
    };
    let said = Said {
        protocol: &media.protocol,
        codecs: &numbers.codecs,
        events: &numbers.events,
        comfort_noise: numbers.comfort_noise,
        packet_ms: agreed.packet_ms,
        flow,
        mux: agreed.mux,
    };
    Ok(Offered {
        text: local.described(&before, line, &said, ours.map(|ours| (tag, ours))),
        flow,
        keys: ours.map(|keys| (tag, keys.clone())).into_iter().collect(),
        line,
        local,
        numbers,
    })
}

/// What an answer agrees to where `described`, our latest description of the session, was offered again as
/// it stands, to refresh it: the same as `agreed` where the other side says what it said before. Refused
/// where there is no agreement, and where `described` is none of ours.
pub fn accept_again(
    local: &Local,
    described: &str,
    agreed: &Agreed,
    answer: &[u8],
) -> Result<Agreed, Refusal> {
    let before = Description::parse(described.as_bytes())?;
    let (line, media) = before.audio()?;
    let codecs = local.codecs.iter().copied();
    let local = Local {
        codecs: codecs
            .filter(|codec| media.codec(&[*codec]).is_some())
            .collect(),
        encryption: match media.is_secure() {
            true => Encryption::Require,
            false => Encryption::Disable,
        },
        ..local.clone()
    };
    let offered = Offered {
        text: described.to_owned(),
        numbers: Numbers::first(&local),
        local,
        flow: media.flow(&before),
        keys: media.crypto.clone(),
        line,
    };
    Ok(Agreed {
        // Our numbers are those of our description.
        heard: agreed.heard,
        ..offered.accept(answer)?
    })
}

impl Offered {
    /// What an answer agrees to.
    pub fn accept(&self, answer: &[u8]) -> Result<Agreed, Refusal> {
        let answer = Description::parse(answer)?;
        let media = answer.media.get(self.line).ok_or(Refusal::NoAudio)?;
        let secure = self.local.encryption == Encryption::Require;
        if media.kind == "audio" && media.is_rtp() && media.is_secure() != secure {
            // A plain answer to an encrypted offer would have us speak in plain.
            return Err(Refusal::Encryption);
        }
        let mut local = self.local.clone();
        if !secure {
            local.encryption = Encryption::Disable;
        }
        let mut agreed = choose(&answer, media, &local, self.flow, Preferred::Theirs)?.agreed;
        agreed.heard = self.heard(&agreed);
        if let Some(keys) = &mut agreed.keys {
            let tag = media.crypto.first().map_or(0, |(tag, _)| *tag);
            let ours = self.keys.iter().find(|(offered, _)| *offered == tag);
            let (_, ours) = ours.ok_or(Refusal::NotOffered)?;
            if ours.suite != keys.theirs.suite {
                return Err(Refusal::NotOffered);
            }
            keys.ours = ours.clone();
        }
        Ok(agreed)
    }

    /// Every codec that was offered may come, whichever the answer begins with.
    fn heard(&self, agreed: &Agreed) -> Formats {
        let numbers = &self.numbers;
        let codecs = numbers.codecs.iter();
        let codecs: Vec<(Codec, u8)> = codecs.map(|(number, codec)| (*codec, *number)).collect();
        let events = numbers.events.iter().filter(|_| agreed.events.is_some());
        let events: Vec<Option<u8>> = events.map(|(number, _)| Some(*number)).collect();
        let noise = agreed.comfort_noise.and(numbers.comfort_noise);
        Formats::listed(&codecs, &events, noise)
    }
}

impl Description {
    /// The line of a description of ours that is the audio.
    fn audio(&self) -> Result<(usize, &Media), Refusal> {
        (0..)
            .zip(&self.media)
            .find(|(_, media)| media.kind == "audio" && media.port != 0)
            .ok_or(Refusal::NoAudio)
    }
}

/// What an audio line of ours says.
struct Said<'a> {
    protocol: &'a str,
    /// Codecs and keypad events under their numbers, the latter with their clocks.
    codecs: &'a [(u8, Codec)],
    events: &'a [(u8, u32)],
    comfort_noise: Option<u8>,
    packet_ms: u8,
    flow: Flow,
    mux: bool,
}

impl Local {
    /// Our key of a suite, and of no other: to begin anew with one that was used in another suite would use its
    /// keystream twice (RFC 3711 section 9.1).
    fn keys(&self, suite: Suite) -> Option<Keys> {
        let drawn = Sha512::new()
            .chain_update(self.random)
            .chain_update(suite.name())
            .finalize();
        Keys::new(suite, &drawn[..suite.material()])
    }

    /// Whether a codec with a clock of 8,000 is spoken.
    fn is_narrow(&self) -> bool {
        self.codecs.iter().any(|codec| *codec != Codec::Opus)
    }

    /// The keypad events of an offer.
    fn events(&self) -> [Option<(u8, u32)>; 2] {
        [
            self.is_narrow().then_some(EVENTS),
            self.codecs.contains(&Codec::Opus).then_some(OPUS_EVENTS),
        ]
    }

    fn head(&self) -> String {
        let family = family(self.address);
        let mut text = String::with_capacity(512);
        line_of(&mut text, format_args!("v=0"));
        let (session, version, address) = (self.session, self.version, self.address);
        line_of(
            &mut text,
            format_args!("o=- {session} {version} IN {family} {address}"),
        );
        line_of(&mut text, format_args!("s=-"));
        line_of(&mut text, format_args!("c=IN {family} {address}"));
        line_of(&mut text, format_args!("t=0 0"));
        text
    }

    /// A description with as many media lines as `before`: our audio in the one of that number, and none in the others.
    fn described(
        &self,
        before: &Description,
        line: usize,
        said: &Said<'_>,
        keys: Option<(u32, &Keys)>,
    ) -> String {
        let mut text = self.head();
        for (at, media) in before.media.iter().enumerate() {
            if at == line {
                self.audio(&mut text, said);
                if let Some((tag, keys)) = keys {
                    crypto(&mut text, tag, keys);
                }
            } else {
                let formats = media.formats.first().map_or("0", String::as_str);
                line_of(
                    &mut text,
                    format_args!("m={} 0 {} {formats}", media.kind, media.protocol),
                );
            }
        }
        text
    }

    fn audio(&self, text: &mut String, said: &Said<'_>) {
        let mut formats = String::new();
        let codecs = said.codecs.iter().map(|(number, _)| *number);
        let events = said.events.iter().map(|(number, _)| *number);
        for number in codecs.chain(events).chain(said.comfort_noise) {
            // Writing to a String cannot fail.
            let _ = write!(formats, " {number}");
        }
        let (port, protocol) = (self.port, said.protocol);
        line_of(text, format_args!("m=audio {port} {protocol}{formats}"));
        for (number, codec) in said.codecs {
            let (name, clock) = (codec.name(), codec.clock());
            match codec.channels() {
                1 => line_of(text, format_args!("a=rtpmap:{number} {name}/{clock}")),
                channels => {
                    line_of(
                        text,
                        format_args!("a=rtpmap:{number} {name}/{clock}/{channels}"),
                    );
                    line_of(text, format_args!("a=fmtp:{number} useinbandfec=1"));
                }
            }
        }
        for (number, clock) in said.events {
            line_of(
                text,
                format_args!("a=rtpmap:{number} telephone-event/{clock}"),
            );
            line_of(text, format_args!("a=fmtp:{number} 0-15"));
        }
        if let Some(number) = said.comfort_noise {
            line_of(text, format_args!("a=rtpmap:{number} CN/8000"));
        }
        line_of(text, format_args!("a=ptime:{}", said.packet_ms));
        line_of(text, format_args!("a={}", said.flow.name()));
        if said.mux {
            line_of(text, format_args!("a=rtcp-mux"));
        }
    }
}

fn crypto(text: &mut String, tag: u32, keys: &Keys) {
    let key = base64_simd::STANDARD.encode_to_string(keys.material());
    let suite = keys.suite.name();
    line_of(text, format_args!("a=crypto:{tag} {suite} inline:{key}"));
}

/// No address, of this one's version of IP.
const fn unspecified(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}

const fn family(address: IpAddr) -> &'static str {
    match address {
        IpAddr::V4(_) => "IP4",
        IpAddr::V6(_) => "IP6",
    }
}

fn line_of(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = text.write_fmt(line);
    text.push_str("\r\n");
}

#[cfg(test)]
mod tests;
