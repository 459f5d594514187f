//! The caller's end of the wire: its messages in either protocol, and a telephone vendor's idea of what was played.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use media::audio::{g711, tones};
use media::config::Protocol;
use media::frame::{FRAME, FRAME_MS};
use media::time::Time;
use serde_json::{Value, json};

/// No audio comes further ahead of its playing time, and a frame may be on its way.
const MOST_AHEAD: Duration = Duration::from_millis(400 + FRAME_MS);

/// One caller's messages.
pub(super) struct Wire {
    telco: bool,
    /// A frame of voice and one of silence: a native client's messages, a vendor's payloads.
    voice: Rc<str>,
    silence: Rc<str>,
    frames: u64,
    /// When all that came so far will have been played.
    played: Time,
    /// Marks that are not echoed yet, and when they are reached.
    marks: VecDeque<(Time, Value)>,
}

impl Wire {
    pub(super) fn new(protocol: Protocol) -> Self {
        let telco = protocol == Protocol::Telco;
        let payload = |level| -> Rc<str> {
            if telco {
                let mut bytes = vec![0; FRAME / 2];
                g711::ulaw_encode(&tones::sine(8_000, 400.0, level, FRAME / 2), &mut bytes);
                base64_simd::STANDARD.encode_to_string(&bytes).into()
            } else {
                message(&tones::sine(16_000, 400.0, level, FRAME)).into()
            }
        };
        Self {
            telco,
            voice: payload(-12.0),
            silence: payload(f64::NEG_INFINITY),
            frames: 0,
            played: Time::default(),
            marks: VecDeque::new(),
        }
    }

    /// What a vendor sends before any audio.
    pub(super) fn opening(&self) -> Vec<Value> {
        if !self.telco {
            return Vec::new();
        }
        let format = json!({"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1});
        vec![
            json!({"event": "connected", "protocol": "Call", "version": "1.0.0"}),
            json!({"event": "start", "streamSid": "MZ1", "sequenceNumber": "1",
                "start": {"streamSid": "MZ1", "tracks": ["inbound"], "mediaFormat": format}}),
        ]
    }

    /// The next 20 ms.
    pub(super) fn frame(&mut self, voiced: bool) -> Rc<str> {
        let sound = if voiced { &self.voice } else { &self.silence };
        self.frames += 1;
        if !self.telco {
            return sound.clone();
        }
        let (chunk, at) = (self.frames, (self.frames - 1) * FRAME_MS);
        format!(
            r#"{{"event":"media","streamSid":"MZ1","sequenceNumber":"{}","media":{{"track":"inbound","chunk":"{chunk}","timestamp":"{at}","payload":"{sound}"}}}}"#,
            chunk + 1
        )
        .into()
    }

    /// A message of the server came.
    pub(super) fn came(&mut self, now: Time, message: &Value) {
        match kind_of(message) {
            "audio" | "media" => {
                self.played = self.played.max(now) + Duration::from_millis(FRAME_MS);
                let ahead = self.played - now;
                assert!(ahead <= MOST_AHEAD, "audio comes {ahead:?} ahead");
            }
            "mark" => {
                let echo = json!({"event": "mark", "streamSid": "MZ1", "mark": message["mark"]});
                self.marks.push_back((self.played.max(now), echo));
            }
            "interruption" => self.played = now,
            "clear" => {
                self.played = now;
                // A vendor that clears its buffer echoes the marks in it at once.
                for (at, _) in &mut self.marks {
                    *at = now;
                }
            }
            _ => {}
        }
    }

    pub(super) fn next_echo(&self) -> Time {
        self.marks.front().map_or(Time::NEVER, |&(at, _)| at)
    }

    pub(super) fn take_echo(&mut self, now: Time) -> Option<Value> {
        if self.next_echo() > now {
            return None;
        }
        self.marks.pop_front().map(|(_, echo)| echo)
    }
}

/// What kind of message the server sent, in either protocol.
pub(super) fn kind_of(message: &Value) -> &str {
    let kind = message["type"].as_str();
    kind.or_else(|| message["event"].as_str())
        .unwrap_or_default()
}

fn message(samples: &[i16]) -> String {
    let bytes: Vec<u8> = samples.iter().flat_map(|s| s.to_le_bytes()).collect();
    format!(
        r#"{{"type":"audio","audio":"{}"}}"#,
        base64_simd::STANDARD.encode_to_string(&bytes)
    )
}
