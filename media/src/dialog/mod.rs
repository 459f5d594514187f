//! What the model is told: the prompt, and the dialogue as it was really heard.

pub mod sentences;

use crate::config::AgentConfig;
use crate::speech::{Message, ModelRequest};

/// The dialogue so far. What the agent said is kept as far as it was heard: an interrupted reply
/// stands here cut, and a reply that was never heard does not stand here.
#[derive(Debug)]
pub struct Dialog {
    messages: Vec<Message>,
}

impl Dialog {
    pub fn new(agent: &AgentConfig) -> Self {
        Self {
            messages: vec![Message::System {
                content: agent.system_prompt.clone(),
            }],
        }
    }

    /// Background that the client gave during the call.
    pub fn add_context(&mut self, text: &str) {
        self.messages.push(Message::System {
            content: text.to_owned(),
        });
    }

    pub fn caller_said(&mut self, text: &str) {
        if !text.is_empty() {
            self.messages.push(Message::User {
                content: text.to_owned(),
            });
        }
    }

    /// What was heard of the agent's reply.
    pub fn agent_said(&mut self, heard: &str) {
        if !heard.is_empty() {
            self.messages.push(Message::Assistant {
                content: heard.to_owned(),
                tool_calls: Vec::new(),
            });
        }
    }

    /// Tools that ran, with what they answered, in the order of the model's messages.
    pub fn steps(&mut self, steps: Vec<Message>) {
        self.messages.extend(steps);
    }

    /// What the model is asked now. `pending`: the caller's words that are being answered;
    /// `steps`: what this reply has done so far (tools).
    pub fn request(&self, agent: &AgentConfig, pending: &str, steps: &[Message]) -> ModelRequest {
        let mut messages = self.truncated(agent);
        if !pending.is_empty() {
            messages.push(Message::User {
                content: pending.to_owned(),
            });
        }
        messages.extend_from_slice(steps);
        ModelRequest {
            messages,
            tools: agent.tools.clone(),
            temperature: agent.temperature,
            max_tokens: agent.max_tokens,
            frequency_penalty: agent.frequency_penalty,
            presence_penalty: agent.presence_penalty,
        }
    }

    /// The prompt, all background, and the newest `history_max_turns` turns.
    fn truncated(&self, agent: &AgentConfig) -> Vec<Message> {
        let Some(most) = agent.history_max_turns else {
            return self.messages.clone();
        };
        let turns = self.messages.iter().filter(|m| is_turn(m)).count();
        let mut drop = turns.saturating_sub(most as usize);
        let mut kept = Vec::with_capacity(self.messages.len());
        for message in &self.messages {
            if drop > 0 && !matches!(message, Message::System { .. }) {
                drop -= usize::from(is_turn(message));
                continue;
            }
            kept.push(message.clone());
        }
        // The answer of a tool whose call was dropped means nothing.
        while let Some(at) = kept
            .iter()
            .position(|m| !matches!(m, Message::System { .. }))
            && matches!(kept[at], Message::Tool { .. })
        {
            kept.remove(at);
        }
        kept
    }
}

fn is_turn(message: &Message) -> bool {
    match message {
        Message::User { .. } => true,
        Message::Assistant { content, .. } => !content.is_empty(),
        Message::System { .. } | Message::Tool { .. } => false,
    }
}

/// Whether what the caller said holds one of the phrases that end the call, as whole words,
/// whatever their case and marks.
pub fn ends_call(text: &str, phrases: &[String]) -> bool {
    let said = format!(" {} ", plain(text));
    phrases
        .iter()
        .map(|phrase| plain(phrase))
        .any(|phrase| !phrase.is_empty() && said.contains(&format!(" {phrase} ")))
}

fn plain(text: &str) -> String {
    let words: Vec<String> = text
        .split(|c: char| !(c.is_alphanumeric() || c == '\'' || c == '’'))
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phrases_end_the_call_as_whole_words_only() {
        let phrases = [
            "good bye".to_owned(),
            "Stop calling!".to_owned(),
            " ".to_owned(),
        ];
        assert!(ends_call("Well, GOOD bye then", &phrases));
        assert!(ends_call("please stop calling", &phrases));
        assert!(!ends_call("goodbyes are hard", &phrases));
        assert!(!ends_call("", &phrases));
    }

    #[test]
    fn history_keeps_the_prompt_and_the_newest_turns() {
        let agent = AgentConfig {
            system_prompt: "P".into(),
            history_max_turns: Some(2),
            ..AgentConfig::default()
        };
        let mut dialog = Dialog::new(&agent);
        for n in 0..3 {
            dialog.caller_said(&format!("u{n}"));
            dialog.agent_said(&format!("a{n}"));
        }
        dialog.add_context("C");
        let request = dialog.request(&agent, "now", &[]);
        let texts: Vec<&str> = request
            .messages
            .iter()
            .map(|m| match m {
                Message::System { content }
                | Message::User { content }
                | Message::Assistant { content, .. } => content,
                Message::Tool { content, .. } => content,
            })
            .map(String::as_str)
            .collect();
        assert_eq!(texts, ["P", "u2", "a2", "C", "now"]);
    }
}
