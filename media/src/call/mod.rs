//! One call, one machine: [`Call::handle`] is told what happened, [`Call::poll`] tells what to do.
//!
//! The contract: one `handle` is one mutation; then `poll` until it says [`Output::Wait`]; then wait
//! for one thing. `now` never goes back, `Wait` is never earlier than it. An early timeout changes
//! nothing, a late one applies every due timer in order. After [`Output::Done`] inputs are ignored.
//! The same inputs at the same times give the same outputs, byte for byte.
//!
//! This file routes between the children and decides nothing itself: `turn` says whose turn it is,
//! [`ear`] hears, [`floor`] speaks, [`tools`] runs tools, [`ending`] ends.

mod answer;
mod caller_audio;
mod ending;
mod first_packet;
mod floor;
mod found;
mod hearing;
pub mod input;
mod latency;
mod outbox;
pub mod output;
mod packets;
pub mod record;
mod reply;
mod scratch;
mod settle;
mod tools;
mod voice;
mod voicing;
mod work;

use std::time::Duration;

use caller_audio::CallerAudio;
use first_packet::FirstPacket;
use found::Found;
use hearing::{CallerTurn, Dropping, Given, Utterance};
use input::{EndRequest, Gone, Input};
use outbox::Outbox;
use output::{AgentState, CallEvent, Output};
use record::EndReason;
use reply::{Filler, Reply, Unheard};

pub use scratch::Scratch;

use crate::audio::pacing::{Arrivals, Lead};
use crate::audio::playout::Playout;
use crate::bucket::Bucket;
use crate::config::{CallConfig, Protocol};
use crate::dialog::Dialog;
use crate::leg::Leg;
use crate::leg::LegEvent;
use crate::leg::ws::{AUDIO_FORMAT, ServerEvent, ServerHeader};
use crate::record::timeline::Timeline;
use crate::rtp::presses::Presses;
use crate::speech::{RecogniserEvent, SpeechEvent};
use crate::time::{RATE, Time};
use crate::turn::{Act, Cue, State, TurnTaker};
use crate::vad::Vad;

/// How often the native protocol asks whether the client is there.
const PING_INTERVAL: Duration = Duration::from_secs(10);

/// Pings without an answer that end the call.
const MAX_PINGS: u32 = 3;

/// How long a telephony vendor may take from the connection to its `start`.
const START_DEADLINE: Duration = Duration::from_secs(10);

/// A call.
pub struct Call {
    config: CallConfig,
    leg: Leg,
    /// Why the call cannot go on, before it has begun.
    broken: Option<&'static str>,
    turn: TurnTaker,
    ear: CallerAudio,
    timeline: Timeline,
    playout: Playout,
    /// When the caller's packets come, and how far the agent's go ahead of their time to keep them company.
    arrivals: Arrivals,
    lead: Lead,
    dialog: Dialog,
    out: Outbox,
    /// When the call was connected: position 0 of its sample clock.
    origin: Option<Time>,
    /// The latest time that was told; `now` never goes back.
    now: Time,
    event_id: u64,
    turn_ids: u32,
    turn_index: u32,
    punctuates: bool,
    agent_state: Option<AgentState>,

    utterances: Vec<Utterance>,
    utterance_ids: u32,
    caller_turn: Option<CallerTurn>,
    pending_keys: String,
    presses: Presses,
    pending_text: String,
    requests: Bucket,
    last_frame: Time,
    last_voice_at: u64,
    /// The client was told that the caller speaks.
    told_voice: bool,
    /// How long what is heard now waited for packets before it, and how long the last voice did.
    held: Duration,
    voice_held: Duration,
    given: Given,
    dropping: Option<Dropping>,

    reply: Option<Reply>,
    reply_ids: u32,
    filler: Option<Filler>,
    unheard: Option<Unheard>,
    /// Speculative requests to the model for the caller's turn under way.
    speculations: u32,

    started: bool,
    start_deadline: Option<Time>,
    /// The caller's WebRTC connection has to be there by then.
    peer_deadline: Option<Time>,
    first_packet: FirstPacket,
    /// The caller closed it.
    hung_up: bool,
    /// The caller ended the call.
    caller_left: bool,
    on_hold: bool,
    next_ping: Option<Time>,
    pings: u32,
    ping_sent: Time,
    /// The last measured round trip, ms.
    round_trip_ms: u64,

    end_request: Option<EndRequest>,
    errors: Vec<String>,
    recogniser_failures: u32,
    interruptions: u32,
    underruns: u32,
    ended: bool,

    found: Vec<Found>,
    incoming: Vec<i16>,
    resampled: Vec<i16>,
}

impl Call {
    /// `punctuates`: whether the recogniser writes sentence marks.
    pub fn new(config: CallConfig, now: Time, punctuates: bool) -> Self {
        let vad = Vad::new(config.vad);
        Self::with_vad(config, now, punctuates, vad)
    }

    /// A call whose voice detector is given, for simulations.
    pub fn with_vad(config: CallConfig, now: Time, punctuates: bool, vad: Vad) -> Self {
        let (leg, broken) = match Leg::new(&config) {
            Ok(leg) => (leg, None),
            Err(why) => (Leg::mute(), Some(why)),
        };
        // Packets are played as they come: nothing is gained by sending them sooner.
        let lead_ms = match config.protocol {
            Protocol::Native | Protocol::Telco => config.lead_ms.min(400),
            Protocol::WebRtc | Protocol::Rtp(_) => 0,
        };
        let events = match config.protocol {
            Protocol::Rtp(plan) => plan.events.is_some(),
            Protocol::Native | Protocol::Telco | Protocol::WebRtc => false,
        };
        Self {
            leg,
            broken,
            turn: TurnTaker::new(&config.agent, config.direction),
            ear: CallerAudio::new(vad),
            timeline: Timeline::default(),
            playout: Playout::new(u64::from(lead_ms) * u64::from(RATE) / 1000),
            arrivals: Arrivals::default(),
            lead: Lead::default(),
            dialog: Dialog::new(&config.agent),
            out: Outbox::default(),
            origin: None,
            now,
            event_id: 0,
            turn_ids: 0,
            turn_index: 0,
            punctuates,
            agent_state: None,
            utterances: Vec::with_capacity(8),
            utterance_ids: 0,
            caller_turn: None,
            pending_keys: String::new(),
            presses: Presses::new(events),
            pending_text: String::new(),
            requests: hearing::REQUESTS,
            last_frame: now,
            last_voice_at: 0,
            told_voice: false,
            held: Duration::ZERO,
            voice_held: Duration::ZERO,
            given: Given::default(),
            dropping: None,
            reply: None,
            reply_ids: 0,
            filler: None,
            unheard: None,
            speculations: 0,
            started: false,
            start_deadline: None,
            peer_deadline: None,
            first_packet: FirstPacket::default(),
            hung_up: false,
            caller_left: false,
            on_hold: false,
            next_ping: None,
            pings: 0,
            ping_sent: now,
            round_trip_ms: 0,
            end_request: None,
            errors: Vec::new(),
            recogniser_failures: 0,
            interruptions: 0,
            underruns: 0,
            ended: false,
            found: Vec::new(),
            incoming: Vec::new(),
            resampled: Vec::new(),
            config,
        }
    }

    /// Lends the call buffers before [`handle`](Self::handle), and takes them back when
    /// [`poll`](Self::poll) has said `Wait` or `Done`: then nothing is in them.
    pub fn exchange(&mut self, scratch: &mut Scratch) {
        self.leg.exchange(&mut scratch.coding);
        self.out.exchange(&mut scratch.waiting);
        std::mem::swap(&mut self.found, &mut scratch.found);
        std::mem::swap(&mut self.incoming, &mut scratch.incoming);
        std::mem::swap(&mut self.resampled, &mut scratch.resampled);
    }

    /// One thing happened at `now`.
    pub fn handle(&mut self, now: Time, input: Input<'_>) {
        if self.ended {
            return;
        }
        self.now = self.now.max(now);
        let now = self.now;
        self.out.recycle();
        self.arrivals.note(now, matches!(input, Input::Packet(_)));
        if let Some(why) = self.broken.take() {
            self.note(why);
            return self.cue(Cue::End(EndReason::EngineError));
        }
        if let Input::Timeout = input {
            self.cue(Cue::Tick);
            self.timers(now);
        }
        match input {
            Input::Connected => self.connected(now),
            Input::Text(text) => {
                self.first_packet.came();
                self.message(|leg, sink| {
                    if let Some(messages) = leg.messages() {
                        messages.tell_time(now);
                        messages.receive(text, sink);
                    }
                });
            }
            Input::Binary(bytes) => self.message(|leg, sink| {
                if let Some(messages) = leg.messages() {
                    messages.receive_binary(bytes, sink);
                }
            }),
            Input::Packet(packet) => self.packet(now, &packet),
            Input::Peer(state) => self.peer(now, state),
            Input::Hold(hold) => {
                self.first_packet.held(now, hold);
                self.hold(hold);
            }
            Input::Sends(sends) => self.first_packet.sends(now, sends),
            Input::Limit(most_bits) => self.limit(most_bits),
            Input::Report(report) => self.reported(report),
            Input::Media(plan) => self.renew_media(now, plan),
            Input::Press(key) => self.press(now, key),
            Input::Key(key) => {
                if self.presses.told(now, key) {
                    self.key(key);
                }
            }
            Input::Gone(gone) => self.gone(gone),
            Input::Speech(event) => self.speech(event),
            Input::Tool(outcome) => self.tool_answered(outcome),
            Input::End(request) => self.end_requested(request),
            Input::Timeout => {}
        }
        if self.ended {
            return;
        }
        self.cue(Cue::Tick);
        self.timers(now);
        self.tell_state();
    }

    /// The next thing to do.
    pub fn poll(&mut self, now: Time) -> Output<'_> {
        let deadline = if self.ended {
            Time::NEVER
        } else {
            self.deadline().max(now)
        };
        self.out.take(deadline)
    }

    /// The call ended without this being its own doing (its thread caught a fault): the summary to
    /// report.
    pub fn fault(&mut self, now: Time) {
        self.handle(now, Input::End(EndRequest::Fault));
    }

    fn deadline(&self) -> Time {
        let mut soonest = Time::NEVER;
        let mut sooner = |at: Option<Time>| {
            if let Some(at) = at {
                soonest = soonest.min(at);
            }
        };
        sooner(self.turn.next_deadline());
        sooner(self.start_deadline);
        sooner(self.next_ping);
        sooner(self.peer_deadline);
        sooner(self.first_packet.deadline());
        sooner(Some(self.leg.deadline()));
        sooner(self.floor_deadline());
        sooner(self.tool_deadline());
        soonest
    }

    /// The call's own timers, beside those of the turn.
    fn timers(&mut self, now: Time) {
        if self.start_deadline.is_some_and(|at| at <= now) {
            self.note("the vendor did not send start");
            self.cue(Cue::End(EndReason::MediaTimeout));
        }
        if self.next_ping.is_some_and(|at| at <= now) && !self.ended {
            self.ping(now);
        }
        self.packet_timers(now);
        self.tool_timeouts(now);
        self.pump();
        self.send_between(now);
    }

    fn connected(&mut self, now: Time) {
        if self.origin.is_some() {
            return;
        }
        self.origin = Some(now);
        self.last_frame = now;
        self.out.event(CallEvent::Started);
        match self.config.protocol {
            Protocol::Native => {
                self.started = true;
                self.next_ping = Some(now + PING_INTERVAL);
                self.session_started();
                self.cue(Cue::Start);
            }
            // The vendor's `start` names the stream that all messages to it need.
            Protocol::Telco => self.start_deadline = Some(now + START_DEADLINE),
            Protocol::Rtp(_) => {
                self.started = true;
                let mut inactive = false;
                if let Leg::Rtp(leg) = &mut self.leg {
                    leg.start(now);
                    inactive = leg.is_inactive();
                }
                self.cue(Cue::Start);
                // Who begins by sending alone may be one who cannot hear, and is listened to.
                self.hold(inactive);
            }
            // Whether the client is there is told by its connection, not by pings.
            Protocol::WebRtc => {
                self.started = true;
                self.session_started();
                self.cue(Cue::Start);
                // Held before it was there: the greeting waits.
                if self.on_hold {
                    self.cue(Cue::Hold);
                }
            }
        }
    }

    /// Reads one message and does what it says, in order.
    fn message(&mut self, read: impl FnOnce(&mut Leg, &mut dyn FnMut(LegEvent<'_>))) {
        let mut found = std::mem::take(&mut self.found);
        self.incoming.clear();
        let incoming = &mut self.incoming;
        read(&mut self.leg, &mut |event| {
            found.push(Found::of(event, incoming))
        });
        for found in found.drain(..) {
            if !self.ended {
                self.found(found);
            }
        }
        self.found = found;
    }

    fn found(&mut self, found: Found) {
        match found {
            Found::Held(held) => self.held = held,
            Found::Audio { from, to } => self.hear(from, to),
            Found::Lost(samples) => self.lost(samples),
            Found::SilenceFollows => self.cue(Cue::SilenceFollows),
            Found::Reconnected => self.timeline.reconnect(),
            Found::Unplaced => self.timeline.begin_anew(),
            Found::Digit(digit) => {
                if self.presses.heard(self.now, digit) {
                    self.key(digit);
                }
            }
            Found::Context(text) => self.context(&text),
            Found::Typed(text) => self.typed(text),
            Found::ToolResult {
                id,
                result,
                is_error,
            } => {
                self.tool_answered(input::ToolOutcome {
                    id,
                    result,
                    is_error,
                });
            }
            Found::Pong => self.pong(),
            Found::Played {
                event_id,
                played_ms,
            } => {
                let position = self.position(self.now);
                self.playout
                    .report_message(event_id, played_ms * u64::from(RATE) / 1000, position);
            }
            Found::Marked(index) => {
                let position = self.position(self.now);
                self.playout.report(index, position);
            }
            Found::Started => {
                if !self.started {
                    self.started = true;
                    self.start_deadline = None;
                    self.cue(Cue::Start);
                }
            }
            Found::Silent => {
                self.note("no packet came from the caller for too long");
                self.cue(Cue::End(EndReason::MediaTimeout));
            }
            Found::End => {
                self.caller_left = true;
                self.cue(Cue::End(EndReason::CallerHangup));
            }
            Found::Invalid {
                close,
                code,
                message,
            } => {
                self.refuse(code, &message, None);
                if code == AUDIO_FORMAT || close.is_some() {
                    self.note(&message);
                }
                if let Some(close) = close {
                    self.out.close(close, code);
                    self.cue(Cue::End(EndReason::MediaTimeout));
                }
            }
        }
    }

    fn speech(&mut self, event: SpeechEvent) {
        match event {
            SpeechEvent::Recogniser(RecogniserEvent::Interim { utterance, text }) => {
                self.words(utterance, text, None, false)
            }
            SpeechEvent::Recogniser(RecogniserEvent::Final {
                utterance,
                text,
                confidence,
            }) => {
                self.recogniser_failures = 0;
                self.words(utterance, text, confidence, true);
            }
            SpeechEvent::Recogniser(RecogniserEvent::Failed { utterance, message }) => {
                self.recogniser_failed(utterance, &message)
            }
            SpeechEvent::Llm { reply, event } => self.model(reply, event),
            SpeechEvent::Synthesiser {
                reply,
                segment,
                event,
            } => self.voice(reply, segment, event),
        }
    }

    fn gone(&mut self, gone: Gone) {
        self.out.socket_gone();
        self.caller_left = gone == Gone::Closed;
        let reason = match gone {
            Gone::Closed => EndReason::CallerHangup,
            Gone::Stalled => EndReason::MediaTimeout,
        };
        self.cue(Cue::End(reason));
    }

    /// Tells the turn taker, and does what it answers.
    fn cue(&mut self, cue: Cue) {
        self.turn.handle(self.now, cue);
        while let Some(act) = self.turn.take_act() {
            self.act(act);
        }
        self.tell_voice();
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::OpenTurn { onset } => self.open_turn(onset),
            Act::Listen => self.begin_utterance(),
            Act::StopListening => self.finish_utterance(),
            Act::Speculate => self.begin_answer(false),
            Act::DropSpeculation | Act::CancelReply => {
                self.cancel_reply();
                self.reopen_turn();
            }
            Act::Commit => self.commit(),
            Act::DropTurn => self.drop_turn(),
            Act::Interrupt => self.interrupt(),
            Act::Resume => self.resume(),
            Act::Greet => self.say_line(reply::Kind::Greeting),
            Act::CheckIn => self.say_line(reply::Kind::CheckIn),
            Act::Filler => self.say_filler(),
            Act::Apologise => self.say_line(reply::Kind::Apology),
            Act::Reprompt => self.say_line(reply::Kind::Reprompt),
            Act::Goodbye => self.say_line(reply::Kind::Goodbye),
            Act::Tone => self.sound_tone(),
            Act::Finish(reason) => self.finish(reason),
        }
    }

    fn ping(&mut self, now: Time) {
        if self.pings >= MAX_PINGS {
            self.note("three pings without an answer");
            self.cue(Cue::End(EndReason::MediaTimeout));
            return;
        }
        self.pings += 1;
        self.next_ping = Some(now + PING_INTERVAL);
        self.ping_sent = now;
        let ping_ms = self.round_trip_ms;
        self.send(&ServerEvent::Ping { ping_ms });
    }

    fn pong(&mut self) {
        if self.pings > 0 {
            self.pings = 0;
            self.round_trip_ms = (self.now - self.ping_sent).as_millis() as u64;
        }
    }

    fn session_started(&mut self) {
        let config = self.config.clone();
        self.send(&ServerEvent::SessionStarted {
            session_id: &config.session_id,
            conversation_id: &config.session_id,
            agent_id: &config.agent_id,
            direction: config.direction,
            protocol: config.protocol,
            audio_format: config.audio_format,
            sample_rate: config.audio_format.sample_rate(),
            frame_ms: crate::frame::FRAME_MS,
            ping_interval_ms: PING_INTERVAL.as_millis() as u64,
        });
    }

    /// Sends an event of the protocol, where it has one.
    fn send(&mut self, event: &ServerEvent<'_>) {
        let header = self.header();
        let leg = &mut self.leg;
        self.out.message(|out| leg.event(out, &header, event));
    }

    fn header(&mut self) -> ServerHeader {
        self.event_id += 1;
        ServerHeader {
            event_id: self.event_id,
            ts_ms: self.clock(self.now).as_millis() as u64,
        }
    }

    /// Tells the client what was not as it should be.
    fn refuse(&mut self, code: &'static str, message: &str, retry_after: Option<u32>) {
        self.send(&ServerEvent::Error {
            code,
            message,
            retry_after,
            request_id: None,
        });
    }

    /// Keeps an error for the diagnostics.
    fn note(&mut self, error: &str) {
        if self.errors.len() < 32 {
            self.errors.push(error.to_owned());
        }
    }

    /// Time since the call was connected.
    fn clock(&self, at: Time) -> Duration {
        self.origin.map_or(Duration::ZERO, |origin| at - origin)
    }

    /// The position of the sample clock at `at`.
    fn position(&self, at: Time) -> u64 {
        crate::time::Samples::in_duration(self.clock(at)).0
    }

    /// The first time at which the sample clock has reached `position`.
    fn time_of(&self, position: u64) -> Time {
        let micros = (position * 1_000_000).div_ceil(u64::from(RATE));
        self.origin
            .map_or(Time::NEVER, |origin| origin + Duration::from_micros(micros))
    }

    fn new_turn_id(&mut self) -> String {
        self.turn_ids += 1;
        format!("turn_{}", self.turn_ids)
    }

    fn tell_state(&mut self) {
        if self.ended || !self.started {
            return;
        }
        let state = match self.turn.state() {
            State::Ended(_) => return,
            _ if self.on_hold => AgentState::OnHold,
            State::Opening | State::Listening | State::Caller(_) => AgentState::Listening,
            State::Thinking { tool: true } => AgentState::Tool,
            State::Thinking { tool: false } => AgentState::Thinking,
            State::Agent | State::Closing(_) => AgentState::Speaking,
        };
        if self.agent_state != Some(state) {
            self.agent_state = Some(state);
            self.out.event(CallEvent::Agent(state));
        }
    }
}
