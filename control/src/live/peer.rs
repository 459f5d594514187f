//! The peer connection of a browser's call, as the routes know it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

/// The peer connection of a browser's call, as the routes know it.
pub struct PeerConnection {
    /// Held while descriptions are exchanged: one exchange at a time.
    pub negotiation: tokio::sync::Mutex<()>,
    exchange: Mutex<PeerExchange>,
}

struct PeerExchange {
    pc_id: String,
    /// Our own offer, until it is answered.
    offered: Option<String>,
}

impl PeerConnection {
    /// A connection that is about to be made.
    pub fn new() -> Self {
        Self {
            negotiation: tokio::sync::Mutex::default(),
            exchange: Mutex::new(PeerExchange {
                pc_id: Uuid::new_v4().to_string(),
                offered: None,
            }),
        }
    }

    /// What requests name it by.
    pub fn pc_id(&self) -> String {
        self.exchange().pc_id.clone()
    }

    pub fn is(&self, pc_id: &str) -> bool {
        self.exchange().pc_id == pc_id
    }

    /// Another connection took its place: its id.
    pub fn renew(&self) -> String {
        let mut exchange = self.exchange();
        exchange.pc_id = Uuid::new_v4().to_string();
        exchange.offered = None;
        exchange.pc_id.clone()
    }

    /// Our offer that waits for its answer.
    pub fn offered(&self) -> Option<String> {
        self.exchange().offered.clone()
    }

    pub fn set_offered(&self, sdp: Option<String>) {
        self.exchange().offered = sdp;
    }

    fn exchange(&self) -> MutexGuard<'_, PeerExchange> {
        // Whole after any panic: each use is one operation.
        self.exchange.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for PeerConnection {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_peer_connection_has_a_new_id_and_no_open_offer() {
        let peer = PeerConnection::new();
        let first = peer.pc_id();
        peer.set_offered(Some("v=0".to_owned()));
        let second = peer.renew();
        assert!(first != second && peer.is(&second) && !peer.is(&first));
        assert_eq!(peer.offered(), None);
    }
}
