//! Chat completions with the habits of different servers.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test stops at the first surprise"
)]

use media::config::{ToolKind, ToolSpec};
use media::speech::{Message, ModelRequest, ToolCall};
use serde_json::json;

use super::wire::{Answer, Count, body};
use crate::vendors::remote::complaint::Complaint;
use crate::vendors::remote::plan::Fault;

/// The text, the tool calls (id, name, arguments) and the count of a stream.
#[track_caller]
fn read(events: &[&str]) -> (String, Vec<(String, String, String)>, Option<Count>) {
    let mut answer = Answer::default();
    let mut text = String::new();
    for event in events {
        text.push_str(&answer.event(event).unwrap());
    }
    let (rest, calls) = answer.finish(2).unwrap();
    text.push_str(&rest);
    let calls = calls.into_iter().map(|call| {
        let ToolCall {
            id,
            name,
            arguments,
        } = call;
        (id, name, arguments)
    });
    (text, calls.collect(), answer.count)
}

fn call(id: &str, name: &str, arguments: &str) -> (String, String, String) {
    (id.to_owned(), name.to_owned(), arguments.to_owned())
}

fn delta(delta: serde_json::Value) -> String {
    json!({"choices": [{"index": 0, "delta": delta}]}).to_string()
}

#[test]
fn text_comes_in_pieces_and_the_count_at_the_end() {
    let (text, calls, count) = read(&[
        &delta(json!({"role": "assistant", "content": ""})),
        &delta(json!({"content": "Good "})),
        &delta(json!({"role": "assistant", "content": "day.", "reasoning_content": null})),
        r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
        r#"{"choices":[],"usage":{"prompt_tokens":12,"completion_tokens":3,"total_tokens":15}}"#,
        "[DONE]",
    ]);
    assert_eq!((text.as_str(), calls.len()), ("Good day.", 0));
    assert_eq!(
        count,
        Some(Count {
            prompt: 12,
            completion: 3
        })
    );
}

#[test]
fn reasoning_is_not_spoken_and_is_no_word() {
    let mut answer = Answer::default();
    let thought = delta(json!({"reasoning_content": "hm", "content": null}));
    assert_eq!(answer.event(&thought).unwrap(), "");
    assert!(!answer.has_words());
    assert_eq!(
        answer.event(&delta(json!({"content": "Yes."}))).unwrap(),
        "Yes."
    );
    assert!(answer.has_words());
}

#[test]
fn fragments_of_tool_calls_are_put_together_by_index() {
    let (_, calls, _) = read(&[
        &delta(
            json!({"tool_calls": [{"index": 0, "id": "a", "type": "function",
            "function": {"name": "book", "arguments": ""}}]}),
        ),
        &delta(
            json!({"tool_calls": [{"index": 1, "id": "b", "function": {"name": "ring", "arguments": "{\"n\""}}]}),
        ),
        &delta(json!({"tool_calls": [{"index": 0, "function": {"arguments": "{\"day\":"}}]})),
        &delta(json!({"tool_calls": [{"index": 0, "function": {"arguments": "\"monday\"}"}}]})),
        &delta(json!({"tool_calls": [{"index": 1, "function": {"arguments": ":2}"}}]})),
    ]);
    assert_eq!(
        calls,
        [
            call("a", "book", r#"{"day":"monday"}"#),
            call("b", "ring", r#"{"n":2}"#)
        ]
    );
}

#[test]
fn whole_arguments_without_an_id_get_one() {
    let (_, calls, _) = read(&[&delta(
        json!({"role": "assistant", "content": "", "tool_calls": [
            {"function": {"name": "book", "arguments": {"day": "monday"}}},
            {"function": {"name": "ring", "arguments": ""}},
        ]}),
    )]);
    assert_eq!(
        calls,
        [
            call("call_3", "book", r#"{"day":"monday"}"#),
            call("call_4", "ring", "{}")
        ]
    );
}

#[test]
fn pieces_without_an_index_go_on_with_the_last_call_and_a_name_may_be_repeated() {
    let (_, calls, _) = read(&[
        &delta(
            json!({"tool_calls": [{"id": "x", "function": {"name": "book", "arguments": "{"}}]}),
        ),
        &delta(json!({"tool_calls": [{"function": {"name": "book", "arguments": "\"a\":1"}}]})),
        &delta(json!({"tool_calls": [{"function": {"arguments": "}"}}]})),
        &delta(
            json!({"tool_calls": [{"id": "y", "function": {"name": "book", "arguments": "{}"}}]}),
        ),
    ]);
    assert_eq!(
        calls,
        [call("x", "book", r#"{"a":1}"#), call("y", "book", "{}")]
    );
}

#[test]
fn calls_that_share_the_index_0_are_told_apart_by_their_ids() {
    let (_, calls, _) = read(&[
        &delta(
            json!({"tool_calls": [{"index": 0, "id": "x", "function": {"name": "book", "arguments": "{}"}}]}),
        ),
        &delta(
            json!({"tool_calls": [{"index": 0, "id": "y", "function": {"name": "ring", "arguments": "{\"n\":"}}]}),
        ),
        &delta(json!({"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]})),
    ]);
    assert_eq!(
        calls,
        [call("x", "book", "{}"), call("y", "ring", r#"{"n":1}"#)]
    );
}

#[test]
fn an_answer_in_one_document_is_read_too() {
    let mut answer = Answer::default();
    let document = json!({"choices": [{"message": {"role": "assistant", "content": "Hello.",
        "tool_calls": [{"id": "a", "type": "function", "function": {"name": "book", "arguments": "{}"}}]}}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2}});
    let text = answer.whole(document.to_string().as_bytes()).unwrap();
    assert_eq!(text, "Hello.");
    assert_eq!(answer.finish(0).unwrap().1.len(), 1);
    assert!(answer.done && answer.count.is_some());
}

#[test]
fn what_is_no_answer_is_a_fault() {
    let mut answer = Answer::default();
    assert_eq!(
        answer.event(r#"{"error":{"message":"overloaded"}}"#),
        Err(Fault::Told(Complaint {
            code: None,
            message: "overloaded".into()
        }))
    );
    assert!(answer.event("nonsense").is_err());
    assert!(Answer::default().finish(0).is_err(), "an empty body");
    let mut answer = Answer::default();
    let piece =
        json!({"tool_calls": [{"index": 0, "function": {"name": "x", "arguments": "{\"a"}}]});
    assert!(answer.event(&delta(piece)).is_ok());
    assert!(answer.finish(0).is_err(), "arguments that are cut off");
}

#[test]
fn tool_calls_have_bounds() {
    let mut answer = Answer::default();
    let long = json!({"tool_calls": [{"index": 0, "function": {"name": "x", "arguments": "y".repeat(300 << 10)}}]});
    assert!(answer.event(&delta(long)).is_err());
    let mut answer = Answer::default();
    let many: Vec<_> = (0..100)
        .map(|index| json!({"index": index, "function": {"name": "x"}}))
        .collect();
    assert!(answer.event(&delta(json!({"tool_calls": many}))).is_err());
}

fn request() -> ModelRequest {
    ModelRequest {
        messages: vec![
            Message::System {
                content: "Be kind.".into(),
            },
            Message::User {
                content: "Book.".into(),
            },
            Message::Assistant {
                content: String::new(),
                tool_calls: vec![ToolCall {
                    id: "a".into(),
                    name: "book".into(),
                    arguments: "{}".into(),
                }],
            },
            Message::Tool {
                tool_call_id: "a".into(),
                content: "done".into(),
                is_error: false,
            },
        ],
        left_out: false,
        tools: vec![ToolSpec {
            name: "book".into(),
            description: "Books.".into(),
            kind: ToolKind::Client,
            parameters: "{}".into(),
            timeout_ms: 1000,
            filler_message: None,
        }],
        temperature: Some(0.5),
        max_tokens: 300,
        frequency_penalty: 0.0,
        presence_penalty: 0.2,
    }
}

#[test]
fn the_request_says_all_and_no_more() {
    assert_eq!(
        body("qwen", &request(), &[]),
        json!({
            "model": "qwen", "stream": true, "stream_options": {"include_usage": true},
            "max_tokens": 300, "temperature": 0.5, "presence_penalty": 0.2,
            "messages": [
                {"role": "system", "content": "Be kind."},
                {"role": "user", "content": "Book."},
                {"role": "assistant", "content": null, "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "book", "arguments": "{}"}}]},
                {"role": "tool", "tool_call_id": "a", "content": "done"},
            ],
            "tools": [{"type": "function", "function": {
                "name": "book", "description": "Books.", "parameters": {"type": "object", "properties": {}}}}],
        })
    );
}

#[test]
fn reasoning_families_get_no_temperature() {
    for model in ["o3-mini", "gpt-5", "gpt-5-nano", "openai/o1"] {
        let body = body(model, &request(), &[]);
        assert!(body.get("temperature").is_none(), "{model}");
        assert_eq!(body["max_completion_tokens"], 300, "{model}");
    }
    for model in ["gpt-4.1", "o12-custom", "gpt-50"] {
        assert_eq!(body(model, &request(), &[])["max_tokens"], 300, "{model}");
    }
}

#[test]
fn what_a_model_refuses_is_left_out() {
    let without = |omitted: &[&str]| body("qwen", &request(), omitted);
    let bare = without(&["stream_options", "temperature", "presence_penalty"]);
    for name in ["stream_options", "temperature", "presence_penalty"] {
        assert!(bare.get(name).is_none(), "{name}");
    }
    let other = without(&["max_tokens"]);
    assert!(other.get("max_tokens").is_none());
    assert_eq!(other["max_completion_tokens"], 300);
    let none = without(&["max_tokens", "max_completion_tokens", "system"]);
    assert!(none.get("max_tokens").is_none() && none.get("max_completion_tokens").is_none());
    assert_eq!(none["messages"][0]["content"], "Be kind.\n\nBook.");
}

/// What a stream that has nothing for the caller is called.
#[track_caller]
fn nothing(events: &[serde_json::Value]) -> (Option<String>, String) {
    let mut answer = Answer::default();
    for event in events {
        assert_eq!(answer.event(&event.to_string()).unwrap(), "");
    }
    assert!(!answer.was_said());
    match answer.finish(0) {
        Err(Fault::Told(Complaint { code, message })) => (code, message),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_stream_without_words_or_calls_is_a_fault_by_name() {
    let ends = |delta: serde_json::Value, reason: &str| json!({"choices": [{"delta": delta, "finish_reason": reason}]});
    for (delta, reason, code, says) in [
        (json!({"content": ""}), "stop", "empty_answer", "stop"),
        (json!({"content": " \n…"}), "stop", "empty_answer", "stop"),
        (
            json!({}),
            "content_filter",
            "content_filter",
            "content_filter",
        ),
        (
            json!({"reasoning_content": "hm"}),
            "length",
            "length",
            "length",
        ),
        (
            json!({"content": "<think>hm"}),
            "length",
            "length",
            "after thoughts",
        ),
        (
            json!({"refusal": "I will not."}),
            "stop",
            "refusal",
            "I will not.",
        ),
        (
            json!({"content": [{"type": "image_url"}]}),
            "stop",
            "empty_answer",
            "stop",
        ),
    ] {
        let (found, message) = nothing(&[ends(delta, reason)]);
        assert_eq!(found.as_deref(), Some(code));
        assert!(message.contains(says), "{message}");
    }
}

#[test]
fn a_legacy_function_call_is_a_call() {
    let (text, calls, _) = read(&[
        &delta(json!({"function_call": {"name": "book", "arguments": "{\"a\""}})),
        &delta(json!({"function_call": {"arguments": ":1}"}})),
    ]);
    assert_eq!(
        (text.as_str(), calls),
        ("", vec![call("call_3", "book", r#"{"a":1}"#)])
    );
}

#[test]
fn content_may_come_in_parts() {
    let (text, ..) = read(&[
        &delta(
            json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]}),
        ),
        &delta(
            json!({"content": [{"type": "text", "text": "Good "}, {"type": "Output_Text", "text": "day"}]}),
        ),
        &delta(json!({"content": {"type": "text", "text": {"value": "."}}})),
        &json!({"choices": [{"text": " Bye."}]}).to_string(),
    ]);
    assert_eq!(text, "Good day. Bye.");
}

#[test]
fn marks_before_the_first_word_go_with_it_and_what_is_taken_back_was_not_said() {
    let mut answer = Answer::default();
    assert_eq!(answer.event(&delta(json!({"content": "« "}))).unwrap(), "");
    assert!(!answer.was_said() && !answer.has_words());
    assert_eq!(
        answer.event(&delta(json!({"content": "Oui"}))).unwrap(),
        "« Oui"
    );
    assert!(answer.was_said());
    let taken = answer
        .event(&delta(json!({"content": "</think>"})))
        .unwrap();
    assert_eq!(taken, media::speech::TAKEN_BACK.to_string());
    assert!(!answer.was_said() && answer.thought_alone());
    assert!(answer.finish(0).is_err());
}

#[test]
fn text_that_waits_is_a_sign_of_life() {
    let says = |text: &str| delta(json!({ "content": text }));
    let tools = request().tools;
    for text in ["Calling you back ", "We need to know "] {
        let mut answer = Answer::new(&tools, None);
        assert_eq!(answer.event(&says(text)).unwrap(), "");
        assert!(answer.has_words() && !answer.was_said(), "{text}");
    }
    // Of a model that thinks aloud it may be thoughts.
    let mut answer = Answer::new(&tools, Some(true));
    assert_eq!(answer.event(&says("We need to know ")).unwrap(), "");
    assert!(!answer.has_words());
}
