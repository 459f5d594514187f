//! Bodies of the conversation routes.

use std::collections::BTreeMap;

use media::peer::MediaTotals;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::rules::{self, Fault, Said, Step};
use super::store::Faults;
use crate::calls::ending::seconds;
use crate::calls::latency::Spread;
use crate::calls::rules::{Channel, ConversationStatus, Direction};
use crate::calls::store::{CallRow, Feedback};
use crate::calls::turn::TurnRecord;
use crate::http::validate::Kind;
use crate::http::wire::{answer, body};
use crate::ids::{AgentId, CallId};
use crate::time::Timestamp;

answer! {
    /// A conversation. Its id is that of its session and of its call.
    pub struct ConversationRecord = "Conversation" of CallRow (base: &str)
        uses(agent_id, conversation_status, duration_ms, feedback)
        hides(
            account, status, from_number, to_number, phone_number_id, trunk_id, matched_by, from_withheld, dynamic_variables, batch_id,
            batch_recipient_index, rang_at, answered_at, ended_by, sip_code, max_duration_seconds, latency_summary,
            cost_cents, recording_id, incarnation, node, webhook_status, webhook_delivered_at, webhook_attempts
        ) {
        id: CallId,
        session_id: CallId = id,
        call_id: CallId = id,
        /// The agent that speaks. Null where no agent answered.
        agent_id: Option<AgentId> = agent_id.known(),
        agent_name: String,
        channel: Channel,
        direction: Direction,
        /// Where the conversation stands. `abandoned`: nobody joined the session or answered the call.
        status: ConversationStatus = conversation_status,
        turn_count: i64,
        duration_seconds: f64 = seconds(duration_ms),
        started_at: Option<Timestamp>,
        ended_at: Option<Timestamp>,
        end_reason: Option<String>,
        language: String,
        /// Whether anything was said that `getTranscript` answers.
        has_transcript: bool,
        has_recording: bool,
        /// Where the transcript is. It needs a key.
        transcript_url: String = url(base, id, "transcript"),
        /// Where a signed URL of the WAV is made. It needs a key. Null while there is no recording.
        audio_url: Option<String> = has_recording.then(|| url(base, id, "audio")),
        /// What somebody thought of it; null until it is rated.
        feedback: Option<FeedbackRecord> = feedback.map(FeedbackRecord::from),
        #[schemars(with = "Map<String, Value>")]
        metadata: Value,
        created_at: Timestamp,
        updated_at: Timestamp,
    }
}

/// Where a part of a conversation is, on a server of this public URL.
fn url(base: &str, id: CallId, part: &str) -> String {
    format!("{base}/api/v1/conversations/{id}/{part}")
}

answer! {
    /// What somebody thought of a conversation.
    pub struct FeedbackRecord = "ConversationFeedback" of Feedback uses(at) {
        /// From 1 (worst) to 5 (best).
        #[schemars(range(min = 1, max = 5))]
        rating: i64,
        /// A few words to it.
        comment: Option<String>,
        created_at: Timestamp = at,
    }
}

/// What was said, in order.
#[derive(Serialize, JsonSchema)]
pub struct Transcript {
    pub conversation_id: CallId,
    /// The turns, in order.
    #[schemars(with = "Vec<TurnRecord>")]
    pub turns: Vec<Value>,
}

/// A signed URL of a conversation's WAV.
#[derive(Serialize, JsonSchema)]
pub struct AudioLink {
    /// The URL of the WAV. It is good without a key until `expires_at`.
    pub audio_url: String,
    /// The signed token in it; it can be revoked.
    pub token: String,
    pub expires_at: Timestamp,
    /// How many seconds it lasts.
    pub expires_in: u64,
    pub content_type: &'static str,
    pub size_bytes: i64,
}

body! {
    /// The query of `GET /conversations/{id}/audio.wav`.
    pub query AudioQuery;
    // Whatever is no token is no credential.
    optional token: String = Kind::Any, "A signed audio token, in place of a key.";
}

body! {
    /// The body of `POST /conversations/{id}/audio/revoke`.
    pub struct Revoke = "RevokeAudioToken";
    required token: String = Kind::Str { min: 1, max: 500 }, "The signed audio token to take back.";
}

/// The token is good for nothing any more.
#[derive(Serialize, JsonSchema)]
pub struct Revoked {
    /// Always true.
    pub revoked: bool,
}

body! {
    /// The body of `POST /conversations/{id}/feedback`.
    pub struct Rate = "Feedback";
    required rating: i64 = Kind::int(1, 5), "1 is worst, 5 is best.";
    nullable comment: String = Kind::Str { min: 0, max: 1000 }, "A few words.";
}

body! {
    /// The query of `GET /conversations/search` beside its page.
    pub query SearchQuery;
    required q: String = Kind::Str { min: 1, max: 200 },
        "Words that were said, by whomever, in any case; each has to occur.";
    optional agent_id: AgentId, "Only conversations with this agent.";
    optional from: Timestamp, "Only conversations created at or after this time.";
    optional to: Timestamp, "Only conversations created before this time.";
}

/// A conversation that was searched for.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "FoundConversation")]
pub struct Found {
    #[serde(flatten)]
    pub conversation: ConversationRecord,
    /// Its first turns with one of the words.
    pub matches: Vec<Said>,
}

/// Where the time of a conversation went, and what went wrong in it.
#[derive(Serialize, JsonSchema)]
pub struct Diagnostics {
    pub conversation_id: CallId,
    /// Where the conversation stands.
    pub status: ConversationStatus,
    pub end_reason: Option<String>,
    /// Percentiles of the turns' `latency`, by its keys, in milliseconds.
    #[schemars(with = "Option<BTreeMap<String, Spread>>")]
    pub latency_summary: Option<Value>,
    /// One step an answered turn.
    pub waterfall: Vec<Step>,
    /// How well the media travelled.
    pub network: Network,
    /// What went wrong: of the call, then of its providers (the first of each kind, 20 at most), then of its tools.
    pub errors: Vec<Fault>,
    /// How often a provider failed, those tries included that `errors` has no room for.
    pub provider_error_count: u64,
    /// The ids that providers gave to the requests of this conversation. Quote them when you ask a provider.
    pub provider_request_ids: Vec<String>,
}

/// How well the media travelled; null where the channel measures none of it.
#[derive(Serialize, JsonSchema)]
pub struct Network {
    pub channel: String,
    pub rtt_ms: Option<f64>,
    pub loss_pct: Option<f64>,
    pub jitter_ms: Option<f64>,
    pub mos: Option<f64>,
    /// What became of the caller's packets, counted since the call began.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<BTreeMap<String, u64>>")]
    pub media: Option<MediaTotals>,
}

impl Diagnostics {
    pub fn of(call: CallRow, faults: Faults, turns: &[Value]) -> Self {
        let Faults {
            errors,
            of_providers,
            provider_request_ids,
            network,
        } = faults;
        let measured = network.as_ref();
        Self {
            conversation_id: call.id,
            status: call.conversation_status,
            end_reason: call.end_reason,
            latency_summary: call.latency_summary,
            waterfall: rules::waterfall(turns),
            network: Network {
                channel: call.channel.to_string(),
                rtt_ms: measured
                    .and_then(|network| network.rtt_ms)
                    .or_else(|| rules::round_trip(turns)),
                loss_pct: measured.and_then(|network| network.loss_pct),
                jitter_ms: measured.and_then(|network| network.jitter_ms),
                mos: measured.and_then(|network| network.mos),
                media: measured.map(|network| network.media),
            },
            provider_error_count: of_providers.count,
            errors: rules::faults(errors, of_providers, turns),
            provider_request_ids,
        }
    }
}
