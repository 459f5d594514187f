//! The typed view of an agent's settings, and what of it the engine is told. Pure.
//!
//! Built from the complete map of `fields.rs`, so every default stands in that table alone; a field
//! here that the table does not know (or the other way round) fails the test at the foot.

use media::config::{self, Adherence, AgentConfig, Eagerness, EndCallBehavior, Language};
use serde::de::value::MapDeserializer;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    fields,
    placeholders::{Builtins, Rendered, Variables, merged, render, render_spoken},
};

/// All settings, unset ones at what `fields.rs` says. No `Debug`: they hold phone numbers.
#[derive(Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    pub name: String,
    pub system_prompt: String,
    pub voice_id: String,
    pub messaging_system_prompt: Option<String>,
    pub first_message: Option<String>,
    pub language: Language,
    pub dialect_style: Option<String>,
    pub metadata: Map<String, Value>,
    /// Empty: the platform default.
    pub llm_model: String,
    pub temperature: Option<f64>,
    pub max_tokens: Option<u32>,
    pub max_context_tokens: Option<u32>,
    pub frequency_penalty: Option<f64>,
    pub presence_penalty: Option<f64>,
    pub max_duration_seconds: Option<u32>,
    pub silence_timeout_seconds: Option<u32>,
    pub max_turns: Option<u32>,
    pub history_truncation_enabled: Option<bool>,
    pub history_max_turns: Option<u32>,
    pub sms_message_ids: Vec<String>,
    pub sms_max_sends_per_message: Option<u32>,
    pub interruption_enabled: bool,
    pub barge_in_min_speech_secs: Option<f64>,
    pub turn_eagerness: Option<Eagerness>,
    pub end_call_enabled: bool,
    pub end_call_phrases: Vec<String>,
    pub end_call_behavior: EndCallBehavior,
    pub voicemail_detection_enabled: bool,
    pub voicemail_message: Option<String>,
    pub voicemail_action: String,
    pub inbound_lobby_enabled: bool,
    pub inbound_lobby_message: Option<String>,
    pub inbound_lobby_audio_preset: String,
    pub inbound_lobby_max_wait_seconds: u32,
    pub recording_enabled: bool,
    pub transcription_enabled: bool,
    pub public_access: bool,
    pub allowed_origins: Vec<String>,
    pub focus_guardrail_enabled: bool,
    pub content_guardrail_enabled: bool,
    pub custom_guardrails: Vec<Guardrail>,
    pub script_adherence: Adherence,
    pub keypad_capture_enabled: bool,
    pub idle_check_in_after_secs: f64,
    pub max_idle_attempts: u32,
    pub soft_timeout_seconds: Option<f64>,
    pub soft_timeout_message: Option<String>,
    pub soft_timeout_use_llm: bool,
    pub response_min_sentences: u32,
    pub response_max_sentences: u32,
    pub rag_top_k: Option<u32>,
    pub rag_min_score: Option<f64>,
    pub transfer_phone_number: Option<String>,
    pub transfer_phone_numbers: Vec<String>,
    pub transfer_mode: String,
    pub outbound_trunk_id: Option<String>,
    pub sms_sender_number_id: Option<String>,
    pub dynamic_variables: Variables,
    pub webhook_url: Option<String>,
}

/// A guardrail of the agent's own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Guardrail {
    pub name: String,
    pub prompt: String,
    pub is_enabled: bool,
}

impl Settings {
    /// Reads what is stored. An error means a row that this version cannot understand.
    pub fn read(stored: &Map<String, Value>) -> Result<Self, serde_json::Error> {
        Self::deserialize(MapDeserializer::new(fields::shown(stored)))
    }

    /// What the engine is told: placeholders filled, documented defaults applied. The session's
    /// variables go over the agent's own.
    pub fn engine_config(&self, session: &Variables, builtins: &Builtins) -> AgentConfig {
        /// `history_max_turns` while truncation is on and no number is given.
        const HISTORY_MAX_TURNS: u32 = 40;
        let defaults = AgentConfig::default();
        AgentConfig {
            name: self.name.clone(),
            system_prompt: self.prompt(session, builtins).text,
            first_message: self.greeting(session, builtins),
            language: self.language,
            temperature: self.temperature,
            max_tokens: self.max_tokens.unwrap_or(defaults.max_tokens),
            max_context_tokens: self
                .max_context_tokens
                .unwrap_or(defaults.max_context_tokens),
            frequency_penalty: self.frequency_penalty.unwrap_or(defaults.frequency_penalty),
            presence_penalty: self.presence_penalty.unwrap_or(defaults.presence_penalty),
            history_max_turns: match self.history_truncation_enabled {
                Some(true) => Some(self.history_max_turns.unwrap_or(HISTORY_MAX_TURNS)),
                Some(false) => None,
                None => self.history_max_turns,
            },
            max_duration_seconds: self
                .max_duration_seconds
                .unwrap_or(defaults.max_duration_seconds),
            silence_timeout_seconds: self.silence_timeout_seconds,
            max_turns: self.max_turns,
            interruption_enabled: self.interruption_enabled,
            barge_in_min_speech_secs: self
                .barge_in_min_speech_secs
                .unwrap_or(defaults.barge_in_min_speech_secs),
            turn_eagerness: self.turn_eagerness.unwrap_or_default(),
            end_call_enabled: self.end_call_enabled,
            end_call_phrases: self.end_call_phrases.clone(),
            end_call_behavior: self.end_call_behavior,
            focus_guardrail_enabled: self.focus_guardrail_enabled,
            content_guardrail_enabled: self.content_guardrail_enabled,
            custom_guardrails: self
                .custom_guardrails
                .iter()
                .filter(|guardrail| guardrail.is_enabled)
                .map(|guardrail| config::Guardrail {
                    name: guardrail.name.clone(),
                    prompt: guardrail.prompt.clone(),
                })
                .collect(),
            script_adherence: self.script_adherence,
            keypad_capture_enabled: self.keypad_capture_enabled,
            idle_check_in_after_secs: self.idle_check_in_after_secs,
            max_idle_attempts: self.max_idle_attempts,
            soft_timeout_seconds: self.soft_timeout_seconds,
            soft_timeout_message: self
                .soft_timeout_message
                .clone()
                .unwrap_or_else(|| self.filler().to_owned()),
            response_min_sentences: self.response_min_sentences,
            response_max_sentences: self.response_max_sentences,
            tools: Vec::new(),
            message: None,
        }
    }

    /// The system prompt of a call, filled; `unfilled` is what `agent.prompt_variables.unfilled` tells.
    pub fn prompt(&self, session: &Variables, builtins: &Builtins) -> Rendered {
        render(
            &self.system_prompt,
            &merged(&self.dynamic_variables, session),
            builtins,
        )
    }

    fn greeting(&self, session: &Variables, builtins: &Builtins) -> Option<String> {
        let text = self.first_message.as_deref()?;
        let spoken = render_spoken(text, &merged(&self.dynamic_variables, session), builtins).text;
        (!spoken.trim().is_empty()).then_some(spoken)
    }

    /// The filler line where the agent has none of its own.
    const fn filler(&self) -> &'static str {
        match self.language {
            Language::English => "One moment, please.",
            Language::French => "Un instant, s'il vous plaît.",
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

    use serde_json::json;

    use super::*;

    fn settings(more: Value) -> Settings {
        let mut stored =
            json!({"name": "Reception", "system_prompt": "Hi {{name}}.", "voice_id": "v"});
        stored
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        Settings::read(stored.as_object().unwrap()).unwrap()
    }

    fn config(more: Value) -> AgentConfig {
        settings(more).engine_config(&Variables::new(), &Builtins::default())
    }

    #[test]
    fn the_table_and_the_type_know_the_same_fields() {
        settings(json!({}));
    }

    #[test]
    fn an_agent_with_nothing_set_gives_the_documented_defaults() {
        let expect = AgentConfig {
            name: "Reception".into(),
            system_prompt: "Hi [name: not provided].".into(),
            soft_timeout_message: "One moment, please.".into(),
            ..AgentConfig::default()
        };
        assert_eq!(config(json!({})), expect);
    }

    #[test]
    fn the_session_s_variables_go_over_the_agent_s() {
        let settings = settings(
            json!({"dynamic_variables": {"name": "Ann"}, "first_message": "Hello {{name}}{{city}}!"}),
        );
        let session = json!({"name": "Bo"}).as_object().unwrap().clone();
        let told = settings.engine_config(&session, &Builtins::default());
        assert_eq!(
            (told.system_prompt.as_str(), told.first_message.as_deref()),
            ("Hi Bo.", Some("Hello Bo!"))
        );
        assert_eq!(
            settings
                .prompt(&Variables::new(), &Builtins::default())
                .text,
            "Hi Ann."
        );
    }

    #[test]
    fn how_the_agent_behaves_is_told_to_the_engine() {
        let told = config(json!({
            "focus_guardrail_enabled": false,
            "content_guardrail_enabled": true,
            "custom_guardrails": [
                {"name": "on", "prompt": "No prices.", "is_enabled": true},
                {"name": "off", "prompt": "No names.", "is_enabled": false}
            ],
            "script_adherence": "loose",
            "end_call_behavior": "phrases_only",
            "max_context_tokens": 2048
        }));
        assert_eq!(
            (
                told.focus_guardrail_enabled,
                told.content_guardrail_enabled,
                told.script_adherence,
                told.end_call_behavior,
                told.max_context_tokens
            ),
            (
                false,
                true,
                Adherence::Loose,
                EndCallBehavior::PhrasesOnly,
                2048
            )
        );
        let names: Vec<&str> = told
            .custom_guardrails
            .iter()
            .map(|guardrail| guardrail.name.as_str())
            .collect();
        assert_eq!(names, ["on"]);
    }

    #[test]
    fn a_zero_is_not_a_default() {
        let told = config(
            json!({"barge_in_min_speech_secs": 0, "frequency_penalty": 0, "response_min_sentences": 0}),
        );
        assert_eq!(
            (
                told.barge_in_min_speech_secs,
                told.frequency_penalty,
                told.response_min_sentences
            ),
            (0.0, 0.0, 0)
        );
    }

    #[test]
    fn the_sentence_bound_that_is_not_set_gives_way() {
        let bounds = |more| {
            let told = config(more);
            (told.response_min_sentences, told.response_max_sentences)
        };
        assert_eq!(bounds(json!({})), (2, 3));
        assert_eq!(bounds(json!({"response_min_sentences": 5})), (5, 5));
        assert_eq!(bounds(json!({"response_max_sentences": 1})), (1, 1));
    }

    #[test]
    fn history_is_cut_only_where_asked() {
        let cut = |more| config(more).history_max_turns;
        assert_eq!(cut(json!({})), None);
        assert_eq!(cut(json!({"history_truncation_enabled": true})), Some(40));
        assert_eq!(
            cut(json!({"history_truncation_enabled": true, "history_max_turns": 7})),
            Some(7)
        );
        assert_eq!(
            cut(json!({"history_truncation_enabled": false, "history_max_turns": 7})),
            None
        );
        assert_eq!(cut(json!({"history_max_turns": 7})), Some(7));
    }

    #[test]
    fn a_greeting_of_nothing_but_an_unfilled_name_is_none() {
        assert_eq!(
            config(json!({"first_message": "{{name}}"})).first_message,
            None
        );
    }
}
