//! The agent's fields as document 2 gives them, written down once more: what `fields.rs` says has to be
//! the same.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use serde_json::{Value, json};

use crate::testing::TestApp;

/// Numbers: the field, its lowest and its highest value.
const RANGES: &[(&str, f64, f64)] = &[
    ("temperature", 0.0, 2.0),
    ("max_tokens", 1.0, 8192.0),
    ("max_context_tokens", 1024.0, 262_144.0),
    ("frequency_penalty", -2.0, 2.0),
    ("presence_penalty", -2.0, 2.0),
    ("max_duration_seconds", 30.0, 3600.0),
    ("max_turns", 1.0, 1000.0),
    ("history_max_turns", 1.0, 200.0),
    ("sms_max_sends_per_message", 1.0, 30.0),
    ("barge_in_min_speech_secs", 0.0, 3.0),
    ("inbound_lobby_max_wait_seconds", 0.0, 60.0),
    ("idle_check_in_after_secs", 1.0, 600.0),
    ("soft_timeout_seconds", 1.0, 300.0),
    ("rag_top_k", 1.0, 20.0),
    ("rag_min_score", 0.0, 1.0),
];

/// Of those, the ones that are whole numbers.
const WHOLE: &[&str] = &[
    "max_tokens",
    "max_context_tokens",
    "max_duration_seconds",
    "max_turns",
    "history_max_turns",
    "sms_max_sends_per_message",
    "inbound_lobby_max_wait_seconds",
    "rag_top_k",
    "silence_timeout_seconds",
    "max_idle_attempts",
    "response_min_sentences",
    "response_max_sentences",
];

/// Fields that take one of a few words.
const WORDS: &[(&str, &[&str])] = &[
    ("language", &["english", "french"]),
    ("turn_eagerness", &["patient", "normal", "eager"]),
    ("end_call_behavior", &["auto_detect", "phrases_only"]),
    ("voicemail_action", &["leave_message", "hangup"]),
    (
        "inbound_lobby_audio_preset",
        &["none", "ambient", "instrumental"],
    ),
    ("script_adherence", &["strict", "medium", "loose"]),
    ("transfer_mode", &["warm", "conference"]),
];

/// Fields that null sets back to "no value of its own".
const NULLABLE: &[&str] = &[
    "max_tokens",
    "max_context_tokens",
    "frequency_penalty",
    "presence_penalty",
    "silence_timeout_seconds",
    "max_turns",
    "history_truncation_enabled",
    "history_max_turns",
    "sms_max_sends_per_message",
    "barge_in_min_speech_secs",
    "turn_eagerness",
    "soft_timeout_seconds",
    "rag_top_k",
    "rag_min_score",
    "messaging_system_prompt",
];

/// What a created agent shows where nothing was said.
fn defaults() -> Value {
    json!({
        "language": "english",
        "interruption_enabled": true,
        "end_call_enabled": true,
        "end_call_behavior": "auto_detect",
        "voicemail_detection_enabled": false,
        "voicemail_action": "leave_message",
        "inbound_lobby_enabled": false,
        "inbound_lobby_audio_preset": "ambient",
        "inbound_lobby_max_wait_seconds": 45,
        "recording_enabled": true,
        "transcription_enabled": true,
        "public_access": false,
        "allowed_origins": [],
        "focus_guardrail_enabled": true,
        "content_guardrail_enabled": false,
        "script_adherence": "strict",
        "keypad_capture_enabled": true,
        "idle_check_in_after_secs": 15.0,
        "soft_timeout_use_llm": false,
        "response_min_sentences": 2,
        "response_max_sentences": 3,
        "transfer_mode": "warm",
        "sms_message_ids": [],
        "transfer_phone_numbers": [],
        "max_turns": null,
        "silence_timeout_seconds": null,
        "soft_timeout_seconds": null,
        "first_message": null,
        "max_tokens": null,
        "rag_top_k": null,
        "rag_min_score": null,
        "barge_in_min_speech_secs": null,
        "turn_eagerness": null
    })
}

/// An agent, and what becomes of a change to it.
struct Patched {
    test: TestApp,
    path: String,
}

impl Patched {
    async fn new() -> Self {
        let test = TestApp::new().await;
        let body = json!({"name": "A", "system_prompt": "B", "voice_id": "scripted-tone"});
        let (status, agent) = test.call("POST", "/agents", Some(body)).await;
        assert_eq!(status, 201, "{agent}");
        let path = format!("/agents/{}", agent["id"].as_str().unwrap());
        Self { test, path }
    }

    async fn takes(&self, field: &str, value: Value) {
        let (status, agent) = self.patch(json!({ field: value })).await;
        assert_eq!(status, 200, "{field}: {value}: {agent}");
        let same = match (agent[field].as_f64(), value.as_f64()) {
            (Some(shown), Some(given)) => (shown - given).abs() < 1e-9,
            _ => agent[field] == value,
        };
        assert!(same, "{field}: {value} is shown as {}", agent[field]);
    }

    async fn refuses(&self, field: &str, value: Value) {
        let (status, answer) = self.patch(json!({ field: value })).await;
        assert_eq!(
            (status, &answer["fields"][0]["loc"][1]),
            (422, &json!(field)),
            "{field}: {value}: {answer}"
        );
    }

    async fn patch(&self, change: Value) -> (u16, Value) {
        let (status, answer) = self.test.call("PATCH", &self.path, Some(change)).await;
        (status.as_u16(), answer)
    }
}

fn number(field: &str, value: f64) -> Value {
    if WHOLE.contains(&field) {
        json!(value as i64)
    } else {
        json!(value)
    }
}

#[tokio::test]
async fn numbers_have_the_ranges_of_the_document() {
    let agent = Patched::new().await;
    for (field, low, high) in RANGES {
        let step = if WHOLE.contains(field) { 1.0 } else { 0.01 };
        agent.takes(field, number(field, *low)).await;
        agent.takes(field, number(field, *high)).await;
        agent.refuses(field, number(field, low - step)).await;
        agent.refuses(field, number(field, high + step)).await;
        agent.refuses(field, json!("1")).await;
        if WHOLE.contains(field) {
            agent.refuses(field, json!(low + 0.5)).await;
        }
    }
    for field in ["max_idle_attempts", "response_min_sentences"] {
        agent.takes(field, json!(0)).await;
        agent.refuses(field, json!(-1)).await;
        agent.refuses(field, json!(0.5)).await;
    }
    agent.takes("response_max_sentences", json!(0)).await;
    agent.refuses("response_max_sentences", json!(-1)).await;
    agent.takes("silence_timeout_seconds", json!(1)).await;
}

#[tokio::test]
async fn words_are_those_of_the_document() {
    let agent = Patched::new().await;
    for (field, words) in WORDS {
        for word in *words {
            agent.takes(field, json!(word)).await;
        }
        for wrong in [json!("other"), json!(words[0].to_uppercase()), json!(1)] {
            agent.refuses(field, wrong).await;
        }
    }
}

#[tokio::test]
async fn null_is_taken_where_the_document_has_it() {
    let agent = Patched::new().await;
    for field in NULLABLE {
        agent.takes(field, Value::Null).await;
    }
    for field in ["name", "system_prompt", "voice_id", "interruption_enabled"] {
        agent.refuses(field, Value::Null).await;
    }
    agent
        .takes("messaging_system_prompt", json!("Write."))
        .await;
    let (_, shown) = agent.patch(json!({"messaging_system_prompt": ""})).await;
    assert_eq!(shown["messaging_system_prompt"], Value::Null);
}

#[tokio::test]
async fn defaults_are_those_of_the_document() {
    let agent = Patched::new().await;
    let (_, shown) = agent.patch(json!({})).await;
    for (field, value) in defaults().as_object().unwrap() {
        assert_eq!(shown[field], *value, "{field}");
    }
}

#[tokio::test]
async fn texts_and_lists_have_the_bounds_of_the_document() {
    let agent = Patched::new().await;
    let lobby = "inbound_lobby_message";
    agent.takes(lobby, json!("x".repeat(120))).await;
    agent.refuses(lobby, json!("x".repeat(121))).await;
    let numbers = |count: usize| json!(vec!["+15550100"; count]);
    agent.takes("transfer_phone_numbers", numbers(5)).await;
    agent.takes("transfer_phone_numbers", json!([])).await;
    agent.refuses("transfer_phone_numbers", numbers(6)).await;
    agent
        .refuses("transfer_phone_numbers", json!(["15550100"]))
        .await;
    agent.refuses("transfer_phone_number", json!("0123")).await;
    agent
        .takes("allowed_origins", json!(["shop.example.org"]))
        .await;
    agent
        .takes(
            "allowed_origins",
            json!(["localhost", "192.168.1.5", "[2001:db8::7]"]),
        )
        .await;
    for wrong in ["https://shop.example.org", "localhost:3000", "256.1.1.1"] {
        agent.refuses("allowed_origins", json!([wrong])).await;
    }
    let guardrail = json!([{"name": "a", "prompt": "b", "is_enabled": false}]);
    agent.takes("custom_guardrails", guardrail).await;
    agent
        .refuses("custom_guardrails", json!([{"name": "a"}]))
        .await;
    agent
        .takes("webhook_url", json!("https://hooks.example.com/calls"))
        .await;
    for wrong in [
        "http://hooks.example.com/",
        "https://hooks.example.com:8443/",
        "https://127.0.0.1/",
    ] {
        agent.refuses("webhook_url", json!(wrong)).await;
    }
    agent.refuses("outbound_trunk_id", json!("x")).await;
    agent
        .refuses(
            "outbound_trunk_id",
            json!("0193a1f2-0000-7000-8000-000000000001"),
        )
        .await;
    agent
        .refuses("dynamic_variables", json!({"system__channel": "x"}))
        .await;
    agent
        .takes("metadata", json!({"a": {"b": [1, null]}}))
        .await;
}
