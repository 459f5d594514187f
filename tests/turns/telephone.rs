//! A call over the RTP leg on virtual time: packets in, packets out, scripted providers between.

use std::time::Duration;

use kit::tape::Recorder;
use kit::virtual_call::config;
use media::audio::{g711, tones};
use media::call::Call;
use media::call::input::{Gone, Input, Report};
use media::call::output::{AgentState, CallEvent, Output, Side};
use media::call::record::{EndReason, Role, Summary, Turn};
use media::config::{AgentConfig, CallConfig, Protocol};
use media::leg::RtpPacket;
use media::leg::rtp::RtpPlan;
use media::rtp::dtmf::{self, Event};
use media::rtp::sdp::{Codec, Flow};
use media::speech::script::Script;
use media::time::Time;

const ORIGIN: Time = Time::from_millis(5_000);

fn plan(flow: Flow) -> RtpPlan {
    RtpPlan {
        codec: Codec::Pcmu,
        payload_type: 0,
        events: Some(101),
        events_clock: 8_000,
        comfort_noise: None,
        heard: None,
        packet_ms: 20,
        most_bits: None,
        flow,
        ssrc: 7,
        sequence: 60_000,
        timestamp: 4_000_000_000,
    }
}

/// A telephone call: 20 ms of the caller each tick.
struct Telephone {
    call: Call,
    script: Script,
    tape: Recorder,
    now: Time,
    deadline: Time,
    tick: u64,
    sequence: u16,
    /// Timestamps and payloads that were sent, with their time.
    sent: Vec<(Time, u32, Vec<u8>)>,
    turns: Vec<Turn>,
    ended: Option<Summary>,
    states: Vec<AgentState>,
    recorded: [u64; 2],
}

impl Telephone {
    fn new(agent: AgentConfig) -> Self {
        Self::of(agent, Flow::SendRecv)
    }

    fn of(agent: AgentConfig, flow: Flow) -> Self {
        let config = CallConfig {
            protocol: Protocol::Rtp(plan(flow)),
            ..config(agent)
        };
        let mut line = Self {
            tape: Recorder::new(&config, ORIGIN, None),
            call: Call::new(config, ORIGIN, true),
            script: Script::default(),
            now: ORIGIN,
            deadline: Time::NEVER,
            tick: 0,
            sequence: 65_000,
            sent: Vec::new(),
            turns: Vec::new(),
            ended: None,
            states: Vec::new(),
            recorded: [0; 2],
        };
        line.give(Input::Connected);
        line
    }

    fn give(&mut self, input: Input<'_>) {
        self.tape.input(self.now, &input);
        self.call.handle(self.now, input);
        loop {
            let output = self.call.poll(self.now);
            self.tape.output(&output);
            self.script.react(self.now, &output);
            match output {
                Output::Rtp(packet) => {
                    self.sent
                        .push((self.now, packet.timestamp, packet.payload.to_vec()));
                }
                Output::Record { side, at, samples } => {
                    let end = at + samples.len() as u64;
                    let side = usize::from(side == Side::Agent);
                    assert!(at >= self.recorded[side], "sound stands on sound");
                    self.recorded[side] = end;
                }
                Output::Event(CallEvent::Turn(turn)) => self.turns.push(*turn),
                Output::Event(CallEvent::Agent(state)) => self.states.push(state),
                Output::Event(CallEvent::Ended(summary)) => self.ended = Some(*summary),
                Output::Text(text) => panic!("a telephone has no messages: {text}"),
                Output::Wait(at) => {
                    self.deadline = at;
                    return;
                }
                Output::Done => {
                    self.deadline = Time::NEVER;
                    return;
                }
                _ => {}
            }
        }
    }

    /// Plays the world up to then, without the caller.
    fn until(&mut self, until: Time) {
        loop {
            let answer = self.script.next().unwrap_or(Time::NEVER);
            let next = answer.min(self.deadline);
            if next > until {
                break;
            }
            self.now = self.now.max(next);
            match self.script.take_due(self.now) {
                Some(event) => self.give(Input::Speech(event)),
                None => self.give(Input::Timeout),
            }
        }
        self.now = until;
    }

    /// The caller's sound for so many ticks: `None` for a caller that sends nothing.
    fn caller(&mut self, ticks: u64, sound: Option<&[u8]>) {
        for _ in 0..ticks {
            self.tick += 1;
            self.until(ORIGIN + Duration::from_millis(20 * self.tick));
            if let Some(sound) = sound {
                let packet = self.packet(0, (self.tick * 160) as u32, sound);
                self.give(Input::Packet(packet));
            }
        }
    }

    fn packet<'a>(&mut self, payload_type: u8, timestamp: u32, payload: &'a [u8]) -> RtpPacket<'a> {
        self.sequence = self.sequence.wrapping_add(1);
        RtpPacket {
            payload_type,
            marker: false,
            sequence: self.sequence,
            timestamp,
            ssrc: 99,
            payload,
        }
    }

    fn key(&mut self, key: char) {
        let timestamp = (self.tick * 160) as u32;
        for step in 1..=6_u16 {
            let event = Event {
                number: dtmf::number(key).expect("a key"),
                end: step > 3,
                volume: 10,
                duration: 160 * step.min(4),
            };
            let payload = event.to_bytes();
            let packet = self.packet(101, timestamp, &payload);
            self.give(Input::Packet(packet));
            if step < 4 {
                self.caller(1, None);
            }
        }
    }
}

fn voice() -> Vec<u8> {
    let mut payload = vec![0; 160];
    g711::ulaw_encode(&tones::sine(8_000, 400.0, -12.0, 160), &mut payload);
    payload
}

const SILENCE: [u8; 160] = [0xff; 160];

fn agent() -> AgentConfig {
    AgentConfig {
        first_message: Some("Good morning.".to_owned()),
        ..AgentConfig::default()
    }
}

#[test]
fn a_caller_is_greeted_speaks_presses_keys_and_hangs_up() {
    let mut line = Telephone::new(agent());
    line.caller(150, Some(&SILENCE));
    line.caller(50, Some(&voice()));
    line.caller(300, Some(&SILENCE));
    line.key('7');
    line.key('#');
    line.caller(300, Some(&SILENCE));
    line.give(Input::Gone(Gone::Closed));
    let summary = line.ended.as_ref().expect("it is over");
    assert_eq!(summary.reason, EndReason::CallerHangup);
    let said: Vec<(Role, &str)> = line
        .turns
        .iter()
        .map(|turn| (turn.role, turn.text.as_str()))
        .collect();
    assert_eq!(said[0], (Role::Assistant, "Good morning."));
    assert!(
        matches!(said[1], (Role::User, words) if !words.is_empty()),
        "{said:?}"
    );
    assert_eq!(said[2].0, Role::Assistant);
    assert!(said.contains(&(Role::User, "7#")), "{said:?}");
    // One stream, in real time, from the first packet to the last.
    let (_, first, _) = line.sent[0];
    for ((before, mark, payload), (after, next, _)) in line.sent.iter().zip(&line.sent[1..]) {
        assert_eq!(payload.len(), 160);
        assert_eq!(next.wrapping_sub(*mark), 160, "at {before:?}");
        let clock = after.since(ORIGIN).as_micros() as u64 * 8 / 1_000;
        let ahead = i64::from(next.wrapping_sub(first)) - clock as i64;
        // By a frame, and by as much as it goes ahead to keep the caller's packets company.
        assert!(
            (-160..=160 + 192).contains(&ahead),
            "{ahead} units ahead at {after:?}"
        );
    }
    let media = summary.media.expect("packets were counted");
    assert_eq!((media.lost, media.late, media.duplicates), (0, 0, 0));
    let length = summary.duration_ms * 16;
    assert!(
        line.recorded[0].abs_diff(length) <= 640,
        "{:?} of {length}",
        line.recorded
    );
}

#[test]
fn a_key_that_signalling_told_is_a_key() {
    let mut line = Telephone::new(agent());
    line.caller(250, Some(&SILENCE));
    line.give(Input::Key('8'));
    line.caller(10, Some(&SILENCE));
    line.give(Input::Key('#'));
    line.caller(300, Some(&SILENCE));
    line.give(Input::Gone(Gone::Closed));
    let user = line.turns.iter().find(|turn| turn.role == Role::User);
    assert_eq!(user.expect("a turn").text, "8#");
}

#[test]
fn a_key_that_comes_as_an_event_and_in_signalling_is_one_press() {
    for first in [true, false] {
        let mut line = Telephone::new(agent());
        line.caller(250, Some(&SILENCE));
        for key in ['8', '8', '#'] {
            if first {
                line.give(Input::Key(key));
                line.caller(1, None);
                line.key(key);
            } else {
                line.key(key);
                line.give(Input::Key(key));
            }
            line.caller(20, Some(&SILENCE));
        }
        line.caller(300, Some(&SILENCE));
        line.give(Input::Gone(Gone::Closed));
        let users: Vec<&Turn> = line
            .turns
            .iter()
            .filter(|turn| turn.role == Role::User)
            .collect();
        assert_eq!(users.len(), 1, "{users:?}");
        assert_eq!(users[0].text, "88#");
    }
}

#[test]
fn the_wait_behind_an_overtaken_packet_is_told() {
    let mut line = Telephone::new(agent());
    line.caller(150, Some(&SILENCE));
    // Four packets come late, by 60 ms at most, so that the next missing one is waited for.
    line.caller(4, None);
    for back in [3, 2, 1, 0] {
        let late = line.packet(0, ((line.tick - back) * 160) as u32, &SILENCE);
        line.give(Input::Packet(late));
    }
    line.caller(50, Some(&voice()));
    // The last packet but one of the voice comes after the last, and after the silence behind it.
    let voice = voice();
    line.caller(1, None);
    let overtaken = line.packet(0, (line.tick * 160) as u32, &voice);
    line.caller(1, Some(&voice));
    line.caller(1, Some(&SILENCE));
    line.until(line.now + Duration::from_millis(15));
    line.give(Input::Packet(overtaken));
    line.caller(300, Some(&SILENCE));
    line.give(Input::Gone(Gone::Closed));
    let answer = line.turns.last().expect("the agent answered");
    let latency = answer.latency.as_ref().expect("it answers a voice");
    // The resampler's delay carries the end of the voice into the packet of silence, which waited 15 ms.
    assert_eq!(latency.jitter_buffer_ms, 15, "{:?}", line.turns);
    let media = line.ended.as_ref().and_then(|ended| ended.media);
    assert_eq!(media.map(|media| (media.lost, media.late)), Some((0, 0)));
}

#[test]
fn a_held_call_says_nothing_and_goes_on_after() {
    let mut line = Telephone::new(agent());
    line.caller(150, Some(&SILENCE));
    line.give(Input::Media(plan(Flow::RecvOnly)));
    let before = line.sent.len();
    // Music on hold is not said to the agent.
    line.caller(1_000, Some(&voice()));
    assert_eq!(line.sent.len(), before);
    assert_eq!(line.turns.len(), 1, "{:?}", line.turns);
    assert!(line.states.contains(&AgentState::OnHold));
    line.give(Input::Media(plan(Flow::SendRecv)));
    line.caller(50, Some(&SILENCE));
    line.caller(50, Some(&voice()));
    line.caller(300, Some(&SILENCE));
    line.give(Input::Gone(Gone::Closed));
    let roles: Vec<Role> = line.turns.iter().map(|turn| turn.role).collect();
    assert_eq!(roles, [Role::Assistant, Role::User, Role::Assistant]);
    // The caller's words stand where they were said, the hold and all.
    let start = line.turns[1].start_ms.expect("timestamps tell the place");
    assert!(start.abs_diff(24_000) <= 40, "{start}");
    // What was not listened to is not lost.
    let media = line.ended.as_ref().and_then(|summary| summary.media);
    assert_eq!(media.map(|media| (media.lost, media.late)), Some((0, 0)));
}

#[test]
fn a_caller_who_suppresses_silence_is_there_while_its_telephone_reports() {
    let report = || {
        Input::Report(Report {
            round_trip_ms: None,
            lost: 0,
        })
    };
    let mut line = Telephone::new(agent());
    line.caller(100, Some(&SILENCE));
    // Five seconds each.
    for _ in 0..4 {
        line.caller(250, None);
        line.give(report());
    }
    assert!(line.ended.is_none());
    line.caller(740, None);
    assert!(line.ended.is_none());
    line.caller(20, None);
    let summary = line.ended.as_ref().expect("it is over");
    assert_eq!(summary.reason, EndReason::MediaTimeout);
}

#[test]
fn events_noise_and_strays_of_other_sources_leave_the_turns_their_times() {
    let mut line = Telephone::new(agent());
    line.caller(150, Some(&SILENCE));
    let voice = voice();
    for tick in 0..50_u16 {
        line.caller(1, Some(&voice));
        // A flash of the hook is an event and no key (RFC 4733 section 3.2).
        let flash = Event {
            number: 16,
            end: tick % 10 > 3,
            volume: 10,
            duration: 160 * (tick % 10 + 1).min(5),
        };
        let flash = flash.to_bytes();
        let beside = |payload_type, ssrc, payload| RtpPacket {
            payload_type,
            marker: false,
            sequence: tick,
            timestamp: u32::from(tick / 10) * 1_600,
            ssrc,
            payload,
        };
        line.give(Input::Packet(beside(101, 1_234, &flash)));
        line.give(Input::Packet(beside(13, 77, &[60])));
        if tick % 20 == 7 {
            line.give(Input::Packet(beside(0, 5_000 + u32::from(tick), &voice)));
        }
    }
    line.caller(300, Some(&SILENCE));
    let turn = line.turns.iter().find(|turn| turn.role == Role::User);
    let start = turn.expect("a turn of the caller").start_ms;
    let start = start.expect("timestamps tell the place");
    assert!(start.abs_diff(3_000) <= 40, "{start}");
    line.give(Input::Gone(Gone::Closed));
    let media = line.ended.as_ref().and_then(|summary| summary.media);
    assert_eq!(
        media.map(|media| (media.packets, media.lost)),
        Some((500, 0))
    );
}

#[test]
fn a_call_that_begins_held_is_greeted_when_it_is_resumed() {
    let mut line = Telephone::of(agent(), Flow::Inactive);
    line.caller(1_000, None);
    assert!(line.ended.is_none(), "{:?}", line.ended);
    assert_eq!(line.states, [AgentState::OnHold]);
    assert!(line.sent.is_empty() && line.turns.is_empty());
    line.give(Input::Media(plan(Flow::SendRecv)));
    line.caller(150, Some(&SILENCE));
    assert!(!line.sent.is_empty());
    assert_eq!(line.turns.len(), 1, "{:?}", line.turns);
    assert_eq!(line.turns[0].text, "Good morning.");
    line.give(Input::Gone(Gone::Closed));
}

#[test]
fn a_caller_whose_packets_stop_is_given_up() {
    let mut line = Telephone::new(agent());
    line.caller(100, Some(&SILENCE));
    line.caller(740, None);
    assert!(line.ended.is_none());
    line.caller(20, None);
    let summary = line.ended.as_ref().expect("it is over");
    assert_eq!(summary.reason, EndReason::MediaTimeout);
    assert_eq!(
        summary.errors,
        ["no packet came from the caller for too long"]
    );
    let mut silent = Telephone::new(agent());
    silent.caller(1_490, None);
    assert!(silent.ended.is_none());
    silent.caller(20, None);
    assert!(silent.ended.is_some());
}
