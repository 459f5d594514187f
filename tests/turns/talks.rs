//! Conversations of one caller and one agent, which the engine and a much simpler model of it have to tell alike.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use kit::virtual_call::{VirtualCall, config};
use media::config::{AgentConfig, Eagerness};
use media::speech::script::{Answer, Hearing, Script};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::model;
use crate::properties::{LENGTH, cases, spans_of};

/// What is said when the answer takes long.
pub(super) const FILLER: &str = "Let me look.";

/// How one call goes.
#[derive(Clone, Debug)]
pub(super) struct Talk {
    /// Pause before and length of each voice, frames.
    pub(super) voices: Vec<(u64, u64)>,
    /// What the client sends, and when, ms.
    pub(super) messages: Vec<(u64, Sent)>,
    pub(super) greets: bool,
    pub(super) eagerness: usize,
    pub(super) barge_in_ms: u64,
    pub(super) interruptible: bool,
    pub(super) stt_ms: u64,
    pub(super) llm_ms: u64,
    pub(super) soft_ms: Option<u64>,
    pub(super) idle_ms: u64,
    pub(super) most_check_ins: u32,
    pub(super) silence_seconds: Option<u32>,
    pub(super) max_turns: Option<u32>,
    pub(super) max_seconds: u32,
    pub(super) fault: Fault,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Sent {
    Typed,
    Key,
    /// Two keys, of which the second ends the entry.
    LastKey,
}

/// What goes wrong at the providers, all through the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Nothing,
    EarFails,
    EarStalls,
    ModelFails,
    ModelStalls,
    VoiceFails,
}

fn talk() -> impl Strategy<Value = Talk> {
    let caller = (
        prop::collection::vec((1..120u64, 1..100u64), 0..14),
        // Between frames, so that no two inputs come at the same instant; as the two delays, added up or not.
        prop::collection::vec(
            (
                (0..1500u64).prop_map(|n| n * 20 + 7),
                prop::sample::select(vec![Sent::Typed, Sent::Key, Sent::LastKey]),
            ),
            0..3,
        ),
    );
    let agent = (
        any::<bool>(),
        0..3usize,
        prop::sample::select(vec![0u64, 200, 600, 1000]),
        any::<bool>(),
        prop::sample::select(vec![None, Some(500), Some(1000)]),
    );
    let limits = (
        prop::sample::select(vec![4000u64, 6000, 600_000]),
        0..3u32,
        prop::sample::select(vec![None, None, Some(5u32), Some(9)]),
        prop::sample::select(vec![None, None, Some(2u32), Some(4)]),
        prop::sample::select(vec![1800u32, 1800, 12, 21]),
    );
    let providers = (
        (0..80u64, 1..3u64).prop_map(|(fives, rest)| fives * 5 + rest),
        prop::sample::select(vec![81u64, 81, 81, 501, 806, 1501, 2706]),
        prop::sample::select(vec![
            Fault::Nothing,
            Fault::Nothing,
            Fault::Nothing,
            Fault::EarFails,
            Fault::EarStalls,
            Fault::ModelFails,
            Fault::ModelStalls,
            Fault::VoiceFails,
        ]),
    );
    (caller, agent, limits, providers).prop_map(|(mut caller, agent, limits, providers)| {
        caller.1.sort_unstable_by_key(|&(at, _)| at);
        Talk {
            voices: caller.0,
            messages: caller.1,
            greets: agent.0,
            eagerness: agent.1,
            barge_in_ms: agent.2,
            interruptible: agent.3,
            soft_ms: agent.4,
            idle_ms: limits.0,
            most_check_ins: limits.1,
            silence_seconds: limits.2,
            max_turns: limits.3,
            max_seconds: limits.4,
            stt_ms: providers.0,
            llm_ms: providers.1,
            fault: providers.2,
        }
    })
}

/// The same conversation by the engine.
fn play(talk: &Talk) -> VirtualCall {
    let agent = AgentConfig {
        first_message: talk.greets.then(|| "Welcome.".to_owned()),
        turn_eagerness: [Eagerness::Patient, Eagerness::Normal, Eagerness::Eager][talk.eagerness],
        barge_in_min_speech_secs: talk.barge_in_ms as f64 / 1000.0,
        interruption_enabled: talk.interruptible,
        soft_timeout_seconds: talk.soft_ms.map(|ms| ms as f64 / 1000.0),
        soft_timeout_message: FILLER.to_owned(),
        idle_check_in_after_secs: talk.idle_ms as f64 / 1000.0,
        max_idle_attempts: talk.most_check_ins,
        silence_timeout_seconds: talk.silence_seconds,
        max_turns: talk.max_turns,
        max_duration_seconds: talk.max_seconds,
        ..AgentConfig::default()
    };
    let usual = Script::default();
    let script = Script {
        stt_delay: Duration::from_millis(talk.stt_ms),
        llm_delay: Duration::from_millis(talk.llm_ms),
        always_heard: match talk.fault {
            Fault::EarFails => Hearing::Fail,
            Fault::EarStalls => Hearing::Stall,
            _ => usual.always_heard,
        },
        always_said: match talk.fault {
            Fault::ModelFails => Answer::Fail,
            Fault::ModelStalls => Answer::Stall,
            _ => usual.always_said,
        },
        broken_segments: match talk.fault {
            Fault::VoiceFails => BTreeSet::from(["Hello there.".to_owned()]),
            _ => BTreeSet::new(),
        },
        ..Script::default()
    };
    let mut call = VirtualCall::new(config(agent), script, &spans_of(&talk.voices));
    call.connect();
    for &(at, sent) in &talk.messages {
        call.run_until(at);
        call.client(&match sent {
            Sent::Typed => json!({"type": "user_message", "text": "And now?"}),
            Sent::Key => json!({"type": "dtmf", "digit": "5"}),
            Sent::LastKey => json!({"type": "dtmf", "digits": "5#"}),
        });
    }
    call.run_until(LENGTH);
    call
}

/// What it told: as the model tells it.
fn told(call: &VirtualCall) -> Vec<String> {
    let mut story = Vec::new();
    let (mut texts, mut heard) = (HashMap::new(), HashSet::new());
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for (at, message) in &call.sent {
        let turn = word(&message["turn_id"]);
        match message["type"].as_str().unwrap_or_default() {
            "user_transcript" if message["is_final"] == true => story.push(format!("{at} commit")),
            "agent_response" => {
                texts.insert(turn, word(&message["text"]));
            }
            "audio" if heard.insert(turn.clone()) => {
                let text = texts.get(&turn).map_or("filler", String::as_str);
                story.push(format!("{at} heard {text}"));
            }
            "interruption" => story.push(format!("{at} interruption")),
            "call_ended" => story.push(format!("{at} ended {}", word(&message["reason"]))),
            _ => {}
        }
    }
    story
}

/// The story without the sound that begins or is cut at the very instant at which the call has lasted as long as it may:
/// that goes by which of the instant's inputs came first, of which the model knows nothing.
fn settled(story: Vec<String>, talk: &Talk) -> Vec<String> {
    let last = format!("{} ", u64::from(talk.max_seconds) * 1000);
    let tie = |line: &String| {
        let what = line.strip_prefix(&last);
        what.is_some_and(|what| what == "interruption" || what.starts_with("heard "))
    };
    story.into_iter().filter(|line| !tie(line)).collect()
}

/// What a story tells before a time, ms.
fn before(time: u64, mut story: Vec<String>) -> Vec<String> {
    story.retain(|line| {
        let at = line.split(' ').next().and_then(|at| at.parse::<u64>().ok());
        at.is_some_and(|at| at < time)
    });
    story
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn the_simple_model_agrees(talk in talk()) {
        let call = play(&talk);
        let (modelled, known_until) = model::story(&talk, LENGTH);
        let known = |story| before(known_until, settled(story, &talk));
        prop_assert_eq!(known(told(&call)), known(modelled), "{:#?}", call.story);
    }
}
