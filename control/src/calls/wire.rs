//! Bodies of the call routes.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::ending::seconds;
use super::latency::Spread;
use super::matched::MatchedBy;
use super::rules::{self, CallStatus};
use super::store::{CallRow, Filter};
use super::turn::TurnRecord;
use crate::http::extract::Wire;
use crate::http::validate::{Field, Kind, Schema, Unknown};
use crate::ids::{AgentId, CallId, PhoneNumberId, RecordingId, TrunkId};
use crate::time::Timestamp;

/// Who calls whom.
pub const DIRECTIONS: &[&str] = &["inbound", "outbound"];
/// What a call comes over.
pub const CHANNELS: &[&str] = &["telco", "sip", "webrtc", "websocket", "collab", "chatapp"];

/// The query of `GET /calls`.
#[derive(Deserialize)]
pub struct CallsQuery {
    pub status: Option<String>,
    pub direction: Option<String>,
    pub agent_id: Option<AgentId>,
    pub batch_id: Option<String>,
    pub from: Option<Timestamp>,
    pub to: Option<Timestamp>,
    pub phone: Option<String>,
}

impl Wire for CallsQuery {
    const SCHEMA: &'static Schema = &Schema {
        name: "CallsQuery",
        unknown: Unknown::Ignore,
        fields: &[
            Field::opt(
                "status",
                Kind::Enum(CallStatus::NAMES),
                "Only calls in this state.",
            ),
            Field::opt(
                "direction",
                Kind::Enum(DIRECTIONS),
                "Only calls of this direction.",
            ),
            Field::opt("agent_id", Kind::Uuid, "Only calls of this agent."),
            Field::opt(
                "batch_id",
                Kind::Uuid,
                "Only calls of this batch; no route makes batches yet.",
            ),
            Field::opt(
                "from",
                Kind::Timestamp,
                "Only calls created at or after this time.",
            ),
            Field::opt(
                "to",
                Kind::Timestamp,
                "Only calls created before this time.",
            ),
            Field::opt("phone", Kind::E164, "Only calls from or to this number."),
        ],
    };
}

impl From<CallsQuery> for Filter {
    fn from(query: CallsQuery) -> Self {
        let CallsQuery {
            status,
            direction,
            agent_id,
            batch_id,
            from,
            to,
            phone,
        } = query;
        Self {
            status,
            direction,
            agent: agent_id,
            batch: batch_id,
            from,
            to,
            phone,
            said: Vec::new(),
        }
    }
}

/// A call. In lists `transcript` and `transcript_text` are null.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Call")]
pub struct CallRecord {
    pub id: CallId,
    pub conversation_id: CallId,
    /// The agent that speaks. Null where no agent answered.
    pub agent_id: Option<AgentId>,
    /// The agent's name, as it was when the call began.
    pub agent_name: String,
    /// Where the call stands. `completed`, `failed`, `no-answer`, `busy` and `canceled` are final.
    #[schemars(extend("enum" = CallStatus::NAMES))]
    pub status: String,
    #[schemars(extend("enum" = DIRECTIONS))]
    pub direction: String,
    #[schemars(extend("enum" = CHANNELS))]
    pub channel: String,
    /// The caller's number. Null where it is unknown or withheld.
    pub from_number: Option<String>,
    /// The caller of a call that came in withholds the number: it is kept nowhere.
    pub from_withheld: bool,
    pub to_number: Option<String>,
    pub phone_number_id: Option<PhoneNumberId>,
    pub trunk_id: Option<TrunkId>,
    /// By which rule a call that came in was matched with its number; null for other calls, and for numbers of the
    /// server's settings.
    #[schemars(with = "Option<MatchedBy>")]
    pub matched_by: Option<Value>,
    pub started_at: Option<Timestamp>,
    /// When the other side answered.
    pub answered_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub duration_seconds: f64,
    /// How long it rang, in seconds: from the first word that it rings to the answer, or to the end. Null where nothing
    /// rang.
    pub ring_seconds: Option<f64>,
    /// Why it ended, such as `caller_hangup`, `agent_end_call`, `ended_by_api` or `session_expired`. Null until it has
    /// ended.
    pub end_reason: Option<String>,
    /// Who ended it.
    #[schemars(extend("enum" = ["caller", "agent", "system", "api", null]))]
    pub ended_by: Option<String>,
    /// The final response to an INVITE: the carrier's to a call that was placed, ours to one that came in: 200,
    /// or what it was refused with after it rang. Null where there was none.
    pub sip_code: Option<u32>,
    /// Always null: answering machines are not detected yet.
    #[schemars(extend("enum" = ["human", "voicemail", "unknown", null]))]
    pub answered_by: Option<&'static str>,
    /// Always null, as `answered_by`.
    #[schemars(with = "Option<Map<String, Value>>")]
    pub voicemail: Option<Value>,
    /// Always null: calls are not transferred yet.
    #[schemars(with = "Option<Map<String, Value>>")]
    pub transfer: Option<Value>,
    pub cost_cents: i64,
    pub has_recording: bool,
    pub recording_id: Option<RecordingId>,
    pub turn_count: i64,
    /// Percentiles of the turns' `latency`, by its keys, in milliseconds.
    #[schemars(with = "Option<BTreeMap<String, Spread>>")]
    pub latency_summary: Option<Value>,
    /// The batch that the call is of. Always null, as is `batch_recipient_index`: no route makes batches yet.
    pub batch_id: Option<String>,
    pub batch_recipient_index: Option<i64>,
    #[schemars(with = "Map<String, Value>")]
    pub metadata: Value,
    #[schemars(with = "Map<String, Value>")]
    pub dynamic_variables: Value,
    #[schemars(with = "Option<Vec<TurnRecord>>")]
    pub transcript: Option<Vec<Value>>,
    /// What was said as text. A line a turn: `Agent: …`, `Caller: …` or `Human agent: …`.
    pub transcript_text: Option<String>,
    /// Where the delivery of `call.ended` stands; null until there is one.
    #[schemars(extend("enum" = ["pending", "delivering", "failed", "delivered", "unsafe", "skipped", "exhausted", null]))]
    pub webhook_delivery_status: Option<String>,
    pub webhook_delivered_at: Option<Timestamp>,
    pub webhook_attempts: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl CallRecord {
    /// The record with its transcript.
    pub fn with_turns(call: CallRow, turns: Vec<Value>) -> Self {
        let text = rules::transcript_text(&turns);
        Self {
            transcript_text: Some(text),
            transcript: Some(turns),
            ..Self::from(call)
        }
    }
}

impl From<CallRow> for CallRecord {
    fn from(call: CallRow) -> Self {
        let CallRow {
            id,
            account: _,
            agent_id,
            agent_name,
            status,
            conversation_status: _,
            direction,
            channel,
            language: _,
            from_number,
            to_number,
            phone_number_id,
            trunk_id,
            matched_by,
            from_withheld,
            dynamic_variables,
            metadata,
            batch_id,
            batch_recipient_index,
            started_at,
            rang_at,
            answered_at,
            ended_at,
            duration_ms,
            end_reason,
            ended_by,
            sip_code,
            max_duration_seconds: _,
            turn_count,
            has_transcript: _,
            latency_summary,
            cost_cents,
            has_recording,
            recording_id,
            feedback: _,
            incarnation: _,
            node: _,
            webhook_status,
            webhook_delivered_at,
            webhook_attempts,
            created_at,
            updated_at,
        } = call;
        Self {
            id,
            conversation_id: id,
            agent_id: agent_id.known(),
            agent_name,
            status,
            direction,
            channel,
            from_number,
            from_withheld,
            to_number,
            phone_number_id,
            trunk_id,
            matched_by,
            started_at,
            answered_at,
            ended_at,
            duration_seconds: seconds(duration_ms),
            ring_seconds: rang_at
                .zip(answered_at.or(ended_at))
                .map(|(rang, over)| over.since(rang).as_millis() as f64 / 1000.0),
            end_reason,
            ended_by,
            sip_code,
            answered_by: None,
            voicemail: None,
            transfer: None,
            cost_cents,
            has_recording,
            recording_id,
            turn_count,
            latency_summary,
            batch_id,
            batch_recipient_index,
            metadata,
            dynamic_variables,
            transcript: None,
            transcript_text: None,
            webhook_delivery_status: webhook_status,
            webhook_delivered_at,
            webhook_attempts,
            created_at,
            updated_at,
        }
    }
}

/// A call that is over.
#[derive(Serialize, JsonSchema)]
pub struct CallEnded {
    pub call_id: CallId,
    /// Always `ended`.
    #[schemars(extend("enum" = ["ended"]))]
    pub status: &'static str,
    pub end_reason: Option<String>,
    pub ended_at: Option<Timestamp>,
    /// It had ended before this request.
    pub already_ended: bool,
}
