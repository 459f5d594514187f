//! A voice over the agent's: the rows of the turn table that begin in `Agent`. Times as in the other rows.

use kit::virtual_call::{VirtualCall, config};
use media::config::AgentConfig;
use media::speech::script::{Answer, Hearing, Script};
use serde_json::json;

use crate::rows::{agent, at, greeter, heard};

pub(super) fn long_reply() -> Script {
    let text = "One two three four five six seven eight nine ten eleven twelve thirteen fourteen.";
    Script {
        always_said: Answer::Say(text.into()),
        ..heard(&["Count.", "Enough of that."])
    }
}

#[test]
fn agent_is_interrupted_at_the_configured_amount_of_speech() {
    for (secs, amount) in [(0.0, 20), (0.3, 300), (0.6, 600), (1.0, 1000)] {
        let agent = AgentConfig {
            barge_in_min_speech_secs: secs,
            ..agent()
        };
        let call = VirtualCall::new(config(agent), long_reply(), &[(1000, 2000), (4000, 5400)])
            .run(12_000);
        assert_eq!(at(&call, "interruption"), 4000 + amount, "{secs}");
        let turn = call.agent_turns()[0];
        let spoken = 4000 + amount - turn.start_ms.unwrap();
        assert_eq!(turn.interrupted_after_ms, Some(spoken));
        let heard = turn.estimated_text_spoken.clone().unwrap();
        assert!(turn.text.starts_with(&heard) && !heard.is_empty());
        assert_eq!(call.last_request()[1], format!("assistant: {heard}"));
        assert_eq!(call.caller_turns()[1].start_ms, Some(4000));
        assert_eq!(call.caller_turns()[1].text, "Enough of that.");
    }
}

#[test]
fn agent_is_cut_where_the_client_says_that_it_has_played() {
    let call_of = |plays: bool| {
        let mut call =
            VirtualCall::new(config(agent()), long_reply(), &[(1000, 2000), (4000, 5400)]);
        call.connect();
        // The client stalls after a second of the reply, and says so.
        call.run_until(3400);
        let audio = call.messages("audio");
        let stuck = audio[50].1["event_id"].clone();
        for ms in (3410..4600).step_by(20) {
            call.run_until(ms);
            if !plays {
                call.client(&json!({"type": "playback", "event_id": stuck, "played_ms": 0}));
            }
        }
        call.run_until(12_000);
        assert_eq!(at(&call, "interruption"), 4600);
        call
    };
    for (plays, heard) in [
        (true, "One two three four five six seven"),
        (false, "One two three"),
    ] {
        let call = call_of(plays);
        let turn = call.agent_turns()[0];
        let spoken = turn.interrupted_after_ms.unwrap();
        let all = 4600 - turn.start_ms.unwrap();
        let after = if plays { all..=all } else { 1000..=1040 };
        assert!(after.contains(&spoken), "{spoken} ms");
        assert_eq!(turn.estimated_text_spoken.as_deref(), Some(heard));
        let told = &call.messages("interruption")[0].1;
        assert_eq!(told["spoken_ms"], spoken);
        assert_eq!(told["estimated_text_spoken"], heard);
        let said = format!("assistant: {heard}");
        let asked = ["user: Count.", said.as_str(), "user: Enough of that."];
        assert_eq!(call.last_request(), asked);
        // And no more of the turn stands in the recording.
        let start = turn.start_ms.unwrap() as usize * 16;
        let next = call.agent_turns()[1].start_ms.unwrap() as usize * 16;
        let last = call.recorded[1][start..next].iter().rposition(|s| *s != 0);
        let length = last.unwrap() as u64 / 16;
        assert!(length.abs_diff(spoken) <= 1, "{length} of {spoken} ms");
    }
}

#[test]
fn agent_is_not_interrupted_when_that_is_disabled() {
    let agent = AgentConfig {
        interruption_enabled: false,
        barge_in_min_speech_secs: 0.0,
        ..agent()
    };
    let call =
        VirtualCall::new(config(agent), long_reply(), &[(1000, 2000), (4000, 5000)]).run(12_000);
    assert!(call.messages("interruption").is_empty());
    assert!(!call.agent_turns()[0].interrupted);
    assert_eq!(call.caller_turns().len(), 1);
}

#[test]
fn agent_hears_an_acknowledgement_and_goes_on() {
    let script = Script {
        hearings: ["Count.", "Mhm."].map(|t| Hearing::Words(t.into())).into(),
        ..long_reply()
    };
    let call = VirtualCall::new(config(agent()), script, &[(1000, 2000), (4000, 4400)]).run(12_000);
    assert!(call.messages("interruption").is_empty());
    assert_eq!(call.caller_turns().len(), 1);
}

#[test]
fn agent_stops_at_once_at_a_stop_word() {
    let script = Script {
        hearings: ["Count.", "Stop!"].map(|t| Hearing::Words(t.into())).into(),
        ..long_reply()
    };
    let call = VirtualCall::new(config(agent()), script, &[(1000, 2000), (4000, 4300)]).run(12_000);
    assert_eq!(at(&call, "interruption"), 4300 + 200 + 50);
    assert_eq!(call.caller_turns()[1].text, "Stop!");
    assert_eq!(call.caller_turns()[1].start_ms, Some(4000));
}

fn over_the_agent(pieces: &[&str], spans: &[(u64, u64)]) -> VirtualCall {
    let hearings = ["Count."].iter().chain(pieces);
    let script = Script {
        hearings: hearings.map(|t| Hearing::Words((*t).into())).collect(),
        ..long_reply()
    };
    let spans = [&[(1000, 2000)], spans].concat();
    VirtualCall::new(config(agent()), script, &spans).run(14_000)
}

#[test]
fn agent_interrupted_in_pieces_hears_them_all_as_one_turn() {
    let call = over_the_agent(&["Enough", "of that."], &[(4000, 4300), (4600, 5400)]);
    assert_eq!(at(&call, "interruption"), 4900);
    let turn = call.caller_turns()[1];
    assert_eq!(turn.text, "Enough of that.");
    assert_eq!((turn.start_ms, turn.end_ms), (Some(4000), Some(5400)));
}

#[test]
fn agent_interrupted_after_an_acknowledgement_or_a_noise_does_not_hear_it_again() {
    for before in ["Mhm.", ""] {
        let call = over_the_agent(&[before, "Enough of that."], &[(4000, 4300), (4600, 5400)]);
        let turn = call.caller_turns()[1];
        assert_eq!(
            (turn.text.as_str(), turn.start_ms),
            ("Enough of that.", Some(4600))
        );
    }
}

#[test]
fn agent_interrupted_a_second_after_other_words_does_not_hear_them_again() {
    let call = over_the_agent(&["Well", "Enough of that."], &[(3600, 3800), (4800, 5600)]);
    let turn = call.caller_turns()[1];
    assert_eq!(
        (turn.text.as_str(), turn.start_ms),
        ("Enough of that.", Some(4800))
    );
}

#[test]
fn agent_that_ends_between_two_pieces_hears_both() {
    let greeting = VirtualCall::new(config(greeter()), Script::default(), &[]).run(5000);
    let end = greeting.agent_turns()[0].end_ms.unwrap();
    let from = end / 20 * 20;
    let spans = [(from - 300, from - 60), (from + 300, from + 900)];
    let call =
        VirtualCall::new(config(greeter()), heard(&["When do you", "close?"]), &spans).run(8000);
    let turn = call.caller_turns()[0];
    assert_eq!(
        (turn.text.as_str(), turn.start_ms),
        ("When do you close?", Some(from - 300))
    );
    assert!(call.messages("interruption").is_empty());
}

#[test]
fn agent_stops_at_a_stop_word_right_after_an_acknowledgement() {
    let call = over_the_agent(&["Mhm.", "Stop!"], &[(4000, 4200), (4500, 4700)]);
    assert_eq!(at(&call, "interruption"), 4700 + 200 + 50);
    assert_eq!(call.caller_turns()[1].text, "Stop!");
}

#[test]
fn agent_stops_at_a_stop_word_that_is_heard_while_the_caller_goes_on() {
    let script = Script {
        hearings: ["Count.", "Stop!", "Enough of that."]
            .map(|t| Hearing::Words(t.into()))
            .into(),
        stt_delay: std::time::Duration::from_millis(400),
        ..long_reply()
    };
    let spans = [(1000, 2000), (4000, 4200), (4600, 4900)];
    let call = VirtualCall::new(config(agent()), script, &spans).run(14_000);
    assert_eq!(at(&call, "interruption"), 4200 + 200 + 400);
    let turn = call.caller_turns()[1];
    assert_eq!(
        (turn.text.as_str(), turn.start_ms),
        ("Stop! Enough of that.", Some(4000))
    );
}

#[test]
fn agent_interrupted_by_noise_resumes_with_the_unheard_text() {
    let script = Script {
        hearings: ["Count.", ""].map(|t| Hearing::Words(t.into())).into(),
        ..long_reply()
    };
    let call = VirtualCall::new(config(agent()), script, &[(1000, 2000), (4000, 4700)]).run(16_000);
    let turns = call.agent_turns();
    let heard = turns[0].estimated_text_spoken.clone().unwrap();
    assert_eq!(
        at(&call, &format!("speak {:?}", &turns[1].text)),
        4700 + 1500
    );
    assert_eq!(format!("{heard} {}", turns[1].text), turns[0].text);
    assert_eq!(call.caller_turns().len(), 1);
}

#[test]
fn agent_voice_that_goes_on_as_playout_ends_opens_the_turn() {
    let agent = AgentConfig {
        interruption_enabled: false,
        ..agent()
    };
    // "Hello there." sounds from 2400 to about 3120.
    let script = heard(&["Hello?", "And more."]);
    let call = VirtualCall::new(config(agent), script, &[(1000, 2000), (2800, 4000)]).run(12_000);
    assert_eq!(call.caller_turns().len(), 2);
    assert_eq!(call.caller_turns()[1].text, "And more.");
}
