//! Call tokens: what they say, what they open, each that opens nothing, and their budgets.

use super::*;

#[tokio::test]
async fn a_call_token_says_what_it_is_for_and_how_long() {
    let server = Server::start().await;
    let agent = server.agent(json!({"max_duration_seconds": 600})).await;
    let now = server.test.app.clock.now().seconds();
    for (asked, lifetime) in [
        (json!({}), 660),
        (json!({"ttl_seconds": null}), 660),
        (json!({"ttl_seconds": 5}), 60),
        (json!({"ttl_seconds": -1}), 60),
        (json!({"ttl_seconds": 90}), 90),
        (json!({"ttl_seconds": 1_000_000}), 4320),
        (json!({"ttl_seconds": u64::MAX}), 4320),
        (json!({"ttl_seconds": 1e30}), 4320),
        (json!({"ttl_seconds": -1e30}), 60),
    ] {
        let mut body = json!({"agent_id": agent});
        body.as_object_mut()
            .unwrap()
            .extend(asked.as_object().unwrap().clone());
        let (status, answer) = server
            .test
            .call("POST", "/conversation/token", Some(body))
            .await;
        assert_eq!(status, 200, "{answer}");
        assert_eq!(
            (
                &answer["token_type"],
                &answer["agent_id"],
                &answer["expires_in"]
            ),
            (&json!("Bearer"), &json!(agent), &json!(lifetime))
        );
        assert_eq!(answer["scopes"], json!(["calls:read", "calls:write"]));
        let expires = control::time::Timestamp::from_micros((now + lifetime) * 1_000_000);
        assert_eq!(answer["expires_at"], json!(expires));
    }
    for (body, field) in [
        (json!({}), "agent_id"),
        (json!({"agent_id": "x"}), "agent_id"),
        (
            json!({"agent_id": agent, "ttl_seconds": 1.5}),
            "ttl_seconds",
        ),
        (
            json!({"agent_id": agent, "ttl_seconds": "90"}),
            "ttl_seconds",
        ),
        (json!({"agent_id": agent, "more": 1}), "more"),
    ] {
        let (status, answer) = server
            .test
            .call("POST", "/conversation/token", Some(body))
            .await;
        assert_eq!(
            (status.as_u16(), &answer["fields"][0]["loc"][1]),
            (422, &json!(field))
        );
    }
    let unknown = json!({"agent_id": CallId::NIL});
    let (status, _) = server
        .test
        .call("POST", "/conversation/token", Some(unknown))
        .await;
    assert_eq!(status, 404);
    // It carries what of the key's scopes is about calls.
    let few = server
        .test
        .key_for(&[Scope::CallsWrite, Scope::AgentsRead])
        .await;
    let (_, answer) = server
        .test
        .call_as(
            &few,
            "POST",
            "/conversation/token",
            Some(json!({"agent_id": agent})),
        )
        .await;
    assert_eq!(answer["scopes"], json!(["calls:write"]));
    // Another account's agent is not there.
    let (_, stranger) = server.test.other_account().await;
    let (status, _) = server
        .test
        .call_as(
            &stranger,
            "POST",
            "/conversation/token",
            Some(json!({"agent_id": agent})),
        )
        .await;
    assert_eq!(status, 404);
}

#[tokio::test]
async fn a_call_token_opens_the_session_routes_and_no_others() {
    let server = Server::start().await;
    let agent = server.agent(json!({})).await;
    let bearer = format!("Bearer {}", token(&server, &agent).await);
    let headers = [("authorization", bearer.as_str())];
    let browser = Client::of(&server, &headers);
    let connected = browser.connect(&agent).await;
    assert_eq!(connected.0, 200, "{}", connected.1);
    assert!(connected.1.get("token").is_none());
    let id = text(&connected, "session_id");
    for (method, path, body) in routes(&id) {
        let answer = browser.ask(method, &path, body).await;
        assert!(
            ![401, 403].contains(&answer.0) && answer.1["code"] != "not_found",
            "{method} {path}: {}",
            answer.1
        );
    }
    for (method, path, body) in [
        ("GET", "/agents".to_owned(), Value::Null),
        ("GET", format!("/calls/{id}"), Value::Null),
        ("POST", format!("/calls/{id}/end"), json!({})),
        (
            "POST",
            "/conversation/token".to_owned(),
            json!({"agent_id": agent}),
        ),
        (
            "POST",
            format!("/conversation/{id}/tool-result"),
            json!({"tool_call_id": "x", "result": 1}),
        ),
        ("GET", format!("/conversations/{id}"), Value::Null),
    ] {
        let answer = browser.ask(method, &path, body).await;
        assert_eq!(code(&answer), (401, "unauthorized"), "{method} {path}");
    }
    // As a key it is none.
    let as_key = [("x-api-key", headers[0].1.strip_prefix("Bearer ").unwrap())];
    let answer = Client::of(&server, &as_key).connect(&agent).await;
    assert_eq!(code(&answer), (401, "unauthorized"));
    // A WebSocket needs a key.
    let socket = json!({"agent_id": agent, "transport": "websocket"});
    let answer = browser.ask("POST", "/conversation/connect", socket).await;
    assert_eq!(code(&answer), (403, "forbidden"));
}

/// The table of tokens: each that is not good, at each route that takes one.
#[tokio::test]
async fn a_token_that_is_not_good_opens_nothing() {
    // Each is told what is wrong with it, however many there are.
    let server = Server::with(|config| config.limits.failed_auth_per_minute = 10_000).await;
    let app = &server.test.app;
    let agent = server.agent(json!({})).await;
    let other_agent = server.agent(json!({})).await;
    let id = session(&server, &agent).await;
    let good = token(&server, &agent).await;
    let claims = |token: &str| call_token::read(&app.master_key, token, app.clock.now()).unwrap();
    let sign = |claims: &Claims| call_token::mint(&app.master_key, claims).unwrap();

    let (header, rest) = good.split_once('.').unwrap();
    let (payload, signature) = rest.split_once('.').unwrap();
    let base64 = |text: &str| base64_simd::URL_SAFE_NO_PAD.encode_to_string(text);
    let mut elsewhere = claims(&good);
    elsewhere.account = server.test.other_account().await.0;
    let mut keyless = claims(&good);
    keyless.kid = None;
    let mut expired = claims(&good);
    expired.exp = app.clock.now().seconds();
    let another = sign(&claims(&token(&server, &other_agent).await));
    let (_, another_signature) = another.rsplit_once('.').unwrap();
    // A key that was revoked, one that has expired, one that lost its scope.
    let by_key = async |change: &str| {
        let made = json!({"name": "minter", "scopes": ["calls:read", "calls:write"]});
        let (_, key) = server.test.call("POST", "/api-keys", Some(made)).await;
        let text = key["key"].as_str().unwrap().to_owned();
        let body = json!({"agent_id": agent});
        let (status, minted) = server
            .test
            .call_as(&text, "POST", "/conversation/token", Some(body))
            .await;
        assert_eq!(status, 200, "{minted}");
        let path = format!("/api-keys/{}", key["id"].as_str().unwrap());
        let (method, body) = match change {
            "revoked" => ("DELETE", None),
            "expired" => (
                "PATCH",
                Some(json!({"expires_at": app.clock.now().plus(Duration::from_millis(1))})),
            ),
            _ => ("PATCH", Some(json!({"scopes": ["models:read"]}))),
        };
        let (status, answer) = server.test.call(method, &path, body).await;
        assert!(status.is_success(), "{answer}");
        minted["token"].as_str().unwrap().to_owned()
    };
    let revoked = by_key("revoked").await;
    let narrowed = by_key("narrowed").await;
    let outlived = by_key("expired").await;
    app.clock.advance(Duration::from_millis(2));

    let mut bad = vec![
        ("no token".to_owned(), String::new()),
        ("no JWT".to_owned(), "nonsense".to_owned()),
        (
            "a cut signature".to_owned(),
            good[..good.len() - 4].to_owned(),
        ),
        ("no signature".to_owned(), format!("{header}.{payload}.")),
        ("two parts".to_owned(), format!("{header}.{payload}")),
        ("four parts".to_owned(), format!("{good}.{signature}")),
        ("twice".to_owned(), format!("{good}, {good}")),
        (
            "another token's signature".to_owned(),
            format!("{header}.{payload}.{another_signature}"),
        ),
        ("expired".to_owned(), sign(&expired)),
        ("of neither key nor session".to_owned(), sign(&keyless)),
        ("another account's key".to_owned(), sign(&elsewhere)),
        ("a revoked key's".to_owned(), revoked),
        ("an expired key's".to_owned(), outlived),
    ];
    // Another algorithm, or a key of the token's own, with the good token's signature and without one.
    for other in [
        json!({"alg": "none", "typ": "JWT"}),
        json!({"alg": "nOnE", "typ": "JWT"}),
        json!({"alg": "", "typ": "JWT"}),
        json!({"alg": null, "typ": "JWT"}),
        json!({"alg": ["EdDSA"], "typ": "JWT"}),
        json!({"alg": "eddsa", "typ": "JWT"}),
        json!({"alg": "HS256", "typ": "JWT"}),
        json!({"alg": "RS256", "typ": "JWT"}),
        json!({"alg": "ES256", "typ": "JWT"}),
        json!({"typ": "JWT"}),
        json!({"alg": "EdDSA", "typ": "JWT", "kid": "/dev/null"}),
        json!({"alg": "EdDSA", "typ": "JWT", "kid": "../../../../proc/self/environ"}),
        json!({"alg": "EdDSA", "typ": "JWT", "kid": "' OR 1=1 --"}),
        json!({"alg": "EdDSA", "typ": "JWT", "jku": "https://keys.example.com"}),
        json!({"alg": "EdDSA", "typ": "JWT", "jwk": {"kty": "OKP", "crv": "Ed25519", "x": "AA"}}),
        json!({"alg": "EdDSA", "typ": "JWT", "b64": false, "crit": ["b64"]}),
    ] {
        let header = base64(&other.to_string());
        bad.push((other.to_string(), format!("{header}.{payload}.{signature}")));
        bad.push((
            format!("{other}, not signed"),
            format!("{header}.{payload}."),
        ));
    }
    // It says more than what was signed.
    let minted = base64_simd::URL_SAFE_NO_PAD.decode_to_vec(payload).unwrap();
    let minted: Value = serde_json::from_slice(&minted).unwrap();
    for (claim, value) in [
        ("sub", json!(other_agent)),
        ("account", json!(elsewhere.account)),
        ("sid", json!(id)),
        ("scopes", json!(["calls:read", "calls:write", "keys:write"])),
        ("exp", json!(9_999_999_999_i64)),
        ("jti", json!("00000000-0000-0000-0000-000000000001")),
    ] {
        let mut changed = minted.clone();
        changed[claim] = value;
        assert_ne!(changed, minted, "{claim}");
        let payload = base64(&changed.to_string());
        bad.push((
            format!("another {claim}"),
            format!("{header}.{payload}.{signature}"),
        ));
    }
    let mut cases = 0;
    for (what, token) in &bad {
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", bearer.as_str())];
        let client = Client::of(&server, &headers);
        let connect = client.connect(&agent).await;
        assert_eq!(code(&connect), (401, "unauthorized"), "{what} at connect");
        cases += 1;
        for (method, path, body) in routes(&id) {
            let answer = client.ask(method, &path, body).await;
            assert_eq!(
                code(&answer),
                (401, "unauthorized"),
                "{what}: {method} {path}"
            );
            cases += 1;
        }
    }
    let bearer = format!("Bearer {narrowed}");
    let headers = [("authorization", bearer.as_str())];
    let client = Client::of(&server, &headers);
    for (method, path, body) in routes(&id) {
        let answer = client.ask(method, &path, body).await;
        assert_eq!(
            code(&answer),
            (403, "insufficient_scope"),
            "{method} {path}"
        );
        cases += 1;
    }
    assert_eq!(cases, bad.len() * 6 + 5);
    assert!(cases >= 200, "{cases}");
    // All that came to nothing, the session among it.
    let (_, status) = server
        .test
        .call("GET", &format!("/conversation/{id}/status"), None)
        .await;
    assert_eq!(status["status"], "open");
}

#[tokio::test]
async fn a_token_opens_no_other_agent_and_no_other_session() {
    let server = Server::start().await;
    let agent = server.agent(json!({"public_access": true})).await;
    let other_agent = server.agent(json!({})).await;
    let first = format!("Bearer {}", token(&server, &agent).await);
    let second = format!("Bearer {}", token(&server, &agent).await);
    let headers = |bearer| [("authorization", bearer)];
    let (first, second) = (headers(first.as_str()), headers(second.as_str()));
    let (first, second) = (Client::of(&server, &first), Client::of(&server, &second));
    let refused = first.connect(&other_agent).await;
    assert_eq!(code(&refused), (404, "not_found"));

    let of_key = session(&server, &agent).await;
    let of_other_agent = session(&server, &other_agent).await;
    let of_second = text(&second.connect(&agent).await, "session_id");
    let visitor = Client::of(&server, &[]).connect(&agent).await;
    let (of_visitor, bearer) = (text(&visitor, "session_id"), text(&visitor, "token"));
    let bearer = format!("Bearer {bearer}");
    let bound = headers(bearer.as_str());
    let bound = Client::of(&server, &bound);

    let status = |id: &str| format!("/conversation/{id}/status");
    // What the key opened the token may take up; its holder gave it away for that.
    assert_eq!(first.ask("GET", &status(&of_key), Value::Null).await.0, 200);
    assert_eq!(
        second.ask("GET", &status(&of_second), Value::Null).await.0,
        200
    );
    assert_eq!(
        bound.ask("GET", &status(&of_visitor), Value::Null).await.0,
        200
    );
    for (client, id) in [
        (first, &of_other_agent),
        (first, &of_second),
        (first, &of_visitor),
        (bound, &of_key),
        (bound, &of_second),
        (bound, &of_other_agent),
    ] {
        for (method, path, body) in routes(id) {
            let answer = client.ask(method, &path, body).await;
            assert_eq!(code(&answer), (404, "not_found"), "{method} {path}");
        }
    }
    // The token of a keyless session opens no second one.
    let again = bound.connect(&agent).await;
    assert_eq!(code(&again), (403, "forbidden"));
}

#[tokio::test]
async fn a_token_is_minted_out_of_the_key_s_budget_for_writes() {
    let server = Server::with(|config| config.limits.writes_per_minute = 1).await;
    let agent = server.agent(json!({})).await;
    let key = server
        .test
        .key_for(&[Scope::CallsWrite, Scope::AgentsWrite])
        .await;
    let headers = [("x-api-key", key.as_str())];
    let client = Client::of(&server, &headers);
    let mint = async || {
        let body = json!({"agent_id": agent});
        client.ask("POST", "/conversation/token", body).await
    };
    for left in ["1", "0"] {
        let minted = mint().await;
        assert_eq!(minted.0, 200, "{}", minted.1);
        assert_eq!(minted.2["ratelimit-remaining"], left);
    }
    let refused = mint().await;
    assert_eq!(code(&refused), (429, "rate_limited"));
    assert_eq!(refused.2["retry-after"], "60");
    // It is one budget with that of other writes.
    let other = client.ask("POST", "/agents", json!({})).await;
    assert_eq!(code(&other), (429, "rate_limited"));
    server.test.app.clock.advance(Duration::from_secs(60));
    assert_eq!(mint().await.0, 200);
}

#[tokio::test]
async fn a_token_has_a_budget_of_its_own() {
    let server = Server::with(|config| config.limits.call_creations_per_minute = 1).await;
    let agent = server.agent(json!({})).await;
    let bearer = format!("Bearer {}", token(&server, &agent).await);
    let headers = [("authorization", bearer.as_str())];
    let browser = Client::of(&server, &headers);
    assert_eq!(browser.connect(&agent).await.0, 200);
    let second = browser.connect(&agent).await;
    assert_eq!(
        (second.0, &second.2["ratelimit-remaining"]),
        (200, &"0".parse().unwrap())
    );
    assert_eq!(code(&browser.connect(&agent).await), (429, "rate_limited"));
    // The key that minted it still has its own.
    session(&server, &agent).await;
}
