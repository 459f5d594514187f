//! The transport of a call: its WebSocket, peer connection or telephone line is read, and written where bytes wait.

use super::Live;
use crate::call::input::{Gone, Input};
use crate::leg::RtpPacket;
use crate::leg::rtp::RtpPlan;
use crate::peer::{PeerAnswer, PeerError, PeerRequest};
use crate::rtp::packet::Packet;
use crate::rtp::sdp::Agreed;
use crate::shell::counters::count;
use crate::shell::engine::{CallNews, tell};
use crate::shell::peer::{Datagram, PeerEvent};
use crate::shell::rtp::Taken;
use crate::shell::socket::Received;
use crate::shell::tools::Tools;
use crate::shell::transport::Transport;
use crate::time::Time;

/// What both sides of a telephone call agreed on anew.
pub(in crate::shell) struct Renewal {
    pub(in crate::shell) agreed: Agreed,
    pub(in crate::shell) plan: RtpPlan,
}

impl Live {
    /// Both sides of a telephone call agreed anew.
    pub(in crate::shell) fn renew(&mut self, now: Time, renewal: Renewal, tools: &mut Tools) {
        if let Transport::Rtp(line) = &mut self.line {
            line.renew(renewal.agreed);
            self.deliver(now, Input::Media(renewal.plan), tools);
        }
    }

    /// Hands a datagram to the call's connection, and what it held to the call.
    pub(in crate::shell) fn datagram(&mut self, now: Time, datagram: Datagram, tools: &mut Tools) {
        self.guarded(now, tools, |live, tools| {
            if let (Transport::Peer(peer), Some(webrtc)) = (&mut live.line, &mut tools.webrtc) {
                let Datagram { from, bytes, .. } = datagram;
                peer.datagram(now, from, bytes, &webrtc.identity, &mut webrtc.net);
                live.hear(now, tools);
            }
        });
    }

    /// Asks something of the call's connection.
    pub(in crate::shell) fn ask(
        &mut self,
        now: Time,
        request: PeerRequest,
        answer: PeerAnswer,
        tools: &mut Tools,
    ) {
        self.guarded(now, tools, |live, tools| {
            let reply = match (&mut live.line, &mut tools.webrtc) {
                (Transport::Peer(peer), Some(webrtc)) => {
                    peer.request(now, request, &webrtc.identity, &mut webrtc.net)
                }
                _ => Err(PeerError::NoPeer),
            };
            answer(reply);
            live.hear(now, tools);
        });
    }

    pub(super) fn read(&mut self, now: Time, tools: &mut Tools) {
        if let Transport::Rtp(_) = self.line {
            let mut datagram = std::mem::take(&mut tools.datagram);
            self.read_line(now, &mut datagram, tools);
            tools.datagram = datagram;
        }
        while let Transport::Socket(socket) = &mut self.line {
            match socket.receive(now) {
                Received::Text(text) => self.handle(now, Input::Text(&text), tools),
                Received::Binary(bytes) => self.handle(now, Input::Binary(&bytes), tools),
                Received::Nothing => return,
                Received::Gone => {
                    if socket.take_violation() {
                        count(&tools.tallies.violations, 1);
                    }
                    return self.gone(now, Gone::Closed, tools);
                }
            }
        }
    }

    fn read_line(&mut self, now: Time, datagram: &mut [u8], tools: &mut Tools) {
        while let Transport::Rtp(line) = &mut self.line {
            match line.receive(now, datagram) {
                Taken::Packet(length) => {
                    if let Some(packet) = Packet::parse(&datagram[..length]) {
                        self.handle(now, Input::Packet(packet), tools);
                    }
                }
                Taken::Report(report) => self.handle(now, Input::Report(report), tools),
                Taken::Nothing => return,
            }
        }
    }

    /// Gives the call what its connection has for it.
    fn hear(&mut self, now: Time, tools: &mut Tools) {
        while let Transport::Peer(peer) = &mut self.line
            && let Some(heard) = peer.heard()
        {
            match heard {
                PeerEvent::Packet {
                    payload_type,
                    marker,
                    sequence,
                    timestamp,
                    ssrc,
                    payload,
                } => {
                    let packet = RtpPacket {
                        payload_type,
                        marker,
                        sequence,
                        timestamp,
                        ssrc,
                        payload: &payload,
                    };
                    self.handle(now, Input::Packet(packet), tools);
                }
                PeerEvent::Text(bytes) => match std::str::from_utf8(&bytes) {
                    Ok(text) => self.handle(now, Input::Text(text), tools),
                    Err(_) => self.handle(now, Input::Binary(&bytes), tools),
                },
                PeerEvent::Binary(bytes) => self.handle(now, Input::Binary(&bytes), tools),
                PeerEvent::State(state) => self.handle(now, Input::Peer(state), tools),
                PeerEvent::Hold(hold) => self.handle(now, Input::Hold(hold), tools),
                PeerEvent::Sends(sends) => self.handle(now, Input::Sends(sends), tools),
                PeerEvent::Limit(most_bits) => self.handle(now, Input::Limit(most_bits), tools),
                PeerEvent::Report(report) => self.handle(now, Input::Report(report), tools),
            }
        }
    }

    /// Sends what waits, and looks at what became of the line.
    pub(super) fn flush(&mut self, now: Time, tools: &mut Tools) {
        match &mut self.line {
            Transport::Socket(socket) => {
                socket.expire(now);
                socket.flush(now);
                if socket.take_stalled() {
                    count(&tools.tallies.stalled, 1);
                    // Before the call's end, which would close it as a good one.
                    self.line.close(now, 1011, "reader too slow");
                    self.gone(now, Gone::Stalled, tools);
                } else if socket.is_over() {
                    self.gone(now, Gone::Closed, tools);
                }
            }
            Transport::Peer(peer) => {
                if let Some(webrtc) = &mut tools.webrtc {
                    peer.serve(now, &mut webrtc.net);
                }
                self.hear(now, tools);
                self.tell_quality(now);
            }
            Transport::Rtp(line) => {
                if let Some(quality) = line.report(now, &mut tools.packet) {
                    tell(&self.on_event, CallNews::Network(quality));
                }
            }
        }
    }

    fn tell_quality(&mut self, now: Time) {
        if let Transport::Peer(peer) = &mut self.line
            && let Some(machine) = &self.machine
            && let Some(quality) = peer.quality(now, machine.call.network())
        {
            tell(&self.on_event, CallNews::Network(quality));
        }
    }

    fn gone(&mut self, now: Time, how: Gone, tools: &mut Tools) {
        if let Some(machine) = &mut self.machine
            && !machine.gone
        {
            machine.gone = true;
            self.handle(now, Input::Gone(how), tools);
        }
    }
}
