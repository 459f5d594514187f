//! Pipecat's client in a real browser: its offer is answered as its own servers answer it, and both sides
//! hear each other; the agent is interrupted. Its messages (RTVI) are not spoken here.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use kit::server;
use serde_json::json;

use super::browser::speak;
use super::devtools::Browser;
use super::rtc::voiced_ms;
use kit::stage;

#[tokio::test]
async fn pipecats_client_takes_part_in_a_call() {
    let server = stage::server().await;
    let client = server.client();
    let agent = stage::agent(&client, json!({"first_message": stage::long_greeting()})).await;
    let connected = client
        .post("/conversation/connect", &json!({"agent_id": agent}))
        .await
        .expect(200);
    let minted = client
        .post("/conversation/token", &json!({"agent_id": agent}))
        .await
        .expect(200);
    let id = connected.text("session_id");

    let microphone = server.data.join("microphone.wav");
    speak(&microphone, "one two three four five", 6.0);
    let mut page = Browser::open(&microphone).await;
    page.without_policy().await;
    page.goto(&format!("{}/", server.url)).await;
    page.eval(&bundle(&server.data)).await;
    let call = json!({
        "offer": format!("/api/v1/conversation/{id}/offer"),
        "bearer": minted.text("token"),
        "iceServers": connected.body["ice_config"]["iceServers"],
    });
    page.eval(&format!("callWithPipecat({call})")).await;
    page.until("seen.states.includes('ready')", 20).await;
    // The greeting, into which the microphone speaks, then the answer.
    page.until("seen.voices === 1", 20).await;
    page.until("seen.voices === 2", 40).await;
    assert_eq!(page.eval("seen.errors").await, json!([]));

    page.eval("client.disconnect()").await;
    let call = stage::over(&client, &id, Duration::from_secs(20)).await;
    assert_eq!(
        (&call["channel"], &call["end_reason"]),
        (&json!("webrtc"), &json!("caller_hangup")),
        "{call}"
    );
    let said: Vec<_> = call["transcript"]
        .as_array()
        .unwrap()
        .iter()
        .map(|turn| (turn["role"].as_str().unwrap(), turn["interrupted"] == true))
        .collect();
    assert!(
        said.starts_with(&[("assistant", true), ("user", false), ("assistant", false)]),
        "{said:?}"
    );
    let [caller, agent] = stage::recording(&client, &id).await;
    let (caller, agent) = (voiced_ms(&caller), voiced_ms(&agent));
    assert!(caller > 500, "{caller} ms of the caller");
    assert!(agent > 1_000, "{agent} ms of the agent");
}

/// The client and its page as one script, made by the bundler that `scripts/setup.sh test` has put beside it.
fn bundle(folder: &Path) -> String {
    let program = server::program();
    let target = program.parent().and_then(Path::parent).unwrap();
    let modules = target.join("peers/pipecat/node_modules");
    let bundled = folder.join("pipecat.js");
    let made = Command::new(modules.join(".bin/esbuild"))
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/peers/pipecat/phone.js"
        ))
        .args(["--bundle", "--format=iife", "--log-level=warning"])
        .arg(format!("--outfile={}", bundled.display()))
        .env("NODE_PATH", &modules)
        .status();
    assert!(
        made.is_ok_and(|status| status.success()),
        "Pipecat's client is missing: run `bash scripts/setup.sh test`"
    );
    std::fs::read_to_string(bundled).unwrap()
}
