//! What clients that ask for it (`events=vad`) are told of the caller's voice.

use super::Call;
use crate::frame::FRAME;
use crate::leg::ws::ServerEvent;
use crate::time::Samples;

impl Call {
    /// Tells that the caller's voice has begun or stopped, whatever made it known: a frame, or the time that went by
    /// without one.
    pub(super) fn tell_voice(&mut self) {
        let speaking = self.turn.voice_on();
        if speaking == self.told_voice {
            return;
        }
        self.told_voice = speaking;
        if !self.config.events.vad || self.ended {
            return;
        }
        // A voice begins with the frame that was heard last.
        let begins = self.last_voice_at.saturating_sub(FRAME as u64);
        let at_ms = Samples(if speaking { begins } else { self.last_voice_at }).ms();
        self.send(&ServerEvent::Vad { speaking, at_ms });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::audio::opus::Encoder;
    use crate::audio::tones::sine;
    use crate::call::Call;
    use crate::call::input::Input;
    use crate::call::output::Output;
    use crate::config::{
        AgentConfig, AudioFormat, CallConfig, Direction, OptionalEvents, Protocol, VadKind,
    };
    use crate::frame::FRAME;
    use crate::leg::RtpPacket;
    use crate::leg::webrtc::OPUS;
    use crate::peer::PeerState;
    use crate::time::{RATE, Time};
    use crate::vad::Vad;

    const START: Time = Time::from_millis(1_000);

    /// A call over WebRTC whose detector says what it was told, on its own time.
    struct Bed {
        call: Call,
        now: Time,
        deadline: Time,
        told: Vec<(bool, u64)>,
    }

    impl Bed {
        fn new(vad: bool) -> Self {
            let config = CallConfig {
                session_id: "s".to_owned(),
                agent_id: "a".to_owned(),
                direction: Direction::Inbound,
                protocol: Protocol::WebRtc,
                audio_format: AudioFormat::Opus48000,
                agent: AgentConfig::default(),
                recording: false,
                events: OptionalEvents {
                    vad,
                    ..OptionalEvents::default()
                },
                vad: VadKind::Energy,
                lead_ms: 400,
            };
            // Voice from 1 to 2 s, and from 4 to 4.5 s.
            let spans = vec![(16_000, 32_000), (64_000, 72_000)];
            let mut bed = Self {
                call: Call::with_vad(config, START, true, Vad::scripted(spans)),
                now: START,
                deadline: Time::NEVER,
                told: Vec::new(),
            };
            bed.give(Input::Peer(PeerState::New));
            bed.give(Input::Peer(PeerState::Connected));
            bed
        }

        fn give(&mut self, input: Input<'_>) {
            self.call.handle(self.now, input);
            loop {
                match self.call.poll(self.now) {
                    Output::Text(text) => {
                        let message: serde_json::Value = serde_json::from_str(text).expect("JSON");
                        if message["type"] == "vad" {
                            let speaking = message["speaking"].as_bool().expect("a flag");
                            let at_ms = message["at_ms"].as_u64().expect("a time");
                            self.told.push((speaking, at_ms));
                        }
                    }
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

        fn until(&mut self, until: Time) {
            while self.deadline <= until {
                self.now = self.now.max(self.deadline);
                self.give(Input::Timeout);
            }
            self.now = until;
        }

        /// So many frames of sound, each `late` ms after its time.
        fn frames(&mut self, frames: std::ops::Range<u32>, late: u64) {
            let mut encoder = Encoder::new(0).expect("an encoder");
            let sound = sine(RATE, 400.0, -12.0, FRAME);
            let sound = sound.first_chunk().expect("a frame");
            for frame in frames {
                let mut payload = Vec::new();
                let sent = encoder.encode(sound, &mut payload);
                assert_eq!(sent.ok(), Some(true));
                self.until(START + Duration::from_millis(20 * u64::from(frame) + late));
                self.give(Input::Packet(RtpPacket {
                    payload_type: OPUS,
                    marker: false,
                    sequence: frame as u16,
                    timestamp: frame * 960,
                    ssrc: 7,
                    payload: &payload,
                }));
            }
        }
    }

    #[test]
    fn each_voice_has_a_beginning_and_an_end() {
        for late in [0, 3, 11, 19] {
            let mut bed = Bed::new(true);
            bed.frames(0..300, late);
            let flags: Vec<bool> = bed.told.iter().map(|(speaking, _)| *speaking).collect();
            assert_eq!(flags, [true, false, true, false], "{late}");
            let spoken = bed.told[1].1 - bed.told[0].1;
            assert!(spoken.abs_diff(1_000) <= 80, "{:?}", bed.told);
        }
    }

    #[test]
    fn a_voice_that_ends_with_the_packets_has_an_end_too() {
        let mut bed = Bed::new(true);
        // Nothing more comes in the midst of the first.
        bed.frames(0..80, 3);
        bed.until(START + Duration::from_secs(4));
        let flags: Vec<bool> = bed.told.iter().map(|(speaking, _)| *speaking).collect();
        assert_eq!(flags, [true, false]);
    }

    #[test]
    fn who_did_not_ask_is_not_told() {
        let mut bed = Bed::new(false);
        bed.frames(0..200, 3);
        assert_eq!(bed.told, []);
    }
}
