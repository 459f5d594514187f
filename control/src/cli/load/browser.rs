//! One call of a load run over WebRTC, as a browser would make it: a peer connection with a socket of its
//! own, which sends the stimulus as Opus, hears the agent and reads its events.

use std::io::ErrorKind;
use std::net::Ipv4Addr;

use mio::net::UdpSocket;
use rtc::peer_connection::state::RTCPeerConnectionState;
use serde_json::{Value, json};

use super::arrival;
use super::connection::{Connection, Received};
use super::listener::{FRAME_US, Figures, Listener};
use super::stimulus::Stimulus;

/// Units of Opus' RTP clock in a frame (RFC 7587 section 4.1: 48 kHz).
const UNITS: u32 = 960;
/// A connection that is not there by then does not come, μs.
const PATIENCE_US: u64 = 20_000_000;

/// One call.
pub(super) struct BrowserCaller {
    connection: Connection,
    pub(super) socket: UdpSocket,
    timestamp: u32,
    /// The next frame of the stimulus.
    at: usize,
    ear: Listener,
}

impl BrowserCaller {
    /// A call that starts its stimulus at that frame, and its offer.
    pub(super) fn new(at: usize, ssrc: u32) -> Result<(Self, String), String> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0).into()).map_err(text)?;
        arrival::note(&socket).map_err(text)?;
        let address = socket.local_addr().map_err(text)?;
        let (connection, offer) = Connection::new(address, ssrc)?;
        let peer = Self {
            connection,
            socket,
            timestamp: 0,
            at,
            ear: Listener::without_lead(),
        };
        Ok((peer, offer))
    }

    /// Takes the server's answer; the way is looked for from here on.
    pub(super) fn accept(&mut self, answer: &str) -> Result<(), String> {
        self.connection.accept(answer)
    }

    /// Does what is due by the clock.
    pub(super) fn keep(&mut self) {
        self.connection.keep();
    }

    /// Sends the next frame of caller audio. An error means that the call is lost.
    pub(super) fn tick(
        &mut self,
        now: u64,
        stimulus: &Stimulus,
        figures: &mut Figures,
    ) -> Result<(), String> {
        match self.connection.state() {
            RTCPeerConnectionState::Connected => {}
            RTCPeerConnectionState::New | RTCPeerConnectionState::Connecting
                if now < PATIENCE_US =>
            {
                return Ok(());
            }
            state => return Err(format!("a connection is {state}")),
        }
        let frame = self.at % stimulus.frames.len();
        self.at = frame + 1;
        self.ear.caller(now, stimulus.events[frame], figures);
        self.timestamp = self.timestamp.wrapping_add(UNITS);
        let Some(payload) = stimulus.opus.get(frame).and_then(Option::as_ref) else {
            return Ok(());
        };
        self.connection.send(self.timestamp, payload)?;
        figures.frames_out += 1;
        Ok(())
    }

    /// Reads what the socket has. `buffer` is longer than any datagram of the server's.
    pub(super) fn read(
        &mut self,
        buffer: &mut [u8],
        now: &impl Fn() -> u64,
        figures: &mut Figures,
    ) -> Result<(), String> {
        loop {
            let arrival = match arrival::read(&self.socket, buffer) {
                Ok(arrival) => arrival,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                // An ICMP error of an earlier datagram says nothing about the next.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => continue,
                Err(error) => return Err(format!("a socket broke: {error}")),
            };
            let came = arrival.before(now());
            let Some(from) = arrival.from else { continue };
            let (ear, mut ping) = (&mut self.ear, None);
            self.connection
                .receive(from, &buffer[..arrival.length], |received| match received {
                    Received::Voice { marker } => {
                        // A talkspurt begins: the silence before it was meant.
                        if marker {
                            ear.resume();
                        }
                        ear.frame(came, FRAME_US, figures);
                    }
                    Received::Event(event) => {
                        let event: Value = serde_json::from_slice(&event).unwrap_or_default();
                        match event["type"].as_str() {
                            Some("interruption") => ear.clear(came, figures),
                            Some("ping") => ping = Some(event["event_id"].clone()),
                            _ => {}
                        }
                    }
                });
            if let Some(event_id) = ping {
                let pong = json!({"type": "pong", "event_id": event_id});
                self.connection.tell(&pong.to_string());
            }
        }
        Ok(())
    }

    /// Sends what waits.
    pub(super) fn flush(&mut self) {
        let socket = &self.socket;
        self.connection.flush(|datagram, to| {
            // What the system does not take at once is lost, as on any network.
            let _ = socket.send_to(datagram, to);
        });
    }

    /// Hangs up.
    pub(super) fn stop(&mut self) {
        self.connection.close();
        self.flush();
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
