//! Any node answers for any session: what only its host knows is asked there.

use std::time::Duration;

use kit::client::Client;
use kit::socket::{Caller, native};
use reqwest::Method;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::stage::{Cluster, agent};

#[tokio::test]
async fn a_session_is_asked_and_ended_at_any_node_and_a_dead_host_is_502() {
    let cluster = Cluster::new().await;
    let a = cluster.node("a").start().await;
    let mut b = cluster.node("b").start().await;
    let (at_a, at_b) = (a.client(), b.client());
    let agent = agent(&at_a).await;

    // Opened at one node, joined at the other.
    let mut callers = Vec::new();
    for _ in 0..2 {
        let session = at_a.connect(&native(&agent)).await;
        let url = session.text("ws_url");
        let here = url.split("/ws/").nth(1).unwrap();
        let there = format!("{}/ws/{here}", b.url.replace("http://", "ws://"));
        let mut caller = Caller::open(&there).await.unwrap();
        caller.session_id = session.text("session_id");
        caller.wait_for("audio", 3000).await;
        callers.push(caller);
    }
    let id = callers[0].session_id.clone();
    let status = at_a
        .get(&format!("/conversation/{id}/status"))
        .await
        .expect(200);
    assert_eq!(status.text("status"), "live");
    // Only the host knows it.
    assert!(status.body["agent_state"].is_string(), "{}", status.body);
    let answer = json!({"tool_call_id": "none", "result": 1});
    let unknown = at_a
        .post(&format!("/conversation/{id}/tool-result"), &answer)
        .await
        .expect(404);
    assert_eq!(unknown.text("code"), "tool_call_not_found");
    let began = Instant::now();
    let ended = at_a
        .post(
            &format!("/conversation/{id}/end"),
            &json!({"reason": "enough"}),
        )
        .await
        .expect(200);
    assert_eq!(ended.body["already_ended"], false);
    assert_eq!(ended.body["end_reason"], "ended_by_api");
    assert!(began.elapsed() < Duration::from_secs(3));
    assert_eq!(
        callers[0].close_code(Duration::from_secs(2)).await,
        Some(1000)
    );
    let again = at_b
        .post(&format!("/calls/{id}/end"), &json!({}))
        .await
        .expect(200);
    assert_eq!(again.body["already_ended"], true);

    // Who is no node is told nothing.
    let stranger = a.anonymous();
    for query in ["", "?at=0&signature=AAAA"] {
        let path = format!("{}/internal/v1/sessions/{id}{query}", b.url);
        stranger
            .send(Method::POST, &path, Some(b"{}".to_vec()))
            .await
            .expect(404);
    }

    let id = callers[1].session_id.clone();
    callers[1].listen(2500).await;
    b.kill();
    let killed = Instant::now();
    let gone = at_a
        .get(&format!("/conversation/{id}/status"))
        .await
        .expect(502);
    assert_eq!(gone.text("code"), "session_host_unreachable");
    // The other node takes it for dead and ends its calls, without its being started again.
    let call = ended_at(&at_a, &id, Duration::from_secs(20)).await;
    assert_eq!(
        (&call["status"], &call["end_reason"]),
        (&json!("failed"), &json!("node_lost"))
    );
    println!("a dead node's call was over after {:?}", killed.elapsed());
    cluster.empty(Duration::from_secs(15)).await;
    println!("and its lease was free after {:?}", killed.elapsed());
    at_a.get(&format!("/conversation/{id}/status"))
        .await
        .expect(200);
    assert_eq!(events(&cluster, &id).await, 1);
    // What it had recorded is kept once it is back.
    b.start_again().await;
    let until = Instant::now() + Duration::from_secs(10);
    while at_a.get(&format!("/calls/{id}")).await.body["has_recording"] != true {
        assert!(Instant::now() < until, "the recording is lost");
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(events(&cluster, &id).await, 1);
}

async fn ended_at(client: &Client, id: &str, within: Duration) -> serde_json::Value {
    let until = Instant::now() + within;
    loop {
        let call = client.get(&format!("/calls/{id}")).await.expect(200).body;
        if !call["ended_at"].is_null() {
            return call;
        }
        assert!(Instant::now() < until, "{call}");
        sleep(Duration::from_millis(50)).await;
    }
}

async fn events(cluster: &Cluster, call: &str) -> i64 {
    cluster
        .db
        .query("select count(*) as n from events where call_id = $1 and type = 'call.ended'")
        .bind(call)
        .one(|row| row.i64("n"))
        .await
        .unwrap()
}

#[tokio::test]
async fn offers_and_candidates_go_to_the_node_that_answered_the_first_offer() {
    let cluster = Cluster::new().await;
    let a = cluster.node("a").start().await;
    let mut b = cluster.node("b").start().await;
    let (at_a, at_b) = (a.client(), b.client());
    let agent = agent(&at_a).await;
    let session = at_a.connect(&json!({"agent_id": agent})).await;
    let path = |route: &str| format!("/conversation/{}/{route}", session.text("session_id"));
    let sdp = include_str!("../../../fixtures/sdp/aiortc_offer.sdp").replace('\n', "\r\n");
    let offer = |pc_id: serde_json::Value| json!({"sdp": sdp, "type": "offer", "pc_id": pc_id});
    let first = at_b
        .post(&path("offer"), &offer(json!(null)))
        .await
        .expect(200);
    let pc_id = first.text("pc_id");
    // Only the host knows the connection.
    let status = at_a.get(&path("status")).await.expect(200);
    assert_eq!(
        (status.text("status"), status.text("pc_id")),
        ("live".into(), pc_id.clone())
    );
    let second = at_a
        .post(&path("offer"), &offer(json!(pc_id)))
        .await
        .expect(200);
    assert_eq!(second.text("pc_id"), pc_id);
    let candidate = "candidate:1 1 udp 2130706431 127.0.0.1 9 typ host";
    let ice = |pc_id: &str, candidate: &str| json!({"pc_id": pc_id, "candidates": [{"candidate": candidate, "sdp_mid": "0", "sdp_mline_index": 0}]});
    let taken = at_a
        .patch(&path("ice"), &ice(&pc_id, candidate))
        .await
        .expect(200);
    assert_eq!(taken.body["accepted"], 1);
    // What the host refuses comes back as it said it.
    let nameless = at_a
        .post(&path("offer"), &offer(json!(null)))
        .await
        .expect(422);
    assert_eq!(nameless.wrong_fields(), ["body.pc_id"]);
    let other = at_a
        .post(&path("offer"), &offer(json!("elsewhere")))
        .await
        .expect(404);
    assert_eq!(other.text("code"), "peer_not_found");
    let other = at_a
        .patch(&path("ice"), &ice("elsewhere", candidate))
        .await
        .expect(400);
    assert_eq!(other.text("code"), "peer_not_found");
    let bad = at_a
        .patch(&path("ice"), &ice(&pc_id, "candidate:nonsense"))
        .await
        .expect(400);
    assert_eq!(bad.text("code"), "invalid_candidate");
    let late = at_a.get(&path("offer")).await.expect(409);
    assert_eq!(late.text("code"), "conflict");
    b.kill();
    let gone = at_a
        .patch(&path("ice"), &ice(&pc_id, candidate))
        .await
        .expect(502);
    assert_eq!(gone.text("code"), "session_host_unreachable");
    at_a.post(&path("offer"), &offer(json!(pc_id)))
        .await
        .expect(502);
}
