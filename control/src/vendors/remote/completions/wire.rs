//! Chat completions on the wire: the request's body, and the pieces of the answer, with the habits of
//! the many servers that speak this protocol. Pure.

use media::speech::{Message, ModelRequest, ToolCall};
use serde_json::{Map, Value, json};

use super::super::complaint;
use super::thoughts::Spoken;
use crate::vendors::remote::plan::Fault;

/// The longest answer of tool calls that is kept, bytes: a tool's arguments are a few hundred.
const LONGEST_CALLS: usize = 256 << 10;

/// The most tool calls of one answer.
const MOST_CALLS: usize = 64;

/// The body of the request.
pub(super) fn body(model: &str, request: &ModelRequest) -> Value {
    let ModelRequest {
        messages,
        tools,
        temperature,
        max_tokens,
        frequency_penalty,
        presence_penalty,
    } = request;
    let mut body = json!({
        "model": model,
        "messages": lines(messages),
        "stream": true,
        "stream_options": {"include_usage": true},
    });
    if reasons(model) {
        // These refuse `max_tokens` and any temperature but their own.
        body["max_completion_tokens"] = json!(max_tokens);
    } else {
        body["max_tokens"] = json!(max_tokens);
        if let Some(temperature) = temperature {
            body["temperature"] = json!(temperature);
        }
        // Left out where they are the default: not every server knows them.
        for (name, penalty) in [
            ("frequency_penalty", frequency_penalty),
            ("presence_penalty", presence_penalty),
        ] {
            if *penalty != 0.0 {
                body[name] = json!(penalty);
            }
        }
    }
    if !tools.is_empty() {
        let tools = tools.iter().map(|tool| {
            let parameters: Value = serde_json::from_str(&tool.parameters)
                .ok()
                .filter(|schema: &Value| schema["type"] == "object")
                .unwrap_or_else(|| json!({"type": "object", "properties": {}}));
            json!({"type": "function", "function": {
                "name": tool.name, "description": tool.description, "parameters": parameters,
            }})
        });
        body["tools"] = tools.collect();
    }
    body
}

/// The families of reasoning models, which take other parameters.
fn reasons(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    ["o1", "o3", "o4", "gpt-5"].iter().any(|family| {
        name.strip_prefix(family)
            .is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
    })
}

/// The dialogue. System messages that stand side by side become one: the templates of many open models
/// know a single one, at the beginning.
fn lines(messages: &[Message]) -> Vec<Value> {
    let mut lines: Vec<Value> = Vec::with_capacity(messages.len());
    for each in messages {
        let next = message(each);
        if let (Some(Value::String(before)), Some(more)) = (
            lines
                .last_mut()
                .filter(|last| last["role"] == "system" && next["role"] == "system")
                .and_then(|last| last.get_mut("content")),
            next["content"].as_str(),
        ) {
            before.push_str("\n\n");
            before.push_str(more);
        } else {
            lines.push(next);
        }
    }
    lines
}

fn message(message: &Message) -> Value {
    match message {
        Message::System { content } | Message::Instructions { content } => {
            json!({"role": "system", "content": content})
        }
        Message::User { content } => json!({"role": "user", "content": content}),
        Message::Assistant {
            content,
            tool_calls,
        } if tool_calls.is_empty() => json!({"role": "assistant", "content": content}),
        Message::Assistant {
            content,
            tool_calls,
        } => {
            let calls = tool_calls.iter().map(|call| {
                json!({"id": call.id, "type": "function", "function": {
                    "name": call.name, "arguments": call.arguments,
                }})
            });
            let content = (!content.is_empty()).then_some(content);
            json!({"role": "assistant", "content": content, "tool_calls": calls.collect::<Value>()})
        }
        Message::Tool {
            tool_call_id,
            content,
            is_error: _,
        } => json!({"role": "tool", "tool_call_id": tool_call_id, "content": content}),
    }
}

/// How many characters the request's messages have: what its tokens are estimated from.
pub(super) fn characters(request: &ModelRequest) -> usize {
    request
        .messages
        .iter()
        .map(|message| match message {
            Message::System { content }
            | Message::Instructions { content }
            | Message::User { content }
            | Message::Tool { content, .. } => content.len(),
            Message::Assistant {
                content,
                tool_calls,
            } => {
                content.len()
                    + tool_calls
                        .iter()
                        .map(|call| call.arguments.len())
                        .sum::<usize>()
            }
        })
        .sum()
}

/// Tokens as the server counted them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) prompt: u64,
    pub(super) completion: u64,
}

/// Reads an answer piece by piece.
#[derive(Debug, Default)]
pub(super) struct Answer {
    calls: Vec<Partial>,
    spoken: Spoken,
    size: usize,
    /// Anything at all came that an answer has.
    begun: bool,
    /// Text or a tool call came, not only an opening or thoughts.
    words: bool,
    pub(super) done: bool,
    pub(super) count: Option<Count>,
}

/// A tool call that is still coming.
#[derive(Debug, Default)]
struct Partial {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
}

impl Answer {
    /// Whether the answer itself has begun: thoughts are a sign of life, but no word.
    pub(super) const fn has_words(&self) -> bool {
        self.words
    }

    /// Whether anything at all came that an answer has.
    pub(super) const fn has_begun(&self) -> bool {
        self.begun
    }

    /// One event of the stream. The text that can be spoken now, perhaps none.
    pub(super) fn event(&mut self, data: &str) -> Result<String, Fault> {
        if data == "[DONE]" {
            self.done = true;
            return Ok(String::new());
        }
        let chunk: Value = serde_json::from_str(data)
            .map_err(|_| garbage("an event is not JSON", data.as_bytes()))?;
        self.take(&chunk, "delta")
    }

    /// An answer that came as one JSON document, although a stream was asked for.
    pub(super) fn whole(&mut self, body: &[u8]) -> Result<String, Fault> {
        let answer: Value =
            serde_json::from_slice(body).map_err(|_| garbage("the answer is not JSON", body))?;
        let text = self.take(&answer, "message")?;
        self.done = true;
        Ok(text)
    }

    fn take(&mut self, chunk: &Value, part: &str) -> Result<String, Fault> {
        if let Some(error) = chunk.get("error").filter(|error| !error.is_null()) {
            let told = json!({ "error": error }).to_string();
            return Err(Fault::Told(complaint::read(&told)));
        }
        if let Some(usage) = chunk.get("usage").filter(|usage| usage.is_object()) {
            let of = |name: &str| usage[name].as_u64().unwrap_or(0);
            self.count = Some(Count {
                prompt: of("prompt_tokens"),
                completion: of("completion_tokens"),
            });
        }
        // The last event of a stream may hold nothing but the count. Only one choice is asked for.
        let Some(choice) = chunk["choices"].get(0) else {
            return Ok(String::new());
        };
        self.begun = true;
        let piece = &choice[part];
        for call in piece["tool_calls"].as_array().into_iter().flatten() {
            self.fragment(call)?;
        }
        let text = match piece["content"].as_str() {
            Some(text) if !text.is_empty() => self.spoken.push(text),
            _ => String::new(),
        };
        self.words |= !text.is_empty() || !self.calls.is_empty();
        Ok(text)
    }

    /// A piece of a tool call. Its `index` says of which one; where it is missing the piece goes on with
    /// the last call, unless it brings a name of its own. Some servers give all calls the index 0.
    fn fragment(&mut self, piece: &Value) -> Result<(), Fault> {
        let index = piece["index"].as_u64();
        let id = piece["id"].as_str().unwrap_or_default();
        let name = piece["function"]["name"].as_str().unwrap_or_default();
        let arguments = match &piece["function"]["arguments"] {
            Value::String(text) => text.clone(),
            object @ Value::Object(_) => object.to_string(),
            _ => String::new(),
        };
        self.size += id.len() + name.len() + arguments.len();
        if self.size > LONGEST_CALLS {
            return Err(Fault::Wrong("the tool calls are too long".to_owned()));
        }
        let another = |call: &Partial| {
            !id.is_empty() && !call.id.is_empty() && call.id != id && !name.is_empty()
        };
        let place = match index {
            Some(_) => self.calls.iter().rposition(|call| call.index == index),
            None if name.is_empty() || self.calls.is_empty() => self.calls.len().checked_sub(1),
            // A name again: the same call repeated (its arguments are not whole yet), or the next one.
            None => self
                .calls
                .last()
                .filter(|call| call.name == name && !is_object(&call.arguments))
                .map(|_| self.calls.len() - 1),
        };
        let place = place.filter(|&place| !another(&self.calls[place]));
        let place = match place {
            Some(place) => place,
            None if self.calls.len() >= MOST_CALLS => {
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
        call.arguments.push_str(&arguments);
        Ok(())
    }

    /// The answer is at its end: the last text, and the tool calls in their order. `before`: tool calls
    /// that the conversation had so far, for ids where the server gave none.
    pub(super) fn finish(&mut self, before: usize) -> Result<(String, Vec<ToolCall>), Fault> {
        if !self.begun {
            return Err(Fault::Wrong("the answer is empty".to_owned()));
        }
        let text = self.spoken.finish();
        let mut calls = Vec::with_capacity(self.calls.len());
        for (place, call) in std::mem::take(&mut self.calls).into_iter().enumerate() {
            let Partial {
                index: _,
                id,
                name,
                arguments,
            } = call;
            let arguments = if arguments.trim().is_empty() {
                Value::Object(Map::new()).to_string()
            } else {
                arguments
            };
            if name.is_empty() || !is_object(&arguments) {
                return Err(Fault::Wrong(format!(
                    "the call of the tool {name:?} has no arguments in JSON"
                )));
            }
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
        Ok((text, calls))
    }
}

fn garbage(what: &str, body: &[u8]) -> Fault {
    Fault::Garbage {
        what: what.to_owned(),
        page: complaint::page(body),
    }
}

fn is_object(text: &str) -> bool {
    serde_json::from_str::<Map<String, Value>>(text).is_ok()
}
