//! Real peers against the real binary: a browser, and the binary's own commands.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

mod account_pages;
mod browser;
mod call_pages;
mod command_line;
mod devtools;
mod firefox;
mod firefox_pages;
mod library;
mod page;
mod pipecat;
mod protocol;
mod questions;
mod rtc;
mod telephone_pages;

use kit::server::Server;
use serde_json::json;

/// Makes an agent that speaks with a voice and answers from its prompt; gives its id.
async fn speaking_agent(server: &Server, name: &str, greeting: &str, prompt: &str) -> String {
    let voices = server
        .client()
        .get("/voices?language=english&limit=500")
        .await
        .expect(200)
        .body;
    let spoken = |voice: &&serde_json::Value| {
        voice["voice_key"]
            .as_str()
            .is_some_and(|key| key.starts_with("espeak"))
    };
    let voice = voices["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(spoken)
        .unwrap();
    let body = json!({
        "name": name,
        "system_prompt": prompt,
        "first_message": greeting,
        "voice_id": voice["id"],
        "llm_model": "faq",
        "idle_check_in_after_secs": 60,
    });
    server
        .client()
        .post("/agents", &body)
        .await
        .expect(201)
        .text("id")
}
