//! The token in a telephony vendor's `start` message (`start.customParameters.token`), for set-ups in
//! which the stream's URL cannot carry it. What is read here is handed on to the media leg untouched.

use std::io::{self, Read, Write};
use std::time::Duration;

use serde_json::Value;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocket, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};

/// How long the vendor may take to say `start`; it does so right after the handshake.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most that may come before and with `start`: `connected` and `start` are below 2 KiB together.
const ROOM: usize = 16 * 1024;

/// Reads on until `start` is there and tells its token. All bytes read stand in `received`.
pub async fn wait(stream: &TcpStream, received: &mut Vec<u8>) -> Option<String> {
    let read = async {
        loop {
            if let Said::Start(token) = said(received) {
                return token;
            }
            stream.readable().await.ok()?;
            match stream.try_read_buf(received) {
                Ok(0) => return None,
                Ok(_) if received.len() > ROOM => return None,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return None,
            }
        }
    };
    tokio::time::timeout(PATIENCE, read).await.ok().flatten()
}

#[derive(Debug, PartialEq, Eq)]
enum Said {
    /// The `start` message, and the token in it.
    Start(Option<String>),
    /// Not yet.
    Nothing,
}

/// Looks for `start` among the frames received so far. The frames of a client are masked, and a
/// message may be cut into several, so a protocol machine reads them, from a copy.
fn said(received: &[u8]) -> Said {
    let config = WebSocketConfig::default().max_message_size(Some(ROOM));
    let mut socket = WebSocket::from_raw_socket(Received(received), Role::Server, Some(config));
    loop {
        match socket.read() {
            Ok(Message::Text(text)) => {
                let Ok(message) = serde_json::from_str::<Value>(&text) else {
                    continue;
                };
                if message["event"] == "start" {
                    let token = message["start"]["customParameters"]["token"].as_str();
                    return Said::Start(token.map(str::to_owned));
                }
            }
            Ok(Message::Close(_)) => return Said::Start(None),
            Ok(_) => {}
            // All that is there was read.
            Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                return Said::Nothing;
            }
            // No WebSocket frames: there will be no `start`.
            Err(_) => return Said::Start(None),
        }
    }
}

/// Received bytes as a connection that has nothing more for now, and that takes answers to nowhere.
struct Received<'a>(&'a [u8]);

impl Read for Received<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.0.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.0.read(into)
    }
}

impl Write for Received<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that fails should stop at once")]

    use super::*;

    /// What a client sends for these messages.
    fn sent(messages: &[&str]) -> Vec<u8> {
        let mut socket =
            WebSocket::from_raw_socket(io::Cursor::new(Vec::new()), Role::Client, None);
        for message in messages {
            socket.send(Message::text(*message)).unwrap();
        }
        socket.get_ref().get_ref().clone()
    }

    const CONNECTED: &str = r#"{"event":"connected","protocol":"Call","version":"1.0.0"}"#;
    const START: &str =
        r#"{"event":"start","streamSid":"MZ1","start":{"customParameters":{"token":"abc"}}}"#;

    #[test]
    fn the_token_is_found_once_start_is_whole() {
        let bytes = sent(&[CONNECTED, START]);
        for length in 0..bytes.len() {
            assert_eq!(said(&bytes[..length]), Said::Nothing, "{length} bytes");
        }
        assert_eq!(said(&bytes), Said::Start(Some("abc".to_owned())));
    }

    #[test]
    fn a_start_without_a_token_has_none() {
        assert_eq!(
            said(&sent(&[r#"{"event":"start","start":{}}"#])),
            Said::Start(None)
        );
        assert_eq!(said(&sent(&["no json", CONNECTED])), Said::Nothing);
        assert_eq!(said(b"GET / HTTP/1.1\r\n\r\n"), Said::Start(None));
    }
}
