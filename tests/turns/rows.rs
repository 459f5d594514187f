//! The rows of the turn table. Times are ms since the call's start; the scripted recogniser takes
//! 50 ms, the model 80 ms, the voice 40 ms, a character sounds for 60 ms, the client holds 100 ms.

use kit::virtual_call::{VirtualCall, config};
use media::call::input::EndRequest;
use media::call::record::{EndReason, Source, ToolStatus};
use media::config::{
    Adherence, AgentConfig, CallConfig, Direction, Eagerness, Guardrail, ToolKind, ToolSpec,
};
use media::speech::script::{Answer, Hearing, Script};
use media::speech::{Message, ToolCall};
use serde_json::json;

use crate::interruptions::long_reply;

pub(super) fn agent() -> AgentConfig {
    AgentConfig {
        system_prompt: "Be kind.".into(),
        idle_check_in_after_secs: 600.0,
        ..AgentConfig::default()
    }
}

pub(super) fn greeter() -> AgentConfig {
    AgentConfig {
        first_message: Some("Welcome to the clinic.".into()),
        ..agent()
    }
}

pub(super) fn heard(texts: &[&str]) -> Script {
    Script {
        hearings: texts.iter().map(|t| Hearing::Words((*t).into())).collect(),
        ..Script::default()
    }
}

fn outbound(agent: AgentConfig) -> CallConfig {
    CallConfig {
        direction: Direction::Outbound,
        ..config(agent)
    }
}

fn reason(call: &VirtualCall) -> Option<EndReason> {
    call.ended.as_ref().map(|summary| summary.reason)
}

/// The time of the first line of the story that holds `words`.
#[track_caller]
pub(super) fn at(call: &VirtualCall, words: &str) -> u64 {
    let line = call.story.iter().find(|line| line.contains(words));
    let line = line.unwrap_or_else(|| panic!("no {words:?} in {:#?}", call.story));
    line.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn opening_inbound_greets_at_once() {
    let call = VirtualCall::new(config(greeter()), Script::default(), &[]).run(5000);
    assert_eq!(at(&call, "speak \"Welcome"), 0);
    let turn = call.agent_turns()[0];
    assert_eq!((turn.start_ms, turn.end_ms), (Some(40), Some(40 + 1320)));
    assert!(!turn.interrupted && turn.text == "Welcome to the clinic.");
}

#[test]
fn opening_without_first_message_waits_for_the_caller() {
    let call = VirtualCall::new(config(agent()), Script::default(), &[]).run(10_000);
    assert!(call.turns.is_empty() && call.story_of(&["speak", "ask"]).is_empty());
}

#[test]
fn opening_outbound_greets_after_the_hello() {
    let call = VirtualCall::new(outbound(greeter()), Script::default(), &[(1000, 1400)]).run(8000);
    assert_eq!(at(&call, "speak \"Welcome"), 1800);
    assert!(call.story_of(&["ask model"]).is_empty());
    assert_eq!(call.caller_turns()[0].text, "Hello.");
}

#[test]
fn opening_outbound_greets_after_three_seconds_of_silence() {
    let call = VirtualCall::new(outbound(greeter()), Script::default(), &[]).run(8000);
    assert_eq!(at(&call, "speak \"Welcome"), 3000);
}

#[test]
fn caller_sentence_ends_the_turn_after_the_sentence_delay() {
    for (eagerness, delay) in [
        (Eagerness::Patient, 900),
        (Eagerness::Normal, 400),
        (Eagerness::Eager, 200),
    ] {
        let agent = AgentConfig {
            turn_eagerness: eagerness,
            ..agent()
        };
        // So long that the reply cannot be ready before the turn ends.
        let script = Script {
            stt_delay: std::time::Duration::ZERO,
            ..heard(&["What time is it?"])
        };
        let call = VirtualCall::new(config(agent), script, &[(1000, 2000)]).run(6000);
        let committed = call
            .messages("user_transcript")
            .iter()
            .find(|(_, m)| m["is_final"] == true)
            .unwrap()
            .0;
        assert_eq!(committed, 2000 + delay, "{eagerness:?}");
        let latency = call.agent_turns()[0].latency.clone().unwrap();
        assert_eq!(latency.endpoint_ms, delay);
        assert_eq!(
            latency
                .contributions
                .iter()
                .map(|c| c.duration_ms)
                .sum::<u64>(),
            latency.response_ms
        );
    }
}

#[test]
fn caller_open_words_wait_longer_and_digits_too() {
    for (text, delay) in [("I would like to", 1200), ("my number is five five", 1000)] {
        let call = VirtualCall::new(config(agent()), heard(&[text]), &[(1000, 2000)]).run(6000);
        assert_eq!(at(&call, "ask model"), 2000 + delay, "{text}");
    }
}

#[test]
fn caller_speaks_on_after_a_pause_and_it_is_one_turn() {
    let script = heard(&["I would like", "an appointment please."]);
    let call = VirtualCall::new(config(agent()), script, &[(1000, 2000), (2600, 3400)]).run(8000);
    let turns = call.caller_turns();
    assert_eq!(turns.len(), 1);
    assert_eq!(turns[0].text, "I would like an appointment please.");
    assert_eq!(
        (turns[0].start_ms, turns[0].end_ms),
        (Some(1000), Some(3400))
    );
}

#[test]
fn caller_late_final_words_commit_when_they_come() {
    let script = Script {
        stt_delay: std::time::Duration::from_millis(900),
        ..heard(&["Hello?"])
    };
    let call = VirtualCall::new(config(agent()), script, &[(1000, 2000)]).run(6000);
    assert_eq!(at(&call, "ask model"), 2000 + 200 + 900);
    let latency = call.agent_turns()[0].latency.clone().unwrap();
    assert_eq!(latency.stt_final_ms, Some(700));
}

#[test]
fn caller_a_sentence_starts_a_speculative_reply_that_is_heard_after_the_turn() {
    let call = VirtualCall::new(config(agent()), heard(&["Hello?"]), &[(1000, 2000)]).run(6000);
    assert_eq!(at(&call, "ask model"), 2250);
    let turn = call.agent_turns()[0];
    assert_eq!(turn.start_ms, Some(2400));
    let latency = turn.latency.clone().unwrap();
    assert!(latency.speculative.used);
    assert_eq!(
        (latency.response_ms, latency.speculative.attempts),
        (400, 1)
    );
}

#[test]
fn caller_speaking_on_drops_the_speculative_reply_unheard() {
    let script = heard(&["Hello?", "Are you there?"]);
    let call = VirtualCall::new(config(agent()), script, &[(1000, 2000), (2340, 3000)]).run(8000);
    assert_eq!(call.script.requests.len(), 2);
    assert_eq!(call.last_request(), ["user: Hello? Are you there?"]);
    assert_eq!(call.agent_turns().len(), 1);
    assert!(call.messages("interruption").is_empty());
}

#[test]
fn caller_without_words_is_no_turn() {
    let call = VirtualCall::new(config(agent()), heard(&[""]), &[(1000, 1100)]).run(8000);
    assert!(call.turns.is_empty() && call.script.requests.is_empty());
}

#[test]
fn caller_without_any_transcript_is_asked_again() {
    let script = Script {
        hearings: [Hearing::Stall].into(),
        ..Script::default()
    };
    let call = VirtualCall::new(config(agent()), script, &[(1000, 2000)]).run(12_000);
    assert_eq!(
        at(&call, "speak \"Sorry, I did not catch that."),
        2000 + 5000
    );
    assert_eq!(call.agent_turns()[0].source, Source::System);
}

#[test]
fn caller_not_heard_three_times_ends_with_provider_error() {
    let script = Script {
        always_heard: Hearing::Fail,
        ..Script::default()
    };
    let spans = [(1000, 2000), (9000, 10_000), (17_000, 18_000)];
    let call = VirtualCall::new(config(agent()), script, &spans).run(40_000);
    assert_eq!(reason(&call), Some(EndReason::ProviderError));
    assert_eq!(call.closed, Some(1011));
}

#[test]
fn thinking_soft_timeout_speaks_a_filler_and_the_reply_follows() {
    let agent = AgentConfig {
        soft_timeout_seconds: Some(1.0),
        soft_timeout_message: "Let me look.".into(),
        ..agent()
    };
    let script = Script {
        llm_delay: std::time::Duration::from_millis(2500),
        ..heard(&["I want to"])
    };
    let call = VirtualCall::new(config(agent), script, &[(1000, 2000)]).run(12_000);
    assert_eq!(at(&call, "speak \"Let me look.\""), 3200 + 1000);
    let texts: Vec<&str> = call.agent_turns().iter().map(|t| t.text.as_str()).collect();
    assert_eq!(texts, ["Let me look.", "Hello there."]);
}

#[test]
fn thinking_without_soft_timeout_has_no_filler_and_apologises_at_the_deadline() {
    let script = Script {
        always_said: Answer::Stall,
        ..heard(&["Hello?"])
    };
    let call = VirtualCall::new(config(agent()), script, &[(1000, 2000)]).run(20_000);
    assert_eq!(at(&call, "speak"), 2400 + 8000);
    assert_eq!(
        call.agent_turns()[0].text,
        "I am sorry, I cannot answer that right now."
    );
    assert_eq!(reason(&call), None);
}

#[test]
fn thinking_a_failing_model_is_asked_once_more_then_the_agent_apologises() {
    let script = Script {
        always_said: Answer::Fail,
        ..heard(&["I want to"])
    };
    let call = VirtualCall::new(config(agent()), script, &[(1000, 2000)]).run(20_000);
    assert_eq!(call.script.requests.len(), 2);
    assert_eq!(at(&call, "speak \"I am sorry"), 3200 + 160);
}

#[test]
fn thinking_a_model_without_words_is_asked_once_more_then_the_agent_apologises() {
    for nothing in ["", " ", "👍", "```json\n{}\n```"] {
        let script = |lines: &[&str]| Script {
            lines: lines
                .iter()
                .map(|line| Answer::Say((*line).into()))
                .collect(),
            ..heard(&["I want to"])
        };
        let said = |lines: &[&str]| {
            let call = VirtualCall::new(config(agent()), script(lines), &[(1000, 2000)]).run(9000);
            (
                call.script.requests.len(),
                call.agent_turns()[0].text.clone(),
            )
        };
        let sorry = "I am sorry, I cannot answer that right now.";
        assert_eq!(said(&[nothing, nothing]), (2, sorry.to_owned()));
        assert_eq!(said(&[nothing, "**Yes**."]), (2, "Yes.".to_owned()));
    }
}

#[test]
fn what_is_said_before_a_list_and_all_of_the_list_is_heard_whatever_the_limit() {
    let script = Script {
        always_said: Answer::Say(
            "We have:\n- a **pool**\n- a bar\n- a gym\n\nCome in. Bye.".into(),
        ),
        ..heard(&["What have you?"])
    };
    let agent = AgentConfig {
        response_max_sentences: 2,
        ..agent()
    };
    let call = VirtualCall::new(config(agent), script, &[(1000, 2000)]).run(12_000);
    assert_eq!(
        call.agent_turns()[0].text,
        "We have:\na pool\na bar\na gym\nCome in."
    );
}

#[test]
fn thinking_three_failed_turns_end_with_provider_error() {
    let script = Script {
        always_said: Answer::Fail,
        ..Script::default()
    };
    let spans = [(1000, 2000), (10_000, 11_000), (20_000, 21_000)];
    let call = VirtualCall::new(config(agent()), script, &spans).run(40_000);
    assert_eq!(reason(&call), Some(EndReason::ProviderError));
}

#[test]
fn thinking_the_caller_speaks_on_and_the_same_turn_goes_on() {
    let script = Script {
        llm_delay: std::time::Duration::from_millis(1500),
        ..heard(&["I want to", "cancel my appointment."])
    };
    let call = VirtualCall::new(config(agent()), script, &[(1000, 2000), (3400, 4000)]).run(12_000);
    assert_eq!(call.caller_turns().len(), 1);
    assert_eq!(
        call.caller_turns()[0].text,
        "I want to cancel my appointment."
    );
    assert_eq!(at(&call, "cancel model"), 3500);
}

#[test]
fn thinking_a_voice_that_fails_apologises() {
    let script = Script {
        broken_segments: ["Hello there.".to_owned()].into(),
        ..heard(&["Hello?"])
    };
    let call = VirtualCall::new(config(agent()), script, &[(1000, 2000)]).run(12_000);
    assert_eq!(
        call.agent_turns()[0].text,
        "I am sorry, I cannot answer that right now."
    );
}

pub(super) fn tool(kind: ToolKind) -> ToolSpec {
    ToolSpec {
        name: "book".into(),
        description: "Books.".into(),
        kind,
        parameters: "{}".into(),
        timeout_ms: 3000,
        filler_message: Some("I am booking.".into()),
    }
}

fn tool_script() -> Script {
    let call = ToolCall {
        id: "call_1".into(),
        name: "book".into(),
        arguments: "{\"day\":1}".into(),
    };
    Script {
        lines: [Answer::Call(call), Answer::Say("It is booked.".into())].into(),
        ..heard(&["Book it."])
    }
}

#[test]
fn tool_runs_outside_and_the_reply_goes_on_with_its_answer() {
    let agent = AgentConfig {
        tools: vec![tool(ToolKind::Webhook)],
        ..agent()
    };
    let mut call = VirtualCall::new(config(agent), tool_script(), &[(1000, 2000)]);
    call.connect();
    call.run_until(3500);
    assert_eq!(call.tools, ["call_1"]);
    call.tool("call_1", "{\"ok\":true}");
    call.run_until(8000);
    assert_eq!(
        call.last_request(),
        ["user: Book it.", "call: book", "tool: {\"ok\":true}"]
    );
    let turn = *call.agent_turns().last().unwrap();
    assert_eq!(turn.text, "It is booked.");
    assert_eq!(turn.tool_calls[0].status, ToolStatus::Ok);
    assert!(turn.tool_calls[0].filler_spoken);
    assert_eq!(
        at(&call, "run tool"),
        2400,
        "nothing runs before the turn is committed"
    );
}

#[test]
fn tool_of_the_client_is_asked_and_answered_over_the_socket() {
    let agent = AgentConfig {
        tools: vec![tool(ToolKind::Client)],
        ..agent()
    };
    let mut call = VirtualCall::new(config(agent), tool_script(), &[(1000, 2000)]);
    call.connect();
    call.run_until(3000);
    assert_eq!(
        call.messages("tool_call")[0].1["arguments"],
        json!({"day": 1})
    );
    call.client(&json!({"type": "tool_result", "tool_call_id": "call_1", "result": "done", "is_error": false}));
    call.run_until(8000);
    assert_eq!(call.agent_turns().last().unwrap().text, "It is booked.");
}

#[test]
fn tool_that_does_not_answer_times_out_and_the_model_is_told() {
    let agent = AgentConfig {
        tools: vec![tool(ToolKind::Webhook)],
        ..agent()
    };
    let call = VirtualCall::new(config(agent), tool_script(), &[(1000, 2000)]).run(12_000);
    assert_eq!(at(&call, "cancel tool"), 2400 + 3000);
    assert_eq!(
        call.agent_turns().last().unwrap().tool_calls[0].status,
        ToolStatus::Timeout
    );
    assert!(call.last_request()[2].starts_with("tool error"));
}

#[test]
fn agent_reply_over_leads_back_to_listening() {
    let script = heard(&["Hello?", "And now?"]);
    let call = VirtualCall::new(config(agent()), script, &[(1000, 2000), (5000, 6000)]).run(12_000);
    assert_eq!(call.turns.len(), 4);
    assert_eq!(
        call.last_request(),
        ["user: Hello?", "assistant: Hello there.", "user: And now?"]
    );
    let indices: Vec<u32> = call.turns.iter().map(|t| t.index).collect();
    assert_eq!(indices, [0, 1, 2, 3]);
}

#[test]
fn agent_with_the_content_guardrail_never_says_an_obscene_word() {
    let script = || Script {
        always_said: Answer::Say("That is a fucking shame, sir. Bullshit!".into()),
        ..heard(&["Listen."])
    };
    let said = |content_guardrail_enabled| {
        let agent = AgentConfig {
            content_guardrail_enabled,
            ..agent()
        };
        let call = VirtualCall::new(config(agent), script(), &[(1000, 2000)]).run(9000);
        call.agent_turns()[0].text.clone()
    };
    assert_eq!(said(true), "That is a shame, sir. !");
    assert_eq!(said(false), "That is a fucking shame, sir. Bullshit!");
}

#[test]
fn the_model_is_told_the_guardrails_beside_the_prompt() {
    let agent = AgentConfig {
        custom_guardrails: vec![Guardrail {
            name: "Prices".into(),
            prompt: "Never name one.".into(),
        }],
        script_adherence: Adherence::Loose,
        ..agent()
    };
    let call = VirtualCall::new(config(agent), heard(&["Listen."]), &[(1000, 2000)]).run(6000);
    let messages = &call.script.requests[0].messages;
    let [
        Message::System { content: prompt },
        Message::Instructions { content: told },
        ..,
    ] = messages.as_slice()
    else {
        panic!("{messages:?}")
    };
    assert_eq!(prompt, "Be kind.");
    assert!(told.contains("Prices: Never name one.") && told.contains("talk freely"));
}

#[test]
fn listening_idle_check_ins_then_goodbye() {
    let agent = AgentConfig {
        idle_check_in_after_secs: 5.0,
        max_idle_attempts: 2,
        ..agent()
    };
    let call = VirtualCall::new(config(agent), Script::default(), &[]).run(40_000);
    let spoken = call.story_of(&["speak"]);
    assert_eq!(spoken.len(), 3, "{spoken:?}");
    assert!(spoken[0].starts_with("5000 ") && spoken[2].contains("Goodbye"));
    assert_eq!(reason(&call), Some(EndReason::IdleLimit));
    assert!(
        call.agent_turns()
            .iter()
            .all(|turn| turn.source == Source::System)
    );
}

#[test]
fn listening_silence_ends_the_call_and_stands_still_while_the_agent_speaks() {
    let agent = AgentConfig {
        idle_check_in_after_secs: 4.0,
        silence_timeout_seconds: Some(10),
        ..agent()
    };
    let call = VirtualCall::new(config(agent), Script::default(), &[]).run(40_000);
    assert_eq!(reason(&call), Some(EndReason::SilenceTimeout));
    // 10 s of silence and two check-ins of 40 ms + 20 characters, sent in whole frames.
    let ended = at(&call, "ended");
    assert!((12_400..12_600).contains(&ended), "{ended}");
}

#[test]
fn max_duration_ends_the_call() {
    let agent = AgentConfig {
        max_duration_seconds: 30,
        ..greeter()
    };
    let call = VirtualCall::new(config(agent), Script::default(), &[]).run(40_000);
    assert_eq!(
        (at(&call, "ended"), reason(&call)),
        (30_000, Some(EndReason::MaxDuration))
    );
    assert_eq!(call.closed, Some(1000));
}

#[test]
fn max_turns_hangs_up_as_the_nth_turn_begins() {
    let agent = AgentConfig {
        max_turns: Some(2),
        ..agent()
    };
    let script = heard(&["Hello?", "And now?"]);
    let call = VirtualCall::new(config(agent), script, &[(1000, 2000), (5000, 6000)]).run(12_000);
    assert_eq!(
        (at(&call, "ended"), reason(&call)),
        (5020, Some(EndReason::MaxTurns))
    );
}

#[test]
fn max_turns_is_judged_at_a_barge_in_too() {
    let agent = AgentConfig {
        max_turns: Some(2),
        ..agent()
    };
    let call =
        VirtualCall::new(config(agent), long_reply(), &[(1000, 2000), (4000, 5400)]).run(12_000);
    assert_eq!(
        (at(&call, "ended"), reason(&call)),
        (4600, Some(EndReason::MaxTurns))
    );
}

#[test]
fn keypad_digits_are_a_turn_after_a_pause_or_the_hash_key() {
    let mut call = VirtualCall::new(config(greeter()), Script::default(), &[]);
    call.connect();
    call.run_until(3000);
    call.client(&json!({"type": "dtmf", "digits": "42"}));
    call.run_until(8000);
    call.client(&json!({"type": "dtmf", "digit": "7"}));
    call.client(&json!({"type": "dtmf", "digit": "#"}));
    call.run_until(12_000);
    let turns = call.caller_turns();
    assert_eq!(
        (turns[0].text.as_str(), turns[1].text.as_str()),
        ("42", "7#")
    );
    assert!(
        turns
            .iter()
            .all(|t| t.source == Source::Keypad && t.start_ms.is_none())
    );
    assert_eq!(at(&call, "ask model"), 5000);
}

#[test]
fn keypad_is_ignored_when_disabled() {
    let agent = AgentConfig {
        keypad_capture_enabled: false,
        ..agent()
    };
    let mut call = VirtualCall::new(config(agent), Script::default(), &[]);
    call.connect();
    call.run_until(1000);
    call.client(&json!({"type": "dtmf", "digits": "42#"}));
    call.run_until(8000);
    assert!(call.turns.is_empty());
}

#[test]
fn keypad_interrupts_the_agent() {
    let mut call = VirtualCall::new(config(agent()), long_reply(), &[(1000, 2000)]);
    call.connect();
    call.run_until(4000);
    call.client(&json!({"type": "dtmf", "digit": "1"}));
    assert_eq!(at(&call, "interruption"), 4000);
}

#[test]
fn typed_text_is_a_turn_at_once_and_interrupts() {
    let mut call = VirtualCall::new(config(agent()), long_reply(), &[(1000, 2000)]);
    call.connect();
    call.run_until(4000);
    call.client(&json!({"type": "user_message", "text": "What about Monday?"}));
    call.run_until(12_000);
    assert_eq!(at(&call, "interruption"), 4000);
    let turn = call.caller_turns()[1];
    assert_eq!(
        (turn.text.as_str(), turn.source, turn.start_ms),
        ("What about Monday?", Source::Text, None)
    );
}

#[test]
fn contextual_update_is_told_to_the_model_and_makes_no_turn() {
    let mut call = VirtualCall::new(config(agent()), heard(&["Hello?"]), &[(1000, 2000)]);
    call.connect();
    call.client(&json!({"type": "contextual_update", "text": "The caller is on page 3."}));
    call.run_until(6000);
    assert_eq!(call.last_request()[0], "system: The caller is on page 3.");
    assert_eq!(call.turns.len(), 2);
}

#[test]
fn goodbye_when_the_caller_says_an_end_phrase() {
    let agent = AgentConfig {
        end_call_phrases: vec!["that is all".into()],
        ..agent()
    };
    let call = VirtualCall::new(
        config(agent),
        heard(&["Thanks, that is all."]),
        &[(1000, 2000)],
    )
    .run(12_000);
    assert_eq!(reason(&call), Some(EndReason::Phrase));
    assert_eq!(call.agent_turns()[0].text, "Goodbye.");
    assert_eq!(call.caller_turns()[0].text, "Thanks, that is all.");
}

#[test]
fn goodbye_when_the_model_hangs_up_after_its_words() {
    let hang_up = ToolCall {
        id: "c".into(),
        name: "end_call".into(),
        arguments: "{}".into(),
    };
    let script = Script {
        lines: [Answer::SayAndCall("See you soon.".into(), hang_up)].into(),
        ..heard(&["Bye!"])
    };
    let call = VirtualCall::new(config(agent()), script, &[(1000, 2000)]).run(12_000);
    assert_eq!(reason(&call), Some(EndReason::AgentEndCall));
    assert_eq!(call.agent_turns()[0].text, "See you soon.");
    assert!(!call.agent_turns()[0].interrupted);
}

#[test]
fn end_by_the_api_the_caller_and_a_fault() {
    for (request, expected, code) in [
        (Some(EndRequest::Api), EndReason::EndedByApi, Some(1000)),
        (Some(EndRequest::Blocked), EndReason::EndedByApi, Some(1013)),
        (Some(EndRequest::Fault), EndReason::EngineError, Some(1011)),
        (Some(EndRequest::Lost), EndReason::NodeLost, Some(1011)),
        (None, EndReason::CallerHangup, None),
    ] {
        let mut call = VirtualCall::new(config(greeter()), Script::default(), &[]);
        call.connect();
        call.run_until(700);
        match request {
            Some(request) => call.end(request),
            None => call.hang_up(),
        }
        assert_eq!((reason(&call), call.closed), (Some(expected), code));
        assert_eq!(
            call.messages("call_ended").len(),
            usize::from(code.is_some())
        );
        let turn = call.agent_turns()[0];
        assert_eq!(turn.interrupted_after_ms, Some(660));
        assert!(call.messages("error").len() == usize::from(code.is_some_and(|code| code > 1000)));
    }
}

#[test]
fn pings_without_answers_end_the_call() {
    let call = VirtualCall::new(config(agent()), Script::default(), &[]).run(60_000);
    assert_eq!(
        (at(&call, "ended"), reason(&call), call.closed),
        (40_000, Some(EndReason::MediaTimeout), Some(1011))
    );
    assert_eq!(call.messages("ping").len(), 3);
    let [error] = call.messages("error")[..] else {
        panic!("told once: {:?}", call.story)
    };
    assert_eq!(
        (error.0, &error.1["code"]),
        (40_000, &json!("media_timeout"))
    );
}

#[test]
fn the_round_trip_of_a_socket_is_no_part_of_an_answer() {
    let spans = [(11_000, 12_000)];
    let mut call = VirtualCall::new(config(agent()), heard(&["Hello?"]), &spans);
    call.connect();
    call.run_until(10_250);
    let ping = call.messages("ping")[0].1["event_id"].clone();
    call.client(&json!({"type": "pong", "event_id": ping}));
    call.run_until(21_000);
    assert_eq!(call.messages("ping")[1].1["ping_ms"], 250);
    let latency = call.agent_turns()[0].latency.as_ref().unwrap();
    assert_eq!(latency.network_rtt_ms, 0);
    let parts: u64 = latency.contributions.iter().map(|c| c.duration_ms).sum();
    assert_eq!(parts, latency.response_ms);
}

#[test]
fn a_client_that_stops_sending_after_its_words_is_answered() {
    let mut call = VirtualCall::new(config(agent()), heard(&["Hello?"]), &[(1000, 2000)]);
    call.connect();
    call.run_until(2010);
    call.mute();
    call.run_until(8000);
    assert_eq!(call.agent_turns().len(), 1);
}
