//! What was learned of one model of a provider while it was asked: the parameters that it refuses, and whether its
//! answers begin with thoughts. Pure, but for the lock: time is an argument.

use std::sync::Mutex;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::super::plan::Fault;
use super::super::settings::{OPTIONAL, SYSTEM};
use crate::vendors::queue::lock;

/// How long a parameter is left out that was refused: servers change, and a refusal may have been misread.
const REMEMBERED: Duration = Duration::from_secs(3_600);

/// A model that has answered so many times, and never with thoughts, does not think aloud.
const PLAIN_ANSWERS: u32 = 5;

/// Words of a refusal that is about a parameter's value or a request's length: the parameter itself is known.
const OF_VALUES: &[&str] = &[
    "at least",
    "at most",
    "between",
    "context length",
    "context window",
    "exceeds",
    "greater than",
    "less than",
    "maximum",
    "must be",
    "range",
    "too high",
    "too large",
    "too long",
    "too low",
    "too many",
    "too small",
];

/// Words of a refusal that is about a parameter itself.
const OF_PARAMETERS: &[&str] = &[
    "additional properties",
    "deprecated",
    "does not support",
    "extra",
    "instead",
    "not allowed",
    "not permitted",
    "not supported",
    "unexpected",
    "unknown",
    "unrecognised",
    "unrecognized",
    "unsupported",
];

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
    /// What the operator says is never sent.
    never: Vec<&'static str>,
    /// What was refused, and when.
    refused: Vec<(&'static str, Instant)>,
    thinks: bool,
    ever_thought: bool,
    /// Answers without thoughts, up to [`PLAIN_ANSWERS`].
    plain: u32,
}

impl Habits {
    /// `omitted`: what the operator says is never sent.
    pub(in super::super) fn new(omitted: &[&'static str]) -> Self {
        Self(Mutex::new(Known {
            never: omitted.to_vec(),
            ..Known::default()
        }))
    }

    /// What is left out of a request.
    pub(super) fn omitted(&self, now: Instant) -> Vec<&'static str> {
        let mut known = lock(&self.0);
        known
            .refused
            .retain(|(_, at)| now.saturating_duration_since(*at) < REMEMBERED);
        let refused = known.refused.iter().map(|(name, _)| *name);
        known.never.iter().copied().chain(refused).collect()
    }

    /// Whether answers begin with thoughts that only a closing tag tells apart; `None`: they may.
    pub(super) fn thinks(&self) -> Option<bool> {
        let known = lock(&self.0);
        match known.thinks {
            true => Some(true),
            false if known.ever_thought || known.plain < PLAIN_ANSWERS => None,
            false => Some(false),
        }
    }

    /// An answer with words is over. `alone`: a closing tag came without its opening one.
    pub(super) fn answered(&self, alone: bool) {
        let mut known = lock(&self.0);
        known.thinks = alone;
        known.ever_thought |= alone;
        known.plain = (known.plain + 1).min(PLAIN_ANSWERS);
    }

    /// What a refusal says of the parameters of the request: they are left out from now on. Empty: it is about something
    /// else.
    pub(super) fn learn(&self, fault: &Fault, body: &Value, now: Instant) -> Vec<&'static str> {
        let (words, broken) = match fault {
            Fault::Refused {
                status: 400 | 404 | 405 | 415 | 422,
                words,
            }
            | Fault::Told(words) => (told(&words.message), false),
            Fault::Busy {
                status: 500 | 501,
                words,
                ..
            } => (told(&words.message), true),
            _ => return Vec::new(),
        };
        if OF_VALUES.iter().any(|known| has(&words, known)) {
            return Vec::new();
        }
        let refuses = OF_PARAMETERS.iter().any(|known| has(&words, known));
        let sent = |name: &&&'static str| match **name {
            SYSTEM => body["messages"][0]["role"] == "system",
            name => body.get(name).is_some(),
        };
        let named = |name: &&&'static str| match **name {
            SYSTEM => refuses_system(&words, broken),
            name => refuses && names(&words, name),
        };
        let mut found: Vec<&'static str> = OPTIONAL
            .iter()
            .filter(sent)
            .filter(named)
            .copied()
            .collect();
        if found.is_empty() && UNNAMED.iter().any(|known| words.contains(known)) {
            let spare = |name: &&&'static str| !name.starts_with("max_") && **name != SYSTEM;
            found = OPTIONAL
                .iter()
                .filter(sent)
                .filter(spare)
                .copied()
                .collect();
        }
        let mut known = lock(&self.0);
        known.refused.retain(|(name, _)| !found.contains(name));
        known.refused.extend(found.iter().map(|name| (*name, now)));
        drop(known);
        found
    }
}

/// Whether a refusal is about the system role. A server that broke has to speak of roles or of its template.
fn refuses_system(words: &str, broken: bool) -> bool {
    let about = match broken {
        true => &["role", "roles", "template"][..],
        false => &["role", "roles", "template", "message", "messages"],
    };
    names(words, "system")
        && about.iter().any(|about| has(words, about))
        && ["support", "alternate", "invalid", "allowed", "unexpected"]
            .iter()
            .any(|word| words.contains(word))
}

/// What a server says of a fault, in small letters, without what it repeats of the request: servers that check a request
/// by a schema list what is wrong as JSON, and the input beside it.
fn told(message: &str) -> String {
    let is_list = message.starts_with(['{', '[']);
    let words = match serde_json::from_str::<Value>(message) {
        Ok(value) if is_list => {
            let mut words = String::new();
            gather(&value, &mut words);
            words
        }
        // It was cut.
        _ if is_list => {
            let end = message.find("\"input\"").unwrap_or(message.len());
            message[..end].to_owned()
        }
        _ => message.to_owned(),
    };
    words.to_lowercase()
}

/// The texts in those fields that tell of a fault.
fn gather(value: &Value, words: &mut String) {
    match value {
        Value::String(text) => {
            words.push_str(text);
            words.push('\n');
        }
        Value::Array(items) => items.iter().for_each(|item| gather(item, words)),
        Value::Object(fields) => {
            let tell = [
                "code", "detail", "details", "error", "errors", "loc", "message", "msg", "param",
                "type",
            ];
            let telling = fields
                .iter()
                .filter(|(name, _)| tell.contains(&name.as_str()));
            telling.for_each(|(_, field)| gather(field, words));
        }
        _ => {}
    }
}

/// Whether the words hold these, not as a part of longer ones.
fn has(words: &str, wanted: &str) -> bool {
    stands_alone(words, wanted, char::is_alphanumeric)
}

/// The same of a name, which may have `_` in it.
fn names(words: &str, name: &str) -> bool {
    stands_alone(words, name, |c| c.is_alphanumeric() || c == '_')
}

fn stands_alone(words: &str, wanted: &str, is_part: impl Fn(char) -> bool) -> bool {
    words.match_indices(wanted).any(|(at, _)| {
        let before = words[..at].chars().next_back();
        let after = words[at + wanted.len()..].chars().next();
        !before.is_some_and(&is_part) && !after.is_some_and(&is_part)
    })
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
            let now = Instant::now();
            assert_eq!(
                habits.learn(&refused(status, told), &body, now),
                omitted,
                "{told}"
            );
            assert_eq!(habits.omitted(now), omitted);
            let later = now + REMEMBERED;
            assert_eq!(habits.omitted(later), Vec::<&str>::new(), "an hour later");
        }
        let habits = Habits::new(&["temperature"]);
        let later = Instant::now() + 2 * REMEMBERED;
        assert_eq!(
            habits.omitted(later),
            ["temperature"],
            "as the operator says"
        );
    }

    #[test]
    fn a_refusal_of_a_value_or_of_a_length_takes_no_parameter_away() {
        let body = json!({"stream_options": {}, "max_tokens": 1, "temperature": 0.5, "presence_penalty": 1,
            "messages": [{"role": "system"}]});
        let broken = |status, told: &str| Fault::Busy {
            status,
            after: None,
            words: complaint::read(told),
        };
        let echo = r#"{"detail":[{"type":"string_type","loc":["body","messages",0,"content"],
            "msg":"Input should be a valid string",
            "input":{"temperature":0.5,"max_tokens":1,"say":"unknown unexpected system message"}}]}"#;
        let long = echo.replace("unknown", &"unknown ".repeat(1_000));
        for fault in [
            refused(
                400,
                "max_tokens is too large: 9. This model's maximum context length is 8 tokens",
            ),
            refused(400, "temperature must be between 0 and 1, unknown value"),
            refused(400, "presence_penalty is out of range (unsupported)"),
            refused(422, echo),
            refused(422, &long),
            refused(400, "the temperature in the room is what was asked for"),
            refused(400, "unsupported: max_tokens_per_minute"),
            broken(500, "internal system error: unexpected message"),
        ] {
            let habits = Habits::default();
            let found = habits.learn(&fault, &body, Instant::now());
            assert_eq!(found, Vec::<&str>::new(), "{fault:?}");
        }
        let template = broken(500, "The chat template does not support the system role");
        let found = Habits::default().learn(&template, &body, Instant::now());
        assert_eq!(found, [SYSTEM]);
    }

    #[test]
    fn a_model_that_thinks_aloud_is_known_until_it_no_longer_does() {
        let habits = Habits::default();
        assert_eq!(habits.thinks(), None);
        for _ in 0..PLAIN_ANSWERS {
            assert_eq!(habits.thinks(), None, "too few to tell");
            habits.answered(false);
        }
        assert_eq!(habits.thinks(), Some(false));
        habits.answered(true);
        assert_eq!(habits.thinks(), Some(true));
        for _ in 0..2 * PLAIN_ANSWERS {
            habits.answered(false);
            assert_eq!(habits.thinks(), None, "it thinks at times");
        }
    }
}
