//! Bodies of the agents' routes.

use std::borrow::Cow;

use schemars::{JsonSchema, SchemaGenerator};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use super::fields::{self, Unset};
use super::rules::{
    Agent, CREATE_FIELDS, MAX_NAME, PATCH_FIELDS, Problem, SETTINGS, Status, language_name,
};
use crate::{
    catalogue::voices,
    http::{
        Wire, openapi,
        validate::{Field, FieldError, Kind, Schema, Unknown},
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

/// The body of `POST /agents/{id}/duplicate`; may be left out.
#[derive(Clone, Debug, Deserialize)]
pub struct DuplicateAgent {
    pub name: Option<String>,
}

impl Wire for DuplicateAgent {
    const SCHEMA: &'static Schema = &Schema {
        name: "DuplicateAgent",
        fields: &[Field::opt(
            "name",
            Kind::Pattern {
                name: r"^(?=[^\u0000]*[^\s\u0000])[^\u0000]{1,255}$",
                check: |name| !name.trim().is_empty() && name.chars().count() <= MAX_NAME,
            },
            "Name of the copy; that of the agent with \"(copy)\" when left out.",
        )
        .nullable()],
        unknown: Unknown::Refuse,
    };
}

/// The full record.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Agent")]
pub struct AgentRecord {
    pub id: AgentId,
    /// Where it stands: only an `active` agent takes calls.
    #[schemars(extend("enum" = Status::NAMES))]
    pub status: &'static str,
    /// Why it stands there, where the status alone does not tell.
    pub status_reason: Option<String>,
    #[serde(flatten)]
    #[schemars(with = "AgentSettings")]
    pub settings: Shown,
    /// Always empty: agents cannot be given tools by the API yet.
    #[schemars(with = "Vec<Map<String, Value>>")]
    pub tools: Vec<Value>,
    /// Always 0: there are no knowledge bases yet.
    pub knowledge_base_document_count: u32,
    /// The numbers that it answers.
    pub phone_number_ids: Vec<PhoneNumberId>,
    /// Placeholders of the prompts with neither a default nor a built-in.
    pub unfilled_variables: Vec<String>,
    /// Spoken to the person who receives a warm transfer: always null, for agents transfer no calls yet.
    pub transfer_summary: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
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

impl From<Agent> for AgentRecord {
    fn from(agent: Agent) -> Self {
        let unfilled_variables = agent.unfilled_variables();
        let Agent {
            id,
            status,
            status_reason,
            stored,
            settings: _,
            version: _,
            created_at,
            updated_at,
        } = agent;
        Self {
            id,
            status: status.name(),
            status_reason,
            settings: Shown(stored),
            tools: Vec::new(),
            knowledge_base_document_count: 0,
            phone_number_ids: Vec::new(),
            unfilled_variables,
            transfer_summary: None,
            created_at,
            updated_at,
        }
    }
}

/// An agent in `GET /agents`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AgentItem {
    pub id: AgentId,
    /// What it is called.
    pub name: String,
    /// The voice that it speaks with, by id and name.
    pub voice: VoiceName,
    /// The id of the same voice.
    pub voice_id: String,
    #[schemars(extend("enum" = ["english", "french"]))]
    pub language: &'static str,
    /// Where it stands: only an `active` agent takes calls.
    #[schemars(extend("enum" = Status::NAMES))]
    pub status: &'static str,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A voice as a list item names it; the name is null when the voice is no longer offered.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct VoiceName {
    /// The id of the voice.
    pub id: String,
    /// What it is called.
    pub name: Option<&'static str>,
}

impl From<Agent> for AgentItem {
    fn from(agent: Agent) -> Self {
        let Agent {
            id,
            status,
            status_reason: _,
            stored: _,
            settings,
            version: _,
            created_at,
            updated_at,
        } = agent;
        Self {
            id,
            name: settings.name,
            voice: VoiceName {
                id: settings.voice_id.clone(),
                name: voices::find(&settings.voice_id).map(|voice| voice.name),
            },
            voice_id: settings.voice_id,
            language: language_name(settings.language),
            status: status.name(),
            created_at,
            updated_at,
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
