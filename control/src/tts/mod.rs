//! Speech synthesis by request: a text in, a WAV or a stream of samples out (document 2, Speech
//! synthesis; the preview of a voice is made here too).
//!
//! A text is spoken a sentence at a time: the next one is asked for when the one before has gone to
//! the client, so a stream holds no more than one sentence, and what all of them hold together is
//! bounded by [`SoundBudget`]. Whoever goes away takes the synthesis with them. Requests have voice threads
//! of their own: a call never waits behind them.

pub mod budget;
mod collector;
pub mod http;
pub mod rules;
pub mod service;
pub mod wire;

use std::ops::Deref;
use std::sync::Arc;

use axum::extract::FromRef;

use crate::node::Node;

pub use budget::SoundBudget;
pub use service::{find_voice, previews, refused, whole_for};

#[cfg(test)]
mod http_tests;

/// What synthesis by request works on: the node, and the sound on its way to clients.
#[derive(Clone)]
pub struct Tts {
    pub node: Node,
    pub desk: Arc<SoundBudget>,
}

impl Deref for Tts {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.node
    }
}

impl FromRef<Tts> for Node {
    fn from_ref(tts: &Tts) -> Self {
        tts.node.clone()
    }
}
