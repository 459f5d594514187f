//! A caller's way to the call: a WebSocket of their own, or the thread's UDP port.

use mio::{Registry, Token};

use super::peer::Peer;
use super::socket::Socket;
use crate::time::Time;

#[allow(
    clippy::large_enum_variant,
    reason = "a call has one, in a box of its own"
)]
pub(super) enum Line {
    Socket(Socket),
    Peer(Box<Peer>),
}

impl Line {
    pub(super) fn register(&mut self, registry: &Registry, token: Token) -> std::io::Result<()> {
        match self {
            Self::Socket(socket) => socket.register(registry, token),
            // The port is the thread's.
            Self::Peer(_) => Ok(()),
        }
    }

    /// The poll said so; see [`Socket::ready`].
    pub(super) fn ready(&mut self, readable: bool, writable: bool, end: bool) {
        match self {
            Self::Socket(socket) => socket.ready(readable, writable, end),
            Self::Peer(_) => {}
        }
    }

    /// Come again without waiting for the poll.
    pub(super) fn wants_more(&self) -> bool {
        match self {
            Self::Socket(socket) => socket.wants_more(),
            Self::Peer(_) => false,
        }
    }

    pub(super) fn close(&mut self, now: Time, code: u16, reason: &'static str) {
        match self {
            Self::Socket(socket) => socket.close(now, code, reason),
            Self::Peer(peer) => peer.close(now),
        }
    }

    pub(super) fn deadline(&self) -> Time {
        match self {
            Self::Socket(socket) => socket.deadline(),
            Self::Peer(peer) => peer.deadline(),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        match self {
            Self::Socket(socket) => socket.is_over(),
            Self::Peer(peer) => peer.is_over(),
        }
    }

    /// Bytes read and written since the last asking; those of the UDP port are counted there.
    pub(super) fn take_traffic(&mut self) -> (u64, u64) {
        match self {
            Self::Socket(socket) => socket.take_traffic(),
            Self::Peer(_) => (0, 0),
        }
    }
}
