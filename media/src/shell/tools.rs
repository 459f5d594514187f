//! The tools that the calls of one media thread share: buffers, ways to the disk, counters and the UDP port.

use std::sync::Arc;

use bytes::BytesMut;
use crossbeam_channel::Sender;

use super::counters::Tallies;
use super::disk::Opening;
use super::peer::{Identity, Net};
use super::recorder::Ring;
use crate::call::Scratch;

/// What the calls of one thread share.
pub(super) struct Tools {
    /// Which thread this is.
    pub(super) thread: usize,
    pub(super) ring: Ring,
    pub(super) openings: Sender<Opening>,
    /// For messages on their way into a send buffer.
    pub(super) scratch: BytesMut,
    /// For a datagram of a telephone call, and for a packet on its way to one.
    pub(super) datagram: Vec<u8>,
    pub(super) packet: Vec<u8>,
    /// Lent to the call at hand.
    pub(super) lent: Scratch,
    pub(super) tallies: Arc<Tallies>,
    /// `None`: this node takes no calls over WebRTC.
    pub(super) webrtc: Option<WebRtc>,
}

/// What calls over WebRTC share.
pub(super) struct WebRtc {
    pub(super) net: Net,
    pub(super) identity: Identity,
}
