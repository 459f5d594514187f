//! The model `echo`: says the caller's words again, at once. `call <tool> {json}` calls the tool.

use std::sync::Arc;

use media::config::Language;
use media::speech::{LanguageModel, LlmEvent, ModelRequest, ReplyId, SpeechEvent, SpeechSink};

use super::tools;

/// One call's echo.
pub struct EchoModel {
    language: Language,
    sink: Arc<dyn SpeechSink>,
}

impl EchoModel {
    pub fn new(language: Language, sink: Arc<dyn SpeechSink>) -> Self {
        Self { language, sink }
    }
}

impl LanguageModel for EchoModel {
    fn start(&mut self, reply: ReplyId, request: ModelRequest) {
        for event in [answer(self.language, &request), LlmEvent::Done] {
            if !self.sink.send(SpeechEvent::Llm { reply, event }) {
                return;
            }
        }
    }

    /// Nothing is ever under way: `start` has said everything.
    fn cancel(&mut self, _reply: ReplyId) {}
}

fn answer(language: Language, request: &ModelRequest) -> LlmEvent {
    if let Some((result, _)) = tools::fresh_result(&request.messages) {
        return LlmEvent::Text(tools::in_words(result));
    }
    let words = tools::caller_words(&request.messages).trim();
    if let Some((name, arguments)) = command(words)
        && let Some(tool) = request
            .tools
            .iter()
            .find(|tool| tool.name.eq_ignore_ascii_case(name))
    {
        return LlmEvent::ToolCall(tools::call(tool, arguments, &request.messages));
    }
    LlmEvent::Text(match (words, language) {
        ("", Language::English) => "I heard nothing.".to_owned(),
        ("", Language::French) => "Je n'ai rien entendu.".to_owned(),
        (words, _) => words.to_owned(),
    })
}

/// `call <tool> {json}`, the JSON may be missing.
fn command(words: &str) -> Option<(&str, String)> {
    let (verb, rest) = words.split_once(char::is_whitespace)?;
    if !verb.eq_ignore_ascii_case("call") {
        return None;
    }
    let (name, arguments) = rest
        .trim()
        .split_once(char::is_whitespace)
        .unwrap_or((rest.trim(), ""));
    let name = name.trim_end_matches(['.', '!', '?']);
    let arguments = match serde_json::from_str::<serde_json::Value>(arguments.trim()) {
        Ok(object @ serde_json::Value::Object(_)) => object.to_string(),
        _ => "{}".to_owned(),
    };
    Some((name, arguments))
}

#[cfg(test)]
mod tests {
    use media::config::{ToolKind, ToolSpec};
    use media::speech::Message;

    use super::*;

    fn asked(words: &str) -> LlmEvent {
        let tool = ToolSpec {
            name: "book".into(),
            description: String::new(),
            kind: ToolKind::Client,
            parameters: "{}".into(),
            timeout_ms: 1000,
            filler_message: None,
        };
        answer(
            Language::English,
            &ModelRequest {
                left_out: false,
                messages: vec![Message::User {
                    content: words.into(),
                }],
                tools: vec![tool],
                temperature: None,
                max_tokens: 100,
                frequency_penalty: 0.0,
                presence_penalty: 0.0,
            },
        )
    }

    #[test]
    fn words_come_back() {
        assert_eq!(
            asked("two rooms please"),
            LlmEvent::Text("two rooms please".into())
        );
        assert_eq!(
            asked("call nobody {}"),
            LlmEvent::Text("call nobody {}".into())
        );
    }

    #[test]
    fn a_named_tool_is_called() {
        let LlmEvent::ToolCall(call) = asked(r#"call book {"day": "monday"}"#) else {
            unreachable!("the tool was not called")
        };
        assert_eq!((call.id.as_str(), call.name.as_str()), ("call_1", "book"));
        assert_eq!(call.arguments, r#"{"day":"monday"}"#);
        assert!(matches!(asked("Call book."), LlmEvent::ToolCall(call) if call.arguments == "{}"));
    }
}
