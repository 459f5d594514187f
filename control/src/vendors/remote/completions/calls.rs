//! Tool calls as they are put together from the pieces that servers send, with those servers' habits. Pure.

use media::speech::ToolCall;
use serde_json::{Deserializer, Map, Value};

use crate::vendors::remote::plan::Fault;

/// The longest answer of tool calls that is kept, bytes: a tool's arguments are a few hundred.
const LONGEST: usize = 256 << 10;

/// The most tool calls of one answer.
const MOST: usize = 64;

/// The calls of one answer.
#[derive(Debug, Default)]
pub(super) struct Calls {
    calls: Vec<Partial>,
    size: usize,
}

/// A tool call that is still coming.
#[derive(Debug, Default)]
struct Partial {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
}

impl Calls {
    pub(super) const fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// A piece of a tool call.
    pub(super) fn take(&mut self, piece: &Value) -> Result<(), Fault> {
        let index = piece["index"].as_u64();
        let id = piece["id"].as_str().unwrap_or_default();
        let name = piece["function"]["name"].as_str().unwrap_or_default();
        let arguments = match &piece["function"]["arguments"] {
            Value::String(text) => text.clone(),
            object @ Value::Object(_) => object.to_string(),
            _ => String::new(),
        };
        self.size += id.len() + name.len() + arguments.len();
        if self.size > LONGEST {
            return Err(Fault::Wrong("the tool calls are too long".to_owned()));
        }
        let place = match self.place(index, id, name, &arguments) {
            Some(place) => place,
            None if self.calls.len() >= MOST => {
                return Err(Fault::Wrong("too many tool calls".to_owned()));
            }
            None => {
                self.calls.push(Partial {
                    index,
                    ..Partial::default()
                });
                self.calls.len() - 1
            }
        };
        let call = &mut self.calls[place];
        if call.id.is_empty() {
            call.id = id.to_owned();
        }
        if call.name.is_empty() {
            call.name = name.to_owned();
        }
        // A call that is sent again whole is the same call.
        if arguments.len() <= 2 || call.arguments != arguments || !is_filled(&arguments) {
            call.arguments.push_str(&arguments);
        }
        Ok(())
    }

    /// The call that a piece belongs to; `None`: it begins another. An id says so best, then the index; a piece without
    /// a name goes on with the last call, whatever its index.
    fn place(&self, index: Option<u64>, id: &str, name: &str, arguments: &str) -> Option<usize> {
        let last = self.calls.len().checked_sub(1)?;
        if !id.is_empty()
            && let Some(place) = self.calls.iter().rposition(|call| call.id == id)
        {
            return Some(place);
        }
        let at_index = index.and_then(|_| self.calls.iter().rposition(|call| call.index == index));
        if name.is_empty() {
            return Some(at_index.unwrap_or(last));
        }
        // A name again: the same call repeated, or the next one.
        let place = at_index.unwrap_or(last);
        let call = &self.calls[place];
        let other_id = !id.is_empty() && !call.id.is_empty();
        let begun = !call.arguments.trim().is_empty();
        let goes_on = match at_index {
            Some(_) => {
                !is_filled(&call.arguments) || arguments.is_empty() || call.arguments == arguments
            }
            None if index.is_some() => begun && !is_object(&call.arguments),
            None => !is_object(&call.arguments) || arguments.is_empty(),
        };
        let same = call.name.is_empty() || (call.name == name && goes_on);
        (same && !other_id).then_some(place)
    }

    /// The calls in their order. `before`: tool calls that the conversation had so far, for ids where the server gave
    /// none.
    pub(super) fn finish(self, before: usize) -> Result<Vec<ToolCall>, Fault> {
        let mut calls = Vec::with_capacity(self.calls.len());
        for (place, call) in self.calls.into_iter().enumerate() {
            let Partial {
                index: _,
                id,
                name,
                arguments,
            } = call;
            let Some(arguments) = object(&arguments).filter(|_| !name.is_empty()) else {
                return Err(Fault::Wrong(format!(
                    "the call of the tool {name:?} has no arguments in JSON"
                )));
            };
            let id = if id.is_empty() {
                format!("call_{}", before + place + 1)
            } else {
                id
            };
            calls.push(ToolCall {
                id,
                name,
                arguments,
            });
        }
        Ok(calls)
    }
}

/// Arguments as an object: none at all, JSON in JSON, a block of code, and an object that follows an empty one are what
/// some servers send.
fn object(arguments: &str) -> Option<String> {
    let mut text = arguments.trim().to_owned();
    // JSON in JSON, at most twice.
    for _ in 0..3 {
        let bare = text.trim().trim_matches('`').trim();
        let bare = bare.strip_prefix("json").unwrap_or(bare).trim();
        if is_object(bare) {
            return Some(bare.to_owned());
        }
        if matches!(bare, "" | "null" | "None" | "undefined" | "[]") {
            return Some("{}".to_owned());
        }
        let values: Result<Vec<Value>, _> = Deserializer::from_str(bare).into_iter().collect();
        let values = values.ok()?;
        let filled = |value: &&Value| match value {
            Value::Object(members) => !members.is_empty(),
            Value::String(text) => !text.trim().is_empty(),
            _ => false,
        };
        match values.iter().rev().find(filled) {
            Some(Value::String(inner)) => text.clone_from(inner),
            Some(value) => return Some(value.to_string()),
            None => {
                let nothing = |value: &Value| {
                    value.is_null()
                        || value.is_object()
                        || value.is_string()
                        || *value == Value::Array(Vec::new())
                };
                return values.iter().all(nothing).then(|| "{}".to_owned());
            }
        }
    }
    None
}

fn is_object(text: &str) -> bool {
    serde_json::from_str::<Map<String, Value>>(text).is_ok()
}

/// An object that is not empty.
fn is_filled(text: &str) -> bool {
    serde_json::from_str::<Map<String, Value>>(text).is_ok_and(|members| !members.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_in_every_form_are_an_object() {
        for (sent, read) in [
            ("", "{}"),
            ("null", "{}"),
            (" \n", "{}"),
            ("\"\"", "{}"),
            ("\"null\"", "{}"),
            ("None", "{}"),
            ("[]", "{}"),
            ("{}", "{}"),
            ("{}{\"a\":1}", "{\"a\":1}"),
            ("null{\"a\":1}", "{\"a\":1}"),
            ("{\"a\":1}{}", "{\"a\":1}"),
            ("\"{\\\"a\\\":1}\"", "{\"a\":1}"),
            ("```json\n{\"a\":1}\n```", "{\"a\":1}"),
            ("{\"b\":1,\"a\":2}", "{\"b\":1,\"a\":2}"),
        ] {
            assert_eq!(object(sent).as_deref(), Some(read), "{sent}");
        }
        for wrong in ["{\"a", "3", "nonsense", "[1]", "{\"a\":1}x"] {
            assert_eq!(object(wrong), None, "{wrong}");
        }
    }

    /// Name and arguments of the calls in these pieces: index, id, name, arguments.
    fn calls(pieces: &[(Option<u64>, &str, &str, &str)]) -> Vec<(String, String)> {
        let mut calls = Calls::default();
        for (index, id, name, arguments) in pieces {
            let piece = json!({"index": index, "id": id,
                "function": {"name": name, "arguments": arguments}});
            assert_eq!(calls.take(&piece), Ok(()));
        }
        let calls = calls.finish(0).unwrap_or_default();
        let calls = calls.into_iter().map(|call| (call.name, call.arguments));
        calls.collect()
    }

    #[test]
    fn an_index_that_drifts_or_stays_zero_tells_calls_neither_apart_nor_together() {
        let one = [("book".to_owned(), "{\"a\":1}".to_owned())];
        let two = [one[0].clone(), ("ring".to_owned(), "{\"b\":2}".to_owned())];
        let twice = [one[0].clone(), ("book".to_owned(), "{\"a\":2}".to_owned())];
        let whole = "{\"a\":1}";
        // Drifting: without names, with the name again, with one id.
        assert_eq!(
            calls(&[(Some(0), "x", "book", "{\"a"), (Some(1), "", "", "\":1}")]),
            one
        );
        assert_eq!(
            calls(&[
                (Some(0), "", "book", "{\"a"),
                (Some(1), "", "book", "\":1}")
            ]),
            one
        );
        assert_eq!(
            calls(&[(Some(0), "x", "book", ""), (Some(1), "x", "book", whole)]),
            one
        );
        // Zero with empty ids.
        assert_eq!(
            calls(&[
                (Some(0), "", "book", whole),
                (Some(0), "", "ring", "{\"b\":2}")
            ]),
            two
        );
        assert_eq!(
            calls(&[
                (Some(0), "", "book", whole),
                (Some(0), "", "ring", "{\"b\""),
                (Some(0), "", "", ":2}")
            ]),
            two
        );
        assert_eq!(
            calls(&[
                (Some(0), "", "book", whole),
                (Some(0), "", "book", "{\"a\":2}")
            ]),
            twice
        );
        // Empty, then the real one; and the same once more.
        assert_eq!(
            calls(&[(Some(0), "x", "book", "{}"), (Some(0), "x", "book", whole)]),
            one
        );
        assert_eq!(
            calls(&[(Some(0), "", "book", "{}"), (Some(0), "", "book", whole)]),
            one
        );
        assert_eq!(
            calls(&[(Some(0), "", "book", whole), (Some(0), "", "book", whole)]),
            one
        );
        assert_eq!(
            calls(&[(Some(0), "x", "book", whole), (Some(0), "x", "book", "")]),
            one
        );
        // Two at indices of their own, in turns.
        assert_eq!(
            calls(&[
                (Some(0), "x", "book", ""),
                (Some(1), "y", "ring", "{"),
                (Some(0), "", "", whole),
                (Some(1), "", "", "\"b\":2}")
            ]),
            two
        );
    }
}
