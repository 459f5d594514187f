//! The bodies of events: flat JSON with the fields of the API document, in its order.

use serde::Serialize;
use serde_json::Value;

use crate::ids::{AgentId, CallId, EventId};
use crate::time::Timestamp;

/// The longest transcript that a report carries, bytes of JSON. Receivers commonly refuse bodies over
/// 1 MiB; the rest is at `GET /calls/{id}`.
const TRANSCRIPT_LIMIT: usize = 256 * 1024;

/// The most metadata that a report carries, bytes of JSON.
const METADATA_LIMIT: usize = 16 * 1024;

/// `call.ended`.
#[derive(Serialize)]
pub struct CallEnded<'a> {
    pub event_id: EventId,
    /// Unix seconds.
    pub timestamp: i64,
    pub call_id: CallId,
    pub conversation_id: CallId,
    pub agent_id: AgentId,
    pub status: &'a str,
    pub direction: &'a str,
    pub from_number: Option<&'a str>,
    pub to_number: Option<&'a str>,
    pub duration_seconds: f64,
    pub cost_cents: i64,
    pub started_at: Option<Timestamp>,
    pub ended_at: Timestamp,
    pub transcript: &'a [Value],
    pub transcript_text: &'a str,
    pub batch_id: Option<&'a str>,
    pub batch_recipient_index: Option<i64>,
    pub metadata: Value,
    pub metadata_truncated: bool,
    pub transcript_truncated: bool,
}

/// `recording.ready`.
#[derive(Serialize)]
pub struct RecordingReady<'a> {
    pub event_id: EventId,
    /// Unix seconds.
    pub timestamp: i64,
    pub call_id: CallId,
    pub conversation_id: CallId,
    pub audio_url: &'a str,
    pub size_bytes: i64,
    pub recording_region: &'a str,
}

/// The first turns that fit a report, and whether some were left out.
pub fn fit_transcript(turns: &[Value]) -> (&[Value], bool) {
    let mut room = TRANSCRIPT_LIMIT;
    for (index, turn) in turns.iter().enumerate() {
        let length = serde_json::to_string(turn).map_or(usize::MAX, |text| text.len() + 1);
        if length > room {
            return (&turns[..index], true);
        }
        room -= length;
    }
    (turns, false)
}

/// Metadata as a report carries it (always an object), and whether it was left out for its size.
pub fn fit_metadata(metadata: Value) -> (Value, bool) {
    let empty = || Value::Object(serde_json::Map::new());
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
        let turn = json!({"text": "x".repeat(100 * 1024)});
        let turns = vec![turn.clone(), turn.clone(), turn];
        let (kept, truncated) = fit_transcript(&turns);
        assert_eq!((kept.len(), truncated), (2, true));
        assert_eq!(fit_transcript(&turns[..2]), (&turns[..2], false));
        assert_eq!(fit_transcript(&[]), (&[][..], false));
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
