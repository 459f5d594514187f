//! Canaries: secrets that the server is given or makes stand in no log, no file of the data folder and no
//! answer but the one that shows them once.

use std::path::Path;

use kit::server::Setup;
use serde_json::json;

/// What a grep for a secret would look for: the secret, and base64 of it.
fn canaries(secret: &str) -> [String; 2] {
    let encoded = base64_simd::STANDARD_NO_PAD.encode_to_string(secret.as_bytes());
    [secret.to_owned(), encoded]
}

/// Files below `folder` that hold `needle`.
fn holders(folder: &Path, needle: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(holders(&path, needle));
        } else {
            let bytes = std::fs::read(&path).unwrap();
            let holds = bytes
                .windows(needle.len())
                .any(|window| window == needle.as_bytes());
            if holds {
                found.push(path.display().to_string());
            }
        }
    }
    found
}

#[tokio::test]
async fn no_secret_is_written_anywhere_or_told_twice() {
    let master = base64_simd::STANDARD.encode_to_string([0xA7; 32]);
    let (admin, aws) = ("canary-of-the-operator-9f31", "canary-of-the-bucket-77aa");
    let mut server = Setup::default()
        .scripted()
        .set("SERVER__LOG", "debug")
        .set("ADMIN_TOKEN", admin)
        .set("MASTER_KEY", &master)
        .env("AWS_SECRET_ACCESS_KEY", aws)
        .start()
        .await;
    let client = server.client();
    let made = client
        .post("/api-keys", &json!({"name": "canary"}))
        .await
        .expect(201);
    let path = format!("/api-keys/{}", made.text("id"));
    let rotated = client
        .post(&format!("{path}/rotate"), &json!({}))
        .await
        .expect(200);
    let agent = kit::socket::agent(&client, json!({})).await;
    let session = client
        .post("/conversation/connect", &kit::socket::native(&agent))
        .await
        .expect(200);
    let ticket = session.text("ws_url");
    let ticket = ticket.split("token=").nth(1).unwrap().to_owned();
    let operator = server.anonymous().with_bearer(admin);
    let mut answers = Vec::new();
    for path in [
        "/api-keys",
        &path,
        "/agents",
        "/billing/status",
        "//metrics",
        "/openapi.json",
    ] {
        answers.push(client.get(path).await.expect(200));
    }
    answers.push(operator.get("/admin/accounts").await.expect(200));
    answers.push(
        client
            .with_key("st_live_wrong")
            .get("/agents")
            .await
            .expect(401),
    );
    answers.push(client.get("/no/such/route").await.expect(404));
    let secrets = [
        admin.to_owned(),
        aws.to_owned(),
        master,
        server.key.clone(),
        made.text("key"),
        rotated.text("key"),
        ticket,
    ];
    server.terminate();
    let ended = server.ended(std::time::Duration::from_secs(30)).await;
    assert_eq!(ended, Some(0));
    for secret in &secrets {
        for needle in canaries(secret) {
            assert_eq!(
                holders(&server.data, &needle),
                Vec::<String>::new(),
                "{needle}"
            );
            for answer in &answers {
                let text = String::from_utf8_lossy(&answer.bytes);
                assert!(!text.contains(&needle), "{needle} in {text}");
            }
        }
    }
}
