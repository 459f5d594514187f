//! What a client may send, and what becomes of more.

use kit::virtual_call::{VirtualCall, config};
use media::speech::script::Script;
use serde_json::json;

use crate::rows::{agent, at};

fn errors(call: &VirtualCall, code: &str) -> usize {
    let errors = call.messages("error");
    errors.iter().filter(|(_, m)| m["code"] == code).count()
}

#[test]
fn typed_turns_over_four_a_second_are_refused() {
    let mut call = VirtualCall::new(config(agent()), Script::default(), &[]);
    call.connect();
    call.run_until(1000);
    for n in 0..20 {
        call.client(&json!({"type": "user_message", "text": format!("Number {n}.")}));
    }
    assert_eq!(call.script.requests.len(), 8);
    assert_eq!(errors(&call, "rate_limited"), 12);
    assert_eq!(call.messages("error")[0].1["retry_after"], 1);
    call.run_until(2000);
    for n in 20..40 {
        call.client(&json!({"type": "user_message", "text": format!("Number {n}.")}));
    }
    assert_eq!(call.script.requests.len(), 12);
    call.run_until(8000);
    call.check_replay();
    assert_eq!(call.caller_turns().len(), 12);
    assert_eq!(call.caller_turns()[8].text, "Number 20.");
}

#[test]
fn keypad_entries_that_end_faster_than_that_are_one() {
    let mut call = VirtualCall::new(config(agent()), Script::default(), &[]);
    call.connect();
    call.run_until(1000);
    call.client(&json!({"type": "dtmf", "digits": "#".repeat(20)}));
    assert_eq!(call.script.requests.len(), 8);
    call.run_until(8000);
    call.check_replay();
    assert_eq!(call.script.requests.len(), 9);
    assert_eq!(call.caller_turns()[8].text, "#".repeat(12));
    assert_eq!(errors(&call, "rate_limited"), 0);
}

#[test]
fn background_over_64_kib_drops_the_oldest_and_says_so() {
    let mut call = VirtualCall::new(config(agent()), Script::default(), &[]);
    call.connect();
    for n in 0..20 {
        call.run_until(1000 + n * 250);
        call.client(&json!({"type": "contextual_update", "text": format!("{n:04000}")}));
    }
    assert_eq!(errors(&call, "context_full"), 4);
    call.client(&json!({"type": "user_message", "text": "Well?"}));
    call.run_until(9000);
    call.check_replay();
    let request = call.last_request();
    assert_eq!(request.len(), 17);
    assert_eq!(request[0], format!("system: {:04000}", 4));
    assert_eq!(request[15], format!("system: {:04000}", 19));
}

/// A client sends `percent` of real time in silence, every 100 ms for so many seconds.
fn paced(percent: usize, seconds: u64) -> VirtualCall {
    let piece = base64_simd::STANDARD.encode_to_string(vec![0; 32 * percent]);
    let piece = json!({"type": "audio", "audio": piece});
    let mut call = VirtualCall::new(config(agent()), Script::default(), &[]);
    call.connect();
    call.mute();
    for tenth in 1..=10 * seconds {
        call.run_until(100 * tenth);
        call.client(&piece);
    }
    call.check_replay();
    call
}

#[test]
fn audio_over_half_as_fast_again_as_real_time_is_closed_and_slower_is_not() {
    let too_fast = paced(160, 12);
    assert_eq!(too_fast.closed, Some(1008), "{:?}", too_fast.story);
    assert_eq!(errors(&too_fast, "audio_too_fast"), 1);
    // 2.5 s ahead after 4 s, and then 5 s more.
    let over = at(&too_fast, "ended");
    assert!((9000..10_500).contains(&over), "after {over} ms");

    for percent in [100, 140] {
        let taken = paced(percent, 30);
        assert_eq!(taken.closed, None, "{percent} %: {:?}", taken.story);
        let told = errors(&taken, "audio_too_fast");
        assert_eq!(told > 0, percent > 100, "{percent} %: told {told} times");
    }
}
