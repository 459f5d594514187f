//! One call, over telephony or WebRTC, on virtual time, driven as the shell drives it: a message or
//! packet of 20 ms in, and every output taken. Providers are scripted; nothing sleeps, and an hour takes what it costs.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use media::audio::g711::{alaw_encode, ulaw_encode};
use media::audio::g722;
use media::audio::opus::Encoder;
use media::audio::tones::noise;
use media::call::input::Input;
use media::call::output::{Output, RecogniserCommand};
use media::call::{Call, Scratch};
use media::config::{
    AgentConfig, AudioFormat, CallConfig, Direction, OptionalEvents, Protocol, VadKind,
};
use media::leg::RtpPacket;
use media::leg::rtp::RtpPlan;
use media::leg::webrtc::OPUS;
use media::peer::PeerState;
use media::rtp::sdp::{Codec, Flow};
use media::speech::script::Script;
use media::time::Time;

use crate::allocations;

/// What goes on in the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scene {
    /// Nobody speaks; the line has a noise floor of -50 dBFS.
    Quiet,
    /// The agent speaks, over the same floor.
    Agent,
    /// The caller speaks: loud noise with short stops, which the energy detector takes for a voice.
    Caller,
    /// Both in turn: of each 12 s the caller speaks for 2, and is answered.
    Conversation,
}

/// Ticks for which a scene lasts: 40 s.
pub const LIFE: u32 = 2_000;

/// Ticks before a scene is steady: its turn has begun and its buffers have grown.
const WARM_UP: u32 = 150;

/// 0.5 s of messages, again and again.
const LOOP: usize = 25;

/// Turns of a conversation, in messages: one of the caller's in each 12 s, 2 s long.
const TURN: usize = 600;
const SPOKEN: usize = 100;

thread_local! {
    /// What the thread's calls share.
    static LENT: RefCell<Scratch> = RefCell::new(Scratch::with_room());
}

/// A call in its scene.
pub struct Session {
    call: Call,
    script: Script,
    carrier: Carrier,
    /// Messages or packets given so far.
    given: usize,
    sequence: u16,
    now: Time,
    deadline: Time,
    /// What came out so far.
    pub sent: Sent,
}

/// What the caller sends, again and again.
#[derive(Clone)]
enum Carrier {
    Messages(Rc<[String]>),
    /// Payloads; an empty one is not sent.
    Packets(Rc<[Vec<u8>]>),
    /// Payloads of a telephone, and how far timestamps go on with each.
    Line(Rc<[Vec<u8>]>, u32),
}

/// What a call sent and handed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Messages to the socket or packets, and their bytes.
    pub messages: u64,
    pub bytes: u64,
    /// Samples to the recogniser and to the recording.
    pub heard: u64,
    pub recorded: u64,
    /// Questions to providers and answers from them, sound to the recogniser apart.
    pub providers: u64,
}

impl Session {
    /// A telephony call that is warm: its scene goes on for [`LIFE`] ticks.
    pub fn new(scene: Scene, vad: VadKind) -> Self {
        let messages = Carrier::Messages(messages(scene));
        let mut session = Self::begin(scene, vad, Protocol::Telco, AudioFormat::Ulaw8000, messages);
        session.give(Input::Connected);
        session.give(Input::Text(r#"{"event":"start","streamSid":"MZ0123456789abcdef","start":{"streamSid":"MZ0123456789abcdef","customParameters":{}}}"#));
        session.warmed()
    }

    /// The same over WebRTC, behind its encryption: Opus packets both ways.
    pub fn over_webrtc(scene: Scene, vad: VadKind) -> Self {
        let packets = Carrier::Packets(packets(scene));
        let mut session = Self::begin(
            scene,
            vad,
            Protocol::WebRtc,
            AudioFormat::Opus48000,
            packets,
        );
        session.give(Input::Peer(PeerState::New));
        session.give(Input::Peer(PeerState::Connected));
        session.warmed()
    }

    /// The same over a telephone line, behind its encryption: G.711 both ways, and silence while the
    /// agent says nothing.
    pub fn over_rtp(scene: Scene, vad: VadKind) -> Self {
        Self::over_rtp_in(Codec::Pcmu, scene, vad)
    }

    /// The same in another codec.
    pub fn over_rtp_in(codec: Codec, scene: Scene, vad: VadKind) -> Self {
        let line = match codec {
            Codec::Pcmu | Codec::Pcma => frames(scene, 160)
                .map(|(_, samples)| g711(codec, &samples))
                .collect(),
            Codec::G722 => {
                let mut encoder = g722::Encoder::default();
                let coded = frames(scene, 320).map(|(_, samples)| {
                    let mut payload = Vec::new();
                    encoder.encode(&samples, &mut payload);
                    payload
                });
                coded.collect()
            }
            Codec::Opus => packets(scene),
        };
        let plan = RtpPlan {
            codec,
            payload_type: 0,
            events: Some(101),
            events_clock: codec.clock(),
            comfort_noise: None,
            heard: None,
            packet_ms: 20,
            most_bits: None,
            flow: Flow::SendRecv,
            ssrc: 7,
            sequence: 1,
            timestamp: 1,
        };
        let line = Carrier::Line(line, codec.clock() / 50);
        let mut session = Self::begin(scene, vad, Protocol::Rtp(plan), AudioFormat::Ulaw8000, line);
        session.give(Input::Connected);
        session.warmed()
    }

    fn warmed(mut self) -> Self {
        for _ in 0..WARM_UP {
            self.tick();
        }
        self
    }

    fn begin(
        scene: Scene,
        vad: VadKind,
        protocol: Protocol,
        audio_format: AudioFormat,
        carrier: Carrier,
    ) -> Self {
        let agent = AgentConfig {
            first_message: (scene == Scene::Agent).then(|| greeting(LIFE + 2 * WARM_UP)),
            idle_check_in_after_secs: 3_600.0,
            max_duration_seconds: 7_200,
            ..AgentConfig::default()
        };
        let config = CallConfig {
            session_id: "5e551011-0000-4000-8000-000000000001".to_owned(),
            agent_id: "a9e10000-0000-4000-8000-000000000001".to_owned(),
            direction: Direction::Inbound,
            protocol,
            audio_format,
            agent,
            recording: true,
            events: OptionalEvents::default(),
            vad,
            lead_ms: 100,
        };
        let now = Time::from_millis(1_000);
        Self {
            call: Call::new(config, now, true),
            script: Script::default(),
            carrier,
            given: 0,
            sequence: 0,
            now,
            deadline: Time::NEVER,
            sent: Sent::default(),
        }
    }

    /// The next 20 ms: answers and deadlines up to then, in order, and one message.
    pub fn tick(&mut self) {
        let until = self.now + Duration::from_millis(20);
        self.run_to(until);
        self.now = until;
        match self.carrier.clone() {
            Carrier::Messages(messages) => {
                self.give(Input::Text(&messages[self.given % messages.len()]));
            }
            Carrier::Line(packets, step) => {
                let payload = &packets[self.given % packets.len()];
                if !payload.is_empty() {
                    self.give(Input::Packet(RtpPacket {
                        payload_type: 0,
                        marker: false,
                        sequence: self.sequence,
                        timestamp: (self.given as u32).wrapping_mul(step),
                        ssrc: 1,
                        payload,
                    }));
                    self.sequence = self.sequence.wrapping_add(1);
                }
            }
            Carrier::Packets(packets) => {
                let payload = &packets[self.given % packets.len()];
                if !payload.is_empty() {
                    self.give(Input::Packet(RtpPacket {
                        payload_type: OPUS,
                        marker: false,
                        sequence: self.sequence,
                        timestamp: (self.given as u32).wrapping_mul(960),
                        ssrc: 1,
                        payload,
                    }));
                    self.sequence = self.sequence.wrapping_add(1);
                }
            }
        }
        self.given += 1;
    }

    /// As [`tick`](Self::tick); says how often the call allocated, or `None` if a provider was asked
    /// or answered: that happens once a sentence and not once a frame.
    pub fn counted_tick(&mut self) -> Option<u64> {
        let before = self.sent.providers;
        let count = allocations(|| self.tick());
        (self.sent.providers == before).then_some(count)
    }

    fn run_to(&mut self, until: Time) {
        loop {
            let answer = self.script.next().unwrap_or(Time::NEVER);
            let next = answer.min(self.deadline);
            if next > until {
                return;
            }
            self.now = self.now.max(next);
            match self.script.take_due(self.now) {
                Some(event) => {
                    self.sent.providers += 1;
                    self.give(Input::Speech(event));
                }
                None => self.give(Input::Timeout),
            }
        }
    }

    fn give(&mut self, input: Input<'_>) {
        LENT.with_borrow_mut(|lent| self.call.exchange(lent));
        self.take_all(input);
        LENT.with_borrow_mut(|lent| self.call.exchange(lent));
    }

    fn take_all(&mut self, input: Input<'_>) {
        self.call.handle(self.now, input);
        loop {
            let output = self.call.poll(self.now);
            self.script.react(self.now, &output);
            match output {
                Output::Text(text) => {
                    self.sent.messages += 1;
                    self.sent.bytes += text.len() as u64;
                }
                Output::Packet { payload, .. } => {
                    self.sent.messages += 1;
                    self.sent.bytes += payload.len() as u64;
                }
                Output::Rtp(packet) => {
                    self.sent.messages += 1;
                    self.sent.bytes += packet.payload.len() as u64;
                }
                Output::Recogniser(RecogniserCommand::Audio(_, samples)) => {
                    self.sent.heard += samples.len() as u64;
                }
                Output::Recogniser(_) | Output::Llm(_) | Output::Synthesiser(_) => {
                    self.sent.providers += 1
                }
                Output::Record { samples, .. } => self.sent.recorded += samples.len() as u64,
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
}

/// Words that the scripted voice speaks for so many ticks: 60 ms a character.
fn greeting(ticks: u32) -> String {
    "The weather is fine. ".repeat(ticks as usize / (3 * 21) + 1)
}

/// The caller's sound, frame by frame, `length` samples each.
fn frames(scene: Scene, length: usize) -> impl Iterator<Item = (usize, Vec<i16>)> {
    let count = if scene == Scene::Conversation {
        TURN
    } else {
        LOOP
    };
    (0..count).map(move |at| {
        // Short stops within: a voice has them.
        let voiced = at % LOOP >= 4;
        let loud = match scene {
            Scene::Caller => voiced,
            Scene::Conversation => voiced && at >= TURN - SPOKEN,
            Scene::Quiet | Scene::Agent => false,
        };
        let level = if loud { -20.0 } else { -50.0 };
        (at, noise(at as u64, level, length))
    })
}

/// The payloads of a caller over WebRTC.
fn packets(scene: Scene) -> Rc<[Vec<u8>]> {
    let Ok(mut encoder) = Encoder::new(5) else {
        return Rc::new([Vec::new()]);
    };
    frames(scene, 320)
        .map(|(_, samples)| {
            let mut payload = Vec::new();
            let frame = std::array::from_fn(|i| samples[i]);
            // Nothing was appended when it fails or when nothing is to be sent.
            let _ = encoder.encode(&frame, &mut payload);
            payload
        })
        .collect()
}

fn ulaw(samples: &[i16]) -> Vec<u8> {
    g711(Codec::Pcmu, samples)
}

fn g711(codec: Codec, samples: &[i16]) -> Vec<u8> {
    let mut bytes = vec![0; samples.len()];
    if codec == Codec::Pcma {
        alaw_encode(samples, &mut bytes);
    } else {
        ulaw_encode(samples, &mut bytes);
    }
    bytes
}

/// Media messages of a vendor, as the common telephony protocol has them.
fn messages(scene: Scene) -> Rc<[String]> {
    frames(scene, 160)
        .map(|(at, samples)| {
            let payload = base64_simd::STANDARD.encode_to_string(ulaw(&samples));
            format!(
                r#"{{"event":"media","sequenceNumber":"{at}","media":{{"track":"inbound","chunk":"{at}","payload":"{payload}"}},"streamSid":"MZ0123456789abcdef"}}"#
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In the hour that the bench plays, the caller is answered 300 times.
    #[test]
    fn a_conversation_is_one() {
        let mut session = Session::new(Scene::Conversation, VadKind::Energy);
        let before = session.sent;
        for _ in 0..10 * TURN {
            session.tick();
        }
        let heard = session.sent.heard - before.heard;
        assert!(heard >= 10 * 320 * SPOKEN as u64, "{heard} samples heard");
        let messages = session.sent.messages - before.messages;
        assert!(messages > 10 * 30, "{messages} messages of answers");
    }

    /// Each scene is what its name says, to its last tick: a bench of anything else tells nothing.
    #[test]
    fn scenes_are_what_they_say() {
        for (scene, speaks, heard) in [
            (Scene::Quiet, false, false),
            (Scene::Agent, true, false),
            (Scene::Caller, false, true),
        ] {
            let mut session = Session::new(scene, VadKind::Energy);
            let before = session.sent;
            for _ in 0..LIFE {
                session.tick();
            }
            let ticks = u64::from(LIFE);
            let messages = session.sent.messages - before.messages;
            assert_eq!(messages >= ticks, speaks, "{scene:?}: {messages} messages");
            let samples = session.sent.heard - before.heard;
            assert_eq!(
                samples >= ticks * 320,
                heard,
                "{scene:?}: {samples} samples heard"
            );
            assert!(
                session.sent.recorded - before.recorded >= ticks * 320,
                "{scene:?}"
            );
        }
    }
}
