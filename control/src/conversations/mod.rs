//! Conversations: what was said. A conversation is the record of its call seen from the side of the
//! words: transcript, audio, feedback. It has no table of its own.

pub mod http;
pub mod rules;
pub mod store;
pub mod wire;
