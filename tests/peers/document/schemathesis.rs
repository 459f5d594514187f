//! schemathesis makes requests out of the document, right and wrong ones, and checks every answer against it.

use std::path::Path;
use std::process::{Command, Stdio};

use kit::certificates;
use kit::server::{Server, Setup};
use serde_json::json;

use crate::{beside, copy, tool};

const ADMIN: &str = "an-administrators-token";

#[tokio::test]
async fn every_answer_is_as_the_document_says() {
    let soak = std::env::var_os("SIDETONE_SOAK").is_some();
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path()).await;
    let admin = server.anonymous().with_bearer(ADMIN);
    // A key of an account of its own, which the run may not revoke.
    let account = admin
        .post("/admin/accounts", &json!({"name": "schemathesis"}))
        .await
        .expect(201)
        .text("id");
    let scopes = control::http::Scope::NAMES;
    let key = admin
        .post(
            &format!("/admin/accounts/{account}/api-keys"),
            &json!({"name": "run", "scopes": scopes}),
        )
        .await
        .expect(201);
    let client = server.client().with_key(&key.text("key"));
    let voices = client.get("/voices?limit=1").await.expect(200).body;
    let voice = voices["items"][0]["id"].as_str().unwrap().to_owned();
    let agent =
        json!({"name": "Desk", "system_prompt": "Breakfast is at seven.", "voice_id": voice});
    client.post("/agents", &agent).await.expect(201);

    let mut command = Command::new(tool("st"));
    command
        .arg("--no-color")
        .arg("--config-file")
        .arg(beside("schemathesis.toml"))
        .arg("run")
        // From the file, for of a served document it leaves out the route that serves it. `--checks` is not given: all
        // are on, and a choice on the command line would go over the exceptions of the file.
        .arg(copy())
        .args(["--url", &server.url])
        .args(["--warnings", "off", "--request-timeout", "30"])
        .args(["--continue-on-failure", "--suppress-health-check", "all"])
        .args(["--max-examples", if soak { "100" } else { "10" }])
        .env("SCHEMATHESIS_HOOKS", beside("hooks.py"))
        .env("SIDETONE_KEY", key.text("key"))
        .env("SIDETONE_KEY_ID", key.text("id"))
        .env("SIDETONE_ACCOUNT_ID", &account)
        .env("SIDETONE_ADMIN", ADMIN)
        .env("SIDETONE_VOICE", &voice)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(&server.data)
        .stdin(Stdio::null());
    match std::env::var("SIDETONE_SEED") {
        Ok(seed) => command.args(["--seed", &seed]),
        // The soak looks further each time; it prints the seed that it took.
        Err(_) if soak => &mut command,
        Err(_) => command.args(["--seed", "1"]),
    };
    let output = tokio::task::spawn_blocking(move || command.output())
        .await
        .unwrap()
        .expect("schemathesis starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "schemathesis found something:\n{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    // It did look: at every operation of the document, in every phase.
    for phase in ["Examples", "Coverage", "Fuzzing", "Stateful"] {
        assert!(text.contains(phase), "no phase {phase}:\n{text}");
    }
    let operations = control::routes::endpoints()
        .iter()
        .filter(|endpoint| !endpoint.internal)
        .count();
    assert!(
        text.contains(&format!("{operations} selected / {operations} total")),
        "not every operation:\n{text}"
    );
}

/// It listens for SIP over each transport that a trunk may have.
async fn start(folder: &Path) -> Server {
    certificates::make(folder);
    let file = |name: &str| folder.join(name).display().to_string();
    let listen = ["udp", "tcp", "tls"].map(|transport| format!("{transport}:127.0.0.1:0"));
    Setup::default()
        .scripted()
        .set("SIP__LISTEN", &listen.join(","))
        .set("SIP__TLS_CERTIFICATE", &file("leaf.crt"))
        .set("SIP__TLS_KEY", &file("leaf.key"))
        .env("SIDETONE_ADMIN_TOKEN", ADMIN)
        .set("LIMITS__TTS_PER_MINUTE", "1000000")
        .set("LIMITS__ACCOUNT_CALLS", "100000")
        .set("LIMITS__POOL_CALLS", "100000")
        .start()
        .await
}
