//! Floods of HTTP/2 frames that ask for nothing. Streams opened and reset at once, headers without an
//! end and empty bodies end their connection with GOAWAY; pings and settings are just answered. The
//! memory stays where it is.

use std::time::Duration;

use kit::server::Server;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::stage;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;

const END_HEADERS: u8 = 4;

/// `GET http://a/healthz` in HPACK: three entries of the static table and two plain ones.
const REQUEST: &[u8] = b"\x82\x86\x04\x08/healthz\x01\x01a";
/// The same as a POST, which may have a body.
const POST: &[u8] = b"\x83\x86\x04\x0e/api/v1/agents\x01\x01a";

/// What a flood sends with the number of a stream.
type Flood = fn(u32) -> Vec<u8>;

#[tokio::test]
async fn floods_of_http2_frames_end_their_connection() {
    let _alone = stage::alone().await;
    let server = stage::server().await;
    let count = if stage::soak() { 1_000_000 } else { 50_000 };
    let floods: [(&str, bool, Flood); 5] = [
        ("streams opened and reset", true, |stream| {
            let reset = frame(RESET, 0, stream, &8u32.to_be_bytes());
            [frame(HEADERS, END_HEADERS | 1, stream, REQUEST), reset].concat()
        }),
        ("headers without an end", true, |stream| match stream {
            1 => frame(HEADERS, 0, 1, REQUEST),
            _ => frame(CONTINUATION, 0, 1, b"\x00\x01x\x01y"),
        }),
        ("empty pieces of a body", true, |stream| match stream {
            1 => frame(HEADERS, END_HEADERS, 1, POST),
            _ => frame(DATA, 0, 1, b""),
        }),
        ("pings", false, |_| frame(PING, 0, 0, &[0; 8])),
        ("settings", false, |_| frame(SETTINGS, 0, 0, b"")),
    ];
    for (name, ends, flood) in floods {
        let before = server.memory_kib();
        let began = Instant::now();
        let (sent, connections, ended) = send(&server, count, ends, flood).await;
        let grown = server.memory_kib().saturating_sub(before);
        println!(
            "{name}: {sent}, {connections} connections broke, {ended} of them with GOAWAY, {grown} KiB more, {:.1} s",
            began.elapsed().as_secs_f64()
        );
        assert!(grown < 8 * 1024, "{name}: memory grew by {grown} KiB");
        assert!(
            !ends || ended == connections,
            "{name}: {ended} of {connections}"
        );
        // Another client is served all the same.
        server.client().get("/agents").await.expect(200);
    }
}

/// Floods until `count` were sent, on a new connection whenever one broke: how many were sent, how many
/// connections broke, and how many of those the server ended with GOAWAY. Where a flood `ends` its
/// connection, the last one is flooded until it broke too.
async fn send(server: &Server, count: usize, ends: bool, flood: Flood) -> (usize, usize, usize) {
    let host = server.url.strip_prefix("http://").expect("plain HTTP");
    let (mut sent, mut connections, mut ended) = (0, 0, 0);
    while sent < count {
        let mut stream = TcpStream::connect(host).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let hello = [
            &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..],
            &frame(SETTINGS, 0, 0, b""),
        ]
        .concat();
        stream.write_all(&hello).await.unwrap();
        let (mut read, mut write) = stream.into_split();
        let reader = tokio::spawn(async move {
            let mut all = Vec::new();
            let mut piece = [0; 16 << 10];
            let mut told = false;
            // The end of the connection, with or without an error, is what is waited for.
            while let Ok(Ok(length @ 1..)) =
                timeout(Duration::from_secs(20), read.read(&mut piece)).await
            {
                all.extend_from_slice(&piece[..length]);
                while let Some((kind, length)) = head(&all) {
                    told |= kind == GOAWAY;
                    all.drain(..length);
                }
            }
            told
        });
        let (mut stream_id, mut broke) = (1, false);
        while ends || sent < count {
            let mut batch = Vec::new();
            for _ in 0..100 {
                batch.extend(flood(stream_id));
                stream_id += 2;
            }
            let written = timeout(Duration::from_secs(20), write.write_all(&batch)).await;
            sent += 100;
            broke = !matches!(written, Ok(Ok(())));
            if broke {
                break;
            }
        }
        drop(write);
        let told = reader.await.unwrap();
        connections += usize::from(broke);
        ended += usize::from(broke && told);
    }
    (sent, connections, ended)
}

/// Kind and whole length of the frame that stands first, if all of it is here.
fn head(bytes: &[u8]) -> Option<(u8, usize)> {
    let [a, b, c, kind, ..] = *bytes else {
        return None;
    };
    let length = 9 + u32::from_be_bytes([0, a, b, c]) as usize;
    (bytes.len() >= length).then_some((kind, length))
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}
