//! Properties over random conversations: thousands of callers who speak, pause, type and press keys at
//! random, by either protocol, with providers and tools of random speed. `SIDETONE_CASES` sets how many (ten thousand in
//! `make soak`).

use std::collections::HashSet;
use std::time::Duration;

use kit::virtual_call::{VirtualCall, config};
use media::call::record::{EndReason, Role};
use media::config::{
    AgentConfig, AudioFormat, CallConfig, Direction, Eagerness, Protocol, ToolKind, ToolSpec,
};
use media::speech::ToolCall;
use media::speech::script::{Answer, Hearing, Script};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::rows::tool;

/// How long each call may go on, ms.
pub(super) const LENGTH: u64 = 30_000;

/// One random conversation.
#[derive(Clone, Debug)]
struct World {
    telco: bool,
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
    /// How long a tool takes, if it answers, and whether a line is said meanwhile.
    tool_ms: Option<u64>,
    tool_filler: bool,
    most_check_ins: u32,
    silence_seconds: Option<u32>,
    max_turns: Option<u32>,
    max_seconds: u32,
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
        any::<bool>(),
    );
    let talk = (
        prop::collection::vec((0..150u64, 1..120u64), 0..12),
        prop::collection::vec(0..WORDS.len(), 0..12),
        prop::collection::vec(0..LINES.len() + 4, 0..8),
    );
    let speed = (0..1200u64, 0..2500u64, 0..900u64);
    let messages = prop::collection::vec((0..20_000u64, 0..6usize), 0..4);
    let tools = (
        prop::sample::select(vec![None, Some(0u64), Some(700), Some(2990), Some(4000)]),
        any::<bool>(),
    );
    let limits = (
        0..3u32,
        prop::sample::select(vec![None, Some(5u32), Some(9)]),
        prop::sample::select(vec![None, Some(2u32), Some(4)]),
        prop::sample::select(vec![1800u32, 12]),
    );
    let world = (agent, call, talk, speed, messages, tools, limits);
    world.prop_map(|(agent, call, talk, speed, mut messages, tools, limits)| {
        messages.sort_unstable();
        World {
            outbound: agent.0,
            greets: agent.1,
            eagerness: agent.2,
            barge_in: agent.3,
            interruptible: agent.4,
            soft_timeout: call.0,
            lead_ms: call.1,
            telco: call.2,
            voices: talk.0,
            words: talk.1,
            lines: talk.2,
            stt_ms: speed.0,
            llm_ms: speed.1,
            tts_ms: speed.2,
            messages,
            tool_ms: tools.0,
            tool_filler: tools.1,
            most_check_ins: limits.0,
            silence_seconds: limits.1,
            max_turns: limits.2,
            max_seconds: limits.3,
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
        max_idle_attempts: world.most_check_ins,
        silence_timeout_seconds: world.silence_seconds,
        max_turns: world.max_turns,
        max_duration_seconds: world.max_seconds,
        tools: vec![ToolSpec {
            filler_message: world.tool_filler.then(|| "I am booking.".to_owned()),
            ..tool(ToolKind::Webhook)
        }],
        ..AgentConfig::default()
    };
    let direction = if world.outbound {
        Direction::Outbound
    } else {
        Direction::Inbound
    };
    let (protocol, audio_format) = if world.telco {
        (Protocol::Telco, AudioFormat::Ulaw8000)
    } else {
        (Protocol::Native, AudioFormat::Pcm16000)
    };
    let config = CallConfig {
        direction,
        protocol,
        audio_format,
        lead_ms: world.lead_ms,
        ..config(agent)
    };
    let book = |place| ToolCall {
        id: format!("c{place}"),
        name: "book".to_owned(),
        arguments: "{}".to_owned(),
    };
    let line = |(place, &n): (usize, &usize)| match (LINES.get(n), n - n.min(LINES.len())) {
        (Some(text), _) => Answer::Say((*text).to_owned()),
        (None, 0) => Answer::Fail,
        (None, 1) => Answer::Stall,
        (None, 2) => Answer::Call(book(place)),
        (None, _) => Answer::SayAndCall("Let me see about that.".to_owned(), book(place)),
    };
    let script = Script {
        hearings: world
            .words
            .iter()
            .map(|&n| Hearing::Words(WORDS[n].to_owned()))
            .collect(),
        lines: world.lines.iter().enumerate().map(line).collect(),
        stt_delay: Duration::from_millis(world.stt_ms),
        llm_delay: Duration::from_millis(world.llm_ms),
        tts_delay: Duration::from_millis(world.tts_ms),
        ..Script::default()
    };
    let mut call = VirtualCall::new(config, script, &spans_of(&world.voices));
    call.tool_ms = world.tool_ms;
    call.connect();
    for &(at, message) in &world.messages {
        run(&mut call, at, extra_timeouts);
        call.client(&if world.telco {
            from_vendor(message)
        } else {
            from_client(message)
        });
    }
    run(&mut call, LENGTH, extra_timeouts);
    call
}

fn from_client(message: usize) -> Value {
    match message {
        0 => json!({"type": "dtmf", "digit": "5"}),
        1 => json!({"type": "dtmf", "digits": "12#"}),
        2 => json!({"type": "user_message", "text": "What about Tuesday?"}),
        3 => json!({"type": "contextual_update", "text": "Background."}),
        4 => json!({"type": "playback", "event_id": 7, "played_ms": 10}),
        _ => json!({"type": "pong", "event_id": 1}),
    }
}

/// Keys, echoes of marks that were never sent or are of another epoch, and what nobody knows.
fn from_vendor(message: usize) -> Value {
    match message {
        0 => json!({"event": "dtmf", "streamSid": "MZ1", "dtmf": {"digit": "5"}}),
        1 => json!({"event": "dtmf", "streamSid": "MZ1", "dtmf": {"digit": "#"}}),
        2 => json!({"event": "mark", "streamSid": "MZ1", "mark": {"name": "0:320"}}),
        3 => json!({"event": "mark", "streamSid": "MZ1", "mark": {"name": "9:6400"}}),
        4 => json!({"event": "mark", "streamSid": "MZ1", "mark": {"name": "mine"}}),
        _ => json!({"event": "weather", "streamSid": "MZ1"}),
    }
}

/// When the caller's voices sound, ms: from pauses and lengths in frames.
pub(super) fn spans_of(voices: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut at = 0;
    let span = |&(pause, length): &(u64, u64)| {
        let from = at + pause * 20;
        at = from + length * 20;
        (from, at)
    };
    voices.iter().map(span).collect()
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

/// Event ids increase, and after an interruption nothing of its reply comes.
fn check_native(call: &VirtualCall) {
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
    let last = call.sent.last().unwrap();
    assert_eq!(last.1["type"] == "call_ended", call.ended.is_some());
}

/// A vendor's media names no reply: after a clear it is of a line that the voice was asked for since.
fn check_telco(call: &VirtualCall) {
    let mut cleared = None;
    for (place, (_, message)) in call.sent.iter().enumerate() {
        match message["event"].as_str().unwrap_or_default() {
            "clear" => cleared = Some(place),
            "media" | "mark" => {
                let new = |from: usize| call.asked.iter().any(|&at| at > from && at <= place);
                assert!(cleared.is_none_or(new), "message {place} after {cleared:?}");
            }
            _ => panic!("a vendor does not know {message}"),
        }
    }
}

/// Each limit of the agent is kept, and no tool is told of twice.
fn check_limits(world: &World, call: &VirtualCall) {
    let opened = call.caller_turns().len();
    assert!(
        world.max_turns.is_none_or(|most| opened < most as usize),
        "{opened} turns"
    );
    let most_ms = u64::from(world.max_seconds) * 1000;
    assert!(call.ended.is_some() || most_ms > LENGTH);
    if let Some(ended) = &call.ended {
        assert!(call.closed.is_some());
        assert!(ended.duration_ms <= most_ms, "{} ms", ended.duration_ms);
        if ended.reason == EndReason::SilenceTimeout {
            let silence = u64::from(world.silence_seconds.unwrap()) * 1000;
            let since = ended.duration_ms - silence;
            let spans = spans_of(&world.voices);
            let heard = |&(from, to): &(u64, u64)| from < ended.duration_ms && to > since;
            assert!(!spans.iter().any(heard), "a voice within the silence");
        }
    }
    let told = call.turns.iter().flat_map(|turn| &turn.tool_calls);
    let mut ids = HashSet::new();
    for tool in told {
        assert!(call.tools.contains(&tool.id), "{} never ran", tool.id);
        assert!(ids.insert(&tool.id), "{} is told of twice", tool.id);
    }
}

fn check(world: &World, call: &VirtualCall) {
    if world.telco {
        check_telco(call);
    } else {
        check_native(call);
    }
    check_limits(world, call);
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
}

pub(super) fn cases(usual: u32) -> ProptestConfig {
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
        check(&world, &play(&world, false));
    }
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn early_timeouts_change_nothing(world in world()) {
        let (plain, nudged) = (play(&world, false), play(&world, true));
        prop_assert_eq!(&plain.story, &nudged.story);
        prop_assert_eq!(&plain.sent, &nudged.sent);
    }
}
