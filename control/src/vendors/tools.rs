//! Tool calls of the built-in models: when words name a tool, and how its result is told.

use media::config::ToolSpec;
use media::speech::{Message, ToolCall};
use serde_json::{Map, Value};

/// The longest result that is read out, characters.
const LONGEST_RESULT: usize = 400;

/// The caller's last words.
pub(super) fn caller_words(messages: &[Message]) -> &str {
    let words = messages.iter().rev().find_map(|message| match message {
        Message::User { content } => Some(content.as_str()),
        _ => None,
    });
    words.unwrap_or_default()
}

/// The result that the model has to tell now, if a tool has just run.
pub(super) fn fresh_result(messages: &[Message]) -> Option<(&str, bool)> {
    match messages.last()? {
        Message::Tool {
            content, is_error, ..
        } => Some((content, *is_error)),
        _ => None,
    }
}

/// The call itself. Its id is unique within the conversation: it counts the calls before it.
pub(super) fn call(tool: &ToolSpec, arguments: String, messages: &[Message]) -> ToolCall {
    let before: usize = messages
        .iter()
        .map(|message| match message {
            Message::Assistant { tool_calls, .. } => tool_calls.len(),
            _ => 0,
        })
        .sum();
    ToolCall {
        id: format!("call_{}", before + 1),
        name: tool.name.clone(),
        arguments,
    }
}

/// Arguments as far as words give them: the tool's required text properties get the caller's words,
/// its required numbers the first number that was said in digits.
pub(super) fn arguments(tool: &ToolSpec, words: &str) -> String {
    let schema: Value = serde_json::from_str(&tool.parameters).unwrap_or(Value::Null);
    let mut given = Map::new();
    for name in schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
    {
        let value = match schema["properties"][name]["type"].as_str() {
            Some("string") => Some(Value::from(words)),
            Some("number" | "integer") => first_number(words).map(Value::from),
            Some("boolean") => Some(Value::from(true)),
            _ => None,
        };
        if let Some(value) = value {
            given.insert(name.to_owned(), value);
        }
    }
    Value::Object(given).to_string()
}

/// A result in words: texts as they are, objects as their members.
pub(super) fn in_words(result: &str) -> String {
    let told = match serde_json::from_str(result) {
        Ok(value) => tell(&value),
        Err(_) => result.to_owned(),
    };
    match told.char_indices().nth(LONGEST_RESULT) {
        Some((cut, _)) => told[..cut].to_owned(),
        None => told,
    }
}

fn tell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(tell).collect::<Vec<_>>().join(", "),
        Value::Object(members) => {
            let told = members
                .iter()
                .map(|(name, value)| format!("{}: {}", name.replace('_', " "), tell(value)));
            told.collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}

fn first_number(words: &str) -> Option<i64> {
    words
        .split(|c: char| !c.is_ascii_digit())
        .find_map(|digits| digits.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn required_arguments_come_from_the_words() {
        let tool = ToolSpec {
            name: "book_table".into(),
            description: String::new(),
            kind: media::config::ToolKind::Client,
            parameters: r#"{"type":"object","required":["wish","guests"],"properties":
                {"wish":{"type":"string"},"guests":{"type":"integer"},"name":{"type":"string"}}}"#
                .into(),
            timeout_ms: 1000,
            filler_message: None,
        };
        assert_eq!(
            arguments(&tool, "a table for 4"),
            r#"{"guests":4,"wish":"a table for 4"}"#
        );
    }

    #[test]
    fn results_are_told_as_words() {
        assert_eq!(
            in_words(r#"{"free_rooms":2,"note":"sea view"}"#),
            "free rooms: 2, note: sea view"
        );
        assert_eq!(in_words("plain words"), "plain words");
        assert_eq!(in_words(&"x".repeat(1000)).len(), LONGEST_RESULT);
    }
}
