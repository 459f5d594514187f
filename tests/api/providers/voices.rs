//! Speech over HTTP and over sockets: the kinds of sound, and a voice's faults.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kit::provider::contexts::Trouble;
use kit::provider::sound::{mp3, pcm, silence, streamed_wav};
use kit::provider::{Answer, ContextProvider, HttpProvider};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{Call, openai};

const VOICE: &str = "voices = [\"alloy\"]\ntts_model = \"speaker\"";

const LONG: Duration = Duration::from_secs(60);

fn call_to(provider: &HttpProvider) -> Call {
    Call::new(&openai(&provider.url(), VOICE), "echo", Some("alloy"))
}

/// A provider whose first answer is this, and whose others are a second of a tone.
async fn first(answer: Answer) -> HttpProvider {
    let tries = AtomicUsize::new(0);
    HttpProvider::start(move |_| match tries.fetch_add(1, Ordering::SeqCst) {
        0 => answer.clone(),
        _ => second(),
    })
    .await
}

fn second() -> Answer {
    Answer::ok("audio/pcm").send(pcm(24_000, 1000))
}

#[tokio::test]
async fn every_kind_of_sound_is_understood_by_what_it_is() {
    let events = |sound: &[u8]| {
        let audio = base64_simd::STANDARD.encode_to_string(sound);
        format!(
            "data: {}\n\n",
            json!({"type": "speech.audio.delta", "audio": audio})
        )
    };
    let variants: Vec<(&str, Answer, u32)> = vec![
        ("pcm", second(), 24_000),
        (
            "pcm of a rate told in the header",
            Answer::ok("audio/pcm;rate=16000").send(pcm(16_000, 1000)),
            16_000,
        ),
        (
            "a wav where pcm was asked for",
            Answer::ok("audio/pcm").send(streamed_wav(22_050, &pcm(22_050, 1000))),
            22_050,
        ),
        (
            "a wav in small pieces",
            streamed_wav(8_000, &pcm(8_000, 1000))
                .chunks(333)
                .fold(Answer::ok("audio/wav"), |answer, part| answer.send(part)),
            8_000,
        ),
        (
            "events although none were asked for",
            Answer::ok("text/event-stream")
                .send(events(&pcm(24_000, 500)))
                .send(events(&pcm(24_000, 500)))
                .send("data: {\"type\":\"speech.audio.done\"}\n\n"),
            24_000,
        ),
        (
            "a wav whose length is a lie, after a silence",
            Answer::ok("audio/wav").send(streamed_wav(
                16_000,
                &[silence(16_000, 250), pcm(16_000, 750)].concat(),
            )),
            16_000,
        ),
        (
            "no name for it",
            Answer::ok("application/octet-stream").send(pcm(24_000, 1000)),
            24_000,
        ),
    ];
    for (what, answer, rate) in variants {
        let provider = HttpProvider::start(move |_| answer.clone()).await;
        let mut call = call_to(&provider);
        let spoken = call.speak(1, "Good day.").await;
        assert_eq!(spoken.failed, None, "{what}");
        assert_eq!(spoken.rates, [rate], "{what}");
        let wanted = if rate == 22_050 { 997.7 } else { 1000.0 };
        assert!((spoken.ms - wanted).abs() < 1.0, "{what}: {} ms", spoken.ms);
        let body = provider.asked()[0].json();
        assert_eq!(body["input"], "Good day.");
        assert_eq!(
            (&body["model"], &body["voice"]),
            (&json!("speaker"), &json!("alloy"))
        );
    }
}

#[tokio::test]
async fn sound_is_handed_on_as_it_comes() {
    let answer = Answer::ok("audio/pcm")
        .send(pcm(24_000, 300))
        .wait(Duration::from_millis(700))
        .send(pcm(24_000, 300));
    let provider = HttpProvider::start(move |_| answer.clone()).await;
    let spoken = call_to(&provider).speak(1, "Good day.").await;
    assert!((spoken.ms - 600.0).abs() < 1.0);
    assert!(spoken.longest_wait >= Duration::from_millis(600));
    assert_eq!(provider.asked().len(), 1);
}

#[tokio::test]
async fn a_voice_that_fails_is_asked_again_and_no_sound_is_lost_or_repeated() {
    let faults: Vec<(&str, Answer)> = vec![
        ("no bytes", second().hold(LONG)),
        ("a head and no bytes", Answer::ok("audio/pcm").wait(LONG)),
        ("busy", Answer::status(503)),
        ("cut", Answer::ok("audio/pcm").send(pcm(24_000, 400)).cut()),
        (
            "a stall in the middle",
            Answer::ok("audio/pcm").send(pcm(24_000, 400)).wait(LONG),
        ),
        (
            "silence",
            Answer::ok("audio/pcm").send(silence(24_000, 3000)),
        ),
        ("nothing", Answer::ok("audio/pcm")),
        (
            "a rate that nobody plays",
            Answer::ok("audio/pcm").send(streamed_wav(96_000, &pcm(96_000, 100))),
        ),
        (
            "an error as sound",
            Answer::ok("application/json").send("{}"),
        ),
        ("compressed", Answer::ok("audio/mpeg").send("ID3\x04\0\0\0")),
        ("frames as pcm", Answer::ok("audio/pcm").send(mp3(20))),
    ];
    for (what, answer) in faults {
        let provider = first(answer).await;
        let spoken = call_to(&provider).speak(1, "Good day to you all.").await;
        assert_eq!(spoken.failed, None, "{what}");
        assert!((spoken.ms - 1000.0).abs() < 2.0, "{what}: {} ms", spoken.ms);
        assert!(
            spoken.longest_wait < Duration::from_millis(1900),
            "{what}: {:?}",
            spoken.longest_wait
        );
        assert_eq!(provider.asked().len(), 2, "{what}");
    }
}

#[tokio::test]
async fn two_faults_are_a_fault_of_the_segment() {
    let provider = HttpProvider::start(|_| Answer::status(500)).await;
    let mut call = call_to(&provider);
    let message = call.speak(1, "Good day.").await.failed.unwrap();
    assert!(message.contains("500"), "{message}");
    assert_eq!(provider.asked().len(), 2);
    assert!(
        call.speak(2, "Good day.").await.failed.is_some(),
        "the next is asked anew"
    );
}

#[tokio::test]
async fn the_other_voice_speaks_on_where_the_first_broke_off() {
    for (what, answer, rest) in [
        ("refused", Answer::status(401), 1300.0),
        ("stalled", second().hold(LONG), 1300.0),
        (
            "cut",
            Answer::ok("audio/pcm").send(pcm(24_000, 500)).cut(),
            1300.0,
        ),
    ] {
        let provider = HttpProvider::start(move |_| answer.clone()).await;
        let settings = openai(&provider.url(), VOICE).replace(
            "[speech]\n",
            "[speech]\nvoice_fallback = \"scripted-tone\"\n",
        );
        let mut call = Call::new(&settings, "echo", Some("alloy"));
        // The scripted voice says 20 characters in 1.3 s.
        let spoken = call.speak(1, "Good day to you all.").await;
        assert_eq!(spoken.failed, None, "{what}");
        assert!((spoken.ms - rest).abs() < 2.0, "{what}: {} ms", spoken.ms);
        assert!(spoken.longest_wait < Duration::from_secs(2), "{what}");
        assert_eq!(provider.asked().len(), 1, "{what}");
    }
}

#[tokio::test]
async fn a_cancelled_segment_drops_its_connection() {
    let answer = Answer::ok("audio/pcm").send(pcm(24_000, 200)).wait(LONG);
    let provider = HttpProvider::start(move |_| answer.clone()).await;
    let mut call = call_to(&provider);
    call.providers()
        .tts
        .speak(media::speech::ReplyId(1), 0, "Good day.");
    // All that came before the pause.
    while !call.is_silent(Duration::from_millis(100)).await {}
    let cancelled = Instant::now();
    call.cancel_reply(1);
    while provider.dropped().is_empty() {
        assert!(
            cancelled.elapsed() < Duration::from_secs(1),
            "still connected"
        );
        sleep(Duration::from_millis(5)).await;
    }
    assert!(call.is_silent(Duration::from_millis(100)).await);
}

const KINDS: [(&str, &str); 2] = [
    ("elevenlabs", "/v1/text-to-speech/alloy/multi-stream-input?"),
    ("cartesia", "/tts/websocket?"),
];

fn socket_call(kind: &str, provider: &ContextProvider, speech: &str) -> Call {
    let settings = format!(
        "[speech]\nrecogniser = \"scripted\"\n{speech}\n[providers.x]\nkind = \"{kind}\"\nbase_url = \"{}\"\napi_key = \"sk-canary\"\nvoices = [\"alloy\"]",
        provider.url()
    );
    Call::new(&settings, "echo", Some("alloy"))
}

#[tokio::test]
async fn segments_share_a_socket() {
    for (kind, path) in KINDS {
        let provider = ContextProvider::start(&[]).await;
        let mut call = socket_call(kind, &provider, "");
        for reply in 1..=3 {
            let spoken = call.speak(reply, "Good day to you all.").await;
            assert_eq!(spoken.failed, None, "{kind}");
            assert_eq!(spoken.rates, [16_000], "{kind}");
            assert!((spoken.ms - 1000.0).abs() < 1.0, "{kind}: {} ms", spoken.ms);
        }
        let seen = provider.seen();
        assert_eq!(
            (seen.connections, seen.keys[0].as_str()),
            (1, "sk-canary"),
            "{kind}"
        );
        assert!(seen.paths[0].starts_with(path), "{}", seen.paths[0]);
        assert!(!seen.paths[0].contains("canary"));
    }
}

#[tokio::test]
async fn a_voice_behind_a_socket_that_fails_is_asked_again_and_no_sound_is_lost_or_repeated() {
    for (kind, _) in KINDS {
        for trouble in [
            Trouble::Stall,
            Trouble::Part,
            Trouble::Cut,
            Trouble::Silence,
            Trouble::Error,
        ] {
            let provider = ContextProvider::start(&[trouble]).await;
            let mut call = socket_call(kind, &provider, "");
            let spoken = call.speak(1, "Good day to you all.").await;
            assert_eq!(spoken.failed, None, "{kind} {trouble:?}");
            assert!(
                (spoken.ms - 1000.0).abs() < 2.0,
                "{kind} {trouble:?}: {} ms",
                spoken.ms
            );
            let longest = spoken.longest_wait;
            assert!(
                longest < Duration::from_millis(1900),
                "{kind} {trouble:?}: {longest:?}"
            );
        }
        let provider = ContextProvider::start(&[Trouble::Error, Trouble::Error]).await;
        let mut call = socket_call(kind, &provider, "");
        assert!(call.speak(1, "Good day.").await.failed.is_some());
        assert_eq!(
            call.speak(2, "Good day.").await.failed,
            None,
            "the next is asked anew"
        );
    }
}

#[tokio::test]
async fn what_was_heard_counts_though_a_voice_does_not_say_that_it_was_all() {
    for (kind, _) in KINDS {
        for trouble in [
            Trouble::NoEnd,
            Trouble::NoEndAndClosed,
            Trouble::EndBeside,
            Trouble::LateEnd,
            Trouble::Nameless,
            Trouble::Wav,
            Trouble::Slow,
        ] {
            // What this voice needs for a text is known from the first.
            let provider = ContextProvider::start(&[Trouble::None, trouble]).await;
            let mut call = socket_call(kind, &provider, "");
            let spoken = call.speak(1, "How do you all do today?").await;
            assert_eq!(spoken.failed, None, "{kind} {trouble:?}");
            let spoken = call.speak(2, "Good day to you all.").await;
            assert_eq!(spoken.failed, None, "{kind} {trouble:?}");
            let wanted = match trouble {
                Trouble::Slow => 1250.0,
                _ => 1000.0,
            };
            let ms = spoken.ms;
            assert!((ms - wanted).abs() < 2.0, "{kind} {trouble:?}: {ms} ms");
            let bought = |m: &&serde_json::Value| m["flush"] == true || m["transcript"].is_string();
            let seen = provider.seen();
            let times = seen.messages.iter().filter(bought).count();
            assert_eq!(times, 2, "{kind} {trouble:?}");
            // The next is spoken as if nothing had been.
            let spoken = call.speak(3, "And to you all as well.").await;
            assert_eq!(spoken.failed, None, "{kind} {trouble:?}");
        }
    }
}

#[tokio::test]
async fn compressed_sound_on_a_socket_is_not_played() {
    for (kind, _) in KINDS {
        let provider = ContextProvider::start(&[Trouble::Mp3]).await;
        let mut call = socket_call(kind, &provider, "voice_fallback = \"scripted-tone\"");
        let spoken = call.speak(1, "Good day to you all.").await;
        assert_eq!(spoken.failed, None, "{kind}");
        assert!((spoken.ms - 1300.0).abs() < 2.0, "{kind}: {} ms", spoken.ms);
    }
}

#[tokio::test]
async fn the_words_of_a_provider_that_ends_a_socket_are_told() {
    for (kind, _) in KINDS {
        let provider = ContextProvider::start(&[Trouble::Quota, Trouble::Quota]).await;
        let mut call = socket_call(kind, &provider, "");
        let message = call.speak(1, "Good day.").await.failed.unwrap();
        assert!(message.contains("used up your quota"), "{kind}: {message}");
    }
}

#[tokio::test]
async fn the_other_voice_speaks_on_for_a_socket_too() {
    for (kind, _) in KINDS {
        let provider = ContextProvider::start(&[Trouble::Cut]).await;
        let mut call = socket_call(kind, &provider, "voice_fallback = \"scripted-tone\"");
        let spoken = call.speak(1, "Good day to you all.").await;
        assert_eq!(spoken.failed, None, "{kind}");
        assert!((spoken.ms - 1300.0).abs() < 2.0, "{kind}: {} ms", spoken.ms);
    }
}

#[tokio::test]
async fn nobody_behind_a_socket_is_told_soon() {
    for (kind, _) in KINDS {
        let settings = format!(
            "[speech]\nrecogniser = \"scripted\"\n[providers.x]\nkind = \"{kind}\"\nbase_url = \"ws://127.0.0.1:1\"\nvoices = [\"alloy\"]"
        );
        let mut call = Call::new(&settings, "echo", Some("alloy"));
        let began = Instant::now();
        assert!(call.speak(1, "Good day.").await.failed.is_some(), "{kind}");
        assert!(began.elapsed() < Duration::from_secs(4), "{kind}");
    }
}

#[tokio::test]
async fn a_cancelled_segment_is_stopped_at_the_other_end() {
    for (kind, _) in KINDS {
        let provider = ContextProvider::start(&[Trouble::Part]).await;
        let mut call = socket_call(kind, &provider, "");
        call.providers()
            .tts
            .speak(media::speech::ReplyId(1), 0, "Good day to you all.");
        call.next().await;
        call.cancel_reply(1);
        let began = Instant::now();
        let stop = |m: &serde_json::Value| m["cancel"] == true || m["close_context"] == true;
        let wanted = if kind == "elevenlabs" { 2 } else { 1 };
        while provider.seen().messages.iter().filter(|m| stop(m)).count() < wanted {
            assert!(
                began.elapsed() < Duration::from_secs(1),
                "{kind}: {:?}",
                provider.seen()
            );
            sleep(Duration::from_millis(5)).await;
        }
        let spoken = call.speak(2, "Good day.").await;
        assert_eq!(spoken.failed, None, "{kind}");
        assert_eq!(provider.seen().connections, 1, "{kind}");
    }
}
