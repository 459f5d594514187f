//! `POST /tts` with `streaming`: sound goes out as it comes in.

use std::time::Duration;

use futures_util::StreamExt;
use kit::provider::sound::pcm;
use kit::provider::{Answer, HttpProvider};
use kit::server::{Server, reqwest_client};
use serde_json::json;
use tokio::time::Instant;

use crate::stage;

/// Sound a piece, ms; the provider sends it in real time.
const PIECE: u32 = 250;

async fn server(voice: &HttpProvider) -> Server {
    stage::setup()
        .set("PROVIDERS__X__KIND", "openai")
        .set("PROVIDERS__X__BASE_URL", &voice.url())
        .set("PROVIDERS__X__VOICES", "alloy")
        .set("LIMITS__TTS_PER_MINUTE", "1000000")
        .start()
        .await
}

async fn speak(http: &reqwest::Client, server: &Server) -> reqwest::Response {
    let body = json!({"text": "Hello there.", "voice_id": "x-alloy", "streaming": true});
    let request = http.post(format!("{}/api/v1/tts", server.url)).json(&body);
    let answer = request
        .header("x-api-key", &server.key)
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status().as_u16(), 200);
    answer
}

#[tokio::test]
async fn the_first_sound_goes_out_as_soon_as_it_came_in() {
    let _alone = stage::alone().await;
    let first = Duration::from_millis(40);
    let voice = HttpProvider::start(move |_| {
        Answer::ok("audio/pcm")
            .wait(first)
            .send(pcm(24_000, PIECE))
            .wait(Duration::from_millis(150))
            .send(pcm(24_000, PIECE))
    })
    .await;
    let server = server(&voice).await;
    let http = reqwest_client();
    let mut late = Vec::new();
    for round in 0..40 {
        let answer = speak(&http, &server).await;
        let mut sound = answer.bytes_stream();
        sound.next().await.unwrap().unwrap();
        let heard = Instant::now();
        let asked = voice.asked()[round].at;
        late.push((heard - asked - first).as_secs_f64() * 1000.0);
        while sound.next().await.is_some() {}
    }
    let median = stage::median(&mut late);
    println!(
        "the first byte came {median:.1} ms after the provider's, at most {:.1} ms",
        late[39]
    );
    assert!(median <= 10.0, "{median} ms");
}
