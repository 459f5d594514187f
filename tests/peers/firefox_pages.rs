//! Firefox calls: a page with `sidetone.js`, and the console. Its offers wish other things of Opus than Chromium's, and
//! its own media differ in all but the standard.

use std::time::Duration;

use kit::stage;
use serde_json::json;

use super::browser::shown;
use super::firefox::Firefox;
use super::page::Page;
use super::{library, rtc};

/// The agent is heard, interrupted and answers; then the network is another, and it is heard again on the new way.
#[tokio::test]
async fn a_caller_in_firefox_hears_interrupts_is_answered_restarts_and_is_recorded() {
    let server = stage::server().await;
    let client = server.client();
    let mut page = Firefox::open().await;
    let agent = rtc::talker(&client).await;
    rtc::begin(&mut page, &server, &agent, json!({})).await;
    rtc::heard(&mut page).await;
    assert_eq!(page.eval("call.transport").await, "webrtc");
    rtc::interrupts_and_is_answered(&mut page).await;

    // As the library does it when the browser comes online again.
    let round = "/ice-ufrag:(\\S+)/.exec(peer.remoteDescription.sdp)[1]";
    let first = page.eval(round).await;
    page.eval("dispatchEvent(new Event('online'))").await;
    page.until("seen.offers === 2 && peer.signalingState === 'stable'", 20)
        .await;
    page.until("call.state === 'live'", 20).await;
    assert_ne!(page.eval(round).await, first);
    let before = page
        .eval("[performance.now(), seen.responses.length]")
        .await;
    page.eval("call.sendText('Do you hear me?')").await;
    page.until(&format!("seen.responses.length > {}", before[1]), 20)
        .await;
    page.until(&format!("seen.heardAt > {}", before[0]), 20)
        .await;
    page.until("seen.agentStates.at(-1) === 'listening'", 30)
        .await;
    page.until(
        "typeof seen.stats?.rttMs === 'number' && seen.stats.lossPct < 20",
        20,
    )
    .await;
    let call = rtc::hangs_up(&mut page, &client).await;
    assert_eq!(call["channel"], "webrtc");
    assert_eq!(page.eval("seen.warnings").await, json!([]));
    assert_eq!(page.troubles, Vec::<String>::new());
}

/// In place of the microphone a voice that speaks when it is told to.
const VOICE: &str = "(async () => {
    const context = new AudioContext();
    const tone = new OscillatorNode(context, { frequency: 500 });
    const mouth = new GainNode(context, { gain: 0 });
    const voice = context.createMediaStreamDestination();
    tone.connect(mouth).connect(voice);
    tone.start();
    await context.resume();
    navigator.mediaDevices.getUserMedia = async () => voice.stream;
    window.speak = (ms) => {
        mouth.gain.value = 0.25;
        setTimeout(() => { mouth.gain.value = 0; }, ms);
    };
})()";

#[tokio::test]
async fn a_person_talks_to_an_agent_in_the_console_in_firefox() {
    let server = stage::server().await;
    let client = server.client();
    let agent = rtc::talker(&client).await;
    let mut page = Firefox::open().await;
    page.goto(&format!("{}/#key={}", server.url, server.key))
        .await;
    page.until(&shown("#/"), 20).await;
    page.eval(VOICE).await;
    page.eval(&format!("location.hash = '#/talk/{agent}'"))
        .await;
    page.until("document.querySelector('#call')", 20).await;
    page.eval("document.querySelector('#call').click()").await;
    page.until(
        "document.querySelector('#state').dataset.state === 'live'",
        20,
    )
    .await;
    // The greeting is read and heard; the caller interrupts it and is read, too.
    let turn = |role: &str, says: &str| {
        format!("document.querySelector('.turn.{role} .text')?.textContent.includes('{says}')")
    };
    page.until(&turn("assistant", "long greeting"), 20).await;
    page.until("document.querySelector('#them').ariaValueNow > 0.05", 20)
        .await;
    page.eval("speak(1500)").await;
    page.until("document.querySelector('#you').ariaValueNow > 0.05", 5)
        .await;
    page.until(
        "document.querySelector('.turn.assistant.cut s')?.textContent.length > 5",
        20,
    )
    .await;
    page.until(
        "document.querySelector('.turn.user .text')?.textContent.length > 1",
        20,
    )
    .await;
    page.until(
        "document.querySelectorAll('.turn.assistant').length >= 2",
        20,
    )
    .await;
    page.until(
        "/^Over WebRTC · \\d+ ms round trip · [\\d.]+ % lost$/.test(document.querySelector('#line').textContent)",
        10,
    )
    .await;
    page.eval("document.querySelector('#call').click()").await;
    page.until(
        "document.querySelector('#state').dataset.state === 'idle'",
        10,
    )
    .await;
    let problem = page.eval("document.querySelector('#problem').hidden").await;
    assert_eq!(problem, true);

    let calls = client.get("/calls").await.expect(200);
    let id = calls.body["items"][0]["id"].as_str().unwrap().to_owned();
    let call = stage::over(&client, &id, Duration::from_secs(20)).await;
    assert_eq!(call["end_reason"], "caller_hangup", "{call}");
    let path = format!("/conversations/{id}/transcript");
    let transcript = client.get(&path).await.expect(200).body;
    let said = |role: &str| {
        let turns = transcript["turns"].as_array().unwrap();
        turns.iter().filter(|turn| turn["role"] == role).count()
    };
    assert!(said("user") >= 1 && said("assistant") >= 2, "{transcript}");
    // The call is looked at: its recording is drawn with both sides, and plays.
    page.eval("[...document.querySelectorAll('a')].find((one) => one.textContent === 'Look at this call').click()").await;
    page.until("document.querySelector('[data-drawn]')", 30)
        .await;
    page.eval("document.querySelector('#play').click()").await;
    page.until("document.querySelector('#play').ariaLabel === 'Pause'", 10)
        .await;
    assert_eq!(page.troubles, Vec::<String>::new());
}

/// The library against a peer in the same page: see `library.rs`, where Chromium does the same. Once Firefox has restarted
/// ICE, its data channel may be slower than the library waits for a goodbye, which then goes by a request.
#[tokio::test]
async fn a_call_from_a_page_over_webrtc_in_firefox() {
    let server = kit::server::Server::scripted().await;
    let mut page = Firefox::open().await;
    let told = library::called(&mut page, &server).await;
    library::went_well(&told);
    assert_eq!(page.troubles, Vec::<String>::new());
}
