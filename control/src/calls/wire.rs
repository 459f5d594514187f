//! Bodies of the call routes.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::ending::seconds;
use super::latency::Spread;
use super::matched::MatchedBy;
use super::rules::{self, CallStatus, Channel, Direction};
use super::store::{CallRow, Filter};
use super::turn::TurnRecord;
use crate::http::validate::Kind;
use crate::http::wire::{answer, body};
use crate::ids::{AgentId, CallId, PhoneNumberId, RecordingId, TrunkId};
use crate::time::Timestamp;
use crate::webhooks::event;

body! {
    /// The query of `GET /calls`.
    pub query CallsQuery;
    optional status: CallStatus, "Only calls in this state.";
    optional direction: Direction, "Only calls of this direction.";
    optional agent_id: AgentId, "Only calls of this agent.";
    optional batch_id: String = Kind::Uuid, "Only calls of this batch; no route makes batches yet.";
    optional from: Timestamp, "Only calls created at or after this time.";
    optional to: Timestamp, "Only calls created before this time.";
    optional phone: String = Kind::E164, "Only calls from or to this number.";
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

answer! {
    /// A call. In lists `transcript` and `transcript_text` are null.
    pub struct CallRecord = "Call" of CallRow
        uses(agent_id, rang_at, duration_ms, webhook_status)
        hides(account, conversation_status, language, max_duration_seconds, has_transcript, feedback, incarnation, node) {
        id: CallId,
        conversation_id: CallId = id,
        /// The agent that speaks. Null where no agent answered.
        agent_id: Option<AgentId> = agent_id.known(),
        /// The agent's name, as it was when the call began.
        agent_name: String,
        /// Where the call stands. `completed`, `failed`, `no-answer`, `busy` and `canceled` are final.
        status: CallStatus,
        direction: Direction,
        channel: Channel,
        /// The caller's number. Null where it is unknown or withheld.
        from_number: Option<String>,
        /// The caller of a call that came in withholds the number: it is kept nowhere.
        from_withheld: bool,
        to_number: Option<String>,
        phone_number_id: Option<PhoneNumberId>,
        trunk_id: Option<TrunkId>,
        /// By which rule a call that came in was matched with its number; null for other calls, and for numbers of the
        /// server's settings.
        #[schemars(with = "Option<MatchedBy>")]
        matched_by: Option<Value>,
        started_at: Option<Timestamp>,
        /// When the other side answered.
        answered_at: Option<Timestamp>,
        ended_at: Option<Timestamp>,
        duration_seconds: f64 = seconds(duration_ms),
        /// How long it rang, in seconds: from the first word that it rings to the answer, or to the end. Null where nothing
        /// rang.
        ring_seconds: Option<f64> = rang_at
            .zip(answered_at.or(ended_at))
            .map(|(rang, over)| over.since(rang).as_millis() as f64 / 1000.0),
        /// Why it ended, such as `caller_hangup`, `agent_end_call`, `ended_by_api` or `session_expired`. Null until it has
        /// ended.
        end_reason: Option<String>,
        /// Who ended it.
        #[schemars(extend("enum" = ["caller", "agent", "system", "api", null]))]
        ended_by: Option<String>,
        /// The final response to an INVITE: the carrier's to a call that was placed, ours to one that came in: 200,
        /// or what it was refused with after it rang. Null where there was none.
        sip_code: Option<u32>,
        /// Always null: answering machines are not detected yet.
        #[schemars(extend("enum" = ["human", "voicemail", "unknown", null]))]
        answered_by: Option<&'static str> = None,
        /// Always null, as `answered_by`.
        #[schemars(with = "Option<Map<String, Value>>")]
        voicemail: Option<Value> = None,
        /// Always null: calls are not transferred yet.
        #[schemars(with = "Option<Map<String, Value>>")]
        transfer: Option<Value> = None,
        cost_cents: i64,
        has_recording: bool,
        recording_id: Option<RecordingId>,
        turn_count: i64,
        /// Percentiles of the turns' `latency`, by its keys, in milliseconds.
        #[schemars(with = "Option<BTreeMap<String, Spread>>")]
        latency_summary: Option<Value>,
        /// The batch that the call is of. Always null, as is `batch_recipient_index`: no route makes batches yet.
        batch_id: Option<String>,
        batch_recipient_index: Option<i64>,
        #[schemars(with = "Map<String, Value>")]
        metadata: Value,
        #[schemars(with = "Map<String, Value>")]
        dynamic_variables: Value,
        #[schemars(with = "Option<Vec<TurnRecord>>")]
        transcript: Option<Vec<Value>> = None,
        /// What was said as text. A line a turn: `Agent: …`, `Caller: …` or `Human agent: …`.
        transcript_text: Option<String> = None,
        /// Where the delivery of `call.ended` stands; null until there is one.
        webhook_delivery_status: Option<event::Status> = webhook_status,
        webhook_delivered_at: Option<Timestamp>,
        webhook_attempts: i64,
        created_at: Timestamp,
        updated_at: Timestamp,
    }
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
