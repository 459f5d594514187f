//! What is in the spool after something went wrong, and what a sweep makes of it.

#![allow(clippy::unwrap_used, reason = "a test may stop at a surprise")]

use std::path::PathBuf;
use std::time::Instant;

use http::StatusCode;
use serde_json::json;

use super::*;
use crate::ids::RecordingId;
use crate::testing::TestApp;
use crate::time::Clock;

/// Everything that a call may have in the spool.
const ALL: [&str; 6] = [
    "caller.pcm",
    "agent.pcm",
    "tape",
    "wav.part",
    "broken",
    "wav",
];

/// A call, and where its recording stands.
#[derive(Clone, Copy)]
struct Case {
    /// How it ended, if it did.
    reason: Option<&'static str>,
    recording: Option<&'static str>,
    deleted: bool,
}

const OVER: Case = Case {
    reason: Some("caller_hangup"),
    recording: None,
    deleted: false,
};

async fn call(test: &TestApp, case: Case) -> CallId {
    let (app, now) = (&test.app, test.app.clock.now());
    let mut tx = app.db.begin_write().await.unwrap();
    let (call, agent) = test.insert_call(&mut tx).await;
    if let Some(reason) = case.reason {
        tx.query(
            "update calls set status = 'failed', end_reason = $1, ended_at = $2 where id = $3",
        )
        .bind(reason)
        .bind(now)
        .bind(call)
        .execute()
        .await
        .unwrap();
    }
    if let Some(status) = case.recording {
        let id = RecordingId::new(&app.clock);
        store::insert(&mut tx, test.account, id, call, agent, "local", now)
            .await
            .unwrap();
        tx.query("update recordings set status = $1, deleted_at = $2 where id = $3")
            .bind(status)
            .bind(case.deleted.then_some(now))
            .bind(id)
            .execute()
            .await
            .unwrap();
    }
    tx.commit().await.unwrap();
    call
}

fn file(test: &TestApp, call: CallId, ending: &str) -> PathBuf {
    spool_dir(&test.app.config).join(format!("{call}.{ending}"))
}

/// A second of sound on either side, or whatever.
fn leave(test: &TestApp, call: CallId, endings: &[&str]) {
    for ending in endings {
        let content = match ending.strip_suffix(".pcm") {
            Some(_) => vec![1; 32_000],
            None => b"words".to_vec(),
        };
        std::fs::write(file(test, call, ending), content).unwrap();
    }
}

/// How many files the spool has of a call.
fn left(test: &TestApp, call: CallId) -> usize {
    let there = |ending: &&&str| file(test, call, ending).exists();
    ALL.iter().filter(there).count()
}

/// Sweeps, and waits until all that was to be stored is.
async fn swept(test: &TestApp, call: CallId) {
    Sweeper::default().sweep(&test.app).await.unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    while test.app.live.has(call) {
        assert!(Instant::now() < until, "it is being stored for ever");
        tokio::task::yield_now().await;
    }
}

/// The objects of a call: whole, in part, and its tape.
async fn stored(test: &TestApp, call: CallId) -> [bool; 3] {
    let keys = [
        ObjectKey::recording(test.account, call),
        ObjectKey::partial(test.account, call),
        ObjectKey::tape(test.account, call),
    ];
    let mut found = [false; 3];
    for (found, key) in found.iter_mut().zip(keys) {
        *found = test.app.storage.length(&key).await.is_ok();
    }
    found
}

async fn shown(test: &TestApp, call: CallId) -> serde_json::Value {
    test.call("GET", &format!("/calls/{call}"), None).await.1
}

#[tokio::test]
async fn what_belongs_to_nothing_any_more_goes_and_nothing_else_does() {
    let test = TestApp::new().await;
    let settled = |status, deleted| Case {
        recording: Some(status),
        deleted,
        ..OVER
    };
    let mut gone = Vec::new();
    for case in [
        settled("ready", false),
        settled("failed", false),
        settled("failed", true),
        settled("uploading", true),
    ] {
        gone.push(call(&test, case).await);
    }
    let open = Case {
        reason: None,
        ..OVER
    };
    let open = call(&test, open).await;
    let carried = call(&test, OVER).await;
    assert!(test.app.live.begin_keeping(carried));
    for call in gone.iter().chain([&open, &carried]) {
        leave(&test, *call, &ALL);
    }
    let ballast = spool_dir(&test.app.config).join("ballast");
    std::fs::write(&ballast, "an operator's own").unwrap();

    let mut sweeper = Sweeper::default();
    assert!(!sweeper.sweep(&test.app).await.unwrap());
    for call in gone {
        assert_eq!(left(&test, call), 0);
        assert_eq!(stored(&test, call).await, [false; 3]);
    }
    for call in [open, carried] {
        assert_eq!(left(&test, call), ALL.len());
    }
    assert!(ballast.exists());
}

#[tokio::test]
async fn one_sweep_looks_at_so_many_calls_and_the_next_at_those_behind() {
    let test = TestApp::new().await;
    for _ in 0..CALLS + 3 {
        leave(&test, CallId::new(&test.app.clock), &["tape"]);
    }
    let mut sweeper = Sweeper::default();
    assert!(sweeper.sweep(&test.app).await.unwrap());
    assert_eq!(sweeper.announced.len(), CALLS);
    assert!(!sweeper.sweep(&test.app).await.unwrap());
    assert_eq!(sweeper.announced.len(), CALLS + 3);
    test.app.clock.advance(STRANGE_FOR);
    assert!(sweeper.sweep(&test.app).await.unwrap());
    assert_eq!(spooled(&test.app).await.unwrap().len(), 3);
    assert!(!sweeper.sweep(&test.app).await.unwrap());
    assert_eq!(spooled(&test.app).await.unwrap().len(), 0);
}

#[tokio::test]
async fn files_of_a_call_that_the_database_does_not_know_stay_for_a_day() {
    let test = TestApp::new().await;
    let second = Duration::from_secs(1);
    // Whenever the call was: a node may have been off for a week, its clock may have been set back, and the id may be of
    // another making.
    let now = test.app.clock.now();
    let strangers = [now.minus(7 * STRANGE_FOR), now, now.plus(7 * STRANGE_FOR)];
    let [old, new, ahead] = strangers.map(|made| CallId::new(&Clock::fixed(made)));
    let other = CallId(uuid::Uuid::new_v4());
    let open = Case {
        reason: None,
        ..OVER
    };
    let known = call(&test, open).await;
    let all = [old, new, ahead, other, known];
    for call in all {
        leave(&test, call, &ALL);
    }
    let whole = ALL.len();
    let mut sweeper = Sweeper::default();
    for wait in [
        Duration::ZERO,
        second,
        STRANGE_FOR.checked_sub(2 * second).unwrap(),
    ] {
        test.app.clock.advance(wait);
        assert!(!sweeper.sweep(&test.app).await.unwrap());
        assert_eq!(all.map(|call| left(&test, call)), [whole; 5], "{wait:?}");
        assert_eq!(sweeper.announced.len(), 4);
    }
    // A process that has said nothing yet removes nothing.
    test.app.clock.advance(second);
    assert!(!Sweeper::default().sweep(&test.app).await.unwrap());
    assert_eq!(all.map(|call| left(&test, call)), [whole; 5]);
    assert!(!sweeper.sweep(&test.app).await.unwrap());
    assert_eq!(all.map(|call| left(&test, call)), [0, 0, 0, 0, whole]);
    // What was said is forgotten with the files.
    assert!(!sweeper.sweep(&test.app).await.unwrap());
    assert!(sweeper.announced.is_empty());
}

/// A start with the database of another installation, and one with the right one again.
#[tokio::test]
async fn a_start_with_the_wrong_database_loses_no_recording() {
    let test = TestApp::new().await;
    let uploading = Case {
        recording: Some("uploading"),
        ..OVER
    };
    let call = call(&test, uploading).await;
    leave(&test, call, &["tape", "caller.pcm", "agent.pcm"]);
    let rename = async |sql: &'static str| test.app.db.query(sql).execute().await.unwrap();
    rename("alter table calls rename to right_calls").await;
    rename("create table calls as select * from right_calls limit 0").await;
    Sweeper::default().sweep(&test.app).await.unwrap();
    assert_eq!(left(&test, call), 3);
    rename("drop table calls").await;
    rename("alter table right_calls rename to calls").await;
    swept(&test, call).await;
    assert_eq!(left(&test, call), 0);
    assert_eq!(stored(&test, call).await, [true, false, true]);
}

#[tokio::test]
async fn a_tape_alone_is_kept_for_its_days_and_sound_beside_it_is_not() {
    for days in [7, 0] {
        let test = TestApp::with(|config| config.recordings.unrecorded_tape_days = days).await;
        let call = call(&test, OVER).await;
        leave(&test, call, &["tape", "caller.pcm", "wav.part"]);
        swept(&test, call).await;
        assert_eq!(left(&test, call), 0);
        assert_eq!(stored(&test, call).await, [false, false, days > 0]);
        // Once it is old, it goes like any other.
        test.app.clock.advance(Duration::from_secs(8 * 86_400));
        service::sweep(&test.app).await.unwrap();
        assert_eq!(stored(&test, call).await, [false; 3]);
    }
}

#[tokio::test]
async fn a_tape_that_cannot_be_written_down_is_tried_again() {
    let test = TestApp::new().await;
    let call = call(&test, OVER).await;
    leave(&test, call, &["tape"]);
    let tape = file(&test, call, "tape");
    let rename = async |sql: &'static str| test.app.db.query(sql).execute().await.unwrap();
    rename("alter table tapes rename to elsewhere").await;
    let kept = keep_tape_alone(&test.app, test.account, call, &tape).await;
    assert!(kept.is_err() && tape.exists());
    rename("alter table elsewhere rename to tapes").await;
    keep_tape_alone(&test.app, test.account, call, &tape)
        .await
        .unwrap();
    assert_eq!(left(&test, call), 0);
    assert_eq!(stored(&test, call).await, [false, false, true]);
}

#[tokio::test]
async fn what_was_still_to_be_stored_is() {
    let test = TestApp::new().await;
    let uploading = Case {
        recording: Some("uploading"),
        ..OVER
    };
    let lost = Case {
        reason: Some("node_lost"),
        ..OVER
    };
    for case in [uploading, lost] {
        let call = call(&test, case).await;
        leave(&test, call, &["tape", "caller.pcm", "agent.pcm"]);
        swept(&test, call).await;
        assert_eq!(left(&test, call), 0);
        assert_eq!(stored(&test, call).await, [true, false, true]);
        assert_eq!(shown(&test, call).await["has_recording"], true);
    }
}

#[tokio::test]
async fn a_recording_that_reached_the_store_before_its_process_died_is_ready() {
    let test = TestApp::new().await;
    let uploading = Case {
        recording: Some("uploading"),
        ..OVER
    };
    let there = call(&test, uploading).await;
    leave(&test, there, &["tape"]);
    let wav = [vec![0; 44], vec![1; 64_000]].concat();
    let made = test.app.config.server.data_dir.join("made.wav");
    std::fs::write(&made, &wav).unwrap();
    let key = ObjectKey::recording(test.account, there);
    test.app.storage.take_file(&key, &made).await.unwrap();
    let nowhere = call(&test, uploading).await;
    leave(&test, nowhere, &["tape", "broken"]);
    swept(&test, there).await;
    swept(&test, nowhere).await;
    let (_, list) = test.call("GET", "/recordings", None).await;
    let of = |call: CallId| {
        let items = list["items"].as_array().unwrap();
        let found = items.iter().find(|one| one["call_id"] == json!(call));
        found.unwrap().clone()
    };
    let ready = of(there);
    assert_eq!(
        (
            &ready["status"],
            &ready["duration_seconds"],
            &ready["size_bytes"]
        ),
        (&json!("ready"), &json!(1.0), &json!(64_044))
    );
    let sha256: String = crate::secret::sha256(&wav)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(ready["sha256"], sha256);
    assert_eq!(of(nowhere)["status"], "failed");
    for call in [there, nowhere] {
        assert_eq!(left(&test, call), 0);
    }
}

#[tokio::test]
async fn a_call_without_sound_leaves_nothing() {
    let test = TestApp::new().await;
    let uploading = Case {
        recording: Some("uploading"),
        ..OVER
    };
    let call = call(&test, uploading).await;
    leave(&test, call, &["tape", "wav"]);
    let silent = RecordedFile {
        path: file(&test, call, "wav"),
        tape_path: file(&test, call, "tape"),
        samples: 0,
        bytes: 44,
        sha256: "0".repeat(64),
        gap_ms: 0,
        broken: None,
    };
    keep(&test.app, test.account, call, &silent).await.unwrap();
    assert_eq!(left(&test, call), 0);
    assert_eq!(stored(&test, call).await, [false; 3]);
    assert_eq!(shown(&test, call).await["has_recording"], false);
}

/// Whatever the recording came to, and wherever something of it lies.
#[tokio::test]
async fn a_deleted_recording_leaves_nothing_in_the_spool_and_nothing_in_the_store() {
    let test = TestApp::new().await;
    for status in ["ready", "failed", "uploading"] {
        let case = Case {
            recording: Some(status),
            ..OVER
        };
        let call = call(&test, case).await;
        leave(&test, call, &ALL);
        let keys = [
            ObjectKey::recording(test.account, call),
            ObjectKey::partial(test.account, call),
            ObjectKey::tape(test.account, call),
        ];
        for key in &keys {
            let made = test.app.config.server.data_dir.join("made");
            std::fs::write(&made, "sound").unwrap();
            test.app.storage.take_file(key, &made).await.unwrap();
        }
        assert_eq!(stored(&test, call).await, [true; 3]);
        let standing = store::standing(&test.app.db, test.account, call).await;
        let path = format!("/recordings/{}", standing.unwrap().unwrap().id);
        let (answer, _) = test.call("DELETE", &path, None).await;
        assert_eq!(answer, StatusCode::NO_CONTENT);
        assert_eq!(left(&test, call), 0, "{status}");
        assert_eq!(stored(&test, call).await, [false; 3], "{status}");
    }
}
