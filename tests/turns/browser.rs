//! A call over the WebRTC leg on virtual time: Opus packets in, scripted providers behind.

use std::time::Duration;

use kit::tape::Recorder;
use kit::virtual_call::config;
use media::audio::{opus, tones};
use media::call::Call;
use media::call::input::Input;
use media::call::output::{Output, Side};
use media::config::{AudioFormat, CallConfig, Protocol};
use media::frame::FRAME;
use media::leg::RtpPacket;
use media::leg::webrtc::{OPUS, WebRtcLeg};
use media::peer::PeerState;
use media::speech::script::Script;
use media::time::Time;
use media::vad::Vad;
use serde_json::Value;

use crate::rows::{agent, heard};

const ORIGIN: Time = Time::from_millis(5_000);

fn over_webrtc() -> CallConfig {
    CallConfig {
        protocol: Protocol::WebRtc,
        audio_format: AudioFormat::Opus48000,
        ..config(agent())
    }
}

/// When the turn of a caller who speaks from 1 s to 2 s is over, ms. Their last packet but one is sent at 2.1 s, the
/// last holds what `last` makes of an ordinary one; then nothing comes.
fn committed(last: impl FnOnce(&mut Vec<u8>)) -> u64 {
    let config = over_webrtc();
    let spans = vec![(16_000, 32_000)];
    let mut tape = Recorder::new(&config, ORIGIN, Some(spans.clone()));
    let mut call = Call::with_vad(config, ORIGIN, true, Vad::scripted(spans));
    let (mut script, mut deadline) = (heard(&["What time is it?"]), Time::NEVER);
    let mut committed = None;
    let mut give = |script: &mut Script, now: Time, input: Input<'_>| {
        tape.input(now, &input);
        call.handle(now, input);
        loop {
            let output = call.poll(now);
            tape.output(&output);
            script.react(now, &output);
            match output {
                Output::Text(text) => {
                    let message: Value = serde_json::from_str(text).unwrap();
                    if message["type"] == "user_transcript" && message["is_final"] == true {
                        committed.get_or_insert(now);
                    }
                }
                Output::Wait(at) => return at,
                Output::Done => return Time::NEVER,
                _ => {}
            }
        }
    };
    give(&mut script, ORIGIN, Input::Peer(PeerState::Connected));
    let mut browser = WebRtcLeg::new(5).unwrap();
    let sound: [i16; FRAME] = tones::sine(16_000, 400.0, -12.0, FRAME).try_into().unwrap();
    let mut last = Some(last);
    for frame in 1..=200_u64 {
        let until = ORIGIN + Duration::from_millis(20 * frame);
        loop {
            let next = script.next().unwrap_or(Time::NEVER).min(deadline);
            if next > until {
                break;
            }
            deadline = match script.take_due(next) {
                Some(event) => give(&mut script, next, Input::Speech(event)),
                None => give(&mut script, next, Input::Timeout),
            };
        }
        let mut payload = Vec::new();
        let sent = browser.audio(&mut payload, &sound, (frame - 1) * FRAME as u64, false);
        if frame == 106
            && let Some(last) = last.take()
        {
            last(&mut payload);
        }
        if frame > 106 {
            continue;
        }
        let packet = RtpPacket {
            payload_type: OPUS,
            marker: false,
            sequence: frame as u16,
            timestamp: sent.unwrap().0,
            ssrc: 9,
            payload: &payload,
        };
        deadline = give(&mut script, until, Input::Packet(packet));
    }
    (committed.unwrap() - ORIGIN).as_millis() as u64
}

#[test]
fn a_sender_that_says_that_it_falls_silent_is_answered_as_one_that_sends_silence() {
    assert_eq!(committed(|packet| packet.truncate(1)), sooner(2000 + 400));
}

#[test]
fn a_stall_costs_no_more_than_its_grace() {
    // The recogniser takes 50 ms from then on.
    assert_eq!(committed(|_| ()), sooner(2120 + 600 + 50));
}

/// So many ms less the delay of the codec: what came at a time was said before.
fn sooner(ms: u64) -> u64 {
    (Duration::from_millis(ms) - opus::DELAY).as_millis() as u64
}

/// A browser whose sound is recorded, whatever it does to its stream.
struct Sender {
    call: Call,
    script: Script,
    deadline: Time,
    payload: Vec<u8>,
    /// Source, number and timestamp of the next packet.
    stream: (u32, u16, u32),
    /// Frames of 20 ms that have passed.
    frames: u64,
    /// Where the recording of its side ends, samples.
    recorded: u64,
}

impl Sender {
    /// Numbers and timestamps go round soon.
    fn new() -> Self {
        let sound: [i16; FRAME] = tones::sine(16_000, 400.0, -12.0, FRAME).try_into().unwrap();
        let mut payload = Vec::new();
        let mut leg = WebRtcLeg::new(5).unwrap();
        leg.audio(&mut payload, &sound, 0, false).unwrap();
        let mut sender = Self {
            call: Call::with_vad(over_webrtc(), ORIGIN, true, Vad::scripted(Vec::new())),
            script: heard(&[]),
            deadline: Time::NEVER,
            payload,
            stream: (9, u16::MAX - 35, u32::MAX - 50_000),
            frames: 0,
            recorded: 0,
        };
        sender.input(ORIGIN, Input::Peer(PeerState::Connected));
        sender
    }

    fn packet(&mut self, (ssrc, sequence, timestamp): (u32, u16, u32)) {
        let payload = std::mem::take(&mut self.payload);
        let packet = RtpPacket {
            payload_type: OPUS,
            marker: false,
            sequence,
            timestamp,
            ssrc,
            payload: &payload,
        };
        self.input(self.now(), Input::Packet(packet));
        self.payload = payload;
    }

    fn input(&mut self, now: Time, input: Input<'_>) {
        self.call.handle(now, input);
        loop {
            let output = self.call.poll(now);
            self.script.react(now, &output);
            match output {
                Output::Record {
                    side: Side::Caller,
                    at,
                    samples,
                } => {
                    assert!(at >= self.recorded, "sound stands on sound");
                    self.recorded = at + samples.len() as u64;
                }
                Output::Wait(at) => {
                    self.deadline = at;
                    return;
                }
                Output::Done => panic!("the call is over"),
                _ => {}
            }
        }
    }

    /// Time goes by in which the sender says nothing.
    fn pause(&mut self, frames: u32) {
        self.frames += u64::from(frames);
        self.stream.2 = self.stream.2.wrapping_add(960 * frames);
        let until = self.now();
        loop {
            let next = self.script.next().unwrap_or(Time::NEVER).min(self.deadline);
            if next > until {
                return;
            }
            match self.script.take_due(next) {
                Some(event) => self.input(next, Input::Speech(event)),
                None => self.input(next, Input::Timeout),
            }
        }
    }

    /// Speaks for so long without a break.
    fn speak(&mut self, frames: u32) {
        for _ in 0..frames {
            let packet = self.stream;
            self.pause(1);
            self.stream.1 = self.stream.1.wrapping_add(1);
            self.packet(packet);
        }
    }

    fn now(&self) -> Time {
        ORIGIN + Duration::from_millis(20 * self.frames)
    }

    /// Milliseconds by which the recording is shorter or longer than the stream.
    fn error(&self) -> u64 {
        (self.recorded / 16).abs_diff(20 * self.frames)
    }
}

/// What a sender does between two stretches of sound.
type Doing = fn(&mut Sender);

#[test]
fn the_recording_is_as_long_as_a_stream_that_jumps_pauses_and_begins_anew() {
    let mut sender = Sender::new();
    sender.speak(60);
    assert_eq!(sender.error(), 0, "numbers and timestamps went round");
    let doings: [(&str, Doing); 9] = [
        ("packets come twice and thrice", |sender| {
            let (ssrc, sequence, timestamp) = sender.stream;
            for back in [1, 1, 2] {
                let again = (
                    ssrc,
                    sequence.wrapping_sub(back),
                    timestamp.wrapping_sub(960 * u32::from(back)),
                );
                sender.packet(again);
            }
        }),
        ("another source", |sender| {
            sender.stream = (10, 40_000, 77_777_777)
        }),
        ("an hour ahead", |sender| {
            sender.stream.2 = sender.stream.2.wrapping_add(3600 * 48_000);
        }),
        ("and back by more", |sender| {
            sender.stream.2 = sender.stream.2.wrapping_sub(1_000_000_000);
        }),
        ("a silence in which nothing is sent", |sender| {
            sender.pause(60)
        }),
        ("another source after a silence", |sender| {
            sender.pause(60);
            sender.stream = (11, 7, 7);
        }),
        ("a packet a second", |sender| {
            for _ in 0..5 {
                sender.pause(49);
                sender.speak(1);
            }
        }),
        // Of numbers from elsewhere nothing tells the first from a stray: it is not believed, and lost.
        ("numbers far ahead", |sender| {
            sender.stream.1 = sender.stream.1.wrapping_add(20_000);
        }),
        ("numbers from long before", |sender| {
            sender.stream.1 = sender.stream.1.wrapping_sub(20_000);
        }),
    ];
    for (what, does) in doings {
        let before = sender.error();
        does(&mut sender);
        sender.speak(30);
        let after = sender.error();
        assert!(after <= before + 20, "{what}: {before} ms, then {after} ms");
    }
}
