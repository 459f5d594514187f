//! Calls to the real program whose model or voice is a provider that stalls, refuses, breaks off and lies.

mod ears;
mod faults;
mod models;
mod names;
mod voices;

use std::time::Duration;

use kit::client::Client;
use kit::server::Setup;
use kit::socket::{Caller, native};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::stage;

/// The key that no log and no answer may show.
const KEY: &str = "sk-canary-3f9a";

/// A server whose provider `name` is of this kind at this address.
fn provider(setup: Setup, name: &str, kind: &str, url: &str) -> Setup {
    let name = name.to_uppercase();
    setup
        .set(&format!("PROVIDERS__{name}__KIND"), kind)
        .set(&format!("PROVIDERS__{name}__BASE_URL"), url)
        .set(&format!("PROVIDERS__{name}__API_KEY"), KEY)
}

/// A native call to an agent with these fields.
async fn call(client: &Client, fields: Value) -> Caller {
    let agent = stage::agent(client, fields).await;
    Caller::call(client, &native(&agent)).await
}

/// What the caller says, and the agent's answer to it.
struct Turn {
    /// The caller's words, as they were understood.
    heard: String,
    /// From the end of the turn to the agent's first sound.
    reaction: Duration,
    /// The agent's words.
    answer: String,
    /// The longest silence from the end of the turn to the end of the answer.
    dead_air: Duration,
    /// The agent's sound, ms.
    sound_ms: f64,
}

/// Says the sound and listens until the agent has answered; `None`: it did not within `patience`.
async fn turn(caller: &mut Caller, sound: &[i16], patience: Duration) -> Option<Turn> {
    let seen = caller.messages.len();
    caller.speak(sound).await;
    let began = Instant::now();
    loop {
        caller.listen(20).await;
        if let Some(turn) = finished(caller, seen) {
            return Some(turn);
        }
        if began.elapsed() > patience || caller.closed.is_some() {
            return None;
        }
    }
}

/// The turn, once its answer has been heard to its end.
fn finished(caller: &Caller, seen: usize) -> Option<Turn> {
    let messages = &caller.messages[seen..];
    let place = messages
        .iter()
        .position(|(_, m)| m["type"] == "user_transcript" && m["is_final"] == true)?;
    let (ended, transcript) = &messages[place];
    let after = &messages[place..];
    let answered = after
        .iter()
        .rposition(|(_, m)| m["type"] == "agent_response" && m["is_final"] == true)?;
    let answer = &after[answered].1;
    // Its last words have begun to sound.
    after[answered..]
        .iter()
        .find(|(_, m)| m["type"] == "audio")?;
    let mut reaction = None;
    let mut until = *ended;
    let mut dead_air = Duration::ZERO;
    let mut sound_ms = 0.0;
    for (at, message) in after.iter().filter(|(_, m)| m["type"] == "audio") {
        reaction.get_or_insert(*at - *ended);
        dead_air = dead_air.max(at.saturating_duration_since(until));
        let ms = message["duration_ms"].as_f64().unwrap_or(0.0);
        sound_ms += ms;
        until = until.max(*at) + Duration::from_secs_f64(ms / 1000.0);
    }
    // The end of the sound is known by what does not follow it: a voice that goes on after a fault does
    // so within two seconds.
    let silent = Instant::now().saturating_duration_since(until);
    (sound_ms > 0.0 && silent > Duration::from_millis(2200)).then(|| Turn {
        heard: transcript["text"].as_str().unwrap_or_default().to_owned(),
        reaction: reaction.unwrap_or_default(),
        answer: answer["text"].as_str().unwrap_or_default().to_owned(),
        dead_air,
        sound_ms,
    })
}

/// Waits until the greeting is over.
async fn greeted(caller: &mut Caller) {
    caller.wait_for("agent_response", 5000).await;
    silent(caller).await;
}

/// Waits until what the agent says is over.
async fn silent(caller: &mut Caller) {
    let mut count = 0;
    loop {
        caller.listen(400).await;
        let now = caller.of_kind("audio").len();
        if now == count {
            return;
        }
        count = now;
    }
}

/// The call is over as it should be, and nothing shows the key.
async fn check_end(server: &kit::server::Server, caller: Caller) {
    let client = server.client();
    let id = caller.session_id.clone();
    assert_eq!(caller.closed, None, "the call ended by itself");
    caller.hang_up().await;
    let call = stage::over(&client, &id, Duration::from_secs(10)).await;
    assert_eq!(
        (&call["status"], &call["end_reason"]),
        (&json!("completed"), &json!("caller_hangup"))
    );
    assert!(!call.to_string().contains(KEY));
    let log = std::fs::read_to_string(server.data.join("server.log")).unwrap();
    assert!(!log.contains(KEY), "the log shows the key");
}
