//! How soon the agent takes the turn: each number of each eagerness, ms. Without a model of the end of a turn its words
//! tell. Times as in the other rows.

use std::time::Duration;

use kit::virtual_call::{VirtualCall, config};
use media::config::{AgentConfig, Eagerness};
use media::speech::script::{Hearing, Script};

use crate::interruptions::long_reply;
use crate::rows::{agent, at, heard};

/// What holds for one eagerness. All count from the last voiced sample.
struct Row {
    eagerness: Eagerness,
    /// The voice has stopped.
    stop: u64,
    /// The turn is over when its words end a sentence, leave something open, or are digits.
    ends: [u64; 3],
    /// The most that a caller who pauses teaches.
    cap: u64,
    /// The rest of a reply is said that a noise interrupted.
    resume: u64,
    /// A turn of which no words come is asked for again.
    transcript: u64,
    /// Replies that are begun before the turn is over.
    speculations: usize,
}

const TABLE: [Row; 3] = [
    Row {
        eagerness: Eagerness::Patient,
        stop: 300,
        ends: [900, 2000, 1800],
        cap: 1500,
        resume: 2500,
        transcript: 6000,
        speculations: 1,
    },
    Row {
        eagerness: Eagerness::Normal,
        stop: 200,
        ends: [400, 1200, 1000],
        cap: 1000,
        resume: 1500,
        transcript: 5000,
        speculations: 2,
    },
    Row {
        eagerness: Eagerness::Eager,
        stop: 160,
        ends: [200, 700, 700],
        cap: 500,
        resume: 1000,
        transcript: 4000,
        speculations: 4,
    },
];

impl Row {
    fn agent(&self) -> AgentConfig {
        AgentConfig {
            turn_eagerness: self.eagerness,
            ..agent()
        }
    }

    /// A call whose recogniser answers at once.
    fn call(&self, script: Script, spans: &[(u64, u64)]) -> VirtualCall {
        let script = Script {
            stt_delay: Duration::ZERO,
            ..script
        };
        VirtualCall::new(config(self.agent()), script, spans).run(39_000)
    }
}

/// When the first turn of the caller was over.
fn over(call: &VirtualCall) -> u64 {
    let told = call.messages("user_transcript");
    told.iter().find(|(_, m)| m["is_final"] == true).unwrap().0
}

/// So many voices of 200 ms with these pauses between them, and when the last one ends.
fn pieces(count: u64, pause: u64) -> (Vec<(u64, u64)>, u64) {
    let from = |n| 1000 + n * (200 + pause);
    let spans: Vec<_> = (0..count).map(|n| (from(n), from(n) + 200)).collect();
    let end = spans[spans.len() - 1].1;
    (spans, end)
}

#[test]
fn every_eagerness_keeps_its_delays() {
    let texts = ["Is it open?", "I would like to", "it is four five"];
    for row in &TABLE {
        for (text, delay) in texts.iter().zip(row.ends) {
            let call = row.call(heard(&[text]), &[(1000, 2000)]);
            let eagerness = row.eagerness;
            assert_eq!(at(&call, "voice stopped"), 2000 + row.stop, "{eagerness:?}");
            assert_eq!(over(&call), 2000 + delay, "{eagerness:?}: {text}");
        }
    }
}

#[test]
fn every_eagerness_asks_again_after_its_wait_for_words() {
    for row in &TABLE {
        let script = Script {
            hearings: [Hearing::Stall].into(),
            ..Script::default()
        };
        let call = row.call(script, &[(1000, 2000)]);
        let asked = at(&call, "speak \"Sorry, I did not catch that.");
        assert_eq!(asked, 2000 + row.transcript, "{:?}", row.eagerness);
    }
}

#[test]
fn every_eagerness_resumes_after_its_wait() {
    for row in &TABLE {
        let script = Script {
            hearings: ["Count.", ""].map(|t| Hearing::Words(t.into())).into(),
            ..long_reply()
        };
        let call = row.call(script, &[(1000, 2000), (4000, 4700)]);
        let rest = format!("speak {:?}", call.agent_turns()[1].text);
        assert_eq!(at(&call, &rest), 4700 + row.resume, "{:?}", row.eagerness);
    }
}

#[test]
fn every_eagerness_learns_from_pauses_up_to_its_cap() {
    for row in &TABLE {
        // Just short of what ends a turn whose words leave something open.
        let (spans, end) = pieces(16, row.ends[1] - 40);
        let mut texts = vec!["I would like to"; 15];
        texts.push("see a doctor.");
        let call = row.call(heard(&texts), &spans);
        assert_eq!(call.caller_turns().len(), 1, "{:?}", row.eagerness);
        assert_eq!(over(&call), end + row.cap, "{:?}", row.eagerness);
    }
}

#[test]
fn keys_teach_nothing() {
    for row in &TABLE {
        let script = Script {
            stt_delay: Duration::ZERO,
            ..heard(&["Yes.", "Is it open?"])
        };
        let spans = [(20_000, 20_600), (30_000, 30_600)];
        let mut call = VirtualCall::new(config(row.agent()), script, &spans);
        call.connect();
        call.run_until(19_000);
        call.client(&serde_json::json!({"type": "dtmf", "digit": "5"}));
        call.run_until(39_000);
        let told = call.messages("user_transcript");
        let over = told.iter().rfind(|(_, m)| m["is_final"] == true).unwrap().0;
        assert_eq!(over, 30_600 + row.ends[0], "{:?}", row.eagerness);
    }
}

#[test]
fn every_eagerness_begins_so_many_replies_before_the_turn_is_over() {
    for row in &TABLE {
        // Each pause is long enough to stop the voice, and none to end the turn.
        let (spans, _) = pieces(7, row.stop);
        let call = row.call(heard(&["Is it open?"; 7]), &spans);
        assert_eq!(call.caller_turns().len(), 1, "{:?}", row.eagerness);
        // And the one that is heard.
        let asked = call.script.requests.len();
        assert_eq!(asked, row.speculations + 1, "{:?}", row.eagerness);
    }
}
