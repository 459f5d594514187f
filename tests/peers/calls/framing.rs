//! WebSocket framing (RFC 6455) byte by byte, after the sections of the protocol's usual conformance
//! suite: framing, pings, reserved bits and codes, fragments, UTF-8, closing.

use std::time::Duration;

use kit::client::Client;
use kit::socket::native;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::stage;

const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;
const FIN: u8 = 0x80;

/// A message that the protocol knows and that has no answer.
const QUIET: &[u8] = b"{\"type\":\"pong\",\"event_id\":1}";

/// What a frame sequence leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The server closes with this code.
    Closed(u16),
    /// The server answers a close frame without a code.
    ClosedWithoutCode,
    /// The connection goes on, and a ping is answered.
    Open,
}

#[tokio::test]
async fn frames_are_taken_or_refused_as_the_rfc_says() {
    let _together = stage::together().await;
    let server = stage::server().await;
    let client = server.client();
    let agent = stage::agent(&client, serde_json::json!({"first_message": null})).await;
    let mut wrong = Vec::new();
    for (name, bytes, expected) in cases() {
        let mut line = Line::open(&client, &agent).await;
        line.send(&bytes).await;
        let end = line.end().await;
        if end != expected {
            wrong.push(format!("{name}: {end:?}, expected {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test]
async fn pings_are_answered_with_their_own_bytes_even_between_fragments() {
    let _together = stage::together().await;
    let server = stage::server().await;
    let client = server.client();
    let agent = stage::agent(&client, serde_json::json!({"first_message": null})).await;
    let mut line = Line::open(&client, &agent).await;
    for payload in [&b""[..], b"hello", &[0xff, 0xfe, 0], &[7; 125]] {
        line.send(&frame(FIN | PING, payload)).await;
        assert_eq!(line.pong().await.as_deref(), Some(payload));
    }
    // Unasked pongs are nothing.
    line.send(&frame(FIN | PONG, b"unasked")).await;
    line.send(&frame(TEXT, &QUIET[..9])).await;
    line.send(&frame(FIN | PING, b"between")).await;
    assert_eq!(line.pong().await.as_deref(), Some(&b"between"[..]));
    line.send(&frame(FIN, &QUIET[9..])).await;
    assert_eq!(line.end().await, End::Open);
    // Frames cut anywhere by TCP are the same frames.
    for byte in frame(FIN | PING, b"slowly") {
        line.send(&[byte]).await;
    }
    assert_eq!(line.pong().await.as_deref(), Some(&b"slowly"[..]));
}

/// Name, bytes, end.
fn cases() -> Vec<(String, Vec<u8>, End)> {
    let mut cases: Vec<(String, Vec<u8>, End)> = Vec::new();
    let mut add = |name: &str, parts: &[Vec<u8>], end| {
        cases.push((name.to_owned(), parts.concat(), end));
    };
    add("a message", &[frame(FIN | TEXT, QUIET)], End::Open);
    add(
        "a ping of 126 bytes",
        &[frame(FIN | PING, &[0; 126])],
        End::Closed(1002),
    );
    add(
        "a ping in fragments",
        &[frame(PING, b"a"), frame(FIN, b"b")],
        End::Closed(1002),
    );
    add(
        "an unmasked frame",
        &[vec![FIN | TEXT, 2, b'{', b'}']],
        End::Closed(1002),
    );
    for bit in [0x40, 0x20, 0x10] {
        add(
            &format!("reserved bit {bit:#x}"),
            &[frame(FIN | bit | TEXT, QUIET)],
            End::Closed(1002),
        );
    }
    for code in (3..8).chain(11..16) {
        add(
            &format!("operation code {code}"),
            &[frame(FIN | code, b"")],
            End::Closed(1002),
        );
    }
    add(
        "a continuation of nothing",
        &[frame(FIN, b"a")],
        End::Closed(1002),
    );
    add(
        "a second message within the first",
        &[frame(TEXT, b"{"), frame(FIN | TEXT, QUIET)],
        End::Closed(1002),
    );
    add(
        "a message in three",
        &[
            frame(TEXT, &QUIET[..5]),
            frame(0, &QUIET[5..9]),
            frame(FIN, &QUIET[9..]),
        ],
        End::Open,
    );
    add(
        "an empty fragment",
        &[frame(TEXT, b""), frame(0, b""), frame(FIN, QUIET)],
        End::Open,
    );
    for (name, bytes) in NO_UTF8 {
        add(name, &[frame(FIN | TEXT, bytes)], End::Closed(1007));
        let (a, b) = bytes.split_at(1);
        add(
            &format!("{name}, in fragments"),
            &[frame(TEXT, a), frame(FIN, b)],
            End::Closed(1007),
        );
    }
    let split = "{\"type\":\"pong\",\"note\":\"κόσμε 🎤\"}".as_bytes();
    for at in [23, 25, split.len() - 4] {
        add(
            "a character in two fragments",
            &[frame(TEXT, &split[..at]), frame(FIN, &split[at..])],
            End::Open,
        );
    }
    add(
        "no code",
        &[frame(FIN | CLOSE, b"")],
        End::ClosedWithoutCode,
    );
    add(
        "half a code",
        &[frame(FIN | CLOSE, &[3])],
        End::Closed(1002),
    );
    add(
        "a reason that is no UTF-8",
        &[frame(FIN | CLOSE, &[3, 0xe8, 0xce, 0xba, 0xe1])],
        End::Closed(1007),
    );
    add(
        "a reason of 123 bytes",
        &[frame(FIN | CLOSE, &[&[3, 0xe8][..], &[b'a'; 123]].concat())],
        End::Closed(1000),
    );
    add(
        "a reason of 124 bytes",
        &[frame(FIN | CLOSE, &[&[3, 0xe8][..], &[b'a'; 124]].concat())],
        End::Closed(1002),
    );
    add(
        "nothing counts after a close",
        &[close(1000), frame(FIN | 3, b""), frame(FIN | PING, b"")],
        End::Closed(1000),
    );
    for code in [
        1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999,
    ] {
        add(&format!("code {code}"), &[close(code)], End::Closed(code));
    }
    for code in [
        0, 999, 1004, 1005, 1006, 1016, 1100, 2000, 2999, 5000, 65535,
    ] {
        add(&format!("code {code}"), &[close(code)], End::Closed(1002));
    }
    // Bytes are no audio of this protocol: told, and forgiven.
    add(
        "a binary message",
        &[frame(FIN | BINARY, &[0; 640])],
        End::Open,
    );
    cases
}

/// Overlong forms, surrogates, beyond Unicode, cut short, and a stray continuation.
const NO_UTF8: [(&str, &[u8]); 6] = [
    ("an overlong slash", &[0xc0, 0xaf]),
    ("an overlong euro sign", &[0xf0, 0x82, 0x82, 0xac]),
    ("a surrogate", &[0xed, 0xa0, 0x80]),
    ("beyond Unicode", &[0xf4, 0x90, 0x80, 0x80]),
    ("half a character", &[0xce, 0xba, 0xe1, 0xbd]),
    ("a stray continuation", &[b'a', 0x80]),
];

fn close(code: u16) -> Vec<u8> {
    frame(FIN | CLOSE, &code.to_be_bytes())
}

/// A masked frame.
fn frame(head: u8, payload: &[u8]) -> Vec<u8> {
    const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];
    let mut bytes = vec![head];
    match payload.len() {
        short @ ..126 => bytes.push(0x80 | short as u8),
        long => {
            bytes.push(0x80 | 126);
            bytes.extend((long as u16).to_be_bytes());
        }
    }
    bytes.extend(MASK);
    bytes.extend(
        payload
            .iter()
            .zip(MASK.iter().cycle())
            .map(|(byte, mask)| byte ^ mask),
    );
    bytes
}

/// A connection whose frames are made by hand.
struct Line {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Line {
    async fn open(client: &Client, agent: &str) -> Self {
        let session = client.connect(&native(agent)).await;
        let url = session.text("ws_url");
        let rest = url.strip_prefix("ws://").expect("a plain socket");
        let (host, path) = rest.split_once('/').expect("a path");
        let mut stream = TcpStream::connect(host).await.unwrap();
        let request = format!(
            "GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut line = Self {
            stream,
            read: Vec::new(),
        };
        loop {
            if let Some(at) = line.read.windows(4).position(|four| four == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&line.read[..at]).to_lowercase();
                assert!(head.starts_with("http/1.1 101"), "{head}");
                assert!(head.contains("s3pplmbitxaq9kygzzhzrbk+xoo="), "{head}");
                line.read.drain(..at + 4);
                return line;
            }
            assert!(line.more().await, "no answer to the upgrade");
        }
    }

    async fn send(&mut self, bytes: &[u8]) {
        // A server that has closed shows it in what is read.
        let _ = self.stream.write_all(bytes).await;
    }

    async fn more(&mut self) -> bool {
        let mut piece = [0; 4096];
        match timeout(Duration::from_secs(5), self.stream.read(&mut piece)).await {
            Ok(Ok(count @ 1..)) => {
                self.read.extend(&piece[..count]);
                true
            }
            _ => false,
        }
    }

    /// The next frame: operation code and payload; `None` when the connection is over.
    async fn next(&mut self) -> Option<(u8, Vec<u8>)> {
        loop {
            if let [head, length, ..] = self.read[..] {
                assert_eq!(length & 0x80, 0, "a server does not mask");
                let (from, length) = match length {
                    126 if self.read.len() >= 4 => (
                        4,
                        usize::from(u16::from_be_bytes([self.read[2], self.read[3]])),
                    ),
                    126 | 127 => (2, usize::MAX / 2),
                    short => (2, usize::from(short)),
                };
                if self.read.len() >= from + length {
                    let payload = self.read[from..from + length].to_vec();
                    self.read.drain(..from + length);
                    return Some((head & 15, payload));
                }
            }
            if !self.more().await {
                return None;
            }
        }
    }

    async fn pong(&mut self) -> Option<Vec<u8>> {
        while let Some((code, payload)) = self.next().await {
            if code == PONG {
                return Some(payload);
            }
        }
        None
    }

    /// How it ends; a last ping tells whether it has not.
    async fn end(&mut self) -> End {
        self.send(&frame(FIN | PING, b"still there?")).await;
        while let Some((code, payload)) = self.next().await {
            match (code, &payload[..]) {
                (CLOSE, []) => return End::ClosedWithoutCode,
                (CLOSE, [high, low, ..]) => return End::Closed(u16::from_be_bytes([*high, *low])),
                (PONG, b"still there?") => return End::Open,
                _ => {}
            }
        }
        panic!("the connection broke off without a close frame");
    }
}
