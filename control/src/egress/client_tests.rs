//! The client against servers on loopback: what it refuses, what it follows, where it stops. Names come
//! from a resolver that the test owns; one loopback address plays the public one, the others are what
//! an attacker would like to reach.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Method};
use reqwest::Certificate;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

use super::client::{Answer, Call, Egress, Failure, MAX_BODY};
use super::resolve::{Resolver, Resolving};
use super::url::{Allow, Ports};

/// Plays a public address.
const PUBLIC: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
const PRIVATE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const HOST: &str = "hooks.example.com";

/// Gives its answers in turn, the last one for ever.
#[derive(Clone, Default)]
struct Names {
    answers: Arc<Mutex<VecDeque<Vec<IpAddr>>>>,
    asked: Arc<AtomicUsize>,
}

impl Names {
    fn new(answers: &[&[IpAddr]]) -> Self {
        let answers = answers.iter().map(|answer| answer.to_vec()).collect();
        Self {
            answers: Arc::new(Mutex::new(answers)),
            ..Self::default()
        }
    }
}

impl Resolver for Names {
    fn addresses(&self, _: &str) -> Resolving {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let mut answers = self.answers.lock().unwrap();
        let answer = if answers.len() > 1 {
            answers.pop_front()
        } else {
            answers.front().cloned()
        };
        Box::pin(async move { answer.ok_or_else(|| "NXDOMAIN".to_owned()) })
    }
}

/// What a server says after it has read a request.
#[derive(Clone, Copy)]
enum Manner {
    Says(&'static str),
    /// A good head, then a body without end, as fast as it is taken.
    Endless,
    /// A good head, then a byte each tenth of a second.
    Drips,
    /// Nothing.
    Silent,
}

/// A TLS server for [`HOST`], the certificate to trust it by, and how many connections it has taken.
struct Peer {
    address: SocketAddr,
    root: Certificate,
    taken: Arc<AtomicUsize>,
}

async fn tls(ip: IpAddr, port: u16, manner: Manner) -> Peer {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let made = rcgen::generate_simple_self_signed(vec![HOST.to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind((ip, port)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let taken = Arc::new(AtomicUsize::new(0));
    let count = taken.clone();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::SeqCst);
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                // A client that does not like the certificate goes away here.
                let Ok(mut socket) = acceptor.accept(socket).await else {
                    return;
                };
                let mut request = [0; 4096];
                let _ = socket.read(&mut request).await;
                let head = b"HTTP/1.1 200 OK\r\ncontent-length: 10000000000\r\n\r\n";
                match manner {
                    Manner::Says(text) => drop(socket.write_all(text.as_bytes()).await),
                    Manner::Endless => {
                        let mut sent = socket.write_all(head).await;
                        while sent.is_ok() {
                            sent = socket.write_all(&[b'x'; 16 * 1024]).await;
                        }
                        return;
                    }
                    Manner::Drips => {
                        let mut sent = socket.write_all(head).await;
                        let mut beat = tokio::time::interval(Duration::from_millis(100));
                        while sent.is_ok() {
                            beat.tick().await;
                            sent = socket.write_all(b"x").await;
                            let _ = socket.flush().await;
                        }
                        return;
                    }
                    Manner::Silent => {
                        let _ = socket.read(&mut request).await;
                        return;
                    }
                }
                let _ = socket.shutdown().await;
            });
        }
    });
    let root = Certificate::from_der(made.cert.der()).unwrap();
    Peer {
        address,
        root,
        taken,
    }
}

fn egress(allow: &[&str], names: &Names, roots: Vec<Certificate>) -> Egress {
    let _ = rustls::crypto::ring::default_provider().install_default();
    Egress::with(Allow::parse(allow).unwrap(), Arc::new(names.clone()), roots).unwrap()
}

async fn post(egress: &Egress, url: &str, timeout: Duration) -> Result<Answer, Failure> {
    let call = Call {
        method: Method::POST,
        url,
        ports: Ports::Any,
        headers: HeaderMap::new(),
        body: Bytes::from_static(b"{}"),
        timeout,
    };
    egress.send(call).await
}

const OK: Manner = Manner::Says("HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n");
const PATIENCE: Duration = Duration::from_secs(10);

fn is_unsafe<T>(answer: &Result<T, Failure>) -> bool {
    matches!(answer, Err(Failure::Unsafe(_)))
}

#[tokio::test]
async fn a_name_with_a_public_address_is_reached_there_under_its_own_name() {
    let peer = tls(PUBLIC, 0, OK).await;
    let url = format!("https://{HOST}:{}/in", peer.address.port());
    let names = Names::new(&[&[PUBLIC]]);
    let good = egress(&["127.0.0.2"], &names, vec![peer.root.clone()]);
    assert_eq!(post(&good, &url, PATIENCE).await.unwrap().status, 204);
    // The certificate is for that name and no other.
    let other = url.replace(HOST, "other.example.com");
    let refused = post(&good, &other, PATIENCE).await.unwrap_err();
    assert!(matches!(refused, Failure::Unreachable(_)), "{refused:?}");
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_is_refused() {
    let peer = tls(PUBLIC, 0, OK).await;
    let url = format!("https://{HOST}:{}/in", peer.address.port());
    let stranger = egress(&["127.0.0.2"], &Names::new(&[&[PUBLIC]]), Vec::new());
    let refused = post(&stranger, &url, PATIENCE).await.unwrap_err();
    let told = matches!(&refused, Failure::Unreachable(why) if why.contains("certificate"));
    assert!(told, "{refused:?}");
    assert_eq!(peer.taken.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_private_or_mixed_answer_is_unsafe_and_nobody_is_called() {
    let public = tls(PUBLIC, 0, OK).await;
    let port = public.address.port();
    let private = tls(PRIVATE, port, OK).await;
    let url = format!("https://{HOST}:{port}/in");
    for answer in [
        &[PRIVATE][..],
        &[PUBLIC, PRIVATE],
        &[PRIVATE, PUBLIC],
        &[IpAddr::V6(Ipv4Addr::LOCALHOST.to_ipv6_mapped())],
    ] {
        let roots = vec![public.root.clone(), private.root.clone()];
        let egress = egress(&["127.0.0.2"], &Names::new(&[answer]), roots);
        let refused = post(&egress, &url, PATIENCE).await;
        assert!(is_unsafe(&refused), "{answer:?}: {refused:?}");
    }
    let taken = [&public, &private].map(|peer| peer.taken.load(Ordering::SeqCst));
    assert_eq!(taken, [0, 0]);
}

#[tokio::test]
async fn a_name_that_changes_its_mind_never_reaches_the_second_address() {
    let public = tls(PUBLIC, 0, OK).await;
    let port = public.address.port();
    let private = tls(PRIVATE, port, OK).await;
    let url = format!("https://{HOST}:{port}/in");
    let roots = vec![public.root.clone(), private.root.clone()];
    let (mut good, mut refused) = (0, 0);
    for round in 0..1000 {
        // One look-up a connection: what was judged is what is connected to.
        let flips: [&[IpAddr]; 2] = if round % 2 == 0 {
            [&[PUBLIC], &[PRIVATE]]
        } else {
            [&[PRIVATE], &[PUBLIC]]
        };
        let names = Names::new(&flips);
        let egress = egress(&["127.0.0.2"], &names, roots.clone());
        match post(&egress, &url, PATIENCE).await {
            Ok(_) => good += 1,
            Err(Failure::Unsafe(_)) => refused += 1,
            Err(other) => panic!("{other:?}"),
        }
        assert_eq!(names.asked.load(Ordering::SeqCst), 1);
    }
    assert_eq!((good, refused), (500, 500));
    assert_eq!(private.taken.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn no_spelling_of_an_unsafe_address_is_even_looked_up() {
    let names = Names::new(&[&[PUBLIC]]);
    let egress = egress(&[], &names, Vec::new());
    let table = include_str!("../../../fixtures/unsafe_urls.txt");
    assert!(table.lines().count() >= 60);
    for url in table.lines() {
        let call = Call {
            method: Method::POST,
            url,
            ports: Ports::Https,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            timeout: PATIENCE,
        };
        let answer = egress.send(call).await;
        assert!(is_unsafe(&answer), "{url}: {answer:?}");
    }
    assert_eq!(names.asked.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn an_unknown_name_is_unreachable_and_not_unsafe() {
    let egress = egress(&[], &Names::default(), Vec::new());
    let answer = post(&egress, &format!("https://{HOST}/"), PATIENCE).await;
    let told = matches!(&answer, Err(Failure::Unreachable(why)) if why.contains("NXDOMAIN"));
    assert!(told, "{answer:?}");
}

#[tokio::test]
async fn a_redirection_is_an_answer_and_is_not_followed() {
    let target = tls(PRIVATE, 0, OK).await;
    let manner = Manner::Says(
        "HTTP/1.1 307 Temporary Redirect\r\nlocation: https://127.0.0.1/\r\ncontent-length: 0\r\n\r\n",
    );
    let peer = tls(PUBLIC, 0, manner).await;
    let names = Names::new(&[&[PUBLIC]]);
    let egress = egress(&["127.0.0.2"], &names, vec![peer.root.clone()]);
    let url = format!("https://{HOST}:{}/in", peer.address.port());
    assert_eq!(post(&egress, &url, PATIENCE).await.unwrap().status, 307);
    assert_eq!(target.taken.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn an_endless_body_is_cut_and_a_dripping_or_silent_one_runs_out_of_time() {
    let names = Names::new(&[&[PUBLIC]]);
    for (manner, whole) in [(Manner::Endless, MAX_BODY), (Manner::Drips, 20)] {
        let peer = tls(PUBLIC, 0, manner).await;
        let egress = egress(&["127.0.0.2"], &names, vec![peer.root.clone()]);
        let url = format!("https://{HOST}:{}/in", peer.address.port());
        let began = Instant::now();
        let answer = post(&egress, &url, Duration::from_secs(1)).await.unwrap();
        assert!(began.elapsed() < Duration::from_millis(1500));
        assert_eq!((answer.status, answer.whole), (200, false));
        assert!(answer.body.len() <= whole, "{} bytes", answer.body.len());
    }
    let peer = tls(PUBLIC, 0, Manner::Silent).await;
    let egress = egress(&["127.0.0.2"], &names, vec![peer.root.clone()]);
    let url = format!("https://{HOST}:{}/in", peer.address.port());
    let answer = post(&egress, &url, Duration::from_secs(1)).await;
    assert_eq!(answer.unwrap_err(), Failure::TimedOut);
}
