//! Tools of a reply that the caller interrupts, or speaks before. Times as in the other rows.

use std::time::Duration;

use kit::virtual_call::{VirtualCall, config};
use media::call::record::{ToolRecord, ToolStatus};
use media::config::{AgentConfig, ToolKind, ToolSpec};
use media::speech::ToolCall;
use media::speech::script::{Answer, Hearing, Script};

use crate::rows::{agent, at, heard};

fn booker() -> AgentConfig {
    AgentConfig {
        tools: vec![ToolSpec {
            name: "book".into(),
            description: "Books.".into(),
            kind: ToolKind::Webhook,
            parameters: "{}".into(),
            timeout_ms: 30_000,
            filler_message: None,
        }],
        ..agent()
    }
}

fn book(id: &str) -> ToolCall {
    ToolCall {
        id: id.into(),
        name: "book".into(),
        arguments: "{}".into(),
    }
}

fn told(records: &[ToolRecord]) -> Vec<(&str, ToolStatus)> {
    records.iter().map(|r| (r.id.as_str(), r.status)).collect()
}

#[test]
fn an_interrupted_replys_tool_is_canceled() {
    let text =
        "One two three four five six seven eight nine ten eleven twelve thirteen. And so on.";
    let script = Script {
        lines: [Answer::SayAndCall(text.into(), book("c1"))].into(),
        ..heard(&["Book it.", "Enough of that."])
    };
    let call =
        VirtualCall::new(config(booker()), script, &[(1000, 2000), (4000, 5400)]).run(12_000);
    assert_eq!(at(&call, "interruption"), 4600);
    assert_eq!(at(&call, "cancel tool c1"), 4600);
    let turn = call.agent_turns()[0];
    assert_eq!(told(&turn.tool_calls), [("c1", ToolStatus::Canceled)]);
    let record = &turn.tool_calls[0];
    let began = at(&call, "run tool");
    assert!((2400..2500).contains(&began), "{began}");
    assert_eq!(
        (record.result.as_ref(), record.duration_ms),
        (None, 4600 - began)
    );
}

#[test]
fn a_tool_that_has_answered_is_not_asked_again_when_the_caller_speaks_on() {
    let lines = [
        Answer::Call(book("c1")),
        Answer::Stall,
        Answer::Say("Booked.".into()),
    ];
    let script = Script {
        lines: lines.into(),
        ..heard(&["Book it.", "For Monday.", "Thanks."])
    };
    let spans = [(1000, 2000), (4000, 4600), (8000, 8600)];
    let mut call = VirtualCall::new(config(booker()), script, &spans);
    call.connect();
    call.run_until(3000);
    call.tool("c1", "{\"ok\":true}");
    call.run_until(7000);
    let asked = [
        "user: Book it.",
        "call: book",
        "tool: {\"ok\":true}",
        "user: For Monday.",
    ];
    assert_eq!(call.last_request(), asked);
    assert_eq!(call.caller_turns()[0].text, "Book it. For Monday.");
    let turn = call.agent_turns()[0];
    assert_eq!(turn.text, "Booked.");
    assert_eq!(told(&turn.tool_calls), [("c1", ToolStatus::Ok)]);
    call.run_until(12_000);
    let since = ["assistant: Booked.", "user: Thanks."];
    assert_eq!(call.last_request(), [&asked[..], &since].concat());
    assert_eq!(call.tools, ["c1"]);
}

#[test]
fn a_tool_that_runs_when_the_caller_speaks_on_is_canceled_and_may_be_called_anew() {
    let lines = [
        Answer::Call(book("c1")),
        Answer::Call(book("c2")),
        Answer::Say("Booked.".into()),
    ];
    let script = Script {
        lines: lines.into(),
        ..heard(&["Book it.", "For Monday."])
    };
    let mut call = VirtualCall::new(config(booker()), script, &[(1000, 2000), (4000, 4600)]);
    call.connect();
    call.run_until(5500);
    assert_eq!(at(&call, "cancel tool c1"), 4100);
    assert_eq!(call.last_request(), ["user: Book it. For Monday."]);
    call.tool("c2", "{\"ok\":true}");
    call.run_until(9000);
    let statuses = [("c1", ToolStatus::Canceled), ("c2", ToolStatus::Ok)];
    assert_eq!(told(&call.agent_turns()[0].tool_calls), statuses);
}

#[test]
fn a_tool_that_runs_when_final_words_come_late_is_called_once() {
    let words = [(50, "Book it."), (1_000, "Book it for Monday.")];
    let words = words.map(|(ms, text)| (Duration::from_millis(ms), text.to_owned(), true));
    let script = Script {
        hearings: [Hearing::Many(words.to_vec())].into(),
        lines: [Answer::Call(book("c1")), Answer::Say("Booked.".into())].into(),
        ..Script::default()
    };
    let mut call = VirtualCall::new(config(booker()), script, &[(1000, 2000)]);
    call.connect();
    call.run_until(4000);
    assert!(at(&call, "run tool") < 3000, "{:#?}", call.story);
    call.tool("c1", "{\"ok\":true}");
    call.run_until(8000);
    assert_eq!(call.story_of(&["run tool"]).len(), 1, "{:#?}", call.story);
    assert_eq!(call.story_of(&["cancel tool"]).len(), 0);
    let turn = call.agent_turns()[0];
    assert_eq!(told(&turn.tool_calls), [("c1", ToolStatus::Ok)]);
    assert_eq!(turn.text, "Booked.");
}

#[test]
fn what_was_done_for_a_turn_that_nobody_answers_stands_with_the_turn() {
    let script = Script {
        lines: [Answer::Call(book("c1")), Answer::Call(book("c2"))].into(),
        ..heard(&["Book it."])
    };
    let mut call = VirtualCall::new(config(booker()), script, &[(1000, 2000)]);
    call.connect();
    call.run_until(3000);
    call.tool("c1", "{\"ok\":true}");
    call.run_until(4000);
    call.hang_up();
    assert_eq!(call.turns.len(), 1);
    let statuses = [("c1", ToolStatus::Ok), ("c2", ToolStatus::Canceled)];
    assert_eq!(told(&call.caller_turns()[0].tool_calls), statuses);
}

#[test]
fn a_tool_that_is_called_as_the_call_ends_has_run_and_is_canceled() {
    let agent = AgentConfig {
        max_duration_seconds: 4,
        ..booker()
    };
    let play = |llm_delay| {
        let script = Script {
            lines: [Answer::Call(book("c1"))].into(),
            llm_delay: Duration::from_millis(llm_delay),
            ..heard(&["Book it."])
        };
        VirtualCall::new(config(agent.clone()), script, &[(1000, 2000)]).run(8000)
    };
    let asked = at(&play(0), "ask model");
    let call = play(4000 - asked);
    assert_eq!(
        (at(&call, "run tool"), at(&call, "cancel tool c1")),
        (4000, 4000)
    );
    let canceled = [("c1", ToolStatus::Canceled)];
    assert_eq!(told(&call.caller_turns()[0].tool_calls), canceled);
    assert_eq!(call.tools, ["c1"]);
}
