//! Voices that stall, break off, are silent or send what was not asked for: no turn has dead air.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use kit::provider::sound::{pcm, silence, streamed_wav};
use kit::provider::{Answer, HttpProvider};
use serde_json::json;

use super::{call, check_end, greeted, provider, turn};
use crate::stage;

/// The sound of every segment, ms.
const SOUND: f64 = 1000.0;

const LONG: Duration = Duration::from_secs(60);

/// Nobody waits longer in silence.
const DEAD_AIR: Duration = Duration::from_secs(2);

fn good() -> Answer {
    Answer::ok("audio/pcm").send(pcm(24_000, 1000))
}

/// All that may happen to a segment's first try.
fn troubles() -> Vec<Answer> {
    vec![
        good().hold(LONG),
        Answer::ok("audio/pcm").wait(LONG),
        Answer::ok("audio/pcm").send(pcm(24_000, 300)).cut(),
        Answer::ok("audio/pcm").send(pcm(24_000, 700)).wait(LONG),
        Answer::ok("audio/pcm").send(silence(24_000, 3000)),
        Answer::ok("audio/pcm"),
        Answer::status(503),
        Answer::ok("audio/pcm").send(streamed_wav(96_000, &pcm(96_000, 100))),
        Answer::ok("audio/mpeg").send("ID3\x04\0\0\0"),
    ]
}

/// No fault, but not what was asked for.
fn oddities() -> Vec<Answer> {
    vec![
        Answer::ok("audio/pcm").send(streamed_wav(8_000, &pcm(8_000, 1000))),
        Answer::ok("audio/pcm;rate=16000").send(pcm(16_000, 1000)),
        Answer::ok("audio/wav").send(streamed_wav(44_100, &pcm(44_100, 1000))),
    ]
}

/// A voice whose segments go wrong one after the other, each at its first try.
async fn troubled() -> (HttpProvider, usize) {
    let mut answers = Vec::new();
    // The greeting is well spoken.
    answers.push(good());
    for trouble in troubles() {
        answers.push(trouble);
        answers.push(good());
    }
    answers.extend(oddities());
    let rounds = troubles().len() + oddities().len();
    let tries = AtomicUsize::new(0);
    let voice = HttpProvider::start(move |_| {
        let place = tries.fetch_add(1, Ordering::SeqCst);
        let round = place.saturating_sub(1) % (answers.len() - 1);
        answers[if place == 0 { 0 } else { round + 1 }].clone()
    })
    .await;
    (voice, rounds)
}

/// Row 12: a hundred injections in a soak run.
#[tokio::test]
async fn no_turn_has_dead_air_whatever_the_voice_does() {
    let _together = stage::together().await;
    let calls = 3;
    let times = if stage::soak() { 3 } else { 1 };
    let mut setup = stage::setup();
    let mut voices = Vec::new();
    for number in 0..calls {
        let (voice, rounds) = troubled().await;
        let name = format!("x{number}");
        setup = provider(setup, &name, "openai", &voice.url());
        setup = setup.set(&format!("PROVIDERS__X{number}__VOICES"), "alloy");
        voices.push((name, voice, rounds));
    }
    let server = setup.start().await;
    let client = server.client();
    let one = async |name: &str, rounds: usize| {
        let voice = client
            .get(&format!("/voices/{name}-alloy"))
            .await
            .expect(200);
        let fields = json!({"voice_id": voice.text("id"), "llm_model": "echo"});
        let mut caller = call(&client, fields).await;
        greeted(&mut caller).await;
        let mut dead_air = Vec::new();
        for round in 0..rounds * times {
            let turn = turn(&mut caller, &stage::voice(400), Duration::from_secs(10)).await;
            let turn = turn.unwrap_or_else(|| panic!("no answer in round {round}"));
            assert_eq!(turn.answer, turn.heard, "round {round}");
            let off = (turn.sound_ms - SOUND).abs();
            assert!(off < 60.0, "round {round}: {} ms of sound", turn.sound_ms);
            dead_air.push(turn.dead_air);
        }
        check_end(&server, caller).await;
        dead_air
    };
    let all = join_all(voices.iter().map(|(name, _, rounds)| one(name, *rounds))).await;
    let all: Vec<Duration> = all.into_iter().flatten().collect();
    let worst = all.iter().max().unwrap();
    println!(
        "{} injections: the longest dead air is {worst:?}",
        all.len()
    );
    assert!(*worst <= DEAD_AIR, "{worst:?}");
}
