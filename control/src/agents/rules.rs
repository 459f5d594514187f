//! What an agent may be: states, the rules between fields, and references to other resources. Pure.
//! Types and ranges of single fields stand in `fields.rs`.

use std::fmt;

use media::config::{AgentConfig, Language};
use serde_json::{Map, Value, json};
use uuid::Uuid;

pub use super::fields::{CREATE_FIELDS, MAX_NAME, PATCH_FIELDS, SETTINGS, complete};
pub use super::store::Agent;
use super::{
    fields::setting,
    placeholders::{self, Builtins, Variables},
    settings::Settings,
};
use crate::egress;
use crate::words::words;

words! {
    /// Whether an agent can take calls.
    pub enum Status {
        /// Its script is being written.
        Provisioning = "provisioning",
        Active = "active",
        Failed = "failed",
        Archived = "archived",
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent")
            .field("id", &self.id)
            .field("status", &self.status)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

impl Agent {
    /// What the engine is told at the start of a call; see [`Settings::engine_config`].
    pub fn engine_config(&self, session: &Variables, builtins: &Builtins) -> AgentConfig {
        self.settings.engine_config(session, builtins)
    }

    /// The placeholders of its prompts with neither a default nor a built-in.
    pub fn unfilled_variables(&self) -> Vec<String> {
        let Settings {
            system_prompt,
            messaging_system_prompt,
            dynamic_variables,
            ..
        } = &self.settings;
        placeholders::unfilled(
            [
                Some(system_prompt.as_str()),
                messaging_system_prompt.as_deref(),
            ]
            .into_iter()
            .flatten(),
            dynamic_variables,
        )
    }
}

/// A field whose value cannot be taken, and why. `kind` is the validator's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub field: &'static str,
    pub message: String,
    pub kind: &'static str,
}

/// Why settings are refused.
#[derive(Debug)]
pub enum Refused {
    /// Wrong fields, all of them.
    Fields(Vec<Problem>),
    /// `sms_sender_number_id` is no number of the account.
    UnknownNumber,
    /// What stands in the row cannot be read.
    Unreadable(serde_json::Error),
}

/// What the rules have to know of the world.
pub struct World<'a> {
    /// The id of a voice that the account may use, by id or key.
    pub voice: fn(&str) -> Option<Uuid>,
    /// Whether the catalogue holds this model.
    pub model: fn(&str) -> bool,
    /// The trunk that the change names, if it is an active outbound one of the account.
    pub trunk: Option<Uuid>,
    /// The number to send texts from that the change names, if it is one of the account, and whether it
    /// sends any.
    pub sender: Option<(Uuid, bool)>,
    /// Which hosts an address may name beside public ones.
    pub egress: &'a egress::Allow,
}

/// The settings after a change: null and (for free text) "" unset, absent fields stay. The change has
/// passed the schema. What refers to another resource is looked up only where it changes, so an agent
/// whose voice has gone can still be renamed.
pub fn change(
    stored: &Map<String, Value>,
    change: &Map<String, Value>,
    world: &World<'_>,
) -> Result<(Map<String, Value>, Settings), Refused> {
    let mut problems = Vec::new();
    let mut next = stored.clone();
    for (name, value) in change {
        let Some(setting) = setting(name) else {
            continue;
        };
        let (field, kept) = (setting.field.name, next.get(name));
        if setting.is_cleared_by(value) {
            next.remove(name);
        } else if kept != Some(value) {
            problems.extend(value_problem(field, value, world));
            next.insert(name.clone(), settled(field, value, world));
        }
    }
    let settings = match Settings::read(&next) {
        Ok(settings) => {
            problems.extend(between_fields(&settings));
            settings
        }
        Err(error) if problems.is_empty() => return Err(Refused::Unreadable(error)),
        Err(_) => return Err(Refused::Fields(problems)),
    };
    if !problems.is_empty() {
        return Err(Refused::Fields(problems));
    }
    let sender = next.get("sms_sender_number_id");
    let known = sender
        .and_then(Value::as_str)
        .and_then(|text| of_account(text, world));
    if sender.is_some() && sender != stored.get("sms_sender_number_id") && known.is_none() {
        return Err(Refused::UnknownNumber);
    }
    Ok((next, settings))
}

/// The settings of a copy: everything but what belongs to the one agent (its trunk, its sender, its
/// being open to the public). References are not looked up again: what has gone since is as gone for
/// the copy as for the agent.
pub fn copied(
    agent: &Agent,
    name: Option<&str>,
) -> Result<(Map<String, Value>, Settings), Refused> {
    const OWN: [&str; 3] = ["outbound_trunk_id", "sms_sender_number_id", "public_access"];
    const SUFFIX: &str = " (copy)";
    let name = name.map_or_else(
        || {
            let most = MAX_NAME - SUFFIX.len();
            let kept: String = agent.settings.name.chars().take(most).collect();
            kept + SUFFIX
        },
        str::to_owned,
    );
    let mut stored = agent.stored.clone();
    stored.retain(|setting, _| !OWN.contains(&setting.as_str()));
    stored.insert("name".to_owned(), json!(name));
    let settings = Settings::read(&stored).map_err(Refused::Unreadable)?;
    Ok((stored, settings))
}

/// What is stored for a given value: voice keys as ids, guardrails with their switch.
fn settled(field: &str, value: &Value, world: &World<'_>) -> Value {
    match (field, value) {
        ("voice_id", Value::String(key)) => {
            (world.voice)(key).map_or_else(|| value.clone(), |id| json!(id))
        }
        ("custom_guardrails", Value::Array(guardrails)) => {
            guardrails.iter().map(with_switch).collect()
        }
        _ => value.clone(),
    }
}

fn with_switch(guardrail: &Value) -> Value {
    let mut guardrail = guardrail.clone();
    if let Some(fields) = guardrail.as_object_mut() {
        fields.entry("is_enabled").or_insert(json!(true));
    }
    guardrail
}

/// What is wrong with one value beyond its type and range.
fn value_problem(field: &'static str, value: &Value, world: &World<'_>) -> Option<Problem> {
    /// The largest metadata, as JSON text.
    const MAX_METADATA_BYTES: usize = 16 * 1024;
    let problem = |kind, message: &str| {
        Some(Problem {
            field,
            kind,
            message: message.to_owned(),
        })
    };
    let unknown = |what: &str| problem("value_error", &format!("Unknown {what}"));
    let text = value.as_str().unwrap_or_default();
    match field {
        "name" | "system_prompt" if text.trim().is_empty() => {
            problem("string_too_short", "String should not be blank")
        }
        "voice_id" if (world.voice)(text).is_none() => {
            unknown("voice: it matches no voice of this account")
        }
        "llm_model" if !(world.model)(text) => unknown("model: see GET /models"),
        "metadata" if value.to_string().len() > MAX_METADATA_BYTES => {
            problem("value_error", "Metadata should be at most 16 KiB")
        }
        "sms_message_ids" if value.as_array().is_some_and(|ids| !ids.is_empty()) => {
            unknown("message")
        }
        "outbound_trunk_id" | "sms_sender_number_id" if Uuid::try_parse(text).is_err() => {
            problem("uuid_parsing", "Input should be a valid UUID")
        }
        "sms_sender_number_id" if of_account(text, world) == Some(false) => {
            problem("value_error", "This number sends no messages")
        }
        "outbound_trunk_id"
            if world.trunk.is_some() && world.trunk == Uuid::try_parse(text).ok() =>
        {
            None
        }
        "outbound_trunk_id" => unknown("trunk: it is no active outbound trunk of this account"),
        "webhook_url" => match egress::check_webhook_url(text, world.egress) {
            Ok(()) => None,
            Err(reason) => problem("url_parsing", &reason.to_string()),
        },
        _ => None,
    }
}

/// Whether the account's number of this id sends texts; `None`: it has no such number.
fn of_account(number: &str, world: &World<'_>) -> Option<bool> {
    let id = Uuid::try_parse(number).ok()?;
    let (_, sends) = world.sender.filter(|(sender, _)| *sender == id)?;
    Some(sends)
}

/// The rules that take two fields.
fn between_fields(settings: &Settings) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut refuse = |field, message: &str| {
        problems.push(Problem {
            field,
            kind: "value_error",
            message: message.to_owned(),
        })
    };
    if settings.voicemail_message.is_some() && !settings.voicemail_detection_enabled {
        refuse(
            "voicemail_message",
            "Requires voicemail_detection_enabled=true",
        );
    }
    if settings.response_max_sentences < settings.response_min_sentences {
        refuse(
            "response_max_sentences",
            "Input should be at least response_min_sentences",
        );
    }
    problems
}

/// The language's name in the API.
pub const fn language_name(language: Language) -> &'static str {
    match language {
        Language::English => "english",
        Language::French => "french",
    }
}
