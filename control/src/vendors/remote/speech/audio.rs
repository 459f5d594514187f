//! The sound in the body of a speech answer: raw samples, WAV, or events with samples in base64. What a
//! server says it sends and what it sends are two things, so the first bytes are looked at. Pure.

use serde_json::Value;

use super::super::complaint;
use super::super::plan::Fault;
use super::super::sse::{Events, TooLong};

/// The longest WAV header, bytes: some writers put a picture before the sound.
const LONGEST_HEADER: usize = 64 << 10;

/// Bytes that tell one kind of sound from another.
const SNIFFED: usize = 4;

/// Reads a body.
pub(super) struct Sound {
    /// Where the sound comes in events.
    events: Option<Events>,
    samples: Samples,
}

/// Reads samples, with or without a WAV header.
struct Samples {
    state: State,
    /// What could not be used yet.
    pending: Vec<u8>,
    /// Hz.
    rate: u32,
    channels: usize,
}

#[derive(Clone, Copy)]
enum State {
    /// The kind is not known yet.
    Sniffing,
    Header,
    /// Samples; how many bytes of them are left, if that is known.
    Body(Option<u64>),
}

impl Sound {
    /// By the answer's `Content-Type`; `rate` is that of raw samples whose rate it does not tell.
    pub(super) fn new(content_type: &str, rate: u32) -> Result<Self, Fault> {
        let mut parts = content_type.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
        let mut samples = Samples {
            state: State::Sniffing,
            pending: Vec::new(),
            rate,
            channels: 1,
        };
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            if name.eq_ignore_ascii_case("rate") {
                samples.rate = value.trim_matches('"').parse().unwrap_or(rate);
            } else if name.eq_ignore_ascii_case("channels") {
                samples.channels = value.parse().unwrap_or(1).clamp(1, 8);
            }
        }
        let events = kind == "text/event-stream";
        if !events && (kind.starts_with("text/") || kind == "application/json") {
            return Err(Fault::Garbage {
                what: format!("the voice sent {}, not sound", complaint::line(&kind)),
                page: None,
            });
        }
        // Everything else is told by its first bytes.
        Ok(Self {
            events: events.then(Events::default),
            samples,
        })
    }

    /// Samples a second of what [`push`](Self::push) gives. Known once it gave any.
    pub(super) const fn rate(&self) -> u32 {
        self.samples.rate
    }

    /// Takes the next bytes of the body and appends their samples, mono.
    pub(super) fn push(&mut self, bytes: &[u8], out: &mut Vec<i16>) -> Result<(), Fault> {
        let Some(events) = &mut self.events else {
            return self.samples.push(bytes, out);
        };
        let mut found = Vec::new();
        events
            .push(bytes, |data| found.push(data.to_owned()))
            .map_err(|TooLong| Fault::Wrong("an event is too long".to_owned()))?;
        found
            .iter()
            .try_for_each(|data| event(data, &mut self.samples, out))
    }

    /// The body is at its end. `Err`: it ended before the sound did.
    pub(super) fn finish(&mut self, out: &mut Vec<i16>) -> Result<(), Fault> {
        if let Some(events) = &mut self.events {
            let mut found = Vec::new();
            events.finish(|data| found.push(data.to_owned()));
            for data in &found {
                event(data, &mut self.samples, out)?;
            }
        }
        self.samples.finish(out)
    }
}

/// One event: `speech.audio.delta` carries sound in base64, `speech.audio.done` ends it.
fn event(data: &str, samples: &mut Samples, out: &mut Vec<i16>) -> Result<(), Fault> {
    if data == "[DONE]" {
        return Ok(());
    }
    let event: Value = serde_json::from_str(data).map_err(|_| Fault::Garbage {
        what: "an event is not JSON".to_owned(),
        page: complaint::page(data.as_bytes()),
    })?;
    if !event["error"].is_null() {
        return Err(Fault::Told(complaint::read(data)));
    }
    let Some(audio) = event["audio"].as_str().or(event["delta"].as_str()) else {
        return Ok(());
    };
    let bytes = base64_simd::STANDARD
        .decode_to_vec(audio)
        .map_err(|_| Fault::Wrong("an event's sound is not base64".to_owned()))?;
    samples.push(&bytes, out)
}

impl Samples {
    fn push(&mut self, bytes: &[u8], out: &mut Vec<i16>) -> Result<(), Fault> {
        self.pending.extend_from_slice(bytes);
        self.sound(out)
    }

    fn finish(&mut self, out: &mut Vec<i16>) -> Result<(), Fault> {
        if matches!(self.state, State::Sniffing) {
            self.state = State::Body(None);
            self.samples(out);
        }
        match self.state {
            State::Header => Err(Fault::Wrong("the sound ended within its header".to_owned())),
            State::Body(Some(left)) if left > 0 => {
                Err(Fault::Broken("the sound ended too soon".to_owned()))
            }
            _ => Ok(()),
        }
    }

    fn sound(&mut self, out: &mut Vec<i16>) -> Result<(), Fault> {
        if matches!(self.state, State::Sniffing) {
            if self.pending.len() < SNIFFED {
                return Ok(());
            }
            self.state = match &self.pending[..SNIFFED] {
                b"RIFF" => State::Header,
                b"OggS" | b"fLaC" | b"ID3\x03" | b"ID3\x04" | b"\x1aE\xdf\xa3" => {
                    return Err(Fault::Wrong(
                        "the voice sent compressed sound; pcm and wav are understood".to_owned(),
                    ));
                }
                _ => State::Body(None),
            };
        }
        if matches!(self.state, State::Header) && !self.header()? {
            return Ok(());
        }
        self.samples(out);
        Ok(())
    }

    /// Reads the WAV header. `false`: it is not all there yet.
    fn header(&mut self) -> Result<bool, Fault> {
        let wrong = |why: &str| Err(Fault::Wrong(format!("the voice sent WAV that {why}")));
        let mut at = 12;
        let mut known = false;
        loop {
            let Some(chunk) = self.pending.get(at..at + 8) else {
                if self.pending.len() > LONGEST_HEADER {
                    return wrong("has no data");
                }
                return Ok(false);
            };
            let length = le32(&chunk[4..]);
            let body = at + 8;
            match &chunk[..4] {
                b"fmt " => {
                    let Some(format) = self.pending.get(body..body + 16) else {
                        return Ok(false);
                    };
                    let (kind, channels) = (le16(format), le16(&format[2..]));
                    let (rate, bits) = (le32(&format[4..]), le16(&format[14..]));
                    // 0xFFFE is the extensible form; its samples are integers in practice.
                    if !matches!(kind, 1 | 0xFFFE) || bits != 16 {
                        return wrong("is not of 16-bit samples");
                    }
                    if !(1..=8).contains(&channels) {
                        return wrong("has no channels");
                    }
                    self.rate = rate;
                    self.channels = channels.into();
                    known = true;
                }
                b"data" if known => {
                    // A writer that streams does not know the length: 0 or all ones.
                    let length = (1..0x7FFF_FF00).contains(&length).then_some(length.into());
                    self.pending.drain(..body);
                    self.state = State::Body(length);
                    return Ok(true);
                }
                b"data" => return wrong("has no format"),
                _ => {}
            }
            if length as usize > LONGEST_HEADER {
                return wrong("has too long a header");
            }
            at = body + length as usize + length as usize % 2;
        }
    }

    fn samples(&mut self, out: &mut Vec<i16>) {
        let State::Body(left) = &mut self.state else {
            return;
        };
        let width = 2 * self.channels;
        let mut usable = self.pending.len();
        if let Some(left) = left {
            usable = usable.min(usize::try_from(*left).unwrap_or(usize::MAX));
        }
        usable -= usable % width;
        for frame in self.pending[..usable].chunks_exact(width) {
            let sum: i32 = frame
                .chunks_exact(2)
                .map(|s| i32::from(i16::from_le_bytes([s[0], s[1]])))
                .sum();
            // The mean of 16-bit values is one.
            out.push((sum / self.channels as i32) as i16);
        }
        self.pending.drain(..usable);
        if let Some(left) = left {
            *left -= usable as u64;
            if *left == 0 {
                // What follows the sound is no sound.
                self.pending.clear();
            }
        }
    }
}

fn le16(bytes: &[u8]) -> u16 {
    u16::from_le_bytes([bytes[0], bytes[1]])
}

fn le32(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    /// Reads a body cut into parts of `step` bytes.
    fn read(kind: &str, body: &[u8], step: usize) -> Result<(u32, Vec<i16>), Fault> {
        let mut sound = Sound::new(kind, 24_000)?;
        let mut out = Vec::new();
        for part in body.chunks(step) {
            sound.push(part, &mut out)?;
        }
        sound.finish(&mut out)?;
        Ok((sound.rate(), out))
    }

    fn pcm(samples: &[i16]) -> Vec<u8> {
        samples.iter().flat_map(|s| s.to_le_bytes()).collect()
    }

    fn wav(rate: u32, channels: u16, length: Option<u32>, samples: &[i16]) -> Vec<u8> {
        let mut bytes = b"RIFF\xff\xff\xff\xffWAVELIST\x03\0\0\0abc\0fmt ".to_vec();
        bytes.extend(16_u32.to_le_bytes());
        bytes.extend(1_u16.to_le_bytes());
        bytes.extend(channels.to_le_bytes());
        bytes.extend(rate.to_le_bytes());
        bytes.extend((rate * 2 * u32::from(channels)).to_le_bytes());
        bytes.extend((2 * channels).to_le_bytes());
        bytes.extend(16_u16.to_le_bytes());
        bytes.extend(b"data");
        let length = length.unwrap_or(u32::try_from(samples.len() * 2).unwrap());
        bytes.extend(length.to_le_bytes());
        bytes.extend(pcm(samples));
        bytes
    }

    const SAMPLES: &[i16] = &[100, -200, 300, -400, 500, -600];

    #[test]
    fn raw_samples_have_the_rate_that_was_told() {
        for step in [1, 3, 100] {
            for (kind, rate) in [
                ("audio/pcm", 24_000),
                ("audio/pcm;rate=16000", 16_000),
                ("audio/L16; rate=8000; channels=1", 8_000),
                ("application/octet-stream", 24_000),
                ("", 24_000),
                ("audio/mpeg", 24_000),
            ] {
                let read = read(kind, &pcm(SAMPLES), step).unwrap();
                assert_eq!(read, (rate, SAMPLES.to_vec()), "{kind}");
            }
        }
        assert_eq!(read("audio/pcm", &[1, 0, 9], 2).unwrap().1, [1]);
        assert!(read("audio/pcm", &[], 2).unwrap().1.is_empty());
    }

    #[test]
    fn riff_is_noticed_whatever_was_announced() {
        for step in [1, 7, 1000] {
            for kind in ["audio/pcm", "audio/wav", "audio/mpeg", ""] {
                for length in [None, Some(u32::MAX), Some(0)] {
                    let body = wav(22_050, 1, length, SAMPLES);
                    let read = read(kind, &body, step).unwrap();
                    assert_eq!(read, (22_050, SAMPLES.to_vec()), "{kind} {length:?}");
                }
            }
        }
        let stereo = wav(16_000, 2, None, &[100, 300, -5, -7]);
        assert_eq!(read("audio/wav", &stereo, 5).unwrap().1, [200, -6]);
    }

    #[test]
    fn what_follows_the_sound_is_dropped_and_a_missing_rest_is_told() {
        let mut body = wav(16_000, 1, None, SAMPLES);
        body.extend(b"LIST\x04\0\0\0abcd");
        assert_eq!(read("audio/wav", &body, 9).unwrap().1, SAMPLES);
        let cut = wav(16_000, 1, Some(1000), SAMPLES);
        assert!(matches!(read("audio/wav", &cut, 9), Err(Fault::Broken(_))));
        assert!(read("audio/wav", &body[..30], 9).is_err());
    }

    #[test]
    fn sound_comes_in_events_too() {
        let delta = |bytes: &[u8]| {
            let audio = base64_simd::STANDARD.encode_to_string(bytes);
            format!("data: {{\"type\":\"speech.audio.delta\",\"audio\":\"{audio}\"}}\n\n")
        };
        let (head, tail) = (pcm(&SAMPLES[..3]), pcm(&SAMPLES[3..]));
        let done = "data: {\"type\":\"speech.audio.done\",\"usage\":{}}\n\n";
        let body = format!(
            "{}{}{done}",
            delta(&head[..5]),
            delta(&[&head[5..], &tail].concat())
        );
        assert_eq!(
            read("text/event-stream; charset=utf-8", body.as_bytes(), 11)
                .unwrap()
                .1,
            SAMPLES
        );
        let body = delta(&wav(16_000, 1, None, SAMPLES));
        assert_eq!(
            read("text/event-stream", body.as_bytes(), 50).unwrap().0,
            16_000
        );
        let error = "data: {\"error\":{\"message\":\"no\"}}\n";
        assert_eq!(
            read("text/event-stream", error.as_bytes(), 50),
            Err(Fault::Told(complaint::Complaint {
                code: None,
                message: "no".into()
            }))
        );
    }

    #[test]
    fn what_is_no_sound_is_told() {
        for (kind, body) in [
            ("application/json", &b"{}"[..]),
            ("text/html", b"<html>"),
            ("audio/mpeg", b"ID3\x04\0\0"),
            ("audio/ogg", b"OggS\0\0"),
            ("audio/wav", b"RIFF\0\0\0\0WAVEdata\x04\0\0\0abcd"),
        ] {
            assert!(read(kind, body, 3).is_err(), "{kind}");
        }
        let mut float = wav(16_000, 1, None, SAMPLES);
        float[12 + 12 + 8] = 3;
        assert!(read("audio/wav", &float, 100).is_err());
        let endless = [
            wav(16_000, 1, None, &[])[..24].to_vec(),
            vec![b'x'; 100_000],
        ]
        .concat();
        assert!(read("audio/wav", &endless, 1000).is_err());
    }
}
