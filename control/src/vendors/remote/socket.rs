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
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
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

/// Whether a server that closes the socket says why: in words, or by a code that is none of an orderly end.
pub(super) fn says_why(frame: &CloseFrame) -> bool {
    !frame.reason.is_empty() || !matches!(frame.code, CloseCode::Normal | CloseCode::Away)
}

/// Why a server closed the socket, in its own words where it has some.
pub(super) fn closed(frame: Option<&CloseFrame>) -> Fault {
    let Some(frame) = frame.filter(|frame| says_why(frame)) else {
        return Fault::Broken("the socket closed".to_owned());
    };
    let code = u16::from(frame.code);
    let reason = complaint::line(&frame.reason);
    let reason = match reason.as_str() {
        "" => meaning(code),
        reason => reason,
    };
    Fault::Broken(format!("the socket closed ({code}): {reason}"))
}

/// What a code means (RFC 6455 section 7.4.1).
const fn meaning(code: u16) -> &'static str {
    match code {
        1002 => "protocol error",
        1003 => "it does not take such data",
        1007 => "wrong data",
        1008 => "policy violation",
        1009 => "too big a message",
        1011 => "an error of the server",
        1012 => "the server restarts",
        1013 => "try again later",
        _ => "no reason given",
    }
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
    fn why_a_socket_was_closed_is_told() {
        let told = |code: u16, reason: &str| {
            let (code, reason) = (code.into(), reason.to_owned().into());
            match closed(Some(&CloseFrame { code, reason })) {
                Fault::Broken(why) => why,
                other => unreachable!("{other:?}"),
            }
        };
        for (code, reason, why) in [
            (
                1008,
                "quota_exceeded",
                "the socket closed (1008): quota_exceeded",
            ),
            (1000, "idle", "the socket closed (1000): idle"),
            (1008, "", "the socket closed (1008): policy violation"),
            (4001, "", "the socket closed (4001): no reason given"),
            (1000, "", "the socket closed"),
        ] {
            assert_eq!(told(code, reason), why);
        }
        assert_eq!(closed(None), Fault::Broken("the socket closed".to_owned()));
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
