//! A call on virtual time: the core, scripted providers and a caller who speaks when told. An hour of
//! call takes less than a second; nothing sleeps. When it is done, its inputs are played again into a
//! fresh core, and the outputs have to be the same to the byte.

use std::fmt::Write as _;
use std::time::Duration;

use media::audio::tones;
use media::call::Call;
use media::call::input::{EndRequest, Gone, Input, ToolOutcome};
use media::call::output::{CallEvent, LlmCommand, Output, Side, SttCommand, TtsCommand};
use media::call::record::{Role, Summary, Turn};
use media::config::{
    AgentConfig, AudioFormat, CallConfig, Direction, OptionalEvents, Protocol, VadKind,
};
use media::frame::{FRAME, FRAME_MS};
use media::speech::script::Script;
use media::speech::{Message, SpeechEvent};
use media::time::Time;
use media::vad::Vad;
use serde_json::Value;

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
    /// What the recogniser was given, one utterance after the other.
    pub given: Vec<Vec<i16>>,
    /// What was recorded: `caller`, `agent`, at 16 kHz.
    pub recorded: [Vec<i16>; 2],
    pub closed: Option<u16>,
    /// One line an output worth reading, with its time: the story of the call.
    pub story: Vec<String>,
    /// Tools that the call wants run.
    pub tools: Vec<String>,
    config: CallConfig,
    spans: Vec<(u64, u64)>,
    now: Time,
    next_frame: Option<Time>,
    frames: u64,
    deadline: Time,
    /// How often it was served at this very moment.
    woken: u32,
    voice: String,
    silence: String,
    tape: Vec<(Time, Taped)>,
    digest: Digest,
    done: bool,
}

/// A sum over the text of all outputs (FNV-1a).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl std::fmt::Write for Digest {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Ok(())
    }
}

/// An input that can be given again.
#[derive(Clone, Debug)]
enum Taped {
    Connected,
    /// Voice or silence, 20 ms.
    Frame(bool),
    Text(String),
    Gone(Gone),
    Speech(SpeechEvent),
    Tool(ToolOutcome),
    End(EndRequest),
    Timeout,
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
        let spans: Vec<(u64, u64)> = spans
            .iter()
            .map(|&(from, to)| (from * 16, to * 16))
            .collect();
        let now = Time::from_millis(ORIGIN_MS);
        let tone: Vec<i16> = tones::sine(16_000, 400.0, -12.0, FRAME);
        Self {
            call: Call::with_vad(config.clone(), now, true, Vad::scripted(spans.clone())),
            script,
            turns: Vec::new(),
            ended: None,
            sent: Vec::new(),
            given: Vec::new(),
            recorded: [Vec::new(), Vec::new()],
            closed: None,
            story: Vec::new(),
            tools: Vec::new(),
            config,
            spans,
            now,
            next_frame: Some(now + Duration::from_millis(FRAME_MS)),
            frames: 0,
            deadline: Time::NEVER,
            woken: 0,
            voice: message(&tone),
            silence: message(&[0; FRAME]),
            tape: Vec::new(),
            digest: Digest::default(),
            done: false,
        }
    }

    /// Connects, runs for `ms`, and checks that the call replays.
    pub fn run(mut self, ms: u64) -> Self {
        self.connect();
        self.run_until(ms);
        self.check_replay();
        self
    }

    pub fn connect(&mut self) {
        self.give(Taped::Connected);
    }

    /// Plays the world up to `ms` after the call's start.
    pub fn run_until(&mut self, ms: u64) {
        let until = Time::from_millis(ORIGIN_MS + ms);
        while !self.done {
            let answer = self.script.next().unwrap_or(Time::NEVER);
            let frame = self.next_frame.unwrap_or(Time::NEVER);
            let next = answer.min(frame).min(self.deadline);
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
            if answer <= self.now
                && let Some(event) = self.script.take_due(self.now)
            {
                self.give(Taped::Speech(event));
            } else if frame <= self.now {
                let at = self.frames * FRAME as u64;
                let voiced = self
                    .spans
                    .iter()
                    .any(|&(from, to)| at < to && at + FRAME as u64 > from);
                self.frames += 1;
                self.next_frame = Some(frame + Duration::from_millis(FRAME_MS));
                self.give(Taped::Frame(voiced));
            } else {
                self.give(Taped::Timeout);
            }
        }
        self.now = self.now.max(until);
    }

    /// The client sends a message now.
    pub fn client(&mut self, message: &Value) {
        self.give(Taped::Text(message.to_string()));
    }

    pub fn hang_up(&mut self) {
        self.give(Taped::Gone(Gone::Closed));
    }

    pub fn end(&mut self, request: EndRequest) {
        self.give(Taped::End(request));
    }

    pub fn tool(&mut self, id: &str, result: &str) {
        let outcome = ToolOutcome {
            id: id.to_owned(),
            result: result.to_owned(),
            is_error: false,
        };
        self.give(Taped::Tool(outcome));
    }

    /// The client stops sending audio.
    pub fn mute(&mut self) {
        self.next_frame = None;
    }

    /// Wakes the call although nothing is due.
    pub fn early_timeout(&mut self) {
        self.give(Taped::Timeout);
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
            .filter(|(_, message)| message["type"] == kind)
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

    /// Plays the tape into a fresh core and compares all outputs.
    pub fn check_replay(&self) {
        let start = Time::from_millis(ORIGIN_MS);
        let mut call = Call::with_vad(
            self.config.clone(),
            start,
            true,
            Vad::scripted(self.spans.clone()),
        );
        let mut digest = Digest::default();
        for (at, taped) in &self.tape {
            handle(&mut call, *at, taped, &self.voice, &self.silence);
            loop {
                let output = call.poll(*at);
                let over = matches!(output, Output::Wait(_) | Output::Done);
                print(&mut digest, &output);
                if over {
                    break;
                }
            }
        }
        assert!(digest == self.digest, "the replay differs from the call");
    }

    fn give(&mut self, taped: Taped) {
        if self.done {
            return;
        }
        handle(&mut self.call, self.now, &taped, &self.voice, &self.silence);
        self.tape.push((self.now, taped));
        let ms = self.ms();
        loop {
            let output = self.call.poll(self.now);
            print(&mut self.digest, &output);
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
                    let message: Value =
                        serde_json::from_str(text).expect("server messages are JSON");
                    let kind = message["type"].as_str().unwrap_or_default();
                    if kind != "audio" {
                        self.story.push(format!("{ms} > {kind}"));
                    }
                    self.sent.push((ms, message));
                }
                Output::Close { code, .. } => self.closed = Some(code),
                Output::Stt(SttCommand::Begin(_)) => {
                    self.given.push(Vec::new());
                    self.story.push(format!("{ms} listen"));
                }
                Output::Stt(SttCommand::Audio(_, samples)) => {
                    self.given.last_mut().expect("it was begun").extend(samples);
                }
                Output::Stt(SttCommand::Finish(_)) => {
                    self.story.push(format!("{ms} voice stopped"))
                }
                Output::Stt(SttCommand::Cancel(_)) => {}
                Output::Llm(LlmCommand::Start(..)) => self.story.push(format!("{ms} ask model")),
                Output::Llm(LlmCommand::Cancel(_)) => self.story.push(format!("{ms} cancel model")),
                Output::Tts(TtsCommand::Speak { text, .. }) => {
                    self.story.push(format!("{ms} speak {text:?}"))
                }
                Output::Tts(TtsCommand::Cancel(_)) => self.story.push(format!("{ms} cancel voice")),
                Output::Tool { call, .. } => {
                    self.story.push(format!("{ms} run tool {}", call.name));
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

fn handle(call: &mut Call, at: Time, taped: &Taped, voice: &str, silence: &str) {
    let input = match taped {
        Taped::Connected => Input::Connected,
        Taped::Frame(voiced) => Input::Text(if *voiced { voice } else { silence }),
        Taped::Text(text) => Input::Text(text),
        Taped::Gone(gone) => Input::Gone(*gone),
        Taped::Speech(event) => Input::Speech(event.clone()),
        Taped::Tool(outcome) => Input::Tool(outcome.clone()),
        Taped::End(request) => Input::End(*request),
        Taped::Timeout => Input::Timeout,
    };
    call.handle(at, input);
}

/// Outputs as text; sound as its length and a sum.
fn print(digest: &mut Digest, output: &Output<'_>) {
    let sum = |samples: &[i16]| {
        samples
            .iter()
            .fold(17u64, |sum, &s| sum.wrapping_mul(31).wrapping_add(s as u64))
    };
    let written = match output {
        Output::Record { side, at, samples } => {
            writeln!(
                digest,
                "record {side:?} {at} {} {}",
                samples.len(),
                sum(samples)
            )
        }
        Output::Stt(SttCommand::Audio(utterance, samples)) => {
            writeln!(
                digest,
                "hear {utterance:?} {} {}",
                samples.len(),
                sum(samples)
            )
        }
        other => writeln!(digest, "{other:?}"),
    };
    written.expect("text grows");
}

fn message(samples: &[i16]) -> String {
    let bytes: Vec<u8> = samples.iter().flat_map(|s| s.to_le_bytes()).collect();
    format!(
        r#"{{"type":"audio","audio":"{}"}}"#,
        base64_simd::STANDARD.encode_to_string(&bytes)
    )
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
