//! Bodies of the conversation routes.

use std::collections::BTreeMap;

use media::peer::MediaTotals;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::rules::{self, Fault, Said, Step};
use super::store::Faults;
use crate::calls::ending::seconds;
use crate::calls::latency::Spread;
use crate::calls::rules::ConversationStatus;
use crate::calls::store::{CallRow, Feedback};
use crate::calls::turn::TurnRecord;
use crate::calls::wire::{CHANNELS, DIRECTIONS};
use crate::http::extract::Wire;
use crate::http::validate::{Field, Kind, Schema, Unknown};
use crate::ids::{AgentId, CallId};
use crate::time::Timestamp;

/// A conversation. Its id is that of its session and of its call.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Conversation")]
pub struct ConversationRecord {
    pub id: CallId,
    pub session_id: CallId,
    pub call_id: CallId,
    /// The agent that speaks. Null where no agent answered.
    pub agent_id: Option<AgentId>,
    pub agent_name: String,
    #[schemars(extend("enum" = CHANNELS))]
    pub channel: String,
    #[schemars(extend("enum" = DIRECTIONS))]
    pub direction: String,
    /// Where the conversation stands. `abandoned`: nobody joined the session or answered the call.
    #[schemars(extend("enum" = ConversationStatus::NAMES))]
    pub status: String,
    pub turn_count: i64,
    pub duration_seconds: f64,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub end_reason: Option<String>,
    pub language: String,
    /// Whether anything was said that `getTranscript` answers.
    pub has_transcript: bool,
    pub has_recording: bool,
    /// Where the transcript is. It needs a key.
    pub transcript_url: String,
    /// Where a signed URL of the WAV is made. It needs a key. Null while there is no recording.
    pub audio_url: Option<String>,
    /// What somebody thought of it; null until it is rated.
    pub feedback: Option<FeedbackRecord>,
    #[schemars(with = "Map<String, Value>")]
    pub metadata: Value,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// What somebody thought of a conversation.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ConversationFeedback")]
pub struct FeedbackRecord {
    /// From 1 (worst) to 5 (best).
    #[schemars(range(min = 1, max = 5))]
    pub rating: i64,
    /// A few words to it.
    pub comment: Option<String>,
    pub created_at: Timestamp,
}

impl ConversationRecord {
    /// The record of a call's conversation; `base` is the public URL of the server.
    pub fn of(call: CallRow, base: &str) -> Self {
        let CallRow {
            id,
            account: _,
            agent_id,
            agent_name,
            status: _,
            conversation_status,
            direction,
            channel,
            language,
            from_number: _,
            to_number: _,
            phone_number_id: _,
            trunk_id: _,
            matched_by: _,
            from_withheld: _,
            dynamic_variables: _,
            metadata,
            batch_id: _,
            batch_recipient_index: _,
            started_at,
            rang_at: _,
            answered_at: _,
            ended_at,
            duration_ms,
            end_reason,
            ended_by: _,
            sip_code: _,
            max_duration_seconds: _,
            turn_count,
            has_transcript,
            latency_summary: _,
            cost_cents: _,
            has_recording,
            recording_id: _,
            feedback,
            incarnation: _,
            node: _,
            webhook_status: _,
            webhook_delivered_at: _,
            webhook_attempts: _,
            created_at,
            updated_at,
        } = call;
        let path = format!("{base}/api/v1/conversations/{id}");
        Self {
            id,
            session_id: id,
            call_id: id,
            agent_id: agent_id.known(),
            agent_name,
            channel,
            direction,
            status: conversation_status,
            turn_count,
            duration_seconds: seconds(duration_ms),
            started_at,
            ended_at,
            end_reason,
            language,
            has_transcript,
            has_recording,
            transcript_url: format!("{path}/transcript"),
            audio_url: has_recording.then(|| format!("{path}/audio")),
            feedback: feedback.map(
                |Feedback {
                     rating,
                     comment,
                     at,
                 }| FeedbackRecord {
                    rating,
                    comment,
                    created_at: at,
                },
            ),
            metadata,
            created_at,
            updated_at,
        }
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

/// The query of `GET /conversations/{id}/audio.wav`.
#[derive(Deserialize)]
pub struct AudioQuery {
    pub token: Option<String>,
}

impl Wire for AudioQuery {
    const SCHEMA: &'static Schema = &Schema {
        name: "AudioQuery",
        unknown: Unknown::Ignore,
        fields: &[Field::opt(
            "token",
            // Whatever is no token is no credential.
            Kind::Any,
            "A signed audio token, in place of a key.",
        )],
    };
}

/// The body of `POST /conversations/{id}/audio/revoke`.
#[derive(Deserialize)]
pub struct Revoke {
    pub token: String,
}

impl Wire for Revoke {
    const SCHEMA: &'static Schema = &Schema {
        name: "RevokeAudioToken",
        unknown: Unknown::Refuse,
        fields: &[Field::req(
            "token",
            Kind::Str { min: 1, max: 500 },
            "The signed audio token to take back.",
        )],
    };
}

/// The token is good for nothing any more.
#[derive(Serialize, JsonSchema)]
pub struct Revoked {
    /// Always true.
    pub revoked: bool,
}

/// The body of `POST /conversations/{id}/feedback`.
#[derive(Deserialize)]
pub struct Rate {
    pub rating: i64,
    pub comment: Option<String>,
}

impl Wire for Rate {
    const SCHEMA: &'static Schema = &Schema {
        name: "Feedback",
        unknown: Unknown::Refuse,
        fields: &[
            Field::req(
                "rating",
                Kind::Int { min: 1, max: 5 },
                "1 is worst, 5 is best.",
            ),
            Field::opt("comment", Kind::Str { min: 0, max: 1000 }, "A few words.").nullable(),
        ],
    };
}

/// The query of `GET /conversations/search` beside its page.
#[derive(Deserialize)]
pub struct SearchQuery {
    pub q: String,
    pub agent_id: Option<AgentId>,
    pub from: Option<Timestamp>,
    pub to: Option<Timestamp>,
}

impl Wire for SearchQuery {
    const SCHEMA: &'static Schema = &Schema {
        name: "SearchQuery",
        unknown: Unknown::Ignore,
        fields: &[
            Field::req(
                "q",
                Kind::Str { min: 1, max: 200 },
                "Words that were said, by whomever, in any case; each has to occur.",
            ),
            Field::opt(
                "agent_id",
                Kind::Uuid,
                "Only conversations with this agent.",
            ),
            Field::opt(
                "from",
                Kind::Timestamp,
                "Only conversations created at or after this time.",
            ),
            Field::opt(
                "to",
                Kind::Timestamp,
                "Only conversations created before this time.",
            ),
        ],
    };
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
    #[schemars(extend("enum" = ConversationStatus::NAMES))]
    pub status: String,
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
                channel: call.channel,
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
