//! A store that hangs, and what goes on all the same.

#![allow(clippy::unwrap_used, reason = "a test may stop at a surprise")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use http::StatusCode;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::*;
use crate::app::testing::TestApp;
use crate::calls::store::NewCall;
use crate::ids::AgentId;

/// An application whose bucket takes every connection and answers none, and how many it has taken.
async fn hanging() -> (TestApp, Arc<AtomicU32>) {
    let bucket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = bucket.local_addr().unwrap();
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((connection, _)) = bucket.accept().await {
            count.fetch_add(1, Ordering::SeqCst);
            held.push(connection);
        }
    });
    let test = TestApp::with(|config| {
        config.storage.url = "s3://calls".to_owned();
        config.storage.endpoint = format!("http://{address}");
        config.storage.region = "eu-west-1".to_owned();
    })
    .await;
    (test, asked)
}

/// A recording that is ready.
async fn recording(test: &TestApp) -> RecordingId {
    let (app, now) = (&test.app, test.app.clock.now());
    let call = CallId::new(&app.clock);
    let new = NewCall {
        id: call,
        agent_id: AgentId::new(&app.clock),
        agent_name: "Reception",
        direction: "inbound",
        channel: "websocket",
        language: "english",
        from_number: None,
        to_number: None,
        phone_number_id: None,
        trunk_id: None,
        dynamic_variables: &json!({}),
    };
    let id = RecordingId::new(&app.clock);
    let mut tx = app.db.begin_write().await.unwrap();
    calls::store::insert(&mut tx, test.account, &new, now)
        .await
        .unwrap();
    tx.query(
        "insert into recordings (id, account_id, call_id, agent_id, status, sample_rate, region, storage_key,
            created_at, updated_at)
         values ($1, $2, $3, $4, 'ready', 8000, 'local', $5, $6, $6)",
    )
    .bind(id)
    .bind(test.account)
    .bind(call)
    .bind(new.agent_id)
    .bind(ObjectKey::recording(test.account, call).as_str())
    .bind(now)
    .execute()
    .await
    .unwrap();
    tx.commit().await.unwrap();
    id
}

#[tokio::test]
async fn a_store_that_hangs_holds_up_neither_a_deletion_nor_the_sessions() {
    let (test, _) = hanging().await;
    let id = recording(&test).await;
    let began = Instant::now();
    let path = format!("/recordings/{id}");
    let (status, _) = test.call("DELETE", &path, None).await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    assert!(began.elapsed() < Duration::from_secs(5));
    assert_eq!(test.call("GET", &path, None).await.0, StatusCode::NOT_FOUND);

    let agent = json!({"name": "A", "system_prompt": "Be kind.", "voice_id": "scripted-tone"});
    let (_, agent) = test.call("POST", "/agents", Some(agent)).await;
    let connect = json!({"agent_id": agent["id"], "transport": "websocket"});
    let (status, session) = test
        .call("POST", "/conversation/connect", Some(connect))
        .await;
    assert!(status.is_success(), "{session}");
    let sweepers = [
        tokio::spawn(run_sweeper(test.app.clone())),
        tokio::spawn(crate::sessions::run_sweeper(test.app.clone())),
    ];
    // The bucket has been asked, and has not answered.
    tokio::time::sleep(Duration::from_millis(500)).await;
    test.app.clock.advance(Duration::from_secs(3600));
    let path = format!("/calls/{}", session["session_id"].as_str().unwrap());
    let swept = async {
        loop {
            let (_, call) = test.call("GET", &path, None).await;
            if call["status"] == "canceled" {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(6), swept).await;
    assert!(in_time.is_ok(), "the session is still there");
    sweepers.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn a_sweep_ends_where_the_store_does_not_answer() {
    let (test, asked) = hanging().await;
    for _ in 0..3 {
        let id = recording(&test).await;
        let mut tx = test.app.db.begin_write().await.unwrap();
        let deleted = store::delete(&mut tx, test.account, id, test.app.clock.now()).await;
        assert!(deleted.unwrap());
        tx.commit().await.unwrap();
    }
    sweep(&test.app).await.unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    let left: Vec<Value> = test
        .app
        .db
        .query("select storage_key from recordings where storage_key is not null")
        .all(|row| row.text("storage_key").map(Value::from))
        .await
        .unwrap();
    assert_eq!(left.len(), 3, "they wait for the next sweep");
}
