//! Whole calls: greeted, heard, answered, kept; held, restarted, lost.

use std::time::Duration;

use kit::client::Client;
use kit::server::Server;
use serde_json::{Value, json};

use crate::phone::{Phone, Session};
use crate::stage;

/// The part of a recording that holds a voice, in ms.
fn voiced_ms(side: &[i16]) -> usize {
    let frames = side.chunks(160);
    let loud = frames.filter(|frame| {
        let power: f64 = frame.iter().map(|s| f64::from(*s).powi(2)).sum();
        (power / frame.len() as f64).sqrt() > 600.0
    });
    loud.count() * 10
}

/// Is greeted, speaks, is answered.
pub(crate) async fn converse(phone: &mut Phone) {
    phone.until("voice").await;
    phone.until("silence").await;
    phone.speak(900).await;
    phone.until("voice").await;
    phone.until("silence").await;
}

/// The record of a call in which both sides spoke.
pub(crate) async fn was_a_conversation(client: &Client, id: &str) -> Value {
    let call = stage::over(client, id, Duration::from_secs(20)).await;
    assert_eq!(call["channel"], "webrtc", "{call}");
    let said = stage::said(client, id).await;
    let roles: Vec<&str> = said.iter().map(|(role, _)| role.as_str()).collect();
    assert!(
        roles.starts_with(&["assistant", "user", "assistant"]),
        "{said:?}"
    );
    assert!(said.iter().all(|(_, words)| !words.is_empty()), "{said:?}");
    let [caller, agent] = stage::recording(client, id).await;
    let (caller, agent) = (voiced_ms(&caller), voiced_ms(&agent));
    assert!((700..=1300).contains(&caller), "{caller} ms of the caller");
    assert!(agent > 1000, "{agent} ms of the agent");
    call
}

#[tokio::test]
async fn a_browser_is_greeted_speaks_is_answered_and_both_sides_are_kept() {
    whole_call(Phone::start).await;
}

pub(crate) async fn whole_call(start: fn() -> Phone) {
    let server = stage::server().await;
    let client = server.client();
    let agent = stage::agent(&client, json!({})).await;
    let mut phone = start();
    let session = phone.call(&client, &json!({"agent_id": agent})).await;
    let started = phone.message("session_started").await;
    assert_eq!(started["session_id"], session.id);
    converse(&mut phone).await;
    phone.message("user_transcript").await;
    phone.message("agent_response").await;

    let status = session.status().await;
    assert_eq!(
        (
            &status["status"],
            &status["connection_state"],
            &status["transport"]
        ),
        (&json!("live"), &json!("connected"), &json!("webrtc"))
    );
    assert_eq!(status["pc_id"], session.pc_id);
    for measured in ["loss_pct", "jitter_ms", "mos"] {
        assert!(status["quality"][measured].is_number(), "{status}");
    }
    session.end().await.expect(200);
    let call = was_a_conversation(&client, &session.id).await;
    assert_eq!(
        (&call["status"], &call["end_reason"]),
        (&json!("completed"), &json!("ended_by_api"))
    );
    let told = client
        .get(&format!("/conversations/{}/diagnostics", session.id))
        .await
        .expect(200);
    let network = &told.body["network"];
    assert_eq!(network["channel"], "webrtc");
    assert!(network["mos"].is_number() && network["loss_pct"].is_number());
    assert!(
        network["media"]["packets"].as_u64().unwrap() > 50,
        "{network}"
    );
    let late = session.offer("v=0", json!({})).await;
    assert_eq!(
        (late.status, late.text("code")),
        (404, "session_ended".into())
    );
}

#[tokio::test]
async fn a_visitor_calls_a_public_agent_with_nothing_but_its_id() {
    let server = stage::server().await;
    let client = server.client();
    let agent = stage::agent(&client, json!({"public_access": true})).await;
    let mut phone = Phone::start();
    let connect = json!({"agent_id": agent, "dynamic_variables": {"name": "Ann"}});
    let session = phone.call(&server.anonymous(), &connect).await;
    converse(&mut phone).await;
    session.end().await.expect(200);
    let call = was_a_conversation(&client, &session.id).await;
    assert_eq!(call["dynamic_variables"], json!({}));
}

#[tokio::test]
async fn candidates_may_all_come_later() {
    trickled_call(Phone::start).await;
}

pub(crate) async fn trickled_call(start: fn() -> Phone) {
    let server = stage::server().await;
    let client = server.client();
    let agent = stage::agent(&client, json!({})).await;
    let minted = client
        .post("/conversation/token", &json!({"agent_id": agent}))
        .await
        .expect(200);
    let client = client.with_bearer(&minted.text("token"));
    let connected = client.connect(&json!({"agent_id": agent})).await;
    let mut phone = start();
    phone.tell(json!({"do": "new"})).await;
    let offer = phone.offer().await;
    let (late, early): (Vec<&str>, Vec<&str>) = offer.split("\r\n").partition(|line| {
        line.starts_with("a=candidate:") || line.starts_with("a=end-of-candidates")
    });
    assert!(!late.is_empty(), "{offer}");
    let mut session = Session {
        client,
        id: connected.text("session_id"),
        pc_id: String::new(),
    };
    let answer = session
        .offer(&early.join("\r\n"), json!({}))
        .await
        .expect(200);
    session.pc_id = answer.text("pc_id");
    phone.answer(&answer).await;
    let mut candidates: Vec<Value> = late
        .iter()
        .filter_map(|line| line.strip_prefix("a="))
        .filter(|line| line.starts_with("candidate:"))
        .map(|line| json!({"candidate": line, "sdp_mid": "0", "sdp_mline_index": 0, "usernameFragment": null}))
        .collect();
    candidates.push(json!({"candidate": "", "sdp_mid": "0", "sdp_mline_index": 0}));
    let count = candidates.len();
    let body = json!({"pc_id": session.pc_id, "candidates": candidates});
    let taken = session
        .client
        .patch(&session.path("ice"), &body)
        .await
        .expect(200);
    assert_eq!(taken.body, json!({"status": "ok", "accepted": count}));
    phone.connected().await;
    phone.until("voice").await;
    session.end().await.expect(200);
    let over = session.client.patch(&session.path("ice"), &body).await;
    assert_eq!(
        (over.status, over.text("code")),
        (400, "peer_not_found".into())
    );
}

#[tokio::test]
async fn a_call_is_held_and_resumed() {
    let server = stage::server().await;
    let client = server.client();
    let agent = stage::agent(&client, json!({})).await;
    let mut phone = Phone::start();
    let session = phone.call(&client, &json!({"agent_id": agent})).await;
    phone.until("voice").await;
    phone.until("silence").await;
    for (direction, theirs) in [
        ("inactive", "a=inactive"),
        ("sendonly", "a=recvonly"),
        ("recvonly", "a=sendonly"),
        ("sendrecv", "a=sendrecv"),
    ] {
        phone
            .tell(json!({"do": "offer", "direction": direction}))
            .await;
        let offer = phone.description().await;
        assert!(offer.contains(&format!("a={direction}")), "{offer}");
        let more = json!({"pc_id": session.pc_id});
        let answer = session.offer(&offer, more).await.expect(200);
        assert_eq!(answer.text("pc_id"), session.pc_id);
        let sdp = answer.text("sdp");
        assert!(sdp.contains(theirs), "{direction}: {sdp}");
        phone.answer(&answer).await;
    }
    phone.speak(900).await;
    phone.until("voice").await;
    session.end().await.expect(200);
    was_a_conversation(&client, &session.id).await;
}

#[tokio::test]
async fn a_new_peer_connection_takes_the_place_of_the_old_one() {
    let server = stage::server().await;
    let client = server.client();
    let agent = stage::agent(&client, json!({})).await;
    let mut phone = Phone::start();
    let mut session = phone.call(&client, &json!({"agent_id": agent})).await;
    phone.until("voice").await;
    phone.until("silence").await;
    // The page was loaded again: nothing is left of the old connection.
    phone.tell(json!({"do": "vanish"})).await;
    phone.until("vanished").await;
    phone.tell(json!({"do": "new"})).await;
    let offer = phone.offer().await;
    let nameless = session.offer(&offer, json!({})).await.expect(422);
    assert_eq!(nameless.wrong_fields(), ["body.pc_id"]);
    let unknown = session.offer(&offer, json!({"pc_id": "elsewhere"})).await;
    assert_eq!(
        (unknown.status, unknown.text("code")),
        (404, "peer_not_found".into())
    );
    let more = json!({"pc_id": session.pc_id, "restart_pc": true});
    let answer = session.offer(&offer, more).await.expect(200);
    let second = answer.text("pc_id");
    assert_ne!(second, session.pc_id);
    phone.answer(&answer).await;
    phone
        .until_where("state", |told| {
            told["state"] == "connected" && told["line"] == 2
        })
        .await;
    let old = json!({"pc_id": session.pc_id, "candidates": []});
    let refused = session.client.patch(&session.path("ice"), &old).await;
    assert_eq!(
        (refused.status, refused.text("code")),
        (400, "peer_not_found".into())
    );
    session.pc_id = second;
    assert_eq!(session.status().await["pc_id"], session.pc_id);
    phone.speak(900).await;
    phone.until_where("voice", |told| told["line"] == 2).await;
    phone.until("silence").await;
    session.end().await.expect(200);
    was_a_conversation(&client, &session.id).await;
    let transcript = client
        .get(&format!("/conversations/{}/transcript", session.id))
        .await
        .expect(200);
    // Media reconnected: the offsets of the two clocks cannot be compared.
    for turn in transcript.body["turns"].as_array().unwrap() {
        assert_eq!(turn["start_ms"], Value::Null, "{turn}");
    }
}

#[tokio::test]
async fn the_server_may_make_the_offer() {
    answering_call(Phone::start).await;
}

pub(crate) async fn answering_call(start: fn() -> Phone) {
    let server = stage::server().await;
    let client = server.client();
    let agent = stage::agent(&client, json!({})).await;
    let connected = client.connect(&json!({"agent_id": agent})).await;
    let mut session = Session {
        client: client.clone(),
        id: connected.text("session_id"),
        pc_id: String::new(),
    };
    let offered = client.get(&session.path("offer")).await.expect(200);
    assert_eq!(offered.body["type"], "offer");
    session.pc_id = offered.text("pc_id");
    // Asked again, it is the same.
    let again = client.get(&session.path("offer")).await.expect(200);
    assert_eq!(again.body, offered.body);
    let mut phone = start();
    phone.tell(json!({"do": "new", "offers": false})).await;
    phone
        .tell(json!({"do": "take", "sdp": offered.body["sdp"]}))
        .await;
    let answer = phone.description().await;
    let body = json!({"sdp": answer, "type": "answer", "pc_id": session.pc_id});
    let settled = client.post(&session.path("offer"), &body).await.expect(200);
    assert_eq!(settled.text("pc_id"), session.pc_id);
    phone.connected().await;
    // The data channel is of our offer, too.
    let started = phone.message("session_started").await;
    assert_eq!(started["session_id"], session.id);
    converse(&mut phone).await;
    let twice = client.post(&session.path("offer"), &body).await.expect(422);
    assert_eq!(twice.wrong_fields(), ["body.type"]);
    let late = client.get(&session.path("offer")).await;
    assert_eq!((late.status, late.text("code")), (409, "conflict".into()));
    session.end().await.expect(200);
    was_a_conversation(&client, &session.id).await;
}

/// Waits until no lease is left.
async fn no_lease_is_left(server: &Server) {
    let metrics = || async {
        let answer = server.anonymous().get("//metrics").await;
        String::from_utf8(answer.bytes).unwrap()
    };
    for _ in 0..100 {
        if metrics()
            .await
            .contains("sidetone_leases{state=\"live\"} 0")
        {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("a lease is left:\n{}", metrics().await);
}

#[tokio::test]
async fn who_does_not_come_back_in_half_a_minute_has_ended_the_call() {
    let server = stage::server().await;
    let client = server.client();
    let agent = stage::agent(&client, json!({})).await;
    let mut phone = Phone::start();
    let session = phone.call(&client, &json!({"agent_id": agent})).await;
    phone.until("voice").await;
    phone.tell(json!({"do": "vanish"})).await;
    phone.until("vanished").await;
    let gone = tokio::time::Instant::now();
    let call = stage::over(&client, &session.id, Duration::from_secs(45)).await;
    assert!(
        gone.elapsed() >= Duration::from_secs(25),
        "{:?}",
        gone.elapsed()
    );
    assert_eq!(
        (&call["status"], &call["end_reason"]),
        (&json!("failed"), &json!("media_timeout"))
    );
    no_lease_is_left(&server).await;
}
