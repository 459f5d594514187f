//! What was learned of one model of a provider while it was asked: the parameters that it refuses, and whether its
//! answers begin with thoughts. Kept as long as the process runs.

use std::sync::Mutex;

use serde_json::Value;

use super::super::plan::Fault;
use super::super::settings::{OPTIONAL, SYSTEM};
use crate::vendors::queue::lock;

/// Words with which a server refuses a parameter without its name.
const UNNAMED: &[&str] = &[
    "additional propert",
    "extra field",
    "extra input",
    "extra_forbidden",
    "unexpected keyword",
    "unknown field",
    "unknown parameter",
    "unrecognized",
    "unsupported parameter",
];

/// One model's habits.
#[derive(Debug, Default)]
pub(in super::super) struct Habits(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    omitted: Vec<&'static str>,
    thinks: Option<bool>,
}

impl Habits {
    /// `omitted`: what the operator says is never sent.
    pub(in super::super) fn new(omitted: &[&'static str]) -> Self {
        Self(Mutex::new(Known {
            omitted: omitted.to_vec(),
            thinks: None,
        }))
    }

    /// What is left out of a request.
    pub(super) fn omitted(&self) -> Vec<&'static str> {
        lock(&self.0).omitted.clone()
    }

    /// Whether answers begin with thoughts that only a closing tag tells apart; `None`: nothing is known.
    pub(super) fn thinks(&self) -> Option<bool> {
        lock(&self.0).thinks
    }

    /// An answer is over. `alone`: a closing tag came without its opening one.
    pub(super) fn answered(&self, alone: bool) {
        let mut known = lock(&self.0);
        known.thinks = match (known.thinks, alone) {
            (_, true) => Some(true),
            (Some(true), false) => None,
            (_, false) => Some(false),
        };
    }

    /// What a refusal says of the parameters of the request: they are left out from now on. Empty: it is about something
    /// else.
    pub(super) fn learn(&self, fault: &Fault, body: &Value) -> Vec<&'static str> {
        let words = match fault {
            Fault::Refused {
                status: 400 | 404 | 405 | 415 | 422,
                words,
            }
            | Fault::Busy {
                status: 500 | 501,
                words,
                ..
            } => words.message.to_lowercase(),
            Fault::Told(words) => words.message.to_lowercase(),
            _ => return Vec::new(),
        };
        let sent = |name: &&&'static str| match **name {
            SYSTEM => body["messages"][0]["role"] == "system",
            name => body.get(name).is_some(),
        };
        let named = |name: &&&'static str| match **name {
            SYSTEM => {
                words.contains("system")
                    && (words.contains("role") || words.contains("message"))
                    && ["support", "alternate", "invalid", "allowed", "unexpected"]
                        .iter()
                        .any(|word| words.contains(word))
            }
            name => words.contains(name),
        };
        let mut found: Vec<&'static str> = OPTIONAL
            .iter()
            .filter(sent)
            .filter(named)
            .copied()
            .collect();
        if found.is_empty() && UNNAMED.iter().any(|word| words.contains(word)) {
            let spare = |name: &&&'static str| !name.starts_with("max_") && **name != SYSTEM;
            found = OPTIONAL
                .iter()
                .filter(sent)
                .filter(spare)
                .copied()
                .collect();
        }
        lock(&self.0).omitted.extend(&found);
        found
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::complaint;
    use super::*;

    fn refused(status: u16, body: &str) -> Fault {
        Fault::Refused {
            status,
            words: complaint::read(body),
        }
    }

    #[test]
    fn what_a_refusal_names_is_left_out_from_now_on() {
        let body = json!({"stream_options": {}, "max_tokens": 1, "temperature": 0.5, "presence_penalty": 1,
            "messages": [{"role": "system"}]});
        for (status, told, omitted) in [
            (
                400,
                r#"{"error":{"message":"Unrecognized request argument supplied: stream_options"}}"#,
                vec!["stream_options"],
            ),
            (
                422,
                r#"{"detail":[{"loc":["body","presence_penalty"],"msg":"extra fields not permitted"}]}"#,
                vec!["presence_penalty"],
            ),
            (
                400,
                r#"{"error":{"message":"Unsupported value","param":"temperature"}}"#,
                vec!["temperature"],
            ),
            (
                400,
                r#"{"error":{"message":"Use 'max_completion_tokens' instead of 'max_tokens'."}}"#,
                vec!["max_tokens"],
            ),
            (
                400,
                r#"{"message":"System role not supported"}"#,
                vec![SYSTEM],
            ),
            (
                400,
                "Extra inputs are not permitted",
                vec!["stream_options", "temperature", "presence_penalty"],
            ),
            (400, r#"{"error":{"message":"the key is wrong"}}"#, vec![]),
            (400, r#"{"error":{"message":"frequency_penalty"}}"#, vec![]),
            (401, r#"{"error":{"message":"stream_options"}}"#, vec![]),
        ] {
            let habits = Habits::default();
            assert_eq!(
                habits.learn(&refused(status, told), &body),
                omitted,
                "{told}"
            );
            assert_eq!(habits.omitted(), omitted);
        }
        assert_eq!(Habits::new(&["temperature"]).omitted(), ["temperature"]);
    }

    #[test]
    fn a_model_that_thinks_aloud_is_known_until_it_no_longer_does() {
        let habits = Habits::default();
        assert_eq!(habits.thinks(), None);
        habits.answered(false);
        assert_eq!(habits.thinks(), Some(false));
        habits.answered(true);
        assert_eq!(habits.thinks(), Some(true));
        habits.answered(false);
        assert_eq!(habits.thinks(), None);
    }
}
