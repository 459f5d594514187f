//! The synthesis routes as a service.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::time::Duration;

use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use super::rules;
use crate::http::scope::Scope;
use crate::testing::TestApp;
use crate::voices::{self, catalogue};

/// The status, headers and bytes of a request with the full key.
async fn send(test: &TestApp, path: &str, body: &Value) -> (StatusCode, HeaderMap, Vec<u8>) {
    let request = Request::post(format!("/api/v1{path}"))
        .header("x-api-key", &test.key)
        .header("content-type", "application/json")
        .body(body.to_string().into())
        .unwrap();
    let (status, headers, bytes, _) = test.whole(request).await;
    (status, headers, bytes.to_vec())
}

async fn get(test: &TestApp, path: &str, range: Option<&str>) -> (StatusCode, HeaderMap, Vec<u8>) {
    let mut request = Request::get(path);
    if let Some(range) = range {
        request = request.header("range", range);
    }
    let request = request.body(axum::body::Body::empty()).unwrap();
    let (status, headers, bytes, _) = test.whole(request).await;
    (status, headers, bytes.to_vec())
}

#[track_caller]
fn samples(wav: &[u8]) -> Vec<i16> {
    let mut read = hound::WavReader::new(wav).unwrap();
    let spec = read.spec();
    assert_eq!(
        (spec.channels, spec.sample_rate, spec.bits_per_sample),
        (1, 24_000, 16)
    );
    read.samples().map(Result::unwrap).collect()
}

/// The code and the field types of a refusal.
async fn refusal(test: &TestApp, path: &str, body: Value) -> (u16, String, Vec<String>) {
    let (status, answer) = test.call("POST", path, Some(body)).await;
    let fields = answer["fields"].as_array().cloned().unwrap_or_default();
    let fields = fields
        .iter()
        .map(|field| {
            let name = field["loc"][1].as_str().unwrap_or_default();
            format!("{name}: {}", field["type"].as_str().unwrap())
        })
        .collect();
    let code = answer["code"].as_str().unwrap_or_default().to_owned();
    (status.as_u16(), code, fields)
}

#[tokio::test]
async fn a_text_becomes_a_wav_of_24_khz() {
    let test = TestApp::new().await;
    let body = json!({"text": "Good morning. How are you?", "voice_id": "scripted-tone"});
    let (status, headers, wav) = send(&test, "/tts", &body).await;
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&wav));
    assert_eq!(headers["content-type"], "audio/wav");
    assert_eq!(headers["x-sample-rate"], "24000");
    assert_eq!(headers["x-character-count"], "26");
    let tone = voices::find("scripted-tone").unwrap().id.to_string();
    assert_eq!(headers["x-voice-id"], tone.as_str());
    let sound = samples(&wav);
    // The tone sounds 65 ms for each of the 13 and 12 characters that are spoken.
    let expected = 25 * 65 * 24;
    assert!(
        sound.len().abs_diff(expected) <= 24 * 20,
        "{} samples, not about {expected}",
        sound.len()
    );
    assert!(sound.iter().any(|s| s.unsigned_abs() > 3000));
    test.app.clock.advance(Duration::from_secs(1));
    let (_, used) = test.call("GET", "/usage", None).await;
    assert_eq!(used["totals"]["tts_characters"], 26);
}

#[tokio::test]
async fn a_stream_is_the_bare_samples_of_the_wav() {
    let test = TestApp::new().await;
    let mut body = json!({"text": "Good morning. How are you?", "voice_id": "scripted-tone"});
    let (_, _, wav) = send(&test, "/tts", &body).await;
    body["streaming"] = json!(true);
    let (status, headers, pcm) = send(&test, "/tts", &body).await;
    assert_eq!(status, 200);
    assert_eq!(headers["content-type"], "audio/pcm");
    assert_eq!(headers["x-encoding"], "pcm16");
    assert_eq!(headers["x-character-count"], "26");
    assert!(!headers.contains_key("content-length"));
    assert_eq!(pcm, &wav[44..]);
    assert!(test.app.tts.idle(Duration::ZERO).await);
}

#[tokio::test]
async fn a_real_voice_speaks_at_24_khz_too() {
    let test = TestApp::new().await;
    for (voice, text) in [
        (
            "espeak-en-gb-female",
            "It is half past seven. Good morning.",
        ),
        ("flite-slt", "It is half past seven. Good morning."),
        ("espeak-fr-fr-male", "Il est sept heures et demie. Bonjour."),
    ] {
        let body = json!({"text": text, "voice_id": voice});
        let (status, _, wav) = send(&test, "/tts", &body).await;
        assert_eq!(status, 200, "{voice}: {}", String::from_utf8_lossy(&wav));
        let sound = samples(&wav);
        let seconds = sound.len() as f64 / 24_000.0;
        assert!((1.5..6.0).contains(&seconds), "{voice}: {seconds} s");
        assert!(sound.iter().any(|s| s.unsigned_abs() > 3000), "{voice}");
    }
}

#[tokio::test]
async fn the_deployment_s_voice_speaks_where_none_is_named() {
    let test = TestApp::with(|config| {
        config.speech.default_voice = "espeak-en-us-male".to_owned();
    })
    .await;
    let id = |key: &str| catalogue::id_of(key).to_string();
    for body in [
        json!({"text": "Hi."}),
        json!({"text": "Hi.", "voice_id": "default"}),
        json!({"text": "Hi.", "voice_id": null, "language": "english"}),
    ] {
        let (status, headers, _) = send(&test, "/tts", &body).await;
        assert_eq!(status, 200, "{body}");
        assert_eq!(headers["x-voice-id"], id("espeak-en-us-male").as_str());
    }
    let french = json!({"text": "Bonjour.", "language": "french"});
    let (_, headers, _) = send(&test, "/tts", &french).await;
    let spoken = catalogue::known(headers["x-voice-id"].to_str().unwrap()).unwrap();
    assert_eq!(spoken.language, "french");
}

#[tokio::test]
async fn what_cannot_be_spoken_is_refused_before_synthesis() {
    let test = TestApp::new().await;
    let refused = async |body: Value| refusal(&test, "/tts", body).await;
    let invalid = |field: &str| (422, "validation_error".to_owned(), vec![field.to_owned()]);
    assert_eq!(refused(json!({})).await, invalid("text: missing"));
    assert_eq!(
        refused(json!({"text": ""})).await,
        invalid("text: string_too_short")
    );
    assert_eq!(
        refused(json!({"text": " ... "})).await,
        invalid("text: string_too_short")
    );
    assert_eq!(
        refused(json!({"text": 5})).await,
        invalid("text: string_type")
    );
    assert_eq!(
        refused(json!({"text": "Hi.", "language": "german"})).await,
        invalid("language: enum")
    );
    assert_eq!(
        refused(json!({"text": "Hi.", "streaming": "yes"})).await,
        invalid("streaming: bool_parsing")
    );
    assert_eq!(
        refused(json!({"text": "Hi.", "speed": 2})).await,
        invalid("speed: extra_forbidden")
    );
    let french = json!({"text": "Hi.", "voice_id": "espeak-fr-fr-male", "language": "english"});
    assert_eq!(refused(french).await, invalid("language: value_error"));
    assert_eq!(
        refused(json!({"text": "a ".repeat(326)})).await,
        (413, "text_too_long".to_owned(), vec![])
    );
    assert_eq!(
        refused(json!({"text": format!("Your code is {}.", "A1".repeat(31))})).await,
        (422, "word_too_long".to_owned(), vec![])
    );
    assert_eq!(
        refused(json!({"text": "Hi.", "voice_id": "nobody"})).await,
        (404, "not_found".to_owned(), vec![])
    );
    assert_eq!(test.app.tts.active(), 0);
}

#[tokio::test]
async fn synthesis_has_its_own_scope_and_its_own_budget() {
    let test = TestApp::with(|config| config.limits.tts_per_minute = 2).await;
    let body = json!({"text": "Hi.", "voice_id": "scripted-tone"});
    let voices = test.key_for(&[Scope::VoicesRead]).await;
    let (status, answer) = test
        .call_as(&voices, "POST", "/tts", Some(body.clone()))
        .await;
    assert_eq!(
        (status.as_u16(), &answer["code"]),
        (403, &json!("insufficient_scope"))
    );
    let narrow = test.key_for(&[Scope::TtsUse]).await;
    // A burst is twice a minute's worth; previews count as well.
    let preview = json!({"voice_id": "scripted-tone"});
    for _ in 0..2 {
        let tts = test
            .call_as(&narrow, "POST", "/tts", Some(body.clone()))
            .await;
        let heard = test
            .call_as(&narrow, "POST", "/voices/preview", Some(preview.clone()))
            .await;
        assert_eq!((tts.0.as_u16(), heard.0.as_u16()), (200, 200));
    }
    for path in ["/tts", "/voices/preview"] {
        let body = if path == "/tts" { &body } else { &preview };
        let (status, answer) = test
            .call_as(&narrow, "POST", path, Some(body.clone()))
            .await;
        assert_eq!(
            (status.as_u16(), &answer["code"]),
            (429, &json!("rate_limited")),
            "{path}"
        );
    }
    assert_eq!(
        test.call("GET", "/voices?limit=0", None).await.0.as_u16(),
        200,
        "reads have theirs"
    );
}

#[tokio::test]
async fn a_client_that_goes_away_ends_its_synthesis() {
    let test = TestApp::new().await;
    let text = "This sentence goes on for quite a while, and then some more. ".repeat(10);
    let body = json!({"text": text.trim(), "voice_id": "espeak-en-us-male", "streaming": true});
    let request = Request::post("/api/v1/tts")
        .header("x-api-key", &test.key)
        .header("content-type", "application/json")
        .body(body.to_string().into())
        .unwrap();
    let response = test.send(request).await;
    assert_eq!(response.status(), 200);
    let mut sound = response.into_body();
    let first = sound.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(
        first.len() < 24_000,
        "the first piece is {} bytes, half a second or more",
        first.len()
    );
    assert_eq!(test.app.tts.active(), 1);
    drop(sound);
    assert!(test.app.tts.idle(Duration::from_secs(5)).await);
    // The one voice thread is free again: the next text is spoken at once.
    let next = json!({"text": "Hi.", "voice_id": "espeak-en-us-male"});
    assert_eq!(send(&test, "/tts", &next).await.0, 200);
}

#[tokio::test]
async fn a_voice_is_previewed() {
    let test = TestApp::new().await;
    for body in [
        json!({"voice_id": "scripted-tone"}),
        json!({"voice_id": catalogue::id_of("scripted-tone"), "text": "Guten Tag"}),
    ] {
        let (status, headers, wav) = send(&test, "/voices/preview", &body).await;
        assert_eq!(status, 200);
        assert_eq!(headers["content-type"], "audio/wav");
        assert!(samples(&wav).len() > 9 * 65 * 20);
    }
    // Each character counts, as in POST /tts.
    test.app.clock.advance(Duration::from_secs(1));
    let (_, used) = test.call("GET", "/usage", None).await;
    let sample = rules::sample_sentence("english").chars().count();
    assert_eq!(used["totals"]["tts_characters"], sample + 9);
    let refused = async |body: Value| refusal(&test, "/voices/preview", body).await;
    let invalid = |field: &str| (422, "validation_error".to_owned(), vec![field.to_owned()]);
    assert_eq!(refused(json!({})).await, invalid("voice_id: missing"));
    assert_eq!(
        refused(json!({"voice_id": "scripted-tone", "text": ""})).await,
        invalid("text: string_too_short")
    );
    assert_eq!(
        refused(json!({"voice_id": "scripted-tone", "text": "a ".repeat(151)})).await,
        invalid("text: string_too_long")
    );
    for nobody in ["default", "nobody"] {
        assert_eq!(
            refused(json!({"voice_id": nobody})).await,
            (404, "not_found".to_owned(), vec![])
        );
    }
}

#[tokio::test]
async fn a_preview_url_plays_without_a_key_for_a_while() {
    let test = TestApp::new().await;
    let (_, voice) = test.call("GET", "/voices/scripted-tone", None).await;
    let url = voice["preview_url"].as_str().unwrap();
    let path = url.strip_prefix("http://sidetone.test").unwrap();
    let (status, headers, wav) = get(&test, path, None).await;
    assert_eq!(
        (status.as_u16(), &headers["content-type"]),
        (200, &"audio/wav".parse().unwrap())
    );
    assert!(samples(&wav).len() > 24_000);
    let (status, headers, part) = get(&test, path, Some("bytes=0-3")).await;
    assert_eq!((status.as_u16(), part.as_slice()), (206, &b"RIFF"[..]));
    assert_eq!(
        headers["content-range"],
        format!("bytes 0-3/{}", wav.len()).as_str()
    );
    let beyond = format!("bytes={}-", wav.len());
    assert_eq!(get(&test, path, Some(&beyond)).await.0, 416);

    let other = path.replace(
        voice["id"].as_str().unwrap(),
        &catalogue::id_of("flite-slt").to_string(),
    );
    for forged in [&other, path.split('?').next().unwrap(), &format!("{path}A")] {
        assert_eq!(get(&test, forged, None).await.0, 401, "{forged}");
    }
    test.app.clock.advance(Duration::from_secs(2 * 3600));
    assert_eq!(get(&test, path, None).await.0, 410);
}
