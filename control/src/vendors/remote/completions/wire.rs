//! Chat completions on the wire: the request's body, and the pieces of the answer, with the habits of
//! the many servers that speak this protocol. Pure.

use media::config::ToolSpec;
use media::speech::{Message, ModelRequest, TAKEN_BACK, ToolCall};
use serde_json::{Value, json};

use super::super::complaint::{self, Complaint};
use super::super::settings::SYSTEM;
use super::beside::Beside;
use super::calls::Calls;
use super::shape;
use super::thoughts::Spoken;
use crate::vendors::remote::plan::Fault;

/// The body of the request. `omitted`: parameters that this model is asked without.
pub(super) fn body(model: &str, request: &ModelRequest, omitted: &[&str]) -> Value {
    let ModelRequest {
        messages,
        left_out,
        tools,
        temperature,
        max_tokens,
        frequency_penalty,
        presence_penalty,
    } = request;
    let mut body = json!({
        "model": model,
        "messages": shape::lines(messages, *left_out, !omitted.contains(&SYSTEM)),
        "stream": true,
        "stream_options": {"include_usage": true},
    });
    // These refuse `max_tokens` and any temperature but their own.
    let reasons = reasons(model);
    let (one, other) = match reasons {
        true => ("max_completion_tokens", "max_tokens"),
        false => ("max_tokens", "max_completion_tokens"),
    };
    if let Some(name) = [one, other]
        .into_iter()
        .find(|name| !omitted.contains(name))
    {
        body[name] = json!(max_tokens);
    }
    if !reasons {
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
    if let Value::Object(body) = &mut body {
        body.retain(|name, _| !omitted.contains(&name.as_str()));
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
    calls: Calls,
    spoken: Spoken,
    beside: Beside,
    /// Marks and blanks before the first word: by themselves they are no answer.
    blank: String,
    /// A word was given out.
    said: bool,
    /// Anything at all came that an answer has.
    begun: bool,
    /// Text or a tool call came, not only an opening or thoughts. Text that waits counts, too.
    words: bool,
    reason: Option<String>,
    refusal: String,
    pub(super) done: bool,
    pub(super) count: Option<Count>,
}

impl Answer {
    /// `thinks`: whether this model's answers are known to begin with thoughts.
    pub(super) fn new(tools: &[ToolSpec], thinks: Option<bool>) -> Self {
        Self {
            beside: Beside::new(tools),
            spoken: Spoken::new(thinks),
            ..Self::default()
        }
    }

    /// Whether the answer itself has begun: thoughts are a sign of life, but no word.
    pub(super) const fn has_words(&self) -> bool {
        self.words
    }

    /// Whether anything at all came that an answer has.
    pub(super) const fn has_begun(&self) -> bool {
        self.begun
    }

    /// Whether the caller may have heard of it.
    pub(super) const fn was_said(&self) -> bool {
        self.said
    }

    /// Whether thoughts came whose opening tag is the prompt's.
    pub(super) const fn thought_alone(&self) -> bool {
        self.spoken.closed_alone
    }

    /// One event of the stream. The text that can be spoken now, perhaps none.
    pub(super) fn event(&mut self, data: &str) -> Result<String, Fault> {
        if data == "[DONE]" {
            self.done = true;
            return Ok(String::new());
        }
        let chunk: Value = serde_json::from_str(data)
            .map_err(|_| garbage("an event is not JSON", data.as_bytes()))?;
        self.take(&chunk)
    }

    /// An answer that came as one JSON document, although a stream was asked for.
    pub(super) fn whole(&mut self, body: &[u8]) -> Result<String, Fault> {
        let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
        let answer: Value =
            serde_json::from_slice(body).map_err(|_| garbage("the answer is not JSON", body))?;
        let text = self.take(&answer)?;
        self.done = true;
        Ok(text)
    }

    fn take(&mut self, chunk: &Value) -> Result<String, Fault> {
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
        let piece = ["delta", "message"]
            .iter()
            .find_map(|part| choice.get(part).filter(|piece| piece.is_object()))
            .unwrap_or(choice);
        for call in piece["tool_calls"].as_array().into_iter().flatten() {
            self.calls.take(call)?;
        }
        if piece["function_call"].is_object() {
            self.calls
                .take(&json!({"index": 0, "function": piece["function_call"]}))?;
        }
        if let Some(refusal) = piece["refusal"].as_str() {
            self.refusal.push_str(refusal);
        }
        if let Some(reason) = choice["finish_reason"].as_str() {
            self.reason = Some(reason.to_owned());
        }
        let text = match content(&piece["content"]) {
            text if text.is_empty() => choice["text"].as_str().unwrap_or_default().to_owned(),
            text => text,
        };
        let text = self.spoken.push(&text);
        let text = self.beside.push(&text);
        let text = self.admit(text);
        let waits = self.beside.holds() || self.spoken.waits();
        self.words |= self.said || waits || !self.calls.is_empty();
        Ok(text)
    }

    /// The text, once there is a word in it.
    fn admit(&mut self, text: String) -> String {
        let (before, text) = match text.rsplit_once(TAKEN_BACK) {
            Some((_, text)) => {
                self.blank.clear();
                let was_said = std::mem::take(&mut self.said);
                (was_said.then_some(TAKEN_BACK), text)
            }
            None => (None, text.as_str()),
        };
        let mut out: String = before.into_iter().collect();
        self.blank.push_str(text);
        self.said |= self.blank.contains(char::is_alphanumeric);
        if self.said {
            out.push_str(&std::mem::take(&mut self.blank));
        }
        out
    }

    /// The answer is at its end: the last text, and the tool calls in their order. `before`: tool calls
    /// that the conversation had so far, for ids where the server gave none.
    pub(super) fn finish(&mut self, before: usize) -> Result<(String, Vec<ToolCall>), Fault> {
        if !self.begun {
            return Err(Fault::Wrong("the answer is empty".to_owned()));
        }
        let mut calls = std::mem::take(&mut self.calls).finish(before)?;
        let mut named: Vec<(String, String)> = calls
            .iter()
            .map(|call| (call.name.clone(), call.arguments.clone()))
            .collect();
        let rest = self.spoken.finish();
        let mut text = self.beside.push(&rest);
        text.push_str(&self.beside.finish(&mut named));
        let text = self.admit(text);
        let written = named.drain(calls.len()..);
        for (place, (name, arguments)) in written.enumerate() {
            let id = format!("call_{}", before + place + 1);
            calls.push(ToolCall {
                id,
                name,
                arguments,
            });
        }
        if !self.said && calls.is_empty() {
            return Err(self.nothing());
        }
        Ok((text, calls))
    }

    /// Why there is nothing to say.
    fn nothing(&self) -> Fault {
        let reason = self.reason.as_deref().unwrap_or("none");
        let code = match reason {
            "none" | "stop" | "eos" | "end_turn" if !self.refusal.is_empty() => "refusal",
            "none" | "stop" | "eos" | "end_turn" => "empty_answer",
            reason => reason,
        };
        let mut message =
            format!("the answer ended without words or calls (finish_reason: {reason})");
        if self.spoken.thought() {
            message.push_str(", after thoughts");
        }
        if !self.refusal.is_empty() {
            message = format!("{message}: {}", self.refusal);
        }
        let code: String = code.chars().take(64).collect();
        let is_word = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        Fault::Told(Complaint {
            code: code.chars().all(is_word).then_some(code),
            message: complaint::line(&message),
        })
    }
}

/// The text of a content: one, or parts of which some are text.
fn content(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(part).collect(),
        part @ Value::Object(_) => self::part(part),
        _ => String::new(),
    }
}

fn part(part: &Value) -> String {
    let kind = part["type"].as_str().unwrap_or("text").to_lowercase();
    match part {
        Value::String(text) => text.clone(),
        _ if !matches!(kind.as_str(), "text" | "output_text" | "text_delta") => String::new(),
        _ => match &part["text"] {
            Value::Object(text) => text.get("value").and_then(Value::as_str),
            text => text.as_str(),
        }
        .unwrap_or_default()
        .to_owned(),
    }
}

fn garbage(what: &str, body: &[u8]) -> Fault {
    Fault::Garbage {
        what: what.to_owned(),
        page: complaint::page(body),
    }
}
