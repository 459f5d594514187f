//! A body far beyond the bound, while somebody else is in a call.

use std::time::Duration;

use control::testing::answer;
use http::{HeaderMap, HeaderName, Method, StatusCode};
use kit::server::Server;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{interval, sleep, timeout};

use super::bystander::{Bystander, no_gap};
use super::stage;

#[tokio::test]
async fn a_body_of_100_mib_is_413_and_others_hear_no_gap() {
    let _alone = stage::alone().await;
    let server = stage::server().await;
    let client = server.client();
    let fields = json!({"first_message": stage::long_greeting(), "interruption_enabled": false});
    let talker = stage::agent(&client, fields).await;
    let bystander = Bystander::join(stage::session(&client, &talker).await);
    // As soon as its agent speaks.
    sleep(Duration::from_millis(500)).await;
    let before = server.memory_kib();
    let mut most = before;
    let bodies = async {
        let mut seconds = interval(Duration::from_secs(1));
        for _ in 0..4 {
            seconds.tick().await;
            tokio::join!(
                too_large(&server, "content-length: 104857600", ("", "")),
                too_large(&server, "transfer-encoding: chunked", ("10000\r\n", "\r\n")),
            );
        }
    };
    tokio::pin!(bodies);
    loop {
        tokio::select! {
            () = &mut bodies => break,
            () = sleep(Duration::from_millis(20)) => most = most.max(server.memory_kib()),
        }
    }
    let grown = most - before;
    println!("memory grew by {grown} KiB");
    assert!(grown < 8 * 1024, "memory grew by {grown} KiB");
    no_gap(&bystander.leave());
    client.get("/agents").await.expect(200);
}

/// A body that is cut off after its first mebibyte, whether its length was told or not; what stands around each
/// 64 KiB of it. The caller reads while sending, so there is an answer.
async fn too_large(server: &Server, length: &str, (before, after): (&str, &str)) {
    const ALL: usize = 100 << 20;
    let address = server.url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).await.unwrap();
    let (mut read, mut write) = stream.split();
    let head = format!(
        "POST /api/v1/agents HTTP/1.1\r\nhost: x\r\nx-api-key: {}\r\n\
         content-type: application/json\r\n{length}\r\n\r\n",
        server.key
    );
    let piece = format!("{before}{}{after}", " ".repeat(64 << 10));
    let sending = async {
        write.write_all(head.as_bytes()).await.unwrap();
        let mut sent = 0;
        // The server closes, and no more can be sent.
        while sent < ALL && write.write_all(piece.as_bytes()).await.is_ok() {
            sent += 64 << 10;
        }
        sent
    };
    let mut bytes = Vec::new();
    // A close before all was read is a reset; what came before it has been read by then.
    let reading = async { read.read_to_end(&mut bytes).await.is_ok() };
    let both = async { tokio::join!(sending, reading) };
    let (sent, _) = timeout(Duration::from_secs(10), both)
        .await
        .expect("a close");
    assert!(sent < ALL / 2, "{length}: {sent} bytes were taken");
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").expect("an answer");
    assert!(head.starts_with("HTTP/1.1 413 "), "{length}: {head}");
    let headers: HeaderMap = head
        .lines()
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap()))
        .collect();
    let body: Value = serde_json::from_str(body).unwrap();
    let status = StatusCode::PAYLOAD_TOO_LARGE;
    answer::check(length, &Method::POST, status, &headers, &body);
    assert_eq!(body["code"], "payload_too_large", "{length}");
}
