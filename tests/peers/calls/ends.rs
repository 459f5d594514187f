//! However many end a call at once, it ends once.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use kit::client::Client;
use kit::socket::{Caller, native};
use serde_json::json;

use crate::stage;

const CALLS: usize = 50;

#[tokio::test]
async fn fifty_calls_ended_from_three_sides_end_once_each() {
    let _together = stage::together().await;
    let server = stage::server().await;
    let client = server.client();
    let agent = stage::agent(&client, json!({})).await;
    let calls = if stage::soak() { 20 * CALLS } else { CALLS };
    let mut ids = Vec::new();
    while ids.len() < calls {
        ids.extend(join_all((0..CALLS).map(|n| ended(&client, &agent, n))).await);
    }
    let mut events = BTreeSet::new();
    for id in &ids {
        let call = stage::over(&client, id, Duration::from_secs(10)).await;
        assert_eq!(call["status"], "completed");
        let reason = call["end_reason"].as_str().unwrap();
        assert!(
            ["caller_hangup", "ended_by_api"].contains(&reason),
            "{reason}"
        );
        let of_call = server.events(id, "call.ended").await;
        assert_eq!(of_call.len(), 1, "{id}");
        assert_eq!(of_call[0].0["call_id"], json!(id));
        events.insert(of_call[0].0["event_id"].to_string());
        assert_eq!(server.events(id, "recording.ready").await.len(), 1, "{id}");
    }
    assert_eq!(events.len(), ids.len());
}

/// A call that the caller and two users of the API end at the same time. Its id.
async fn ended(client: &Client, agent: &str, n: usize) -> String {
    let mut caller = Caller::call(client, &native(agent)).await;
    caller.listen(200).await;
    let id = caller.session_id.clone();
    let (session, call) = (
        format!("/conversation/{id}/end"),
        format!("/calls/{id}/end"),
    );
    let nothing = json!({});
    let hang_up = async {
        if n.is_multiple_of(2) {
            caller.send(&json!({"type": "end"})).await;
            let code = caller.close_code(Duration::from_secs(5)).await;
            assert!(code.is_some());
        } else {
            caller.hang_up().await;
        }
    };
    let (first, second, ()) = tokio::join!(
        client.post(&session, &nothing),
        client.post(&call, &nothing),
        hang_up
    );
    let (first, second) = (first.expect(200), second.expect(200));
    assert_eq!(first.body["end_reason"], second.body["end_reason"]);
    assert_eq!(first.body["ended_at"], second.body["ended_at"]);
    id
}

/// Three pings, ten seconds apart, and ten more seconds.
#[tokio::test]
async fn a_client_that_answers_no_ping_reads_why_before_1011() {
    if !stage::soak() {
        return;
    }
    let _together = stage::together().await;
    let server = stage::server().await;
    let client = server.client();
    let agent = stage::agent(&client, json!({"first_message": null})).await;
    let mut caller = Caller::call(&client, &native(&agent)).await;
    caller.answer_no_ping();
    caller.listen(45_000).await;
    assert_eq!(caller.closed, Some(1011), "{:?}", caller.messages);
    assert_eq!(caller.of_kind("ping").len(), 3);
    let last: Vec<_> = caller.messages.iter().rev().take(2).collect();
    let [(_, over), (_, error)] = last[..] else {
        panic!("{last:?}")
    };
    assert_eq!(
        (&error["type"], &error["code"]),
        (&json!("error"), &json!("media_timeout"))
    );
    assert_eq!(
        (&over["type"], &over["status"]),
        (&json!("call_ended"), &json!("failed"))
    );
    let call = stage::over(&client, &caller.session_id, Duration::from_secs(10)).await;
    assert_eq!(
        (&call["status"], &call["end_reason"]),
        (&json!("failed"), &json!("media_timeout"))
    );
}
