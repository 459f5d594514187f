//! The caller speaks while the agent does: what they heard of it until it stopped, and what is kept of that.

use std::time::Duration;

use serde_json::{Value, json};

use crate::phone::Phone;
use crate::stage;

/// The agent is heard for so long before the caller speaks, ms.
const HEARD_BEFORE: f64 = 1_500.0;

/// By how much what is told of the agent's sound may differ from what the caller heard of it, ms.
const AS_HEARD: f64 = 60.0;

/// And at most so much longer, until 300 ms of the caller were heard, beside other tests, ms.
const AT_MOST_AFTER: f64 = 2_000.0;

#[tokio::test]
async fn a_caller_interrupts_and_the_transcript_says_how_much_was_heard() {
    interrupted_call(Phone::start).await;
}

pub(crate) async fn interrupted_call(start: fn() -> Phone) {
    let _alone = stage::alone().await;
    let server = stage::server().await;
    let client = server.client();
    let fields = json!({
        "first_message": stage::long_greeting(), "barge_in_min_speech_secs": 0.3,
    });
    let agent = stage::agent(&client, fields).await;
    let mut phone = start();
    let session = phone.call(&client, &json!({"agent_id": agent})).await;
    phone.until("voice").await;
    tokio::time::sleep(Duration::from_secs_f64(HEARD_BEFORE / 1_000.0)).await;
    phone.speak(1_500).await;
    let cut = phone.message("interruption").await;
    // The agent is still while the caller speaks and until it answers; the answer is heard.
    phone.until("silence").await;
    phone.message("user_transcript").await;
    phone.until("voice").await;
    phone.until("silence").await;
    let parts = phone.heard().await;
    session.end().await.expect(200);
    stage::over(&client, &session.id, Duration::from_secs(20)).await;

    assert_eq!(parts.len(), 2, "the greeting and an answer: {parts:?}");
    let greeting = parts[0][1] - parts[0][0];
    assert!(
        (HEARD_BEFORE..HEARD_BEFORE + AT_MOST_AFTER).contains(&greeting),
        "{greeting} ms of the greeting were heard"
    );
    let path = format!("/conversations/{}/transcript", session.id);
    let transcript = client.get(&path).await.expect(200).body;
    let turns = transcript["turns"].as_array().unwrap();
    let roles: Vec<&str> = turns.iter().filter_map(|t| t["role"].as_str()).collect();
    assert_eq!(roles, ["assistant", "user", "assistant"], "{turns:?}");
    let interrupted: Vec<&Value> = turns.iter().map(|turn| &turn["interrupted"]).collect();
    assert_eq!(interrupted, [true, false, false], "{turns:?}");
    let after = turns[0]["interrupted_after_ms"].as_f64().unwrap();
    let spoken = cut["spoken_ms"].as_f64().unwrap();
    println!("heard for {greeting} ms; interrupted_after_ms {after}, spoken_ms {spoken}");
    for told in [after, spoken] {
        assert!(
            (told - greeting).abs() <= AS_HEARD,
            "heard for {greeting} ms, told {told}"
        );
    }
    let (said, whole) = (&turns[0]["estimated_text_spoken"], &turns[0]["text"]);
    let (said, whole) = (said.as_str().unwrap(), whole.as_str().unwrap());
    assert!(
        whole.starts_with(said) && !said.is_empty() && said.len() < whole.len(),
        "{said:?} of {whole:?}"
    );
}
