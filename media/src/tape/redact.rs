//! A tape without sound and words: for calls that are not recorded, and for recordings that are
//! deleted. Shape, length and time stay, so it still tells when what came.
//!
//! What is not known to be harmless is masked: a message's strings are kept only under the keys of
//! [`PLAIN`]. Everything here keeps lengths, so it can work in place and without allocation.

use super::{Item, Reader, TapeWriter};
use crate::call::input::ToolOutcome;
use crate::config::CallConfig;
use crate::error::TapeError;
use crate::speech::{LlmEvent, RecogniserEvent, SpeechEvent};

/// Keys whose values say how the protocol runs and nothing of what was said.
const PLAIN: [&[u8]; 18] = [
    b"type",
    b"event",
    b"event_id",
    b"played_ms",
    b"duration_ms",
    b"streamSid",
    b"sequenceNumber",
    b"track",
    b"tracks",
    b"chunk",
    b"timestamp",
    b"encoding",
    b"sampleRate",
    b"channels",
    b"name",
    b"protocol",
    b"version",
    b"tool_call_id",
];

/// Redacts a whole tape. What follows a broken record is left out.
pub fn redact(tape: &[u8]) -> Result<Vec<u8>, TapeError> {
    let (header, reader) = Reader::open(tape)?;
    let mut plain = header.config;
    plain.recording = false;
    let mut writer = TapeWriter::new(&plain, header.start, header.punctuates);
    for record in reader {
        match record.map(|record| record.item) {
            Ok(Item::Input { at, input }) => writer.input(at, &input),
            Ok(Item::Check(_) | Item::Done(_)) => {}
            Ok(Item::Stop) | Err(_) => writer.stop(),
        }
    }
    Ok(writer.pending().to_vec())
}

/// What the agent was told to say may hold a person's name.
pub(super) fn config(config: &mut CallConfig) {
    let agent = &mut config.agent;
    mask(&mut agent.system_prompt);
    agent.first_message.iter_mut().for_each(mask);
    mask(&mut agent.soft_timeout_message);
    for guardrail in &mut agent.custom_guardrails {
        mask(&mut guardrail.prompt);
    }
}

pub(super) fn speech(event: &mut SpeechEvent) {
    match event {
        SpeechEvent::Recogniser(
            RecogniserEvent::Interim { text, .. } | RecogniserEvent::Final { text, .. },
        )
        | SpeechEvent::Llm {
            event: LlmEvent::Text(text),
            ..
        } => mask(text),
        SpeechEvent::Llm {
            event: LlmEvent::ToolCall(call),
            ..
        } => call.arguments = "{}".to_owned(),
        SpeechEvent::Recogniser(RecogniserEvent::Failed { .. })
        | SpeechEvent::Llm { .. }
        | SpeechEvent::Synthesiser { .. } => {}
    }
}

pub(super) fn tool(outcome: &mut ToolOutcome) {
    outcome.result = "null".to_owned();
}

/// Letters and digits become `x`; marks stay, for they steer the cutting of sentences.
fn mask(text: &mut String) {
    *text = text
        .chars()
        .map(|c| if c.is_alphanumeric() { 'x' } else { c })
        .collect();
}

/// Masks a JSON message in place. Total: bytes that are no JSON are masked too, and the result is
/// always ASCII under every mask, hence UTF-8.
pub(super) fn json(message: &mut [u8]) {
    let mut at = 0;
    // The string before the current value, if it was a key.
    let mut key = 0..0;
    let mut depth = 0_usize;
    // Within a tool's result not even keys are kept.
    let mut secret_below = usize::MAX;
    while at < message.len() {
        match message[at] {
            b'"' => {
                let end = string_end(message, at + 1);
                let value = at + 1..end;
                at = end + 1;
                let is_key = message[at.min(message.len())..]
                    .iter()
                    .find(|byte| !byte.is_ascii_whitespace())
                    == Some(&b':');
                if depth > secret_below {
                    message[value].fill(b'x');
                } else if is_key {
                    key = value;
                } else {
                    let (head, tail) = message.split_at_mut(value.start);
                    mask_value(&head[key.clone()], &mut tail[..value.end - value.start]);
                }
            }
            b'{' | b'[' => {
                if secret_below == usize::MAX && message[key.clone()] == *b"result" {
                    secret_below = depth;
                }
                depth += 1;
                at += 1;
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                if depth <= secret_below {
                    secret_below = usize::MAX;
                }
                at += 1;
            }
            b',' | b':' | b' ' | b'\t' | b'\r' | b'\n' => at += 1,
            _ => {
                let end = at
                    + message[at..]
                        .iter()
                        .take_while(|byte| !b",:{}[]\" \t\r\n".contains(byte))
                        .count();
                let plain = depth <= secret_below && PLAIN.contains(&&message[key.clone()]);
                mask_word(&mut message[at..end], plain);
                at = end;
            }
        }
    }
}

fn mask_value(key: &[u8], value: &mut [u8]) {
    match key {
        // Base64 of zeros; the padding stays, and with it the length in bytes.
        b"audio" | b"payload" => value
            .iter_mut()
            .filter(|byte| **byte != b'=')
            .for_each(|byte| *byte = b'A'),
        b"digit" | b"digits" => value.fill(b'0'),
        _ if PLAIN.contains(&key) => {}
        _ => value.fill(b'x'),
    }
}

/// A number, `true`, `false`, `null`, or junk.
fn mask_word(word: &mut [u8], plain: bool) {
    let number = word
        .iter()
        .all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(byte));
    match (number, &*word) {
        (true, _) if plain => {}
        (true, _) => {
            word.fill(b' ');
            word[0] = b'1';
        }
        (false, b"true" | b"false" | b"null") => {}
        (false, _) => word.fill(b'x'),
    }
}

/// Where the string that starts at `from` ends: its closing quote, or the end.
fn string_end(message: &[u8], from: usize) -> usize {
    let mut at = from;
    while at < message.len() {
        match message[at] {
            b'"' => return at,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    message.len()
}
