//! Recognisers: an utterance as one file, and the live socket.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kit::provider::live::{Answers, WORDS, word};
use kit::provider::{Answer, HttpProvider, LiveProvider};
use media::audio::tones;
use media::speech::UtteranceId;
use tokio::time::{Instant, sleep};

use super::Call;

const LONG: Duration = Duration::from_secs(60);

fn settings(provider: &HttpProvider, speech: &str) -> String {
    format!(
        "[speech]\n{speech}\n[providers.x]\nkind = \"openai\"\nbase_url = \"{}\"\nstt_model = \"listener\"",
        provider.url()
    )
}

fn call_to(provider: &HttpProvider) -> Call {
    Call::new(&settings(provider, ""), "echo", None)
}

fn said(text: &str) -> Answer {
    Answer::ok("application/json").send(serde_json::json!({"text": text}).to_string())
}

fn voice() -> Vec<i16> {
    tones::sine(16_000, 300.0, -12.0, 16_000)
}

#[tokio::test]
async fn an_utterance_is_sent_as_a_wav_and_its_text_comes_back() {
    let provider = HttpProvider::start(|_| said(" Good day. ")).await;
    let mut call = call_to(&provider);
    assert!(call.providers().stt.punctuates());
    call.say(1, &voice());
    assert_eq!(call.heard(1).await.unwrap(), "Good day.");
    let asked = provider.asked();
    assert_eq!(asked[0].path, "/v1/audio/transcriptions");
    let body = &asked[0].body;
    let text = String::from_utf8_lossy(body);
    for part in [
        "name=\"model\"\r\n\r\nlistener",
        "name=\"language\"\r\n\r\nen",
        "filename=\"utterance.wav\"",
    ] {
        assert!(text.contains(part), "{part}");
    }
    let at = body.windows(4).position(|w| w == b"RIFF").unwrap();
    let wav = hound::WavReader::new(&body[at..]).unwrap();
    assert_eq!((wav.spec().sample_rate, wav.duration()), (16_000, 16_000));
}

#[tokio::test]
async fn plain_text_is_an_answer_too() {
    let provider = HttpProvider::start(|_| Answer::ok("text/plain").send("Good day.\n")).await;
    let mut call = call_to(&provider);
    call.say(1, &voice());
    assert_eq!(call.heard(1).await.unwrap(), "Good day.");
}

#[tokio::test]
async fn utterances_do_not_wait_for_each_other() {
    let tries = AtomicUsize::new(0);
    let provider = HttpProvider::start(move |_| match tries.fetch_add(1, Ordering::SeqCst) {
        0 => said("first").hold(Duration::from_millis(500)),
        _ => said("second"),
    })
    .await;
    let mut call = call_to(&provider);
    call.say(1, &voice());
    while provider.asked().is_empty() {
        sleep(Duration::from_millis(5)).await;
    }
    call.say(2, &voice());
    assert_eq!(call.heard(2).await.unwrap(), "second");
    assert_eq!(call.heard(1).await.unwrap(), "first");
}

#[tokio::test]
async fn a_busy_recogniser_is_asked_once_more_and_a_broken_one_given_up() {
    let tries = AtomicUsize::new(0);
    let provider = HttpProvider::start(move |_| match tries.fetch_add(1, Ordering::SeqCst) {
        0 => Answer::status(429),
        1 => said("Good day."),
        _ => Answer::status(500),
    })
    .await;
    let mut call = call_to(&provider);
    call.say(1, &voice());
    assert_eq!(call.heard(1).await.unwrap(), "Good day.");
    call.say(2, &voice());
    assert!(call.heard(2).await.unwrap_err().contains("500"));
    assert_eq!(provider.asked().len(), 4);
}

#[tokio::test]
async fn a_silent_recogniser_is_a_fault_of_its_utterance() {
    let provider = HttpProvider::start(|_| said("late").hold(LONG)).await;
    let mut call = call_to(&provider);
    let began = Instant::now();
    call.say(1, &voice());
    assert!(call.heard(1).await.is_err());
    assert!(began.elapsed() < Duration::from_secs(6));
}

#[tokio::test]
async fn the_fallback_hears_what_the_first_did_not() {
    let provider = HttpProvider::start(|_| said("late").hold(LONG)).await;
    let mut call = Call::new(
        &settings(
            &provider,
            "recogniser = \"x\"\nrecogniser_fallback = \"scripted\"",
        ),
        "echo",
        None,
    );
    let began = Instant::now();
    call.say(1, &voice());
    assert_eq!(call.heard(1).await.unwrap(), "hello there");
    assert!(began.elapsed() < Duration::from_millis(2500));
}

#[tokio::test]
async fn a_cancelled_utterance_is_asked_for_no_longer() {
    let provider = HttpProvider::start(|_| said("late").hold(LONG)).await;
    let mut call = call_to(&provider);
    call.say(1, &voice());
    while provider.asked().is_empty() {
        sleep(Duration::from_millis(5)).await;
    }
    let cancelled = Instant::now();
    call.cancel_utterance(1);
    while provider.dropped().is_empty() {
        assert!(
            cancelled.elapsed() < Duration::from_secs(1),
            "still connected"
        );
        sleep(Duration::from_millis(5)).await;
    }
    assert!(call.is_silent(Duration::from_millis(50)).await);
}

fn live(provider: &LiveProvider, speech: &str) -> Call {
    let settings = format!(
        "[speech]\n{speech}\n[providers.x]\nkind = \"deepgram\"\nbase_url = \"{}\"\napi_key = \"sk-canary\"\nstt_model = \"nova-3\"",
        provider.url()
    );
    Call::new(&settings, "echo", None)
}

/// Words with silence around them, as the engine's pre-roll and the end of a voice are.
fn sound(numbers: &[usize]) -> Vec<i16> {
    let mut sound = vec![0; 4900];
    sound.extend(numbers.iter().flat_map(|number| word(*number % WORDS)));
    sound.extend([0; 3200]);
    sound
}

fn written(numbers: &[usize]) -> String {
    let words: Vec<String> = numbers.iter().map(|n| format!("w{}", n % WORDS)).collect();
    words.join(" ")
}

#[tokio::test]
async fn a_live_recogniser_is_told_and_asked_by_the_book() {
    let provider = LiveProvider::start().await;
    let mut call = live(&provider, "");
    call.say(1, &sound(&[1, 2, 3]));
    assert_eq!(call.heard(1).await.unwrap(), "w1 w2 w3");
    call.say(2, &sound(&[4]));
    assert_eq!(call.heard(2).await.unwrap(), "w4");
    let seen = provider.seen();
    assert_eq!(
        (seen.connections, seen.keys[0].as_str()),
        (1, "Token sk-canary")
    );
    for part in [
        "/v1/listen?",
        "model=nova-3",
        "encoding=linear16",
        "sample_rate=16000",
        "language=en",
        "interim_results=true",
        "punctuate=true",
    ] {
        assert!(seen.paths[0].contains(part), "{part} in {}", seen.paths[0]);
    }
    assert_eq!(seen.messages, ["Finalize", "Finalize"]);
    // Silent for longer than the server would bear.
    assert!(call.is_silent(Duration::from_millis(4300)).await);
    assert_eq!(provider.seen().messages[2..], ["KeepAlive"]);
    call.hang_up();
    let began = Instant::now();
    while provider
        .seen()
        .messages
        .last()
        .is_none_or(|last| last != "CloseStream")
    {
        assert!(
            began.elapsed() < Duration::from_secs(2),
            "{:?}",
            provider.seen()
        );
        sleep(Duration::from_millis(5)).await;
    }
}

/// Says words in real time and cuts the connection in the middle; whether all came back.
async fn cut_in_the_middle(provider: &LiveProvider, call: &mut Call, utterance: u32, at: usize) {
    let numbers: Vec<usize> = (0..12).map(|n| utterance as usize + 7 * n).collect();
    let id = UtteranceId(utterance);
    call.providers().stt.begin(id);
    for (place, frame) in sound(&numbers).chunks(320).enumerate() {
        if place == at {
            provider.cut();
        }
        call.providers().stt.audio(id, frame);
        // Ten times as fast as a caller speaks.
        sleep(Duration::from_millis(2)).await;
    }
    call.providers().stt.finish(id);
    assert_eq!(
        call.heard(utterance).await.unwrap(),
        written(&numbers),
        "cut at frame {at}"
    );
}

#[tokio::test]
async fn no_word_is_lost_when_the_connection_drops_in_an_utterance() {
    let provider = LiveProvider::start().await;
    let mut call = live(&provider, "");
    for utterance in 1..=10 {
        cut_in_the_middle(&provider, &mut call, utterance, 13 * utterance as usize).await;
    }
    assert_eq!(provider.seen().connections, 11);
}

#[tokio::test]
async fn a_provider_that_refuses_is_a_fault_of_the_utterance_and_soon_told() {
    let provider = LiveProvider::start().await;
    provider.refuse(1000, 401);
    let mut call = live(&provider, "");
    while provider.seen().connections < 2 {
        sleep(Duration::from_millis(5)).await;
    }
    let began = Instant::now();
    call.say(1, &sound(&[1, 2]));
    let message = call.heard(1).await.unwrap_err();
    assert!(
        message.contains("401") && !message.contains("canary"),
        "{message}"
    );
    assert!(began.elapsed() < Duration::from_secs(1));
    // When it takes the call back, so does the call.
    provider.refuse(0, 401);
    sleep(Duration::from_millis(3500)).await;
    call.say(2, &sound(&[3]));
    assert_eq!(call.heard(2).await.unwrap(), "w3");
}

#[tokio::test]
async fn the_fallback_hears_what_a_live_recogniser_cannot() {
    let provider = LiveProvider::start().await;
    provider.refuse(1000, 503);
    let mut call = live(
        &provider,
        "recogniser = \"x\"\nrecogniser_fallback = \"scripted\"",
    );
    let began = Instant::now();
    call.say(1, &sound(&[1, 2]));
    assert_eq!(call.heard(1).await.unwrap(), "hello there");
    assert!(began.elapsed() < Duration::from_secs(2));
}

/// Words with the pauses for breath that people make: two seconds of voice.
fn sentence() -> Vec<i16> {
    sound(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
}

const BACKED: &str = "recogniser = \"x\"\nrecogniser_fallback = \"scripted\"";

#[tokio::test]
async fn the_fallback_hears_what_a_mute_live_recogniser_does_not() {
    for how in [Answers::Nothing, Answers::Empty, Answers::NoHandshake] {
        let provider = LiveProvider::start().await;
        provider.answer(how);
        let mut call = live(&provider, BACKED);
        let began = Instant::now();
        call.say(1, &sentence());
        assert_eq!(call.heard(1).await.unwrap(), "hello there", "{how:?}");
        assert!(began.elapsed() < Duration::from_millis(2500), "{how:?}");
        call.say(2, &sentence());
        assert_eq!(call.heard(2).await.unwrap(), "what time is breakfast");
        let metrics = call.metrics();
        for line in [
            "requests_total{stage=\"stt\",provider=\"x\",outcome=\"failed\"} 2",
            "requests_total{stage=\"stt\",provider=\"scripted\",outcome=\"answered\"} 2",
            "faults_total{stage=\"stt\",provider=\"x\",kind=",
        ] {
            assert!(metrics.contains(line), "{how:?}: {line} in {metrics}");
        }
        assert!(!metrics.contains("provider=\"x\",outcome=\"answered\""));
        // It is well again, and is asked first.
        provider.answer(Answers::Words);
        provider.cut();
        sleep(Duration::from_millis(2500)).await;
        call.say(3, &sound(&[3, 4]));
        assert_eq!(call.heard(3).await.unwrap(), "w3 w4", "{how:?}");
    }
}

#[tokio::test]
async fn without_a_fallback_a_mute_live_recogniser_fails_before_the_turn_gives_up() {
    for how in [Answers::Nothing, Answers::NoHandshake] {
        let provider = LiveProvider::start().await;
        provider.answer(how);
        let mut call = live(&provider, "");
        let began = Instant::now();
        call.say(1, &sentence());
        assert!(call.heard(1).await.is_err(), "{how:?}");
        assert!(began.elapsed() < Duration::from_millis(3800), "{how:?}");
        let metrics = call.metrics();
        assert!(metrics.contains("faults_total{stage=\"stt\",provider=\"x\",kind=\"stalled\"}"));
    }
}

#[tokio::test]
async fn interims_that_never_become_final_are_heard_and_counted_as_a_fault() {
    let provider = LiveProvider::start().await;
    provider.answer(Answers::Interims);
    let mut call = live(&provider, "");
    call.say(1, &sound(&[1, 2, 3]));
    assert_eq!(call.heard(1).await.unwrap(), "w1 w2 w3");
    let fault = "faults_total{stage=\"stt\",provider=\"x\",kind=\"stalled\"} 1";
    assert!(call.metrics().contains(fault));
}

#[tokio::test]
async fn empty_texts_of_clear_speech_are_a_fault_and_those_of_a_cough_are_not() {
    let provider = HttpProvider::start(|_| said("")).await;
    let mut call = call_to(&provider);
    for cough in 1..=5 {
        call.say(cough, &voice()[..9_600]);
        assert_eq!(call.heard(cough).await.unwrap(), "");
    }
    let sentence = tones::sine(16_000, 300.0, -12.0, 32_000);
    call.say(6, &sentence);
    assert_eq!(call.heard(6).await.unwrap(), "", "it may be a radio");
    call.say(7, &sentence);
    assert!(call.heard(7).await.is_err());
    assert_eq!(provider.asked().len(), 7, "nothing is asked twice");
    let fault = "faults_total{stage=\"stt\",provider=\"x\",kind=\"wrong\"} 1";
    assert!(call.metrics().contains(fault), "{}", call.metrics());

    let mut call = Call::new(&settings(&provider, BACKED), "echo", None);
    call.say(1, &sentence);
    assert_eq!(call.heard(1).await.unwrap(), "hello there");
}

#[tokio::test]
async fn an_utterance_that_is_taken_back_after_a_vain_wait_is_a_fault() {
    let provider = HttpProvider::start(|_| said("late").hold(LONG)).await;
    let mut call = call_to(&provider);
    call.say(1, &voice());
    // As the turn of a hasty agent does.
    sleep(Duration::from_millis(3_900)).await;
    call.cancel_utterance(1);
    let began = Instant::now();
    let lines = [
        "faults_total{stage=\"stt\",provider=\"x\",kind=\"stalled\"} 1",
        "requests_total{stage=\"stt\",provider=\"x\",outcome=\"failed\"} 1",
    ];
    while !lines.iter().all(|line| call.metrics().contains(line)) {
        assert!(
            began.elapsed() < Duration::from_secs(1),
            "{}",
            call.metrics()
        );
        sleep(Duration::from_millis(5)).await;
    }
}
