//! The account's cap: refusals as they are documented, and slots that come back.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use kit::client::{Answer, Client};
use kit::socket::{Caller, native};
use serde_json::json;
use tokio::time::sleep;

use crate::stage;

/// What a refusal at a cap says, with the message in `error` and `detail` both.
fn check_refusal(answer: &Answer, cap: u32) {
    assert_eq!(answer.status, 429, "{}", answer.body);
    let mut body = answer.body.clone();
    for key in ["request_id", "error", "detail"] {
        assert!(
            body.as_object_mut()
                .unwrap()
                .remove(key)
                .unwrap()
                .is_string()
        );
    }
    let retry_after = answer.body["retry_after"].as_u64().unwrap();
    assert_eq!(
        body,
        json!({
            "code": "capacity", "reason": "capacity", "resource_class": "call",
            "resource": "account", "current": cap, "cap": cap, "retry_after": retry_after,
        })
    );
    assert_eq!(
        answer.header("retry-after"),
        Some(retry_after.to_string().as_str())
    );
}

async fn connect(client: &Client, agent: &str) -> Answer {
    client.post("/conversation/connect", &native(agent)).await
}

#[tokio::test]
async fn the_fourth_call_of_three_is_refused_until_one_ends() {
    let _together = stage::together().await;
    let server = stage::setup()
        .set("LIMITS__ACCOUNT_CALLS", "3")
        .start()
        .await;
    let client = server.client();
    let agent = stage::agent(&client, json!({})).await;
    let mut callers = Vec::new();
    for _ in 0..2 {
        callers.push(Caller::call(&client, &native(&agent)).await);
    }
    // A session that waits for its caller holds a slot as well.
    let pending = connect(&client, &agent).await.expect(200);
    check_refusal(&connect(&client, &agent).await, 3);
    let calls = client.get("/calls").await.expect(200);
    assert_eq!(calls.body["total"], 3, "a refusal leaves no record");

    let id = pending.text("session_id");
    client
        .post(&format!("/conversation/{id}/end"), &json!({}))
        .await
        .expect(200);
    let pending = connect(&client, &agent).await.expect(200);
    check_refusal(&connect(&client, &agent).await, 3);
    callers.push(Caller::join(&pending, "").await.unwrap());
    check_refusal(&connect(&client, &agent).await, 3);

    // The slot of a call is free when its end is written down.
    let mut caller = callers.pop().unwrap();
    caller.send(&json!({"type": "end"})).await;
    caller.close_code(Duration::from_secs(3)).await;
    for _ in 0..100 {
        if connect(&client, &agent).await.status == 200 {
            return;
        }
        sleep(Duration::from_millis(20)).await;
    }
    panic!("the slot of a call that has ended is not free");
}

#[tokio::test]
async fn at_the_cap_as_many_are_let_in_as_it_says() {
    let _together = stage::together().await;
    let server = stage::setup()
        .set("LIMITS__ACCOUNT_CALLS", "20")
        .start()
        .await;
    let client = server.client();
    let agent = stage::agent(&client, json!({})).await;
    for _ in 0..if stage::soak() { 20 } else { 2 } {
        let crowd = if stage::soak() { 1000 } else { 100 };
        let answers = join_all((0..crowd).map(|_| connect(&client, &agent))).await;
        let (let_in, refused): (Vec<_>, Vec<_>) =
            answers.into_iter().partition(|answer| answer.status == 200);
        assert_eq!(let_in.len(), 20);
        refused.iter().for_each(|answer| check_refusal(answer, 20));
        let ids: BTreeSet<String> = let_in.iter().map(|a| a.text("session_id")).collect();
        assert_eq!(ids.len(), 20);
        join_all(ids.iter().map(async |id| {
            client
                .post(&format!("/conversation/{id}/end"), &json!({}))
                .await
                .expect(200)
        }))
        .await;
    }
}
