//! What a peer can hold and guess at the sockets of sessions: connections count until they are closed, and
//! tokens that open nothing are failed authentications.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::in_process::{Caller, PATIENCE, Server};

/// Asks for an upgrade and reads the head of the answer: empty where the connection is closed at once.
async fn asks(ws_url: &str) -> (TcpStream, String) {
    let (host, path) = ws_url.trim_start_matches("ws://").split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).await.unwrap();
    let request = format!(
        "GET /{path} HTTP/1.1\r\nhost: {host}\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    let mut head = Vec::new();
    let talk = async {
        stream.write_all(request.as_bytes()).await?;
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    };
    // A connection over the limit is closed without a word.
    let _: std::io::Result<()> = tokio::time::timeout(PATIENCE, talk).await.unwrap();
    (stream, String::from_utf8(head).unwrap())
}

/// Asks until somebody is let in.
async fn asks_until(ws_url: &str, begin: &str) {
    let asking = async { while !asks(ws_url).await.1.starts_with(begin) {} };
    tokio::time::timeout(PATIENCE, asking).await.unwrap();
}

#[tokio::test]
async fn a_refused_socket_counts_among_the_connections_of_its_address_until_it_is_closed() {
    let server = Server::with(|config| config.server.max_connections_per_ip = 5).await;
    let agent = server.agent(json!({})).await;
    let (_, ws_url) = server.connect(&agent, json!({})).await;
    let (_, telco) = server
        .connect(
            &agent,
            json!({"protocol": "telco", "audio_format": "ulaw_8000"}),
        )
        .await;
    let bad = format!("{}?token=nonsense", ws_url.split_once('?').unwrap().0);
    // Refused ones that do not answer the close, and some that never say their token.
    let silent = telco.rsplit_once('/').unwrap().0;
    let (began, mut held) = (std::time::Instant::now(), Vec::new());
    for number in 0..60 {
        let (stream, head) = asks(if number % 3 == 0 { silent } else { &bad }).await;
        if head.starts_with("HTTP/1.1 101") {
            held.push(stream);
        } else {
            assert_eq!(head, "", "connection {number}");
        }
    }
    // The server closes a refused one after two seconds, and not before.
    let most = 5 * (usize::try_from(began.elapsed().as_secs() / 2).unwrap() + 1);
    assert!((5..=most).contains(&held.len()), "{} of {most}", held.len());
    // What the peer closes makes room at once.
    drop(held);
    asks_until(&bad, "HTTP/1.1 101").await;
    let mut caller = None;
    let joining = async {
        while caller.is_none() {
            let joined = tokio_tungstenite::connect_async(&ws_url).await;
            caller = joined.ok();
        }
    };
    tokio::time::timeout(PATIENCE, joining).await.unwrap();
}

#[tokio::test]
async fn the_socket_of_a_call_counts_until_it_is_closed_also_when_the_call_is_over() {
    let server = Server::with(|config| config.server.max_connections_per_ip = 1).await;
    let agent = server.agent(json!({})).await;
    let (id, ws_url) = server.connect(&agent, json!({})).await;
    let mut caller = Caller::join(&ws_url).await;
    caller.until("session_started").await;
    assert_eq!(asks(&ws_url).await.1, "", "while it lives");
    let end = format!("/conversation/{id}/end");
    assert_eq!(server.test.call("POST", &end, None).await.0, 200);
    server.settle().await;
    caller.until("call_ended").await;
    drop(caller);
    // A used token.
    asks_until(&ws_url, "HTTP/1.1 101").await;
}

#[tokio::test]
async fn a_token_that_opens_nothing_is_a_failed_authentication() {
    let server = Server::with(|config| config.limits.failed_auth_per_minute = 4).await;
    let agent = server.agent(json!({})).await;
    let (id, used) = server.connect(&agent, json!({})).await;
    let mut first = Caller::join(&used).await;
    first.until("session_started").await;
    let (_, good) = server.connect(&agent, json!({})).await;
    let (base, token) = good.split_once("?token=").unwrap();
    let (_, telco) = server
        .connect(
            &agent,
            json!({"protocol": "telco", "audio_format": "ulaw_8000"}),
        )
        .await;
    let bare = telco.rsplit_once('/').unwrap().0;
    let bad = [
        format!("{base}?token=nonsense"),
        format!("{base}/nonsense"),
        base.to_owned(),
        used.clone(),
        used.replace(&id, "not-an-id"),
        used.replace(&id, &uuid::Uuid::nil().to_string()),
        format!("{bare}/{token}"),
    ];
    // A burst of two minutes: seven, and a guess in a vendor's start message.
    for url in &bad {
        let (error, code) = Caller::join(url).await.until_closed().await;
        assert_eq!((&error["type"], code), (&json!("error"), 1008), "{url}");
    }
    let mut vendor = Caller::join(bare).await;
    let guess = json!({"event": "start", "start": {"customParameters": {"token": "a-guess"}}});
    vendor.send(guess).await;
    assert_eq!(vendor.until_closed().await.1, 1008);
    for url in &bad {
        let (_, head) = asks(url).await;
        assert!(head.starts_with("HTTP/1.1 429"), "{url}: {head}");
        assert!(
            head.to_ascii_lowercase().contains("retry-after: 15"),
            "{head}"
        );
    }
    // One budget with keys, call tokens and signed URLs that are none.
    let http = base.replacen("ws://", "http://", 1);
    let root = http.split("/ws/").next().unwrap();
    let client = kit::server::reqwest_client();
    for (path, bearer) in [
        ("/api/v1/agents", "a-guess"),
        (
            "/api/v1/conversation/x/status",
            "eyJhbGciOiJFZERTQSIsInR5cCI6IkpXVCJ9.e30.AA",
        ),
    ] {
        let asked = client.get(format!("{root}{path}")).bearer_auth(bearer);
        let status = asked.send().await.unwrap().status();
        assert_eq!(status, 429, "{path}");
    }
    for path in [
        format!("/api/v1/conversations/{id}/audio.wav?token=a-guess"),
        format!("/api/v1/recordings/{id}/audio.wav?token=a-guess"),
    ] {
        let asked = client.get(format!("{root}{path}")).send().await.unwrap();
        assert_eq!(asked.status(), 429, "{path}");
    }
    // What is right opens all the same.
    let mut caller = Caller::join(&good).await;
    caller.until("session_started").await;
    // Time gives tokens back.
    server.test.app.clock.advance(Duration::from_secs(15));
    let (_, head) = asks(&bad[0]).await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
}
