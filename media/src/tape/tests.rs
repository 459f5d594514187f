//! Tapes: round trip, replay, redaction, and junk.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::call::Call;
use crate::call::input::{EndRequest, Gone, Input, ToolOutcome};
use crate::call::output::{Output, SynthesiserCommand};
use crate::config::*;
use crate::speech::*;

fn config() -> CallConfig {
    CallConfig {
        session_id: "5e55".to_owned(),
        agent_id: "a".to_owned(),
        direction: Direction::Inbound,
        protocol: Protocol::Telco,
        audio_format: AudioFormat::Ulaw8000,
        agent: AgentConfig {
            system_prompt: "Be brief with Ada.".to_owned(),
            first_message: Some("Good morning. How can I help?".to_owned()),
            ..AgentConfig::default()
        },
        recording: true,
        events: OptionalEvents::default(),
        vad: VadKind::Energy,
        lead_ms: 100,
    }
}

/// Some seconds of a telco call, driven as the shell does it, onto a tape.
fn tape_of_a_call(recording: bool) -> Vec<u8> {
    let config = CallConfig {
        recording,
        ..config()
    };
    let start = Time::from_millis(77_000);
    let mut call = Call::new(config.clone(), start, true);
    let mut tape = TapeWriter::new(&config, start, true);
    let mut spoken = Vec::new();
    let mut serve = |now: Time, input: Input<'_>| {
        tape.input(now, &input);
        call.handle(now, input);
        loop {
            let output = call.poll(now);
            tape.output(&output);
            match output {
                Output::Synthesiser(SynthesiserCommand::Speak { reply, segment, .. }) => {
                    spoken.push((reply, segment))
                }
                Output::Wait(_) => {
                    tape.served();
                    break;
                }
                Output::Done => break,
                _ => {}
            }
        }
        std::mem::take(&mut spoken)
    };
    serve(start, Input::Connected);
    let begin = r#"{"event":"start","sequenceNumber":"1","streamSid":"MZ1","start":{"streamSid":"MZ1","accountSid":"AC1","callSid":"CA1","tracks":["inbound"],"mediaFormat":{"encoding":"audio/x-mulaw","sampleRate":8000,"channels":1},"customParameters":{"token":"hush"}}}"#;
    let mut now = start + Duration::from_millis(3);
    let mut to_speak = serve(now, Input::Text(begin));
    for frame in 0..150_u64 {
        now = now + Duration::from_micros(20_000 + frame % 7);
        for (reply, segment) in std::mem::take(&mut to_speak) {
            let samples = (0..16_000).map(|n| (n % 50) * 100).collect();
            for event in [
                SynthesiserEvent::Audio {
                    rate: 16_000,
                    samples,
                },
                SynthesiserEvent::Done,
            ] {
                to_speak.extend(serve(
                    now,
                    Input::Speech(SpeechEvent::Synthesiser {
                        reply,
                        segment,
                        event,
                    }),
                ));
            }
        }
        let payload = base64_simd::STANDARD.encode_to_string(vec![(frame * 37) as u8; 160]);
        let media = format!(
            r#"{{"event":"media","sequenceNumber":"{}","streamSid":"MZ1","media":{{"track":"inbound","chunk":"{}","timestamp":"{}","payload":"{payload}"}}}}"#,
            frame + 2,
            frame + 1,
            frame * 20
        );
        to_speak.extend(serve(now, Input::Text(&media)));
        to_speak.extend(serve(now + Duration::from_micros(500), Input::Timeout));
    }
    serve(now + Duration::from_millis(1), Input::End(EndRequest::Api));
    serve(now + Duration::from_millis(2), Input::Gone(Gone::Closed));
    tape.pending().to_vec()
}

#[test]
fn two_replays_are_the_same_byte_for_byte_and_as_the_recording() {
    let tape = tape_of_a_call(true);
    let (one, two) = (replay(&tape).unwrap(), replay(&tape).unwrap());
    assert_eq!(one.outputs, two.outputs);
    assert_eq!(
        (one.difference, one.broken, one.stopped, one.ended),
        (None, None, false, true)
    );
    assert!(
        one.outputs.iter().any(|line| line.contains("record agent")),
        "the agent spoke"
    );
    assert!(one.outputs.len() > 300);
}

#[test]
fn a_changed_input_is_named() {
    let tape = tape_of_a_call(true);
    let needle = b"\"chunk\":\"90\"";
    let at = tape
        .windows(needle.len())
        .position(|window| window == needle)
        .unwrap();
    let payload = at
        + tape[at..]
            .windows(11)
            .position(|window| window == b"\"payload\":\"")
            .unwrap()
        + 11;
    let mut changed = tape.clone();
    changed[payload..payload + 40].fill(b'A');
    let difference = first_difference(&changed).unwrap().unwrap();
    assert!(
        (difference.offset..difference.offset + 400).contains(&payload),
        "{difference:?}"
    );
    assert!(!difference.outputs.is_empty());
}

#[test]
fn a_tape_that_breaks_off_replays_as_far_as_it_goes() {
    let tape = tape_of_a_call(true);
    let whole = replay(&tape).unwrap();
    let cut = replay(&tape[..tape.len() / 2]).unwrap();
    assert!(cut.broken.is_some() && !cut.ended);
    assert_eq!(cut.difference, None);
    assert_eq!(cut.outputs[..], whole.outputs[..cut.outputs.len()]);
}

#[test]
fn redaction_takes_sound_and_words_and_leaves_the_shape() {
    let tape = tape_of_a_call(true);
    let private = redact(&tape).unwrap();
    for word in ["hush", "Ada", "morning", "JSUlJSUl"] {
        let on = |tape: &[u8]| {
            tape.windows(word.len())
                .any(|window| window == word.as_bytes())
        };
        assert!(on(&tape), "{word} is on the whole tape");
        assert!(!on(&private), "{word} is on the redacted tape");
    }
    let count = |tape: &[u8]| {
        let items = Reader::open(tape)
            .unwrap()
            .1
            .map(|record| record.unwrap().item);
        items
            .filter(|item| matches!(item, Item::Input { .. }))
            .count()
    };
    assert_eq!(count(&tape), count(&private));
    assert_eq!(redact(&private).unwrap(), private);
    let live = tape_of_a_call(false);
    assert!(Reader::open(&live).unwrap().0.redacted);
}

#[test]
fn a_stopped_tape_says_so_and_takes_nothing_more() {
    let start = Time::from_millis(10);
    let mut tape = TapeWriter::new(&config(), start, false);
    tape.input(start, &Input::Connected);
    tape.stop();
    let length = tape.pending().len();
    tape.input(start, &Input::Timeout);
    tape.served();
    tape.output(&Output::Done);
    assert_eq!(tape.pending().len(), length);
    let replay = replay(tape.pending()).unwrap();
    assert!(replay.stopped && replay.broken.is_none());
}

/// What a record says, without the borrowed parts' lifetimes.
fn shown(tape: &[u8]) -> Vec<String> {
    Reader::open(tape)
        .unwrap()
        .1
        .map(|record| format!("{:?}", record.unwrap().item))
        .collect()
}

#[test]
fn every_kind_of_input_comes_back() {
    let start = Time::from_millis(10);
    let stt = RecogniserEvent::Final {
        utterance: UtteranceId(3),
        text: "é\u{1F600}".to_owned(),
        confidence: Some(0.3),
    };
    let audio = SynthesiserEvent::Audio {
        rate: 22_050,
        samples: vec![i16::MIN, -1, 0, i16::MAX],
    };
    let tool = ToolOutcome {
        id: "t".to_owned(),
        result: "{\"a\":[1]}".to_owned(),
        is_error: true,
    };
    let inputs = || {
        [
            Input::Connected,
            Input::Text("{\"type\":\"end\"}"),
            Input::Binary(&[0, 255, 3]),
            Input::Speech(SpeechEvent::Recogniser(stt.clone())),
            Input::Speech(SpeechEvent::Synthesiser {
                reply: ReplyId(300),
                segment: 2,
                event: audio.clone(),
            }),
            Input::Tool(tool.clone()),
            Input::End(EndRequest::Drain),
            Input::Timeout,
            Input::Gone(Gone::Stalled),
            Input::Press('7'),
            Input::Key('#'),
        ]
    };
    let mut tape = TapeWriter::new(&config(), start, false);
    let mut wanted = Vec::new();
    for (n, input) in inputs().into_iter().enumerate() {
        let at = start + Duration::from_micros(1 << (n * 4));
        tape.input(at, &input);
        wanted.push(format!("{:?}", Item::Input { at, input }));
    }
    assert_eq!(shown(tape.pending()), wanted);
}

proptest! {
    #[test]
    fn any_bytes_give_records_or_an_error_in_its_place(
        junk in proptest::collection::vec(any::<u8>(), 0..600),
        at in any::<proptest::sample::Index>(),
        headless in any::<bool>(),
    ) {
        let mut tape = if headless { Vec::new() } else { TapeWriter::new(&config(), Time::from_millis(1), true).pending().to_vec() };
        tape.extend(&junk);
        if !tape.is_empty() {
            let at = at.index(tape.len());
            tape[at] ^= 1;
        }
        if let Ok((_, reader)) = Reader::open(&tape) {
            for record in reader {
                match record {
                    Ok(record) => prop_assert!(record.offset < tape.len()),
                    Err(error) => prop_assert!(error.offset < tape.len()),
                }
            }
        }
    }

    #[test]
    fn a_damaged_tape_never_breaks_the_replay(at in any::<proptest::sample::Index>(), bit in 0..8_u8) {
        let mut tape = SHORT.with(Clone::clone);
        let at = at.index(tape.len());
        tape[at] ^= 1 << bit;
        let _ = replay(&tape);
        let _ = redact(&tape);
    }

    #[test]
    fn redacted_json_keeps_its_length_and_is_text(text in any::<String>(), wrap in any::<bool>()) {
        let message = if wrap { format!("{{\"type\":\"user_message\",\"text\":{}}}", serde_json::json!(text)) } else { text };
        let mut bytes = message.clone().into_bytes();
        redact::json(&mut bytes);
        prop_assert_eq!(bytes.len(), message.len());
        let masked = String::from_utf8(bytes.clone()).unwrap();
        if wrap {
            let value: serde_json::Value = serde_json::from_str(&masked).unwrap();
            prop_assert_eq!(&value["type"], "user_message");
            prop_assert!(value["text"].as_str().unwrap().chars().all(|c| c == 'x'));
        }
        redact::json(&mut bytes);
        prop_assert_eq!(String::from_utf8(bytes).unwrap(), masked);
    }
}

thread_local! {
    static SHORT: Vec<u8> = {
        let tape = tape_of_a_call(true);
        tape[..tape.len() / 8].to_vec()
    };
}

#[test]
fn nested_results_and_digits_are_masked() {
    let mut message = br#"{"type":"tool_result","result":{"name":"Ada","n":[12,-3.5e7,true,null]},"digit":"7","event_id":12,"n":42}"#.to_vec();
    redact::json(&mut message);
    let masked = String::from_utf8(message).unwrap();
    let value: serde_json::Value = serde_json::from_str(&masked).unwrap();
    assert!(
        !masked.contains("Ada") && !masked.contains("12,-3") && !masked.contains("42"),
        "{masked}"
    );
    assert_eq!(
        (&value["digit"], &value["event_id"]),
        (&"0".into(), &12.into())
    );
}
