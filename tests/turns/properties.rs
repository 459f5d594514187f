//! Properties over random conversations: thousands of callers who speak, pause, type and press keys at
//! random, with providers of random speed. `SIDETONE_CASES` sets how many (ten thousand in `make soak`).

use std::collections::HashSet;
use std::time::Duration;

use kit::virtual_call::{VirtualCall, config};
use media::call::record::Role;
use media::config::{AgentConfig, CallConfig, Direction, Eagerness};
use media::speech::script::{Hearing, Line, Script};
use proptest::prelude::*;
use serde_json::{Value, json};

/// One random conversation.
#[derive(Clone, Debug)]
struct World {
    outbound: bool,
    greets: bool,
    eagerness: usize,
    barge_in: f64,
    interruptible: bool,
    soft_timeout: bool,
    lead_ms: u32,
    /// Pause before and length of each voice, in frames.
    voices: Vec<(u64, u64)>,
    words: Vec<usize>,
    lines: Vec<usize>,
    stt_ms: u64,
    llm_ms: u64,
    tts_ms: u64,
    /// When the client sends something, and what.
    messages: Vec<(u64, usize)>,
}

const WORDS: [&str; 7] = [
    "Hello?",
    "",
    "mhm",
    "Stop!",
    "I would like to",
    "it is four five",
    "Yes, on Monday please.",
];
const LINES: [&str; 4] = [
    "Yes.",
    "One moment, let me see. There it is.",
    "This is a rather long answer that goes on and on, and it does not end so soon. It has a second part.",
    "",
];

fn world() -> impl Strategy<Value = World> {
    let agent = (
        any::<bool>(),
        any::<bool>(),
        0..3usize,
        prop::sample::select(vec![0.0, 0.2, 0.6, 1.5]),
        any::<bool>(),
    );
    let call = (
        any::<bool>(),
        prop::sample::select(vec![20u32, 100, 200, 400]),
    );
    let talk = (
        prop::collection::vec((0..150u64, 1..120u64), 0..12),
        prop::collection::vec(0..WORDS.len(), 0..12),
        prop::collection::vec(0..LINES.len() + 2, 0..8),
    );
    let speed = (0..1200u64, 0..2500u64, 0..900u64);
    let messages = prop::collection::vec((0..20_000u64, 0..6usize), 0..4);
    (agent, call, talk, speed, messages).prop_map(|(agent, call, talk, speed, mut messages)| {
        messages.sort_unstable();
        World {
            outbound: agent.0,
            greets: agent.1,
            eagerness: agent.2,
            barge_in: agent.3,
            interruptible: agent.4,
            soft_timeout: call.0,
            lead_ms: call.1,
            voices: talk.0,
            words: talk.1,
            lines: talk.2,
            stt_ms: speed.0,
            llm_ms: speed.1,
            tts_ms: speed.2,
            messages,
        }
    })
}

fn play(world: &World, extra_timeouts: bool) -> VirtualCall {
    let agent = AgentConfig {
        first_message: world
            .greets
            .then(|| "Good morning, how can I help?".to_owned()),
        turn_eagerness: [Eagerness::Patient, Eagerness::Normal, Eagerness::Eager][world.eagerness],
        barge_in_min_speech_secs: world.barge_in,
        interruption_enabled: world.interruptible,
        soft_timeout_seconds: world.soft_timeout.then_some(1.0),
        idle_check_in_after_secs: 6.0,
        ..AgentConfig::default()
    };
    let direction = if world.outbound {
        Direction::Outbound
    } else {
        Direction::Inbound
    };
    let config = CallConfig {
        direction,
        lead_ms: world.lead_ms,
        ..config(agent)
    };
    let line = |n: usize| match LINES.get(n) {
        Some(text) => Line::Say((*text).to_owned()),
        None if n == LINES.len() => Line::Fail,
        None => Line::Stall,
    };
    let script = Script {
        hearings: world
            .words
            .iter()
            .map(|&n| Hearing::Words(WORDS[n].to_owned()))
            .collect(),
        lines: world.lines.iter().map(|&n| line(n)).collect(),
        stt_delay: Duration::from_millis(world.stt_ms),
        llm_delay: Duration::from_millis(world.llm_ms),
        tts_delay: Duration::from_millis(world.tts_ms),
        ..Script::default()
    };
    let mut spans = Vec::new();
    let mut at = 0;
    for &(pause, length) in &world.voices {
        let from = at + pause * 20;
        at = from + length * 20;
        spans.push((from, at));
    }
    let mut call = VirtualCall::new(config, script, &spans);
    call.connect();
    for &(at, message) in &world.messages {
        run(&mut call, at, extra_timeouts);
        call.client(&match message {
            0 => json!({"type": "dtmf", "digit": "5"}),
            1 => json!({"type": "dtmf", "digits": "12#"}),
            2 => json!({"type": "user_message", "text": "What about Tuesday?"}),
            3 => json!({"type": "contextual_update", "text": "Background."}),
            4 => json!({"type": "playback", "event_id": 7, "played_ms": 10}),
            _ => json!({"type": "pong", "event_id": 1}),
        });
    }
    run(&mut call, 30_000, extra_timeouts);
    call
}

fn run(call: &mut VirtualCall, until: u64, extra_timeouts: bool) {
    if extra_timeouts {
        for at in (call.ms()..until).step_by(7) {
            call.run_until(at);
            call.early_timeout();
        }
    }
    call.run_until(until);
}

fn number(message: &Value, key: &str) -> u64 {
    message[key]
        .as_u64()
        .unwrap_or_else(|| panic!("{key} in {message}"))
}

fn check(call: &VirtualCall) {
    let mut last_event = 0;
    let mut cut: HashSet<String> = HashSet::new();
    for (_, message) in &call.sent {
        let event_id = number(message, "event_id");
        assert!(event_id > last_event, "event ids increase");
        last_event = event_id;
        let turn = message["turn_id"].as_str().unwrap_or_default().to_owned();
        match message["type"].as_str().unwrap_or_default() {
            "audio" => assert!(
                !cut.contains(&turn),
                "audio of {turn} after its interruption"
            ),
            "interruption" => {
                assert!(number(message, "up_to_event_id") < event_id);
                cut.insert(turn);
            }
            _ => {}
        }
    }
    let length = call.recorded.iter().map(Vec::len).max().unwrap_or(0) as u64 / 16 + 20;
    for role in [Role::User, Role::Assistant] {
        let starts: Vec<u64> = call
            .turns
            .iter()
            .filter(|t| t.role == role)
            .filter_map(|t| t.start_ms)
            .collect();
        assert!(
            starts.is_sorted(),
            "{role:?} turns start in order: {starts:?}"
        );
        assert!(
            starts.iter().all(|&start| start <= length),
            "{starts:?} within {length}"
        );
    }
    for (place, turn) in call.turns.iter().enumerate() {
        assert_eq!(turn.index as usize, place);
        if let Some(heard) = &turn.estimated_text_spoken {
            assert!(turn.text.starts_with(heard), "{heard:?} of {:?}", turn.text);
        }
        assert_eq!(turn.interrupted, turn.interrupted_after_ms.is_some());
        if let (Some(start), Some(end)) = (turn.start_ms, turn.end_ms) {
            assert!(start <= end, "{turn:?}");
            assert!(
                turn.interrupted_after_ms
                    .is_none_or(|after| after <= end - start + 20),
                "{turn:?}"
            );
        }
        if let Some(latency) = &turn.latency {
            let mut reached = 0;
            for part in &latency.contributions {
                assert_eq!(part.start_ms, reached);
                reached += part.duration_ms;
            }
            assert_eq!(reached, latency.response_ms);
        }
    }
    assert!(call.story_of(&[" ended "]).len() <= 1);
    call.check_replay();
}

fn cases(usual: u32) -> ProptestConfig {
    let cases = std::env::var("SIDETONE_CASES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(usual);
    ProptestConfig {
        cases,
        max_shrink_iters: 2000,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn a_random_conversation_keeps_every_promise(world in world()) {
        check(&play(&world, false));
    }
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn early_timeouts_change_nothing(world in world()) {
        let (plain, nudged) = (play(&world, false), play(&world, true));
        prop_assert_eq!(plain.story, nudged.story);
        prop_assert_eq!(plain.sent, nudged.sent);
    }
}

/// A much simpler model: one millisecond after the other, a handful of plain variables, one caller who
/// always says "Hello." and one agent who always answers "Hello there." (720 ms of sound).
fn model(
    voiced: impl Fn(u64) -> bool,
    barge_in_ms: u64,
    interruptible: bool,
    stt_ms: u64,
    until: u64,
) -> Vec<String> {
    #[derive(PartialEq)]
    enum Mode {
        Listening,
        Caller,
        Thinking,
        Agent,
    }
    const READY: u64 = 130; // 80 ms to the first word, 10 to the last, 40 to the sound
    let mut story = Vec::new();
    let mut mode = Mode::Listening;
    let (mut on, mut given, mut last) = (false, false, 0);
    let mut floor = 400_000u64; // microseconds, as the learnt mean has fractions
    let mut finals: Vec<u64> = Vec::new(); // when utterances under way become final
    let (mut heard_final, mut speculations) = (false, 0);
    let mut ready: Option<u64> = None; // when the (speculative) reply can sound
    let mut over = 0;
    let mut sum: Vec<u64> = Vec::new();
    let count = |sum: &mut Vec<u64>, t: u64, window: u64| {
        sum.retain(|&at| t - at < window);
        sum.push(t);
        sum.len() as u64 * 20
    };
    macro_rules! commit {
        ($t:expr) => {
            let t = $t;
            if mode == Mode::Caller && !on && heard_final && t * 1000 >= last * 1000 + floor {
                mode = Mode::Thinking;
                story.push(format!("{t} commit"));
                ready = Some(ready.unwrap_or(t + READY).max(t));
                sum.clear();
                if ready == Some(t) {
                    mode = Mode::Agent;
                    story.push(format!("{t} heard"));
                    over = t + 720;
                }
            }
        };
    }
    for t in 0..=until {
        // The voice answers.
        if mode == Mode::Thinking && ready == Some(t) {
            mode = Mode::Agent;
            story.push(format!("{t} heard"));
            over = t + 720;
            sum.clear();
        }
        // The recogniser answers.
        if finals.contains(&t) {
            finals.retain(|&at| at != t);
            if mode == Mode::Caller && !on && finals.is_empty() {
                heard_final = true;
                if ready.is_none() && speculations < 2 {
                    speculations += 1;
                    ready = Some(t + READY);
                }
            }
            commit!(t);
        }
        if t > 0 && t % 20 == 0 {
            if voiced(t) {
                let (began, pause) = (!on, t - last);
                (on, last) = (true, t);
                given = given && !began;
                match mode {
                    Mode::Listening => {
                        mode = Mode::Caller;
                        (heard_final, speculations, ready) = (false, 0, None);
                        given = true;
                        finals.clear();
                    }
                    Mode::Caller => {
                        if began {
                            if pause * 1000 > floor {
                                floor = (floor * 9 / 10 + pause * 100).min(1_000_000);
                            }
                            heard_final = false;
                            ready = None;
                            given = true;
                        }
                    }
                    Mode::Thinking => {
                        given = true;
                        if count(&mut sum, t, 1000) >= 100 {
                            mode = Mode::Caller;
                            (heard_final, speculations, ready) = (false, 0, None);
                        }
                    }
                    Mode::Agent if interruptible => {
                        given = true;
                        if count(&mut sum, t, 1000.max(barge_in_ms * 3 / 2)) >= barge_in_ms {
                            story.push(format!("{t} interruption"));
                            mode = Mode::Caller;
                            (heard_final, speculations, ready) = (false, 0, None);
                        }
                    }
                    Mode::Agent => {}
                }
            } else if on && t >= last + 200 {
                on = false;
                if given {
                    finals.push(t + stt_ms);
                    if stt_ms == 0 {
                        finals.retain(|&at| at != t);
                        if mode == Mode::Caller && finals.is_empty() {
                            heard_final = true;
                            if ready.is_none() && speculations < 2 {
                                speculations += 1;
                                ready = Some(t + READY);
                            }
                        }
                    }
                }
            }
        }
        // A frame that comes at the end of playout comes before it.
        if mode == Mode::Agent && t == over {
            (mode, given) = if on {
                (Mode::Caller, true)
            } else {
                (Mode::Listening, given)
            };
            (heard_final, speculations, ready) = (false, 0, None);
        }
        commit!(t);
    }
    story
}

/// The same conversation told by the engine.
fn told(call: &VirtualCall) -> Vec<String> {
    let mut story = Vec::new();
    let mut heard = HashSet::new();
    for (at, message) in &call.sent {
        let turn = message["turn_id"].as_str().unwrap_or_default().to_owned();
        match message["type"].as_str().unwrap_or_default() {
            "user_transcript" if message["is_final"] == true => story.push(format!("{at} commit")),
            "audio" if heard.insert(turn) => story.push(format!("{at} heard")),
            "interruption" => story.push(format!("{at} interruption")),
            _ => {}
        }
    }
    story
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn the_simple_model_agrees(
        voices in prop::collection::vec((1..120u64, 1..100u64), 0..14),
        barge_in in prop::sample::select(vec![0u64, 200, 600, 1000]),
        interruptible in any::<bool>(),
        // Never a whole number of frames, so that no two inputs come at the same instant.
        stt_ms in (0..80u64, 1..5u64).prop_map(|(fives, rest)| fives * 5 + rest),
    ) {
        let mut spans = Vec::new();
        let mut at = 0;
        for (pause, length) in voices {
            let from = at + pause * 20;
            at = from + length * 20;
            spans.push((from, at));
        }
        let agent = AgentConfig {
            barge_in_min_speech_secs: barge_in as f64 / 1000.0,
            interruption_enabled: interruptible,
            idle_check_in_after_secs: 600.0,
            ..AgentConfig::default()
        };
        let script = Script { stt_delay: Duration::from_millis(stt_ms), ..Script::default() };
        let mut call = VirtualCall::new(config(agent), script, &spans);
        call.connect();
        call.run_until(30_000);
        let voiced = |t: u64| spans.iter().any(|&(from, to)| t > from && t <= to);
        let expected = model(voiced, barge_in, interruptible, stt_ms, 30_000);
        prop_assert_eq!(told(&call), expected, "voices {:?}", spans);
    }
}
