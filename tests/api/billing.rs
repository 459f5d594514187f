//! What a call uses and costs, and what becomes of the calls of an account that may not spend.

use control::config::{BillingMode, Config};
use control::secret::Secret;
use serde_json::{Value, json};

use crate::calls::a_call;
use crate::in_process::{Caller, Server};

const ADMIN: &str = "swordfish-of-the-operator";

fn operated(config: &mut Config) {
    config.admin_token = Some(Secret::new(ADMIN.to_owned()));
}

/// A hundred dollars a minute, so that a short call costs cents.
fn dear(config: &mut Config) {
    operated(config);
    config.billing.mode = BillingMode::Prepaid;
    config.billing.prices.call_minute_millicents = 10_000_000;
}

async fn credit(server: &Server, cents: i64) {
    let body = json!({"account_id": server.test.account, "amount_cents": cents});
    let (status, answer) = server
        .test
        .call_as(ADMIN, "POST", "/billing/adjustments", Some(body))
        .await;
    assert_eq!(status, 201, "{answer}");
}

async fn block(server: &Server) {
    let path = format!("/admin/accounts/{}/block", server.test.account);
    let (status, answer) = server.test.call_as(ADMIN, "POST", &path, None).await;
    assert_eq!(
        (status.as_u16(), &answer["hard_blocked"]),
        (200, &json!(true))
    );
}

/// What the account used of one resource; the clock has been moved past the uses.
async fn used(server: &Server, resource: &str) -> f64 {
    let (_, report) = server
        .test
        .call(
            "GET",
            "/usage?from=2026-01-01T00:00:00Z&to=2026-02-01T00:00:00Z",
            None,
        )
        .await;
    report["totals"][resource].as_f64().unwrap()
}

#[tokio::test]
async fn a_call_is_metered_and_costs_its_minutes() {
    let server = Server::with(dear).await;
    credit(&server, 1_000_000).await;
    let agent = server
        .agent(json!({"webhook_url": "https://hooks.acme.com/calls"}))
        .await;
    let id = a_call(&server, &agent).await;
    let (_, call) = server.test.call("GET", &format!("/calls/{id}"), None).await;
    let seconds = call["duration_seconds"].as_f64().unwrap();
    assert!(seconds > 0.0);
    // 10,000 cents a minute, each call rounded half up to a cent.
    let cost = (seconds * 10_000.0 / 60.0).round();
    assert_eq!(call["cost_cents"].as_f64().unwrap(), cost, "{seconds} s");
    let minutes = used(&server, "call_minutes").await;
    assert!((minutes - seconds / 60.0).abs() < 1e-6, "{minutes}");
    // The greeting and the answer, to the character; nothing was said aloud by the caller.
    let spoken: usize = call["transcript"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|turn| turn["role"] == "assistant")
        .map(|turn| turn["text"].as_str().unwrap().chars().count())
        .sum();
    let characters = used(&server, "tts_characters").await;
    assert!(
        characters >= spoken as f64 - 2.0 && characters <= spoken as f64 + 40.0,
        "{characters} characters for {spoken}"
    );
    let (_, standing) = server.test.call("GET", "/billing/status", None).await;
    let left = standing["balance_cents"].as_f64().unwrap();
    assert!((1_000_000.0 - cost - left).abs() <= 1.0, "{left}");
    let events = server.events(&id, "call.ended").await;
    assert_eq!(events[0].0["cost_cents"], call["cost_cents"]);
}

#[tokio::test]
async fn what_the_caller_says_aloud_is_metered_in_seconds() {
    let server = Server::start().await;
    let agent = server.agent(json!({})).await;
    let (_, ws_url) = server.connect(&agent, json!({})).await;
    let mut caller = Caller::join(&ws_url).await;
    caller.until("session_started").await;
    let silence = base64_simd::STANDARD.encode_to_string(vec![0_u8; 640]);
    let tone: Vec<u8> = media::audio::tones::sine(16_000, 500.0, -12.0, 320)
        .iter()
        .flat_map(|sample| sample.to_le_bytes())
        .collect();
    let tone = base64_simd::STANDARD.encode_to_string(tone);
    for _ in 0..30 {
        caller.send(json!({"type": "audio", "audio": tone})).await;
    }
    for _ in 0..40 {
        caller
            .send(json!({"type": "audio", "audio": silence}))
            .await;
    }
    caller.send(json!({"type": "end"})).await;
    caller.until_closed().await;
    server.settle().await;
    let seconds = used(&server, "transcription_seconds").await;
    let minutes = used(&server, "call_minutes").await;
    assert!(
        seconds <= minutes * 60.0 + 1.0,
        "{seconds} s of {minutes} min"
    );
}

#[tokio::test]
async fn a_live_call_of_a_blocked_account_ends_with_1013() {
    let server = Server::with(operated).await;
    let agent = server.agent(json!({})).await;
    let (id, ws_url) = server.connect(&agent, json!({})).await;
    let mut caller = Caller::join(&ws_url).await;
    caller.until("audio").await;
    let (_, waiting) = server.connect(&agent, json!({})).await;
    block(&server).await;
    let error = caller.until("error").await;
    assert_eq!(error["code"], "billing_blocked");
    let (last, code) = caller.until_closed().await;
    assert_eq!((&last["type"], code), (&json!("call_ended"), 1013));
    // Who had a ticket from before is not let in any more.
    let (told, code) = Caller::join(&waiting).await.until_closed().await;
    assert_eq!((&told["code"], code), (&json!("billing_blocked"), 1013));
    server.settle().await;
    let (_, call) = server.test.call("GET", &format!("/calls/{id}"), None).await;
    assert_eq!(
        (&call["status"], &call["ended_by"]),
        (&json!("completed"), &json!("system"))
    );
    assert_eq!(server.events(&id, "call.ended").await.len(), 1);
    let leases = server.test.app.admission.counts().await.unwrap();
    assert_eq!((leases.pending, leases.live), (0, 0));
}

#[tokio::test]
async fn a_live_call_ends_when_it_has_used_up_its_credit() {
    let server = Server::with(dear).await;
    credit(&server, 100).await;
    let agent = server.agent(json!({})).await;
    let (_, ws_url) = server.connect(&agent, json!({})).await;
    let mut caller = Caller::join(&ws_url).await;
    caller.until("audio").await;
    let sweep = async || {
        control::usage::guard::sweep(&server.test.app)
            .await
            .unwrap()
    };
    assert_eq!(sweep().await, 0);
    // Nobody pays for a wall clock that is set.
    for seconds in [3_600, -3_600, 86_400, -86_400] {
        server.test.app.clock.step(seconds);
        assert_eq!(sweep().await, 0, "{seconds} s");
    }
    // 100 cents at 10,000 a minute are 0.6 s.
    server
        .test
        .app
        .clock
        .advance(std::time::Duration::from_millis(600));
    assert_eq!(sweep().await, 1);
    let (last, code) = caller.until_closed().await;
    assert_eq!((&last["type"], code), (&json!("call_ended"), 1013));
    server.settle().await;
}

#[tokio::test]
async fn the_command_line_blocks_credits_and_unblocks() {
    let server = kit::server::Server::scripted().await;
    let client = server.client();
    let standing = async || -> Value { client.get("/billing/status").await.expect(200).body };
    server.command(&["accounts", "block", "default", "--reason", "unpaid"]);
    assert_eq!(standing().await["hard_blocked"], true);
    let body = json!({"agent_id": uuid::Uuid::new_v4(), "transport": "websocket"});
    let refused = client
        .post("/conversation/connect", &body)
        .await
        .expect(402);
    assert_eq!(refused.text("code"), "billing.hard_block");
    server.command(&["accounts", "unblock", "default"]);
    let told = server.command(&["accounts", "credit", "default", "250", "--note", "gift"]);
    assert_eq!(told.trim(), "balance: 250 cents");
    assert_eq!(
        standing().await,
        json!({"enabled": false, "hard_blocked": false, "balance_cents": 250})
    );
    client
        .post("/conversation/connect", &body)
        .await
        .expect(404);
}
