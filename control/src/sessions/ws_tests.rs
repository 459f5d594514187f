//! A call that breaks in the midst, and one beside it, over their sockets.

#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_tungstenite::client_async;

use super::*;
use crate::http::serve::{Patience, serve};
use crate::supervisor::faults;
use crate::testing::TestApp;
use crate::vendors::scripted::PANIC;

/// No step of a test takes this long.
const LONG: Duration = Duration::from_secs(20);

/// The caller's end of a socket.
struct Caller {
    socket: WebSocketStream<tokio::net::TcpStream>,
    session: String,
}

impl Caller {
    async fn join(test: &TestApp, address: SocketAddr, agent: &Value) -> Self {
        let body = json!({"agent_id": agent["id"], "transport": "websocket"});
        let (status, session) = test.call("POST", "/conversation/connect", Some(body)).await;
        assert_eq!(status, StatusCode::OK, "{session}");
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let url = session["ws_url"].as_str().unwrap();
        Self {
            socket: client_async(url, stream).await.unwrap().0,
            session: session["session_id"].as_str().unwrap().to_owned(),
        }
    }

    async fn send(&mut self, frame: Value) {
        let text = Message::text(frame.to_string());
        self.socket.send(text).await.unwrap();
    }

    /// The next frame that is no audio, or the code of the close.
    async fn next(&mut self) -> Result<Value, u16> {
        loop {
            match timeout(LONG, self.socket.next()).await.unwrap() {
                Some(Ok(Message::Text(text))) => {
                    let frame: Value = serde_json::from_str(&text).unwrap();
                    if frame["type"] != "audio" {
                        return Ok(frame);
                    }
                }
                Some(Ok(Message::Close(frame))) => {
                    return Err(frame.map_or(1005, |frame| frame.code.into()));
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Err(1006),
            }
        }
    }

    /// Has the agent repeat these words.
    async fn hear(&mut self, words: &str) {
        self.send(json!({"type": "user_message", "text": words}))
            .await;
        loop {
            let frame = self.next().await.unwrap();
            if frame["type"] == "agent_response" && frame["text"] == words {
                return;
            }
        }
    }

    /// All that still comes, and the code of the close.
    async fn until_closed(&mut self) -> (Vec<Value>, u16) {
        let mut frames = Vec::new();
        loop {
            match self.next().await {
                Ok(frame) => frames.push(frame),
                Err(code) => return (frames, code),
            }
        }
    }
}

#[tokio::test]
async fn a_panic_ends_its_call_as_failed_and_no_other() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let test = TestApp::with(|config| {
        config.server.public_url = format!("http://{address}");
    })
    .await;
    let (_stop, stopped) = watch::channel(false);
    let (router, settings) = (test.router.clone(), test.app.config.server.clone());
    tokio::spawn(async move {
        serve(listener, router, &settings, Patience::default(), stopped).await;
    });
    let agent = json!({
        "name": "Echo", "system_prompt": "Repeat.", "voice_id": "scripted-tone",
        "llm_model": "echo", "first_message": null
    });
    let (_, agent) = test.call("POST", "/agents", Some(agent)).await;
    let mut neighbour = Caller::join(&test, address, &agent).await;
    neighbour.hear("Are you there?").await;

    let mut broken = Caller::join(&test, address, &agent).await;
    broken.hear("Hello.").await;
    let words = json!({"type": "user_message", "text": format!("A {PANIC}.")});
    broken.send(words).await;
    let (told, code) = broken.until_closed().await;
    assert_eq!(code, 1011, "{told:?}");
    let [.., error, over] = &told[..] else {
        unreachable!("closed without a word")
    };
    assert_eq!(
        (&error["type"], &error["code"]),
        (&json!("error"), &json!("engine_error"))
    );
    assert_eq!(
        (&over["type"], &over["reason"], &over["status"]),
        (
            &json!("call_ended"),
            &json!("engine_error"),
            &json!("failed")
        )
    );
    let written = async {
        loop {
            let path = format!("/calls/{}", broken.session);
            let (_, call) = test.call("GET", &path, None).await;
            if !call["ended_at"].is_null() {
                return call;
            }
            tokio::task::yield_now().await;
        }
    };
    let call = timeout(LONG, written).await.unwrap();
    assert_eq!(
        (&call["status"], &call["end_reason"], &call["ended_by"]),
        (&json!("failed"), &json!("engine_error"), &json!("system"))
    );

    neighbour.hear("Still here?").await;
    neighbour.send(json!({"type": "end"})).await;
    assert_eq!(neighbour.until_closed().await.1, 1000);
    assert!(test.app.live.drained(LONG).await);
    assert_eq!(test.app.engine.counters().panics, 1);
    assert_eq!(spooled(&test), 0);
}

/// As the disk has it: sound, tape and what else a call leaves there.
fn spooled(test: &TestApp) -> usize {
    let folder = crate::calls::spool_dir(&test.app.config);
    std::fs::read_dir(folder).unwrap().count()
}

#[tokio::test]
async fn a_panic_of_a_calls_writer_ends_the_call_once_and_its_recording_is_kept() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let test = TestApp::with(|config| {
        config.server.public_url = format!("http://{address}");
    })
    .await;
    let (_stop, stopped) = watch::channel(false);
    let (router, settings) = (test.router.clone(), test.app.config.server.clone());
    tokio::spawn(async move {
        serve(listener, router, &settings, Patience::default(), stopped).await;
    });
    let agent = json!({
        "name": "Echo", "system_prompt": "Repeat.", "voice_id": "scripted-tone",
        "llm_model": "echo", "first_message": null, "recording_enabled": true
    });
    let (_, agent) = test.call("POST", "/agents", Some(agent)).await;
    // Once, and again over what comes after the first time.
    for times in [1, 2] {
        let mut caller = Caller::join(&test, address, &agent).await;
        caller.hear("Are you there?").await;
        for _ in 0..times {
            faults::arm("a call's writer", &caller.session);
        }
        caller
            .send(json!({"type": "user_message", "text": "Hello."}))
            .await;
        let (told, code) = caller.until_closed().await;
        assert_eq!(code, 1011, "{told:?}");
        assert!(test.app.live.drained(LONG).await);
        let path = format!("/calls/{}", caller.session);
        let (_, call) = test.call("GET", &path, None).await;
        assert_eq!(
            (&call["status"], &call["end_reason"], &call["ended_by"]),
            (&json!("failed"), &json!("engine_error"), &json!("system"))
        );
        assert_eq!(call["has_recording"], times == 1, "{call}");
        let told = test.app.db.query(
            "select count(*) as told from events where type = 'call.ended' and call_id = $1",
        );
        let told = told.bind(caller.session.as_str());
        assert_eq!(told.one(|row| row.i64("told")).await.unwrap(), 1);
        let counts = test.app.admission.counts().await.unwrap();
        assert_eq!((counts.live, counts.pending), (0, 0));
        // What the second panic lost is found by the next sweep.
        let swept = async {
            loop {
                let mut sweeper = crate::recordings::spool::Sweeper::default();
                sweeper.sweep(&test.app).await.unwrap();
                let (_, call) = test.call("GET", &path, None).await;
                if spooled(&test) == 0 && call["has_recording"] == true {
                    return;
                }
            }
        };
        timeout(LONG, swept).await.unwrap();
    }
}
