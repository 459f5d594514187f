//! The telephony vendor's media-stream protocol (Twilio Media Streams, bidirectional): the vendor is
//! the WebSocket client, `event` tells messages apart, audio is G.711 μ-law at 8 kHz.

use std::time::Duration;

use serde_json::Value;

use super::Sink;
use super::codec::Codec;
use super::fields::{Fields, Refusal, keys, whole};
use super::scan::{self, Scan, once};
use super::watch::AUDIO_FORMAT;
use super::write::{number, string};
use crate::config::AudioFormat;
use crate::leg::{Coding, LegEvent};
use crate::time::Time;

/// Engine samples (16 kHz) in one of the wire's (8 kHz).
const UP: u64 = 2;

/// Wire samples a millisecond.
const PER_MS: u64 = 8;

/// Less than one frame of the vendor (20 ms), in wire samples: not a loss but the vendor's clock.
const SMALLEST_GAP: u64 = 20 * PER_MS;

/// A longer jump (10 s), in wire samples, is a new timeline and not lost audio. It also bounds the
/// silence that one message can make.
const LARGEST_GAP: u64 = 10_000 * PER_MS;

/// This far back (1 s), in wire samples, the vendor's clock may still be jittering.
const LARGEST_STEP_BACK: u64 = 1000 * PER_MS;

/// Characters of a stream's id; the vendor's have 34.
const LONGEST_ID: usize = 256;

/// One vendor's stream.
pub struct Telco {
    codec: Codec,
    /// Known from `start` on.
    stream: Option<Stream>,
    /// Where the vendor's next audio belongs, in wire samples on its own clock.
    expected: Option<u64>,
    marks: Marks,
}

/// What goes to the vendor begins with the stream's id.
struct Stream {
    /// `"streamSid":"…"`
    member: String,
}

/// What stands between a chunk of audio and the one before.
#[derive(Clone, Copy)]
enum Before {
    Nothing,
    /// So many wire samples are missing.
    Lost(u64),
    /// The timestamps tell nothing of it.
    Restart,
}

/// Which echoes prove that something was played. The vendor echoes a mark when the audio before it
/// was played, but also, all at once, when that audio is cleared: so each clear begins an epoch, and
/// only marks of the present one count.
#[derive(Default)]
struct Marks {
    epoch: u64,
    /// The furthest mark sent in this epoch: nobody can have played more.
    sent: u64,
    /// The furthest echo.
    echoed: u64,
}

impl Telco {
    pub(super) fn new() -> Self {
        Self {
            codec: Codec::new(AudioFormat::Ulaw8000),
            stream: None,
            expected: None,
            marks: Marks::default(),
        }
    }

    pub(super) const fn ready(&self) -> bool {
        self.stream.is_some()
    }

    /// Whether the vendor stamps its audio. (Clouds that copy the format may not.)
    pub(super) const fn is_stamped(&self) -> bool {
        self.expected.is_some()
    }

    pub(super) const fn tell_time(&mut self, now: Time) {
        self.codec.tell_time(now);
    }

    pub(super) fn delay(&self) -> Duration {
        self.codec.delay()
    }

    pub(super) fn exchange(&mut self, coding: &mut Coding) {
        self.codec.exchange(coding);
    }

    pub(super) fn receive(&mut self, text: &str, sink: Sink<'_>) -> Result<(), Refusal> {
        if self.ready()
            && let Some(media) = scan_media(text)
        {
            let timestamp = media.timestamp.and_then(scan::number);
            if self
                .media(media.track, timestamp, media.payload, sink)
                .is_ok()
            {
                return Ok(());
            }
        }
        self.receive_any(text, sink)
    }

    /// Any message, of any shape.
    pub(super) fn receive_any(&mut self, text: &str, sink: Sink<'_>) -> Result<(), Refusal> {
        let mut fields = Fields::parse(text)?;
        match fields.text("event")? {
            "media" => {
                if !self.ready() {
                    // Some vendors send sound ahead of what says whose it is.
                    return Ok(());
                }
                let media = fields.object("media")?;
                let track = media
                    .get("track")
                    .and_then(Value::as_str)
                    .map(str::as_bytes);
                let timestamp = media.get("timestamp").and_then(whole);
                let payload = media.text("payload")?.as_bytes();
                self.media(track, timestamp, payload, sink)
                    .map_err(Refusal::invalid)
            }
            "connected" => Ok(()),
            "start" => self.start(fields, sink),
            "dtmf" => {
                let dtmf = fields.object("dtmf")?;
                let digit = dtmf
                    .get("digit")
                    .ok_or(Refusal::invalid("digit is missing"))?;
                keys(digit, 1)?
                    .chars()
                    .for_each(|key| sink(LegEvent::Digit(key)));
                Ok(())
            }
            "mark" => {
                let mark = fields.object("mark")?;
                if let Some(sent) = self.marks.echo(mark.text("name")?) {
                    sink(LegEvent::Marked { sent });
                }
                Ok(())
            }
            "stop" => {
                sink(LegEvent::End);
                Ok(())
            }
            unknown => Err(Refusal::unknown_type(unknown)),
        }
    }

    fn start(&mut self, mut fields: Fields, sink: Sink<'_>) -> Result<(), Refusal> {
        if self.ready() {
            return Err(Refusal::invalid("start came twice"));
        }
        let start = fields.object("start")?;
        let id = start
            .short_text("streamSid", LONGEST_ID)
            .or_else(|_| fields.short_text("streamSid", LONGEST_ID))?;
        if let Some(Value::Object(format)) = start.get("mediaFormat") {
            let encoding = format.get("encoding").and_then(Value::as_str);
            let rate = format.get("sampleRate").and_then(whole);
            let channels = format.get("channels").and_then(whole);
            if encoding.is_some_and(|name| !is_ulaw(name))
                || rate.is_some_and(|hz| hz != u64::from(AudioFormat::Ulaw8000.sample_rate()))
                || channels.is_some_and(|count| count != 1)
            {
                return Err(Refusal::invalid(
                    "mediaFormat must be audio/x-mulaw, 8000 Hz, mono",
                ));
            }
        }
        let mut member = String::from("\"streamSid\":");
        string(&mut member, id);
        self.stream = Some(Stream { member });
        let parameters = start.get("customParameters");
        let token = parameters
            .and_then(|given| given.get("token"))
            .and_then(Value::as_str);
        sink(LegEvent::Started { token });
        Ok(())
    }

    /// Audio of one message, `timestamp` ms after the vendor's start.
    fn media(
        &mut self,
        track: Option<&[u8]>,
        timestamp: Option<u64>,
        payload: &[u8],
        sink: Sink<'_>,
    ) -> Result<(), &'static str> {
        if track.is_some_and(|track| track != b"inbound") {
            return Ok(());
        }
        let length = self.codec.decode(payload)? as u64;
        if let Some(message) = self.codec.take_words() {
            let code = AUDIO_FORMAT;
            sink(LegEvent::Invalid {
                code,
                message: &message,
            });
        }
        match self.place(timestamp, length) {
            Before::Nothing => {}
            Before::Lost(lost) => sink(LegEvent::Lost { samples: lost * UP }),
            Before::Restart => sink(LegEvent::Unplaced),
        }
        let samples = self.codec.samples();
        if !samples.is_empty() {
            sink(LegEvent::Audio(samples));
        }
        Ok(())
    }

    /// Puts a chunk of `length` wire samples on the vendor's clock and says what is before it. What is
    /// expected counts the samples that came and the gaps that were filled, not the last timestamp: so
    /// many small gaps add up to one that is filled, and a timestamp that was late once is not paid for
    /// twice.
    fn place(&mut self, timestamp: Option<u64>, length: u64) -> Before {
        let stamped = timestamp.map(|ms| ms.saturating_mul(PER_MS));
        let (start, before) = match (stamped, self.expected) {
            (None, None) => return Before::Nothing,
            (None, Some(expected)) => (expected, Before::Nothing),
            (Some(stamped), None) => (stamped, Before::Nothing),
            (Some(stamped), Some(expected)) => {
                let ahead = stamped.saturating_sub(expected);
                let behind = expected.saturating_sub(stamped);
                if ahead > LARGEST_GAP || behind > LARGEST_STEP_BACK {
                    (stamped, Before::Restart)
                } else if ahead >= SMALLEST_GAP {
                    (stamped, Before::Lost(ahead))
                } else {
                    (expected, Before::Nothing)
                }
            }
        };
        self.expected = Some(start.saturating_add(length));
        before
    }

    pub(super) fn audio(&mut self, out: &mut String, frame: &[i16]) {
        let Some(stream) = &self.stream else { return };
        out.push_str("{\"event\":\"media\",");
        out.push_str(&stream.member);
        out.push_str(",\"media\":{\"payload\":\"");
        self.codec.encode(frame, out);
        out.push_str("\"}}");
    }

    pub(super) fn mark(&mut self, out: &mut String, sent: u64) -> bool {
        let Some(stream) = &self.stream else {
            return false;
        };
        out.push_str("{\"event\":\"mark\",");
        out.push_str(&stream.member);
        out.push_str(",\"mark\":{\"name\":\"");
        number(out, self.marks.epoch);
        out.push(':');
        number(out, sent);
        out.push_str("\"}}");
        self.marks.sent = self.marks.sent.max(sent);
        true
    }

    pub(super) fn clear(&mut self, out: &mut String) {
        self.codec.cut();
        self.marks.clear();
        let Some(stream) = &self.stream else { return };
        out.push_str("{\"event\":\"clear\",");
        out.push_str(&stream.member);
        out.push('}');
    }
}

impl Marks {
    /// What the echo of mark `name` proves to have been played, if it proves anything new.
    fn echo(&mut self, name: &str) -> Option<u64> {
        let (epoch, sent) = name.split_once(':')?;
        let (epoch, sent) = (
            scan::number(epoch.as_bytes())?,
            scan::number(sent.as_bytes())?,
        );
        if epoch != self.epoch || sent > self.sent || sent < self.echoed {
            return None;
        }
        self.echoed = sent;
        Some(sent)
    }

    fn clear(&mut self) {
        *self = Self {
            epoch: self.epoch + 1,
            sent: 0,
            echoed: 0,
        };
    }
}

/// A media message of the usual shape.
struct Media<'a> {
    track: Option<&'a [u8]>,
    timestamp: Option<&'a [u8]>,
    payload: &'a [u8],
}

fn scan_media(text: &str) -> Option<Media<'_>> {
    let (mut event, mut media) = (None, None);
    let mut scan = Scan::new(text);
    scan.object(|scan, key| match key {
        b"event" => once(&mut event, scan.string()?),
        b"media" => {
            let (mut track, mut timestamp, mut payload) = (None, None, None);
            scan.object(|scan, key| match key {
                b"track" => once(&mut track, scan.string()?),
                b"timestamp" => once(&mut timestamp, scan.scalar()?),
                b"payload" => once(&mut payload, scan.payload()?),
                _ => scan.scalar().map(drop),
            })?;
            once(
                &mut media,
                Media {
                    track,
                    timestamp,
                    payload: payload?,
                },
            )
        }
        _ => scan.scalar().map(drop),
    })?;
    scan.end()?;
    // Of another track nothing is decoded, so nothing would find out a payload that is not one.
    media.filter(|media| {
        event == Some(b"media") && media.track.is_none_or(|track| track == b"inbound")
    })
}

fn is_ulaw(encoding: &str) -> bool {
    ["audio/x-mulaw", "audio/mulaw", "audio/pcmu"]
        .iter()
        .any(|name| encoding.eq_ignore_ascii_case(name))
}
