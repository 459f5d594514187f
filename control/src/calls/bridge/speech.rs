//! The speech providers of a call: its agent's, or those that announce that a message is taken.

use media::config::{AgentConfig, Language};

use crate::agents::{Agent, Builtins, Variables};
use crate::http::ApiError;
use crate::node::Node;
use crate::vendors::{CallSpeech, ProviderRole, SpeechUnavailable};
use crate::voices;

/// Whether a call of this agent could be served at all; asked before a session is opened.
pub fn can_speak(app: &Node, agent: &Agent) -> Result<(), ApiError> {
    let told = agent
        .settings
        .engine_config(&Variables::new(), &Builtins::default());
    match speech(app, agent, &told) {
        Ok(_) => Ok(()),
        Err(SpeechUnavailable {
            what: _,
            why,
            may_pass: true,
        }) => Err(ApiError::Unavailable {
            code: "service_unavailable",
            message: why,
            retry_after: 5,
        }),
        Err(SpeechUnavailable {
            what,
            why,
            may_pass: false,
        }) => {
            let code = match what {
                ProviderRole::Voice => "voice_unavailable",
                ProviderRole::Model | ProviderRole::Recogniser => "validation_error",
            };
            Err(ApiError::unprocessable(code, why))
        }
    }
}

/// The speech providers of a call of this agent.
pub(super) fn speech(
    app: &Node,
    agent: &Agent,
    told: &AgentConfig,
) -> Result<CallSpeech, SpeechUnavailable> {
    let voice = voices::find(&agent.settings.voice_id).ok_or_else(|| SpeechUnavailable {
        what: ProviderRole::Voice,
        why: "The agent's voice is not offered any more".to_owned(),
        may_pass: false,
    })?;
    let voice = voice.styled(agent.settings.dialect_style.as_deref());
    app.speech
        .providers(&voice, &agent.settings.llm_model, told)
}

/// Who announces that a message is taken: the agent's voice, or a default one.
pub(super) fn announcer(app: &Node, agent: Option<&Agent>, language: Language) -> CallSpeech {
    let voice = match agent {
        Some(agent) => voices::find(&agent.settings.voice_id)
            .map(|voice| voice.styled(agent.settings.dialect_style.as_deref())),
        None => voices::catalogue::default_voice().cloned(),
    };
    app.speech.announcer(voice.as_ref(), language)
}
