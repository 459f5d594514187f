//! Texts that are spoken for many clients at once: each gets its first sound, together they hold little,
//! and those who go away hold nothing. (What the kernel buffers for a slow reader is not the server's.)

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use kit::server::Server;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, sleep, timeout};

use crate::stage;

/// Streams at once.
const STREAMS: usize = 500;

/// What the sound of all streams may take, MiB: the setting's default.
const SOUND_MIB: u64 = 128;

/// What a connection with its request takes besides, KiB.
const CONNECTION_KIB: u64 = 96;

/// 20 s of the tone, in sentences.
fn text() -> String {
    let sentences = "The harbour is open every day of the week. ".repeat(7);
    format!("Good day. {}", sentences.trim())
}

/// A client that takes what it is sent only when it reads.
struct Listener {
    stream: TcpStream,
    got: Vec<u8>,
}

impl Listener {
    /// Asks for the text and reads until the first sound.
    async fn begin(address: SocketAddr, key: &str) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(16 * 1024).unwrap();
        let mut stream = socket.connect(address).await.unwrap();
        let body = json!({"text": text(), "voice_id": "scripted-tone", "streaming": true});
        let body = body.to_string();
        let request = format!(
            "POST /api/v1/tts HTTP/1.1\r\nhost: sidetone\r\nx-api-key: {key}\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut listener = Self {
            stream,
            got: Vec::new(),
        };
        while listener.sound().is_empty() {
            assert!(listener.read().await > 0, "{}", listener.head());
        }
        listener
    }

    async fn read(&mut self) -> usize {
        let mut buffer = [0; 16 * 1024];
        let read = timeout(Duration::from_secs(60), self.stream.read(&mut buffer));
        let count = read.await.expect("the server went silent").unwrap();
        self.got.extend_from_slice(&buffer[..count]);
        count
    }

    fn head(&self) -> String {
        String::from_utf8_lossy(&self.got[..self.got.len().min(600)]).into_owned()
    }

    /// The chunked body so far.
    fn sound(&self) -> &[u8] {
        let end = self.got.windows(4).position(|w| w == b"\r\n\r\n");
        end.map_or(&[][..], |end| &self.got[end + 4..])
    }

    /// Bytes of sound, once the stream is at its end.
    async fn finish(mut self) -> usize {
        while self.read().await > 0 {}
        let head = self.head();
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(head.contains("transfer-encoding: chunked"), "{head}");
        let mut rest = self.sound();
        let mut bytes = 0;
        loop {
            let end = rest.windows(2).position(|w| w == b"\r\n").unwrap();
            let size = std::str::from_utf8(&rest[..end]).unwrap();
            let size = usize::from_str_radix(size, 16).unwrap();
            if size == 0 {
                return bytes;
            }
            bytes += size;
            rest = &rest[end + 2 + size + 2..];
        }
    }
}

async fn active(server: &Server) -> u64 {
    let metrics = server.client().get("//metrics").await.expect(200);
    let text = String::from_utf8(metrics.bytes).unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("sidetone_tts_active "));
    line.unwrap().parse::<f64>().unwrap() as u64
}

#[tokio::test]
async fn five_hundred_streams_at_once_hold_little_and_all_hear_the_end() {
    let _alone = stage::alone().await;
    let server = stage::setup()
        .set("LIMITS__TTS_PER_MINUTE", "1000000")
        .start()
        .await;
    let address: SocketAddr = server.url.strip_prefix("http://").unwrap().parse().unwrap();
    // What a first request loads is not a stream's.
    Listener::begin(address, &server.key).await.finish().await;
    let before = server.memory_kib();

    let began = Instant::now();
    let mut most = before;
    let mut listeners = {
        let all = join_all((0..STREAMS).map(|_| Listener::begin(address, &server.key)));
        tokio::pin!(all);
        loop {
            tokio::select! {
                listeners = &mut all => break listeners,
                () = sleep(Duration::from_millis(20)) => most = most.max(server.memory_kib()),
            }
        }
    };
    let first_sounds = began.elapsed();
    for _ in 0..30 {
        most = most.max(server.memory_kib());
        sleep(Duration::from_millis(100)).await;
    }

    // Some go away in the middle: what is still spoken for them goes with them.
    listeners.truncate(STREAMS - 100);
    let until = Instant::now() + Duration::from_secs(10);
    while active(&server).await > listeners.len() as u64 {
        assert!(Instant::now() < until, "syntheses of nobody go on");
        sleep(Duration::from_millis(50)).await;
    }
    let lengths = join_all(listeners.into_iter().map(Listener::finish)).await;
    most = most.max(server.memory_kib());
    assert!(lengths.iter().all(|bytes| *bytes == lengths[0]));
    // 310 characters but for the spaces between sentences, 65 ms each, 48 bytes a millisecond.
    assert!(
        lengths[0] > 280 * 65 * 48,
        "{} bytes are no {} characters",
        lengths[0],
        text().len()
    );
    let grown = most.saturating_sub(before);
    println!(
        "{STREAMS} streams: first sounds after {first_sounds:?}, {} KiB more at most, {} KiB a stream",
        grown,
        grown / STREAMS as u64
    );
    let bound = SOUND_MIB * 1024 + CONNECTION_KIB * STREAMS as u64;
    assert!(grown < bound, "{grown} KiB more, not below {bound}");
    assert_eq!(active(&server).await, 0);
}
