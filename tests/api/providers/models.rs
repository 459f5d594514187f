//! Chat completions: the variants of the servers, and their faults.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kit::provider::chat::{delta, event};
use kit::provider::{Answer, HttpProvider, chat};
use media::speech::{LlmEvent, Message, SpeechEvent};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{Call, openai, request};

const MODEL: &str = "models = [\"m\"]";

const LONG: Duration = Duration::from_secs(60);

async fn call_to(provider: &HttpProvider) -> Call {
    Call::new(&openai(&provider.url(), MODEL), "m", None)
}

#[tokio::test]
async fn an_ordinary_answer_is_streamed_and_counted() {
    let provider = HttpProvider::start(|_| chat::text(&["Good ", "day ", "to you."])).await;
    let mut call = call_to(&provider).await;
    let answered = call.answer(1).await;
    assert_eq!(answered.text, "Good day to you.");
    let asked = provider.asked();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].path, "/v1/chat/completions");
    assert_eq!(asked[0].key, "Bearer sk-canary");
    let body = asked[0].json();
    assert_eq!(
        (&body["model"], &body["stream"], &body["max_tokens"]),
        (&json!("m"), &json!(true), &json!(200))
    );
    let used = call.used();
    assert_eq!(
        (
            used.prompt_tokens,
            used.completion_tokens,
            used.estimated_tokens
        ),
        (100, 7, 0)
    );
}

#[tokio::test]
async fn the_first_words_do_not_wait_for_the_last() {
    let provider = HttpProvider::start(|_| {
        Answer::ok("text/event-stream")
            .send(delta(json!({"content": "First. "})))
            .wait(Duration::from_millis(600))
            .send(delta(json!({"content": "Second."})))
    })
    .await;
    let mut call = call_to(&provider).await;
    call.begin_answer(1);
    let (first, event) = call.next().await;
    assert!(
        matches!(event, SpeechEvent::Llm { event: LlmEvent::Text(text), .. } if text == "First. ")
    );
    let rest = call.answer_of(1).await;
    assert_eq!(rest.text, "Second.");
    assert!(first.elapsed() >= Duration::from_millis(500));
}

#[tokio::test]
async fn every_server_s_habits_are_understood() {
    let tool = json!({"function": {"name": "book", "arguments": {"day": "monday"}}});
    let whole = json!({"choices": [{"message": {"role": "assistant", "content": "Hello."}}]});
    let variants: Vec<(&str, Answer, &str, usize)> = vec![
        (
            "no [DONE], no usage, end of body",
            Answer::ok("text/event-stream").send(delta(json!({"content": "Hello."}))),
            "Hello.",
            0,
        ),
        (
            "a role in every event, reasoning beside the answer",
            Answer::ok("text/event-stream")
                .send(delta(
                    json!({"role": "assistant", "reasoning_content": "hm"}),
                ))
                .send(delta(json!({"role": "assistant", "content": "Hel"})))
                .send(delta(json!({"role": "assistant", "content": "lo."})))
                .send("data: [DONE]\n\n"),
            "Hello.",
            0,
        ),
        (
            "thoughts within the answer",
            Answer::ok("text/event-stream")
                .send(delta(json!({"content": "<think>hm"})))
                .send(delta(json!({"content": "</think>\n\nHello."}))),
            "Hello.",
            0,
        ),
        (
            "events cut in the middle, comments, CRLF",
            Answer::ok("text/event-stream")
                .send(": ping\r\n\r\n")
                .send("data: {\"choices\":[{\"delta\":{\"conte")
                .wait(Duration::from_millis(30))
                .send("nt\":\"Hello.\"}}]}\r\n\r\n")
                .send("data:[DONE]\r\n\r\n"),
            "Hello.",
            0,
        ),
        (
            "whole arguments at once, no id, no index",
            Answer::ok("text/event-stream")
                .send(delta(
                    json!({"role": "assistant", "content": null, "tool_calls": [tool]}),
                ))
                .send(event(
                    &json!({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}),
                ))
                .send("data: [DONE]\n\n"),
            "",
            1,
        ),
        (
            "no stream at all",
            Answer::ok("application/json; charset=utf-8").send(whole.to_string()),
            "Hello.",
            0,
        ),
    ];
    for (what, answer, text, calls) in variants {
        let provider = HttpProvider::start(move |_| answer.clone()).await;
        let mut call = call_to(&provider).await;
        let answered = call.answer(1).await;
        assert_eq!(answered.failed, None, "{what}");
        assert_eq!(answered.text, text, "{what}");
        assert_eq!(answered.calls.len(), calls, "{what}");
        for tool in answered.calls {
            assert_eq!(
                (tool.id.as_str(), tool.arguments.as_str()),
                ("call_1", r#"{"day":"monday"}"#)
            );
        }
        assert!(call.used().completion_tokens > 0, "{what}: not counted");
    }
}

#[tokio::test]
async fn a_busy_server_is_asked_once_more() {
    for status in [429, 500, 503] {
        let tries = AtomicUsize::new(0);
        let provider = HttpProvider::start(move |_| match tries.fetch_add(1, Ordering::SeqCst) {
            0 => Answer::status(status),
            _ => chat::text(&["Hello."]),
        })
        .await;
        let mut call = call_to(&provider).await;
        assert_eq!(call.answer(1).await.text, "Hello.", "{status}");
        let asked = provider.asked();
        assert_eq!(asked.len(), 2, "{status}");
        assert!(asked[1].at - asked[0].at >= Duration::from_millis(200));
    }
}

#[tokio::test]
async fn a_server_that_stays_busy_is_given_up_after_two_tries_and_not_asked_by_the_engine_s_third()
{
    let provider = HttpProvider::start(|_| Answer::status(503).header("retry-after", "1")).await;
    let mut call = call_to(&provider).await;
    let answered = call.answer(1).await;
    let message = answered.failed.unwrap();
    assert!(
        message.contains("503") && message.contains("not now"),
        "{message}"
    );
    assert!(answered.after >= Duration::from_secs(1), "it does as told");
    // The engine asks again at once.
    assert!(call.answer(1).await.failed.is_some());
    assert_eq!(provider.asked().len(), 2);
    // The next reply is asked for anew.
    assert!(call.answer(2).await.failed.is_some());
    assert_eq!(provider.asked().len(), 4);
}

#[tokio::test]
async fn a_refusal_is_not_repeated_and_tells_no_key() {
    let provider = HttpProvider::start(|_| {
        let mut answer = Answer::status(401);
        answer = answer.send(r#" {"error":{"message":"wrong key sk-canary"}}"#);
        answer
    })
    .await;
    let mut call = call_to(&provider).await;
    let message = call.answer(1).await.failed.unwrap();
    assert!(
        message.contains("401") && !message.contains("sk-canary"),
        "{message}"
    );
    assert_eq!(provider.asked().len(), 1);
}

#[tokio::test]
async fn nobody_there_is_told_at_once() {
    let mut call = Call::new(&openai("http://127.0.0.1:1/v1", MODEL), "m", None);
    let answered = call.answer(1).await;
    assert!(answered.failed.is_some());
    assert!(answered.after < Duration::from_secs(2));
}

#[tokio::test]
async fn a_silent_server_is_given_up_before_the_engine_s_deadline() {
    let provider = HttpProvider::start(|_| chat::text(&["Late."]).hold(LONG)).await;
    let mut call = call_to(&provider).await;
    let answered = call.answer(1).await;
    assert!(answered.failed.is_some());
    assert!(
        answered.after < Duration::from_secs(8),
        "{:?}",
        answered.after
    );
    assert_eq!(provider.asked().len(), 1, "its work is not begun anew");
}

#[tokio::test]
async fn thinking_is_no_word() {
    let provider = HttpProvider::start(|_| {
        let mut answer = Answer::ok("text/event-stream");
        for _ in 0..100 {
            answer = answer
                .send(delta(json!({"reasoning_content": "hm"})))
                .wait(Duration::from_millis(200));
        }
        answer
    })
    .await;
    let mut call = call_to(&provider).await;
    assert!(call.answer(1).await.after < Duration::from_secs(8));
}

#[tokio::test]
async fn an_answer_that_breaks_off_keeps_what_was_said() {
    let broken = [
        Answer::ok("text/event-stream")
            .send(delta(json!({"content": "Good day."})))
            .cut(),
        Answer::ok("text/event-stream")
            .send(delta(json!({"content": "Good day."})))
            .send("data: {\"error\":{\"message\":\"overloaded\"}}\n\n"),
    ];
    for answer in broken {
        let provider = HttpProvider::start(move |_| answer.clone()).await;
        let mut call = call_to(&provider).await;
        let answered = call.answer(1).await;
        assert_eq!(answered.text, "Good day.");
        assert!(answered.failed.is_some());
        assert_eq!(
            provider.asked().len(),
            1,
            "half an answer is not begun again"
        );
        let used = call.used();
        assert!(
            used.estimated_tokens > 0
                && used.estimated_tokens == used.prompt_tokens + used.completion_tokens
        );
    }
}

#[tokio::test]
async fn a_cancelled_answer_drops_its_connection() {
    let provider = HttpProvider::start(|_| {
        Answer::ok("text/event-stream")
            .send(delta(json!({"content": "On and on"})))
            .wait(LONG)
    })
    .await;
    let mut call = call_to(&provider).await;
    call.begin_answer(1);
    call.next().await;
    let cancelled = Instant::now();
    call.cancel_reply(1);
    while provider.dropped().is_empty() {
        assert!(
            cancelled.elapsed() < Duration::from_secs(2),
            "still connected"
        );
        sleep(Duration::from_millis(5)).await;
    }
    assert!(call.is_silent(Duration::from_millis(100)).await);
    assert!(
        call.used().estimated_tokens > 0,
        "what was begun is counted"
    );
    // And a call that ends takes its request with it.
    call.begin_answer(2);
    call.next().await;
    call.hang_up();
    while provider.dropped().len() < 2 {
        assert!(
            cancelled.elapsed() < Duration::from_secs(4),
            "still connected"
        );
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn the_fallback_answers_where_nothing_was_said() {
    for first in [
        Answer::status(500),
        Answer::status(401),
        chat::text(&["Late."]).hold(LONG),
        Answer::ok("text/event-stream").cut(),
    ] {
        let main = HttpProvider::start(move |_| first.clone()).await;
        let other = HttpProvider::start(|_| chat::text(&["I am the other."])).await;
        let settings = openai(&main.url(), MODEL)
            .replace("[speech]\n", "[speech]\nmodel_fallback = \"n\"\n")
            + &format!(
                "\n[providers.y]\nkind = \"openai\"\nbase_url = \"{}\"\nmodels = [\"n\"]",
                other.url()
            );
        let mut call = Call::new(&settings, "m", None);
        let began = Instant::now();
        let answered = call.answer(1).await;
        assert_eq!(answered.text, "I am the other.");
        assert!(began.elapsed() < Duration::from_secs(5));
        assert_eq!((main.asked().len(), other.asked().len()), (1, 1));
        assert_eq!(
            other.asked()[0].key,
            "",
            "a key goes to its own provider only"
        );
    }
}

#[tokio::test]
async fn the_built_in_model_can_be_the_fallback() {
    let main = HttpProvider::start(|_| Answer::status(500)).await;
    let settings =
        openai(&main.url(), MODEL).replace("[speech]\n", "[speech]\nmodel_fallback = \"echo\"\n");
    let mut call = Call::new(&settings, "m", None);
    assert_eq!(call.answer(1).await.text, "Good day?");
}

#[tokio::test]
async fn the_request_after_a_tool_is_made_although_the_fallback_answered_the_one_before() {
    let main = HttpProvider::start(|_| Answer::status(500)).await;
    let settings =
        openai(&main.url(), MODEL).replace("[speech]\n", "[speech]\nmodel_fallback = \"echo\"\n");
    let mut call = Call::new(&settings, "m", None);
    assert_eq!(call.answer(1).await.text, "Good day?");
    let mut longer = request();
    longer.messages.push(Message::User {
        content: "And then?".into(),
    });
    assert_eq!(call.answer_to(1, longer).await.text, "And then?");
    assert_eq!(main.asked().len(), 2);
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let other = HttpProvider::start(|_| chat::text(&["Stolen."])).await;
    let url = format!("{}/chat/completions", other.url());
    let main = HttpProvider::start(move |_| Answer::status(307).header("location", &url)).await;
    let mut call = call_to(&main).await;
    assert!(call.answer(1).await.failed.is_some());
    assert!(other.asked().is_empty());
}

/// The end of a stream for this reason.
fn ended(reason: &str) -> String {
    event(&json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}))
}

fn stream(deltas: &[serde_json::Value], reason: &str) -> Answer {
    let begun = Answer::ok("text/event-stream");
    let told = deltas.iter().cloned().map(delta).fold(begun, Answer::send);
    told.send(ended(reason)).send("data: [DONE]\n\n")
}

/// Streams that end without words or calls, and what is said of each.
fn empty_streams() -> Vec<(Answer, &'static str)> {
    vec![
        (stream(&[json!({"content": ""})], "stop"), "stop"),
        (stream(&[], "content_filter"), "content_filter"),
        (
            stream(&[json!({"reasoning_content": "hm"})], "length"),
            "length",
        ),
        (
            stream(&[json!({"content": "<thinking>hm"})], "length"),
            "after thoughts",
        ),
        (
            stream(&[json!({"refusal": "I will not."})], "stop"),
            "I will not.",
        ),
    ]
}

#[tokio::test]
async fn a_stream_without_words_is_asked_for_once_more_and_then_is_a_failure_by_name() {
    for (empty, says) in empty_streams() {
        let provider = HttpProvider::start(move |_| empty.clone()).await;
        let mut call = call_to(&provider).await;
        let message = call.answer(1).await.failed.unwrap();
        assert!(message.contains(says), "{message}");
        assert_eq!(provider.asked().len(), 2, "{says}");
        assert!(call.metrics().contains("outcome=\"failed\""));
    }
    let tries = AtomicUsize::new(0);
    let provider = HttpProvider::start(move |_| match tries.fetch_add(1, Ordering::SeqCst) {
        0 => stream(&[json!({"content": ""})], "stop"),
        _ => chat::text(&["Hello."]),
    })
    .await;
    assert_eq!(call_to(&provider).await.answer(1).await.text, "Hello.");
}

#[tokio::test]
async fn the_fallback_answers_in_place_of_a_stream_without_words() {
    for (empty, says) in empty_streams() {
        let main = HttpProvider::start(move |_| empty.clone()).await;
        let settings = openai(&main.url(), MODEL)
            .replace("[speech]\n", "[speech]\nmodel_fallback = \"echo\"\n");
        let mut call = Call::new(&settings, "m", None);
        assert_eq!(call.answer(1).await.text, "Good day?", "{says}");
        assert_eq!(main.asked().len(), 1);
    }
}

#[tokio::test]
async fn a_model_whose_thoughts_end_without_a_beginning_is_known_from_then_on() {
    let provider = HttpProvider::start(|_| {
        Answer::ok("text/event-stream")
            .send(delta(json!({"content": "Someone asks. "})))
            .wait(Duration::from_millis(100))
            .send(delta(json!({"content": "I greet.</think>\n\nGood day."})))
    })
    .await;
    let settings = openai(&provider.url(), MODEL);
    let mut call = Call::new(&settings, "m", None);
    let first = call.answer(1).await.text;
    let (thoughts, said) = first.split_once(media::speech::TAKEN_BACK).unwrap();
    assert_eq!((thoughts, said), ("Someone asks. ", "Good day."));
    assert_eq!(call.answer(2).await.text, "Good day.");
}

#[tokio::test]
async fn a_parameter_that_is_refused_is_left_out_from_then_on() {
    for name in ["stream_options", "temperature", "max_tokens"] {
        let provider = HttpProvider::start(move |asked| {
            if asked.json().get(name).is_none() {
                return chat::text(&["Hello."]);
            }
            let told =
                json!({"error": {"message": format!("Unrecognized request argument: {name}")}});
            Answer::status(400).send(told.to_string())
        })
        .await;
        let mut call = call_to(&provider).await;
        assert_eq!(call.answer(1).await.text, "Hello.", "{name}");
        assert_eq!(call.answer(2).await.text, "Hello.", "{name}");
        assert_eq!(provider.asked().len(), 3, "{name} is not sent again");
    }
    let provider = HttpProvider::start(|_| chat::text(&["Hello."])).await;
    let more = format!("{MODEL}\nomit_parameters = [\"temperature\", \"system\"]");
    let mut call = Call::new(&openai(&provider.url(), &more), "m", None);
    call.answer(1).await;
    let body = provider.asked()[0].json();
    assert!(body.get("temperature").is_none());
    assert_eq!(
        body["messages"],
        json!([{"role": "user", "content": "You are kind.\n\nGood day?"}])
    );
}

#[tokio::test]
async fn a_greeting_and_background_stand_in_the_one_system_message() {
    let provider = HttpProvider::start(|_| chat::text(&["Hello."])).await;
    let mut call = call_to(&provider).await;
    let mut longer = request();
    longer.messages.insert(
        1,
        Message::Assistant {
            content: "Welcome.".into(),
            tool_calls: Vec::new(),
        },
    );
    longer.messages.push(Message::System {
        content: "It rains.".into(),
    });
    longer.messages.push(Message::User {
        content: "Well?".into(),
    });
    call.answer_to(1, longer).await;
    assert_eq!(
        provider.asked()[0].json()["messages"],
        json!([
            {"role": "system", "content": "You are kind.\n\nYou began with these words: Welcome.\n\nIt rains."},
            {"role": "user", "content": "Good day?\nWell?"},
        ])
    );
}

#[tokio::test]
async fn media_types_have_no_case_and_events_may_have_several_lines_and_a_mark_in_front() {
    let whole =
        json!({"choices": [{"message": {"content": [{"type": "text", "text": "Hello."}]}}]});
    let lines =
        "\u{feff}data: {\"choices\":\ndata: [{\"delta\":{\"content\":\ndata: \"Hello.\"}}]}\n\n";
    for answer in [
        Answer::ok("Application/JSON").send(whole.to_string()),
        Answer::ok("application/problem+json").send(whole.to_string()),
        Answer::ok("Text/Event-Stream").send(lines),
        Answer::ok("application/json").send(delta(json!({"content": "Hello."}))),
    ] {
        let provider = HttpProvider::start(move |_| answer.clone()).await;
        let answered = call_to(&provider).await.answer(1).await;
        assert_eq!((answered.text.as_str(), answered.failed), ("Hello.", None));
    }
}
