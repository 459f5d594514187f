//! Connections that do nothing, or as good as nothing: let go in time, cheap until then, and felt by
//! nobody else.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use kit::server::{Server, Setup};
use kit::socket::narrow;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, interval, sleep, timeout, timeout_at};
use tokio_rustls::TlsConnector;

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
    let door = Door::of(&server);
    let (times, health) = tokio::join!(join_all(slow), health(&door, PATIENCE));
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

/// Where a server is reached.
struct Door {
    address: String,
    tls: Option<TlsConnector>,
}

/// A connection, in TLS or not.
trait Wire: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Wire for T {}

impl Door {
    fn of(server: &Server) -> Self {
        let (scheme, address) = server.url.split_once("://").unwrap();
        let tls = (scheme == "https").then(|| {
            let mut roots = RootCertStore::empty();
            let ca = CertificateDer::from_pem_file(server.data.join("ca.crt")).unwrap();
            roots.add(ca).unwrap();
            let config = ClientConfig::builder().with_root_certificates(roots);
            TlsConnector::from(Arc::new(config.with_no_client_auth()))
        });
        Self {
            address: address.to_owned(),
            tls,
        }
    }

    /// A new connection, after its TLS handshake.
    async fn open(&self) -> Box<dyn Wire> {
        let stream = TcpStream::connect(&self.address).await.unwrap();
        match &self.tls {
            None => Box::new(stream),
            Some(tls) => {
                let name = ServerName::try_from("localhost").unwrap();
                Box::new(tls.connect(name, stream).await.unwrap())
            }
        }
    }

    /// The time for `/healthz` on a new connection, ms.
    async fn health(&self) -> f64 {
        let asked = Instant::now();
        let mut stream = self.open().await;
        let request = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        asked.elapsed().as_secs_f64() * 1000.0
    }
}

/// p99 of the time for `/healthz` over `during`, each on a new connection, ms.
async fn health(door: &Door, during: Duration) -> f64 {
    let mut times = Vec::new();
    let began = Instant::now();
    while began.elapsed() < during {
        times.push(door.health().await);
        sleep(Duration::from_millis(20)).await;
    }
    p99(&mut times)
}

fn p99(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() * 99 / 100]
}

#[tokio::test]
async fn who_does_not_read_an_answer_is_let_go() {
    let _together = stage::together().await;
    let server = stage::server().await;
    let door = Door::of(&server);
    door.health().await;
    let count = if stage::soak() { 200 } else { 20 };
    // Its connection is gone by then.
    sleep(Duration::from_millis(200)).await;
    let before = server.sockets();
    // More than the kernels hold.
    let requests = "GET /api/v1/openapi.json HTTP/1.1\r\nhost: x\r\n\r\n".repeat(10);
    let mut readers = Vec::new();
    for _ in 0..count {
        let mut stream = narrow(door.address.parse().unwrap()).await.unwrap();
        stream.write_all(requests.as_bytes()).await.unwrap();
        readers.push(stream);
    }
    let began = Instant::now();
    while server.sockets() < before + count {
        assert!(began.elapsed() < PATIENCE, "not all are let in");
        sleep(Duration::from_millis(5)).await;
    }
    let mut times = Vec::new();
    while server.sockets() > before {
        assert!(began.elapsed() < PATIENCE, "held for over {PATIENCE:?}");
        times.push(door.health().await);
        sleep(Duration::from_millis(20)).await;
    }
    let (took, slow) = (began.elapsed(), p99(&mut times));
    println!("{count} who do not read, let go after {took:?}; /healthz p99 {slow:.1} ms");
    assert!(took > Duration::from_secs(5), "a pause is forgiven");
    assert!(slow < 50.0, "/healthz p99 {slow} ms");
    drop(readers);
}

#[tokio::test]
async fn idle_connections_are_cheap() {
    let count = if stage::soak() { 10_000 } else { 1000 };
    idle(stage::setup(), count).await;
}

/// Fewer in soak: they have to shake hands before the first ones are let go.
#[tokio::test]
async fn idle_connections_in_tls_are_cheap() {
    let count = if stage::soak() { 5000 } else { 1000 };
    idle(stage::setup().tls(), count).await;
}

async fn idle(setup: Setup, count: usize) {
    let _together = stage::together().await;
    // All come from one address.
    let setup = setup.set("SERVER__MAX_CONNECTIONS_PER_IP", "20000");
    let server = setup.start().await;
    let door = Door::of(&server);
    health(&door, Duration::from_millis(200)).await;
    let before = server.memory_kib();
    let mut idle = Vec::with_capacity(count);
    while idle.len() < count {
        // Some at once: a handshake is work on both sides.
        let more = join_all((0..50).map(|_| timeout(Duration::from_secs(5), door.open())));
        idle.extend(more.await.into_iter().map(|open| open.expect("in time")));
    }
    let slow = health(&door, Duration::from_secs(1)).await;
    let each = server.memory_kib().saturating_sub(before) as f64 / count as f64;
    println!("{count} idle connections: {each:.1} KiB each, /healthz p99 {slow:.1} ms");
    assert!(each <= 20.0, "{each} KiB each");
    assert!(slow < 20.0, "/healthz p99 {slow} ms");
    let until = Instant::now() + PATIENCE;
    for stream in &mut idle {
        let end = timeout_at(until, stream.read(&mut [0; 16])).await;
        assert!(end.is_ok(), "an idle connection lasts over {PATIENCE:?}");
    }
}
