//! A store that hangs, and what goes on all the same.

#![allow(clippy::unwrap_used, reason = "a test may stop at a surprise")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use http::StatusCode;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::*;
use crate::recordings::spool::spool_dir;
use crate::testing::TestApp;

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
    let id = RecordingId::new(&app.clock);
    let mut tx = app.db.begin_write().await.unwrap();
    let (call, agent) = test.insert_call(&mut tx).await;
    tx.query(
        "insert into recordings (id, account_id, call_id, agent_id, status, sample_rate, region, storage_key,
            created_at, updated_at)
         values ($1, $2, $3, $4, 'ready', 8000, 'local', $5, $6, $6)",
    )
    .bind(id)
    .bind(test.account)
    .bind(call)
    .bind(agent)
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
        tokio::spawn(run_sweeper(test.app.node.clone())),
        tokio::spawn(crate::sessions::run_sweeper(test.app.node.clone())),
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
        assert!(deleted.unwrap().is_some());
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

/// A call with a recording in this status, or with none; and its file, which lies in the spool.
async fn recorded(test: &TestApp, status: Option<&str>) -> (CallId, RecordedFile) {
    let (app, now) = (&test.app, test.app.clock.now());
    let mut tx = app.db.begin_write().await.unwrap();
    let (call, agent) = test.insert_call(&mut tx).await;
    if let Some(status) = status {
        let id = RecordingId::new(&app.clock);
        store::insert(&mut tx, test.account, id, call, agent, "local", now)
            .await
            .unwrap();
        tx.query("update recordings set status = $1 where id = $2")
            .bind(status)
            .bind(id)
            .execute()
            .await
            .unwrap();
    } else {
        tx.query("update calls set status = 'failed', end_reason = 'node_lost' where id = $1")
            .bind(call)
            .execute()
            .await
            .unwrap();
    }
    tx.commit().await.unwrap();
    let folder = spool_dir(&app.config);
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join(format!("{call}.wav"));
    std::fs::write(&path, b"a file of sound").unwrap();
    let file = RecordedFile {
        tape_path: folder.join(format!("{call}.tape")),
        path,
        samples: 16_000,
        bytes: 15,
        sha256: "0".repeat(64),
        gap_ms: 0,
        broken: None,
    };
    (call, file)
}

/// What the store has of a call's recording.
async fn stored(test: &TestApp, call: CallId) -> bool {
    let key = ObjectKey::recording(test.account, call);
    test.app.storage.length(&key).await.is_ok()
}

#[tokio::test]
async fn a_recording_that_is_kept_twice_is_there_and_told_of_once() {
    let test = TestApp::new().await;
    let (call, file) = recorded(&test, Some("uploading")).await;
    for _ in 0..2 {
        keep(&test.app, test.account, call, &file).await.unwrap();
        assert!(stored(&test, call).await);
    }
    let standing = store::standing(&test.app.db, test.account, call).await;
    let standing = standing.unwrap().unwrap();
    assert_eq!(standing.key, Some(ObjectKey::recording(test.account, call)));
    let (_, call) = test.call("GET", &format!("/calls/{call}"), None).await;
    assert_eq!(call["has_recording"], true, "{call}");
}

#[tokio::test]
async fn a_recording_comes_late_when_its_call_was_ended_as_lost() {
    let test = TestApp::new().await;
    let (call, file) = recorded(&test, None).await;
    keep(&test.app, test.account, call, &file).await.unwrap();
    assert!(stored(&test, call).await);
    let (_, shown) = test.call("GET", &format!("/calls/{call}"), None).await;
    assert_eq!(shown["has_recording"], true, "{shown}");
}

#[tokio::test]
async fn of_a_recording_that_was_deleted_on_its_way_nothing_stays() {
    let test = TestApp::new().await;
    let (call, file) = recorded(&test, Some("uploading")).await;
    let standing = store::standing(&test.app.db, test.account, call).await;
    let path = format!("/recordings/{}", standing.unwrap().unwrap().id);
    assert_eq!(
        test.call("DELETE", &path, None).await.0,
        StatusCode::NO_CONTENT
    );
    keep(&test.app, test.account, call, &file).await.unwrap();
    assert!(!stored(&test, call).await);
    // Also when the store was away at that moment: the sweeper is told where it lies.
    let key = ObjectKey::recording(test.account, call);
    let id = store::standing(&test.app.db, test.account, call).await;
    let id = id.unwrap().unwrap().id;
    let kept = Kept {
        samples: 1,
        size_bytes: 1,
        sha256: "",
        key: &key,
        tape_key: None,
    };
    store::came_late(&test.app.db, test.account, id, &kept)
        .await
        .unwrap();
    let left = store::leftover(&test.app.db, id).await.unwrap().unwrap();
    assert!(left.keys.contains(&key));
}
