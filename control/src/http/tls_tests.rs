//! TLS over real sockets on loopback.

#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::client::TlsStream as ClientStream;
use tokio_tungstenite::tungstenite::Message;

use super::*;
use crate::config::{Config, Server};
use crate::http::serve::tests::endless;
use crate::http::serve::{Patience, serve_with};
use crate::supervisor::Supervisor;
use crate::testing::{TempDir, TestApp};

/// No step of a test takes this long.
const LONG: Duration = Duration::from_secs(20);
/// How long a peer may take here, for headers and to read what is written.
const SHORT: Duration = Duration::from_millis(300);
/// How often a test's server looks at its files.
const LOOK: Duration = Duration::from_millis(20);

/// Writes a new certificate for `localhost` and its key; the certificate.
fn renew(files: &Tls) -> CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    std::fs::write(&files.certificate, made.cert.pem()).unwrap();
    made.cert.der().clone()
}

struct Running {
    address: SocketAddr,
    files: Tls,
    certificates: Certificates,
    _stop: watch::Sender<bool>,
    _folder: TempDir,
}

/// A TLS server of this router, and the certificate it shows.
async fn start(listener: TcpListener, router: Router) -> (Running, CertificateDer<'static>) {
    start_with(listener, router, Config::defaults().unwrap().server).await
}

async fn start_with(
    listener: TcpListener,
    router: Router,
    settings: Server,
) -> (Running, CertificateDer<'static>) {
    let folder = TempDir::new().unwrap();
    let files = Tls {
        certificate: folder.path().join("cert.pem"),
        key: folder.path().join("key.pem"),
    };
    let certificate = renew(&files);
    let certificates = Certificates::start(files.clone(), LOOK, &Supervisor::default()).unwrap();
    let greeting = Greeting::with(certificates.clone()).unwrap();
    let address = listener.local_addr().unwrap();
    let patience = Patience {
        headers: SHORT,
        write: SHORT,
        ..Patience::default()
    };
    let (stop, stopped) = watch::channel(false);
    let how = (patience, Some(greeting));
    tokio::spawn(async move { serve_with(listener, router, &settings, how, stopped).await });
    let running = Running {
        address,
        files,
        certificates,
        _stop: stop,
        _folder: folder,
    };
    (running, certificate)
}

async fn hello() -> (Running, CertificateDer<'static>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    start(
        listener,
        Router::new().route("/", get(|| async { "hello" })),
    )
    .await
}

async fn connect(
    address: SocketAddr,
    trusted: &CertificateDer<'static>,
    versions: &[&'static SupportedProtocolVersion],
    protocol: &str,
) -> io::Result<ClientStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    tokio_rustls::TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
}

#[tokio::test]
async fn both_versions_of_http_and_of_tls_are_spoken() {
    let (server, certificate) = hello().await;
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let mut h1 = connect(server.address, &certificate, &[version], "http/1.1")
            .await
            .unwrap();
        assert_eq!(h1.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
        h1.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            .await
            .unwrap();
        let mut answer = String::new();
        h1.read_to_string(&mut answer).await.unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.ends_with("hello"),
            "{answer}"
        );

        let h2 = connect(server.address, &certificate, &[version], "h2")
            .await
            .unwrap();
        assert_eq!(h2.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let io = TokioIo::new(h2);
        let (mut send, connection) =
            hyper::client::conn::http2::handshake::<_, _, Empty<Bytes>>(TokioExecutor::new(), io)
                .await
                .unwrap();
        tokio::spawn(connection);
        let request = Request::get("https://localhost/")
            .body(Empty::new())
            .unwrap();
        let answer = send.send_request(request).await.unwrap();
        assert_eq!(
            answer.into_body().collect().await.unwrap().to_bytes(),
            "hello"
        );
    }
}

#[tokio::test]
async fn a_protocol_nobody_speaks_and_plain_http_get_no_answer() {
    let (server, certificate) = hello().await;
    let versions = rustls::DEFAULT_VERSIONS;
    assert!(
        connect(server.address, &certificate, versions, "spdy/1")
            .await
            .is_err()
    );
    for begun in ["", "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"] {
        let mut plain = TcpStream::connect(server.address).await.unwrap();
        plain.write_all(begun.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // A reset is an end too.
        let read = tokio::time::timeout(LONG, plain.read_to_end(&mut answer)).await;
        read.unwrap().ok();
        assert!(!answer.starts_with(b"HTTP"), "{begun:?}");
    }
}

#[tokio::test]
async fn who_does_not_read_is_let_go() {
    let (router, mut goes) = endless();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (server, certificate) = start(listener, router).await;
    let versions = rustls::DEFAULT_VERSIONS;
    let mut client = connect(server.address, &certificate, versions, "http/1.1")
        .await
        .unwrap();
    let request = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";
    client.write_all(request).await.unwrap();
    let began = tokio::time::Instant::now();
    tokio::time::timeout(LONG, goes.recv())
        .await
        .unwrap()
        .unwrap();
    assert!(began.elapsed() >= SHORT, "at once");
}

#[tokio::test]
async fn a_renewed_certificate_is_shown_and_a_broken_one_is_not() {
    let (server, first) = hello().await;
    let mut shown = server.certificates.0.clone();
    let changed = async |shown: &mut watch::Receiver<Arc<CertifiedKey>>| {
        tokio::time::timeout(LONG, shown.changed())
            .await
            .unwrap()
            .unwrap();
    };
    shown.mark_unchanged();
    let second = renew(&server.files);
    changed(&mut shown).await;
    let versions = rustls::DEFAULT_VERSIONS;
    assert!(
        connect(server.address, &first, versions, "h2")
            .await
            .is_err()
    );
    connect(server.address, &second, versions, "h2")
        .await
        .unwrap();
    // What is no certificate is passed over, and the next good one is taken.
    std::fs::write(&server.files.certificate, "half a certificate").unwrap();
    connect(server.address, &second, versions, "h2")
        .await
        .unwrap();
    let third = renew(&server.files);
    changed(&mut shown).await;
    connect(server.address, &third, versions, "h2")
        .await
        .unwrap();
}

#[tokio::test]
async fn files_that_are_wrong_at_the_start_are_named() {
    let folder = TempDir::new().unwrap();
    let files = Tls {
        certificate: folder.path().join("cert.pem"),
        key: folder.path().join("key.pem"),
    };
    let refused = || {
        Greeting::start(files.clone(), LOOK, &Supervisor::default())
            .unwrap_err()
            .to_string()
    };
    assert!(refused().contains("cert.pem"));
    renew(&files);
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(&files.key, other.signing_key.serialize_pem()).unwrap();
    assert!(refused().contains("do not work together"), "{}", refused());
    std::fs::write(&files.key, "no key").unwrap();
    assert!(refused().contains("private key"));
}

#[tokio::test]
async fn a_call_is_made_over_a_tls_websocket() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let test = TestApp::with(|config| {
        config.server.public_url = format!("https://localhost:{}", address.port());
    })
    .await;
    let (server, certificate) = start(listener, test.router.clone()).await;
    let agent = json!({
        "name": "Echo", "system_prompt": "Repeat.", "voice_id": "scripted-tone",
        "llm_model": "echo", "first_message": "Hello and welcome."
    });
    let (_, agent) = test.call("POST", "/agents", Some(agent)).await;
    let body = json!({"agent_id": agent["id"], "transport": "websocket"});
    let (status, session) = test.call("POST", "/conversation/connect", Some(body)).await;
    assert_eq!(status, 200, "{session}");
    let url = session["ws_url"].as_str().unwrap();
    assert!(url.starts_with("wss://localhost:"), "{url}");
    let versions = rustls::DEFAULT_VERSIONS;
    let stream = connect(server.address, &certificate, versions, "http/1.1")
        .await
        .unwrap();
    let (mut socket, _) = tokio_tungstenite::client_async(url, stream).await.unwrap();
    let mut heard = Vec::new();
    let mut next = async |heard: &mut Vec<String>| {
        let message = tokio::time::timeout(LONG, socket.next()).await.unwrap();
        match message {
            Some(Ok(Message::Text(text))) => {
                let frame: Value = serde_json::from_str(&text).unwrap();
                heard.push(frame["type"].as_str().unwrap().to_owned());
                if frame["type"] == "agent_response" {
                    let end = Message::text(json!({"type": "end"}).to_string());
                    socket.send(end).await.unwrap();
                }
                true
            }
            Some(Ok(Message::Close(_))) | Some(Err(_)) | None => false,
            Some(Ok(_)) => true,
        }
    };
    while next(&mut heard).await {}
    assert_eq!(heard.first().map(String::as_str), Some("session_started"));
    assert_eq!(heard.last().map(String::as_str), Some("call_ended"));
    assert!(heard.iter().any(|kind| kind == "audio"));
    assert!(test.app.live.drained(LONG).await);
}

/// The handshake counts as well, and so does a refused WebSocket, until the peer is let go.
#[tokio::test]
async fn a_tls_connection_counts_from_its_handshake_until_its_upgraded_socket_is_closed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let test = TestApp::new().await;
    let settings = Server {
        max_connections_per_ip: 1,
        ..Config::defaults().unwrap().server
    };
    let (server, certificate) = start_with(listener, test.router.clone(), settings).await;
    let versions = rustls::DEFAULT_VERSIONS;
    let connects = async || connect(server.address, &certificate, versions, "http/1.1").await;
    let free = async || {
        let connecting = async {
            loop {
                if let Ok(stream) = connects().await {
                    return stream;
                }
            }
        };
        tokio::time::timeout(LONG, connecting).await.unwrap()
    };
    let greeting = TcpStream::connect(server.address).await.unwrap();
    assert!(connects().await.is_err(), "beside a handshake");
    drop(greeting);
    let url = "wss://localhost/ws/v1/conversation/nobody?token=nonsense";
    let (socket, _) = tokio_tungstenite::client_async(url, free().await)
        .await
        .unwrap();
    assert!(connects().await.is_err(), "beside a refused socket");
    drop(socket);
    free().await;
}
