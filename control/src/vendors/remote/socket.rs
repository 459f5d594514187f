//! WebSockets to providers: where, with which key, and how long until they are given up.

use std::time::Duration;

use futures_util::SinkExt;
use reqwest::Url;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::{HeaderName, HeaderValue, Response};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::protocol::frame::CloseFrame;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};

use super::blame::Blame;
use super::complaint::{self, Complaint};
use super::plan::Fault;

pub(super) type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// A connection is made within this or not at all.
const CONNECT: Duration = Duration::from_millis(2_000);

/// A message leaves within this, or the connection is as good as lost.
const SEND: Duration = Duration::from_millis(1_000);

/// The longest message of a provider, bytes: some seconds of sound in base64.
const LONGEST: usize = 4 << 20;

/// An address of a provider under its base URL: `path` and `query` (name, value), as a WebSocket.
pub(super) fn address(base: &Url, path: &str, query: &[(&str, &str)]) -> Url {
    let mut url = base.clone();
    let scheme = match base.scheme() {
        "http" | "ws" => "ws",
        _ => "wss",
    };
    // Both are special schemes, between which a URL may change.
    let changed = url.set_scheme(scheme);
    debug_assert!(changed.is_ok(), "{url}");
    let joined = format!("{}/{path}", base.path().trim_end_matches('/'));
    url.set_path(&joined);
    url.query_pairs_mut().clear().extend_pairs(query);
    url
}

/// Opens a socket with this header.
pub(super) async fn connect(
    provider: &Blame,
    url: &Url,
    header: Option<(&str, String)>,
) -> Result<Socket, Fault> {
    let wrong = |error: &dyn std::fmt::Display| Fault::Wrong(error.to_string());
    let mut request = url.as_str().into_client_request().map_err(|e| wrong(&e))?;
    if let Some((name, value)) = header {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|e| wrong(&e))?;
        let mut value = HeaderValue::from_str(&value).map_err(|e| wrong(&e))?;
        value.set_sensitive(true);
        request.headers_mut().insert(name, value);
    }
    let config = WebSocketConfig::default()
        .max_message_size(Some(LONGEST))
        .max_frame_size(Some(LONGEST));
    // Small messages must not wait for each other.
    let opening = connect_async_with_config(request, Some(config), true);
    match timeout(CONNECT, opening).await {
        Err(_) => Err(Fault::Stalled(CONNECT)),
        Ok(Ok((socket, response))) => {
            provider.answered(response.headers());
            Ok(socket)
        }
        Ok(Err(Error::Http(response))) => {
            provider.answered(response.headers());
            let status = response.status();
            let words = refusal(&response);
            if status.is_server_error() || status.as_u16() == 429 {
                Err(Fault::Busy {
                    status: status.as_u16(),
                    after: None,
                    words,
                })
            } else {
                Err(Fault::Refused {
                    status: status.as_u16(),
                    words,
                })
            }
        }
        Ok(Err(error)) => Err(Fault::Broken(complaint::line(&error.to_string()))),
    }
}

/// What a server says that opens no socket: in the body, else in a header (Deepgram's).
fn refusal(response: &Response<Option<Vec<u8>>>) -> Complaint {
    let body = response.body().as_deref().unwrap_or_default();
    let header = response.headers().get("dg-error");
    let header = header.and_then(|value| value.to_str().ok());
    match (String::from_utf8_lossy(body).trim(), header) {
        ("", None) => Complaint {
            code: None,
            message: "the socket is refused".to_owned(),
        },
        ("", Some(words)) => Complaint {
            code: None,
            message: complaint::line(words),
        },
        (words, _) => complaint::read(words),
    }
}

/// Why a server closed the socket, in its own words where it has some.
pub(super) fn closed(frame: Option<&CloseFrame>) -> Fault {
    let said = frame.filter(|frame| !frame.reason.is_empty());
    Fault::Broken(said.map_or_else(
        || "the socket closed".to_owned(),
        |frame| {
            let (code, reason) = (u16::from(frame.code), complaint::line(&frame.reason));
            format!("the socket closed ({code}): {reason}")
        },
    ))
}

/// Sends a message. `false`: the connection is lost.
pub(super) async fn send(socket: &mut Socket, message: Message) -> bool {
    matches!(timeout(SEND, socket.send(message)).await, Ok(Ok(())))
}

/// The pauses between tries to connect: at once, then longer and longer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The pause before the next try.
    pub(super) fn next(&mut self) -> Duration {
        let failures = self.failures;
        self.failures = failures.saturating_add(1);
        match failures {
            0 => Duration::ZERO,
            n => Duration::from_millis(100 << (n - 1).min(5)),
        }
    }

    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    #[test]
    fn an_address_keeps_the_base_and_takes_the_scheme_of_sockets() {
        let of = |base: &str| {
            let base = Url::parse(base).unwrap();
            address(&base, "v1/listen", &[("a", "b c"), ("d", "1")]).to_string()
        };
        assert_eq!(
            of("https://x.example"),
            "wss://x.example/v1/listen?a=b+c&d=1"
        );
        assert_eq!(
            of("http://127.0.0.1:9/base"),
            "ws://127.0.0.1:9/base/v1/listen?a=b+c&d=1"
        );
        assert_eq!(
            of("wss://x.example/"),
            "wss://x.example/v1/listen?a=b+c&d=1"
        );
    }

    #[test]
    fn the_first_try_is_made_at_once_and_none_waits_long() {
        let mut backoff = Backoff::default();
        let pauses: Vec<u128> = (0..9).map(|_| backoff.next().as_millis()).collect();
        assert_eq!(pauses, [0, 100, 200, 400, 800, 1600, 3200, 3200, 3200]);
        backoff.reset();
        assert_eq!(backoff.next(), Duration::ZERO);
    }
}
