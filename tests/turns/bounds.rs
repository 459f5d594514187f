//! What a client may send, and what becomes of more.

use kit::virtual_call::{VirtualCall, config};
use media::call::record::EndReason;
use media::config::{AudioFormat, CallConfig, Protocol};
use media::speech::script::Script;
use serde_json::{Value, json};

use crate::rows::agent;

fn errors(call: &VirtualCall, code: &str) -> usize {
    let errors = call.messages("error");
    errors.iter().filter(|(_, m)| m["code"] == code).count()
}

#[test]
fn typed_turns_over_four_a_second_are_refused() {
    let mut call = VirtualCall::new(config(agent()), Script::default(), &[]);
    call.connect();
    call.run_until(1000);
    for n in 0..20 {
        call.client(&json!({"type": "user_message", "text": format!("Number {n}.")}));
    }
    assert_eq!(call.script.requests.len(), 8);
    assert_eq!(errors(&call, "rate_limited"), 12);
    assert_eq!(call.messages("error")[0].1["retry_after"], 1);
    call.run_until(2000);
    for n in 20..40 {
        call.client(&json!({"type": "user_message", "text": format!("Number {n}.")}));
    }
    assert_eq!(call.script.requests.len(), 12);
    call.run_until(8000);
    assert_eq!(call.caller_turns().len(), 12);
    assert_eq!(call.caller_turns()[8].text, "Number 20.");
}

#[test]
fn keypad_entries_that_end_faster_than_that_are_one() {
    let mut call = VirtualCall::new(config(agent()), Script::default(), &[]);
    call.connect();
    call.run_until(1000);
    call.client(&json!({"type": "dtmf", "digits": "#".repeat(20)}));
    assert_eq!(call.script.requests.len(), 8);
    call.run_until(8000);
    assert_eq!(call.script.requests.len(), 9);
    assert_eq!(call.caller_turns()[8].text, "#".repeat(12));
    assert_eq!(errors(&call, "rate_limited"), 0);
}

#[test]
fn background_over_64_kib_drops_the_oldest_and_says_so() {
    let mut call = VirtualCall::new(config(agent()), Script::default(), &[]);
    call.connect();
    for n in 0..20 {
        call.run_until(1000 + n * 250);
        call.client(&json!({"type": "contextual_update", "text": format!("{n:04000}")}));
    }
    assert_eq!(errors(&call, "context_full"), 4);
    call.client(&json!({"type": "user_message", "text": "Well?"}));
    call.run_until(9000);
    let request = call.last_request();
    assert_eq!(request.len(), 17);
    assert_eq!(request[0], format!("system: {:04000}", 4));
    assert_eq!(request[15], format!("system: {:04000}", 19));
}

/// The lines of a caller who sends audio faster than real time.
const LINES: [(Protocol, AudioFormat); 3] = [
    (Protocol::Native, AudioFormat::Pcm16000),
    (Protocol::Native, AudioFormat::Ulaw8000),
    (Protocol::Telco, AudioFormat::Ulaw8000),
];

/// Silence as long as this, in one message; `sent` ms of it went before.
fn piece(protocol: Protocol, audio_format: AudioFormat, sent: u64, ms: u64) -> Value {
    let bytes: Vec<u8> = match audio_format {
        AudioFormat::Pcm16000 => vec![0; 32 * ms as usize],
        _ => vec![0xff; 8 * ms as usize],
    };
    let audio = base64_simd::STANDARD.encode_to_string(bytes);
    match protocol {
        Protocol::Telco => json!({"event": "media", "streamSid": "MZ1", "media": {
            "track": "inbound", "timestamp": sent.to_string(), "payload": audio,
        }}),
        _ => json!({"type": "audio", "audio": audio}),
    }
}

/// A call whose caller sends so many per cent of real time, for half a minute at most, and when it was
/// closed (ms).
fn at_speed(
    (protocol, audio_format): (Protocol, AudioFormat),
    percent: u64,
) -> (VirtualCall, Option<u64>) {
    let config = CallConfig {
        protocol,
        audio_format,
        ..config(agent())
    };
    let mut call = VirtualCall::new(config, Script::default(), &[]);
    call.connect();
    call.mute();
    let ms = 20 * percent / 100;
    let closed = (1..=1500).find_map(|tick| {
        call.run_until(20 * tick);
        call.client(&piece(protocol, audio_format, (tick - 1) * ms, ms));
        call.closed.map(|_| call.ms())
    });
    call.run_until(call.ms() + 100);
    (call, closed)
}

#[test]
fn audio_half_as_fast_again_as_real_time_for_long_ends_the_call() {
    for line in LINES {
        // How long it takes to be 2.5 s ahead, and then the 5 s that are judged.
        for (percent, from, to) in [
            (155, 9_000, 10_000),
            (200, 7_400, 8_000),
            (5_000, 5_000, 5_200),
        ] {
            let (call, closed) = at_speed(line, percent);
            let what = format!("{line:?} at {percent} %");
            let on_time = closed.is_some_and(|ms| (from..=to).contains(&ms));
            assert!(on_time, "{what}: closed at {closed:?}");
            let reason = call.ended.as_ref().map(|summary| summary.reason);
            assert_eq!(
                (call.closed, reason),
                (Some(1008), Some(EndReason::MediaTimeout)),
                "{what}"
            );
            // The vendor's format has no errors.
            let told = usize::from(line.0 == Protocol::Native);
            assert_eq!(errors(&call, "audio_too_fast"), told, "{what}");
        }
    }
}

#[test]
fn audio_a_little_faster_than_real_time_is_cut_to_it() {
    for line in LINES {
        for percent in [100, 110, 145] {
            let (call, closed) = at_speed(line, percent);
            let what = format!("{line:?} at {percent} %");
            assert_eq!((closed, call.ended.is_some()), (None, false), "{what}");
            // Not more than 2.5 s ahead of the 30 s, and those whole.
            let heard = call.recorded[0].len() as u64 / 16;
            let most = (30_000 * percent / 100).min(32_500);
            assert!((most - 100..=most).contains(&heard), "{what}: {heard} ms");
        }
    }
}
