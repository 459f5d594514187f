//! What a search looks for, and what diagnostics read out of the turns. Pure.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::calls::turn::{Contribution, Role, ToolStatus};
use crate::vendors::faults::{ProviderFault, ProviderFaults};

/// The most words of one search: each is a look at all turns of the account.
pub const MAX_TERMS: usize = 8;

/// The words that are searched for, in small letters, each once; `None` when there are none or too
/// many.
pub fn terms(q: &str) -> Option<Vec<String>> {
    let mut terms: Vec<String> = Vec::new();
    for word in q.split_whitespace().map(str::to_lowercase) {
        if !terms.contains(&word) {
            terms.push(word);
        }
    }
    (1..=MAX_TERMS).contains(&terms.len()).then_some(terms)
}

/// A turn as a search shows it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Said {
    pub index: u64,
    /// Who speaks.
    #[schemars(with = "Role")]
    pub role: String,
    /// What was said.
    pub text: String,
    /// When it became audible: offset on the call's recording, ms.
    pub start_ms: Option<u64>,
}

/// A turn of the transcript, in short.
pub fn shown(turn: &Value) -> Said {
    Said {
        index: turn["index"].as_u64().unwrap_or(0),
        role: text(turn, "role"),
        text: text(turn, "text"),
        start_ms: turn["start_ms"].as_u64(),
    }
}

/// Where the time of one answer went.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Step {
    pub turn_id: String,
    pub index: u64,
    /// When the answer became audible, on the recording's clock.
    pub start_ms: Option<u64>,
    /// From the caller's last voiced sample to the first audible one of the answer.
    pub response_ms: u64,
    /// Where the time went: they touch, and sum to `response_ms`.
    #[schemars(with = "Vec<Contribution>")]
    pub contributions: Vec<Value>,
    /// The tools that ran.
    #[schemars(with = "Vec<ToolStep>")]
    pub tools: Vec<Value>,
}

/// A tool that ran within a step.
#[derive(JsonSchema, Serialize)]
pub struct ToolStep {
    /// The name of the tool.
    pub name: String,
    /// How it ended.
    pub status: ToolStatus,
    pub started_ms: u64,
    pub duration_ms: u64,
}

/// The agent's turns whose time was measured.
pub fn waterfall(turns: &[Value]) -> Vec<Step> {
    turns
        .iter()
        .filter_map(|turn| {
            let response_ms = turn["latency"]["response_ms"].as_u64()?;
            let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
            let tools = list(&turn["tool_calls"]);
            Some(Step {
                turn_id: text(turn, "turn_id"),
                index: turn["index"].as_u64().unwrap_or(0),
                start_ms: turn["start_ms"].as_u64(),
                response_ms,
                contributions: list(&turn["latency"]["contributions"]),
                tools: tools
                    .iter()
                    .map(|tool| {
                        serde_json::json!({
                            "name": tool["name"],
                            "status": tool["status"],
                            "started_ms": tool["started_ms"],
                            "duration_ms": tool["duration_ms"],
                        })
                    })
                    .collect(),
            })
        })
        .collect()
}

/// The mean round trip that the turns measured, ms; `None` where the channel measures none.
pub fn round_trip(turns: &[Value]) -> Option<f64> {
    let measured: Vec<u64> = turns
        .iter()
        .filter_map(|turn| turn["latency"]["network_rtt_ms"].as_u64())
        .filter(|ms| *ms > 0)
        .collect();
    let sum: u64 = measured.iter().sum();
    // A call has a few hundred turns of a few hundred milliseconds: exact.
    (!measured.is_empty()).then(|| sum as f64 / measured.len() as f64)
}

/// Something that went wrong.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Fault {
    /// Whose fault it is: the call's own, a provider's or a tool's.
    #[schemars(extend("enum" = ["call", "provider", "tool"]))]
    pub source: &'static str,
    /// What went wrong. A provider's words are its own, cut to 200 characters.
    pub message: String,
    /// The turn in which it happened; of a provider's fault the turn that had begun last.
    pub turn_id: Option<String>,
    pub tool_call_id: Option<String>,
    /// When: offset on the call's clock. Of a provider's only, as are `stage`, `provider` and `code`.
    pub at_ms: Option<u64>,
    /// The part of the agent that failed.
    #[schemars(extend("enum" = ["recogniser", "model", "voice", null]))]
    pub stage: Option<Cow<'static, str>>,
    /// The provider's name in the settings.
    pub provider: Option<String>,
    /// The provider's own word for it (`invalid_api_key`), else `status_401`, else what happened: `broken`,
    /// `stalled`, `wrong`.
    pub code: Option<String>,
}

impl Fault {
    fn new(source: &'static str, message: String) -> Self {
        Self {
            source,
            message,
            turn_id: None,
            tool_call_id: None,
            at_ms: None,
            stage: None,
            provider: None,
            code: None,
        }
    }
}

/// The call's own faults, then those of its providers, then those of its tools. What the call has to say of a fault
/// that is told as its provider's is not told twice.
pub fn faults(
    mut errors: Vec<String>,
    of_providers: ProviderFaults,
    turns: &[Value],
) -> Vec<Fault> {
    errors.retain(|error| !of_providers.kept.iter().any(|fault| repeats(error, fault)));
    let of_call = errors
        .into_iter()
        .map(|message| Fault::new("call", message));
    let of_providers = of_providers.kept.into_iter().map(|fault| Fault {
        turn_id: turn_at(turns, fault.at_ms),
        at_ms: Some(fault.at_ms),
        stage: Some(fault.stage),
        provider: Some(fault.provider),
        code: Some(fault.code),
        ..Fault::new("provider", fault.message)
    });
    let of_tools = turns.iter().flat_map(|turn| {
        let tools = turn["tool_calls"].as_array().map_or(&[][..], Vec::as_slice);
        tools
            .iter()
            .filter(|tool| tool["status"] != "ok")
            .map(|tool| {
                let message = match tool["error"].as_str() {
                    Some(error) => error.to_owned(),
                    None => format!("{}: {}", text(tool, "name"), text(tool, "status")),
                };
                Fault {
                    turn_id: Some(text(turn, "turn_id")),
                    tool_call_id: Some(text(tool, "id")),
                    ..Fault::new("tool", message)
                }
            })
    });
    of_call.chain(of_providers).chain(of_tools).collect()
}

/// Whether an error of the call, `model: cloud: status 401: no`, is this fault. Not every part names its provider.
fn repeats(error: &str, fault: &ProviderFault) -> bool {
    let message = fault.message.as_str();
    after(error, &fault.stage)
        .is_some_and(|words| words == message || after(words, &fault.provider) == Some(message))
}

/// What follows this name and a colon.
fn after<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.strip_prefix(name)?.strip_prefix(": ")
}

/// The turn that had begun last.
fn turn_at(turns: &[Value], at_ms: u64) -> Option<String> {
    let begun = |turn: &&Value| turn["start_ms"].as_u64().is_some_and(|ms| ms <= at_ms);
    let last = turns.iter().rfind(begun)?;
    Some(text(last, "turn_id"))
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, reason = "a test stops at the first surprise")]

    use serde_json::json;

    use super::*;

    #[test]
    fn words_are_small_letters_each_once() {
        let some = |words: &[&str]| Some(words.iter().map(|w| (*w).to_owned()).collect());
        assert_eq!(terms(" Épée  REFUND refund "), some(&["épée", "refund"]));
        assert_eq!(terms("100%_sure"), some(&["100%_sure"]));
        assert_eq!(terms("  "), None);
        assert_eq!(
            terms("a b c d e f g h"),
            some(&["a", "b", "c", "d", "e", "f", "g", "h"])
        );
        assert_eq!(terms("a b c d e f g h i"), None);
    }

    fn turns() -> Vec<Value> {
        vec![
            json!({"index": 0, "turn_id": "t0", "role": "user", "text": "Hi", "start_ms": 5, "latency": null}),
            json!({
                "index": 1, "turn_id": "t1", "role": "assistant", "text": "Hello", "start_ms": null,
                "latency": {
                    "response_ms": 500, "network_rtt_ms": 40,
                    "contributions": [{"key": "endpoint", "owner": "setting", "start_ms": 0, "duration_ms": 500}]
                },
                "tool_calls": [
                    {"id": "c1", "name": "weather", "status": "ok", "started_ms": 1, "duration_ms": 2, "error": null},
                    {"id": "c2", "name": "book", "status": "timeout", "started_ms": 3, "duration_ms": 4, "error": null}
                ]
            }),
        ]
    }

    #[test]
    fn an_answer_shows_where_its_time_went() {
        let steps = waterfall(&turns());
        let [step] = steps.as_slice() else {
            panic!("{steps:?}")
        };
        assert_eq!(
            (step.turn_id.as_str(), step.response_ms, step.start_ms),
            ("t1", 500, None)
        );
        assert_eq!(step.contributions[0]["duration_ms"], 500);
        assert_eq!(step.tools[1]["status"], "timeout");
        assert_eq!(round_trip(&turns()), Some(40.0));
        assert_eq!(round_trip(&[]), None);
    }

    #[test]
    fn what_went_wrong_is_named_with_its_place() {
        let of_provider = ProviderFault {
            at_ms: 900,
            stage: "model".into(),
            provider: "cloud".into(),
            code: "invalid_api_key".into(),
            message: "status 401: no".into(),
        };
        let of_providers = ProviderFaults {
            kept: vec![of_provider],
            count: 1,
        };
        let errors = vec!["model: away".into(), "model: cloud: status 401: no".into()];
        assert_eq!(
            faults(errors, of_providers, &turns()),
            [
                Fault::new("call", "model: away".into()),
                Fault {
                    turn_id: Some("t0".into()),
                    at_ms: Some(900),
                    stage: Some("model".into()),
                    provider: Some("cloud".into()),
                    code: Some("invalid_api_key".into()),
                    ..Fault::new("provider", "status 401: no".into())
                },
                Fault {
                    turn_id: Some("t1".into()),
                    tool_call_id: Some("c2".into()),
                    ..Fault::new("tool", "book: timeout".into())
                }
            ]
        );
    }

    #[test]
    fn what_is_told_as_a_provider_s_is_not_told_as_the_call_s() {
        for stage in ["recogniser", "model", "voice"] {
            let fault = ProviderFault {
                at_ms: 0,
                stage: stage.into(),
                provider: "cloud".into(),
                code: "status_401".into(),
                message: "status 401: no".into(),
            };
            for (error, is_told) in [
                (format!("{stage}: cloud: status 401: no"), true),
                (format!("{stage}: status 401: no"), true),
                (format!("{stage}: other: status 401: no"), false),
                (format!("{stage}: there is no connection"), false),
                ("status 401: no".to_owned(), false),
            ] {
                assert_eq!(repeats(&error, &fault), is_told, "{error}");
            }
        }
    }

    #[test]
    fn a_found_turn_is_shown_in_short() {
        assert_eq!(
            shown(&turns()[0]),
            Said {
                index: 0,
                role: "user".into(),
                text: "Hi".into(),
                start_ms: Some(5)
            }
        );
    }
}
