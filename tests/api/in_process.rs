//! A server on a port of its own, and a caller on its socket.

use std::task::Poll;
use std::time::Duration;

use control::config::Config;
use control::http::serve::{self, Patience};
use control::testing::TestApp;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

/// No single step of a test on loopback takes longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Polls a request so many times and drops it, as the server does when the connection is closed: it asks no more, and
/// drops what it asked.
pub(crate) async fn abandoned(asking: impl Future, mut polls: u32) {
    let mut asking = Box::pin(asking);
    std::future::poll_fn(|context| {
        polls -= 1;
        match asking.as_mut().poll(context) {
            Poll::Pending if polls > 0 => Poll::Pending,
            _ => Poll::Ready(()),
        }
    })
    .await;
}

/// An application that listens.
pub(crate) struct Server {
    pub(crate) test: TestApp,
    stop: watch::Sender<bool>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    /// With settings changed.
    pub(crate) async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let test = kit::app::with(|config| {
            config.server.public_url = format!("http://{address}");
            config.limits.account_calls = 200;
            change(config);
        })
        .await;
        let (stop, stopped) = watch::channel(false);
        let (router, settings) = (test.router.clone(), test.app.config.server.clone());
        tokio::spawn(async move {
            serve::serve(listener, router, &settings, Patience::default(), stopped).await
        });
        Self { test, stop }
    }

    /// An agent that greets, speaks in tones and repeats what it hears. Its id.
    pub(crate) async fn agent(&self, more: Value) -> String {
        let mut body = json!({
            "name": "Echo",
            "system_prompt": "Repeat what you hear.",
            "voice_id": "scripted-tone",
            "llm_model": "echo",
            "first_message": "Hello and welcome."
        });
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let (status, agent) = self.test.call("POST", "/agents", Some(body)).await;
        assert_eq!(status, 201, "{agent}");
        agent["id"].as_str().unwrap().to_owned()
    }

    /// Opens a session. Its id and its `ws_url`.
    pub(crate) async fn connect(&self, agent: &str, more: Value) -> (String, String) {
        let mut body = json!({"agent_id": agent, "transport": "websocket"});
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let (status, answer) = self
            .test
            .call("POST", "/conversation/connect", Some(body))
            .await;
        assert_eq!(status, 200, "{answer}");
        (
            answer["session_id"].as_str().unwrap().to_owned(),
            answer["ws_url"].as_str().unwrap().to_owned(),
        )
    }

    /// Waits until everything about every call is written down.
    pub(crate) async fn settle(&self) {
        assert!(
            self.test.app.live.drained(PATIENCE).await,
            "a call was not written down in time"
        );
    }

    /// The bodies and states of a call's events of one type.
    pub(crate) async fn events(&self, call: &str, kind: &str) -> Vec<(Value, String)> {
        let all = self
            .test
            .app
            .db
            .query("select body, status from events where call_id = $1 and type = $2");
        all.bind(call)
            .bind(kind)
            .all(|row| Ok((row.json("body")?, row.text("status")?)))
            .await
            .unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

/// The caller's end of a socket.
pub(crate) struct Caller(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Caller {
    pub(crate) async fn join(ws_url: &str) -> Self {
        Self(tokio_tungstenite::connect_async(ws_url).await.unwrap().0)
    }

    pub(crate) async fn send(&mut self, frame: Value) {
        self.0.send(Message::text(frame.to_string())).await.unwrap();
    }

    /// The first frame.
    pub(crate) async fn first(&mut self) -> Value {
        match self.next().await {
            Heard::Frame(frame) => frame,
            Heard::Closed(code) => panic!("closed with {code} at once"),
        }
    }

    /// Reads on until a frame of this type comes.
    pub(crate) async fn until(&mut self, kind: &str) -> Value {
        loop {
            match self.next().await {
                Heard::Frame(frame) if frame["type"] == kind || frame["event"] == kind => {
                    return frame;
                }
                Heard::Frame(_) => {}
                Heard::Closed(code) => panic!("closed with {code} before a {kind} came"),
            }
        }
    }

    /// Reads on until the server closes: the last frame before it, and the code.
    pub(crate) async fn until_closed(&mut self) -> (Value, u16) {
        let mut last = Value::Null;
        loop {
            match self.next().await {
                Heard::Frame(frame) => last = frame,
                Heard::Closed(code) => return (last, code),
            }
        }
    }

    async fn next(&mut self) -> Heard {
        loop {
            let message = tokio::time::timeout(PATIENCE, self.0.next())
                .await
                .expect("the server went silent");
            match message {
                Some(Ok(Message::Text(text))) => {
                    return Heard::Frame(serde_json::from_str(&text).unwrap());
                }
                Some(Ok(Message::Close(frame))) => {
                    // Sends our half of the close, for which the server would wait a while.
                    let _ = self.0.flush().await;
                    return Heard::Closed(frame.map_or(1005, |frame| frame.code.into()));
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Heard::Closed(1006),
            }
        }
    }
}

enum Heard {
    Frame(Value),
    Closed(u16),
}
