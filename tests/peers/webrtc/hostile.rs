//! Who sends what nobody asked for: media twice or damaged, floods at the media port, key exchanges that
//! race the caller's, another certificate. Calls are kept, and nothing of it is heard.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kit::client::Client;
use kit::ports::free_udp;
use kit::router::Router;
use kit::server::Server;
use serde_json::{Value, json};

use crate::calls::{converse, was_a_conversation};
use crate::phone::{Phone, Session};
use crate::stage;

/// Garbage, packets a second.
const FLOOD: u64 = 10_000;

struct Bed {
    server: Server,
    client: Client,
    router: Router,
    /// The media thread's own address.
    media: SocketAddr,
    agent: String,
}

/// A server whose callers come through a router.
async fn bed() -> Bed {
    let media = free_udp();
    let router = Router::to(media).await;
    let server = stage::setup().behind(&router, media).start().await;
    let client = server.client();
    let agent = stage::agent(&client, json!({})).await;
    Bed {
        server,
        client,
        router,
        media,
        agent,
    }
}

impl Bed {
    async fn call(&self, phone: &mut Phone) -> Session {
        let connect = json!({"agent_id": self.agent});
        phone.call_through_router(&self.client, &connect).await
    }

    /// The totals of a call's packets, once it is over.
    async fn packets(&self, session: &Session) -> Value {
        let told = self
            .client
            .get(&format!("/conversations/{}/diagnostics", session.id))
            .await
            .expect(200);
        told.body["network"]["media"].clone()
    }
}

/// Every packet that the client sent is one that the call took, or fewer: no other was.
fn only_what_was_sent(media: &Value, sent: u64) {
    let taken = media["packets"].as_u64().unwrap();
    assert!(
        taken <= sent,
        "{taken} packets of {sent} were taken: {media}"
    );
    assert!(taken * 10 >= sent * 8, "{taken} of {sent}: {media}");
    assert_eq!(media["duplicates"], 0, "{media}");
}

#[tokio::test]
async fn media_sent_twice_or_damaged_is_dropped_and_the_call_is_kept() {
    let bed = bed().await;
    bed.router.lie(true);
    let mut phone = Phone::start();
    let session = bed.call(&mut phone).await;
    converse(&mut phone).await;
    session.end().await.expect(200);
    was_a_conversation(&bed.client, &session.id).await;
    assert!(bed.router.lied() > 300, "{} lies", bed.router.lied());
    only_what_was_sent(&bed.packets(&session).await, bed.router.media());
}

#[tokio::test]
async fn garbage_at_the_media_port_costs_little_and_is_not_heard() {
    let bed = bed().await;
    let _alone = stage::alone().await;
    let mut phone = Phone::start();
    let session = bed.call(&mut phone).await;
    phone.until("voice").await;
    // In silence: what the flood costs is what the server costs.
    phone.until("silence").await;
    let seconds = if stage::soak() { 30 } else { 3 };
    let before = (bed.server.cpu_ns(), Instant::now());
    let flood = Flood::start(bed.media, bed.router.handshake(1));
    for _ in 0..seconds * 50 {
        // And from the caller's own address: media and records that nobody signed.
        for junk in junk(7) {
            bed.router.slip_in(&junk).await;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let cost = (bed.server.cpu_ns() - before.0) as f64 / before.1.elapsed().as_nanos() as f64;
    let rate = flood.sent() as f64 / before.1.elapsed().as_secs_f64();
    println!(
        "{rate:.0} packets a second cost {:.1} % of a core",
        cost * 100.0
    );
    phone.speak(900).await;
    phone.until("voice").await;
    drop(flood);
    phone.until("silence").await;
    assert!(bed.router.lied() > 100);
    // Where other tests have the processors too, its thread is not always let run; a soak has time and room for all.
    let least = if stage::soak() { 0.98 } else { 0.25 };
    let least = FLOOD as f64 * least;
    assert!(rate > least, "only {rate} packets a second");
    assert!(cost < 0.5, "{cost} of a core");
    session.end().await.expect(200);
    was_a_conversation(&bed.client, &session.id).await;
    only_what_was_sent(&bed.packets(&session).await, bed.router.media());
}

#[tokio::test]
async fn key_exchanges_of_strangers_that_race_the_callers_change_nothing() {
    let bed = bed().await;
    // What a stranger can know: how such a message looks.
    let mut phone = Phone::start();
    let first = bed.call(&mut phone).await;
    first.end().await.expect(200);
    let hello = bed.router.handshake(1).expect("a ClientHello went by");
    let flood = Flood::of(bed.media, vec![hello]);
    let races = if stage::soak() { 100 } else { 5 };
    for race in 0..races {
        let session = bed.call(&mut phone).await;
        let line = race + 2;
        phone
            .until_where("voice", |told| told["line"] == line)
            .await;
        assert_eq!(session.status().await["connection_state"], "connected");
        session.end().await.expect(200);
    }
    assert!(flood.sent() > 1000, "{}", flood.sent());
}

#[tokio::test]
async fn a_certificate_that_the_fingerprint_does_not_name_is_torn_down() {
    let server = stage::server().await;
    let client = server.client();
    let agent = stage::agent(&client, json!({})).await;
    // Each waits until the key exchange has had its time.
    let (phones, calls) = if stage::soak() { (10, 10) } else { (2, 1) };
    let torn_down = (0..phones).map(|_| impostor(&client, &agent, calls));
    futures_util::future::join_all(torn_down).await;
}

/// Calls with another certificate than the offer says: no connection comes of it.
async fn impostor(client: &Client, agent: &str, calls: usize) {
    let mut phone = Phone::start();
    for _ in 0..calls {
        let connected = client
            .post("/conversation/connect", &json!({"agent_id": agent}))
            .await
            .expect(200);
        phone.tell(json!({"do": "new"})).await;
        let offer = other_fingerprint(&phone.offer().await);
        let session = Session::new(client.clone(), connected.text("session_id"));
        let answer = session.offer(&offer, json!({})).await.expect(200);
        phone.answer(&answer).await;
        assert_eq!(failed(&session).await, "failed");
        session.end().await.expect(200);
    }
}

/// The offer with another digest in each fingerprint.
fn other_fingerprint(offer: &str) -> String {
    let change = |line: &str| match line.strip_prefix("a=fingerprint:") {
        Some(print) => {
            let (kind, digest) = print.split_once(' ').unwrap();
            let other = if digest.starts_with("00") { "11" } else { "00" };
            format!("a=fingerprint:{kind} {other}{}", &digest[2..])
        }
        None => line.to_owned(),
    };
    offer
        .split("\r\n")
        .map(change)
        .collect::<Vec<_>>()
        .join("\r\n")
}

/// What became of the connection, once it is no longer on its way.
async fn failed(session: &Session) -> String {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let state = session.status().await["connection_state"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        assert_ne!(state, "connected");
        if !matches!(state.as_str(), "new" | "connecting") || Instant::now() > until {
            return state;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Strangers at a port, from addresses of their own, as long as this is.
struct Flood {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Flood {
    /// STUN, DTLS and RTP, well-formed and not; and a real ClientHello, if there is one.
    fn start(target: SocketAddr, hello: Option<Vec<u8>>) -> Self {
        let mut packets = junk(1);
        packets.extend(hello);
        Self::of(target, packets)
    }

    fn of(target: SocketAddr, packets: Vec<Vec<u8>>) -> Self {
        let (stop, sent) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let (told, count) = (Arc::clone(&stop), Arc::clone(&sent));
        let thread = std::thread::spawn(move || {
            let sockets: Vec<_> = (0..8)
                .map(|_| UdpSocket::bind("127.0.0.1:0").unwrap())
                .collect();
            // 20 ms; in a soak, which asks for the whole rate, 100 ms.
            let late = FLOOD / if stage::soak() { 10 } else { 50 };
            let begun = Instant::now();
            let mut next = 0;
            while !told.load(Ordering::Relaxed) {
                let due = (begun.elapsed().as_secs_f64() * FLOOD as f64) as u64;
                // Whoever was not let run does not catch up by more than this.
                next = due.saturating_sub(late).max(next);
                while next < due {
                    let packet = &packets[next as usize % packets.len()];
                    let _ = sockets[next as usize % sockets.len()].send_to(packet, target);
                    next += 1;
                    count.fetch_add(1, Ordering::Relaxed);
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        Self {
            stop,
            sent,
            thread: Some(thread),
        }
    }

    fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Datagrams that look like something: a STUN request without and with attributes, an answer to nothing,
/// DTLS records, RTP, RTCP, and nothing at all.
fn junk(seed: u8) -> Vec<Vec<u8>> {
    let stun = |kind: [u8; 2], attributes: &[u8]| {
        let mut bytes = kind.to_vec();
        bytes.extend((attributes.len() as u16).to_be_bytes());
        bytes.extend([0x21, 0x12, 0xa4, 0x42]);
        bytes.extend([seed; 12]);
        bytes.extend(attributes);
        bytes
    };
    let filled = |head: &[u8], length: usize| {
        let mut bytes = head.to_vec();
        bytes.resize(length, seed);
        bytes
    };
    // A user name of four letters for one of four, and a tag that nobody made.
    let mut named = vec![0, 6, 0, 9];
    named.extend(b"abcd:efgh\0\0\0");
    named.extend([0, 8, 0, 20]);
    named.extend([seed; 20]);
    vec![
        stun([0, 1], &[]),
        stun([0, 1], &named),
        stun([1, 1], &[0, 32, 0, 8, 0, 1, 2, 3, 4, 5, 6, 7]),
        // ClientHello, application data and an alert of DTLS 1.2, in sequence 0.
        filled(&[22, 254, 253, 0, 0, 0, 0, 0, 0, 0, 0, 0, 60, 1], 73),
        filled(&[23, 254, 253, 0, 1, 0, 0, 0, 0, 0, 0, 0, 60], 73),
        filled(&[21, 254, 253, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 40], 15),
        filled(&[0x80, 111, 0, seed], 172),
        filled(&[0x80, 200, 0, 6], 28),
        filled(&[], 1),
        filled(&[255], 1400),
    ]
}
