//! How a call is shown on a terminal: one line a turn, one for where an answer's time went.

use serde_json::Value;

/// The live transcript. An agent's text grows while it is spoken; its line is printed once it is
/// complete or cut short, and what belongs to the line comes after it.
#[derive(Default)]
pub(crate) struct Screen {
    open: Option<Open>,
}

/// A turn of the agent whose text may still grow.
struct Open {
    turn: String,
    at_ms: u64,
    text: String,
    notes: Vec<String>,
}

impl Screen {
    pub(crate) fn caller(&mut self, at_ms: u64, text: &str) -> Vec<String> {
        let mut lines = self.flush();
        lines.push(line(at_ms, "Caller", text));
        lines
    }

    /// The text of an agent's turn so far.
    pub(crate) fn agent(
        &mut self,
        at_ms: u64,
        turn: &str,
        text: &str,
        is_final: bool,
    ) -> Vec<String> {
        let mut lines = if self.is_open(turn) {
            Vec::new()
        } else {
            self.flush()
        };
        let open = self.open.get_or_insert_with(|| Open {
            turn: turn.to_owned(),
            at_ms,
            text: String::new(),
            notes: Vec::new(),
        });
        open.text = text.to_owned();
        if is_final {
            lines.extend(self.flush());
        }
        lines
    }

    pub(crate) fn metrics(&mut self, turn: &str, record: &Value) -> Vec<String> {
        latency(record).map_or_else(Vec::new, |text| self.remark(turn, &text))
    }

    pub(crate) fn interrupted(
        &mut self,
        turn: &str,
        after_ms: Option<u64>,
        spoken: Option<&str>,
    ) -> Vec<String> {
        let mut lines = self.remark(turn, &interrupted(after_ms, spoken));
        lines.extend(self.flush());
        lines
    }

    /// Everything that was kept back.
    pub(crate) fn flush(&mut self) -> Vec<String> {
        self.open.take().map_or_else(Vec::new, |open| {
            let mut lines = vec![line(open.at_ms, "Agent", &open.text)];
            lines.extend(open.notes);
            lines
        })
    }

    fn is_open(&self, turn: &str) -> bool {
        self.open.as_ref().is_some_and(|open| open.turn == turn)
    }

    /// Says it now, or after the line it belongs to.
    fn remark(&mut self, turn: &str, text: &str) -> Vec<String> {
        match &mut self.open {
            Some(open) if open.turn == turn => {
                open.notes.push(note(text));
                Vec::new()
            }
            _ => vec![note(text)],
        }
    }
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
        let start = turn["start_ms"].as_u64();
        lines.push(start.map_or_else(|| without_time(who, text), |at| line(at, who, text)));
        lines.extend(latency(&turn["latency"]).as_deref().map(note));
        if let Some(after) = turn["interrupted_after_ms"].as_u64() {
            lines.push(note(&interrupted(
                Some(after),
                turn["estimated_text_spoken"].as_str(),
            )));
        }
    }
    lines
}

/// A line of the transcript.
pub(crate) fn line(at_ms: u64, who: &str, text: &str) -> String {
    let at = format!(
        "{}:{:02}.{}",
        at_ms / 60_000,
        at_ms / 1000 % 60,
        at_ms / 100 % 10
    );
    format!("{at:>8}  {who:<7} {text}")
}

/// A line about something that has no place on the call's clock.
fn without_time(who: &str, text: &str) -> String {
    format!("    –     {who:<7} {text}")
}

/// What an answer's latency was made of: `answered in 640 ms  (endpoint 400, stt final 40, …)`.
fn latency(record: &Value) -> Option<String> {
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

fn interrupted(after_ms: Option<u64>, spoken: Option<&str>) -> String {
    let after = after_ms.map_or_else(String::new, |ms| format!(" after {ms} ms"));
    let spoken = spoken.filter(|text| !text.is_empty());
    let spoken = spoken.map_or_else(String::new, |text| format!(": “{text}” was heard"));
    format!("interrupted{after}{spoken}")
}

/// What went wrong in a call, of its diagnostics: `0:02.1  recogniser ears (invalid_api_key): status 401: …`.
pub(super) fn faults(diagnostics: &Value) -> Vec<String> {
    let errors = diagnostics["errors"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let mut lines: Vec<String> = errors
        .iter()
        .map(|error| {
            let text = |key: &str| error[key].as_str().unwrap_or_default();
            let Some(at_ms) = error["at_ms"].as_u64() else {
                return without_time(text("source"), text("message"));
            };
            let who = format!("{} ({})", text("provider"), text("code"));
            let words = format!("{who}: {}", text("message"));
            line(at_ms, text("stage"), &words)
        })
        .collect();
    let of_providers = errors.iter().filter(|error| error["source"] == "provider");
    let shown = of_providers.count() as u64;
    let count = diagnostics["provider_error_count"]
        .as_u64()
        .unwrap_or(shown);
    if count > shown {
        lines.push(note(&format!("and {} more of providers", count - shown)));
    }
    if !lines.is_empty() {
        lines.insert(0, "What went wrong:".to_owned());
    }
    lines
}

/// A remark that belongs to the line above it.
fn note(text: &str) -> String {
    format!("{:>18}{text}", "")
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
                   "contributions": [{"key": "endpoint", "owner": "setting", "start_ms": 0, "duration_ms": 400},
                                     {"key": "llm", "owner": "llm", "start_ms": 400, "duration_ms": 0},
                                     {"key": "tts", "owner": "tts", "start_ms": 400, "duration_ms": 240}]}}),
        ];
        let expected = [
            "  0:00.0  Agent   Good morning, how can I help?",
            "                  interrupted after 900 ms: “Good morning,” was heard",
            "  1:01.2  Caller  when do you open",
            "    –     Agent   At eight.",
            "                  answered in 640 ms  (endpoint 400, tts 240)",
        ];
        assert_eq!(transcript(&turns), expected);
    }

    #[test]
    fn what_went_wrong_is_told_with_its_time_and_the_provider_s_words() {
        let told = json!({"errors": [
            {"source": "call", "message": "three pings without an answer", "at_ms": null},
            {"source": "provider", "at_ms": 2_150, "stage": "model", "provider": "cloud", "code": "model_not_found",
             "message": "status 404: no such model"},
        ], "provider_error_count": 4});
        assert_eq!(
            faults(&told),
            [
                "What went wrong:",
                "    –     call    three pings without an answer",
                "  0:02.1  model   cloud (model_not_found): status 404: no such model",
                "                  and 3 more of providers",
            ]
        );
        assert!(faults(&json!({"errors": [], "provider_error_count": 0})).is_empty());
    }

    #[test]
    fn a_growing_answer_is_one_line_and_its_remarks_follow_it() {
        let mut screen = Screen::default();
        assert!(screen.agent(1000, "t2", "We open", false).is_empty());
        assert!(
            screen
                .metrics("t2", &json!({"response_ms": 500}))
                .is_empty()
        );
        let lines = screen.agent(1400, "t2", "We open at eight.", true);
        assert_eq!(
            lines,
            [
                "  0:01.0  Agent   We open at eight.",
                "                  answered in 500 ms"
            ]
        );
        assert_eq!(
            screen.metrics("t2", &json!({"response_ms": 7})),
            ["                  answered in 7 ms"]
        );
    }

    #[test]
    fn an_answer_cut_short_is_shown_as_far_as_it_was_told() {
        let mut screen = Screen::default();
        screen.agent(1000, "t2", "We open at eight. On Sundays", false);
        let lines = screen.interrupted("t2", Some(700), Some("We open"));
        assert_eq!(lines.len(), 2);
        assert!(lines[1].ends_with("interrupted after 700 ms: “We open” was heard"));
        assert_eq!(screen.caller(3000, "thanks"), ["  0:03.0  Caller  thanks"]);
        screen.agent(4000, "t4", "Goodbye", false);
        assert_eq!(screen.flush(), ["  0:04.0  Agent   Goodbye"]);
    }
}
