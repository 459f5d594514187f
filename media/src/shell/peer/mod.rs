//! One caller over WebRTC: the core that speaks ICE, DTLS, SRTP and SCTP, and what it leaves to us.
//!
//! The core reads no clock and owns no socket; it is driven by the call's media thread. Ours are: who may
//! reach it at all ([`net`]), that a peer's fingerprint never changes unnoticed, directions (hold and
//! resume), a deadline for the handshake, packets that follow a caller whose address changes, and the
//! round trip. Its keys are drawn here, in the shell: what comes out of it (packets, messages, states) is
//! what the call is told, and what its tape holds.

mod channel;
mod codecs;
mod connection;
mod identity;
mod net;
mod offered;
mod plain;
mod reports;
mod sdp;
mod stun;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use self::connection::Connection;
pub use self::connection::check_offer;
pub(super) use self::identity::Identity;
pub(super) use self::net::{Datagram, Net};
use super::mailbox::CallKey;
use crate::call::input::Report;
use crate::peer::{
    Candidate, MediaTotals, PeerError, PeerReply, PeerRequest, PeerState, Quality, Reach,
};
use crate::time::Time;

/// How often the network is reported.
const QUALITY: Duration = Duration::from_secs(2);

/// How long the end of a call may take: what is on the data channel should still arrive.
const CLOSING: Duration = Duration::from_millis(200);

/// Events that wait for the data channel to open, bytes: a minute of a lively call. What is over it is
/// lost, as it is for a client that never opens one.
const MOST_WAITING: usize = 64 << 10;

/// Candidates in one request.
const MOST_CANDIDATES: usize = 100;

/// What the caller's side said, for the call.
#[derive(Debug)]
pub(super) enum PeerEvent {
    Packet {
        payload_type: u8,
        marker: bool,
        sequence: u16,
        timestamp: u32,
        ssrc: u32,
        payload: Bytes,
    },
    Text(BytesMut),
    /// A binary message on the data channel.
    Binary(BytesMut),
    State(PeerState),
    Hold(bool),
    Sends(bool),
    Limit(Option<u32>),
    Report(Report),
}

/// The caller's side of a call over WebRTC.
pub(super) struct PeerConnection {
    key: CallKey,
    reach: Reach,
    connection: Option<Box<Connection>>,
    /// What the call is to be told.
    heard: VecDeque<PeerEvent>,
    /// Events for a data channel that is not open.
    waiting: VecDeque<String>,
    waiting_bytes: usize,
    state: PeerState,
    /// The connection was given something to send.
    stirred: bool,
    closing: Option<Time>,
    over: bool,
    quality_at: Time,
    /// The totals at the report before.
    told: MediaTotals,
}

impl PeerConnection {
    pub(super) fn new(key: CallKey, reach: Reach) -> Self {
        Self {
            key,
            reach,
            connection: None,
            heard: VecDeque::with_capacity(8),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            state: PeerState::New,
            stirred: false,
            closing: None,
            over: false,
            quality_at: Time::NEVER,
            told: MediaTotals::default(),
        }
    }

    /// Does what the control plane asks.
    pub(super) fn request(
        &mut self,
        now: Time,
        request: PeerRequest,
        identity: &Identity,
        net: &mut Net,
    ) -> Result<PeerReply, PeerError> {
        if self.closing.is_some() {
            return Err(PeerError::NoPeer);
        }
        let reply = match request {
            PeerRequest::Offer { sdp, fresh } => self.offered(now, &sdp, fresh, identity, net),
            PeerRequest::MakeOffer => self.make_offer(now, identity, net),
            PeerRequest::Answer { sdp } => {
                let connection = self.connection.as_mut().ok_or(PeerError::NoPeer)?;
                connection.answered(now, &sdp, net)?;
                self.described();
                Ok(PeerReply::Done)
            }
            PeerRequest::Candidates(candidates) => self.candidates(&candidates),
        };
        self.pump(now, net);
        reply
    }

    fn offered(
        &mut self,
        now: Time,
        sdp: &str,
        fresh: bool,
        identity: &Identity,
        net: &mut Net,
    ) -> Result<PeerReply, PeerError> {
        let old = if fresh {
            None
        } else {
            self.connection.as_mut()
        };
        if let Some(connection) = old {
            let answer = connection.answer(now, sdp, net)?;
            self.described();
            return Ok(PeerReply::Description(answer));
        }
        let mut connection = Connection::new(self.key, self.reach, now, identity, net)?;
        let answer = match connection.answer(now, sdp, net) {
            Ok(answer) => answer,
            Err(error) => {
                connection.forget(net);
                return Err(error);
            }
        };
        self.replace(Box::new(connection), now, net);
        self.described();
        Ok(PeerReply::Description(answer))
    }

    /// The caller's description was taken.
    fn described(&mut self) {
        if let Some(connection) = &self.connection {
            self.heard.extend([
                PeerEvent::Hold(connection.is_held()),
                PeerEvent::Sends(connection.sends()),
                PeerEvent::Limit(connection.limit()),
            ]);
        }
    }

    fn make_offer(
        &mut self,
        now: Time,
        identity: &Identity,
        net: &mut Net,
    ) -> Result<PeerReply, PeerError> {
        if self.connection.is_some() {
            return Err(PeerError::Failed(
                "the call has a connection already".to_owned(),
            ));
        }
        let mut connection = Connection::new(self.key, self.reach, now, identity, net)?;
        let offer = connection.offer(now, net)?;
        self.replace(Box::new(connection), now, net);
        Ok(PeerReply::Description(offer))
    }

    fn replace(&mut self, connection: Box<Connection>, now: Time, net: &mut Net) {
        if let Some(mut old) = self.connection.replace(connection) {
            old.close(now, net);
            old.forget(net);
        }
        self.state = PeerState::New;
    }

    fn candidates(&mut self, candidates: &[Candidate]) -> Result<PeerReply, PeerError> {
        let connection = self.connection.as_mut().ok_or(PeerError::NoPeer)?;
        if candidates.len() > MOST_CANDIDATES {
            let why = format!("more than {MOST_CANDIDATES} candidates");
            return Err(PeerError::InvalidCandidate(MOST_CANDIDATES, why));
        }
        connection.add_candidates(candidates)?;
        Ok(PeerReply::Accepted(candidates.len()))
    }

    /// A datagram that may be for this call.
    pub(super) fn datagram(
        &mut self,
        now: Time,
        from: SocketAddr,
        bytes: BytesMut,
        identity: &Identity,
        net: &mut Net,
    ) {
        if let Some(connection) = &mut self.connection {
            let settled = connection.datagram(now, from, bytes, identity, net, &mut self.heard);
            if !settled {
                self.pump(now, net);
            }
        }
    }

    /// Sends a payload as a packet.
    pub(super) fn packet(
        &mut self,
        now: Time,
        timestamp: u32,
        marker: bool,
        payload: &[u8],
        net: &mut Net,
    ) {
        if let Some(connection) = &mut self.connection {
            connection.packet(now, timestamp, marker, payload, net);
        }
    }

    /// Sends an event on the data channel, or keeps it until there is one.
    pub(super) fn text(&mut self, now: Time, text: &str, net: &Net) {
        if let Some(connection) = &mut self.connection
            && connection.is_open()
        {
            connection.text(now, text, net);
            self.stirred = true;
        } else if self.waiting_bytes + text.len() <= MOST_WAITING {
            self.waiting_bytes += text.len();
            self.waiting.push_back(text.to_owned());
        }
    }

    /// The call is over: what is queued is sent, then the connection is closed.
    pub(super) fn close(&mut self, now: Time) {
        self.closing.get_or_insert(now + CLOSING);
        self.quality_at = Time::NEVER;
        self.over |= self.connection.is_none();
    }

    /// Does what is due, and sends what waits.
    pub(super) fn serve(&mut self, now: Time, net: &mut Net) {
        let due = self
            .connection
            .as_ref()
            .is_some_and(|connection| connection.deadline() <= now);
        if due || std::mem::take(&mut self.stirred) {
            if let Some(connection) = &mut self.connection {
                connection.timeout(now, net);
            }
            self.pump(now, net);
        }
        if self.closing.is_some_and(|at| at <= now) && !self.over {
            self.over = true;
            if let Some(connection) = &mut self.connection {
                connection.close(now, net);
            }
        }
    }

    /// The next thing for the call.
    pub(super) fn heard(&mut self) -> Option<PeerEvent> {
        self.heard.pop_front()
    }

    pub(super) fn deadline(&self) -> Time {
        if self.over {
            return Time::NEVER;
        }
        let core = self
            .connection
            .as_ref()
            .map_or(Time::NEVER, |connection| connection.deadline());
        core.min(self.quality_at)
            .min(self.closing.unwrap_or(Time::NEVER))
    }

    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// Nothing that comes is for this call any more.
    pub(super) fn forget(&mut self, net: &mut Net) {
        if let Some(connection) = &mut self.connection {
            connection.forget(net);
        }
    }

    /// How the network was, if it is time to say so. `totals` and `jitter` are the call's.
    pub(super) fn quality(
        &mut self,
        now: Time,
        network: Option<(MediaTotals, Duration)>,
    ) -> Option<Quality> {
        if now < self.quality_at {
            return None;
        }
        self.quality_at = now + QUALITY;
        let (totals, jitter) = network?;
        let before = std::mem::replace(&mut self.told, totals);
        let (came, lost) = (
            totals.packets - before.packets,
            totals.lost - before.lost.min(totals.lost),
        );
        let (rtt_ms, remote_loss_pct) = self
            .connection
            .as_ref()
            .map_or((None, None), |connection| connection.measured());
        let loss_pct = if came + lost > 0 {
            lost as f64 * 100.0 / (came + lost) as f64
        } else {
            0.0
        };
        let jitter_ms = jitter.as_secs_f64() * 1000.0;
        let worst = loss_pct.max(remote_loss_pct.unwrap_or(0.0));
        Some(Quality {
            rtt_ms,
            loss_pct,
            jitter_ms,
            remote_loss_pct,
            mos: (totals.packets > 0)
                .then(|| Quality::estimate(worst, jitter_ms, rtt_ms.unwrap_or(0.0))),
        })
    }

    /// Moves what the core has for us.
    fn pump(&mut self, now: Time, net: &mut Net) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        connection.pump(now, net, &mut self.heard);
        let state = connection.state(now);
        if state != self.state && self.closing.is_none() {
            self.state = state;
            self.heard.push_back(PeerEvent::State(state));
            self.quality_at = if state == PeerState::Connected {
                now + QUALITY
            } else {
                Time::NEVER
            };
        }
        if !self.waiting.is_empty() && connection.is_open() {
            self.waiting_bytes = 0;
            for text in self.waiting.drain(..) {
                connection.text(now, &text, net);
            }
        }
    }
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]
mod tests;
