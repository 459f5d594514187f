//! Bodies of the routes that place calls.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::rules::{METADATA_LIMIT, RING_SECONDS, RING_SECONDS_RANGE, Unfit};
use crate::calls::store::CallRow;
use crate::http::ApiError;
use crate::http::extract::Wire;
use crate::http::validate::{Field, Kind, Schema, Unknown};
use crate::ids::{AgentId, CallId};
use crate::time::Timestamp;

/// A call that somebody wants: the body of `POST /calls`.
#[derive(Deserialize, Serialize)]
pub struct PlaceCall {
    pub agent_id: String,
    pub to_number: String,
    pub from_number: Option<String>,
    pub dynamic_variables: Option<Map<String, Value>>,
    pub metadata: Option<Map<String, Value>>,
    pub max_duration_seconds: Option<u32>,
    pub ring_timeout_seconds: Option<u32>,
}

/// The body of `POST /calls/trigger`.
#[derive(Deserialize, Serialize)]
pub struct TriggerCall {
    pub agent_id: String,
    pub to_number: String,
    pub from_number: Option<String>,
    pub dynamic_variables: Option<Map<String, Value>>,
}

const AGENT: Field = Field::req(
    "agent_id",
    Kind::Str { min: 1, max: 100 },
    "The agent that calls; one of the account's, and active.",
);
const TO: Field = Field::req("to_number", Kind::Callee, "The number to call.");
const FROM: Field = Field::opt(
    "from_number",
    Kind::E164,
    "The number to call from: registered to the account, with outbound_enabled. Without it the call is refused.",
)
.nullable();
const VARIABLES: Field = Field::opt(
    "dynamic_variables",
    Kind::Scalars {
        max: 200,
        key_ok: |key| (1..=64).contains(&key.chars().count()) && !key.starts_with("system__"),
        key_rule: "1 to 64 characters, not starting with system__",
    },
    "Values for the agent's placeholders, in this call only; they go over its own defaults.",
)
.nullable();

impl Wire for PlaceCall {
    const SCHEMA: &'static Schema = &Schema {
        name: "PlaceCall",
        unknown: Unknown::Refuse,
        fields: &[
            AGENT,
            TO,
            FROM,
            VARIABLES,
            Field::opt(
                "metadata",
                Kind::AnyObject,
                "Kept with the call and told in call.ended; at most 16 KiB of JSON.",
            )
            .nullable(),
            Field::opt(
                "max_duration_seconds",
                Kind::Int { min: 30, max: 3600 },
                "When an answered call ends at the latest; in place of the agent's.",
            )
            .nullable(),
            Field::opt(
                "ring_timeout_seconds",
                Kind::Int {
                    min: RING_SECONDS_RANGE.0,
                    max: RING_SECONDS_RANGE.1,
                },
                "How long it rings before it ends as no-answer. Default 30.",
            )
            .nullable(),
        ],
    };
}

impl Wire for TriggerCall {
    const SCHEMA: &'static Schema = &Schema {
        name: "TriggerCall",
        unknown: Unknown::Refuse,
        fields: &[AGENT, TO, FROM, VARIABLES],
    };
}

impl From<TriggerCall> for PlaceCall {
    fn from(trigger: TriggerCall) -> Self {
        let TriggerCall {
            agent_id,
            to_number,
            from_number,
            dynamic_variables,
        } = trigger;
        Self {
            agent_id,
            to_number,
            from_number,
            dynamic_variables,
            metadata: None,
            max_duration_seconds: None,
            ring_timeout_seconds: None,
        }
    }
}

impl PlaceCall {
    /// What its table cannot say.
    pub fn check(&self) -> Result<(), ApiError> {
        let metadata = self.metadata.as_ref().map(serde_json::to_string);
        let length = metadata.transpose().map_err(ApiError::internal)?;
        if length.is_some_and(|text| text.len() > METADATA_LIMIT) {
            return Err(ApiError::field(
                "metadata",
                "value_error",
                "Metadata should be at most 16 KiB",
            ));
        }
        Ok(())
    }

    pub fn ring_seconds(&self) -> u32 {
        self.ring_timeout_seconds.unwrap_or(RING_SECONDS)
    }
}

/// A call that is about to be placed. How it goes is told by `GET /calls/{call_id}` and in `call.ended`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PlacedCall {
    pub call_id: CallId,
    /// The conversation. It has the id of its call.
    pub conversation_id: CallId,
    /// Always `queued`: the call is dialled after the answer.
    #[schemars(extend("enum" = ["queued"]))]
    pub status: &'static str,
    pub agent_id: AgentId,
    pub to_number: String,
    pub from_number: String,
    pub created_at: Timestamp,
}

impl From<CallRow> for PlacedCall {
    fn from(call: CallRow) -> Self {
        Self {
            call_id: call.id,
            conversation_id: call.id,
            status: "queued",
            agent_id: call.agent_id,
            to_number: call.to_number.unwrap_or_default(),
            from_number: call.from_number.unwrap_or_default(),
            created_at: call.created_at,
        }
    }
}

/// 422 in the words of call dispatch (document 1, Errors 3).
pub fn unfit(why: Unfit, from_number: Option<&str>) -> ApiError {
    ApiError::Unprocessable {
        code: "validation_error",
        message: why.message().to_owned(),
        detail: Some(serde_json::json!({
            "message": why.message(),
            "invalid_recipients": [
                {"recipient_index": 0, "from_number": from_number, "reason": why.reason()}
            ],
        })),
    }
}
