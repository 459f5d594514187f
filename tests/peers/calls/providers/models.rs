//! Models that stall and refuse: the caller always hears something, and the call goes on.

use std::time::Duration;

use futures_util::future::join_all;
use kit::provider::{Answer, HttpProvider, chat};
use kit::server::Server;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{call, check_end, greeted, provider, turn};
use crate::stage;

/// An agent says something else after this, s.
const SOFT: u64 = 1;

/// How much later than that the caller may hear it.
const SLACK: Duration = Duration::from_millis(300);

/// How long an answer takes that stalls.
const STALL: Duration = Duration::from_secs(10);

/// A model that stalls on a fifth of the turns: those with three, eight… words of the caller in them.
async fn stalling() -> HttpProvider {
    HttpProvider::start(|asked| {
        let body = asked.json();
        let answer = chat::text(&["You said: ", &chat::asked(&body), "."]);
        if turns(&body) % 5 == 3 {
            answer.hold(STALL)
        } else {
            answer
        }
    })
    .await
}

fn turns(body: &Value) -> usize {
    let messages = body["messages"].as_array().map_or(&[][..], Vec::as_slice);
    messages.iter().filter(|m| m["role"] == "user").count()
}

async fn server(model: &HttpProvider, more: &[(&str, &str)]) -> Server {
    let mut setup = provider(stage::setup(), "x", "openai", &model.url());
    setup = setup.set("PROVIDERS__X__MODELS", "m,second=other");
    for (name, value) in more {
        setup = setup.set(name, value);
    }
    setup.start().await
}

fn fields() -> Value {
    json!({"llm_model": "", "soft_timeout_seconds": SOFT, "soft_timeout_message": "Let me see."})
}

/// Row 10: stalls of 10 s on 20 % of the turns.
#[tokio::test]
async fn every_turn_is_reacted_to_although_a_fifth_of_the_answers_stall() {
    let _together = stage::together().await;
    let model = stalling().await;
    let server = server(&model, &[]).await;
    let client = server.client();
    let (calls, rounds) = if stage::soak() { (20, 10) } else { (4, 5) };
    let one = async || {
        let mut caller = call(&client, fields()).await;
        greeted(&mut caller).await;
        let mut reactions = Vec::new();
        let mut apologies = 0;
        for round in 1..=rounds {
            let turn = turn(&mut caller, &stage::voice(400), Duration::from_secs(16)).await;
            let turn = turn.unwrap_or_else(|| panic!("no answer in turn {round}"));
            reactions.push(turn.reaction);
            if turn.answer.starts_with("I am sorry") {
                apologies += 1;
            } else {
                assert_eq!(turn.answer, format!("You said: {}.", turn.heard));
            }
        }
        check_end(&server, caller).await;
        (reactions, apologies)
    };
    let ended = join_all((0..calls).map(|_| one())).await;
    let reactions: Vec<Duration> = ended.iter().flat_map(|(times, _)| times.clone()).collect();
    let apologies: usize = ended.iter().map(|(_, apologies)| apologies).sum();
    let worst = reactions.iter().max().unwrap();
    println!(
        "{} turns, {apologies} stalled: the slowest reaction came after {worst:?}",
        reactions.len()
    );
    assert_eq!(apologies, calls * rounds / 5);
    assert!(*worst <= Duration::from_secs(SOFT) + SLACK, "{worst:?}");
}

#[tokio::test]
async fn the_fallback_answers_the_turns_that_stall() {
    let _together = stage::together().await;
    let model = stalling().await;
    let server = server(&model, &[("SPEECH__MODEL_FALLBACK", "echo")]).await;
    let mut caller = call(&server.client(), fields()).await;
    greeted(&mut caller).await;
    for round in 1..=5 {
        let turn = turn(&mut caller, &stage::voice(400), Duration::from_secs(10)).await;
        let turn = turn.unwrap_or_else(|| panic!("no answer in turn {round}"));
        assert!(turn.reaction <= Duration::from_secs(SOFT) + SLACK);
        if round == 3 {
            assert_eq!(turn.answer, turn.heard, "the echo's answer");
        } else {
            assert_eq!(turn.answer, format!("You said: {}.", turn.heard));
        }
    }
    check_end(&server, caller).await;
}

#[tokio::test]
async fn a_model_that_refuses_is_apologised_for_and_the_next_turn_is_answered() {
    let _together = stage::together().await;
    let model = HttpProvider::start(|asked| match turns(&asked.json()) {
        1 => Answer::status(500),
        _ => chat::text(&["Here I am."]),
    })
    .await;
    let server = server(&model, &[]).await;
    let mut caller = call(&server.client(), fields()).await;
    greeted(&mut caller).await;
    let first = turn(&mut caller, &stage::voice(400), Duration::from_secs(10)).await;
    assert!(first.unwrap().answer.starts_with("I am sorry"));
    let mut tries = model.asked().len();
    assert!(tries >= 2, "{tries} tries");
    let second = turn(&mut caller, &stage::voice(400), Duration::from_secs(10)).await;
    assert_eq!(second.unwrap().answer, "Here I am.");
    tries = model.asked().len() - tries;
    assert!(tries >= 1);
    check_end(&server, caller).await;
}

#[tokio::test]
async fn an_interruption_drops_the_model_s_connection() {
    let _together = stage::together().await;
    let long = "And so it goes on and on and on. ".repeat(4);
    let model = HttpProvider::start(move |_| chat::text(&[&long]).wait(STALL)).await;
    let server = server(&model, &[]).await;
    let fields =
        json!({"llm_model": "m", "barge_in_min_speech_secs": 0.2, "response_max_sentences": 0});
    let mut caller = call(&server.client(), fields).await;
    greeted(&mut caller).await;
    caller.speak(&stage::voice(400)).await;
    caller.wait_for("audio", 5000).await;
    // What was asked before the caller's turn was over may have been dropped.
    let before = model.dropped().len();
    caller.listen(300).await;
    caller.speak(&stage::voice(600)).await;
    let interrupted = Instant::now();
    while model.dropped().len() == before {
        assert!(
            interrupted.elapsed() < Duration::from_secs(2),
            "still connected"
        );
        caller.listen(20).await;
    }
    check_end(&server, caller).await;
}

#[tokio::test]
async fn what_is_configured_is_listed_and_the_default() {
    let _together = stage::together().await;
    let model = HttpProvider::start(|_| chat::text(&["Hello."])).await;
    let server = server(
        &model,
        &[
            ("PROVIDERS__X__VOICES", "alloy female GB"),
            ("PROVIDERS__LATER__KIND", "openai"),
            ("PROVIDERS__LATER__MODELS", "gpt"),
            ("SPEECH__MODEL", "second"),
        ],
    )
    .await;
    let client = server.client();
    let ids = |list: &Value| -> Vec<String> {
        let items = list["items"].as_array().unwrap();
        items
            .iter()
            .map(|m| m["id"].as_str().unwrap().to_owned())
            .collect()
    };
    let models = client.get("/models").await.expect(200).body;
    assert_eq!(ids(&models), ["default", "faq", "echo", "m", "second"]);
    assert_eq!(models["items"][3]["provider"], "x");
    let all = client.get("/models?include_unavailable=true").await;
    let all = all.expect(200).body;
    let later = all["items"].as_array().unwrap();
    let later = later.iter().find(|model| model["id"] == "gpt");
    assert_eq!(later.unwrap()["available"], json!(false));
    let voices = client.get("/voices?country=GB").await.expect(200).body;
    let voice = &voices["items"][0];
    assert_eq!(
        (&voice["voice_key"], &voice["gender"]),
        (&json!("x-alloy"), &json!("female"))
    );
    let by_key = client.get("/voices/x-alloy").await.expect(200);
    assert_eq!(by_key.body["id"], voice["id"]);
    // The empty model is the configured one.
    let mut caller = call(&client, json!({"llm_model": ""})).await;
    greeted(&mut caller).await;
    let turn = turn(&mut caller, &stage::voice(400), Duration::from_secs(5)).await;
    assert_eq!(turn.unwrap().answer, "Hello.");
    assert_eq!(model.asked()[0].json()["model"], "other");
    check_end(&server, caller).await;
}
