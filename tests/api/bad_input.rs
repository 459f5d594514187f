//! What a stranger can send: clear answers, flat memory, nothing broken.

use kit::server::Server;
use reqwest::Method;
use serde_json::json;

#[tokio::test]
async fn malformed_bodies_are_refused_by_name() {
    let server = Server::scripted().await;
    let client = server.client();
    let deep = format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000));
    let deep_object = format!("{}1{}", "{\"a\":".repeat(10_000), "}".repeat(10_000));
    let many_keys = {
        let keys: Vec<String> = (0..60_000).map(|n| format!("\"k{n}\":1")).collect();
        format!("{{{}}}", keys.join(","))
    };
    let cases: [(&str, Vec<u8>, u16); 11] = [
        ("empty", vec![], 422),
        ("not JSON", b"hello".to_vec(), 422),
        ("cut off", b"{\"name\": \"x\"".to_vec(), 422),
        ("an array", b"[]".to_vec(), 422),
        ("depth 10,000", deep.into_bytes(), 422),
        ("depth 10,000 of objects", deep_object.into_bytes(), 422),
        ("60,000 keys", many_keys.into_bytes(), 422),
        ("NaN", b"{\"name\": NaN}".to_vec(), 422),
        ("a NUL", b"{\"name\": \"a\\u0000b\"}".to_vec(), 422),
        ("a lone surrogate", b"{\"name\": \"\\ud800\"}".to_vec(), 422),
        ("no UTF-8", b"{\"name\": \"\xff\xfe\"}".to_vec(), 422),
    ];
    for (what, body, status) in cases {
        let answer = client.send(Method::POST, "/agents", Some(body)).await;
        assert_eq!(answer.status, status, "{what}: {}", answer.body);
        assert!(
            answer.bytes.len() < 64 * 1024,
            "{what}: an answer of {} bytes",
            answer.bytes.len()
        );
    }
}

#[tokio::test]
async fn a_body_over_a_mebibyte_is_413_and_costs_no_memory() {
    let server = Server::scripted().await;
    let client = server.client();
    client.get("/agents").await.expect(200);
    let before = server.memory_kib();
    let large = vec![b' '; 2 << 20];
    let answer = client
        .send(Method::POST, "/agents", Some(large))
        .await
        .expect(413);
    assert_eq!(answer.text("code"), "payload_too_large");
    let grown = server.memory_kib().saturating_sub(before);
    assert!(grown < 10 * 1024, "memory grew by {grown} KiB");
    client.get("/agents").await.expect(200);
}

#[tokio::test]
async fn other_media_types_unknown_routes_and_long_headers() {
    let server = Server::scripted().await;
    let client = server.client();
    let text = [("content-type", "text/plain")];
    let answer = client
        .send_with(Method::POST, "/agents", Some(b"{}".to_vec()), &text)
        .await
        .expect(415);
    assert_eq!(answer.text("code"), "unsupported_media_type");
    client.get("/no/such/route").await.expect(404);
    client.get("//no-such-page").await.expect(404);
    client.get("/agents/%ff%fe").await.expect(422);
    let long = "x".repeat(200_000);
    let http = kit::server::reqwest_client();
    let answer = http
        .get(format!("{}/api/v1/agents", server.url))
        .header("x-long", long)
        .send()
        .await;
    if let Ok(answer) = answer {
        assert!(
            matches!(answer.status().as_u16(), 431 | 400),
            "{}",
            answer.status()
        );
    }
    client.get("/agents").await.expect(200);
}

#[tokio::test]
async fn unknown_fields_are_named_and_on_connect_ignored() {
    let server = Server::scripted().await;
    let client = server.client();
    let agent = kit::socket::agent(&client, json!({})).await;
    let answer = client
        .patch(&format!("/agents/{agent}"), &json!({"colour": "red"}))
        .await
        .expect(422);
    assert_eq!(answer.wrong_fields(), ["body.colour"]);
    assert_eq!(answer.body["detail"][0]["type"], "extra_forbidden");
    let connect =
        json!({"agent_id": agent, "transport": "websocket", "pc_id": null, "surprise": 1});
    client.connect(&connect).await;
}

#[tokio::test]
async fn connect_names_what_is_wrong() {
    let server = Server::scripted().await;
    let client = server.client();
    let agent = kit::socket::agent(&client, json!({})).await;
    let base = json!({"agent_id": agent, "transport": "websocket"});
    for (name, value, field) in [
        ("agent_id", json!("x"), "body.agent_id"),
        ("agent_id", json!(null), "body.agent_id"),
        ("transport", json!("carrier_pigeon"), "body.transport"),
        ("direction", json!("sideways"), "body.direction"),
        ("protocol", json!("morse"), "body.protocol"),
        ("audio_format", json!("mp3"), "body.audio_format"),
        ("caller_phone", json!("0123"), "body.caller_phone"),
        ("dynamic_variables", json!([1]), "body.dynamic_variables"),
        (
            "dynamic_variables",
            json!({"system__caller_id": "x"}),
            "body.dynamic_variables.system__caller_id",
        ),
        (
            "dynamic_variables",
            json!({"a": {"b": 1}}),
            "body.dynamic_variables.a",
        ),
    ] {
        let mut body = base.clone();
        body[name] = value.clone();
        let answer = client
            .post("/conversation/connect", &body)
            .await
            .expect(422);
        let wrong = answer.wrong_fields();
        assert!(
            wrong
                .iter()
                .any(|f| f.starts_with(field) || field.starts_with(f.as_str())),
            "{name} = {value}: {wrong:?}"
        );
    }
    let telco = json!({"agent_id": agent, "transport": "websocket", "protocol": "telco", "audio_format": "pcm_16000"});
    let answer = client
        .post("/conversation/connect", &telco)
        .await
        .expect(422);
    assert_eq!(answer.wrong_fields(), ["body.audio_format"]);
    let missing = client
        .post("/conversation/connect", &json!({"transport": "websocket"}))
        .await
        .expect(422);
    assert_eq!(missing.wrong_fields(), ["body.agent_id"]);
}
