//! Many telephones at twenty agents at the same moment: each hears its own agent and no other, and is heard in its
//! own recording and in no other.

use std::time::Duration;

use futures_util::future::join_all;
use kit::telephone::Telephone;
use media::audio::tones::{goertzel, sine};
use serde_json::{Value, json};

use super::trunks::{by_address, server_with, until};
use crate::stage;

const AGENTS: usize = 20;
/// How long the scripted voice sounds for a character, ms.
const MS_PER_CHAR: usize = 65;
/// The tone of that voice, Hz.
const AGENT: f64 = 440.0;
/// Each caller is silent for so long, ms: longer than the longest greeting. Then they speak.
const SILENT: usize = 7_000;
const SPOKEN: usize = 1_600;

/// How many call.
fn crowd() -> usize {
    match std::env::var_os("SIDETONE_SOAK") {
        Some(_) => 400,
        None => 20,
    }
}

fn number(call: usize) -> String {
    format!("+49301234{:02}", call % AGENTS)
}

fn caller(call: usize) -> String {
    format!("+3312345{call:04}")
}

/// The tone that a caller speaks, Hz: whole ones, which over a second do not mix.
fn tone(call: usize) -> f64 {
    500.0 + 7.0 * call as f64
}

/// Characters of an agent's greeting: each is a quarter of a second longer than the one before.
fn characters(call: usize) -> usize {
    20 + 4 * (call % AGENTS)
}

/// For how long the agent's tone is there, ms, by pieces of 20 ms.
fn heard(samples: &[i16], rate: u32) -> usize {
    let pieces = samples.chunks_exact(rate as usize / 50);
    20 * pieces
        .filter(|piece| goertzel(piece, rate, AGENT) > 0.001)
        .count()
}

#[tokio::test]
async fn calls_at_once_hear_their_own_agent_and_are_recorded_each_alone() {
    let _together = stage::together().await;
    let caps = [
        "LIMITS__ACCOUNT_CALLS",
        "LIMITS__POOL_CALLS",
        "LIMITS__NODE_CALLS",
        "SIP__TRUNK_CALLS",
        "LIMITS__READS_PER_MINUTE",
        "LIMITS__WRITES_PER_MINUTE",
        "LIMITS__CALL_CREATIONS_PER_MINUTE",
    ];
    let (server, listen) = server_with(&caps.map(|name| (name, "100000"))).await;
    let client = server.client();
    let mut trunk = by_address();
    trunk["max_concurrent_calls"] = json!(crowd());
    let trunk = client.post("/sip-trunks", &trunk).await.expect(201);
    for call in 0..AGENTS {
        let greeting = format!("{}.", "o".repeat(characters(call) - 1));
        let agent = json!({"interruption_enabled": false, "first_message": greeting});
        let agent = stage::agent(&client, agent).await;
        let body =
            json!({"phone_number": number(call), "trunk_id": trunk.text("id"), "agent_id": agent});
        client
            .post("/phone-numbers/sip/register", &body)
            .await
            .expect(201);
    }
    let telephones = (0..crowd()).map(async |call| {
        let mut phone = Telephone::call_as(&caller(call), listen, &number(call)).await;
        phone.silence(SILENT).await;
        let heard = heard(&phone.heard, 8_000);
        let voice = sine(8_000, tone(call), -12.0, 8 * SPOKEN);
        phone.speak(&voice).await;
        phone.hang_up().await;
        heard
    });
    for (call, heard_for) in join_all(telephones).await.into_iter().enumerate() {
        let expected = MS_PER_CHAR * characters(call);
        assert!(
            heard_for.abs_diff(expected) <= 80,
            "{call}: {heard_for} ms of {expected}"
        );
        let path = format!("/calls?phone=%2B{}", &caller(call)[1..]);
        let over = |list: &Value| list["total"] == 1 && !list["items"][0]["ended_at"].is_null();
        let list = until(&client, &path, over).await;
        let id = list["items"][0]["id"].as_str().unwrap();
        stage::over(&client, id, Duration::from_secs(30)).await;
        let [theirs, agent] = stage::recording(&client, id).await;
        // A crowd of telephones in one process may be late.
        let spoke = theirs
            .iter()
            .position(|sample| sample.unsigned_abs() > 1_000);
        let spoke = spoke.unwrap_or_else(|| panic!("{call} is not heard"));
        let recorded = heard(&agent[..spoke], 16_000);
        assert!(
            recorded.abs_diff(expected) <= 40,
            "{call}: {recorded} ms of {expected}"
        );
        // A second in which the caller spoke, by the tone that is in it.
        let second = &theirs[spoke + 4_800..][..16_000];
        for other in 0..crowd() {
            let power = goertzel(second, 16_000, tone(other));
            assert_eq!(power > 1e-4, other == call, "{call} has {power} of {other}");
        }
    }
}
