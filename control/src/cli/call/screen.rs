//! How a call is shown on a terminal: one line a turn, one for where an answer's time went.

use serde_json::Value;

/// A line of the live transcript.
pub(crate) fn line(at_ms: u64, who: &str, text: &str) -> String {
    format!("{}  {who:<7} {text}", clock(at_ms))
}

/// What an answer's latency was made of: `answered in 640 ms: end of turn 400 (setting), …`.
pub(crate) fn latency(record: &Value) -> Option<String> {
    let total = record["response_ms"].as_u64()?;
    let parts: Vec<String> = record["contributions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|part| part["duration_ms"].as_u64().is_some_and(|ms| ms > 0))
        .map(|part| {
            let key = part["key"].as_str().unwrap_or_default().replace('_', " ");
            format!("{key} {}", part["duration_ms"])
        })
        .collect();
    let made_of = if parts.is_empty() {
        String::new()
    } else {
        format!("  ({})", parts.join(", "))
    };
    Some(format!("answered in {total} ms{made_of}"))
}

/// The lines of a finished conversation, as the API tells it.
pub(crate) fn transcript(turns: &[Value]) -> Vec<String> {
    let mut lines = Vec::new();
    for turn in turns {
        let who = match turn["role"].as_str() {
            Some("user") => "Caller",
            Some("human_agent") => "Human",
            _ => "Agent",
        };
        let text = turn["text"].as_str().unwrap_or_default();
        lines.push(turn["start_ms"].as_u64().map_or_else(
            || format!("   –     {who:<7} {text}"),
            |at| line(at, who, text),
        ));
        if let Some(after) = turn["interrupted_after_ms"].as_u64() {
            lines.push(note(&interrupted(
                Some(after),
                turn["estimated_text_spoken"].as_str(),
            )));
        }
        lines.extend(latency(&turn["latency"]).as_deref().map(note));
    }
    lines
}

/// A remark that belongs to the line above it.
pub(crate) fn note(text: &str) -> String {
    format!("{:>17}{text}", "")
}

pub(crate) fn interrupted(after_ms: Option<u64>, spoken: Option<&str>) -> String {
    let after = after_ms.map_or_else(String::new, |ms| format!(" after {ms} ms"));
    let spoken = spoken
        .filter(|text| !text.is_empty())
        .map_or_else(String::new, |text| format!(": “{text}” was heard"));
    format!("interrupted{after}{spoken}")
}

/// Minutes, seconds and tenths: `0:04.2`.
fn clock(ms: u64) -> String {
    format!("{:>3}:{:02}.{}", ms / 60_000, ms / 1000 % 60, ms / 100 % 10)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_conversation_reads_like_one() {
        let turns = [
            json!({"role": "assistant", "text": "Good morning, how can I help?", "start_ms": 40, "latency": null,
                   "interrupted_after_ms": 900, "estimated_text_spoken": "Good morning,"}),
            json!({"role": "user", "text": "when do you open", "start_ms": 61_250}),
            json!({"role": "assistant", "text": "At eight.", "start_ms": null, "latency": {"response_ms": 640,
                   "contributions": [{"key": "end_of_turn", "owner": "setting", "start_ms": 0, "duration_ms": 400},
                                     {"key": "llm", "owner": "llm", "start_ms": 400, "duration_ms": 0},
                                     {"key": "tts", "owner": "tts", "start_ms": 400, "duration_ms": 240}]}}),
        ];
        let expected = [
            "  0:00.0  Agent   Good morning, how can I help?",
            "                 interrupted after 900 ms: “Good morning,” was heard",
            "  1:01.2  Caller  when do you open",
            "   –     Agent   At eight.",
            "                 answered in 640 ms  (end of turn 400, tts 240)",
        ];
        assert_eq!(transcript(&turns), expected);
    }
}
