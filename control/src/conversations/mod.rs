//! Conversations: what was said. A conversation is the record of its call seen from the side of the
//! words: transcript, audio, feedback. It has no table of its own.

pub mod http;
pub mod rules;
pub mod store;
pub mod wire;

use crate::config::Config;
use crate::ids::CallId;

/// The signed URL of a conversation's audio.
pub fn audio_url(config: &Config, id: CallId, token: &str) -> String {
    format!(
        "{}/api/v1/conversations/{id}/audio.wav?token={token}",
        config.server.public_url
    )
}
