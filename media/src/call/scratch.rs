//! What a call needs only from an input to the end of its outputs: buffers that the calls of one thread share.
//!
//! A node's calls do not fit into its processor's cache, and each comes up every few milliseconds: what it touches
//! has to be fetched anew. Buffers that all of a thread's calls use in turn stay where they are, and cost memory once.

use super::found::Found;
use super::outbox::Waiting;
use crate::frame::FRAME;
use crate::leg::Coding;

/// One set of them. A call that is lent none ([`Call::exchange`](super::Call::exchange)) has its own, which grow as
/// they are used.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(super) coding: Coding,
    /// What one message held, and its sound.
    pub(super) found: Vec<Found>,
    pub(super) incoming: Vec<i16>,
    /// A voice's sound at the engine's rate.
    pub(super) resampled: Vec<i16>,
    pub(super) waiting: Waiting,
}

impl Scratch {
    /// With room for what calls need as a rule.
    pub fn with_room() -> Self {
        Self {
            coding: Coding::default(),
            found: Vec::with_capacity(8),
            incoming: Vec::with_capacity(4 * FRAME),
            resampled: Vec::with_capacity(4 * FRAME),
            waiting: Waiting::with_room(),
        }
    }
}
