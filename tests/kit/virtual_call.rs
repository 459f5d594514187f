//! A call on virtual time: the core, scripted providers and a caller who speaks when told. An hour of
//! call takes less than a second; nothing sleeps. When it is dropped, its tape is played again, here and
//! in a second process, and the outputs have to be the same to the byte.

mod wire;

use std::collections::VecDeque;
use std::time::Duration;

use media::call::Call;
use media::call::input::{EndRequest, Gone, Input, ToolOutcome};
use media::call::output::{
    CallEvent, LlmCommand, Output, RecogniserCommand, Side, SynthesiserCommand,
};
use media::call::record::{Role, Summary, Turn};
use media::config::{
    AgentConfig, AudioFormat, CallConfig, Direction, OptionalEvents, Protocol, VadKind,
};
use media::frame::{FRAME, FRAME_MS};
use media::speech::Message;
use media::speech::script::Script;
use media::time::Time;
use media::vad::Vad;
use serde_json::Value;
use wire::{Wire, kind_of};

use crate::tape::Recorder;

/// Milliseconds of virtual time before the call is connected: position 0 is not time 0.
const ORIGIN_MS: u64 = 5_000;

/// A call under test.
pub struct VirtualCall {
    pub call: Call,
    pub script: Script,
    pub turns: Vec<Turn>,
    pub ended: Option<Summary>,
    /// Messages that the client got, with their time in ms since the call's start.
    pub sent: Vec<(u64, Value)>,
    /// For each line that the voice was asked for: how many messages had been sent by then.
    pub asked: Vec<usize>,
    /// What the recogniser was given, one utterance after the other.
    pub given: Vec<Vec<i16>>,
    /// What was recorded: `caller`, `agent`, at 16 kHz.
    pub recorded: [Vec<i16>; 2],
    pub closed: Option<u16>,
    /// One line an output worth reading, with its time: the story of the call.
    pub story: Vec<String>,
    /// Tools that the call wants run.
    pub tools: Vec<String>,
    /// So many ms after its call each tool answers; `None`: only as the test says.
    pub tool_ms: Option<u64>,
    pub tape: Recorder,
    /// The caller's voice, samples, in order, and the first span that may still matter.
    spans: Vec<(u64, u64)>,
    next_span: usize,
    now: Time,
    next_frame: Option<Time>,
    frames: u64,
    deadline: Time,
    /// How often it was served at this very moment.
    woken: u32,
    wire: Wire,
    due_tools: VecDeque<(Time, String)>,
    done: bool,
}

/// The configuration of a plain inbound call to `agent`.
pub fn config(agent: AgentConfig) -> CallConfig {
    CallConfig {
        session_id: "5e551011-0000-4000-8000-000000000001".to_owned(),
        agent_id: "a9e10000-0000-4000-8000-000000000001".to_owned(),
        direction: Direction::Inbound,
        protocol: Protocol::Native,
        audio_format: AudioFormat::Pcm16000,
        agent,
        recording: true,
        events: OptionalEvents::default(),
        vad: VadKind::Energy,
        lead_ms: 100,
    }
}

impl VirtualCall {
    /// A caller whose voice sounds during `spans` (ms since the call's start, multiples of 20).
    pub fn new(config: CallConfig, script: Script, spans: &[(u64, u64)]) -> Self {
        let mut spans: Vec<(u64, u64)> = spans
            .iter()
            .map(|&(from, to)| (from * 16, to * 16))
            .collect();
        spans.sort_unstable();
        let now = Time::from_millis(ORIGIN_MS);
        Self {
            tape: Recorder::new(&config, now, Some(spans.clone())),
            wire: Wire::new(config.protocol),
            call: Call::with_vad(config, now, true, Vad::scripted(spans.clone())),
            script,
            turns: Vec::new(),
            ended: None,
            sent: Vec::new(),
            asked: Vec::new(),
            given: Vec::new(),
            recorded: [Vec::new(), Vec::new()],
            closed: None,
            story: Vec::new(),
            tools: Vec::new(),
            tool_ms: None,
            spans,
            next_span: 0,
            now,
            next_frame: Some(now + Duration::from_millis(FRAME_MS)),
            frames: 0,
            deadline: Time::NEVER,
            woken: 0,
            due_tools: VecDeque::new(),
            done: false,
        }
    }

    /// Connects and runs for `ms`.
    pub fn run(mut self, ms: u64) -> Self {
        self.connect();
        self.run_until(ms);
        self
    }

    pub fn connect(&mut self) {
        self.give(Input::Connected);
        for message in self.wire.opening() {
            self.client(&message);
        }
    }

    /// Plays the world up to `ms` after the call's start.
    pub fn run_until(&mut self, ms: u64) {
        let until = Time::from_millis(ORIGIN_MS + ms);
        while !self.done {
            let answer = self.script.next().unwrap_or(Time::NEVER);
            let tool = self.due_tools.front().map_or(Time::NEVER, |(at, _)| *at);
            let echo = self.wire.next_echo();
            let frame = self.next_frame.unwrap_or(Time::NEVER);
            let inputs = answer.min(tool).min(echo).min(frame);
            let next = inputs.min(self.deadline);
            if next > until {
                break;
            }
            self.woken = if next > self.now { 0 } else { self.woken + 1 };
            assert!(
                self.woken < 1000,
                "it wakes up again and again at {} ms",
                self.ms()
            );
            self.now = self.now.max(next);
            if let Some(event) = self.script.take_due(self.now) {
                self.give(Input::Speech(event));
            } else if tool <= self.now
                && let Some((_, id)) = self.due_tools.pop_front()
            {
                self.tool(&id, "{\"ok\":true}");
            } else if let Some(echo) = self.wire.take_echo(self.now) {
                self.client(&echo);
            } else if frame <= self.now {
                self.next_frame = Some(frame + Duration::from_millis(FRAME_MS));
                let voiced = self.is_voiced();
                let message = self.wire.frame(voiced);
                self.give(Input::Text(&message));
            } else {
                self.give(Input::Timeout);
            }
        }
        self.now = self.now.max(until);
    }

    /// Whether the caller's next frame is.
    fn is_voiced(&mut self) -> bool {
        let at = self.frames * FRAME as u64;
        self.frames += 1;
        while self.spans.get(self.next_span).is_some_and(|s| s.1 <= at) {
            self.next_span += 1;
        }
        let span = self.spans.get(self.next_span);
        span.is_some_and(|&(from, _)| from < at + FRAME as u64)
    }

    /// The client sends a message now.
    pub fn client(&mut self, message: &Value) {
        self.give(Input::Text(&message.to_string()));
    }

    pub fn hang_up(&mut self) {
        self.give(Input::Gone(Gone::Closed));
    }

    pub fn end(&mut self, request: EndRequest) {
        self.give(Input::End(request));
    }

    pub fn tool(&mut self, id: &str, result: &str) {
        let outcome = ToolOutcome {
            id: id.to_owned(),
            result: result.to_owned(),
            is_error: false,
        };
        self.give(Input::Tool(outcome));
    }

    /// The client stops sending audio.
    pub fn mute(&mut self) {
        self.next_frame = None;
    }

    /// Wakes the call although nothing is due.
    pub fn early_timeout(&mut self) {
        self.give(Input::Timeout);
    }

    /// Milliseconds since the call's start.
    pub fn ms(&self) -> u64 {
        self.now.as_millis() - ORIGIN_MS
    }

    /// The lines of the story that hold any of `words`.
    pub fn story_of(&self, words: &[&str]) -> Vec<String> {
        self.story
            .iter()
            .filter(|line| words.iter().any(|word| line.contains(word)))
            .cloned()
            .collect()
    }

    pub fn messages(&self, kind: &str) -> Vec<&(u64, Value)> {
        self.sent
            .iter()
            .filter(|(_, message)| kind_of(message) == kind)
            .collect()
    }

    pub fn agent_turns(&self) -> Vec<&Turn> {
        self.turns
            .iter()
            .filter(|turn| turn.role == Role::Assistant)
            .collect()
    }

    pub fn caller_turns(&self) -> Vec<&Turn> {
        self.turns
            .iter()
            .filter(|turn| turn.role == Role::User)
            .collect()
    }

    /// The last thing the model was asked, as `role: text` lines without the prompt and the instructions.
    pub fn last_request(&self) -> Vec<String> {
        let Some(request) = self.script.requests.last() else {
            return Vec::new();
        };
        request.messages.iter().skip(2).map(line_of).collect()
    }

    fn give(&mut self, input: Input<'_>) {
        if self.done {
            return;
        }
        self.tape.input(self.now, &input);
        self.call.handle(self.now, input);
        let ms = self.ms();
        loop {
            let output = self.call.poll(self.now);
            self.tape.output(&output);
            self.script.react(self.now, &output);
            match output {
                // Its calls come over sockets.
                Output::Packet { .. } | Output::Rtp(_) => {}
                Output::Wait(at) => {
                    assert!(at >= self.now, "a deadline in the past");
                    self.deadline = at;
                    break;
                }
                Output::Done => {
                    self.done = true;
                    break;
                }
                Output::Text(text) => {
                    assert_eq!(self.closed, None, "a message after the close: {text}");
                    let message: Value =
                        serde_json::from_str(text).expect("server messages are JSON");
                    self.wire.came(self.now, &message);
                    let kind = kind_of(&message);
                    if !["audio", "media", "mark"].contains(&kind) {
                        self.story.push(format!("{ms} > {kind}"));
                    }
                    self.sent.push((ms, message));
                }
                Output::Close { code, .. } => self.closed = Some(code),
                Output::Recogniser(RecogniserCommand::Begin(_)) => {
                    self.given.push(Vec::new());
                    self.story.push(format!("{ms} listen"));
                }
                Output::Recogniser(RecogniserCommand::Audio(_, samples)) => {
                    self.given.last_mut().expect("it was begun").extend(samples);
                }
                Output::Recogniser(RecogniserCommand::Finish(_)) => {
                    self.story.push(format!("{ms} voice stopped"))
                }
                Output::Recogniser(RecogniserCommand::Cancel(_)) => {}
                Output::Llm(LlmCommand::Start(..)) => self.story.push(format!("{ms} ask model")),
                Output::Llm(LlmCommand::Cancel(_)) => self.story.push(format!("{ms} cancel model")),
                Output::Synthesiser(SynthesiserCommand::Speak { text, .. }) => {
                    self.story.push(format!("{ms} speak {text:?}"));
                    self.asked.push(self.sent.len());
                }
                Output::Synthesiser(SynthesiserCommand::Cancel(_)) => {
                    self.story.push(format!("{ms} cancel voice"))
                }
                Output::Tool { call, .. } => {
                    self.story.push(format!("{ms} run tool {}", call.name));
                    if let Some(delay) = self.tool_ms {
                        let at = self.now + Duration::from_millis(delay);
                        self.due_tools.push_back((at, call.id.clone()));
                    }
                    self.tools.push(call.id);
                }
                Output::CancelTool { id } => self.story.push(format!("{ms} cancel tool {id}")),
                Output::Record { side, at, samples } => {
                    let track = &mut self.recorded[usize::from(side == Side::Agent)];
                    let (from, to) = (at as usize, at as usize + samples.len());
                    assert!(from >= track.len(), "recorded twice");
                    track.resize(to, 0);
                    track[from..].copy_from_slice(samples);
                }
                Output::Event(CallEvent::Turn(turn)) => {
                    let who = if turn.role == Role::User {
                        "caller"
                    } else {
                        "agent"
                    };
                    self.story.push(format!("{ms} turn {who} {:?}", turn.text));
                    self.turns.push(*turn);
                }
                Output::Event(CallEvent::Ended(summary)) => {
                    self.story
                        .push(format!("{ms} ended {}", summary.reason.name()));
                    self.ended = Some(*summary);
                }
                Output::Event(_) => {}
            }
        }
    }
}

fn line_of(message: &Message) -> String {
    match message {
        Message::System { content } => format!("system: {content}"),
        Message::User { content } => format!("user: {content}"),
        Message::Assistant {
            content,
            tool_calls,
        } if tool_calls.is_empty() => format!("assistant: {content}"),
        Message::Assistant { tool_calls, .. } => format!("call: {}", tool_calls[0].name),
        Message::Tool {
            content, is_error, ..
        } => format!("tool{}: {content}", if *is_error { " error" } else { "" }),
        Message::Instructions { content } => format!("instructions: {content}"),
    }
}
