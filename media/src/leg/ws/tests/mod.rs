//! What the legs make of messages, told as text: one line a finding.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

mod junk;
mod native;
mod telco;

use super::*;
use crate::audio::g711;

const HEADER: ServerHeader = ServerHeader {
    event_id: 7,
    ts_ms: 1234,
};

/// What the leg found in a message.
fn heard(leg: &mut WsLeg, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    leg.receive(text, &mut |event| found.push(told(&event)));
    found
}

fn told(event: &LegEvent<'_>) -> String {
    match event {
        LegEvent::Audio(samples) => format!("audio {}", samples.len()),
        LegEvent::Invalid { code, message } => format!("{code}: {message}"),
        LegEvent::Violation {
            close,
            code,
            message,
        } => format!("close {close} {code}: {message}"),
        other => format!("{other:?}"),
    }
}

/// The audio that the leg found in a message.
fn samples(leg: &mut WsLeg, text: &str) -> Vec<i16> {
    let mut found = Vec::new();
    leg.receive(text, &mut |event| match event {
        LegEvent::Audio(samples) => found.extend_from_slice(samples),
        other => panic!("not audio: {other:?}"),
    });
    found
}

fn base64(bytes: &[u8]) -> String {
    base64_simd::STANDARD.encode_to_string(bytes)
}

/// 16-bit little-endian PCM in base64.
fn pcm(samples: &[i16]) -> String {
    let bytes: Vec<u8> = samples
        .iter()
        .flat_map(|sample| sample.to_le_bytes())
        .collect();
    base64(&bytes)
}

/// μ-law in base64.
fn ulaw(samples: &[i16]) -> String {
    let mut bytes = vec![0; samples.len()];
    g711::ulaw_encode(samples, &mut bytes);
    base64(&bytes)
}
