//! SDP text to what an audio line says. Total and bounded: lines that are not known are passed over, as
//! RFC 8866 section 5 asks, whatever order they come in; and so are those that nobody needs, whatever is wrong with them.
//! A line about one format decides about that format alone.

use core::net::{IpAddr, SocketAddr};
use std::fmt;

use super::{Codec, Flow, PACKET_MS};
use crate::audio::opus;
use crate::rtp::srtp::{Keys, LONGEST_IDENTIFIER, Suite};

/// The longest description, bytes: a browser's with all its codecs has a third of it.
const LONGEST: usize = 16 << 10;
/// Media lines, and attributes of one: more is no telephone.
const MOST_MEDIA: usize = 16;
const MOST_FORMATS: usize = 64;

/// The clock of a telephone's codecs, and of events and comfort noise that name none (RFC 4733 section 2.4.1, RFC 3389
/// section 4).
const NARROW: u32 = 8_000;

/// What is wrong with a description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(&'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Where a line `c=` says that media are (RFC 8866 section 5.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    At(IpAddr),
    /// Under a name. What a stranger names is not looked up.
    Named,
    /// In another network than the internet, in a version of IP that the address is none of, or at many places at once.
    Elsewhere,
    /// The line says no address.
    Nowhere,
}

#[derive(Debug, Default)]
pub(super) struct Description {
    place: Option<Place>,
    flow: Option<Flow>,
    pub(super) media: Vec<Media>,
}

#[derive(Debug, Default)]
pub(super) struct Media {
    pub(super) kind: String,
    pub(super) port: u16,
    pub(super) protocol: String,
    pub(super) formats: Vec<String>,
    place: Option<Place>,
    maps: Vec<Map>,
    flow: Option<Flow>,
    reports: Option<(u16, Option<Place>)>,
    pub(super) mux: bool,
    /// The most bits of Opus a second that they want, by format.
    limits: Vec<(u8, u32)>,
    /// The audio that a packet is to have, and has at most, ms.
    packet: Option<u32>,
    longest_packet: Option<u32>,
    /// The lines whose suite is known and whose parameters say nothing unknown, with their numbers.
    pub(super) crypto: Vec<(u32, Keys)>,
}

/// What an `a=rtpmap` says of one format.
#[derive(Debug)]
struct Map {
    number: u8,
    /// `None`: nothing that can be read. The format is not spoken, whatever else its number stands for.
    encoding: Option<Encoding>,
}

#[derive(Debug)]
struct Encoding {
    name: String,
    /// `None`: the line says none.
    clock: Option<u32>,
    channels: u32,
}

impl Description {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        if bytes.len() > LONGEST {
            return Err(Malformed("longer than 16 KiB"));
        }
        // Names and titles may be of any character set (RFC 8866 section 6.10); what is needed is ASCII.
        let text = String::from_utf8_lossy(bytes);
        let mut lines = text.split(['\r', '\n', '\0']).map(str::trim);
        if lines.find(|line| !line.is_empty()) != Some("v=0") {
            return Err(Malformed("does not begin with v=0"));
        }
        let mut description = Self::default();
        for (kind, value) in lines.filter_map(|line| line.split_once('=')) {
            match kind {
                "m" => {
                    if description.media.len() == MOST_MEDIA {
                        return Err(Malformed("too many media"));
                    }
                    description.media.push(Media::parse(value)?);
                }
                "c" => {
                    let place = Some(place(value));
                    match description.media.last_mut() {
                        Some(media) => media.place = place,
                        None => description.place = place,
                    }
                }
                "a" => match description.media.last_mut() {
                    Some(media) => media.attribute(value),
                    None => description.flow = description.flow.or(flow(value)),
                },
                _ => {}
            }
        }
        Ok(description)
    }
}

impl Media {
    /// `audio 49170 RTP/AVP 0 8`
    fn parse(value: &str) -> Result<Self, Malformed> {
        // Its words are said again in the answer.
        if !value.is_ascii() {
            return Err(Malformed("an m line that is not ASCII"));
        }
        let mut words = value.split_ascii_whitespace();
        let (Some(kind), Some(port), Some(protocol)) = (words.next(), words.next(), words.next())
        else {
            return Err(Malformed("an m line without kind, port and protocol"));
        };
        // `49170/2` would be two ports.
        let port = port.split('/').next().unwrap_or_default();
        let port = match port.parse() {
            Ok(port) => port,
            Err(_) if kind == "audio" => return Err(Malformed("a port that is no port")),
            // It is refused in any case.
            Err(_) => 0,
        };
        Ok(Self {
            kind: kind.to_owned(),
            port,
            protocol: protocol.to_owned(),
            formats: words.take(MOST_FORMATS).map(str::to_owned).collect(),
            ..Self::default()
        })
    }

    fn attribute(&mut self, value: &str) {
        let (name, value) = value.split_once(':').unwrap_or((value, ""));
        let value = value.trim_start();
        match name {
            "rtpmap" if self.maps.len() < MOST_FORMATS => self.maps.extend(map(value)),
            "fmtp" if self.limits.len() < MOST_FORMATS => {
                self.limits.extend(opus::most_bits(value))
            }
            "rtcp-mux" => self.mux = true,
            // What is no number asks for nothing.
            "ptime" => self.packet = value.parse().ok(),
            "maxptime" => self.longest_packet = value.parse().ok(),
            "rtcp" => {
                let (port, own) = value.split_once(' ').unwrap_or((value, ""));
                let own = (!own.is_empty()).then(|| place(own));
                // Reports without a port go where they usually do (RFC 3605 section 2.1).
                self.reports = port.parse().ok().map(|port| (port, own));
            }
            "crypto" if self.crypto.len() < MOST_FORMATS => self.crypto.extend(crypto(value)),
            _ => self.flow = self.flow.or(flow(name)),
        }
    }

    /// RTP that is not keyed by a handshake of its own.
    pub(super) fn is_rtp(&self) -> bool {
        ["RTP/AVP", "RTP/AVPF", "RTP/SAVP", "RTP/SAVPF"].contains(&&*self.protocol)
    }

    pub(super) fn is_secure(&self) -> bool {
        self.protocol.starts_with("RTP/SAVP")
    }

    pub(super) fn place(&self, description: &Description) -> Place {
        self.place.or(description.place).unwrap_or(Place::Nowhere)
    }

    pub(super) fn flow(&self, description: &Description) -> Flow {
        self.flow.or(description.flow).unwrap_or_default()
    }

    pub(super) fn reports(&self, address: IpAddr) -> SocketAddr {
        match self.reports {
            _ if self.mux => SocketAddr::new(address, self.port),
            Some((port, own)) => {
                // Reports are not worth a call, and go where its audio goes.
                let own = match own {
                    Some(Place::At(own)) if own.is_ipv4() == address.is_ipv4() => own,
                    _ => address,
                };
                SocketAddr::new(own, port)
            }
            None => SocketAddr::new(address, self.port.saturating_add(1)),
        }
    }

    /// The first of the codecs that is there, and its number.
    pub(super) fn codec(&self, codecs: &[Codec]) -> Option<(Codec, u8)> {
        codecs.iter().find_map(|codec| {
            let number = self.numbers().find(|number| self.means(*number, *codec));
            Some((*codec, number?))
        })
    }

    /// The first number that is one of the codecs.
    pub(super) fn first_codec(&self, codecs: &[Codec]) -> Option<(Codec, u8)> {
        self.numbers().find_map(|number| {
            let codec = codecs.iter().find(|codec| self.means(number, **codec));
            Some((*codec?, number))
        })
    }

    fn means(&self, number: u8, codec: Codec) -> bool {
        match self.map(number) {
            Some(map) => map.encoding.as_ref().is_some_and(|encoding| {
                // None of the codecs has two clocks.
                let clock = encoding.clock.unwrap_or(codec.clock());
                codec.is(&encoding.name, clock, encoding.channels)
            }),
            None => number == codec.payload_type() && number < 96,
        }
    }

    fn map(&self, number: u8) -> Option<&Map> {
        self.maps.iter().find(|map| map.number == number)
    }

    /// The most bits of a format a second that they want; `None`: they do not say.
    pub(super) fn most_bits(&self, payload_type: u8) -> Option<u32> {
        let limit = self
            .limits
            .iter()
            .find(|(number, _)| *number == payload_type);
        limit.map(|(_, bits)| *bits)
    }

    /// How much audio our packets hold, ms: what they ask for (RFC 8866 section 6.4), as near as it can be made
    /// and no longer.
    pub(super) fn packet_ms(&self, codec: Codec) -> u8 {
        if codec == Codec::Opus {
            return PACKET_MS;
        }
        let asked = self.packet.unwrap_or(PACKET_MS.into());
        let most = asked.min(self.longest_packet.unwrap_or(u32::MAX));
        let lengths = [60, 40, 30, 20];
        let fits = lengths.into_iter().find(|ms| u32::from(*ms) <= most);
        fits.unwrap_or(10)
    }

    /// Keypad events that count time as the codec does, else the first there are: their number and
    /// clock.
    pub(super) fn events(&self, clock: u32) -> Option<(u8, u32)> {
        let clock_of = |number: u8| {
            let encoding = self.map(number)?.encoding.as_ref()?;
            let is_event = encoding.name.eq_ignore_ascii_case("telephone-event");
            is_event.then_some(encoding.clock.unwrap_or(NARROW))
        };
        let all = || {
            self.numbers()
                .filter_map(|number| Some((number, clock_of(number)?)))
        };
        all()
            .find(|(_, own)| *own == clock)
            .or_else(|| all().next())
    }

    pub(super) fn comfort_noise(&self, codec: Codec) -> Option<u8> {
        if codec.clock() != NARROW {
            return None;
        }
        self.numbers().find(|number| match self.map(*number) {
            Some(map) => map.encoding.as_ref().is_some_and(|encoding| {
                encoding.name.eq_ignore_ascii_case("CN")
                    && encoding.clock.unwrap_or(NARROW) == NARROW
            }),
            None => *number == 13,
        })
    }

    fn numbers(&self) -> impl Iterator<Item = u8> {
        let numbers = self.formats.iter().filter_map(|format| format.parse().ok());
        numbers.filter(|number| *number < 128)
    }
}

fn flow(name: &str) -> Option<Flow> {
    Flow::ALL.into_iter().find(|flow| flow.name() == name)
}

/// `IN IP4 192.0.2.1`, `IN IP6 2001:db8::1`, perhaps with a multicast's rest. An IPv4 address inside one of IPv6
/// (RFC 5118 section 4.9) is the former.
fn place(value: &str) -> Place {
    let mut words = value.split_ascii_whitespace();
    let (Some(network), Some(version), Some(address)) = (words.next(), words.next(), words.next())
    else {
        return Place::Nowhere;
    };
    let is_six = version.eq_ignore_ascii_case("IP6");
    if !network.eq_ignore_ascii_case("IN") || !(is_six || version.eq_ignore_ascii_case("IP4")) {
        return Place::Elsewhere;
    }
    // A multicast's rest; the zone of a link-local address (RFC 4007 section 11).
    let address = address.split(['/', '%']).next().unwrap_or_default();
    match address.parse::<IpAddr>() {
        Ok(address) if address.is_ipv6() != is_six => Place::Elsewhere,
        Ok(address) if address.to_canonical().is_multicast() => Place::Elsewhere,
        Ok(address) => Place::At(address.to_canonical()),
        Err(_) if is_name(address) => Place::Named,
        Err(_) => Place::Nowhere,
    }
}

/// Whether a host may be called so (RFC 1123 section 2.1): not by numbers alone.
fn is_name(host: &str) -> bool {
    host.bytes().any(|byte| byte.is_ascii_alphabetic())
        && host
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
}

/// `0 PCMU/8000`, `111 opus/48000/2`. `None`: the line is about no format.
fn map(value: &str) -> Option<Map> {
    let mut words = value.split_ascii_whitespace();
    let number = words.next()?.parse().ok()?;
    let encoding = words.next().and_then(|encoding| {
        let mut parts = encoding.split('/');
        Some(Encoding {
            name: parts.next()?.to_owned(),
            clock: match parts.next() {
                Some(clock) => Some(clock.parse().ok()?),
                None => None,
            },
            channels: match parts.next() {
                Some(channels) => channels.parse().ok()?,
                None => 1,
            },
        })
    });
    Some(Map { number, encoding })
}

/// `1 AES_CM_128_HMAC_SHA1_80 inline:key|2^31|1:4`. A line that asks for what is not known here is none: it
/// must not be chosen (RFC 4568 section 7.1.2), nor is one that is not as its grammar says (section 9.2).
fn crypto(value: &str) -> Option<(u32, Keys)> {
    let mut words = value.split_ascii_whitespace();
    let tag = words.next()?.parse().ok()?;
    let suite = Suite::named(words.next()?)?;
    let keys: Option<Vec<_>> = words.next()?.split(';').map(key).collect();
    if words.any(|word| !word.to_ascii_uppercase().starts_with("WSH=")) {
        return None;
    }
    let keys = match keys?.as_slice() {
        [(None, material)] => Keys::new(suite, material),
        keys => {
            let named = keys.iter().map(|(identifier, material)| {
                let identifier = identifier.clone()?;
                Some((identifier, material.clone()))
            });
            Keys::identified(suite, &named.collect::<Option<Vec<_>>>()?)
        }
    };
    Some((tag, keys?))
}

/// `inline:key|2^20|1:4`, where the lifetime or the identifier may be left out: key and identifier.
fn key(value: &str) -> Option<(Option<Vec<u8>>, Vec<u8>)> {
    let (method, info) = value.split_once(':')?;
    if !method.eq_ignore_ascii_case("inline") {
        return None;
    }
    let mut parts = info.split('|');
    let key = parts.next()?.trim_end_matches('=');
    let rest: Vec<&str> = parts.collect();
    let identifier = match rest.as_slice() {
        [] => None,
        [one] if one.contains(':') => Some(identifier(one)?),
        [life] => lifetime(life).map(|()| None)?,
        [life, named] => {
            lifetime(life)?;
            Some(identifier(named)?)
        }
        _ => return None,
    };
    let material = base64_simd::STANDARD_NO_PAD
        .decode_to_vec(key.as_bytes())
        .ok()?;
    Some((identifier, material))
}

/// `2^20`, `1048576`: packets that a key is good for. They are far more than any call has, so that it needs no keeping, but
/// no more than there can be (RFC 3711 section 9.2).
fn lifetime(value: &str) -> Option<()> {
    const MOST: u32 = 48;
    let packets = match value.split_once('^') {
        Some(("2", power)) => 1_u64.checked_shl(digits(power)?)?,
        Some(_) => return None,
        None => digits(value)?,
    };
    (1..=1 << MOST).contains(&packets).then_some(())
}

/// `1:4`: the bytes of each packet that name its key, the first the highest.
fn identifier(value: &str) -> Option<Vec<u8>> {
    let (value, length) = value.split_once(':')?;
    let (value, length): (u64, usize) = (digits(value)?, digits(length)?);
    if !(1..=LONGEST_IDENTIFIER).contains(&length) {
        return None;
    }
    let bytes = value.to_be_bytes();
    let mut identifier = vec![0; length.saturating_sub(bytes.len())];
    let (over, used) = bytes.split_at(bytes.len().saturating_sub(length));
    identifier.extend_from_slice(used);
    over.iter().all(|byte| *byte == 0).then_some(identifier)
}

/// A number without a sign.
fn digits<T: std::str::FromStr>(text: &str) -> Option<T> {
    let are_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| are_digits)
}
