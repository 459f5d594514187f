//! Codecs of a description: Opus (RFC 7587) and keypad events (RFC 4733), told by name, clock and channels.
//!
//! Format parameters (`a=fmtp`) are wishes of whoever writes them and never decide whether two codecs are the same. The core
//! takes them for a part of the codec's name, and drops a codec whose parameters differ from ours as soon as another
//! one is equal. So the core is told of one codec, Opus without parameters under one number, and what the other side reads
//! of codecs is written here.

use super::sdp::{formats, head};
use crate::audio::opus;

/// The numbers of our own offer.
const OURS: (u8, [(u8, u32); 2]) = (
    crate::leg::webrtc::OPUS,
    [(110, opus::CLOCK), (crate::leg::webrtc::DIGITS, 8_000)],
);

/// What the other side's encoder is asked for: copies for losses, nothing in silence, and a voice's bandwidth
/// (RFC 7587 section 6.1).
pub(super) const ASKED: &str = "minptime=10;useinbandfec=1;usedtx=1;maxplaybackrate=16000";

/// The keys that are understood, as keypad events have them (RFC 4733 section 3.2).
const KEYS: &str = "0-15";

/// Lines of a medium that are about one codec.
const OF_A_CODEC: [&str; 3] = ["a=rtpmap:", "a=fmtp:", "a=rtcp-fb:"];

/// The codecs of one audio medium that are spoken here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Codecs {
    /// The payload type of Opus.
    pub(super) opus: u8,
    /// Payload types and clocks of keypad events: of Opus's own clock, and of a telephone's.
    pub(super) events: Vec<(u8, u32)>,
    /// The most bits of Opus a second that whoever wrote this wants to get.
    pub(super) most_bits: Option<u32>,
}

impl Codecs {
    /// Those of our own offer.
    pub(super) fn ours() -> Self {
        let (opus, events) = OURS;
        Self {
            opus,
            events: events.to_vec(),
            most_bits: None,
        }
    }

    /// Those of a medium, the preferred Opus of several. `None`: it has no Opus.
    pub(super) fn of(medium: &str) -> Option<Self> {
        let maps = Maps::of(medium);
        let mut numbers: Vec<u8> = Vec::new();
        for number in formats(medium).filter_map(number) {
            if !numbers.contains(&number) {
                numbers.push(number);
            }
        }
        let opus = *numbers.iter().find(|number| maps.is_opus(**number))?;
        let mut events: Vec<(u8, u32)> = Vec::new();
        for number in numbers {
            let clock = maps.events(number);
            events.extend(clock.map(|clock| (number, clock)));
        }
        let mut wishes = lines_of(medium, "a=fmtp:").filter_map(opus::most_bits);
        let most_bits = wishes.find(|(number, _)| *number == opus);
        Some(Self {
            opus,
            events,
            most_bits: most_bits.map(|(_, bits)| bits),
        })
    }

    /// The medium as one of ours: these codecs alone, with our own wishes.
    pub(super) fn written_into(&self, medium: &str) -> String {
        let opus = self.opus;
        let mut numbers = vec![opus];
        let mut lines = format!("a=rtpmap:{opus} opus/48000/2\r\na=fmtp:{opus} {ASKED}\r\n");
        // One for each clock: the other side sends one of them (RFC 4733 section 2.5.1.1).
        let clocks = self.events.iter().enumerate().filter(|(at, (_, clock))| {
            let before = &self.events[..*at];
            before.iter().all(|(_, other)| other != clock)
        });
        for (_, (number, clock)) in clocks {
            numbers.push(*number);
            let map = format!("a=rtpmap:{number} telephone-event/{clock}\r\n");
            lines.push_str(&map);
            lines.push_str(&format!("a=fmtp:{number} {KEYS}\r\n"));
        }
        with_codecs(medium, &numbers, &lines)
    }
}

/// The medium with these formats, and these lines in place of all that is about its codecs.
fn with_codecs(medium: &str, numbers: &[u8], lines: &str) -> String {
    let [name, port, protocol] = head(medium);
    let mut with = format!("{name} {port} {protocol}");
    for number in numbers {
        with.push_str(&format!(" {number}"));
    }
    with.push_str("\r\n");
    // The lines of a codec come behind what belongs to the medium as a whole (RFC 8866 section 5): b=, c= and the like.
    let mut waiting = Some(lines);
    for line in medium.split_inclusive('\n').skip(1) {
        if OF_A_CODEC.iter().any(|own| line.starts_with(own)) {
            continue;
        }
        if line.starts_with("a=") {
            with.push_str(waiting.take().unwrap_or_default());
        }
        with.push_str(line);
        if !line.ends_with('\n') {
            with.push_str("\r\n");
        }
    }
    with.push_str(waiting.unwrap_or_default());
    with
}

/// A payload type that packets may have beside RTCP (RFC 5761 section 4).
fn number(text: &str) -> Option<u8> {
    let number = text.parse().ok()?;
    matches!(number, 0..=63 | 96..=127).then_some(number)
}

fn lines_of<'a>(medium: &'a str, head: &'a str) -> impl Iterator<Item = &'a str> {
    let values = medium.lines().map(str::trim_end);
    values.filter_map(move |line| Some(line.strip_prefix(head)?.trim_start()))
}

/// What a medium's payload types stand for (`a=rtpmap`).
struct Maps<'a>([Option<&'a str>; 128]);

impl<'a> Maps<'a> {
    fn of(medium: &'a str) -> Self {
        let mut maps = [None; 128];
        for map in lines_of(medium, "a=rtpmap:") {
            let mut words = map.split_ascii_whitespace();
            if let Some(number) = words.next().and_then(number)
                && let Some(codec) = words.next()
            {
                maps[usize::from(number)].get_or_insert(codec);
            }
        }
        Self(maps)
    }

    /// Name, clock and channels of a codec; one channel where none are named.
    fn codec(&self, number: u8) -> Option<(&'a str, u32, u32)> {
        let mut parts = self.0[usize::from(number)]?.split('/');
        let (name, clock) = (parts.next()?, parts.next()?.parse().ok()?);
        let channels = parts.next().map_or(Some(1), |many| many.parse().ok())?;
        Some((name, clock, channels))
    }

    fn is_opus(&self, number: u8) -> bool {
        self.codec(number).is_some_and(|(name, clock, channels)| {
            name.eq_ignore_ascii_case("opus") && (clock, channels) == (opus::CLOCK, 2)
        })
    }

    /// The clock of keypad events, if it is one that Opus or a telephone has.
    fn events(&self, number: u8) -> Option<u32> {
        let (name, clock, channels) = self.codec(number)?;
        let known = name.eq_ignore_ascii_case("telephone-event") && channels == 1;
        (known && [opus::CLOCK, 8_000].contains(&clock)).then_some(clock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIREFOX: &str = "m=audio 9 UDP/TLS/RTP/SAVPF 109 9 0 8 101\r\nc=IN IP4 0.0.0.0\r\na=sendrecv\r\n\
        a=fmtp:109 maxplaybackrate=48000;stereo=1;useinbandfec=1\r\na=fmtp:101 0-15\r\na=mid:0\r\na=rtcp-mux\r\n\
        a=rtpmap:109 opus/48000/2\r\na=rtpmap:9 G722/8000/1\r\na=rtpmap:0 PCMU\r\na=rtpmap:8 PCMA/8000\r\n\
        a=rtpmap:101 telephone-event/8000/1\r\n";

    #[test]
    fn opus_is_told_by_name_clock_and_channels_whatever_is_wished() {
        let codecs = Codecs::of(FIREFOX).expect("Opus");
        assert_eq!((codecs.opus, codecs.most_bits), (109, None));
        assert_eq!(codecs.events, [(101, 8_000)]);
        let as_ours = codecs.written_into(FIREFOX);
        let written = format!(
            "m=audio 9 UDP/TLS/RTP/SAVPF 109 101\r\nc=IN IP4 0.0.0.0\r\na=rtpmap:109 opus/48000/2\r\na=fmtp:109 {ASKED}\r\n\
             a=rtpmap:101 telephone-event/8000\r\na=fmtp:101 0-15\r\na=sendrecv\r\na=mid:0\r\na=rtcp-mux\r\n"
        );
        assert_eq!(as_ours, written);
        // What is written so is read as the same.
        assert_eq!(Codecs::of(&as_ours), Some(codecs));
        assert_eq!(
            Codecs::of(&Codecs::ours().written_into(FIREFOX)),
            Some(Codecs::ours())
        );
    }

    #[test]
    fn what_only_looks_like_opus_is_none() {
        for map in [
            "opus/48000",
            "opus/48000/1",
            "opus/16000/2",
            "opus/48000/x",
            "opus",
            "multiopus/48000/6",
            "xopus/48000/2",
            "opus/48000/2x",
        ] {
            let medium = format!("m=audio 9 X 111 0\r\na=rtpmap:111 {map}\r\n");
            assert_eq!(Codecs::of(&medium), None, "{map}");
        }
        // Offered are the numbers of the first line alone, and none that RTCP has.
        assert_eq!(
            Codecs::of("m=audio 9 X 0\r\na=rtpmap:111 opus/48000/2\r\n"),
            None
        );
        assert_eq!(
            Codecs::of(
                "m=audio 9 X 72 200 x\r\na=rtpmap:72 opus/48000/2\r\na=rtpmap:200 opus/48000/2\r\n"
            ),
            None
        );
        assert_eq!(Codecs::of("m=audio"), None);
        assert_eq!(Codecs::of(""), None);
    }

    #[test]
    fn of_several_the_first_of_the_offer_is_taken_and_its_bits() {
        let medium = "m=audio 9 X 63 97 111 97 110 126 105\r\na=rtpmap:111 opus/48000/2\r\na=rtpmap:97 OPUS/48000/2\r\n\
            a=rtpmap:63 red/48000/2\r\na=fmtp:63 111/111\r\na=fmtp:111 maxaveragebitrate=9000\r\n\
            a=fmtp:97  stereo=1; MaxAverageBitrate = 24000 ;cbr=1\r\n\
            a=rtpmap:126 telephone-event/8000\r\na=rtpmap:110 telephone-event/48000\r\na=rtpmap:105 CN/16000\r\n";
        let codecs = Codecs::of(medium).expect("Opus");
        assert_eq!(codecs.opus, 97);
        assert_eq!(codecs.events, [(110, 48_000), (126, 8_000)]);
        assert_eq!(codecs.most_bits, Some(24_000));
    }
}
