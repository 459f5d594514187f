//! A recogniser that fails or takes too long. Times as in the other rows.

use std::time::Duration;

use kit::virtual_call::{VirtualCall, config};
use media::speech::script::{Hearing, Script};

use crate::rows::{agent, at};

fn words(text: &str) -> Hearing {
    Hearing::Words(text.into())
}

fn two(first: Hearing, second: Hearing, stt_ms: u64) -> VirtualCall {
    let script = Script {
        hearings: [first, second].into(),
        stt_delay: Duration::from_millis(stt_ms),
        ..Script::default()
    };
    VirtualCall::new(config(agent()), script, &[(1000, 2000), (2600, 3400)]).run(14_000)
}

#[test]
fn a_piece_that_was_not_heard_leaves_the_voice_that_is_on_its_turn() {
    let call = two(Hearing::Fail, words("An appointment please."), 600);
    assert!(call.story_of(&["Sorry"]).is_empty(), "{:#?}", call.story);
    assert_eq!(call.caller_turns()[0].text, "An appointment please.");
    assert_eq!(call.caller_turns()[0].start_ms, Some(1000));
}

#[test]
fn a_piece_that_was_not_heard_leaves_the_words_that_are_awaited_their_turn() {
    // The first fails 100 ms after the second voice has stopped.
    let call = two(Hearing::Fail, words("An appointment please."), 1500);
    assert!(call.story_of(&["Sorry"]).is_empty(), "{:#?}", call.story);
    assert_eq!(call.caller_turns()[0].text, "An appointment please.");
}

#[test]
fn a_turn_of_which_no_piece_was_heard_is_asked_for_again_once() {
    let call = two(Hearing::Fail, words(""), 600);
    assert_eq!(
        call.story_of(&["speak \"Sorry"]).len(),
        1,
        "{:#?}",
        call.story
    );
    assert_eq!(at(&call, "speak \"Sorry"), 3400 + 200 + 600);
}

#[test]
fn words_whose_last_piece_never_comes_are_the_turn() {
    let call = two(words("I would like"), Hearing::Stall, 50);
    assert!(call.story_of(&["Sorry"]).is_empty(), "{:#?}", call.story);
    assert_eq!(at(&call, "ask model"), 3400 + 5000);
    assert_eq!(call.last_request(), ["user: I would like"]);
}
