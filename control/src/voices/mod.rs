//! Voices: the catalogue that an agent's `voice_id` chooses from (document 2, Voices).
//!
//! The offline voices are data in [`crate::catalogue`]; their ids are UUID v5 of the voice key, so they are
//! the same on every installation. A voice whose program is not installed is not offered. Voices of an
//! account's own (clones) will be rows beside them and win over a catalogue voice of the same id.

pub mod dialects;
pub mod http;
pub mod preview;
pub mod rules;
pub mod wire;

pub use crate::catalogue::{countries, voices as catalogue};
pub use catalogue::{Engine, Voice, find};

#[cfg(test)]
mod http_tests;
