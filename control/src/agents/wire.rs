//! Bodies of the agents' routes.

use std::borrow::Cow;

use schemars::{JsonSchema, SchemaGenerator};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use super::fields::{self, Unset};
use super::placeholders::RESERVED_PREFIX;
use super::rules::{
    Agent, CREATE_FIELDS, MAX_NAME, PATCH_FIELDS, Problem, SETTINGS, Status, language_name,
};
use crate::{
    catalogue::voices,
    http::{
        Wire, openapi,
        validate::{FieldError, Kind, Schema, Unknown},
        wire::{answer, body},
    },
    ids::{AgentId, PhoneNumberId},
    time::Timestamp,
};

/// The body of `POST /agents`: the settings that are given.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub struct CreateAgent(pub Map<String, Value>);

impl Wire for CreateAgent {
    const SCHEMA: &'static Schema = &Schema {
        name: "CreateAgent",
        fields: &CREATE_FIELDS,
        unknown: Unknown::Refuse,
    };
}

/// The body of `PATCH /agents/{id}`: the settings that change; null unsets.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub struct UpdateAgent(pub Map<String, Value>);

impl Wire for UpdateAgent {
    const SCHEMA: &'static Schema = &Schema {
        name: "UpdateAgent",
        fields: &PATCH_FIELDS,
        unknown: Unknown::Refuse,
    };
}

/// Values for placeholders, as a call and a session take them: flat, and without the names that belong to the
/// built-ins.
pub const VARIABLES: Kind = Kind::Scalars {
    max: 200,
    key_ok: |key| (1..=64).contains(&key.chars().count()) && !key.starts_with(RESERVED_PREFIX),
    key_rule: "1 to 64 characters, not starting with system__",
};

const NAME: Kind = Kind::pattern(r"^(?=[^\u0000]*[^\s\u0000])[^\u0000]{1,255}$", |name| {
    !name.trim().is_empty() && name.chars().count() <= MAX_NAME
});

body! {
    /// The body of `POST /agents/{id}/duplicate`; may be left out.
    #[derive(Clone, Debug)]
    pub struct DuplicateAgent = "DuplicateAgent";
    nullable name: String = NAME, "Name of the copy; that of the agent with \"(copy)\" when left out.";
}

body! {
    /// The query of `DELETE /agents/{id}`.
    pub query DeleteAgentQuery;
    default force: bool, "Delete it even while it is on a live call, which goes on, or on numbers, which stay.";
}

answer! {
    /// The full record.
    #[derive(Clone, Debug)]
    pub struct AgentRecord = "Agent" of Agent as agent first(unfilled = agent.unfilled_variables())
        uses(stored) hides(settings, version) {
        id: AgentId,
        /// Where it stands: only an `active` agent takes calls.
        status: Status,
        /// Why it stands there, where the status alone does not tell.
        status_reason: Option<String>,
        #[serde(flatten)]
        #[schemars(with = "AgentSettings")]
        settings: Shown = Shown(stored),
        /// Always empty: agents cannot be given tools by the API yet.
        #[schemars(with = "Vec<Map<String, Value>>")]
        tools: Vec<Value> = Vec::new(),
        /// Always 0: there are no knowledge bases yet.
        knowledge_base_document_count: u32 = 0,
        /// The numbers that it answers.
        phone_number_ids: Vec<PhoneNumberId> = Vec::new(),
        /// Placeholders of the prompts with neither a default nor a built-in.
        unfilled_variables: Vec<String> = unfilled,
        /// Spoken to the person who receives a warm transfer: always null, for agents transfer no calls yet.
        transfer_summary: Option<String> = None,
        created_at: Timestamp,
        updated_at: Timestamp,
    }
}

/// Stored settings, of which the record shows the unset ones too.
#[derive(Clone, Debug)]
pub struct Shown(Map<String, Value>);

impl Serialize for Shown {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(fields::shown(&self.0))
    }
}

/// Every setting as the record shows it, unset ones too.
struct AgentSettings;

impl JsonSchema for AgentSettings {
    fn schema_name() -> Cow<'static, str> {
        "AgentSettings".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> schemars::Schema {
        openapi::record(SETTINGS.iter().map(|setting| {
            let mut field = setting.field;
            field.required = true;
            field.nullable = setting.unset == Unset::Null;
            field
        }))
    }
}

answer! {
    /// An agent in `GET /agents`.
    #[derive(Clone, Debug)]
    pub struct AgentItem = "AgentItem" of Agent uses(settings) hides(status_reason, stored, version) {
        id: AgentId,
        /// What it is called.
        name: String = settings.name,
        /// The voice that it speaks with, by id and name.
        voice: VoiceName = VoiceName::of(&settings.voice_id),
        /// The id of the same voice.
        voice_id: String = settings.voice_id,
        #[schemars(extend("enum" = ["english", "french"]))]
        language: &'static str = language_name(settings.language),
        /// Where it stands: only an `active` agent takes calls.
        status: Status,
        created_at: Timestamp,
        updated_at: Timestamp,
    }
}

/// A voice as a list item names it; the name is null when the voice is no longer offered.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct VoiceName {
    /// The id of the voice.
    pub id: String,
    /// What it is called.
    pub name: Option<&'static str>,
}

impl VoiceName {
    fn of(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            name: voices::find(id).map(|voice| voice.name),
        }
    }
}

/// A problem of `rules` as an entry of the validation array.
pub fn field_error(problem: Problem) -> FieldError {
    let Problem {
        field,
        message,
        kind,
    } = problem;
    FieldError::body(field, kind, message)
}
