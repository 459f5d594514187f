//! Servers that stand in for speech providers: they speak the real wire formats, with the habits and
//! the faults that a test asks for.

pub mod contexts;
pub mod http;
pub mod live;
pub mod sound;

pub use contexts::ContextProvider;
pub use http::{Answer, Asked, HttpProvider};
pub use live::LiveProvider;

/// The events of a chat completion, as servers send them.
pub mod chat {
    use serde_json::{Value, json};

    use super::Answer;

    /// One event of a stream.
    pub fn event(chunk: &Value) -> String {
        format!("data: {chunk}\n\n")
    }

    /// An event with this delta.
    pub fn delta(delta: Value) -> String {
        event(
            &json!({"id": "c", "object": "chat.completion.chunk", "choices": [
            {"index": 0, "delta": delta, "finish_reason": null}]}),
        )
    }

    /// The ordinary answer: a role, the text in pieces, a count, `[DONE]`.
    pub fn text(pieces: &[&str]) -> Answer {
        let mut answer = Answer::ok("text/event-stream; charset=utf-8")
            .send(delta(json!({"role": "assistant", "content": ""})));
        for piece in pieces {
            answer = answer.send(delta(json!({"content": piece})));
        }
        answer
            .send(event(
                &json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
            ))
            .send(event(&json!({"choices": [], "usage": {
                "prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107}})))
            .send("data: [DONE]\n\n")
    }

    /// The last words of the caller in a request.
    pub fn asked(body: &Value) -> String {
        let messages = body["messages"].as_array().cloned().unwrap_or_default();
        let user = messages.iter().rev().find(|m| m["role"] == "user");
        user.and_then(|m| m["content"].as_str())
            .unwrap_or_default()
            .to_owned()
    }
}
