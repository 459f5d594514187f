//! The accept loop over real sockets on loopback.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

use std::net::Ipv4Addr;

use axum::extract::Request as AxumRequest;
use axum::routing::{get, post};
use http_body_util::{BodyExt, Empty};
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::super::{extract, upgrade};
use super::*;
use crate::config::Config;

/// Short enough for a test, long enough for a busy machine.
const SHORT: Duration = Duration::from_millis(300);
/// No step of a test takes this long.
const LONG: Duration = Duration::from_secs(20);

struct Running {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
}

impl Running {
    async fn start(router: Router, change: impl FnOnce(&mut Server)) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut settings = Config::defaults().unwrap().server;
        change(&mut settings);
        let (stop, stopped) = watch::channel(false);
        let patience = Patience {
            headers: SHORT,
            body: SHORT,
            whole_body: 3 * SHORT,
            write: SHORT,
        };
        let serving =
            tokio::spawn(
                async move { serve(listener, router, &settings, patience, stopped).await },
            );
        Self {
            address,
            stop,
            serving,
        }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// All that comes back until the end of the connection.
    async fn say(&self, bytes: &str) -> String {
        let mut stream = self.connect().await;
        stream.write_all(bytes.as_bytes()).await.unwrap();
        everything(&mut stream).await
    }
}

async fn everything(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    // A reset is an end too: what came before counts.
    timeout(LONG, stream.read_to_end(&mut text))
        .await
        .unwrap()
        .ok();
    String::from_utf8_lossy(&text).into_owned()
}

/// An answer without end, at `/`, and the word that the server has let go of it.
pub(in crate::http) fn endless() -> (Router, mpsc::Receiver<()>) {
    struct Held(mpsc::Sender<()>);
    impl Drop for Held {
        fn drop(&mut self) {
            // Nobody may wait for it any more.
            self.0.try_send(()).ok();
        }
    }
    let (gone, goes) = mpsc::channel(1);
    let route = get(move || {
        let held = Held(gone.clone());
        let pieces = futures_util::stream::repeat_with(move || {
            let _ = &held;
            Ok::<_, io::Error>(Bytes::from_static(&[0; 64 << 10]))
        });
        async { axum::body::Body::from_stream(pieces) }
    });
    (Router::new().route("/", route), goes)
}

fn hello() -> Router {
    Router::new().route("/", get(|| async { "hello" })).route(
        "/size",
        post(|request: AxumRequest| async move {
            extract::read_body(request.into_body(), 1000)
                .await
                .map(|bytes| bytes.len().to_string())
        }),
    )
}

#[tokio::test]
async fn http_1_is_answered_and_kept_alive() {
    let server = Running::start(hello(), |_| {}).await;
    let twice =
        "GET / HTTP/1.1\r\nhost: x\r\n\r\nGET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    assert_eq!(server.say(twice).await.matches("hello").count(), 2);
}

#[tokio::test]
async fn http_2_is_answered_on_the_same_port() {
    let server = Running::start(hello(), |_| {}).await;
    let io = TokioIo::new(server.connect().await);
    let (mut send, connection) =
        hyper::client::conn::http2::handshake::<_, _, Empty<Bytes>>(TokioExecutor::new(), io)
            .await
            .unwrap();
    tokio::spawn(connection);
    let request = Request::get(format!("http://{}/", server.address))
        .body(Empty::new())
        .unwrap();
    let answer = send.send_request(request).await.unwrap();
    assert_eq!(
        answer.into_body().collect().await.unwrap().to_bytes(),
        "hello"
    );
}

#[tokio::test]
async fn who_says_nothing_or_half_a_header_is_let_go() {
    let server = Running::start(hello(), |_| {}).await;
    for begun in ["", "P", "PRI * HTTP/2.0\r\n\r\n", "GET / HTTP/1.1\r\nhost:"] {
        let answer = server.say(begun).await;
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 408"),
            "{begun:?} got {answer}"
        );
    }
}

#[tokio::test]
async fn a_body_that_stops_coming_is_given_up() {
    let server = Running::start(hello(), |_| {}).await;
    let whole =
        "POST /size HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 3\r\n\r\nabc";
    assert!(server.say(whole).await.ends_with('3'));
    let half = "POST /size HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nabc";
    assert!(server.say(half).await.starts_with("HTTP/1.1 408"));
}

#[tokio::test]
async fn a_body_that_comes_by_drops_is_given_up() {
    let server = Running::start(hello(), |_| {}).await;
    let mut stream = server.connect().await;
    let head = "POST /size HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    for _ in 0..99 {
        // Whether it is still taken shows in the answer.
        let _ = stream.write_all(b"x").await;
        if let Ok(read) = timeout(SHORT / 4, stream.read_exact(&mut answer)).await {
            read.unwrap();
            assert_eq!(&answer, b"HTTP/1.1 408");
            return;
        }
    }
    panic!("it is waited for");
}

/// A GET of `/` in HTTP/2, with windows that never close.
fn greedy_request() -> Vec<u8> {
    let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
        let mut bytes = vec![0, 0, payload.len() as u8, kind, flags, 0, 0, 0, stream];
        bytes.extend(payload);
        bytes
    };
    // SETTINGS_INITIAL_WINDOW_SIZE, and the connection's window as far beyond its own.
    let settings = frame(4, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]);
    let window = frame(8, 0, 0, &[0x7f, 0xff, 0, 0]);
    // `GET http://a/` in HPACK: three entries of the static table and a plain one.
    let headers = frame(1, 4 | 1, 1, b"\x82\x86\x84\x01\x01a");
    [&PREFACE[..], &settings, &window, &headers].concat()
}

#[tokio::test]
async fn who_does_not_read_is_let_go() {
    let get = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n".to_vec();
    for (version, request) in [("HTTP/1.1", get), ("HTTP/2", greedy_request())] {
        let (router, mut goes) = endless();
        let server = Running::start(router, |_| {}).await;
        let mut client = server.connect().await;
        client.write_all(&request).await.unwrap();
        // As long as they read, the answer goes on: what comes is more than the kernels hold.
        let mut piece = vec![0; 1 << 20];
        let began = Instant::now();
        let mut read = 0;
        while read < 32 << 20 || began.elapsed() < 2 * SHORT {
            let more = timeout(LONG, client.read(&mut piece)).await.unwrap();
            read += more.unwrap();
            assert!(goes.try_recv().is_err(), "{version}: let go while it reads");
        }
        let stopped = Instant::now();
        timeout(LONG, goes.recv()).await.unwrap().unwrap();
        assert!(stopped.elapsed() >= SHORT, "{version}: at once");
    }
}

#[tokio::test]
async fn over_the_cap_a_connection_is_closed_at_once() {
    let server = Running::start(hello(), |settings| settings.max_connections_per_ip = 1).await;
    let first = server.connect().await;
    let mut second = server.connect().await;
    assert_eq!(everything(&mut second).await, "");
    drop(first);
}

#[tokio::test]
async fn an_upgrade_hands_over_the_socket_and_what_was_read_of_it() {
    let (taken, mut takes) = mpsc::channel(1);
    let route = get(move |mut request: AxumRequest| async move {
        let take = upgrade::take(&mut request);
        tokio::spawn(async move { taken.send(take.await).await });
        upgrade::accept(request.method(), request.headers())
    });
    let server = Running::start(Router::new().route("/ws", route), |_| {}).await;
    let mut client = server.connect().await;
    let handshake = "GET /ws HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
                     sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\nearly";
    client.write_all(handshake.as_bytes()).await.unwrap();
    let taken = timeout(LONG, takes.recv()).await.unwrap().unwrap().unwrap();
    let (stream, slot) = (taken.stream, taken.slot);
    assert_eq!(taken.leftover, b"early");
    // The socket is nonblocking, with nothing left to read, and it is the client's.
    let mut byte = [0];
    let error = io::Read::read(&mut &stream, &mut byte).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    io::Write::write_all(&mut &stream, b"raw").unwrap();
    drop(stream);
    let heard = everything(&mut client).await;
    assert!(
        heard.starts_with("HTTP/1.1 101") && heard.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
        "{heard}"
    );
    assert!(heard.ends_with("raw"));
    drop(slot);
}

#[tokio::test]
async fn an_upgraded_connection_counts_until_its_slot_is_given_back() {
    let (taken, mut takes) = mpsc::channel(1);
    let route = get(move |mut request: AxumRequest| async move {
        let take = upgrade::take(&mut request);
        tokio::spawn(async move { taken.send(take.await).await });
        upgrade::accept(request.method(), request.headers())
    });
    let only_one = |settings: &mut Server| settings.max_connections_per_ip = 1;
    let server = Running::start(Router::new().route("/", route), only_one).await;
    let mut client = server.connect().await;
    let handshake = "GET / HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
                     sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    client.write_all(handshake.as_bytes()).await.unwrap();
    let taken = timeout(LONG, takes.recv()).await.unwrap().unwrap().unwrap();
    for _ in 0..3 {
        assert_eq!(
            server.say("GET /gone HTTP/1.1\r\nhost: x\r\n\r\n").await,
            ""
        );
    }
    // Half closed it is as open as before.
    client.shutdown().await.unwrap();
    assert_eq!(
        server.say("GET /gone HTTP/1.1\r\nhost: x\r\n\r\n").await,
        ""
    );
    drop(taken);
    let after = server
        .say("GET /gone HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        .await;
    assert!(after.starts_with("HTTP/1.1 404"), "{after}");
}

/// A handshake that does not go on holds its place as well, and gives it back.
#[tokio::test]
async fn who_only_begins_to_speak_counts_until_they_are_let_go() {
    let only_one = |settings: &mut Server| settings.max_connections_per_ip = 1;
    let server = Running::start(hello(), only_one).await;
    let mut idle = server.connect().await;
    idle.write_all(b"PRI * HTTP/2").await.unwrap();
    let one = "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    assert_eq!(server.say(one).await, "");
    assert_eq!(everything(&mut idle).await, "");
    let free = async { while !server.say(one).await.ends_with("hello") {} };
    timeout(LONG, free).await.unwrap();
}

#[tokio::test]
async fn the_end_waits_for_answers_under_way() {
    let (started, mut starts) = mpsc::channel(1);
    let (go, may_go) = watch::channel(false);
    let slow = get(move || {
        let (started, mut may_go) = (started.clone(), may_go.clone());
        async move {
            started.send(()).await.ok();
            may_go.wait_for(|go| *go).await.map(drop).ok();
            "done"
        }
    });
    let server = Running::start(Router::new().route("/", slow), |_| {}).await;
    let mut client = server.connect().await;
    client
        .write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    starts.recv().await.unwrap();
    server.stop.send_replace(true);
    go.send_replace(true);
    assert!(everything(&mut client).await.ends_with("done"));
    timeout(LONG, server.serving).await.unwrap().unwrap();
    assert!(TcpStream::connect(server.address).await.is_err());
}

#[test]
fn slots_are_counted_and_given_back() {
    let slots = Arc::new(Slots::new(3, 2));
    let (a, b) = (
        IpAddr::from(Ipv4Addr::new(10, 0, 0, 1)),
        IpAddr::from(Ipv4Addr::new(10, 0, 0, 2)),
    );
    let first = slots.take(a);
    let _second = slots.take(a);
    assert!(
        first.is_some() && slots.take(a).is_none(),
        "two per address"
    );
    let _third = slots.take(b);
    assert!(slots.take(b).is_none(), "three in all");
    drop(first);
    assert!(slots.take(b).is_some());
}
