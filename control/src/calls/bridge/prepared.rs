//! A call that is ready for the engine: its configuration, its speech providers, and the trunk that it takes room of.
//! The one who lets a call in prepares it once, and the placing takes it as it is.

use media::config::CallConfig;

use super::config::{Facts, call_config, message_config};
use super::speech::{announcer, speech};
use crate::agents::Agent;
use crate::ids::TrunkId;
use crate::node::Node;
use crate::vendors::{CallSpeech, SpeechUnavailable};

/// A call before it is placed. How it is reached stands in its configuration once it is known.
pub struct Prepared {
    pub(super) config: CallConfig,
    pub(super) speech: CallSpeech,
    /// Whether what is said is kept.
    pub(super) transcript: bool,
    pub(super) channel: String,
    /// Its trunk, and how many calls that may have.
    pub(super) trunk: Option<(TrunkId, u32)>,
}

impl Prepared {
    /// A conversation with this agent.
    pub fn conversation(
        app: &Node,
        call: &Facts<'_>,
        agent: &Agent,
        trunk: Option<(TrunkId, u32)>,
    ) -> Result<Self, SpeechUnavailable> {
        let config = call_config(app, call, agent);
        Ok(Self {
            speech: speech(app, agent, &config.agent)?,
            config,
            transcript: agent.settings.transcription_enabled,
            channel: call.channel.to_string(),
            trunk,
        })
    }

    /// A message that the caller leaves: for this agent, or for the number alone.
    pub fn message(
        app: &Node,
        call: &Facts<'_>,
        agent: Option<&Agent>,
        trunk: Option<(TrunkId, u32)>,
    ) -> Self {
        let config = message_config(app, call, agent);
        Self {
            speech: announcer(app, agent, config.agent.language),
            config,
            transcript: agent.is_none_or(|agent| agent.settings.transcription_enabled),
            channel: call.channel.to_string(),
            trunk,
        }
    }

    /// Whether the caller leaves a message.
    pub(super) fn is_message(&self) -> bool {
        self.config.agent.message.is_some()
    }
}
