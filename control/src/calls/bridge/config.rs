//! The engine's configuration of a call, from the call's record, its agent and the settings of this server.

use media::config::{
    AgentConfig, AudioFormat, CallConfig, Direction, Language, MessageLimits, OptionalEvents,
    Protocol,
};
use serde_json::Value;

use crate::agents::{Agent, Builtins, Variables};
use crate::calls::rules as calls;
use crate::calls::store::{CallRow, NewCall};
use crate::ids::{AgentId, CallId};
use crate::node::Node;
use crate::time::Timestamp;

/// A call's record, as far as the engine is told of it.
pub struct Facts<'a> {
    id: CallId,
    agent_id: AgentId,
    agent_name: &'a str,
    direction: calls::Direction,
    pub(super) channel: calls::Channel,
    from_number: Option<&'a str>,
    to_number: Option<&'a str>,
    /// Of the agent's placeholders.
    variables: &'a Value,
    /// In place of the agent's.
    max_duration_seconds: Option<u32>,
}

impl<'a> From<&'a CallRow> for Facts<'a> {
    fn from(call: &'a CallRow) -> Self {
        Self {
            id: call.id,
            agent_id: call.agent_id,
            agent_name: &call.agent_name,
            direction: call.direction,
            channel: call.channel,
            from_number: call.from_number.as_deref(),
            to_number: call.to_number.as_deref(),
            variables: &call.dynamic_variables,
            max_duration_seconds: call.max_duration_seconds,
        }
    }
}

impl<'a> From<&NewCall<'a>> for Facts<'a> {
    fn from(call: &NewCall<'a>) -> Self {
        Self {
            id: call.id,
            agent_id: call.agent_id,
            agent_name: call.agent_name,
            direction: call.direction,
            channel: call.channel,
            from_number: call.from_number,
            to_number: call.to_number,
            variables: call.dynamic_variables,
            max_duration_seconds: None,
        }
    }
}

/// A caller who has left a message and says no more is let go after this, seconds.
const MESSAGE_SILENCE: u32 = 8;

/// What the engine is told of a call; how it is reached stands there until it is known.
pub(super) fn call_config(app: &Node, call: &Facts<'_>, agent: &Agent) -> CallConfig {
    let variables: Variables = call.variables.as_object().cloned().unwrap_or_default();
    let mut told = agent
        .settings
        .engine_config(&variables, &builtins(call, agent, app.clock.now()));
    if let Some(seconds) = call.max_duration_seconds {
        told.max_duration_seconds = seconds;
    } else if agent.settings.max_duration_seconds.is_none() {
        told.max_duration_seconds = app.config.engine.max_duration_seconds;
    }
    if agent.settings.max_tokens.is_none() {
        told.max_tokens = app.config.engine.max_tokens;
    }
    CallConfig {
        recording: agent.settings.recording_enabled,
        ..engine_config(app, call, told)
    }
}

/// What the engine is told of a call that takes a message. It is recorded whatever the agent's settings
/// say of conversations: that is what it is for.
pub(super) fn message_config(app: &Node, call: &Facts<'_>, agent: Option<&Agent>) -> CallConfig {
    let language = agent.map_or(Language::English, |agent| agent.settings.language);
    let announcement = match language {
        Language::English => {
            "Nobody can take your call right now. Please leave a message after the tone."
        }
        Language::French => {
            "Personne ne peut prendre votre appel pour le moment. Laissez un message après le signal."
        }
    };
    let told = AgentConfig {
        name: call.agent_name.to_owned(),
        first_message: Some(announcement.to_owned()),
        language,
        interruption_enabled: false,
        message: Some(MessageLimits {
            max_seconds: app.config.sip.message_seconds,
            silence_seconds: MESSAGE_SILENCE,
        }),
        ..AgentConfig::default()
    };
    CallConfig {
        recording: true,
        ..engine_config(app, call, told)
    }
}

/// What every call has.
fn engine_config(app: &Node, call: &Facts<'_>, agent: AgentConfig) -> CallConfig {
    CallConfig {
        session_id: call.id.to_string(),
        agent_id: call.agent_id.to_string(),
        direction: match call.direction {
            calls::Direction::Outbound => Direction::Outbound,
            calls::Direction::Inbound => Direction::Inbound,
        },
        protocol: Protocol::Native,
        audio_format: AudioFormat::Pcm16000,
        agent,
        recording: false,
        events: OptionalEvents::default(),
        vad: app.config.engine.vad,
        lead_ms: app.config.engine.lead_ms,
    }
}

/// The built-in placeholders of a call.
fn builtins(call: &Facts<'_>, agent: &Agent, now: Timestamp) -> Builtins {
    let now = now.to_string();
    Builtins {
        channel: call.channel.to_string(),
        caller_id: call.from_number.unwrap_or_default().to_owned(),
        called_number: call.to_number.unwrap_or_default().to_owned(),
        direction: call.direction.to_string(),
        conversation_id: call.id.to_string(),
        agent_name: agent.settings.name.clone(),
        // A timestamp is written `YYYY-MM-DDTHH:MM:SS.ffffff+00:00`.
        time_utc: now.get(11..16).unwrap_or_default().to_owned(),
        date: now.get(..10).unwrap_or_default().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::calls::bridge::records;
    use crate::testing::TestApp;

    /// A new agent's session, from record to record as its call would read them.
    async fn session(test: &TestApp, agent: Value, connect: Value) -> (CallRow, Agent) {
        let mut settings =
            json!({"name": "A", "system_prompt": "Be kind.", "voice_id": "scripted-tone"});
        extend(&mut settings, agent);
        let (_, agent) = test.call("POST", "/agents", Some(settings)).await;
        let mut body = json!({"agent_id": agent["id"]});
        extend(&mut body, connect);
        let (_, session) = test.call("POST", "/conversation/connect", Some(body)).await;
        let id = session["session_id"].as_str().unwrap_or("");
        let id: CallId = id.parse().expect("a session");
        let found = records(&test.app, test.account, id).await;
        found.expect("its records")
    }

    fn extend(body: &mut Value, more: Value) {
        if let (Value::Object(body), Value::Object(more)) = (body, more) {
            body.extend(more);
        }
    }

    #[tokio::test]
    async fn the_deployment_says_how_long_a_reply_is_where_the_agent_does_not() {
        let test = TestApp::with(|config| {
            assert_eq!(config.engine.max_tokens, 512, "by default");
            config.engine.max_tokens = 300;
        })
        .await;
        for (own, told) in [(json!(null), 300), (json!(64), 64)] {
            let (call, agent) = session(&test, json!({"max_tokens": own}), json!({})).await;
            let config = call_config(&test.app, &Facts::from(&call), &agent);
            assert_eq!(config.agent.max_tokens, told);
        }
    }

    #[tokio::test]
    async fn caller_phone_fills_the_placeholder_of_its_direction_and_none_of_a_browser() {
        let test = TestApp::new().await;
        let phone = "+4930123456";
        for (direction, transport, caller, called) in [
            ("inbound", "websocket", phone, ""),
            ("outbound", "websocket", "", phone),
            ("inbound", "webrtc", "", ""),
        ] {
            let connect =
                json!({"transport": transport, "direction": direction, "caller_phone": phone});
            let (call, agent) = session(&test, json!({}), connect).await;
            let known = builtins(&Facts::from(&call), &agent, test.app.clock.now());
            assert_eq!(
                (known.caller_id.as_str(), known.called_number.as_str()),
                (caller, called),
                "{transport}, {direction}"
            );
        }
    }
}
