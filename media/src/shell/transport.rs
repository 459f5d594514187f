//! A caller's way to the call: a WebSocket of their own, the thread's UDP port, or a telephone line with
//! two ports of its own.

use mio::{Registry, Token};

use super::peer::PeerConnection;
use super::rtp::RtpLine;
use super::socket::Socket;
use super::tools::Tools;
use crate::call::input::Input;
use crate::peer::PeerState;
use crate::time::Time;

#[allow(
    clippy::large_enum_variant,
    reason = "a call has one, in a box of its own"
)]
pub(super) enum Transport {
    Socket(Socket),
    Peer(Box<PeerConnection>),
    Rtp(Box<RtpLine>),
}

impl Transport {
    /// The call begins: its first input.
    pub(super) fn begin(&mut self, now: Time) -> Input<'static> {
        match self {
            Self::Socket(_) => Input::Connected,
            Self::Peer(_) => Input::Peer(PeerState::New),
            // Its INVITE is being answered.
            Self::Rtp(line) => {
                line.start(now);
                Input::Connected
            }
        }
    }

    /// The thread comes to this call again: what it may read in a pass is counted anew.
    pub(super) fn new_pass(&mut self) {
        match self {
            Self::Socket(socket) => socket.new_pass(),
            Self::Peer(_) => {}
            Self::Rtp(line) => line.new_pass(),
        }
    }

    /// Sends the caller a message.
    pub(super) fn say(&mut self, now: Time, text: &str, tools: &mut Tools) {
        match (self, &tools.webrtc) {
            (Self::Socket(socket), _) => socket.send(text, &mut tools.scratch),
            (Self::Peer(peer), Some(webrtc)) => peer.text(now, text, &webrtc.net),
            // A telephone has no messages.
            (Self::Peer(_), None) | (Self::Rtp(_), _) => {}
        }
    }

    /// Each has two tokens; only a telephone line has two sockets.
    pub(super) fn register(
        &mut self,
        registry: &Registry,
        tokens: [Token; 2],
    ) -> std::io::Result<()> {
        match self {
            Self::Socket(socket) => socket.register(registry, tokens[0]),
            // The port is the thread's.
            Self::Peer(_) => Ok(()),
            Self::Rtp(line) => line.register(registry, tokens),
        }
    }

    /// The poll said so of the socket with this one of the tokens; see [`Socket::ready`].
    pub(super) fn ready(&mut self, token: usize, readable: bool, writable: bool, end: bool) {
        match self {
            Self::Socket(socket) => socket.ready(readable, writable, end),
            Self::Peer(_) => {}
            Self::Rtp(line) => line.ready(token),
        }
    }

    /// Come again without waiting for the poll.
    pub(super) fn wants_more(&self) -> bool {
        match self {
            Self::Socket(socket) => socket.wants_more(),
            Self::Peer(_) => false,
            Self::Rtp(line) => line.wants_more(),
        }
    }

    pub(super) fn close(&mut self, now: Time, code: u16, reason: &'static str) {
        match self {
            Self::Socket(socket) => socket.close(now, code, reason),
            Self::Peer(peer) => peer.close(now),
            Self::Rtp(line) => line.close(now),
        }
    }

    pub(super) fn deadline(&self) -> Time {
        match self {
            Self::Socket(socket) => socket.deadline(),
            Self::Peer(peer) => peer.deadline(),
            Self::Rtp(line) => line.deadline(),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        match self {
            Self::Socket(socket) => socket.is_over(),
            Self::Peer(peer) => peer.is_over(),
            Self::Rtp(line) => line.is_over(),
        }
    }

    /// Bytes read and written since the last asking; those of the UDP port are counted there.
    pub(super) fn take_traffic(&mut self) -> (u64, u64) {
        match self {
            Self::Socket(socket) => socket.take_traffic(),
            Self::Peer(_) => (0, 0),
            Self::Rtp(line) => line.take_traffic(),
        }
    }
}
