//! What a client may send, and what becomes of more.

use kit::virtual_call::{VirtualCall, config};
use media::speech::script::Script;
use serde_json::json;

use crate::rows::agent;

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
    let request = call.last_request();
    assert_eq!(request.len(), 17);
    assert_eq!(request[0], format!("system: {:04000}", 4));
    assert_eq!(request[15], format!("system: {:04000}", 19));
}
