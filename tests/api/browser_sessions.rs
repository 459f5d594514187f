//! Browser sessions as far as no media is needed: who may open them and go on with them, call tokens,
//! public agents, origins, what is wrong with offers and candidates. Whole calls: `tests/peers/webrtc`.

use std::net::IpAddr;
use std::time::Duration;

use axum::body::Body;
use control::admission::State;
use control::calls::bridge;
use control::http::Scope;
use control::http::auth::Peer;
use control::ids::CallId;
use control::sessions::call_token::{self, Claims};
use http::{HeaderMap, Request};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::in_process::Server;

/// An offer that is right as far as it can be judged without an engine.
const SDP: &str = "v=0\r\no=- 1 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\n\
    a=ice-ufrag:abcd\r\na=ice-pwd:abcdefghijklmnopqrstuv\r\na=fingerprint:sha-256 AA:BB\r\n";

/// Somebody with these headers at this address.
#[derive(Clone, Copy)]
struct Client<'a> {
    server: &'a Server,
    ip: [u8; 4],
    headers: &'a [(&'a str, &'a str)],
}

/// Status, body and headers.
type Answer = (u16, Value, HeaderMap);

impl<'a> Client<'a> {
    const fn of(server: &'a Server, headers: &'a [(&'a str, &'a str)]) -> Self {
        Self {
            server,
            ip: [192, 0, 2, 7],
            headers,
        }
    }

    async fn ask(self, method: &str, path: &str, body: Value) -> Answer {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("/api/v1{path}"))
            .header("content-type", "application/json");
        for (name, value) in self.headers {
            request = request.header(*name, *value);
        }
        let body = match body {
            Value::Null => Body::empty(),
            body => Body::from(body.to_string()),
        };
        let mut request = request.body(body).unwrap();
        let peer = (IpAddr::from(self.ip), 40_000).into();
        request.extensions_mut().insert(Peer(peer));
        let response = self.server.test.send(request).await;
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        (parts.status.as_u16(), body, parts.headers)
    }

    async fn connect(self, agent: &str) -> Answer {
        self.ask("POST", "/conversation/connect", json!({"agent_id": agent}))
            .await
    }
}

fn code(answer: &Answer) -> (u16, &str) {
    (answer.0, answer.1["code"].as_str().unwrap_or_default())
}

fn text(answer: &Answer, key: &str) -> String {
    answer.1[key].as_str().unwrap().to_owned()
}

/// A token for this agent, minted with the full key.
async fn token(server: &Server, agent: &str) -> String {
    let (status, answer) = server
        .test
        .call(
            "POST",
            "/conversation/token",
            Some(json!({"agent_id": agent})),
        )
        .await;
    assert_eq!(status, 200, "{answer}");
    answer["token"].as_str().unwrap().to_owned()
}

/// A browser session opened with the full key. Its id.
async fn session(server: &Server, agent: &str) -> String {
    let (status, answer) = server
        .test
        .call(
            "POST",
            "/conversation/connect",
            Some(json!({"agent_id": agent})),
        )
        .await;
    assert_eq!(status, 200, "{answer}");
    answer["session_id"].as_str().unwrap().to_owned()
}

/// The routes of a session that a call token opens, with bodies that are right.
fn routes(id: &str) -> [(&'static str, String, Value); 5] {
    let path = |route: &str| format!("/conversation/{id}/{route}");
    [
        ("GET", path("status"), Value::Null),
        ("POST", path("offer"), json!({"sdp": SDP, "type": "offer"})),
        ("GET", path("offer"), Value::Null),
        (
            "PATCH",
            path("ice"),
            json!({"pc_id": "x", "candidates": []}),
        ),
        ("POST", path("end"), json!({})),
    ]
}

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
    let server = Server::start().await;
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
    let none = base64(r#"{"alg":"none","typ":"JWT"}"#);
    let hs256 = base64(r#"{"alg":"HS256","typ":"JWT"}"#);
    let kid = base64(r#"{"alg":"EdDSA","typ":"JWT","kid":"/dev/null"}"#);
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

    let bad = [
        ("no token", String::new()),
        ("no JWT", "nonsense".to_owned()),
        ("a cut signature", good[..good.len() - 4].to_owned()),
        ("no signature", format!("{header}.{payload}.")),
        ("two parts", format!("{header}.{payload}")),
        ("alg none", format!("{none}.{payload}.")),
        ("alg none, signed", format!("{none}.{payload}.{signature}")),
        ("alg HS256", format!("{hs256}.{payload}.{signature}")),
        (
            "a key id that is a path",
            format!("{kid}.{payload}.{signature}"),
        ),
        (
            "another token's signature",
            format!("{header}.{payload}.{another_signature}"),
        ),
        ("expired", sign(&expired)),
        ("of neither key nor session", sign(&keyless)),
        ("another account's key", sign(&elsewhere)),
        ("a revoked key's", revoked),
        ("an expired key's", outlived),
    ];
    let mut cases = 0;
    for (what, token) in &bad {
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", bearer.as_str())];
        let client = Client::of(&server, &headers);
        let connect = client.connect(&agent).await;
        assert_eq!(code(&connect), (401, "unauthorized"), "{what} at connect");
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
    assert_eq!(cases, (bad.len() + 1) * 5);
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
        assert!(header("access-control-allow-headers").contains("Authorization"));
        assert_eq!(header("vary"), "Origin");
    }
    let (_, _, headers) = client.ask("OPTIONS", "/agents", Value::Null).await;
    assert!(headers.get("access-control-allow-origin").is_none());
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
    assert_eq!(code(&third), (429, "rate_limited"));
    assert_eq!(third.2["retry-after"], "5");
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

#[tokio::test]
async fn what_is_wrong_with_an_offer_is_named_and_the_session_stays_open() {
    let server = Server::start().await;
    let agent = server.agent(json!({})).await;
    let id = session(&server, &agent).await;
    let path = format!("/conversation/{id}/offer");
    for (body, fields) in [
        (json!({}), vec!["sdp", "type"]),
        (json!({"sdp": SDP}), vec!["type"]),
        (json!({"sdp": "", "type": "offer"}), vec!["sdp"]),
        (json!({"sdp": null, "type": null}), vec!["sdp", "type"]),
        (json!({"sdp": 5, "type": "pranswer"}), vec!["sdp", "type"]),
        (
            json!({"sdp": SDP, "type": "offer", "pc_id": 5}),
            vec!["pc_id"],
        ),
        (
            json!({"sdp": SDP, "type": "offer", "restart_pc": "no"}),
            vec!["restart_pc"],
        ),
        (json!({"sdp": SDP, "type": "answer"}), vec!["type"]),
        (
            json!({"sdp": "v=0".repeat(30_000), "type": "offer"}),
            vec!["sdp"],
        ),
    ] {
        let (status, answer) = server.test.call("POST", &path, Some(body.clone())).await;
        assert_eq!(status, 422, "{body}: {answer}");
        let named = answer["fields"].as_array().unwrap().iter();
        let named: Vec<&str> = named
            .map(|field| field["loc"][1].as_str().unwrap())
            .collect();
        assert_eq!(named, fields, "{body}");
    }
    for sdp in [
        "hello",
        "v=0",
        &SDP.replace("m=audio", "m=video"),
        &SDP.replace("a=fingerprint", "a=print"),
    ] {
        let body = json!({"sdp": sdp, "type": "offer"});
        let (status, answer) = server.test.call("POST", &path, Some(body)).await;
        assert_eq!(
            (status.as_u16(), &answer["code"]),
            (422, &json!("invalid_sdp")),
            "{answer}"
        );
    }
    let (_, status) = server
        .test
        .call("GET", &format!("/conversation/{id}/status"), None)
        .await;
    assert_eq!(status["status"], "open");
}

#[tokio::test]
async fn a_session_that_is_no_browser_s_or_over_takes_no_offer() {
    let server = Server::start().await;
    let agent = server.agent(json!({})).await;
    let body = json!({"sdp": SDP, "type": "offer"});
    let offer = async |id: &str| {
        let path = format!("/conversation/{id}/offer");
        let (status, answer) = server.test.call("POST", &path, Some(body.clone())).await;
        let (also, other) = server.test.call("GET", &path, None).await;
        assert_eq!((status, &answer["code"]), (also, &other["code"]));
        (status.as_u16(), answer["code"].as_str().unwrap().to_owned())
    };
    let (socket, _) = server.connect(&agent, json!({})).await;
    assert_eq!(offer(&socket).await, (409, "session_not_webrtc".into()));
    let ended = session(&server, &agent).await;
    let end = format!("/conversation/{ended}/end");
    assert_eq!(server.test.call("POST", &end, None).await.0, 200);
    assert_eq!(offer(&ended).await, (404, "session_ended".into()));
    let expired = session(&server, &agent).await;
    server.test.app.clock.advance(Duration::from_secs(60));
    // Whether or not it has been swept yet.
    assert_eq!(offer(&expired).await, (404, "session_expired".into()));
    let now = server.test.app.clock.now();
    control::sessions::sweep(&server.test.app, now)
        .await
        .unwrap();
    assert_eq!(offer(&expired).await, (404, "session_expired".into()));
}

#[tokio::test]
async fn candidates_need_a_peer_connection_and_their_form() {
    let server = Server::start().await;
    let agent = server.agent(json!({})).await;
    let id = session(&server, &agent).await;
    let path = format!("/conversation/{id}/ice");
    let good = json!({"candidate": "candidate:1 1 udp 1 192.0.2.7 9 typ host", "sdp_mid": "0", "sdp_mline_index": 0});
    for (body, field) in [
        (json!({}), "pc_id"),
        (json!({"candidates": []}), "pc_id"),
        (json!({"pc_id": null, "candidates": []}), "pc_id"),
        (json!({"pc_id": "x"}), "candidates"),
        (json!({"pc_id": "x", "candidates": {}}), "candidates"),
        (json!({"pc_id": "x", "candidates": [{}]}), "candidates"),
        (
            json!({"pc_id": "x", "candidates": ["candidate:"]}),
            "candidates",
        ),
        (
            json!({"pc_id": "x", "candidates": vec![good.clone(); 65]}),
            "candidates",
        ),
        (
            json!({"pc_id": "x", "candidates": [{"candidate": "", "sdp_mline_index": -1}]}),
            "candidates",
        ),
    ] {
        let (status, answer) = server.test.call("PATCH", &path, Some(body.clone())).await;
        assert_eq!(
            (status.as_u16(), &answer["fields"][0]["loc"][1]),
            (422, &json!(field)),
            "{body}: {answer}"
        );
    }
    let ask = async |candidates: Value| {
        let body = json!({"pc_id": "x", "candidates": candidates, "more": 1});
        let (status, answer) = server.test.call("PATCH", &path, Some(body)).await;
        (
            status.as_u16(),
            answer["code"].as_str().unwrap_or_default().to_owned(),
        )
    };
    let bad = json!({"candidate": "candidate:nonsense"});
    assert_eq!(
        ask(json!([good, bad])).await,
        (400, "invalid_candidate".into())
    );
    assert_eq!(ask(json!([good])).await, (400, "peer_not_found".into()));
    let mut more = good.clone();
    more["usernameFragment"] = json!("abcd");
    assert_eq!(ask(json!([more])).await, (400, "peer_not_found".into()));
}

#[tokio::test]
async fn candidates_are_not_counted_as_requests() {
    let server = Server::with(|config| config.limits.writes_per_minute = 1).await;
    let agent = server.agent(json!({})).await;
    let id = session(&server, &agent).await;
    let path = format!("/conversation/{id}/ice");
    let key = [("x-api-key", server.test.key.as_str())];
    for _ in 0..10 {
        let body = json!({"pc_id": "x", "candidates": []});
        let answer = Client::of(&server, &key).ask("PATCH", &path, body).await;
        assert_eq!(code(&answer), (400, "peer_not_found"));
        assert!(answer.2.get("ratelimit-limit").is_none());
    }
}

#[tokio::test]
async fn an_offer_is_admitted_anew_when_its_slot_has_gone() {
    let server = Server::with(|config| config.limits.account_calls = 1).await;
    let app = &server.test.app;
    let agent = server.agent(json!({})).await;
    let id = session(&server, &agent).await;
    // The store forgot the slot, and somebody else has it.
    app.admission
        .release(id.parse().unwrap(), &app.incarnation.owner);
    app.admission.settled().await;
    app.clock.advance(Duration::from_secs(11));
    let other = CallId::new(&app.clock);
    let taken = app
        .admit(bridge::wish(app, server.test.account, other, State::Live))
        .await
        .unwrap();
    let path = format!("/conversation/{id}/offer");
    let body = json!({"sdp": SDP, "type": "offer"});
    let (status, answer) = server.test.call("POST", &path, Some(body)).await;
    assert_eq!(
        (status.as_u16(), &answer["code"]),
        (429, &json!("capacity")),
        "{answer}"
    );
    assert_eq!(
        (&answer["resource"], &answer["current"]),
        (&json!("account"), &json!(1))
    );
    assert!(answer["retry_after"].is_u64());
    // The session waits for a better moment.
    let (_, status) = server
        .test
        .call("GET", &format!("/conversation/{id}/status"), None)
        .await;
    assert_eq!(status["status"], "open");
    drop(taken);
    app.admission.settled().await;
    assert_eq!(app.admission.counts().await.unwrap().live, 0);
}

/// An offer as aiortc makes it; nobody listens at its candidates.
fn recorded() -> String {
    include_str!("../../fixtures/sdp/aiortc_offer.sdp").replace('\n', "\r\n")
}

#[tokio::test]
async fn an_offer_joins_the_session_and_later_ones_name_its_connection() {
    let server = Server::start().await;
    let agent = server.agent(json!({})).await;
    let id = session(&server, &agent).await;
    let path = |route: &str| format!("/conversation/{id}/{route}");
    let offer = async |more: Value| {
        let mut body = json!({"sdp": recorded(), "type": "offer", "pc_id": null});
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        let (status, answer) = server.test.call("POST", &path("offer"), Some(body)).await;
        (status.as_u16(), answer)
    };
    let (status, answer) = offer(json!({"requestData": {}})).await;
    assert_eq!(status, 200, "{answer}");
    let keys: Vec<&String> = answer.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["pc_id", "sdp", "session_id", "type"]);
    assert_eq!(
        (&answer["type"], &answer["session_id"]),
        (&json!("answer"), &json!(id))
    );
    let sdp = answer["sdp"].as_str().unwrap();
    for part in [
        "v=0",
        "m=audio",
        "a=ice-ufrag:",
        "a=fingerprint:sha-256",
        "a=candidate:",
    ] {
        assert!(sdp.contains(part), "{part} in {sdp}");
    }
    let pc_id = answer["pc_id"].as_str().unwrap().to_owned();
    let status = async || {
        let (_, status) = server.test.call("GET", &path("status"), None).await;
        status
    };
    let told = status().await;
    assert_eq!(
        (&told["status"], &told["pc_id"]),
        (&json!("live"), &json!(pc_id))
    );
    let state = told["connection_state"].as_str().unwrap();
    assert!(["new", "connecting"].contains(&state), "{told}");
    let counts = server.test.app.admission.counts().await.unwrap();
    assert_eq!((counts.pending, counts.live), (0, 1));

    // Again: without the id, with another, with the right one.
    let (status_code, answer) = offer(json!({})).await;
    assert_eq!(
        (
            status_code,
            &answer["fields"][0]["loc"][1],
            &answer["fields"][0]["type"]
        ),
        (422, &json!("pc_id"), &json!("missing"))
    );
    let (status_code, answer) = offer(json!({"pc_id": "elsewhere"})).await;
    assert_eq!(
        (status_code, &answer["code"]),
        (404, &json!("peer_not_found"))
    );
    let (status_code, answer) = offer(json!({"pc_id": pc_id})).await;
    assert_eq!(
        (status_code, &answer["pc_id"]),
        (200, &json!(pc_id)),
        "{answer}"
    );
    let (status_code, answer) = offer(json!({"pc_id": pc_id, "type": "answer"})).await;
    assert_eq!(
        (status_code, &answer["fields"][0]["loc"][1]),
        (422, &json!("type"))
    );
    let (status_code, answer) = server.test.call("GET", &path("offer"), None).await;
    assert_eq!(
        (status_code.as_u16(), &answer["code"]),
        (409, &json!("conflict"))
    );

    // Candidates of this connection and of no other.
    let ice = async |pc_id: &str| {
        let candidates = json!([
            {"candidate": "candidate:1 1 udp 2130706431 127.0.0.1 9 typ host", "sdp_mid": "0", "sdp_mline_index": 0},
            {"candidate": "candidate:2 1 udp 2130706430 4a8b5c9e-1f2d.local 9 typ host", "sdp_mid": "0", "sdp_mline_index": 0},
            {"candidate": "", "sdp_mid": "0", "sdp_mline_index": 0},
        ]);
        let body = json!({"pc_id": pc_id, "candidates": candidates});
        let (status, answer) = server.test.call("PATCH", &path("ice"), Some(body)).await;
        (status.as_u16(), answer)
    };
    assert_eq!(
        ice(&pc_id).await,
        (200, json!({"status": "ok", "accepted": 3}))
    );
    let (status_code, answer) = ice("elsewhere").await;
    assert_eq!(
        (status_code, &answer["code"]),
        (400, &json!("peer_not_found"))
    );

    // A fresh connection takes its place, and its id with it.
    let (status_code, answer) = offer(json!({"restart_pc": true})).await;
    assert_eq!(status_code, 200, "{answer}");
    let second = answer["pc_id"].as_str().unwrap().to_owned();
    assert_ne!(second, pc_id);
    assert_eq!(ice(&pc_id).await.0, 400);
    assert_eq!(ice(&second).await.0, 200);
    assert_eq!(status().await["pc_id"], json!(second));

    let (_, ended) = server.test.call("POST", &path("end"), None).await;
    assert_eq!(
        (&ended["already_ended"], &ended["end_reason"]),
        (&json!(false), &json!("ended_by_api"))
    );
    server.settle().await;
    assert_eq!(
        (
            ice(&second).await.0,
            offer(json!({"pc_id": second})).await.0
        ),
        (400, 404)
    );
    let told = status().await;
    assert_eq!(
        (&told["status"], &told["connection_state"], &told["pc_id"]),
        (&json!("ended"), &json!("closed"), &json!(null))
    );
    assert_eq!(server.test.app.admission.counts().await.unwrap().live, 0);
}

#[tokio::test]
async fn of_a_hundred_first_offers_one_joins() {
    let server = std::sync::Arc::new(Server::start().await);
    let agent = server.agent(json!({})).await;
    let id = session(&server, &agent).await;
    let racers: Vec<_> = (0..100)
        .map(|_| {
            let (server, path) = (server.clone(), format!("/conversation/{id}/offer"));
            tokio::spawn(async move {
                let body = json!({"sdp": recorded(), "type": "offer"});
                let (status, answer) = server.test.call("POST", &path, Some(body)).await;
                (status.as_u16(), answer["code"].clone())
            })
        })
        .collect();
    let mut winners = 0;
    for racer in racers {
        match racer.await.unwrap() {
            (200, _) => winners += 1,
            // While it is being joined, and after that.
            (409, code) => assert_eq!(code, "conflict"),
            (422, code) => assert_eq!(code, "validation_error"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(winners, 1);
    let counts = server.test.app.admission.counts().await.unwrap();
    assert_eq!((counts.pending, counts.live), (0, 1));
}

#[tokio::test]
async fn the_server_s_own_offer_waits_for_its_answer() {
    let server = Server::start().await;
    let agent = server.agent(json!({})).await;
    let id = session(&server, &agent).await;
    let path = format!("/conversation/{id}/offer");
    let (status, first) = server.test.call("GET", &path, None).await;
    assert_eq!(
        (status.as_u16(), &first["type"]),
        (200, &json!("offer")),
        "{first}"
    );
    assert!(first["sdp"].as_str().unwrap().contains("m=audio"));
    let (status, again) = server.test.call("GET", &path, None).await;
    assert_eq!((status.as_u16(), again), (200, first.clone()));
    // An answer names whose it is.
    let nameless = json!({"sdp": recorded(), "type": "answer"});
    let (status, answer) = server.test.call("POST", &path, Some(nameless)).await;
    assert_eq!(
        (status.as_u16(), &answer["fields"][0]["loc"][1]),
        (422, &json!("pc_id"))
    );
    let (_, state) = server
        .test
        .call("GET", &format!("/conversation/{id}/status"), None)
        .await;
    assert_eq!(
        (&state["status"], &state["pc_id"]),
        (&json!("live"), &first["pc_id"])
    );
}

#[tokio::test]
async fn a_blocked_account_s_agents_are_called_by_nobody() {
    const ADMIN: &str = "swordfish-of-the-operator";
    let server = Server::with(|config| {
        config.admin_token = Some(control::secret::Secret::new(ADMIN.to_owned()));
    })
    .await;
    let agent = server.agent(json!({"public_access": true})).await;
    let id = session(&server, &agent).await;
    let block = format!("/admin/accounts/{}/block", server.test.account);
    let (status, answer) = server.test.call_as(ADMIN, "POST", &block, None).await;
    assert_eq!(status, 200, "{answer}");
    let key = [("x-api-key", server.test.key.as_str())];
    for headers in [&[][..], &key[..]] {
        let answer = Client::of(&server, headers).connect(&agent).await;
        assert_eq!(code(&answer), (402, "billing.hard_block"));
        assert_eq!(answer.1["detail"]["code"], "billing.hard_block");
    }
    let offer = json!({"sdp": recorded(), "type": "offer"});
    let path = format!("/conversation/{id}/offer");
    let answer = Client::of(&server, &key).ask("POST", &path, offer).await;
    assert_eq!(code(&answer), (402, "billing.hard_block"));
}
