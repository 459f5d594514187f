//! What a dead node leaves is put right once, and one that was taken for dead comes back.

#![allow(clippy::unwrap_used, reason = "a test may stop at a surprise")]

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use http::StatusCode;
use serde_json::json;

use super::*;
use crate::admission::{Lease, Owner, Request, State};
use crate::cluster::{heart, register, route};
use crate::ids::CallId;
use crate::testing::TestApp;

/// A session that waits, of an agent that speaks in a tone.
async fn session(test: &TestApp) -> CallId {
    let agent = json!({
        "name": "Echo", "system_prompt": "Repeat.", "voice_id": "scripted-tone", "llm_model": "echo",
    });
    let (status, agent) = test.call("POST", "/agents", Some(agent)).await;
    assert_eq!(status, 201, "{agent}");
    let connect = json!({"agent_id": agent["id"], "transport": "websocket"});
    let (status, answer) = test
        .call("POST", "/conversation/connect", Some(connect))
        .await;
    assert_eq!(status, 200, "{answer}");
    answer["session_id"].as_str().unwrap().parse().unwrap()
}

/// Makes another node the host of a call.
async fn taken_by(test: &TestApp, id: CallId, node: &str, incarnation: i64) {
    let now = test.app.clock.now();
    let mut tx = test.app.db.begin_write().await.unwrap();
    let taken = calls::store::take(&mut tx, test.account, id, node, incarnation, now).await;
    assert!(taken.unwrap());
    tx.commit().await.unwrap();
    let request = Request {
        beyond: false,
        lease: id,
        owner: Owner::new(node, incarnation),
        account: test.account,
        agent: None,
        trunk: None,
        state: State::Live,
    };
    let lease = test.app.admission.adopt(request).await;
    lease.map(Lease::leave).unwrap();
}

#[tokio::test]
async fn calls_of_a_dead_node_end_once_with_their_event_and_their_lease() {
    let test = TestApp::new().await;
    register(&test.app).await.unwrap();
    let (dead, own, waiting) = (
        session(&test).await,
        session(&test).await,
        session(&test).await,
    );
    taken_by(&test, dead, "other", 999).await;
    taken_by(&test, own, "self", test.app.incarnation.number).await;
    assert_eq!(end_calls(&test.app).await.unwrap(), 1);
    assert_eq!(end_calls(&test.app).await.unwrap(), 0);
    let (_, call) = test.call("GET", &format!("/calls/{dead}"), None).await;
    assert_eq!(
        (&call["status"], &call["end_reason"]),
        (&json!("failed"), &json!("node_lost"))
    );
    for (id, open) in [(own, true), (waiting, true), (dead, false)] {
        let (_, call) = test.call("GET", &format!("/calls/{id}"), None).await;
        assert_eq!(call["ended_at"].is_null(), open, "{call}");
    }
    let events = test
        .app
        .db
        .query("select count(*) as n from events where call_id = $1 and type = 'call.ended'")
        .bind(dead)
        .one(|row| row.i64("n"))
        .await
        .unwrap();
    assert_eq!(events, 1);
    let counts = test.app.admission.counts().await.unwrap();
    assert_eq!((counts.pending, counts.live), (1, 1));
}

#[tokio::test]
async fn leases_without_a_call_are_freed_after_a_while() {
    let test = TestApp::new().await;
    let waiting = session(&test).await;
    let request = Request {
        beyond: false,
        lease: CallId::new(&test.app.clock),
        owner: test.app.incarnation.owner.clone(),
        account: test.account,
        agent: None,
        trunk: None,
        state: State::Pending,
    };
    let lease = test.app.admission.acquire(request).await;
    lease.map(Lease::leave).unwrap();
    // It may yet be written down.
    assert_eq!(mend_leases(&test.app).await.unwrap(), 0);
    test.app.clock.advance(rules::GRACE);
    assert_eq!(mend_leases(&test.app).await.unwrap(), 1);
    let left = test.app.admission.list().await.unwrap();
    assert_eq!(
        left.iter().map(|held| held.lease).collect::<Vec<_>>(),
        [waiting]
    );
}

#[tokio::test]
async fn who_was_taken_for_dead_takes_no_calls_until_it_is_back() {
    let test = TestApp::new().await;
    register(&test.app).await.unwrap();
    heart::beat(&test.app).await.unwrap();
    let nodes = store::live(&test.app.db).await.unwrap();
    assert_eq!((nodes.len(), nodes[0].beats), (1, 1));
    let number = test.app.incarnation.number;
    let now = test.app.clock.now();
    assert!(
        !store::bury(&test.app.db, number, 0, now).await.unwrap(),
        "it beat meanwhile"
    );
    assert!(store::bury(&test.app.db, number, 1, now).await.unwrap());
    assert!(!store::bury(&test.app.db, number, 1, now).await.unwrap());
    assert_eq!(store::live(&test.app.db).await.unwrap(), []);
    test.app.set_lost(true);
    let connect = json!({"agent_id": CallId::new(&test.app.clock), "transport": "websocket"});
    let (status, _) = test
        .call("POST", "/conversation/connect", Some(connect))
        .await;
    assert_eq!(status, 404, "what is wrong with a request is told first");
    // It hosts no call any more, so it is back at once.
    heart::beat(&test.app).await.unwrap();
    assert!(!test.app.is_lost());
    assert_eq!(store::live(&test.app.db).await.unwrap().len(), 1);
    session(&test).await;
}

#[tokio::test]
async fn a_node_that_starts_again_takes_the_place_of_its_earlier_self() {
    let test = TestApp::new().await;
    register(&test.app).await.unwrap();
    let node = store::NewNode {
        incarnation: test.app.incarnation.number + 1,
        name: &test.app.config.cluster.node,
        address: "http://127.0.0.1:1",
        capacity: 1,
    };
    let now = test.app.clock.now();
    store::register(&test.app.db, &node, now).await.unwrap();
    let nodes = store::live(&test.app.db).await.unwrap();
    assert_eq!(nodes.len(), 1);
    assert_eq!(nodes[0].address, "http://127.0.0.1:1");
    assert_eq!(
        store::find(&test.app.db, node.incarnation).await.unwrap(),
        Some(nodes[0].clone())
    );
    store::bury(&test.app.db, node.incarnation, 0, now)
        .await
        .unwrap();
    store::forget(&test.app.db, now.plus(Duration::from_micros(1)))
        .await
        .unwrap();
    assert_eq!(
        store::find(&test.app.db, node.incarnation).await.unwrap(),
        None
    );
    store::leave(&test.app.db, node.incarnation).await.unwrap();
}

/// Posts to the route between nodes; the answer's status, and whether anything of the body was read.
async fn asked(test: &TestApp, path: &str, body: String) -> (StatusCode, bool) {
    let read = Arc::new(AtomicBool::new(false));
    let reads = Arc::clone(&read);
    let sent = stream::once(async move {
        reads.store(true, Ordering::SeqCst);
        Ok::<_, Infallible>(Bytes::from(body))
    });
    let request = http::Request::post(path).body(Body::from_stream(sent));
    let status = test.send(request.unwrap()).await.status();
    (status, read.load(Ordering::SeqCst))
}

#[tokio::test]
async fn nothing_is_read_of_what_no_node_has_signed() {
    let test = TestApp::new().await;
    let id = session(&test).await;
    let body = json!({"account": test.account, "action": "status"}).to_string();
    let path = route::signed_path(&test.app, id, body.as_bytes());
    let (bare, query) = path.split_once('?').unwrap();
    let without = |name: &str| {
        let pairs: Vec<&str> = query.split('&').filter(|p| !p.starts_with(name)).collect();
        format!("{bare}?{}", pairs.join("&"))
    };
    let another = session(&test).await;
    let unsigned = [
        bare.to_owned(),
        format!(
            "{bare}?at={}&body=AAAA&signature=AAAA",
            test.app.clock.now().0
        ),
        without("at="),
        without("body="),
        without("signature="),
        path.replace(&id.to_string(), &another.to_string()),
    ];
    for path in unsigned {
        let told = asked(&test, &path, body.clone()).await;
        assert_eq!(told, (StatusCode::NOT_FOUND, false), "{path}");
    }
    assert_eq!(
        asked(&test, &path, body.clone()).await,
        (StatusCode::OK, true)
    );
    // The query is good for its own body alone.
    let other = body.replace("status", "make_offer");
    assert_eq!(
        asked(&test, &path, other).await,
        (StatusCode::NOT_FOUND, true)
    );
    // However wrong the wall clocks of the two are.
    for seconds in [3_600, -86_400] {
        test.app.clock.step(seconds);
        assert_eq!(
            asked(&test, &path, body.clone()).await,
            (StatusCode::OK, true)
        );
    }
    test.app.clock.advance(Duration::from_secs(31));
    assert_eq!(
        asked(&test, &path, body).await,
        (StatusCode::NOT_FOUND, false)
    );
}
