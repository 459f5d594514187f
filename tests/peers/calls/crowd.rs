//! Many telephones at twenty agents at the same moment, each agent with a tone of its own: each telephone hears its
//! agent's and no other, and is heard in its own recording and in no other.

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

/// The tone that an agent speaks, Hz: whole ones in pieces of 20 ms, which do not mix.
fn voice(agent: usize) -> usize {
    600 + 50 * agent
}

/// How many tones callers have for the lower of their two, and for the upper.
const TONES: usize = 20;

/// The tones that a caller speaks: no two callers have the same pair.
fn pair(call: usize) -> [usize; 2] {
    [call % TONES, (call + call / TONES) % TONES]
}

/// A lower and an upper tone, Hz: whole ones, which over a second do not mix, and so far apart that they do not, either,
/// where a voice that came late has a step. No pair is a key's.
fn tones(place: usize) -> [f64; 2] {
    [500.0 + 60.0 * place as f64, 1_800.0 + 75.0 * place as f64]
}

/// An agent's greeting: each is a quarter of a second longer than the one before.
fn greeting(agent: usize) -> String {
    let name = format!("{} Hz ", voice(agent));
    format!("{name:o<0$}.", 19 + 4 * agent)
}

/// For how long each agent's tone is there, ms, by pieces of 20 ms.
fn heard(samples: &[i16], rate: u32) -> Vec<usize> {
    let pieces = || samples.chunks_exact(rate as usize / 50);
    let sounds = |agent, piece: &&[i16]| goertzel(piece, rate, voice(agent) as f64) > 0.001;
    let agents = 0..AGENTS;
    agents
        .map(|agent| 20 * pieces().filter(|piece| sounds(agent, piece)).count())
        .collect()
}

/// The tone of the call's agent is there for as long as its greeting is, give or take so many ms, and that of no
/// other for longer than where the tone begins and ends within a piece.
fn is_its_agent(call: usize, heard: &[usize], within: usize) {
    let own = call % AGENTS;
    let expected = MS_PER_CHAR * greeting(own).len();
    for (agent, &heard) in heard.iter().enumerate() {
        if agent == own {
            let off = heard.abs_diff(expected);
            assert!(off <= within, "{call}: {heard} ms of {expected}");
        } else {
            assert!(heard <= 40, "{call} hears {agent} for {heard} ms");
        }
    }
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
        let agent = json!({"interruption_enabled": false, "first_message": greeting(call)});
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
        let [lower, upper] = [0, 1].map(|at| {
            let tone = tones(pair(call)[at])[at];
            sine(8_000, tone, -12.0, 8 * SPOKEN)
        });
        let voice: Vec<i16> = lower.iter().zip(&upper).map(|(a, b)| a + b).collect();
        phone.speak(&voice).await;
        phone.hang_up().await;
        heard
    });
    for (call, heard_by) in join_all(telephones).await.into_iter().enumerate() {
        is_its_agent(call, &heard_by, 80);
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
        is_its_agent(call, &heard(&agent[..spoke], 16_000), 40);
        // A second in which the caller spoke, by the two tones that are in it: any other caller's has another.
        let second = &theirs[spoke + 4_800..][..16_000];
        for place in 0..TONES {
            for (tone, own) in tones(place).into_iter().zip(pair(call)) {
                let power = goertzel(second, 16_000, tone);
                assert_eq!(
                    power > 1e-4,
                    place == own,
                    "{call} has {power} of {tone} Hz"
                );
            }
        }
    }
}
