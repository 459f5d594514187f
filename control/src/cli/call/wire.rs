//! The client's side of the two socket protocols: caller audio to text, text to what the server said.

use base64_simd::STANDARD;
use media::audio::g711;
use media::config::AudioFormat;
use serde_json::{Value, json};

use super::player::PlaybackReport;

/// One side of a socket, as its client.
pub(crate) enum Wire {
    Native {
        format: AudioFormat,
    },
    /// As the telephony vendor: a stream that counts its messages and its time.
    Telco {
        stream: String,
        sequence: u64,
        chunk: u64,
        timestamp_ms: u64,
    },
}

/// One thing the server said.
#[derive(Debug, PartialEq)]
pub(crate) enum Said {
    Started,
    /// Agent audio at the wire's rate.
    Audio {
        id: u64,
        samples: Vec<i16>,
    },
    /// Drop agent audio up to this event.
    Interruption {
        up_to: u64,
        turn: String,
        spoken_ms: Option<u64>,
        spoken_text: Option<String>,
    },
    /// Drop all agent audio (telco).
    Clear,
    Mark(String),
    Ping(u64),
    Caller {
        text: String,
        is_final: bool,
    },
    Agent {
        turn: String,
        text: String,
        is_final: bool,
    },
    Metrics {
        turn: String,
        /// The latency record of an answer.
        record: Value,
    },
    Ended(String),
    Error {
        code: String,
        message: String,
    },
    /// Something that this client has no use for.
    Other,
}

impl Wire {
    pub(crate) fn telco(stream: String) -> Self {
        Self::Telco {
            stream,
            sequence: 1,
            chunk: 0,
            timestamp_ms: 0,
        }
    }

    /// What to say before anything else.
    pub(crate) fn opening(&mut self, session: &str) -> Vec<String> {
        match self {
            Self::Native { .. } => Vec::new(),
            Self::Telco {
                stream, sequence, ..
            } => {
                *sequence += 1;
                let connected =
                    json!({"event": "connected", "protocol": "Call", "version": "1.0.0"});
                let start = json!({
                    "event": "start", "sequenceNumber": "1", "streamSid": *stream,
                    "start": {
                        "streamSid": *stream,
                        "accountSid": "AC00000000000000000000000000000000",
                        "callSid": format!("CA{}", session.replace('-', "")),
                        "tracks": ["inbound"],
                        "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1},
                        "customParameters": {},
                    },
                });
                vec![connected.to_string(), start.to_string()]
            }
        }
    }

    /// One frame of caller audio at the wire's rate.
    pub(crate) fn audio(&mut self, samples: &[i16]) -> String {
        match self {
            Self::Native { format } => {
                let bytes = match format {
                    // No socket carries Opus.
                    AudioFormat::Pcm16000 | AudioFormat::Opus48000 => samples
                        .iter()
                        .flat_map(|sample| sample.to_le_bytes())
                        .collect(),
                    AudioFormat::Ulaw8000 => ulaw(samples),
                };
                json!({"type": "audio", "audio": STANDARD.encode_to_string(bytes)}).to_string()
            }
            Self::Telco {
                stream,
                sequence,
                chunk,
                timestamp_ms,
            } => {
                *sequence += 1;
                *chunk += 1;
                let message = json!({
                    "event": "media", "sequenceNumber": sequence.to_string(), "streamSid": *stream,
                    "media": {
                        "track": "inbound", "chunk": chunk.to_string(), "timestamp": timestamp_ms.to_string(),
                        "payload": STANDARD.encode_to_string(ulaw(samples)),
                    },
                });
                *timestamp_ms += samples.len() as u64 / 8;
                message.to_string()
            }
        }
    }

    /// What the loudspeaker played, if the protocol has a word for it.
    pub(crate) fn heard(&mut self, heard: PlaybackReport) -> Option<String> {
        match (self, heard) {
            (Self::Native { .. }, PlaybackReport::Played { id, ms }) => {
                Some(json!({"type": "playback", "event_id": id, "played_ms": ms}).to_string())
            }
            (
                Self::Telco {
                    stream, sequence, ..
                },
                PlaybackReport::Mark(name),
            ) => {
                *sequence += 1;
                let mark = json!({
                    "event": "mark", "sequenceNumber": sequence.to_string(), "streamSid": *stream,
                    "mark": {"name": name},
                });
                Some(mark.to_string())
            }
            _ => None,
        }
    }

    /// The words that end the call.
    pub(crate) fn end(&mut self) -> String {
        match self {
            Self::Native { .. } => json!({"type": "end"}).to_string(),
            Self::Telco {
                stream, sequence, ..
            } => {
                *sequence += 1;
                json!({"event": "stop", "sequenceNumber": sequence.to_string(), "streamSid": *stream}).to_string()
            }
        }
    }

    /// Understands one message of the server.
    pub(crate) fn read(&self, text: &str) -> Said {
        let Ok(message) = serde_json::from_str::<Value>(text) else {
            return Said::Other;
        };
        match self {
            Self::Native { format } => read_native(&message, *format),
            Self::Telco { .. } => read_telco(&message),
        }
    }
}

fn read_native(message: &Value, format: AudioFormat) -> Said {
    let text = |key: &str| message[key].as_str().unwrap_or_default().to_owned();
    let is_final = message["is_final"].as_bool().unwrap_or(true);
    match message["type"].as_str() {
        Some("session_started") => Said::Started,
        Some("audio") => {
            let Some(bytes) = decode(&message["audio"]) else {
                return Said::Other;
            };
            let samples = match format {
                AudioFormat::Pcm16000 | AudioFormat::Opus48000 => bytes
                    .as_chunks::<2>()
                    .0
                    .iter()
                    .map(|pair| i16::from_le_bytes(*pair))
                    .collect(),
                AudioFormat::Ulaw8000 => linear(&bytes),
            };
            Said::Audio {
                id: message["event_id"].as_u64().unwrap_or_default(),
                samples,
            }
        }
        Some("interruption") => Said::Interruption {
            up_to: message["up_to_event_id"].as_u64().unwrap_or_default(),
            turn: text("turn_id"),
            spoken_ms: message["spoken_ms"].as_u64(),
            spoken_text: message["estimated_text_spoken"].as_str().map(str::to_owned),
        },
        Some("ping") => Said::Ping(message["event_id"].as_u64().unwrap_or_default()),
        Some("user_transcript") => Said::Caller {
            text: text("text"),
            is_final,
        },
        Some("agent_response") => Said::Agent {
            turn: text("turn_id"),
            text: text("text"),
            is_final,
        },
        Some("turn_metrics") => Said::Metrics {
            turn: text("turn_id"),
            record: message["latency"].clone(),
        },
        Some("call_ended") => Said::Ended(text("reason")),
        Some("error") => Said::Error {
            code: text("code"),
            message: text("message"),
        },
        _ => Said::Other,
    }
}

fn read_telco(message: &Value) -> Said {
    match message["event"].as_str() {
        Some("media") => match decode(&message["media"]["payload"]) {
            Some(bytes) => Said::Audio {
                id: 0,
                samples: linear(&bytes),
            },
            None => Said::Other,
        },
        Some("mark") => Said::Mark(
            message["mark"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        ),
        Some("clear") => Said::Clear,
        _ => Said::Other,
    }
}

fn decode(value: &Value) -> Option<Vec<u8>> {
    STANDARD.decode_to_vec(value.as_str()?).ok()
}

fn ulaw(samples: &[i16]) -> Vec<u8> {
    let mut bytes = vec![0; samples.len()];
    g711::ulaw_encode(samples, &mut bytes);
    bytes
}

fn linear(bytes: &[u8]) -> Vec<i16> {
    let mut samples = vec![0; bytes.len()];
    g711::ulaw_decode(bytes, &mut samples);
    samples
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    #[test]
    fn native_audio_survives_both_ways() {
        let mut wire = Wire::Native {
            format: AudioFormat::Pcm16000,
        };
        let sent: Value = serde_json::from_str(&wire.audio(&[1, -2, 300])).unwrap();
        let back = json!({"type": "audio", "event_id": 7, "audio": sent["audio"]}).to_string();
        assert_eq!(
            wire.read(&back),
            Said::Audio {
                id: 7,
                samples: vec![1, -2, 300]
            }
        );
    }

    #[test]
    fn the_vendor_counts_in_strings() {
        let mut wire = Wire::telco("MZ1".to_owned());
        let opening = wire.opening("a-b");
        assert_eq!(opening.len(), 2);
        wire.audio(&[0; 160]);
        let second: Value = serde_json::from_str(&wire.audio(&[0; 160])).unwrap();
        assert_eq!(second["sequenceNumber"], "4");
        assert_eq!(
            (&second["media"]["chunk"], &second["media"]["timestamp"]),
            (&json!("2"), &json!("20"))
        );
        assert_eq!(
            STANDARD
                .decode_to_vec(second["media"]["payload"].as_str().unwrap())
                .unwrap(),
            [0xff; 160]
        );
    }

    #[test]
    fn marks_are_echoed_only_by_the_vendor() {
        let mut native = Wire::Native {
            format: AudioFormat::Ulaw8000,
        };
        assert_eq!(native.heard(PlaybackReport::Mark("m".to_owned())), None);
        let mut telco = Wire::telco("MZ1".to_owned());
        assert_eq!(telco.heard(PlaybackReport::Played { id: 1, ms: 20 }), None);
        assert!(
            telco
                .heard(PlaybackReport::Mark("m".to_owned()))
                .unwrap()
                .contains(r#""mark":{"name":"m"}"#)
        );
    }

    #[test]
    fn whatever_comes_is_never_a_panic() {
        let wire = Wire::Native {
            format: AudioFormat::Pcm16000,
        };
        for text in [
            "",
            "{",
            "[]",
            "null",
            r#"{"type":"audio"}"#,
            r#"{"type":"audio","audio":"%%"}"#,
            r#"{"type":7}"#,
        ] {
            assert_eq!(wire.read(text), Said::Other, "{text}");
        }
    }
}
