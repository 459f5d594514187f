//! A server that is killed, and what the next one makes of its calls.

use std::time::Duration;

use serde_json::json;

#[tokio::test]
async fn a_call_that_died_with_its_server_is_ended_once_by_the_next() {
    let receiver = kit::receiver::Receiver::start().await;
    let mut server = kit::server::Setup::default()
        .scripted()
        .set("EGRESS__ALLOW", "127.0.0.1")
        .start()
        .await;
    let client = server.client();
    let voice = kit::socket::scripted_voice(&client).await;
    let fields = json!({
        "voice_id": voice, "llm_model": "echo", "webhook_url": format!("{}/calls", receiver.url),
        "first_message": "Good morning, and thank you for calling us on this fine day; how may I help you?",
    });
    let agent = kit::socket::agent(&client, fields).await;
    let mut caller = kit::socket::Caller::call(&client, &kit::socket::native(&agent)).await;
    caller.listen(2500).await;
    let id = caller.session_id.clone();
    let live = client
        .get(&format!("/conversation/{id}/status"))
        .await
        .expect(200);
    assert_eq!(live.text("status"), "live");

    server.kill();
    for _ in 0..2 {
        server.start_again().await;
        let client = server.client();
        let mut call = client.get(&format!("/calls/{id}")).await.expect(200);
        let until = std::time::Instant::now() + Duration::from_secs(10);
        while !(call.body["status"] == "failed" && call.body["has_recording"] == true) {
            assert!(std::time::Instant::now() < until, "{:#}", call.body);
            tokio::time::sleep(Duration::from_millis(50)).await;
            call = client.get(&format!("/calls/{id}")).await.expect(200);
        }
        assert_eq!(
            (call.text("end_reason"), call.text("ended_by")),
            ("node_lost".into(), "system".into())
        );
        let seconds = call.body["duration_seconds"].as_f64().unwrap();
        assert!((1.5..=3.5).contains(&seconds), "{seconds} s");

        let wav = client
            .get(&format!("/conversations/{id}/audio.wav"))
            .await
            .expect(200);
        let wav = hound::WavReader::new(wav.bytes.as_slice()).unwrap();
        let samples: Vec<i16> = wav.into_samples::<i16>().map(Result::unwrap).collect();
        assert_eq!((samples.len() as f64 / 32.0).round() / 1000.0, seconds);
        let agent_side = samples.iter().skip(1).step_by(2);
        let voiced = agent_side
            .filter(|sample| sample.unsigned_abs() > 500)
            .count();
        assert!(
            voiced > 16_000,
            "a second of the greeting is to be heard, not {voiced} samples"
        );

        // Each event once, whatever the number of starts: what was delivered is not sent again.
        let told = Duration::from_secs(10);
        let got = receiver.until(told, |got| got.len() >= 2).await;
        let mut kinds: Vec<&str> = got.iter().map(|got| got.event.as_str()).collect();
        kinds.sort_unstable();
        assert_eq!(kinds, ["call.ended", "recording.ready"]);
        assert!(got.iter().all(|got| got.text("call_id") == id));
        server.kill();
    }
}
