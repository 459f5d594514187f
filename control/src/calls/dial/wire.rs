//! Bodies of the routes that place calls.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::rules::{METADATA_LIMIT, RING_SECONDS, RING_SECONDS_RANGE, Unfit};
use crate::agents::wire::VARIABLES;
use crate::calls::store::CallRow;
use crate::http::ApiError;
use crate::http::validate::Kind;
use crate::http::wire::body;
use crate::ids::{AgentId, CallId};
use crate::time::Timestamp;

const AGENT: Kind = Kind::Str { min: 1, max: 100 };
const WHO: &str = "The agent that calls; one of the account's, and active.";
const TO: &str = "The number to call.";
const FROM: &str = "The number to call from: registered to the account, with outbound_enabled. Without it the call is refused.";
const WITH: &str =
    "Values for the agent's placeholders, in this call only; they go over its own defaults.";

body! {
    /// A call that somebody wants: the body of `POST /calls`.
    #[derive(Serialize)]
    pub struct PlaceCall = "PlaceCall";
    required agent_id: String = AGENT, WHO;
    required to_number: String = Kind::Callee, TO;
    nullable from_number: String = Kind::E164, FROM;
    nullable dynamic_variables: Map<String, Value> = VARIABLES, WITH;
    nullable metadata: Map<String, Value> = Kind::AnyObject,
        "Kept with the call and told in call.ended; at most 16 KiB of JSON.";
    nullable max_duration_seconds: u32 = Kind::int(30, 3600),
        "When an answered call ends at the latest; in place of the agent's.";
    nullable ring_timeout_seconds: u32 = Kind::int(RING_SECONDS_RANGE.0, RING_SECONDS_RANGE.1),
        "How long it rings before it ends as no-answer. Default 30.";
}

body! {
    /// The body of `POST /calls/trigger`.
    #[derive(Serialize)]
    pub struct TriggerCall = "TriggerCall";
    required agent_id: String = AGENT, WHO;
    required to_number: String = Kind::Callee, TO;
    nullable from_number: String = Kind::E164, FROM;
    nullable dynamic_variables: Map<String, Value> = VARIABLES, WITH;
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
