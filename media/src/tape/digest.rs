//! One number for all outputs of a call, and one line of text for each.
//!
//! The digest is taken on the hot path, so the frequent outputs are mixed in as they are, eight
//! bytes at a time, without a text being made of them.

use std::fmt::Write as _;

use crate::call::output::{LlmCommand, Output, RecogniserCommand, Side, SynthesiserCommand};

/// Mixes eight bytes at a step (rotate, xor, multiply). Not against an adversary: two runs of one
/// program are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Digest(u64);

impl Digest {
    pub(super) fn value(self) -> u64 {
        self.0
    }

    /// What a `check` record holds: the best mixed bits.
    pub(super) fn short(self) -> u16 {
        (self.0 >> 48) as u16
    }

    pub(super) fn add(&mut self, output: &Output<'_>) {
        match output {
            Output::Text(text) => {
                self.mix(1);
                self.bytes(text.as_bytes());
            }
            // Its bytes are the codec's, which may differ from one machine to the next; the sound in
            // them is in the recording.
            Output::Packet {
                timestamp, marker, ..
            } => {
                self.mix(7);
                self.mix(u64::from(*timestamp) << 1 | u64::from(*marker));
            }
            Output::Rtp(packet) => {
                self.mix(8);
                self.mix(u64::from(packet.timestamp) << 32 | u64::from(packet.sequence));
                self.bytes(packet.payload);
            }
            Output::Recogniser(RecogniserCommand::Audio(utterance, samples)) => {
                self.mix(2);
                self.mix(utterance.0.into());
                self.samples(samples);
            }
            Output::Record { side, at, samples } => {
                self.mix(if *side == Side::Caller { 3 } else { 4 });
                self.mix(*at);
                self.samples(samples);
            }
            Output::Wait(at) => {
                self.mix(5);
                self.mix(at.as_micros());
            }
            // A few a turn: their text is their identity.
            rare => {
                self.mix(6);
                self.bytes(line(rare).as_bytes());
            }
        }
    }

    fn mix(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            let mut eight = [0; 8];
            eight.copy_from_slice(word);
            self.mix(u64::from_le_bytes(eight));
        }
        let mut last = [0; 8];
        last[..words.remainder().len()].copy_from_slice(words.remainder());
        self.mix(u64::from_le_bytes(last));
        self.mix(bytes.len() as u64);
    }

    fn samples(&mut self, samples: &[i16]) {
        let word = |four: &[i16]| {
            four.iter()
                .fold(0, |word, sample| word << 16 | u64::from(*sample as u16))
        };
        let mut fours = samples.chunks_exact(4);
        for four in &mut fours {
            self.mix(word(four));
        }
        self.mix(word(fours.remainder()));
        self.mix(samples.len() as u64);
    }
}

/// One output as one line. Sound is its length and a hash.
pub(super) fn line(output: &Output<'_>) -> String {
    match output {
        Output::Text(text) => text_line(text),
        Output::Packet {
            timestamp, marker, ..
        } => {
            format!("packet {timestamp}{}", if *marker { " first" } else { "" })
        }
        Output::Rtp(packet) => {
            let mut digest = Digest::default();
            digest.bytes(packet.payload);
            let first = if packet.marker { " first" } else { "" };
            format!(
                "rtp {} {} {}{first} <{} {:016x}>",
                packet.payload_type,
                packet.sequence,
                packet.timestamp,
                packet.payload.len(),
                digest.value()
            )
        }
        Output::Close { code, reason } => format!("close {code} {reason}"),
        Output::Recogniser(RecogniserCommand::Begin(id)) => format!("stt begin {}", id.0),
        Output::Recogniser(RecogniserCommand::Audio(id, samples)) => {
            format!("stt audio {} {}", id.0, sound(samples))
        }
        Output::Recogniser(RecogniserCommand::Finish(id)) => format!("stt finish {}", id.0),
        Output::Recogniser(RecogniserCommand::Cancel(id)) => format!("stt cancel {}", id.0),
        Output::Llm(LlmCommand::Start(reply, request)) => {
            format!("llm start {} {}", reply.0, json(request))
        }
        Output::Llm(LlmCommand::Cancel(reply)) => format!("llm cancel {}", reply.0),
        Output::Synthesiser(SynthesiserCommand::Speak {
            reply,
            segment,
            text,
        }) => {
            format!("tts speak {}.{segment} {}", reply.0, json(text))
        }
        Output::Synthesiser(SynthesiserCommand::Cancel(reply)) => format!("tts cancel {}", reply.0),
        Output::Tool { reply, call } => format!("tool {} {}", reply.0, json(call)),
        Output::CancelTool { id } => format!("tool cancel {}", json(id)),
        Output::Record { side, at, samples } => {
            format!("record {} {at} {}", side_name(*side), sound(samples))
        }
        Output::Event(event) => format!("event {}", json(event)),
        Output::Wait(at) => format!("wait {}", at.as_micros()),
        Output::Done => "done".to_owned(),
    }
}

fn side_name(side: Side) -> &'static str {
    match side {
        Side::Caller => "caller",
        Side::Agent => "agent",
    }
}

fn sound(samples: &[i16]) -> String {
    let mut digest = Digest::default();
    digest.samples(samples);
    format!("samples={} hash={:016x}", samples.len(), digest.value())
}

/// A message with its audio (the value of `audio` or `payload`) as length and hash.
fn text_line(text: &str) -> String {
    let mut out = String::from("text ");
    let audio = ["\"audio\":\"", "\"payload\":\""]
        .iter()
        .find_map(|key| text.find(key).map(|at| at + key.len()))
        .and_then(|start| {
            text[start..]
                .find('"')
                .map(|length| (start, start + length))
        });
    let Some((start, end)) = audio else {
        out.push_str(text);
        return out;
    };
    let mut digest = Digest::default();
    digest.bytes(&text.as_bytes()[start..end]);
    out.push_str(&text[..start]);
    // Writing to a String cannot fail.
    let _ = write!(out, "<{} {:016x}>", end - start, digest.value());
    out.push_str(&text[end..]);
    out
}

fn json(value: &impl serde::Serialize) -> String {
    // Only maps with keys that are no strings cannot be written, and there are none.
    serde_json::to_string(value).unwrap_or_else(|error| format!("unprintable: {error}"))
}
