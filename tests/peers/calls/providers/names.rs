//! What a call's providers call their answers, as its diagnostics tell it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kit::provider::live::{self, LiveProvider, word};
use kit::provider::sound::pcm;
use kit::provider::{Answer, HttpProvider, chat};
use serde_json::json;

use super::{call, check_end, greeted, provider, turn};
use crate::stage;

#[tokio::test]
async fn diagnostics_tell_what_the_providers_call_their_answers() {
    let _together = stage::together().await;
    let ears = LiveProvider::start().await;
    let asked = AtomicUsize::new(0);
    let model = HttpProvider::start(move |_| match asked.fetch_add(1, Ordering::SeqCst) {
        0 => Answer::status(503).header("x-request-id", "req_busy"),
        1 => chat::text(&["Here I am."]).header("X-Request-Id", "req_answer"),
        // What nobody can quote is not kept.
        _ => chat::text(&["And again."]).header("x-request-id", "two words"),
    })
    .await;
    let spoken = AtomicUsize::new(0);
    let voice = HttpProvider::start(move |_| {
        let segment = spoken.fetch_add(1, Ordering::SeqCst);
        Answer::ok("audio/pcm")
            .header("request-id", &format!("voice_{segment}"))
            .send(pcm(24_000, 400))
    })
    .await;
    let setup = provider(stage::setup(), "ears", "deepgram", &ears.url())
        .set("PROVIDERS__EARS__STT_MODEL", "nova-3")
        .set("SPEECH__RECOGNISER", "ears");
    let setup = provider(setup, "x", "openai", &model.url()).set("PROVIDERS__X__MODELS", "m");
    let setup = provider(setup, "y", "openai", &voice.url()).set("PROVIDERS__Y__VOICES", "alloy");
    let server = setup.start().await;
    let client = server.client();
    let alloy = client.get("/voices/y-alloy").await.expect(200).text("id");
    let fields = json!({"voice_id": alloy, "llm_model": ""});
    let mut caller = call(&client, fields).await;
    greeted(&mut caller).await;
    let sound: Vec<i16> = [1, 5].into_iter().flat_map(word).collect();
    for answer in ["Here I am.", "And again."] {
        let turn = turn(&mut caller, &sound, Duration::from_secs(10)).await;
        assert_eq!(turn.expect("an answer").answer, answer);
    }
    let id = caller.session_id.clone();
    check_end(&server, caller).await;
    let told = client
        .get(&format!("/conversations/{id}/diagnostics"))
        .await;
    let told = told.expect(200).body;
    let mut ids: Vec<&str> = told["provider_request_ids"]
        .as_array()
        .unwrap()
        .iter()
        .map(|id| id.as_str().unwrap())
        .collect();
    ids.sort_unstable();
    let mut wanted = vec![live::CONNECTION, live::RESULT, "req_answer", "req_busy"];
    wanted.extend(["voice_0", "voice_1", "voice_2"]);
    assert_eq!(ids, wanted);
}
