//! What the model is told: the prompt, and the dialogue as it was really heard.

mod address;
pub mod clean;
pub mod instructions;
pub mod plain;
pub mod sentences;
mod stops;

use crate::config::{AgentConfig, EndCallBehavior, ToolKind, ToolSpec};
use crate::speech::{Message, ModelRequest};

/// The reserved tool by which the model hangs up.
pub const END_CALL: &str = "end_call";

/// The dialogue so far. What the agent said is kept as far as it was heard: an interrupted reply
/// stands here cut, and a reply that was never heard does not stand here.
#[derive(Debug)]
pub struct Dialog {
    messages: Vec<Message>,
    /// Bytes of background.
    context: usize,
    /// Tokens of all else that was said, and how many of them a request may hold.
    said: usize,
    most: usize,
    /// Something of it was forgotten.
    forgotten: bool,
}

/// Background that is kept, bytes: some ten times what a model is usefully told.
const MOST_CONTEXT: usize = 64 * 1024;

/// The prompt and the instructions.
const PREAMBLE: usize = 2;

impl Dialog {
    pub fn new(agent: &AgentConfig) -> Self {
        Self {
            messages: vec![
                Message::System {
                    content: agent.system_prompt.clone(),
                },
                Message::Instructions {
                    content: instructions::instructions(agent),
                },
            ],
            context: 0,
            said: 0,
            forgotten: false,
            most: agent.max_context_tokens as usize,
        }
    }

    /// Background that the client gave during the call. `false`: it is more than is kept, and the oldest was
    /// dropped.
    pub fn add_context(&mut self, text: &str) -> bool {
        self.messages.push(Message::System {
            content: text.to_owned(),
        });
        self.context += text.len();
        let mut all_kept = true;
        while self.context > MOST_CONTEXT
            && let Some(oldest) = self.oldest_context()
            && let Message::System { content } = self.messages.remove(oldest)
        {
            self.context -= content.len();
            all_kept = false;
        }
        all_kept
    }

    fn oldest_context(&self) -> Option<usize> {
        let background = |message: &Message| matches!(message, Message::System { .. });
        let place = self.messages.iter().skip(PREAMBLE).position(background)?;
        Some(PREAMBLE + place)
    }

    pub fn caller_said(&mut self, text: &str) {
        if !text.is_empty() {
            self.push(Message::User {
                content: text.to_owned(),
            });
        }
    }

    /// What was heard of the agent's reply.
    pub fn agent_said(&mut self, heard: &str) {
        if !heard.is_empty() {
            self.push(Message::Assistant {
                content: heard.to_owned(),
                tool_calls: Vec::new(),
            });
        }
    }

    /// Tools that ran, with what they answered, in the order of the model's messages.
    pub fn steps(&mut self, steps: Vec<Message>) {
        for step in steps {
            self.push(step);
        }
    }

    /// What is so old that no request has room for it is forgotten.
    fn push(&mut self, message: Message) {
        self.said += tokens(&message);
        self.messages.push(message);
        while self.said > self.most
            && let Some(oldest) = self.messages.iter().position(|message| !is_fixed(message))
        {
            self.said -= tokens(&self.messages.remove(oldest));
            self.forgotten = true;
        }
    }

    /// What the model is asked now. `pending`: the caller's words that are being answered;
    /// `steps`: what this reply has done so far (tools).
    pub fn request(&self, agent: &AgentConfig, pending: &str, steps: &[Message]) -> ModelRequest {
        let mut messages = self.truncated(agent);
        let history = messages.len();
        let mut left_out = self.forgotten || history < self.messages.len();
        if !pending.is_empty() {
            messages.push(Message::User {
                content: pending.to_owned(),
            });
        }
        messages.extend_from_slice(steps);
        let before = messages.len();
        fit(&mut messages, history, agent);
        left_out |= messages.len() < before;
        ModelRequest {
            messages,
            left_out,
            tools: tools(agent),
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
            if drop > 0 && !is_fixed(message) {
                drop -= usize::from(is_turn(message));
                continue;
            }
            kept.push(message.clone());
        }
        drop_orphans(&mut kept);
        kept
    }
}

/// Leaves the oldest of the first `history` messages out until the rest, with the answer, fits into
/// the model's context. The prompt, the instructions, all background and what is asked now always stay.
fn fit(messages: &mut Vec<Message>, history: usize, agent: &AgentConfig) {
    let most = (agent.max_context_tokens as usize).saturating_sub(agent.max_tokens as usize);
    let mut total: usize = messages.iter().map(tokens).sum();
    let mut place = 0;
    for _ in 0..history {
        if total <= most {
            break;
        }
        match messages.get(place) {
            Some(message) if is_fixed(message) => place += 1,
            Some(message) => {
                total -= tokens(message);
                messages.remove(place);
            }
            None => break,
        }
    }
    drop_orphans(messages);
}

/// The answer of a tool whose call was dropped means nothing.
fn drop_orphans(messages: &mut Vec<Message>) {
    while let Some(at) = messages.iter().position(|message| !is_fixed(message))
        && matches!(messages[at], Message::Tool { .. })
    {
        messages.remove(at);
    }
}

/// About how many tokens a message takes: English and French have some four characters a token, and
/// what stands around a message takes a few more.
fn tokens(message: &Message) -> usize {
    let characters = match message {
        Message::System { content }
        | Message::Instructions { content }
        | Message::User { content }
        | Message::Tool { content, .. } => content.chars().count(),
        Message::Assistant {
            content,
            tool_calls,
        } => {
            let calls = tool_calls
                .iter()
                .map(|call| call.name.len() + call.arguments.chars().count());
            content.chars().count() + calls.sum::<usize>()
        }
    };
    characters.div_ceil(4) + 4
}

/// The agent's tools, and the one to hang up with where the model may.
fn tools(agent: &AgentConfig) -> Vec<ToolSpec> {
    let mut tools = agent.tools.clone();
    let offered = agent.end_call_enabled && agent.end_call_behavior == EndCallBehavior::AutoDetect;
    if offered && tools.iter().all(|tool| tool.name != END_CALL) {
        tools.push(ToolSpec {
            name: END_CALL.to_owned(),
            description: "Hang up: the conversation is over, or the caller wants it to be."
                .to_owned(),
            kind: ToolKind::System,
            parameters: r#"{"type":"object","properties":{}}"#.to_owned(),
            timeout_ms: 10_000,
            filler_message: None,
        });
    }
    tools
}

/// What no shortening of the history touches.
const fn is_fixed(message: &Message) -> bool {
    matches!(
        message,
        Message::System { .. } | Message::Instructions { .. }
    )
}

fn is_turn(message: &Message) -> bool {
    match message {
        Message::User { .. } => true,
        Message::Assistant { content, .. } => !content.is_empty(),
        Message::System { .. } | Message::Instructions { .. } | Message::Tool { .. } => false,
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
        let told = instructions::instructions(&agent);
        assert_eq!(texts(&request), ["P", &told, "u2", "a2", "C", "now"]);
        assert!(request.left_out);
        let whole = AgentConfig::default();
        let request = dialog.request(&whole, "now", &[]);
        assert!(!request.left_out);
    }

    #[test]
    fn background_is_kept_up_to_64_kib_the_newest_of_it() {
        let agent = AgentConfig::default();
        let mut dialog = Dialog::new(&agent);
        dialog.caller_said("u");
        let kept: Vec<bool> = (0..20)
            .map(|n| dialog.add_context(&format!("{n:04000}")))
            .collect();
        assert!(kept[..16].iter().all(|kept| *kept) && !kept[16] && !kept[19]);
        let request = dialog.request(&agent, "now", &[]);
        let told = texts(&request);
        assert_eq!(told.len(), PREAMBLE + 16 + 2);
        assert_eq!((told[PREAMBLE], told[PREAMBLE + 17]), ("u", "now"));
        assert_eq!(told[PREAMBLE + 1], format!("{:04000}", 4));
    }

    fn texts(request: &ModelRequest) -> Vec<&str> {
        fn text(message: &Message) -> &str {
            match message {
                Message::System { content }
                | Message::Instructions { content }
                | Message::User { content }
                | Message::Assistant { content, .. }
                | Message::Tool { content, .. } => content,
            }
        }
        request.messages.iter().map(text).collect()
    }

    #[test]
    fn what_does_not_fit_the_context_is_left_out_oldest_first() {
        let agent = AgentConfig {
            system_prompt: "P".into(),
            max_context_tokens: 1024,
            max_tokens: 24,
            ..AgentConfig::default()
        };
        let mut dialog = Dialog::new(&agent);
        // 400 characters are 104 tokens.
        for n in 0..20 {
            dialog.caller_said(&format!("{n:0400}"));
        }
        dialog.steps(vec![Message::Tool {
            tool_call_id: "c".into(),
            content: "sunny".into(),
            is_error: false,
        }]);
        dialog.add_context("C");
        let request = dialog.request(&agent, "now", &[]);
        let told = texts(&request);
        let total: usize = request.messages.iter().map(tokens).sum();
        assert!((896..=1000).contains(&total), "{total} tokens");
        assert!(request.left_out);
        assert_eq!(told.first(), Some(&"P"));
        assert_eq!(told.last(), Some(&"now"));
        assert!(told.contains(&"C") && told.contains(&"sunny"));
        assert!(told.contains(&format!("{:0400}", 19).as_str()));
        assert!(!told.contains(&format!("{:0400}", 0).as_str()));

        // The prompt and what is asked now stay, however long they are.
        let long = "x".repeat(8000);
        let request = dialog.request(&agent, &long, &[]);
        let instructions = instructions::instructions(&agent);
        assert_eq!(texts(&request), ["P", &instructions, "C", &long]);
    }

    #[test]
    fn what_no_request_has_room_for_is_forgotten() {
        let agent = AgentConfig {
            max_context_tokens: 1024,
            max_tokens: 24,
            ..AgentConfig::default()
        };
        let mut dialog = Dialog::new(&agent);
        dialog.add_context("C");
        for n in 0..1000 {
            dialog.caller_said(&format!("{n:0400}"));
        }
        // 9 of 104 tokens, beside the prompt, the instructions and the background.
        assert_eq!(dialog.messages.len(), PREAMBLE + 1 + 9);
        dialog.caller_said(&"x".repeat(8000));
        assert_eq!((dialog.messages.len(), dialog.said), (PREAMBLE + 1, 0));
        assert!(dialog.request(&agent, "now", &[]).left_out);
    }

    #[test]
    fn the_model_may_hang_up_where_the_agent_lets_it() {
        let offered = |end_call_enabled, end_call_behavior| {
            let agent = AgentConfig {
                end_call_enabled,
                end_call_behavior,
                ..AgentConfig::default()
            };
            let request = Dialog::new(&agent).request(&agent, "bye", &[]);
            request.tools.iter().any(|tool| tool.name == END_CALL)
        };
        assert!(offered(true, EndCallBehavior::AutoDetect));
        assert!(!offered(true, EndCallBehavior::PhrasesOnly));
        assert!(!offered(false, EndCallBehavior::AutoDetect));
    }
}
