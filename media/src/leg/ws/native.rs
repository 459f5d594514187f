//! The native protocol: flat JSON messages with a `type`; those of the server also carry
//! `event_id`, which increases, and `ts_ms`, the session's clock. `docs/websocket.md` tells it to the
//! authors of clients.

use std::time::Duration;

use serde::de::IgnoredAny;

use super::codec::Codec;
use super::fields::{Fields, Refusal, keys};
use super::scan::{Scan, once};
use super::watch::AUDIO_FORMAT;
use super::write::{Message, number, string};
use super::{Interruption, ServerEvent, ServerHeader, Sink};
use crate::config::{AudioFormat, Direction, Protocol};
use crate::frame::FRAME;
use crate::leg::{Coding, LegEvent};
use crate::time::{Samples, Time};

/// Characters in one `contextual_update` or `user_message`: several pages, and little beside what a
/// model reads at once.
const LONGEST_TEXT: usize = 4000;

/// Keypad presses in one message: more than any card or account number has.
const MOST_DIGITS: usize = 64;

/// Bytes of JSON in a tool's result, as on the tool-result route.
const LONGEST_RESULT: usize = 64 * 1024;

/// Characters of a tool call's id.
const LONGEST_ID: usize = 200;

/// No message holds as much: what a client claims beyond it could only overflow a sum.
const A_DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// One client of the native protocol.
pub struct Native {
    codec: Codec,
    /// Audio comes in messages, and not in RTP beside them.
    audio: bool,
}

impl Native {
    pub(super) fn new(format: AudioFormat) -> Self {
        Self {
            codec: Codec::new(format),
            audio: true,
        }
    }

    /// The protocol on a WebRTC data channel.
    pub(super) fn without_audio() -> Self {
        Self {
            codec: Codec::new(AudioFormat::Opus48000),
            audio: false,
        }
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
        if self.audio
            && let Some(payload) = audio_payload(text)
            && self.codec.decode(payload).is_ok()
        {
            self.hand_over(sink);
            return Ok(());
        }
        self.receive_any(text, sink)
    }

    /// Any message, of any shape.
    pub(super) fn receive_any(&mut self, text: &str, sink: Sink<'_>) -> Result<(), Refusal> {
        let fields = Fields::parse(text)?;
        match fields.text("type")? {
            "audio" if !self.audio => {
                return Err(Refusal::invalid("audio comes over RTP in this session"));
            }
            "audio" => {
                let payload = fields.text("audio")?.as_bytes();
                self.codec.decode(payload).map_err(Refusal::invalid)?;
                self.hand_over(sink);
            }
            "dtmf" => {
                let pressed = match (fields.get("digit"), fields.get("digits")) {
                    (Some(digit), None) => keys(digit, 1)?,
                    (None, Some(digits)) => keys(digits, MOST_DIGITS)?,
                    _ => return Err(Refusal::invalid("dtmf has either digit or digits")),
                };
                pressed.chars().for_each(|key| sink(LegEvent::Digit(key)));
            }
            "contextual_update" => {
                sink(LegEvent::ContextualUpdate(
                    fields.short_text("text", LONGEST_TEXT)?,
                ));
            }
            "user_message" => {
                sink(LegEvent::UserMessage(
                    fields.short_text("text", LONGEST_TEXT)?,
                ));
            }
            "tool_result" => {
                let tool_call_id = fields.short_text("tool_call_id", LONGEST_ID)?;
                let result = fields
                    .get("result")
                    .ok_or(Refusal::invalid("result is missing"))?;
                let result = result.to_string();
                if result.len() > LONGEST_RESULT {
                    return Err(Refusal::invalid("result is longer than 64 KiB"));
                }
                let is_error = fields.flag("is_error")?;
                sink(LegEvent::ToolResult {
                    tool_call_id,
                    result: &result,
                    is_error,
                });
            }
            "pong" => sink(LegEvent::Pong {
                event_id: fields.number("event_id")?,
            }),
            "playback" => sink(LegEvent::Played {
                event_id: fields.number("event_id")?,
                played_ms: fields.number("played_ms")?.min(A_DAY_MS),
            }),
            "end" => sink(LegEvent::End),
            unknown => return Err(Refusal::unknown_type(unknown)),
        }
        Ok(())
    }

    fn hand_over(&mut self, sink: Sink<'_>) {
        if let Some(message) = self.codec.take_words() {
            let code = AUDIO_FORMAT;
            sink(LegEvent::Invalid {
                code,
                message: &message,
            });
        }
        let samples = self.codec.samples();
        if !samples.is_empty() {
            sink(LegEvent::Audio(samples));
        }
    }

    pub(super) fn audio(
        &mut self,
        out: &mut String,
        header: &ServerHeader,
        frame: &[i16],
        turn_id: &str,
        offset_ms: u64,
    ) {
        let length = Samples(frame.len().max(FRAME) as u64);
        out.push_str("{\"type\":\"audio\",\"event_id\":");
        number(out, header.event_id);
        out.push_str(",\"ts_ms\":");
        number(out, header.ts_ms);
        out.push_str(",\"turn_id\":");
        string(out, turn_id);
        out.push_str(",\"offset_ms\":");
        number(out, offset_ms);
        out.push_str(",\"duration_ms\":");
        number(out, length.ms());
        out.push_str(",\"audio\":\"");
        self.codec.encode(frame, out);
        out.push_str("\"}");
    }

    pub(super) fn clear(
        &mut self,
        out: &mut String,
        header: &ServerHeader,
        interruption: &Interruption<'_>,
    ) {
        self.codec.cut();
        let Interruption {
            up_to_event_id,
            turn_id,
            spoken_ms,
            estimated_text_spoken,
        } = *interruption;
        Message::open(out, "interruption", header)
            .number("up_to_event_id", up_to_event_id)
            .text("turn_id", turn_id)
            .number("spoken_ms", spoken_ms)
            .text("estimated_text_spoken", estimated_text_spoken)
            .close();
    }
}

/// Writes any server event but audio and interruptions.
pub(super) fn event(out: &mut String, header: &ServerHeader, event: &ServerEvent<'_>) {
    match *event {
        ServerEvent::SessionStarted {
            session_id,
            conversation_id,
            agent_id,
            direction,
            protocol,
            audio_format,
            sample_rate,
            frame_ms,
            ping_interval_ms,
        } => Message::open(out, "session_started", header)
            .text("session_id", session_id)
            .text("conversation_id", conversation_id)
            .text("agent_id", agent_id)
            .text("direction", direction_name(direction))
            .text("protocol", protocol_name(protocol))
            .text("audio_format", audio_format.name())
            .number("sample_rate", sample_rate.into())
            .number("frame_ms", frame_ms)
            .number("ping_interval_ms", ping_interval_ms)
            .close(),
        ServerEvent::UserTranscript {
            text,
            is_final,
            turn_id,
            start_ms,
            end_ms,
            confidence,
        } => {
            Message::open(out, "user_transcript", header)
                .text("text", text)
                .flag("is_final", is_final)
                .text("turn_id", turn_id)
                .number_or_null("start_ms", start_ms)
                .number_or_null("end_ms", end_ms)
                .fraction("confidence", confidence.map(three_digits))
                .close();
        }
        ServerEvent::AgentResponse {
            text,
            turn_id,
            is_final,
        } => {
            Message::open(out, "agent_response", header)
                .text("text", text)
                .text("turn_id", turn_id)
                .flag("is_final", is_final)
                .close();
        }
        ServerEvent::Ping { ping_ms } => {
            Message::open(out, "ping", header)
                .number("ping_ms", ping_ms)
                .close();
        }
        ServerEvent::CallEnded {
            reason,
            status,
            duration_seconds,
        } => {
            Message::open(out, "call_ended", header)
                .text("reason", reason)
                .text("status", status)
                .fraction("duration_seconds", Some(duration_seconds))
                .close();
        }
        ServerEvent::Error {
            code,
            message,
            retry_after,
            request_id,
        } => {
            let mut error = Message::open(out, "error", header)
                .text("code", code)
                .text("message", message);
            if let Some(seconds) = retry_after {
                error = error.number("retry_after", seconds.into());
            }
            match request_id {
                Some(id) => error.text("request_id", id).close(),
                None => error.json("request_id", "null").close(),
            }
        }
        ServerEvent::AgentResponseCorrection {
            original,
            corrected,
            turn_id,
        } => {
            Message::open(out, "agent_response_correction", header)
                .text("original", original)
                .text("corrected", corrected)
                .text("turn_id", turn_id)
                .close();
        }
        ServerEvent::ToolCall {
            tool_call_id,
            name,
            arguments,
            turn_id,
        } => {
            let call = Message::open(out, "tool_call", header)
                .text("tool_call_id", tool_call_id)
                .text("name", name);
            // A model may write anything: what is not JSON goes out as the text it is.
            let call = match serde_json::from_str::<IgnoredAny>(arguments) {
                Ok(IgnoredAny) => call.json("arguments", arguments),
                Err(_) => call.text("arguments", arguments),
            };
            call.text("turn_id", turn_id).close();
        }
        ServerEvent::TurnMetrics { turn_id, latency } => {
            let latency = serde_json::to_string(latency).unwrap_or_else(|_| "null".to_owned());
            Message::open(out, "turn_metrics", header)
                .text("turn_id", turn_id)
                .json("latency", &latency)
                .close();
        }
        ServerEvent::Vad { speaking, at_ms } => {
            Message::open(out, "vad", header)
                .flag("speaking", speaking)
                .number("at_ms", at_ms)
                .close();
        }
    }
}

/// The payload of an audio message of the usual shape.
fn audio_payload(text: &str) -> Option<&[u8]> {
    let (mut kind, mut payload) = (None, None);
    let mut scan = Scan::new(text);
    scan.object(|scan, key| match key {
        b"type" => once(&mut kind, scan.string()?),
        b"audio" => once(&mut payload, scan.payload()?),
        _ => scan.scalar().map(drop),
    })?;
    scan.end()?;
    (kind? == b"audio").then_some(payload?)
}

/// Confidence as one reads it: 0.93, not 0.9300000071525574.
fn three_digits(value: f32) -> f64 {
    (f64::from(value) * 1000.0).round() / 1000.0
}

const fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Inbound => "inbound",
        Direction::Outbound => "outbound",
    }
}

const fn protocol_name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Native => "native",
        Protocol::Telco => "telco",
        Protocol::WebRtc => "webrtc",
        Protocol::Rtp(_) => "rtp",
    }
}
