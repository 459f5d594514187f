//! Who may open a browser session and go on with it: keys, public agents, origins, limits of an address.

use super::*;

#[tokio::test]
async fn connect_tells_a_browser_its_servers() {
    let server = Server::with(|config| {
        config.webrtc.stun_urls = vec!["stun:stun.example.com:3478".to_owned()];
        config.webrtc.turn = Some(control::config::Turn {
            urls: vec!["turn:turn.example.com:3478".to_owned()],
            secret: control::secret::Secret::new("north".to_owned()),
            ttl_seconds: 600,
        });
    })
    .await;
    let agent = server.agent(json!({})).await;
    for transport in [json!(null), json!("webrtc")] {
        let body = json!({"agent_id": agent, "transport": transport, "direction": "outbound",
            "caller_phone": "12", "requestData": {"a": 1}});
        let (status, answer) = server
            .test
            .call("POST", "/conversation/connect", Some(body))
            .await;
        assert_eq!(status, 200, "{answer}");
        let keys: Vec<&String> = answer.as_object().unwrap().keys().collect();
        assert_eq!(
            keys,
            ["expires_at", "ice_config", "session_id", "transport"]
        );
        assert_eq!(answer["transport"], "webrtc");
        let [stun, turn] = &answer["ice_config"]["iceServers"].as_array().unwrap()[..] else {
            panic!("{answer}")
        };
        assert_eq!(*stun, json!({"urls": ["stun:stun.example.com:3478"]}));
        assert_eq!(turn["urls"], json!(["turn:turn.example.com:3478"]));
        let expires = server.test.app.clock.now().seconds() + 600;
        let id = answer["session_id"].as_str().unwrap();
        assert_eq!(turn["username"], format!("{expires}:{id}"));
        assert!(
            turn["credential"]
                .as_str()
                .is_some_and(|text| text.len() == 28)
        );
        let (_, call) = server.test.call("GET", &format!("/calls/{id}"), None).await;
        assert_eq!(
            (&call["channel"], &call["direction"], &call["from_number"]),
            (&json!("webrtc"), &json!("inbound"), &json!(null))
        );
        let (_, status) = server
            .test
            .call("GET", &format!("/conversation/{id}/status"), None)
            .await;
        assert_eq!(
            (
                &status["status"],
                &status["connection_state"],
                &status["pc_id"]
            ),
            (&json!("open"), &json!("new"), &json!(null))
        );
    }
}

#[tokio::test]
async fn an_offer_about_another_account_s_session_is_403_and_the_rest_404() {
    let server = Server::start().await;
    let agent = server.agent(json!({})).await;
    let id = session(&server, &agent).await;
    let (_, stranger) = server.test.other_account().await;
    for (method, path, body) in routes(&id) {
        let body = Some(body).filter(|body| !body.is_null());
        let (status, answer) = server.test.call_as(&stranger, method, &path, body).await;
        let expected = if path.ends_with("/offer") {
            (403, "forbidden")
        } else {
            (404, "not_found")
        };
        let found = (status.as_u16(), answer["code"].as_str().unwrap());
        assert_eq!(found, expected, "{method} {path}");
    }
    let unknown = routes("00000000-0000-0000-0000-000000000001");
    for (method, path, body) in unknown {
        let body = Some(body).filter(|body| !body.is_null());
        let (status, answer) = server.test.call_as(&stranger, method, &path, body).await;
        assert_eq!(
            (status.as_u16(), &answer["code"]),
            (404, &json!("not_found"))
        );
    }
}

#[tokio::test]
async fn a_public_agent_is_called_without_a_key_and_others_are_not() {
    let server = Server::start().await;
    let open = server.agent(json!({"public_access": true})).await;
    let closed = server.agent(json!({})).await;
    let visitor = Client::of(&server, &[]);
    let connected = visitor.connect(&open).await;
    assert_eq!(connected.0, 200, "{}", connected.1);
    let keys: Vec<&String> = connected.1.as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        [
            "expires_at",
            "ice_config",
            "session_id",
            "token",
            "transport"
        ]
    );
    let now = server.test.app.clock.now();
    // Who has no key has half the time.
    assert_eq!(
        connected.1["expires_at"],
        json!(now.plus(Duration::from_secs(30)))
    );
    let counts = server.test.app.admission.counts().await.unwrap();
    assert_eq!(counts.pending, 1);
    // Not public, not there: the same answer.
    for agent in [closed.as_str(), "00000000-0000-0000-0000-000000000001"] {
        let answer = visitor.connect(agent).await;
        assert_eq!(code(&answer), (401, "unauthorized"), "{agent}");
        let socket = json!({"agent_id": agent, "transport": "websocket"});
        let answer = visitor.ask("POST", "/conversation/connect", socket).await;
        assert_eq!(code(&answer), (401, "unauthorized"), "{agent}");
    }
    let socket = json!({"agent_id": open, "transport": "websocket"});
    let answer = visitor.ask("POST", "/conversation/connect", socket).await;
    assert_eq!(code(&answer), (403, "forbidden"));
    // A credential that is given has to be good.
    let wrong = [("authorization", "Bearer nonsense")];
    let answer = Client::of(&server, &wrong).connect(&open).await;
    assert_eq!(code(&answer), (401, "unauthorized"));
    // Without its token nobody goes on with the session.
    let id = text(&connected, "session_id");
    for (method, path, body) in routes(&id) {
        let answer = visitor.ask(method, &path, body).await;
        assert_eq!(code(&answer), (401, "unauthorized"), "{method} {path}");
    }
    server.test.app.clock.advance(Duration::from_secs(30));
    let swept = control::sessions::sweep(&server.test.app, server.test.app.clock.now()).await;
    assert_eq!(swept.unwrap(), 1);
}

#[tokio::test]
async fn who_has_no_key_sets_no_variables() {
    let server = Server::start().await;
    let agent = server.agent(json!({"public_access": true})).await;
    let bearer = format!("Bearer {}", token(&server, &agent).await);
    let with_token = [("authorization", bearer.as_str())];
    let with_key = [("x-api-key", server.test.key.as_str())];
    let body = json!({"agent_id": agent, "dynamic_variables": {"name": "Ann"}});
    for (headers, kept) in [
        (&[][..], json!({})),
        (&with_token[..], json!({})),
        (&with_key[..], json!({"name": "Ann"})),
    ] {
        let client = Client::of(&server, headers);
        let connected = client
            .ask("POST", "/conversation/connect", body.clone())
            .await;
        assert_eq!(connected.0, 200, "{}", connected.1);
        let path = format!("/calls/{}", text(&connected, "session_id"));
        let (_, call) = server.test.call("GET", &path, None).await;
        assert_eq!(call["dynamic_variables"], kept);
    }
}

#[tokio::test]
async fn an_origin_is_held_against_the_agent_s_where_there_is_no_key() {
    let server = Server::start().await;
    let agent = server
        .agent(json!({"public_access": true, "allowed_origins": ["shop.example.com"]}))
        .await;
    let (right, wrong) = ("https://shop.example.com", "https://evil.example");
    for (origin, status) in [
        (Some(right), 200),
        (Some(wrong), 403),
        (Some("null"), 403),
        (None, 200),
    ] {
        let headers: Vec<(&str, &str)> = origin
            .map(|origin| ("origin", origin))
            .into_iter()
            .collect();
        let answer = Client::of(&server, &headers).connect(&agent).await;
        assert_eq!(answer.0, status, "{origin:?}: {}", answer.1);
        // The page can read what it is told, whatever that is.
        let allowed = answer.2.get("access-control-allow-origin");
        assert_eq!(allowed.and_then(|value| value.to_str().ok()), origin);
        if status == 403 {
            assert_eq!(answer.1["code"], "origin_not_allowed");
        }
    }
    // Never on a key or a token.
    let bearer = format!("Bearer {}", token(&server, &agent).await);
    for credential in [
        ("x-api-key", server.test.key.as_str()),
        ("authorization", bearer.as_str()),
    ] {
        let headers = [("origin", wrong), credential];
        let answer = Client::of(&server, &headers).connect(&agent).await;
        assert_eq!(answer.0, 200, "{}", answer.1);
    }
    // Nor on the token that a keyless session goes on with.
    let headers = [("origin", right)];
    let connected = Client::of(&server, &headers).connect(&agent).await;
    let bearer = format!("Bearer {}", text(&connected, "token"));
    let headers = [("origin", wrong), ("authorization", bearer.as_str())];
    let path = format!("/conversation/{}/status", text(&connected, "session_id"));
    let answer = Client::of(&server, &headers)
        .ask("GET", &path, Value::Null)
        .await;
    assert_eq!(answer.0, 200);
}

#[tokio::test]
async fn who_has_a_token_goes_on_from_any_origin() {
    let server = Server::start().await;
    let agent = server
        .agent(json!({"public_access": true, "allowed_origins": ["shop.example.com"]}))
        .await;
    let (right, wrong) = ("https://shop.example.com", "https://evil.example");
    let minted = token(&server, &agent).await;
    let opened = session(&server, &agent).await;
    let headers = [("origin", right)];
    let visitor = Client::of(&server, &headers).connect(&agent).await;
    for (id, token) in [
        (opened, minted),
        (text(&visitor, "session_id"), text(&visitor, "token")),
    ] {
        let bearer = format!("Bearer {token}");
        let headers = [("origin", wrong), ("authorization", bearer.as_str())];
        let client = Client::of(&server, &headers);
        let ask = async |method: &str, route: &str, body: Value| {
            let path = format!("/conversation/{id}/{route}");
            let answer = client.ask(method, &path, body).await;
            assert_eq!(answer.0, 200, "{route}: {}", answer.1);
            assert_eq!(answer.2["access-control-allow-origin"], wrong, "{route}");
            answer
        };
        let offer = json!({"sdp": offers::recorded(), "type": "offer"});
        let joined = ask("POST", "offer", offer).await;
        let pc_id = text(&joined, "pc_id");
        ask("PATCH", "ice", json!({"pc_id": pc_id, "candidates": []})).await;
        ask("POST", "end", json!({})).await;
    }
}

#[tokio::test]
async fn an_agent_that_is_not_ready_or_cannot_speak_is_refused_at_connect() {
    let server = Server::start().await;
    let db = &server.test.app.db;
    let agent = server.agent(json!({})).await;
    let connect = async |transport: &str| {
        let body = json!({"agent_id": agent, "transport": transport});
        let path = "/conversation/connect";
        let (status, answer) = server.test.call("POST", path, Some(body)).await;
        assert_eq!(answer.get("fields"), None, "{answer}");
        let code = answer["code"].as_str().unwrap_or_default();
        (status.as_u16(), code.to_owned())
    };
    let change = async |set: &str, values: &[&str]| {
        let sql = format!("update agents set {set} where id = $1");
        let mut change = db.query_built(sql).bind(agent.as_str());
        for value in values {
            change = change.bind(*value);
        }
        assert_eq!(change.execute().await.unwrap(), 1);
    };
    for status in ["provisioning", "failed"] {
        change("status = $2", &[status]).await;
        for transport in ["webrtc", "websocket"] {
            let refused = (409, "agent_not_ready".to_owned());
            assert_eq!(connect(transport).await, refused, "{status}");
        }
    }
    change("status = $2", &["active"]).await;
    // A voice that was taken out of the catalogue.
    let (_, record) = server
        .test
        .call("GET", &format!("/agents/{agent}"), None)
        .await;
    let voice = record["voice_id"].as_str().unwrap();
    let gone = "00000000-0000-0000-0000-000000000001";
    change("settings = replace(settings, $2, $3)", &[voice, gone]).await;
    for transport in ["webrtc", "websocket"] {
        let refused = (422, "voice_unavailable".to_owned());
        assert_eq!(connect(transport).await, refused);
    }
    let counts = server.test.app.admission.counts().await.unwrap();
    assert_eq!((counts.pending, counts.live), (0, 0));
    let (_, calls) = server.test.call("GET", "/calls", None).await;
    assert_eq!(calls["total"], 0, "{calls}");
    change("settings = replace(settings, $3, $2)", &[voice, gone]).await;
    assert_eq!(connect("webrtc").await.0, 200);
}

#[tokio::test]
async fn preflights_are_answered_at_every_session_route() {
    let server = Server::start().await;
    let headers = [
        ("origin", "https://shop.example.com"),
        ("access-control-request-method", "POST"),
        (
            "access-control-request-headers",
            "authorization,content-type",
        ),
    ];
    let client = Client::of(&server, &headers);
    let id = CallId::NIL.to_string();
    let mut paths: Vec<(&str, String)> =
        routes(&id).map(|(method, path, _)| (method, path)).to_vec();
    paths.push(("POST", "/conversation/connect".to_owned()));
    paths.push(("POST", "/conversation/token".to_owned()));
    for (method, path) in paths {
        let (status, _, headers) = client.ask("OPTIONS", &path, Value::Null).await;
        let header = |name: &str| headers[name].to_str().unwrap().to_owned();
        assert_eq!(status, 204, "{path}");
        assert_eq!(
            header("access-control-allow-origin"),
            "https://shop.example.com"
        );
        assert!(
            header("access-control-allow-methods").contains(method),
            "{path}"
        );
        for name in ["Authorization", "traceparent"] {
            assert!(header("access-control-allow-headers").contains(name));
        }
        assert_eq!(header("vary"), "Origin");
    }
    let (_, _, headers) = client.ask("OPTIONS", "/agents", Value::Null).await;
    assert!(headers.get("access-control-allow-origin").is_none());
}

#[tokio::test]
async fn a_browser_of_another_origin_can_read_every_refusal() {
    let server = Server::start().await;
    let origin = "https://shop.example.com";
    let long = "x".repeat(40 * 1024);
    let headers = [("origin", origin), ("x-long", long.as_str())];
    let client = Client::of(&server, &headers[..1]);
    let loaded = Client::of(&server, &headers);
    let connect = "/conversation/connect";
    let large = json!({"agent_id": "x".repeat(2 << 20)});
    for (client, method, body, expected) in [
        (client, "DELETE", Value::Null, 405),
        (client, "POST", large, 413),
        (loaded, "POST", json!({}), 431),
    ] {
        let (status, body, headers) = client.ask(method, connect, body).await;
        assert_eq!(status, expected, "{body}");
        let allowed = headers.get("access-control-allow-origin");
        assert_eq!(
            allowed.and_then(|value| value.to_str().ok()),
            Some(origin),
            "{expected}"
        );
        assert_eq!(headers["vary"], "Origin", "{expected}");
    }
}

#[tokio::test]
async fn one_address_has_so_many_keyless_calls_and_asks_so_often() {
    let server = Server::with(|config| {
        config.limits.keyless_calls = 2;
        config.limits.keyless_per_minute = 3;
    })
    .await;
    let agent = server.agent(json!({"public_access": true})).await;
    let visitor = Client::of(&server, &[]);
    let first = visitor.connect(&agent).await;
    assert_eq!((first.0, visitor.connect(&agent).await.0), (200, 200));
    let third = visitor.connect(&agent).await;
    assert_eq!(code(&third), (429, "capacity"));
    assert_eq!(third.2["retry-after"], "5");
    for (key, value) in [
        ("reason", json!("capacity")),
        ("resource_class", json!("call")),
        ("current", json!(2)),
        ("cap", json!(2)),
        ("retry_after", json!(5)),
        ("resource", Value::Null),
    ] {
        assert_eq!(third.1[key], value, "{key}");
    }
    let neighbour = Client {
        ip: [192, 0, 2, 8],
        ..visitor
    };
    assert_eq!(neighbour.connect(&agent).await.0, 200);
    // What was refused holds no slot, and what has ended makes room.
    let counts = server.test.app.admission.counts().await.unwrap();
    assert_eq!(counts.pending, 3);
    let end = format!("/conversation/{}/end", text(&first, "session_id"));
    let (status, _) = server.test.call("POST", &end, None).await;
    assert_eq!(status, 200);
    assert_eq!(visitor.connect(&agent).await.0, 200);
    // Six requests in a burst of two minutes; then one in twenty seconds.
    visitor.connect(&agent).await;
    visitor.connect(&agent).await;
    let often = visitor.connect(&agent).await;
    assert_eq!(code(&often), (429, "rate_limited"));
    assert_eq!(often.2["retry-after"], "20");
    // A key is not counted there.
    let key = [("x-api-key", server.test.key.as_str())];
    assert_eq!(Client::of(&server, &key).connect(&agent).await.0, 200);
}

#[tokio::test]
async fn visitors_behind_a_trusted_proxy_have_limits_of_their_own() {
    for (trusted, apart) in [("127.0.0.0/8", true), ("192.0.2.0/24", false), ("", false)] {
        let proxies = Proxies::parse(&trusted.split_terminator(',').collect::<Vec<_>>());
        let server = Server::with(|config| {
            config.limits.keyless_calls = 1;
            config.limits.failed_auth_per_minute = 1;
            config.server.trusted_proxies = proxies.unwrap();
        })
        .await;
        let agent = server.agent(json!({"public_access": true})).await;
        let base = &server.test.app.config.server.public_url;
        let url = format!("{base}/api/v1/conversation/connect");
        let http = kit::server::reqwest_client();
        let connect = async |forwarded: &str, key: Option<&str>| {
            let mut request = http.post(&url).header("x-forwarded-for", forwarded);
            if let Some(key) = key {
                request = request.header("x-api-key", key);
            }
            let body = json!({"agent_id": agent});
            request.json(&body).send().await.unwrap().status().as_u16()
        };
        // The second address writes the first one's before its own.
        let other = if apart { 200 } else { 429 };
        assert_eq!(connect("198.51.100.1", None).await, 200, "{trusted}");
        assert_eq!(connect("198.51.100.1", None).await, 429, "{trusted}");
        let second = "198.51.100.1, 198.51.100.2";
        assert_eq!(connect(second, None).await, other, "{trusted}");
        assert_eq!(connect(second, None).await, 429, "{trusted}");
        // Two wrong keys in a burst, for each of those who are told apart.
        let other = if apart { 401 } else { 429 };
        for (forwarded, status) in [
            ("198.51.100.3", 401),
            ("198.51.100.3", 401),
            ("198.51.100.3", 429),
            ("198.51.100.4", other),
        ] {
            let answer = connect(forwarded, Some("wrong")).await;
            assert_eq!(answer, status, "{trusted}: {forwarded}");
        }
    }
}
