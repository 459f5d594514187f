//! The sound in the body of a speech answer: bytes, or events with bytes in base64. Pure.

use serde_json::Value;

use super::super::complaint;
use super::super::plan::Fault;
use super::super::samples::Samples;
use super::super::sse::{Events, TooLong};

/// Reads a body.
pub(super) struct Sound {
    /// Where the sound comes in events.
    events: Option<Events>,
    samples: Samples,
    /// An event has said that this was all.
    over: bool,
}

impl Sound {
    /// By the answer's `Content-Type`; `rate` is that of raw samples whose rate it does not tell.
    pub(super) fn new(content_type: &str, rate: u32) -> Result<Self, Fault> {
        let kind = content_type.split(';').next().unwrap_or_default();
        let kind = kind.trim().to_ascii_lowercase();
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
            samples: Samples::described(content_type, rate),
            over: false,
        })
    }

    /// Samples a second of what [`push`](Self::push) gives. Known once it gave any.
    pub(super) const fn rate(&self) -> u32 {
        self.samples.rate()
    }

    /// Whether the sound is complete, though the body may not be.
    pub(super) const fn is_over(&self) -> bool {
        self.over
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
        found.iter().try_for_each(|data| self.event(data, out))
    }

    /// The body is at its end.
    pub(super) fn finish(&mut self, out: &mut Vec<i16>) -> Result<(), Fault> {
        if let Some(events) = &mut self.events {
            let mut found = Vec::new();
            events.finish(|data| found.push(data.to_owned()));
            for data in &found {
                self.event(data, out)?;
            }
        }
        self.samples.finish(out)
    }

    /// One event: `speech.audio.delta` carries sound in base64, `speech.audio.done` ends it.
    fn event(&mut self, data: &str, out: &mut Vec<i16>) -> Result<(), Fault> {
        if data == "[DONE]" {
            self.over = true;
            return Ok(());
        }
        let event: Value = serde_json::from_str(data).map_err(|_| Fault::Garbage {
            what: "an event is not JSON".to_owned(),
            page: complaint::page(data.as_bytes()),
        })?;
        if complaint::is_error(&event) {
            return Err(Fault::Told(complaint::read(data)));
        }
        self.over |= event["type"] == "speech.audio.done";
        let Some(audio) = event["audio"].as_str().or(event["delta"].as_str()) else {
            return Ok(());
        };
        let bytes = base64_simd::STANDARD
            .decode_to_vec(audio)
            .map_err(|_| Fault::Wrong("an event's sound is not base64".to_owned()))?;
        self.samples.push(&bytes, out)
    }
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
    fn what_follows_the_sound_is_dropped_and_no_rest_is_missed() {
        let mut body = wav(16_000, 1, None, SAMPLES);
        body.extend(b"LIST\x04\0\0\0abcd");
        assert_eq!(read("audio/wav", &body, 9).unwrap().1, SAMPLES);
        let claims = wav(16_000, 1, Some(1000), SAMPLES);
        assert_eq!(read("audio/wav", &claims, 9).unwrap().1, SAMPLES);
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
        let part = delta(&wav(16_000, 1, None, SAMPLES));
        assert_eq!(
            read("text/event-stream", part.as_bytes(), 50).unwrap().0,
            16_000
        );
        // A header in every event.
        assert_eq!(
            read("text/event-stream", part.repeat(3).as_bytes(), 50)
                .unwrap()
                .1,
            SAMPLES.repeat(3)
        );
        let mut sound = Sound::new("text/event-stream", 24_000).unwrap();
        sound.push(part.as_bytes(), &mut Vec::new()).unwrap();
        assert!(!sound.is_over());
        sound.push(done.as_bytes(), &mut Vec::new()).unwrap();
        assert!(sound.is_over(), "whatever the body does");
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
