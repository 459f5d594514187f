//! Connections that do nothing, or as good as nothing: let go in time, cheap until then, and felt by
//! nobody else.

use std::time::Duration;

use futures_util::future::join_all;
use kit::server::{Server, reqwest_client};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, interval, sleep, timeout};

use crate::stage;

/// The longest that any of them may last.
const PATIENCE: Duration = Duration::from_secs(15);

#[tokio::test]
async fn slow_requests_are_given_up_and_nobody_waits_for_them() {
    let _together = stage::together().await;
    let server = stage::server().await;
    let count = if stage::soak() { 5000 } else { 300 };
    let key = server.key.clone();
    let head = "POST /api/v1/agents HTTP/1.1\r\nhost: x\r\n";
    let with_body = format!(
        "{head}x-api-key: {key}\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{{"
    );
    let slow = (0..count).map(|n| {
        // Headers that never end, with and without more of them; a body that never comes.
        let (text, more) = match n % 3 {
            0 => (head.to_owned(), Some("x-a: b\r\n")),
            1 => ("GET /heal".to_owned(), None),
            _ => (with_body.clone(), None),
        };
        closed_after(&server, text, more)
    });
    let (times, health) = tokio::join!(join_all(slow), health(&server, PATIENCE));
    let worst = times.iter().max().unwrap();
    println!(
        "{count} slow connections, the last closed after {worst:?}; /healthz p99 {health:.1} ms"
    );
    assert!(*worst <= PATIENCE, "one lasted {worst:?}");
    assert!(health < 50.0, "/healthz p99 {health} ms");
}

/// How long the server bears a connection that sends `text`, and `more` of it every second.
async fn closed_after(server: &Server, text: String, more: Option<&str>) -> Duration {
    let address = server.url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).await.unwrap();
    let began = Instant::now();
    stream.write_all(text.as_bytes()).await.unwrap();
    let (mut read, mut write) = stream.split();
    let mut bytes = [0; 4096];
    let mut ticks = interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            got = read.read(&mut bytes) => {
                if got.unwrap_or(0) == 0 {
                    return began.elapsed();
                }
            }
            _ = ticks.tick() => {
                if let Some(more) = more {
                    // A closed connection shows itself when it is read.
                    let _ = write.write_all(more.as_bytes()).await;
                }
            }
        }
        if began.elapsed() > 2 * PATIENCE {
            return began.elapsed();
        }
    }
}

/// p99 of the time for `/healthz` over `during`, ms.
async fn health(server: &Server, during: Duration) -> f64 {
    let http = reqwest_client();
    let mut times = Vec::new();
    let began = Instant::now();
    while began.elapsed() < during {
        let asked = Instant::now();
        let answer = http
            .get(format!("{}/healthz", server.url))
            .send()
            .await
            .unwrap();
        assert!(answer.status().is_success());
        times.push(asked.elapsed().as_secs_f64() * 1000.0);
        sleep(Duration::from_millis(20)).await;
    }
    times.sort_by(f64::total_cmp);
    times[times.len() * 99 / 100]
}

#[tokio::test]
async fn idle_connections_are_cheap() {
    let _together = stage::together().await;
    let server = stage::server().await;
    let count = if stage::soak() { 10_000 } else { 1000 };
    health(&server, Duration::from_millis(200)).await;
    let before = server.memory_kib();
    let address = server.url.trim_start_matches("http://").to_owned();
    let mut idle = Vec::with_capacity(count);
    for _ in 0..count {
        let connected = timeout(Duration::from_secs(5), TcpStream::connect(&address)).await;
        idle.push(connected.expect("in time").expect("a connection"));
    }
    let slow = health(&server, Duration::from_secs(1)).await;
    let each = server.memory_kib().saturating_sub(before) as f64 / count as f64;
    println!("{count} idle connections: {each:.1} KiB each, /healthz p99 {slow:.1} ms");
    assert!(each <= 20.0, "{each} KiB each");
    assert!(slow < 20.0, "/healthz p99 {slow} ms");
    let until = Instant::now() + PATIENCE;
    for stream in &mut idle {
        let end = tokio::time::timeout_at(until, stream.read(&mut [0; 16])).await;
        assert!(end.is_ok(), "an idle connection lasts over {PATIENCE:?}");
    }
}
