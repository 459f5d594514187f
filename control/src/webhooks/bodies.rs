//! The bodies of events: flat JSON with the fields of the API document, in its order.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::ids::{AgentId, CallId, EventId};
use crate::live::Direction;
use crate::time::Timestamp;
use crate::transcript::TurnRecord;

/// The longest body, bytes. Receivers commonly refuse bodies over 1 MiB, and small functions far
/// less; the rest is at `GET /calls/{id}`.
pub const BODY_LIMIT: usize = 256 * 1024;

/// The most metadata that a report carries, bytes of JSON: as much as an agent may have.
const METADATA_LIMIT: usize = 16 * 1024;

/// Everything of a report but transcript and metadata: names, ids, numbers and times of bounded length.
const REST: usize = 4 * 1024;

/// The body of `call.ended`.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "CallEndedEvent")]
pub struct CallEnded<'a> {
    /// The event. The id is the same in every attempt to deliver it.
    pub event_id: EventId,
    /// When the event was made, in Unix seconds.
    pub timestamp: i64,
    pub call_id: CallId,
    pub conversation_id: CallId,
    pub agent_id: AgentId,
    /// How the call ended.
    #[schemars(extend("enum" = ["completed", "failed", "no-answer", "busy", "canceled"]))]
    pub status: &'a str,
    pub direction: Direction,
    pub from_number: Option<&'a str>,
    pub to_number: Option<&'a str>,
    pub duration_seconds: f64,
    pub cost_cents: i64,
    pub started_at: Option<Timestamp>,
    pub ended_at: Timestamp,
    #[schemars(with = "Vec<TurnRecord>")]
    pub transcript: &'a [Value],
    pub transcript_text: &'a str,
    /// The batch that the call is of. Null unless it is of one.
    pub batch_id: Option<&'a str>,
    pub batch_recipient_index: Option<i64>,
    #[schemars(with = "Map<String, Value>")]
    pub metadata: Value,
    /// Whether the metadata was left out because it did not fit; `GET /calls/{id}` has all of it.
    pub metadata_truncated: bool,
    /// Whether the transcript was cut to fit; `GET /calls/{id}` has all of it.
    pub transcript_truncated: bool,
}

/// The body of `recording.ready`.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RecordingReadyEvent")]
pub struct RecordingReady<'a> {
    /// The event. The id is the same in every attempt to deliver it.
    pub event_id: EventId,
    /// When the event was made, in Unix seconds.
    pub timestamp: i64,
    pub call_id: CallId,
    pub conversation_id: CallId,
    /// The URL of the WAV. It is good without a key for an hour.
    pub audio_url: &'a str,
    pub size_bytes: i64,
    pub recording_region: &'a str,
}

/// The body of `agent.prompt_variables.unfilled`.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PromptVariablesUnfilledEvent")]
pub struct PromptVariablesUnfilled<'a> {
    /// The kind of event, as in the header.
    #[schemars(extend("const" = "agent.prompt_variables.unfilled"))]
    pub event: &'static str,
    /// The event. The id is the same in every attempt to deliver it.
    pub event_id: EventId,
    pub agent_id: AgentId,
    /// The day's first conversation with unfilled placeholders.
    pub conversation_id: CallId,
    /// What the conversation goes over.
    #[schemars(extend("enum" = ["voice", "chatapp", "sms", "chat"]))]
    pub channel: &'a str,
    /// The reason, for programs.
    #[schemars(extend("const" = "unfilled_prompt_variables"))]
    pub reason_code: &'static str,
    /// The reason, for people.
    pub reason: String,
    /// The names of the placeholders that nothing fills.
    pub variables: &'a [String],
}

/// The first turns that fit a report, and whether some were left out. Each turn counts twice: in
/// `transcript`, and with its words in `transcript_text`.
pub fn fit_transcript(turns: &[Value]) -> (&[Value], bool) {
    /// `Human agent: ` and a line's end, escaped.
    const SPEAKER: usize = 16;
    let length = |value: &Value| serde_json::to_string(value).map_or(BODY_LIMIT, |text| text.len());
    let mut room = BODY_LIMIT - METADATA_LIMIT - REST;
    for (index, turn) in turns.iter().enumerate() {
        let words = turn.get("text").map_or(0, length);
        let needed = length(turn) + 1 + words + SPEAKER;
        if needed > room {
            return (&turns[..index], true);
        }
        room -= needed;
    }
    (turns, false)
}

/// Metadata as a report carries it (always an object), and whether it was left out for its size.
pub fn fit_metadata(metadata: Value) -> (Value, bool) {
    let empty = || Value::Object(Map::new());
    if !metadata.is_object() {
        return (empty(), false);
    }
    let fits = serde_json::to_string(&metadata).is_ok_and(|text| text.len() <= METADATA_LIMIT);
    if fits {
        (metadata, false)
    } else {
        (empty(), true)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_long_transcript_is_cut_between_turns() {
        let turn = json!({"text": "x".repeat(50 * 1024)});
        let turns = vec![turn.clone(), turn.clone(), turn];
        let (kept, truncated) = fit_transcript(&turns);
        assert_eq!((kept.len(), truncated), (2, true));
        assert_eq!(fit_transcript(&turns[..2]), (&turns[..2], false));
        assert_eq!(fit_transcript(&[]), (&[][..], false));
    }

    #[test]
    fn no_report_is_longer_than_its_limit() {
        // Characters that grow when they are escaped, in turns of every length.
        for length in [0, 1, 10, 1000, 100_000] {
            let turn =
                json!({"index": 1, "role": "human_agent", "text": "\"\n\u{1}é".repeat(length)});
            let turns = vec![turn; 3000];
            let (kept, _) = fit_transcript(&turns);
            let (metadata, _) = fit_metadata(json!({"a": "x".repeat(16_300)}));
            let body = CallEnded {
                event_id: EventId::NIL,
                timestamp: i64::MIN,
                call_id: CallId::NIL,
                conversation_id: CallId::NIL,
                agent_id: AgentId::NIL,
                status: "completed",
                direction: Direction::Outbound,
                from_number: Some("+999999999999999"),
                to_number: Some("+999999999999999"),
                duration_seconds: f64::MAX,
                cost_cents: i64::MIN,
                started_at: Some(Timestamp(i64::MAX)),
                ended_at: Timestamp(i64::MAX),
                transcript: kept,
                transcript_text: &crate::calls::rules::transcript_text(kept),
                batch_id: Some("00000000-0000-0000-0000-000000000000"),
                batch_recipient_index: Some(i64::MAX),
                metadata,
                metadata_truncated: false,
                transcript_truncated: true,
            };
            let length = serde_json::to_string(&body).map_or(usize::MAX, |text| text.len());
            assert!(length <= BODY_LIMIT, "{length}");
        }
    }

    #[test]
    fn metadata_is_an_object_whatever_happens() {
        assert_eq!(fit_metadata(json!({"a": 1})), (json!({"a": 1}), false));
        assert_eq!(fit_metadata(json!(null)), (json!({}), false));
        assert_eq!(
            fit_metadata(json!({"a": "x".repeat(20_000)})),
            (json!({}), true)
        );
    }
}
