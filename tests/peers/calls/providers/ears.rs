//! A live recogniser whose connection is cut in the middle of what the caller says, and one that is mute.

use std::time::Duration;

use futures_util::future::join_all;
use kit::provider::LiveProvider;
use kit::provider::live::{Answers, WORDS, word};
use kit::socket::Caller;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{call, check_end, greeted, provider, silent, turn};
use crate::stage;

/// Words of an utterance: two seconds and a bit.
const LENGTH: usize = 10;

/// The caller takes a breath after so many words, ms: a sound that goes on without a gap for longer than
/// 1.6 s is the line's noise to the voice detector. Not longer than the detector holds on to a voice (80 ms): of a
/// voice that it has let go of, it notices the next 40 ms late, and 160 ms without any end an eager caller's utterance.
const BREATH: (usize, usize) = (5, 80);

fn numbers(call: usize, round: usize) -> Vec<usize> {
    (0..LENGTH)
        .map(|n| (3 * call + round + 7 * n) % WORDS)
        .collect()
}

fn said(numbers: &[usize]) -> Vec<i16> {
    let breath = vec![0; BREATH.1 * 16];
    let parts = numbers.chunks(BREATH.0).map(|words| {
        let words: Vec<i16> = words.iter().flat_map(|n| word(*n)).collect();
        [words, breath.clone()].concat()
    });
    parts.collect::<Vec<_>>().concat()
}

/// Row 11: a hundred cuts in a soak run.
#[tokio::test]
async fn no_words_are_lost_when_the_recogniser_s_connection_is_cut() {
    let _together = stage::together().await;
    let (calls, rounds) = if stage::soak() { (5, 20) } else { (2, 5) };
    let ears = LiveProvider::start().await;
    let setup = provider(stage::setup(), "ears", "deepgram", &ears.url())
        .set("PROVIDERS__EARS__STT_MODEL", "nova-3")
        .set("SPEECH__RECOGNISER", "ears");
    let server = setup.start().await;
    let client = server.client();
    let mut callers: Vec<Caller> = Vec::new();
    for _ in 0..calls {
        let mut caller = call(&client, json!({"llm_model": "echo"})).await;
        greeted(&mut caller).await;
        callers.push(caller);
    }
    let (mut wanted, mut lost, mut added) = (0, 0, 0);
    for round in 0..rounds {
        let speaking = callers.iter_mut().enumerate().map(|(number, caller)| {
            let numbers = numbers(number, round);
            async move {
                let sound = said(&numbers);
                let turn = turn(caller, &sound, Duration::from_secs(12)).await;
                let turn = turn.unwrap_or_else(|| panic!("no answer in round {round}"));
                let words: Vec<String> = numbers.iter().map(|n| format!("w{n}")).collect();
                (words, turn.heard)
            }
        });
        // Within the two seconds, each time at another moment.
        let cut = Duration::from_millis(200 + (round as u64 * 370) % 1700);
        let (heard, ()) = tokio::join!(join_all(speaking), async {
            sleep(cut).await;
            ears.cut();
        });
        for (words, heard) in heard {
            let heard: Vec<&str> = heard.split_whitespace().collect();
            wanted += words.len();
            let missing = words
                .iter()
                .filter(|w| !heard.contains(&w.as_str()))
                .count();
            if heard != words {
                println!("round {round}, cut after {cut:?}: {words:?} was heard as {heard:?}");
            }
            lost += missing;
            added += (heard.len() + missing).saturating_sub(words.len());
        }
    }
    let cuts = ears.seen().connections - calls;
    println!("{cuts} cuts, {wanted} words: {lost} lost, {added} too many");
    assert!(cuts >= calls * rounds, "{cuts} cuts");
    assert!(lost * 100 <= wanted, "{lost} of {wanted} words are lost");
    assert!(added * 100 <= wanted, "{added} words were never said");
    for caller in callers {
        check_end(&server, caller).await;
    }
}

/// The log tells of the provider that failed.
fn log(server: &kit::server::Server) -> Vec<String> {
    let log = std::fs::read_to_string(server.data.join("server.log")).unwrap();
    let lines = log.lines().filter(|line| line.contains("WARN"));
    lines
        .filter(|line| line.contains("ears") && line.contains("stalled"))
        .map(str::to_owned)
        .collect()
}

#[tokio::test]
async fn whom_a_mute_recogniser_does_not_hear_is_told_so() {
    let _together = stage::together().await;
    let ears = LiveProvider::start().await;
    let setup = provider(stage::setup(), "ears", "deepgram", &ears.url())
        .set("PROVIDERS__EARS__STT_MODEL", "nova-3")
        .set("SPEECH__RECOGNISER", "ears");
    let server = setup.start().await;
    let mut caller = call(&server.client(), json!({"llm_model": "echo"})).await;
    greeted(&mut caller).await;
    // Well at first, mute in the middle, and well again.
    let sound = said(&numbers(0, 0));
    assert!(
        turn(&mut caller, &sound, Duration::from_secs(12))
            .await
            .is_some()
    );
    ears.answer(Answers::Nothing);
    let seen = caller.messages.len();
    caller.speak(&sound).await;
    let ended = Instant::now();
    let told = |caller: &Caller| {
        let mut lines = caller.messages[seen..].iter();
        lines.any(|(_, m)| {
            let text = m["text"].as_str().unwrap_or_default();
            m["type"] == "agent_response" && text.contains("did not catch that")
        })
    };
    while !told(&caller) {
        assert!(
            ended.elapsed() < Duration::from_secs(5),
            "{:?}",
            &caller.messages[seen..]
        );
        caller.listen(20).await;
    }
    assert!(!log(&server).is_empty(), "the log tells of it");
    ears.answer(Answers::Words);
    silent(&mut caller).await;
    let heard = turn(&mut caller, &sound, Duration::from_secs(12)).await;
    assert!(heard.is_some_and(|turn| turn.heard.contains('w')));
    check_end(&server, caller).await;
}

#[tokio::test]
async fn the_fallback_answers_whom_a_mute_recogniser_does_not_hear() {
    let _together = stage::together().await;
    for how in [Answers::Nothing, Answers::NoHandshake] {
        let ears = LiveProvider::start().await;
        ears.answer(how);
        let setup = provider(stage::setup(), "ears", "deepgram", &ears.url())
            .set("PROVIDERS__EARS__STT_MODEL", "nova-3")
            .set("SPEECH__RECOGNISER", "ears")
            .set("SPEECH__RECOGNISER_FALLBACK", "scripted");
        let server = setup.start().await;
        let mut caller = call(&server.client(), json!({"llm_model": "echo"})).await;
        greeted(&mut caller).await;
        // In one breath, which is one utterance: the script has a line for each that it is given, and so shows that
        // none is given twice, or not at all.
        let sound = said(&numbers(1, 1)[..BREATH.0]);
        for line in ["hello there", "what time is breakfast"] {
            let turn = turn(&mut caller, &sound, Duration::from_secs(12)).await;
            assert_eq!(
                turn.map(|turn| turn.heard).as_deref(),
                Some(line),
                "{how:?}"
            );
        }
        assert!(!log(&server).is_empty(), "the log tells of it");
        check_end(&server, caller).await;
    }
}
