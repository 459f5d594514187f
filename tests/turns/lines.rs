//! A voice before one of the agent's own lines is heard: words make a turn, a noise makes none and the line is said
//! again. Times as in the other rows.

use std::time::Duration;

use kit::virtual_call::{VirtualCall, config};
use media::call::record::{EndReason, Source};
use media::config::{AgentConfig, CallConfig, Direction};
use media::speech::script::{Hearing, Script};
use serde_json::json;

use crate::interruptions::long_reply;
use crate::rows::{agent, at, greeter, heard};

/// A voice that takes 1.5 s to its first sound.
fn slow(script: Script) -> Script {
    Script {
        tts_delay: Duration::from_millis(1500),
        ..script
    }
}

fn outbound(agent: AgentConfig) -> CallConfig {
    CallConfig {
        direction: Direction::Outbound,
        ..config(agent)
    }
}

fn times(call: &VirtualCall, words: &str) -> Vec<u64> {
    let lines = call.story_of(&[words]);
    let time = |line: &String| line.split(' ').next().unwrap().parse().unwrap();
    lines.iter().map(time).collect()
}

#[test]
fn greeting_that_a_noise_cut_off_is_said_again() {
    let call = VirtualCall::new(config(greeter()), slow(heard(&[""])), &[(400, 700)]).run(8000);
    assert_eq!(times(&call, "speak \"Welcome"), [0, 700 + 200 + 50]);
    assert_eq!(call.agent_turns().len(), 1);
    assert!(call.caller_turns().is_empty() && call.script.requests.is_empty());
}

#[test]
fn words_before_the_greeting_are_a_turn_that_is_answered() {
    let script = slow(heard(&["What time is it?", "Thanks."]));
    let call =
        VirtualCall::new(config(greeter()), script, &[(400, 1400), (9000, 9600)]).run(16_000);
    assert_eq!(times(&call, "speak \"Welcome"), [0]);
    let turn = call.caller_turns()[0];
    assert_eq!(
        (turn.text.as_str(), turn.start_ms),
        ("What time is it?", Some(400))
    );
    let told = call.messages("user_transcript");
    assert!(
        told.iter()
            .any(|(_, m)| m["is_final"] == true && m["text"] == "What time is it?")
    );
    assert_eq!(
        call.last_request(),
        [
            "user: What time is it?",
            "assistant: Hello there.",
            "user: Thanks."
        ]
    );
}

#[test]
fn a_turn_before_the_greeting_counts() {
    let agent = AgentConfig {
        max_turns: Some(1),
        ..greeter()
    };
    let call = VirtualCall::new(config(agent), slow(heard(&[])), &[(400, 1400)]).run(8000);
    assert_eq!(at(&call, "ended max_turns"), 500);
}

#[test]
fn keys_before_the_greeting_belong_to_their_own_turn() {
    let script = slow(heard(&["When?", "Thanks."]));
    let mut call = VirtualCall::new(config(greeter()), script, &[(400, 1000), (9000, 9600)]);
    call.connect();
    call.run_until(800);
    call.client(&json!({"type": "dtmf", "digit": "5"}));
    call.run_until(16_000);
    let turns = call.caller_turns();
    assert_eq!(
        (turns[0].text.as_str(), turns[0].source),
        ("When? 5", Source::Keypad)
    );
    assert_eq!(
        (turns[1].text.as_str(), turns[1].source),
        ("Thanks.", Source::Speech)
    );
}

#[test]
fn check_in_that_a_noise_cut_off_is_said_again() {
    let agent = AgentConfig {
        idle_check_in_after_secs: 5.0,
        ..agent()
    };
    let call = VirtualCall::new(config(agent), slow(heard(&[""])), &[(5400, 5700)]).run(9000);
    assert_eq!(times(&call, "speak \"Are you still"), [5000, 5950]);
    assert!(call.caller_turns().is_empty());
}

#[test]
fn resumption_that_a_noise_cut_off_is_said_again() {
    let script = Script {
        hearings: ["Count.", "", ""].map(|t| Hearing::Words(t.into())).into(),
        ..slow(long_reply())
    };
    let spans = [(1000, 2000), (5000, 5700), (7600, 7900)];
    let call = VirtualCall::new(config(agent()), script, &spans).run(20_000);
    let turns = call.agent_turns();
    let heard = turns[0].estimated_text_spoken.clone().unwrap();
    assert_eq!(format!("{heard} {}", turns[1].text), turns[0].text);
    assert_eq!(
        times(&call, &format!("speak {:?}", turns[1].text)),
        [7200, 8150]
    );
    assert_eq!(call.caller_turns().len(), 1);
}

#[test]
fn question_that_a_noise_cut_off_is_asked_again() {
    let script = Script {
        hearings: [Hearing::Fail, Hearing::Words(String::new())].into(),
        ..slow(Script::default())
    };
    let call = VirtualCall::new(config(agent()), script, &[(1000, 2000), (2600, 2900)]).run(8000);
    assert_eq!(times(&call, "speak \"Sorry, I did not"), [2250, 3150]);
}

#[test]
fn opening_outbound_greets_after_three_seconds_of_silence_after_a_noise() {
    for noise in [Hearing::Words(String::new()), Hearing::Fail] {
        let script = Script {
            hearings: [noise].into(),
            ..Script::default()
        };
        let call = VirtualCall::new(outbound(greeter()), script, &[(1000, 1100)]).run(8000);
        assert_eq!(times(&call, "speak"), [1350 + 3000]);
        assert!(call.caller_turns().is_empty());
    }
}

#[test]
fn opening_outbound_greets_after_the_first_words_however_many_they_are() {
    let script = slow(heard(&["Hello?", "Who is this?"]));
    let spans = [(1000, 1400), (2200, 3000)];
    let call = VirtualCall::new(outbound(greeter()), script, &spans).run(8000);
    assert_eq!(times(&call, "speak"), [1800, 3400]);
    assert_eq!(call.caller_turns()[0].text, "Hello? Who is this?");
    assert!(call.script.requests.is_empty());
}

#[test]
fn opening_outbound_answers_a_text_in_place_of_the_greeting() {
    // Before anybody has spoken, in the first words, and before the greeting after them is heard.
    for (spans, typed) in [
        (&[][..], 1000),
        (&[(700, 1400)], 1500),
        (&[(700, 1400)], 2500),
    ] {
        let script = slow(heard(&["Hello?"]));
        let mut call = VirtualCall::new(outbound(greeter()), script, spans);
        call.connect();
        call.run_until(typed);
        assert_eq!(call.story_of(&["speak"]).len(), usize::from(typed == 2500));
        call.client(&json!({"type": "user_message", "text": "What about Monday?"}));
        call.run_until(9000);
        // The first words are final after the text, and join it while nothing of the answer is heard.
        let asked = 1 + usize::from(typed == 1500);
        assert_eq!(call.script.requests.len(), asked, "{:#?}", call.story);
        assert!(
            call.last_request()
                .last()
                .unwrap()
                .contains("What about Monday?")
        );
        let said: Vec<&str> = call
            .agent_turns()
            .iter()
            .map(|turn| turn.text.as_str())
            .collect();
        assert!(
            said.len() == 1 && said[0] != "Welcome to the clinic.",
            "{said:?}"
        );
    }
}

#[test]
fn max_turns_does_not_count_noises() {
    let agent = AgentConfig {
        max_turns: Some(2),
        ..agent()
    };
    let script = heard(&["", "Hello?", "And now?"]);
    let spans = [(1000, 1100), (3000, 4000), (8000, 9000)];
    let call = VirtualCall::new(config(agent), script, &spans).run(12_000);
    assert_eq!(at(&call, "ended max_turns"), 8020);
    assert_eq!(call.caller_turns().len(), 1);
}

#[test]
fn max_turns_does_not_count_a_noise_over_the_agent() {
    let agent = AgentConfig {
        max_turns: Some(3),
        ..agent()
    };
    let script = Script {
        hearings: ["Count.", "", "Enough of that."]
            .map(|t| Hearing::Words(t.into()))
            .into(),
        ..long_reply()
    };
    let spans = [(1000, 2000), (4000, 4700), (7200, 8400)];
    let call = VirtualCall::new(config(agent), script, &spans).run(20_000);
    assert_eq!(call.ended.map(|summary| summary.reason), None::<EndReason>);
}

#[test]
fn silence_counts_from_a_voice_over_the_agent_too() {
    let agent = AgentConfig {
        idle_check_in_after_secs: 15.0,
        silence_timeout_seconds: Some(20),
        ..agent()
    };
    // The agent asks from 15 040 to 16 240 whether the caller is there, and again 15 s later.
    let call = VirtualCall::new(config(agent), heard(&["Mhm."]), &[(15_400, 15_600)]).run(39_000);
    assert!(call.caller_turns().is_empty());
    let ended = at(&call, "ended silence_timeout");
    assert!((37_400..37_600).contains(&ended), "{ended}");
}
