//! A browser's call of our own: a peer connection on one socket, which speaks Opus and notes when the agent's
//! packets come.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use control::cli::load::{Connection, Received};
use media::audio::opus::{Encoder, UNITS};
use media::frame::FRAME;
use serde_json::{Value, json};
use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout_at};

use crate::client::Client;
use crate::offer_answer;

/// How long the way to the server may be looked for.
const PATIENCE: Duration = Duration::from_secs(20);

/// A call over WebRTC.
pub struct Browser {
    pub session_id: String,
    connection: Connection,
    socket: UdpSocket,
    encoder: Encoder,
    timestamp: u32,
    next: Instant,
    /// When each packet of the agent's voice came.
    pub came: Vec<Instant>,
    ended: bool,
}

impl Browser {
    /// Calls the agent; once both are connected.
    pub async fn call(client: &Client, agent: &str) -> Self {
        let session = client
            .connect(&json!({"agent_id": agent, "transport": "webrtc"}))
            .await;
        let session_id = session.text("session_id");
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let ssrc = uuid::Uuid::new_v4().as_u128() as u32;
        let (connection, offer) = Connection::new(socket.local_addr().unwrap(), ssrc).unwrap();
        let path = format!("/conversation/{session_id}/offer");
        let body = json!({"type": "offer", "sdp": offer});
        let answer = client.post(&path, &body).await.expect(200).text("sdp");
        offer_answer::check(&offer, &answer);
        let mut browser = Self {
            session_id,
            connection,
            socket,
            encoder: Encoder::new(5).unwrap(),
            timestamp: 0,
            next: Instant::now(),
            came: Vec::new(),
            ended: false,
        };
        browser.connection.accept(&answer).unwrap();
        let until = Instant::now() + PATIENCE;
        while !browser.connection.is_connected() {
            assert!(
                Instant::now() < until && !browser.is_over(),
                "{} does not connect",
                browser.session_id
            );
            browser
                .go_on(Instant::now() + Duration::from_millis(20))
                .await;
        }
        browser.next = Instant::now();
        browser
    }

    /// Whether the call has ended.
    pub fn is_over(&self) -> bool {
        self.ended || self.connection.is_over()
    }

    /// Sends 16 kHz sound in real time, and hears meanwhile. Silence takes its time and is not sent.
    pub async fn speak(&mut self, samples: &[i16]) {
        // Of a time in which nothing was said, nothing is sent later.
        let late = Instant::now().saturating_duration_since(self.next);
        let frames = (late.as_millis() / 20) as u32;
        if frames > 10 {
            self.timestamp = self.timestamp.wrapping_add(FRAME as u32 * UNITS * frames);
            self.next += Duration::from_millis(20) * frames;
        }
        let mut packet = Vec::new();
        for frame in samples.as_chunks::<FRAME>().0 {
            packet.clear();
            if self.encoder.encode(frame, &mut packet).unwrap() {
                self.connection.send(self.timestamp, &packet).unwrap();
            }
            self.timestamp = self.timestamp.wrapping_add(FRAME as u32 * UNITS);
            self.next += Duration::from_millis(20);
            self.go_on(self.next).await;
        }
    }

    pub async fn silence(&mut self, ms: usize) {
        self.speak(&vec![0; 16 * ms]).await;
    }

    pub async fn hang_up(mut self) {
        self.connection.tell(&json!({"type": "end"}).to_string());
        let until = Instant::now() + Duration::from_secs(2);
        while !self.is_over() && Instant::now() < until {
            self.go_on(Instant::now() + Duration::from_millis(20)).await;
        }
        self.connection.close();
        self.flush().await;
    }

    /// Keeps the connection going until then.
    async fn go_on(&mut self, until: Instant) {
        let mut buffer = [0; 2_048];
        loop {
            self.connection.keep();
            self.flush().await;
            let due = self.connection.due().map_or(until, Instant::from_std);
            match timeout_at(until.min(due), self.socket.recv_from(&mut buffer)).await {
                // An ICMP error of an earlier datagram says nothing about the next: the server may be gone.
                Ok(Err(_)) => {}
                Ok(Ok((length, from))) => self.hear(from, &buffer[..length]),
                Err(_) if Instant::now() >= until => return,
                Err(_) => {}
            }
        }
    }

    fn hear(&mut self, from: SocketAddr, datagram: &[u8]) {
        let (came, mut events) = (&mut self.came, Vec::new());
        self.connection
            .receive(from, datagram, |received| match received {
                Received::Voice { .. } => came.push(Instant::now()),
                Received::Event(event) => events.push(event),
            });
        for event in events {
            let event: Value = serde_json::from_slice(&event).unwrap_or_default();
            match event["type"].as_str() {
                Some("ping") => {
                    let pong = json!({"type": "pong", "event_id": event["event_id"]});
                    self.connection.tell(&pong.to_string());
                }
                Some("call_ended") => self.ended = true,
                _ => {}
            }
        }
    }

    async fn flush(&mut self) {
        let mut out = Vec::new();
        self.connection
            .flush(|datagram, to| out.push((datagram.to_vec(), to)));
        for (datagram, to) in out {
            // What the system does not take is lost, as on any network.
            let _ = self.socket.send_to(&datagram, to).await;
        }
    }
}
