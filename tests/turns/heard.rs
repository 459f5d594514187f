//! What the recording holds against what the transcript says.

use kit::virtual_call::{VirtualCall, config};
use media::config::{AgentConfig, Eagerness};
use media::speech::script::{Hearing, Line, Script};

/// The first and the last loud sample in a part of a track, ms.
fn loud(track: &[i16], from_ms: usize, to_ms: usize) -> Option<(u64, u64)> {
    let to = (to_ms * 16).min(track.len());
    let part = track.get(from_ms * 16..to)?;
    let first = part.iter().position(|s| s.unsigned_abs() > 500)?;
    let last = part.iter().rposition(|s| s.unsigned_abs() > 500)?;
    Some(((from_ms + first / 16) as u64, (from_ms + last / 16) as u64))
}

#[test]
fn turns_stand_in_the_recording_where_the_transcript_says() {
    let agent = AgentConfig {
        system_prompt: "Be kind.".into(),
        first_message: Some("Welcome to the clinic.".into()),
        idle_check_in_after_secs: 600.0,
        ..AgentConfig::default()
    };
    let script = Script {
        hearings: ["Count.", "Enough."]
            .map(|t| Hearing::Words(t.into()))
            .into(),
        always_said: Line::Say(
            "One two three four five six seven eight nine ten eleven twelve.".into(),
        ),
        tts_rate: 22_050,
        ..Script::default()
    };
    let call = VirtualCall::new(config(agent), script, &[(3000, 4000), (6000, 7000)]).run(14_000);
    let [caller, agent] = &call.recorded;
    for turn in &call.turns {
        let start = turn.start_ms.unwrap() as usize;
        let end = turn.end_ms.unwrap() as usize;
        let track = if turn.role == media::call::record::Role::User {
            caller
        } else {
            agent
        };
        let (first, last) = loud(track, start.saturating_sub(200), end + 60).unwrap();
        assert!(
            first.abs_diff(start as u64) <= 20,
            "{}: starts at {first}, said {start}",
            turn.text
        );
        assert!(
            last.abs_diff(end as u64) <= 40,
            "{}: ends at {last}, said {end}",
            turn.text
        );
        if let Some(after) = turn.interrupted_after_ms {
            assert!(
                (last - first).abs_diff(after) <= 20,
                "{}: {first}..{last}, said {after}",
                turn.text
            );
        }
    }
    assert_eq!(call.turns.iter().filter(|t| t.interrupted).count(), 1);
}

#[test]
fn no_voice_is_given_to_the_recogniser_twice_however_short_the_pause() {
    let agent = AgentConfig {
        turn_eagerness: Eagerness::Eager,
        ..AgentConfig::default()
    };
    let loud = |samples: &[i16]| samples.iter().filter(|s| s.unsigned_abs() > 500).count();
    let mut parted = 0;
    for pause in (20..=600).step_by(20) {
        let spans = [(3000, 4000), (4000 + pause, 5000 + pause)];
        let script = Script {
            hearings: ["One two", "three."]
                .map(|t| Hearing::Words(t.into()))
                .into(),
            ..Script::default()
        };
        let call = VirtualCall::new(config(agent.clone()), script, &spans).run(9_000);
        let given: usize = call.given.iter().map(|samples| loud(samples)).sum();
        assert_eq!(given, loud(&call.recorded[0]), "a pause of {pause} ms");
        parted += usize::from(call.given.len() == 2);
        // And never less than the silence before a voice that there is room for.
        let last = call.given.last().unwrap();
        let before = last.iter().position(|s| s.unsigned_abs() > 500).unwrap() / 16;
        if pause >= 300 {
            assert!(before >= 20, "{before} ms after a pause of {pause} ms");
        }
    }
    assert!(parted >= 20, "{parted} pauses part utterances");
}

#[test]
fn an_hour_of_call_takes_under_a_second() {
    let spans: Vec<(u64, u64)> = (0..300)
        .map(|n| (n * 12_000 + 3000, n * 12_000 + 5000))
        .collect();
    let agent = AgentConfig {
        max_duration_seconds: 3600,
        ..AgentConfig::default()
    };
    let mut call = VirtualCall::new(config(agent), Script::default(), &spans);
    call.connect();
    for second in (5..3600).step_by(10) {
        call.run_until(second * 1000);
        call.client(&serde_json::json!({"type": "pong", "event_id": 1}));
    }
    call.run_until(3_600_000);
    // The wall time of this is printed by `make bench`; here the hour has to have happened.
    assert_eq!(call.turns.len(), 600);
    assert_eq!(call.ended.as_ref().unwrap().duration_ms, 3_600_000);
    call.check_replay();
}
