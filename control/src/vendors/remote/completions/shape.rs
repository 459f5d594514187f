//! The dialogue as every chat template takes it: one system message in front, then user and assistant in turn, the
//! user first. Templates of open models (Qwen's, Gemma's, Mistral's) refuse anything else. Pure.

use media::speech::Message;
use serde_json::{Value, json};

/// What the user says where nothing was said: a dialogue without a user has no answer.
const SILENCE: &str = "(The caller has not said anything yet.)";

/// The same where what was said first is left out: what stands first now is no greeting.
const LEFT_OUT: &str = "(Earlier parts are left out.)";

/// The messages of a request. `left_out`: earlier ones are not among them. `system`: the template knows that role; else
/// its text stands before the user's first.
pub(super) fn lines(messages: &[Message], left_out: bool, system: bool) -> Vec<Value> {
    let first = if left_out { LEFT_OUT } else { SILENCE };
    let mut told: Vec<String> = Vec::new();
    let mut turns: Vec<Value> = Vec::with_capacity(messages.len() + 1);
    for message in messages {
        match message {
            Message::System { content } | Message::Instructions { content } => {
                told.push(content.clone());
            }
            Message::User { content } => user(&mut turns, content),
            // A greeting, which is told as background.
            Message::Assistant {
                content,
                tool_calls,
            } if turns.is_empty() && !left_out && tool_calls.is_empty() => {
                if !content.is_empty() {
                    told.push(format!("You began with these words: {content}"));
                }
            }
            Message::Assistant { .. } => {
                if turns.is_empty() {
                    user(&mut turns, first);
                }
                assistant(&mut turns, message);
            }
            // Its call is left out, and servers refuse an answer alone.
            Message::Tool { .. } if turns.is_empty() => {}
            Message::Tool {
                tool_call_id,
                content,
                is_error: _,
            } => {
                turns.push(
                    json!({"role": "tool", "tool_call_id": tool_call_id, "content": content}),
                );
            }
        }
    }
    if turns.is_empty() {
        user(&mut turns, first);
    }
    told.retain(|text| !text.trim().is_empty());
    if told.is_empty() {
        return turns;
    }
    let told = told.join("\n\n");
    if system {
        turns.insert(0, json!({"role": "system", "content": told}));
    } else {
        let first = turns[0]["content"].as_str().unwrap_or_default();
        turns[0]["content"] = json!(format!("{told}\n\n{first}"));
    }
    turns
}

fn user(turns: &mut Vec<Value>, content: &str) {
    match turns.last_mut().filter(|last| last["role"] == "user") {
        Some(last) => add(last, content),
        None => turns.push(json!({"role": "user", "content": content})),
    }
}

fn assistant(turns: &mut Vec<Value>, message: &Message) {
    let Message::Assistant {
        content,
        tool_calls,
    } = message
    else {
        return;
    };
    let calls: Vec<Value> = tool_calls
        .iter()
        .map(|call| {
            json!({"id": call.id, "type": "function", "function": {
                "name": call.name, "arguments": call.arguments,
            }})
        })
        .collect();
    let open = turns.last_mut().filter(|last| {
        last["role"] == "assistant" && (last.get("tool_calls").is_none() || content.is_empty())
    });
    let Some(last) = open else {
        let content = (!content.is_empty() || calls.is_empty()).then_some(content);
        let mut turn = json!({"role": "assistant", "content": content});
        if !calls.is_empty() {
            turn["tool_calls"] = calls.into();
        }
        turns.push(turn);
        return;
    };
    if !content.is_empty() {
        add(last, content);
    }
    if let Some(Value::Array(known)) = last.get_mut("tool_calls") {
        known.extend(calls);
    } else if !calls.is_empty() {
        last["tool_calls"] = calls.into();
    }
}

/// Adds to what was said.
fn add(turn: &mut Value, content: &str) {
    let said = turn["content"].as_str().unwrap_or_default();
    turn["content"] = match said {
        "" => json!(content),
        said => json!(format!("{said}\n{content}")),
    };
}

#[cfg(test)]
mod tests {
    use media::speech::ToolCall;

    use super::*;

    fn system(text: &str) -> Message {
        Message::System {
            content: text.to_owned(),
        }
    }

    fn says(text: &str) -> Message {
        Message::User {
            content: text.to_owned(),
        }
    }

    fn answers(text: &str, call: Option<&str>) -> Message {
        Message::Assistant {
            content: text.to_owned(),
            tool_calls: call
                .map(|id| ToolCall {
                    id: id.to_owned(),
                    name: "book".to_owned(),
                    arguments: "{}".to_owned(),
                })
                .into_iter()
                .collect(),
        }
    }

    fn tool(id: &str) -> Message {
        Message::Tool {
            tool_call_id: id.to_owned(),
            content: "done".to_owned(),
            is_error: false,
        }
    }

    /// The roles, with the texts.
    fn shape(messages: &[Message], system: bool) -> Vec<String> {
        shape_of(messages, false, system)
    }

    fn shape_of(messages: &[Message], left_out: bool, system: bool) -> Vec<String> {
        lines(messages, left_out, system)
            .iter()
            .map(|line| {
                let calls = line["tool_calls"].as_array().map_or(0, Vec::len);
                let role = line["role"].as_str().unwrap_or_default();
                let text = line["content"].as_str().unwrap_or_default();
                format!("{role} {calls}: {text}")
            })
            .collect()
    }

    #[test]
    fn one_system_message_stands_in_front_and_a_greeting_in_it() {
        let talk = [
            system("P"),
            system("I"),
            answers("Hello.", None),
            says("Hi."),
            system("C"),
            says("Well?"),
        ];
        assert_eq!(
            shape(&talk, true),
            [
                "system 0: P\n\nI\n\nYou began with these words: Hello.\n\nC",
                "user 0: Hi.\nWell?"
            ]
        );
        assert_eq!(
            shape(&talk, false),
            ["user 0: P\n\nI\n\nYou began with these words: Hello.\n\nC\n\nHi.\nWell?"]
        );
        assert_eq!(shape(&[says("Hi.")], false), ["user 0: Hi."]);
        assert_eq!(
            shape(&[system("P"), answers("Hello.", None)], true)[1],
            format!("user 0: {SILENCE}")
        );
    }

    #[test]
    fn no_role_comes_twice_in_a_row_and_calls_keep_their_answers() {
        let talk = [
            answers("", Some("a")),
            tool("a"),
            says("Book."),
            answers("One", None),
            answers("moment.", Some("b")),
            tool("b"),
            answers("", Some("c")),
            tool("c"),
            answers("Booked.", None),
            answers("Bye.", None),
            says("Thanks."),
        ];
        assert_eq!(
            shape(&talk, true),
            [
                &format!("user 0: {SILENCE}"),
                "assistant 1: ",
                "tool 0: done",
                "user 0: Book.",
                "assistant 1: One\nmoment.",
                "tool 0: done",
                "assistant 1: ",
                "tool 0: done",
                "assistant 0: Booked.\nBye.",
                "user 0: Thanks."
            ]
        );
    }

    #[test]
    fn what_stands_first_after_a_cut_is_no_greeting_and_no_tool_speaks_as_the_system() {
        let cut = [system("P"), answers("At nine.", None), says("Thanks.")];
        let left_out = format!("user 0: {LEFT_OUT}");
        assert_eq!(
            shape_of(&cut, true, true),
            [
                "system 0: P",
                &left_out,
                "assistant 0: At nine.",
                "user 0: Thanks."
            ]
        );
        let called = [system("P"), answers("", Some("a")), tool("a")];
        assert_eq!(
            shape_of(&called, true, false),
            [
                &format!("{}: P\n\n{LEFT_OUT}", "user 0"),
                "assistant 1: ",
                "tool 0: done"
            ]
        );
        let alone = [system("P"), tool("a")];
        assert_eq!(shape_of(&alone, true, true), ["system 0: P", &left_out]);
    }
}
