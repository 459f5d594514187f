//! The native protocol.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::audio::tones::{db, goertzel, sine};

fn leg() -> WsLeg {
    WsLeg::new(Protocol::Native, AudioFormat::Pcm16000)
}

#[test]
fn each_client_message_is_understood() {
    for (text, expected) in [
        (r#"{"type":"dtmf","digit":"5"}"#, vec!["Digit('5')"]),
        (r#"{"type":"dtmf","digit":5}"#, vec!["Digit('5')"]),
        (
            r##"{"type":"dtmf","digits":"1#aD*","duration_ms":100}"##,
            vec![
                "Digit('1')",
                "Digit('#')",
                "Digit('A')",
                "Digit('D')",
                "Digit('*')",
            ],
        ),
        (
            r#"{"type":"contextual_update","text":"on the \"pricing\" page 🙂"}"#,
            vec![r#"ContextualUpdate("on the \"pricing\" page 🙂")"#],
        ),
        (
            r#"{"type":"user_message","text":"hi"}"#,
            vec![r#"UserMessage("hi")"#],
        ),
        (
            r#"{"type":"pong","event_id":18446744073709551615}"#,
            vec!["Pong { event_id: 18446744073709551615 }"],
        ),
        (
            r#"{"type":"pong","event_id":"12"}"#,
            vec!["Pong { event_id: 12 }"],
        ),
        (
            r#"{"type":"playback","event_id":3,"played_ms":12.9}"#,
            vec!["Played { event_id: 3, played_ms: 12 }"],
        ),
        (
            r#"{"type":"playback","event_id":3,"played_ms":1e300}"#,
            vec!["Played { event_id: 3, played_ms: 86400000 }"],
        ),
        (
            r#"{"type":"tool_result","tool_call_id":"t1","result":{"a":[1,"x"]}}"#,
            vec![
                r#"ToolResult { tool_call_id: "t1", result: "{\"a\":[1,\"x\"]}", is_error: false }"#,
            ],
        ),
        (
            r#"{"type":"tool_result","tool_call_id":"t1","result":null,"is_error":true}"#,
            vec![r#"ToolResult { tool_call_id: "t1", result: "null", is_error: true }"#],
        ),
        (r#"{"type":"end"}"#, vec!["End"]),
        (r#"{"type":"end","reason":"done"}"#, vec!["End"]),
    ] {
        assert_eq!(heard(&mut leg(), text), expected, "{text}");
    }
}

#[test]
fn audio_of_every_spelling_is_the_same_audio() {
    let sent: Vec<i16> = (0..320).map(|n| (n * 205 - 32_767) as i16).collect();
    let payload = pcm(&sent);
    let slashed = payload.replace('/', "\\/");
    assert_ne!(
        slashed, payload,
        "the payload must hold a slash for this test to mean anything"
    );
    let escaped = format!("\\u{:04x}{}", payload.as_bytes()[0], &payload[1..]);
    for text in [
        format!(r#"{{"type":"audio","audio":"{payload}"}}"#),
        format!(r#"{{"audio":"{payload}","type":"audio"}}"#),
        format!("\n {{ \"type\" :\t\"audio\" , \"audio\":\r\n \"{payload}\" }} \n"),
        format!(r#"{{"type":"audio","seq":12,"client":"x","audio":"{payload}"}}"#),
        format!(r#"{{"type":"audio","audio":"{slashed}"}}"#),
        format!(r#"{{"type":"audio","audio":"{escaped}"}}"#),
        format!(r#"{{"t\u0079pe":"\u0061udio","audio":"{payload}"}}"#),
        format!(r#"{{"type":"audio","audio":"{payload}","extra":{{"a":[1.5,null,true]}}}}"#),
        format!(r#"{{"type":"end","type":"audio","audio":"!","audio":"{payload}"}}"#),
    ] {
        assert_eq!(samples(&mut leg(), &text), sent, "{text}");
    }
}

#[test]
fn what_cannot_be_used_is_named() {
    let long = "x".repeat(4001);
    let frame = |audio: &str| format!(r#"{{"type":"audio","audio":"{audio}"}}"#);
    for (text, says) in [
        (String::new(), "not a JSON object"),
        ("null".into(), "not a JSON object"),
        (r#"["audio","AAAA"]"#.into(), "not a JSON object"),
        (r#"{"type":"audio""#.into(), "not a JSON object"),
        (
            r#"{"type":"end"}{"type":"end"}"#.into(),
            "not a JSON object",
        ),
        (
            r#"{"type":"user_message","text":"\ud800"}"#.into(),
            "not a JSON object",
        ),
        (
            r#"{"type":"user_message","text":NaN}"#.into(),
            "not a JSON object",
        ),
        (
            format!("{}1{}", "{\"a\":".repeat(30_000), "}".repeat(30_000)),
            "recursion limit",
        ),
        ("[".repeat(60_000), "not a JSON object"),
        ("{}".into(), "type is missing"),
        (r#"{"type":null}"#.into(), "type must be a string"),
        (r#"{"type":1}"#.into(), "type must be a string"),
        (r#"{"type":"audio"}"#.into(), "audio is missing"),
        (
            r#"{"type":"audio","audio":7}"#.into(),
            "audio must be a string",
        ),
        (
            r#"{"type":"audio","audio":["AAAA"]}"#.into(),
            "audio must be a string",
        ),
        (frame(""), "empty"),
        (frame("AAA"), "base64"),
        (frame("AAAA===="), "base64"),
        (frame("AA A"), "base64"),
        (frame("AA\u{e9}A"), "base64"),
        (frame("AA-_"), "base64"),
        (frame("AAAA"), "odd number of bytes"),
        (frame(&pcm(&[0; 16_001])), "longer than 1 s"),
        (frame(&pcm(&[0; 24_000])), "longer than 1 s"),
        (r#"{"type":"dtmf"}"#.into(), "either digit or digits"),
        (
            r#"{"type":"dtmf","digit":"1","digits":"2"}"#.into(),
            "either digit or digits",
        ),
        (
            r#"{"type":"dtmf","digit":"12"}"#.into(),
            "1 to 1 keypad presses",
        ),
        (
            r#"{"type":"dtmf","digit":""}"#.into(),
            "1 to 1 keypad presses",
        ),
        (
            r#"{"type":"dtmf","digit":"x"}"#.into(),
            "keypad presses are",
        ),
        (
            r#"{"type":"dtmf","digit":-1}"#.into(),
            "1 to 1 keypad presses",
        ),
        (r#"{"type":"dtmf","digit":true}"#.into(), "must be a string"),
        (
            format!(r#"{{"type":"dtmf","digits":"{}"}}"#, "1".repeat(65)),
            "1 to 64 keypad presses",
        ),
        (
            r#"{"type":"dtmf","digits":"12 3"}"#.into(),
            "keypad presses are",
        ),
        (r#"{"type":"contextual_update"}"#.into(), "text is missing"),
        (
            r#"{"type":"contextual_update","text":""}"#.into(),
            "text is empty",
        ),
        (
            format!(r#"{{"type":"contextual_update","text":"{long}"}}"#),
            "more than 4000",
        ),
        (
            r#"{"type":"user_message","text":{}}"#.into(),
            "text must be a string",
        ),
        (r#"{"type":"pong"}"#.into(), "event_id is missing"),
        (
            r#"{"type":"pong","event_id":-1}"#.into(),
            "number from 0 on",
        ),
        (
            r#"{"type":"playback","event_id":1}"#.into(),
            "played_ms is missing",
        ),
        (
            r#"{"type":"playback","event_id":1,"played_ms":"soon"}"#.into(),
            "number from 0 on",
        ),
        (
            r#"{"type":"tool_result","result":1}"#.into(),
            "tool_call_id is missing",
        ),
        (
            r#"{"type":"tool_result","tool_call_id":"t"}"#.into(),
            "result is missing",
        ),
        (
            r#"{"type":"tool_result","tool_call_id":"t","result":1,"is_error":"no"}"#.into(),
            "is_error must be true or false",
        ),
        (
            format!(
                r#"{{"type":"tool_result","tool_call_id":"t","result":"{}"}}"#,
                "x".repeat(65_536)
            ),
            "longer than 64 KiB",
        ),
    ] {
        let found = heard(&mut leg(), &text);
        let shown: String = text.chars().take(100).collect();
        assert_eq!(found.len(), 1, "{shown}: {found:?}");
        assert!(
            found[0].starts_with("invalid_frame: "),
            "{shown}: {found:?}"
        );
        assert!(found[0].contains(says), "{shown}: {found:?}");
    }
}

#[test]
fn four_thousand_characters_of_any_width_are_a_text() {
    let text = "é".repeat(4000);
    let found = heard(
        &mut leg(),
        &format!(r#"{{"type":"user_message","text":"{text}"}}"#),
    );
    assert_eq!(found, [format!("UserMessage({text:?})")]);
}

#[test]
fn an_unknown_type_is_one_error_each_and_never_ends_the_call() {
    let mut leg = leg();
    for _ in 0..20 {
        let found = heard(&mut leg, r#"{"type":"video","video":"AAAA"}"#);
        assert_eq!(
            found,
            [r#"unknown_type: messages of type "video" are not known"#]
        );
    }
    let endless = format!(r#"{{"type":"{}"}}"#, "x".repeat(5000));
    assert!(heard(&mut leg, &endless)[0].len() < 100);
}

#[test]
fn five_invalid_messages_in_a_row_end_the_connection() {
    let mut leg = leg();
    let junk = "{";
    for _ in 0..3 {
        for _ in 0..4 {
            assert!(heard(&mut leg, junk)[0].starts_with("invalid_frame: "));
        }
        heard(&mut leg, r#"{"type":"pong","event_id":1}"#);
    }
    for _ in 0..4 {
        let mut found = Vec::new();
        leg.receive_binary(&[0; 3], &mut |event| found.push(told(&event)));
        assert_eq!(
            found,
            ["invalid_frame: a binary message of 3 bytes; messages are JSON text"]
        );
    }
    for _ in 0..2 {
        assert!(heard(&mut leg, junk)[0].starts_with("close 1007 invalid_frame: "));
    }
}

#[test]
fn chunks_from_one_millisecond_to_one_second_are_accepted() {
    for length in [1, 16, 17, 160, 320, 321, 16_000] {
        let text = format!(r#"{{"type":"audio","audio":"{}"}}"#, pcm(&vec![-3; length]));
        assert_eq!(samples(&mut leg(), &text), vec![-3; length]);
    }
    for length in [8, 160, 161, 8000] {
        let mut leg = WsLeg::new(Protocol::Native, AudioFormat::Ulaw8000);
        let text = format!(r#"{{"type":"audio","audio":"{}"}}"#, ulaw(&vec![0; length]));
        assert_eq!(samples(&mut leg, &text).len(), 2 * length);
    }
    let mut leg = WsLeg::new(Protocol::Native, AudioFormat::Ulaw8000);
    let text = format!(r#"{{"type":"audio","audio":"{}"}}"#, ulaw(&vec![0; 8001]));
    assert_eq!(
        heard(&mut leg, &text),
        ["invalid_frame: audio is longer than 1 s"]
    );
}

#[test]
fn agent_audio_carries_its_place_and_is_filled_up_to_a_frame() {
    let mut out = String::from("before");
    leg().audio(&mut out, &HEADER, &[1, -2], "a \"turn\"", 60);
    let message: Value = serde_json::from_str(out.strip_prefix("before").unwrap()).unwrap();
    let mut padded = [0; 320];
    padded[..2].copy_from_slice(&[1, -2]);
    assert_eq!(
        message,
        json!({"type": "audio", "event_id": 7, "ts_ms": 1234, "turn_id": "a \"turn\"",
            "offset_ms": 60, "duration_ms": 20, "audio": pcm(&padded)})
    );
}

proptest! {
    #[test]
    fn pcm_comes_back_as_it_was_sent(sent in proptest::collection::vec(any::<i16>(), 320)) {
        let mut leg = leg();
        let mut out = String::new();
        leg.audio(&mut out, &HEADER, &sent, "t", 0);
        // Agent audio has the shape of caller audio, and more members.
        prop_assert_eq!(samples(&mut leg, &out), sent);
    }
}

#[test]
fn a_tone_passes_both_ways_through_ulaw() {
    let mut leg = WsLeg::new(Protocol::Native, AudioFormat::Ulaw8000);
    let tone = sine(16_000, 1000.0, -12.0, 16_000);
    let mut back = Vec::new();
    for frame in tone.chunks(320) {
        let mut out = String::new();
        leg.audio(&mut out, &HEADER, frame, "t", 0);
        back.extend(samples(&mut leg, &out));
    }
    assert_eq!(back.len(), tone.len());
    let level = |samples: &[i16]| db(goertzel(&samples[8000..], 16_000, 1000.0));
    assert!(
        (level(&back) - level(&tone)).abs() < 0.2,
        "{} {}",
        level(&back),
        level(&tone)
    );
}

#[test]
fn after_an_interruption_nothing_of_the_old_sound_rings_on() {
    let mut leg = WsLeg::new(Protocol::Native, AudioFormat::Ulaw8000);
    let mut out = String::new();
    leg.audio(&mut out, &HEADER, &sine(16_000, 1000.0, -6.0, 320), "t", 0);
    out.clear();
    let interruption = Interruption {
        up_to_event_id: 41,
        turn_id: "t3",
        spoken_ms: 860,
        estimated_text_spoken: "We are\nopen",
    };
    leg.clear(&mut out, &HEADER, &interruption);
    let message: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        message,
        json!({"type": "interruption", "event_id": 7, "ts_ms": 1234, "up_to_event_id": 41,
            "turn_id": "t3", "spoken_ms": 860, "estimated_text_spoken": "We are\nopen"})
    );
    out.clear();
    leg.audio(&mut out, &HEADER, &[0; 320], "t", 0);
    let message: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(message["audio"], ulaw(&[0; 160]));
}

#[test]
fn server_events_are_flat_json_with_their_header() {
    let latency = Latency {
        response_ms: 412,
        ..Latency::default()
    };
    for (event, expected) in [
        (
            ServerEvent::SessionStarted {
                session_id: "s",
                conversation_id: "s",
                agent_id: "a",
                direction: Direction::Outbound,
                protocol: Protocol::Native,
                audio_format: AudioFormat::Ulaw8000,
                sample_rate: 8000,
                frame_ms: 20,
                ping_interval_ms: 10_000,
            },
            json!({"type": "session_started", "session_id": "s", "conversation_id": "s",
                "agent_id": "a", "direction": "outbound", "protocol": "native",
                "audio_format": "ulaw_8000", "sample_rate": 8000, "frame_ms": 20,
                "ping_interval_ms": 10_000}),
        ),
        (
            ServerEvent::UserTranscript {
                text: "say \"hi\"",
                is_final: true,
                turn_id: "t",
                start_ms: Some(0),
                end_ms: None,
                confidence: Some(0.93),
            },
            json!({"type": "user_transcript", "text": "say \"hi\"", "is_final": true,
                "turn_id": "t", "start_ms": 0, "end_ms": null, "confidence": 0.93}),
        ),
        (
            ServerEvent::AgentResponse {
                text: "é\u{2028}",
                turn_id: "t",
                is_final: false,
            },
            json!({"type": "agent_response", "text": "é\u{2028}", "turn_id": "t",
                "is_final": false}),
        ),
        (
            ServerEvent::Ping { ping_ms: 31 },
            json!({"type": "ping", "ping_ms": 31}),
        ),
        (
            ServerEvent::CallEnded {
                reason: "phrase",
                status: "completed",
                duration_seconds: 1.5,
            },
            json!({"type": "call_ended", "reason": "phrase", "status": "completed",
                "duration_seconds": 1.5}),
        ),
        (
            ServerEvent::Error {
                code: "admission_rejected",
                message: "m",
                retry_after: Some(5),
                request_id: Some("r"),
            },
            json!({"type": "error", "code": "admission_rejected", "message": "m",
                "retry_after": 5, "request_id": "r"}),
        ),
        (
            ServerEvent::Error {
                code: "c",
                message: "m",
                retry_after: None,
                request_id: None,
            },
            json!({"type": "error", "code": "c", "message": "m", "request_id": null}),
        ),
        (
            ServerEvent::AgentResponseCorrection {
                original: "a b",
                corrected: "a",
                turn_id: "t",
            },
            json!({"type": "agent_response_correction", "original": "a b", "corrected": "a",
                "turn_id": "t"}),
        ),
        (
            ServerEvent::ToolCall {
                tool_call_id: "c1",
                name: "weather",
                arguments: "{\"city\": \"Nice\"}",
                turn_id: "t",
            },
            json!({"type": "tool_call", "tool_call_id": "c1", "name": "weather",
                "arguments": {"city": "Nice"}, "turn_id": "t"}),
        ),
        (
            ServerEvent::ToolCall {
                tool_call_id: "c1",
                name: "weather",
                arguments: "{\"city\": ",
                turn_id: "t",
            },
            json!({"type": "tool_call", "tool_call_id": "c1", "name": "weather",
                "arguments": "{\"city\": ", "turn_id": "t"}),
        ),
        (
            ServerEvent::TurnMetrics {
                turn_id: "t",
                latency: &latency,
            },
            json!({"type": "turn_metrics", "turn_id": "t", "latency": latency}),
        ),
        (
            ServerEvent::Vad {
                speaking: true,
                at_ms: 99,
            },
            json!({"type": "vad", "speaking": true, "at_ms": 99}),
        ),
    ] {
        let mut out = String::new();
        assert!(leg().event(&mut out, &HEADER, &event));
        let mut expected = expected;
        expected["event_id"] = json!(7);
        expected["ts_ms"] = json!(1234);
        assert_eq!(
            serde_json::from_str::<Value>(&out).unwrap(),
            expected,
            "{event:?}"
        );
    }
}

#[test]
fn a_native_client_is_ready_and_has_no_marks() {
    let mut out = String::new();
    assert!(leg().ready());
    assert!(!leg().mark(&mut out, 320));
    assert_eq!(out, "");
}
