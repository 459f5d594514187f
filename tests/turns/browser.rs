//! A call over the WebRTC leg on virtual time: Opus packets in, scripted providers behind.

use std::time::Duration;

use kit::tape::Recorder;
use kit::virtual_call::config;
use media::audio::tones;
use media::call::Call;
use media::call::input::Input;
use media::call::output::Output;
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

/// When the turn of a caller who speaks from 1 s to 2 s is over, ms. Their last packet but one is sent at 2.1 s, the
/// last holds what `last` makes of an ordinary one; then nothing comes.
fn committed(last: impl FnOnce(&mut Vec<u8>)) -> u64 {
    let config = CallConfig {
        protocol: Protocol::WebRtc,
        audio_format: AudioFormat::Opus48000,
        ..config(agent())
    };
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
    assert_eq!(committed(|packet| packet.truncate(1)), 2000 + 400);
}

#[test]
fn a_stall_costs_no_more_than_its_grace() {
    // The recogniser takes 50 ms from then on.
    assert_eq!(committed(|_| ()), 2120 + 600 + 50);
}
