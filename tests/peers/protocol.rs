//! What is the same in driving a browser, whichever it is: its process, the socket of its debugging protocol, and commands
//! over that which are answered while events come between.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

/// Browsers at a time: each has several processes, and what is heard must not stumble.
pub(super) static TURNS: Semaphore = Semaphore::const_new(2);

/// A program that is ended with this.
pub(super) struct Program(Child);

impl Program {
    pub(super) fn start(name: &str, command: &mut Command) -> Self {
        let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = quiet.spawn();
        Self(child.unwrap_or_else(|error| panic!("{name} does not start: {error}")))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Waits until there is what a program that starts makes.
pub(super) async fn appears<T>(
    what: &str,
    within: Duration,
    mut look: impl FnMut() -> Option<T>,
) -> T {
    let until = Instant::now() + within;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "no {what} within {within:?}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// The socket of a browser's debugging protocol.
pub(super) struct Commands {
    browser: &'static str,
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    next: u64,
}

impl Commands {
    pub(super) async fn connect(browser: &'static str, address: &str) -> Self {
        // A screenshot is one message.
        let config = WebSocketConfig::default()
            .max_message_size(Some(64 << 20))
            .max_frame_size(Some(64 << 20));
        let connected =
            tokio_tungstenite::connect_async_with_config(address, Some(config), false).await;
        Self {
            browser,
            socket: connected.unwrap().0,
            next: 0,
        }
    }

    /// Sends one command; its answer. `event` is told what comes before that.
    pub(super) async fn ask(&mut self, mut command: Value, mut event: impl FnMut(&Value)) -> Value {
        self.next += 1;
        command["id"] = json!(self.next);
        self.socket
            .send(Message::text(command.to_string()))
            .await
            .unwrap();
        loop {
            let next = timeout(Duration::from_secs(30), self.socket.next()).await;
            let message = next
                .unwrap_or_else(|_| {
                    panic!("{} does not answer {}", self.browser, command["method"])
                })
                .unwrap()
                .unwrap();
            let text = message.to_text().unwrap_or_default();
            let Ok(told) = serde_json::from_str::<Value>(text) else {
                continue;
            };
            if told["id"] == self.next {
                return told;
            }
            event(&told);
        }
    }
}
