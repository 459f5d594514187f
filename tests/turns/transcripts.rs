//! Transcripts as recognisers send them: without words, with a last word that is empty, and late. Times as in the other
//! rows, but that the model takes half a second.

use std::time::Duration;

use kit::virtual_call::{VirtualCall, config};
use media::speech::script::{Hearing, Script};

use crate::interruptions::long_reply;
use crate::rows::{agent, at, heard};

/// What is no word of anybody's.
const NO_WORDS: [&str; 12] = [
    ".",
    "…",
    "♪♪♪",
    "♪ la la ♪",
    "[BLANK_AUDIO]",
    "[ Silence ].",
    "(coughs)",
    "<noise>",
    "*sighs*",
    "（笑）",
    "[музыка]",
    "【音楽】",
];

/// Results so many ms after the voice, and whether they are final.
fn many(results: &[(u64, &str, bool)]) -> Hearing {
    let result = |(ms, text, is_final): &(u64, &str, bool)| {
        (Duration::from_millis(*ms), (*text).to_owned(), *is_final)
    };
    Hearing::Many(results.iter().map(result).collect())
}

fn call(results: &[(u64, &str, bool)], run: u64) -> VirtualCall {
    let script = Script {
        hearings: [many(results)].into(),
        llm_delay: Duration::from_millis(500),
        ..Script::default()
    };
    VirtualCall::new(config(agent()), script, &[(1000, 2000)]).run(run)
}

#[test]
fn a_transcript_without_words_makes_no_turn() {
    for text in NO_WORDS {
        for results in [
            vec![(50, text, true)],
            vec![(10, text, false), (50, "", true)],
            vec![(10, text, false), (50, text, true)],
        ] {
            let call = call(&results, 8000);
            assert!(call.caller_turns().is_empty(), "{text}: {:#?}", call.story);
            assert!(call.story_of(&["ask model"]).is_empty(), "{text}");
            assert!(call.messages("user_transcript").is_empty(), "{text}");
        }
    }
}

#[test]
fn a_transcript_without_words_does_not_end_a_reply() {
    for text in NO_WORDS {
        let hearings = ["Count.", text].map(|t| Hearing::Words(t.into()));
        let script = Script {
            hearings: hearings.into(),
            ..long_reply()
        };
        let spans = [(1000, 2000), (4000, 4700)];
        let call = VirtualCall::new(config(agent()), script, &spans).run(16_000);
        assert_eq!(call.caller_turns().len(), 1, "{text}");
        let turns = call.agent_turns();
        let rest = format!("speak {:?}", &turns[1].text);
        assert_eq!(at(&call, &rest), 4700 + 1500, "{text}: it goes on");
    }
}

#[test]
fn words_beside_a_noise_are_the_turn() {
    let script = heard(&["[noise] Two rooms (coughs)."]);
    let call = VirtualCall::new(config(agent()), script, &[(1000, 2000)]).run(6000);
    assert_eq!(call.caller_turns()[0].text, "Two rooms.");
    assert_eq!(call.last_request(), ["user: Two rooms."]);
}

#[test]
fn words_that_a_last_result_without_words_follows_are_the_turn() {
    for last in ["", " ", ".", "[BLANK_AUDIO]"] {
        for results in [
            vec![(10, "Two rooms.", false), (50, last, true)],
            vec![(10, "Two rooms.", false), (20, "", false), (50, last, true)],
        ] {
            let call = call(&results, 6000);
            assert_eq!(call.caller_turns()[0].text, "Two rooms.", "{last:?}");
            assert_eq!(call.last_request(), ["user: Two rooms."], "{last:?}");
        }
    }
}

#[test]
fn words_that_turn_out_to_be_a_noise_make_no_turn() {
    for last in ["(coughs)", "[noise]", "♪"] {
        let call = call(&[(10, "Two rooms.", false), (50, last, true)], 6000);
        assert!(call.caller_turns().is_empty(), "{last}: {:#?}", call.story);
        assert!(call.story_of(&["ask model"]).is_empty(), "{last}");
    }
}

#[test]
fn final_words_after_the_turn_s_end_join_it_while_nothing_of_the_answer_was_heard() {
    // The recogniser is asked 200 ms after the voice, and the turn ends after 400.
    let results = [
        (50, "Two rooms.", true),
        (250, "Two rooms, please, for three.", true),
    ];
    let call = call(&results, 8000);
    let turns = call.caller_turns();
    assert_eq!(turns.len(), 1);
    assert_eq!(turns[0].text, "Two rooms, please, for three.");
    assert_eq!(call.last_request(), ["user: Two rooms, please, for three."]);
    assert_eq!(call.agent_turns().len(), 1, "nothing was said twice");
}

#[test]
fn words_that_nobody_waited_for_any_longer_join_the_turn_too() {
    // Without a last word the turn ends with what is there, after five seconds.
    let results = [
        (10, "I would like", false),
        (4_860, "I would like two rooms.", true),
    ];
    let call = call(&results, 12_000);
    let asked = call.story_of(&["ask model"]);
    assert_eq!(asked.len(), 2, "{:#?}", call.story);
    assert_eq!(call.last_request(), ["user: I would like two rooms."]);
    assert_eq!(call.caller_turns()[0].text, "I would like two rooms.");
}

#[test]
fn final_words_that_differ_in_marks_alone_are_not_answered_anew() {
    let results = [(50, "Two rooms.", true), (250, "two rooms", true)];
    let call = call(&results, 8000);
    assert_eq!(call.story_of(&["ask model"]).len(), 1, "{:#?}", call.story);
}

#[test]
fn final_words_after_the_answer_was_heard_change_nothing() {
    let results = [(50, "Two rooms.", true), (900, "Two rooms, please.", true)];
    let call = call(&results, 8000);
    assert_eq!(call.story_of(&["ask model"]).len(), 1, "{:#?}", call.story);
    assert_eq!(call.caller_turns()[0].text, "Two rooms.");
}
