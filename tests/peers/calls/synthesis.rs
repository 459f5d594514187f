//! `POST /tts` with `streaming`: sound goes out as it comes in, and many streams need no more memory the
//! longer they last.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use kit::provider::sound::pcm;
use kit::provider::{Answer, HttpProvider};
use kit::server::{Server, reqwest_client};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::stage;

/// What is spoken. A voice that sounds for more than twice as long as it should is stopped, so this is a
/// sentence that may take the eight seconds of the longest stream here.
const TEXT: &str = "This voice speaks for about eight seconds.";

/// Sound a piece, ms; the provider sends it in real time.
const PIECE: u32 = 250;

/// Bytes of an answer's millisecond: 24 kHz, 16 bits.
const BYTES: usize = 48;

/// Pieces of a stream.
const PIECES: usize = 32;

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
    let body = json!({"text": TEXT, "voice_id": "x-alloy", "streaming": true});
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

#[tokio::test]
async fn streams_need_no_more_memory_the_longer_they_last() {
    let _together = stage::together().await;
    let count = if stage::soak() { 500 } else { 50 };
    let voice = HttpProvider::start(|_| {
        (0..PIECES).fold(Answer::ok("audio/pcm"), |answer, _| {
            answer
                .send(pcm(24_000, PIECE))
                .wait(Duration::from_millis(PIECE.into()))
        })
    })
    .await;
    let server = server(&voice).await;
    let http = reqwest_client();
    // How many streams have come how far.
    let (tell, told) = watch::channel((0_usize, 0_usize));
    let streams = join_all((0..count).map(async |_| {
        let mut sound = speak(&http, &server).await.bytes_stream();
        let (mut bytes, mut far) = (0, false);
        tell.send_modify(|(begun, _)| *begun += 1);
        while let Some(piece) = sound.next().await {
            bytes += piece.unwrap().len();
            if !far && bytes > PIECES * PIECE as usize * BYTES * 3 / 4 {
                far = true;
                tell.send_modify(|(_, far)| *far += 1);
            }
        }
        bytes
    }));
    let memory = async {
        let mut told = told.clone();
        told.wait_for(|(begun, _)| *begun == count).await.unwrap();
        let early = server.memory_kib();
        told.wait_for(|(_, far)| *far == count).await.unwrap();
        (early, server.memory_kib())
    };
    let (bytes, (early, late)) = tokio::join!(streams, memory);
    println!("{count} streams: {early} KiB when all had begun, {late} KiB near their end");
    let least = bytes.iter().min().unwrap();
    assert!(
        *least >= PIECES * PIECE as usize * (BYTES - 1),
        "a stream had {least} bytes"
    );
    // A sixth of a second of sound each, of six seconds.
    let grown = late.saturating_sub(early);
    assert!(
        grown <= 4096 + 8 * count as u64,
        "{grown} KiB more for {count} streams"
    );
}
