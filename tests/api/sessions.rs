//! `/conversation/…` and the socket behind it.

use std::time::Duration;

use control::sessions::token;
use serde_json::{Value, json};

use crate::in_process::{Caller, Server};

#[tokio::test]
async fn connect_answers_with_a_url_and_opens_a_record() {
    let server = Server::start().await;
    let agent = server.agent(json!({})).await;
    let body = json!({
        "agent_id": agent, "transport": "websocket", "caller_phone": "+15550100",
        "dynamic_variables": {"name": "Ann", "age": 3, "vip": true}, "pc_id": null, "unheard_of": 1
    });
    let (status, answer) = server
        .test
        .call("POST", "/conversation/connect", Some(body))
        .await;
    assert_eq!(status, 200, "{answer}");
    let id = answer["session_id"].as_str().unwrap();
    let keys: Vec<&String> = answer.as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        [
            "audio_format",
            "direction",
            "expires_at",
            "protocol",
            "session_id",
            "transport",
            "ws_url"
        ]
    );
    assert_eq!(answer["audio_format"], "pcm_16000");
    assert!(
        answer["ws_url"]
            .as_str()
            .unwrap()
            .starts_with("ws://127.0.0.1:")
    );

    let (_, state) = server
        .test
        .call("GET", &format!("/conversation/{id}/status"), None)
        .await;
    assert_eq!(
        (&state["status"], &state["connection_state"]),
        (&json!("open"), &json!("new"))
    );
    let (_, call) = server.test.call("GET", &format!("/calls/{id}"), None).await;
    assert_eq!(
        (&call["status"], &call["from_number"], &call["to_number"]),
        (&json!("queued"), &json!("+15550100"), &json!(null))
    );
    assert_eq!(
        call["dynamic_variables"],
        json!({"name": "Ann", "age": 3, "vip": true})
    );
    let (_, talk) = server
        .test
        .call("GET", &format!("/conversations/{id}"), None)
        .await;
    assert_eq!(
        (&talk["status"], &talk["has_recording"]),
        (&json!("created"), &json!(false))
    );
}

#[tokio::test]
async fn connect_names_every_wrong_field() {
    let server = Server::start().await;
    let agent = server.agent(json!({})).await;
    let wrong = async |more: Value| {
        let mut body = json!({"agent_id": agent, "transport": "websocket"});
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let (status, answer) = server
            .test
            .call("POST", "/conversation/connect", Some(body))
            .await;
        assert_eq!(
            (status.as_u16(), &answer["code"]),
            (422, &json!("validation_error")),
            "{answer}"
        );
        let fields = answer["fields"].as_array().unwrap().iter();
        fields
            .map(|field| field["loc"][1].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(wrong(json!({"agent_id": null})).await, ["agent_id"]);
    assert_eq!(wrong(json!({"agent_id": "x"})).await, ["agent_id"]);
    assert_eq!(wrong(json!({"transport": "smoke"})).await, ["transport"]);
    assert_eq!(wrong(json!({"direction": "up"})).await, ["direction"]);
    assert_eq!(wrong(json!({"protocol": "morse"})).await, ["protocol"]);
    assert_eq!(
        wrong(json!({"audio_format": "mp3"})).await,
        ["audio_format"]
    );
    assert_eq!(
        wrong(json!({"protocol": "telco", "audio_format": "pcm_16000"})).await,
        ["audio_format"]
    );
    assert_eq!(
        wrong(json!({"caller_phone": "0123"})).await,
        ["caller_phone"]
    );
    assert_eq!(
        wrong(json!({"dynamic_variables": {"system__x": "1"}})).await,
        ["dynamic_variables"]
    );
    assert_eq!(
        wrong(json!({"dynamic_variables": {"a": [1]}})).await,
        ["dynamic_variables"]
    );
    assert_eq!(
        wrong(json!({"dynamic_variables": 5, "direction": 5, "protocol": 5})).await,
        ["dynamic_variables", "direction", "protocol"]
    );
}

#[tokio::test]
async fn a_session_of_another_account_is_not_there() {
    let server = Server::start().await;
    let agent = server.agent(json!({})).await;
    let (id, _) = server.connect(&agent, json!({})).await;
    let (_, stranger) = server.test.other_account().await;
    for (method, path, body) in [
        ("GET", format!("/conversation/{id}/status"), None),
        ("POST", format!("/conversation/{id}/end"), None),
        (
            "POST",
            format!("/conversation/{id}/tool-result"),
            Some(json!({"tool_call_id": "a", "result": 1})),
        ),
        ("GET", format!("/calls/{id}"), None),
        ("POST", format!("/calls/{id}/end"), None),
        ("GET", format!("/conversations/{id}"), None),
        ("GET", format!("/conversations/{id}/transcript"), None),
        ("GET", format!("/conversations/{id}/audio"), None),
        ("GET", format!("/conversations/{id}/audio.wav"), None),
        (
            "POST",
            format!("/conversations/{id}/audio/revoke"),
            Some(json!({"token": "a"})),
        ),
        (
            "POST",
            format!("/conversations/{id}/feedback"),
            Some(json!({"rating": 5})),
        ),
        (
            "POST",
            "/conversation/connect".to_owned(),
            Some(json!({"agent_id": agent, "transport": "websocket"})),
        ),
    ] {
        let (status, answer) = server.test.call_as(&stranger, method, &path, body).await;
        assert_eq!(
            (status.as_u16(), &answer["code"]),
            (404, &json!("not_found")),
            "{method} {path}: {answer}"
        );
    }
    let (_, calls) = server.test.call_as(&stranger, "GET", "/calls", None).await;
    assert_eq!(calls["total"], 0);
}

#[tokio::test]
async fn a_session_that_nobody_joins_expires_without_an_event() {
    let server = Server::start().await;
    let agent = server.agent(json!({})).await;
    let (id, ws_url) = server.connect(&agent, json!({})).await;
    assert_eq!(server.test.app.admission.counts().await.unwrap().pending, 1);

    server.test.app.clock.advance(Duration::from_secs(59));
    assert_eq!(
        control::sessions::sweep(&server.test.app, server.test.app.clock.now())
            .await
            .unwrap(),
        0
    );
    server.test.app.clock.advance(Duration::from_secs(1));
    assert_eq!(
        control::sessions::sweep(&server.test.app, server.test.app.clock.now())
            .await
            .unwrap(),
        1
    );
    assert_eq!(
        control::sessions::sweep(&server.test.app, server.test.app.clock.now())
            .await
            .unwrap(),
        0
    );

    let (_, call) = server.test.call("GET", &format!("/calls/{id}"), None).await;
    assert_eq!(
        (&call["status"], &call["end_reason"]),
        (&json!("canceled"), &json!("session_expired"))
    );
    let (_, talk) = server
        .test
        .call("GET", &format!("/conversations/{id}"), None)
        .await;
    assert_eq!(talk["status"], "abandoned");
    assert_eq!(server.events(&id, "call.ended").await, []);
    assert_eq!(server.test.app.admission.counts().await.unwrap().pending, 0);
    let (error, code) = Caller::join(&ws_url).await.until_closed().await;
    assert_eq!((&error["type"], code), (&json!("error"), 1008));
}

#[tokio::test]
async fn a_session_waits_its_minute_wherever_the_wall_clock_goes() {
    for seconds in [3_600, -3_600, 86_400, -86_400] {
        let server = Server::start().await;
        let (app, agent) = (&server.test.app, server.agent(json!({})).await);
        let (early, _) = server.connect(&agent, json!({})).await;
        app.clock.step(seconds);
        // Who is told when it ends reads the wall.
        let body = json!({"agent_id": agent, "transport": "websocket"});
        let connect = server
            .test
            .call("POST", "/conversation/connect", Some(body));
        let answer = connect.await.1;
        let minute = app.clock.now().plus(Duration::from_secs(60));
        assert_eq!(answer["expires_at"], json!(minute), "{seconds} s");
        app.clock.advance(Duration::from_secs(59));
        let swept = async || {
            control::sessions::sweep(app, app.clock.shared())
                .await
                .unwrap()
        };
        assert_eq!(swept().await, 0, "{seconds} s");
        let mut caller = Caller::join(answer["ws_url"].as_str().unwrap()).await;
        caller.until("session_started").await;
        // How long it lasts is not read off the wall either.
        app.clock.step(-seconds);
        app.clock.advance(Duration::from_secs(1));
        let id = answer["session_id"].as_str().unwrap();
        let path = format!("/conversation/{id}/status");
        let (_, status) = server.test.call("GET", &path, None).await;
        assert_eq!(status["duration_seconds"], json!(1.0), "{seconds} s");
        assert_eq!(swept().await, 1, "{seconds} s");
        let (_, call) = server
            .test
            .call("GET", &format!("/calls/{early}"), None)
            .await;
        assert_eq!(call["end_reason"], "session_expired", "{seconds} s");
        let counts = app.admission.counts().await.unwrap();
        assert_eq!((counts.pending, counts.live), (0, 1), "{seconds} s");
    }
}

#[tokio::test]
async fn a_session_can_be_ended_before_anybody_joins() {
    let server = Server::start().await;
    let agent = server.agent(json!({})).await;
    let (id, ws_url) = server.connect(&agent, json!({})).await;
    let end = format!("/conversation/{id}/end");
    let (status, first) = server
        .test
        .call("POST", &end, Some(json!({"reason": "changed my mind"})))
        .await;
    assert_eq!(
        (status.as_u16(), &first["already_ended"], &first["status"]),
        (200, &json!(false), &json!("ended"))
    );
    let (_, second) = server.test.call("POST", &end, None).await;
    assert_eq!(
        (&second["already_ended"], &second["end_reason"]),
        (&json!(true), &json!("ended_by_api"))
    );
    assert_eq!(second["ended_at"], first["ended_at"]);

    let events = server.events(&id, "call.ended").await;
    assert_eq!(
        (events.len(), &events[0].0["status"], events[0].1.as_str()),
        (1, &json!("canceled"), "skipped")
    );
    assert_eq!(Caller::join(&ws_url).await.until_closed().await.1, 1008);
    assert_eq!(server.test.app.admission.counts().await.unwrap().pending, 0);
}

#[tokio::test]
async fn of_a_hundred_racers_one_joins() {
    let server = Server::start().await;
    let agent = server.agent(json!({})).await;
    let (id, ws_url) = server.connect(&agent, json!({})).await;
    let racers: Vec<_> = (0..100)
        .map(|_| {
            let ws_url = ws_url.clone();
            tokio::spawn(async move {
                let mut caller = Caller::join(&ws_url).await;
                let first = caller.first().await;
                (first, caller)
            })
        })
        .collect();
    let mut winners = Vec::new();
    for racer in racers {
        let (first, mut caller) = racer.await.unwrap();
        if first["type"] == "session_started" {
            winners.push(caller);
        } else {
            assert_eq!(first["type"], "error", "{first}");
            assert_eq!(caller.until_closed().await.1, 1008);
        }
    }
    assert_eq!(winners.len(), 1);
    let (_, state) = server
        .test
        .call("GET", &format!("/conversation/{id}/status"), None)
        .await;
    assert_eq!(state["status"], "live");
}

#[tokio::test]
async fn a_stranger_at_the_socket_gets_the_upgrade_and_1008() {
    let server = Server::start().await;
    let agent = server.agent(json!({})).await;
    let (id, ws_url) = server.connect(&agent, json!({})).await;
    let (base, token) = ws_url.split_once("?token=").unwrap();
    let (_, other_url) = server.connect(&agent, json!({})).await;
    let other_token = other_url.split_once("?token=").unwrap().1;
    for url in [
        base.to_owned(),
        format!("{base}?token="),
        format!("{base}?token=nonsense"),
        format!("{base}?token={other_token}"),
        format!("{base}/{other_token}"),
        base.replace(&id, "00000000-0000-0000-0000-000000000000") + "?token=" + token,
        base.replace(&id, "not-an-id") + "?token=" + token,
    ] {
        let (error, code) = Caller::join(&url).await.until_closed().await;
        assert_eq!((&error["type"], code), (&json!("error"), 1008), "{url}");
        assert!(error["request_id"].is_string() && error["code"].is_string());
    }
    // None of that used the session up; the path form serves the native protocol as well.
    let mut caller = Caller::join(&format!("{base}/{token}")).await;
    assert_eq!(
        caller.until("session_started").await["session_id"],
        json!(id)
    );
}

#[tokio::test]
async fn a_socket_does_not_join_a_browser_s_session() {
    let server = Server::start().await;
    let agent = server.agent(json!({})).await;
    let (socket, ws_url) = server.connect(&agent, json!({})).await;
    let body = json!({"agent_id": agent});
    let (_, answer) = server
        .test
        .call("POST", "/conversation/connect", Some(body))
        .await;
    let browser = answer["session_id"].as_str().unwrap();
    let base = ws_url.split_once("?token=").unwrap().0;
    let base = base.replace(&socket, browser);
    // Even a token that this server could have made for it, but has not.
    let id = browser.parse().unwrap();
    let made = token::mint(&server.test.app.master_key, id, [7; token::RANDOM]);
    let other = ws_url.split_once("?token=").unwrap().1;
    for url in [
        base.clone(),
        format!("{base}?token={other}"),
        format!("{base}?token={made}"),
        format!("{base}/{made}"),
    ] {
        let (error, code) = Caller::join(&url).await.until_closed().await;
        assert_eq!((&error["type"], code), (&json!("error"), 1008), "{url}");
        assert_eq!(error["code"], "session_not_joinable", "{url}");
    }
    let path = format!("/conversation/{browser}/status");
    let (_, status) = server.test.call("GET", &path, None).await;
    assert_eq!(status["status"], "open");
}

#[tokio::test]
async fn a_vendor_may_bring_the_token_in_its_start_message() {
    let server = Server::start().await;
    let agent = server.agent(json!({})).await;
    let telco = json!({"protocol": "telco", "audio_format": "ulaw_8000"});
    let (id, ws_url) = server.connect(&agent, telco.clone()).await;
    let (bare, token) = ws_url.rsplit_once('/').unwrap();
    let start = |token: &str| {
        json!({"event": "start", "streamSid": "MZ1", "sequenceNumber": "1", "start": {
            "streamSid": "MZ1", "accountSid": "AC1", "callSid": "CA1", "tracks": ["inbound"],
            "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1},
            "customParameters": {"token": token}
        }})
    };
    let mut stranger = Caller::join(bare).await;
    stranger
        .send(json!({"event": "connected", "protocol": "Call", "version": "1.0.0"}))
        .await;
    stranger.send(start("a-guess")).await;
    assert_eq!(stranger.until_closed().await.1, 1008);

    let mut vendor = Caller::join(bare).await;
    vendor
        .send(json!({"event": "connected", "protocol": "Call", "version": "1.0.0"}))
        .await;
    vendor.send(start(token)).await;
    let media = vendor.until("media").await;
    assert_eq!(
        (
            &media["streamSid"],
            media["media"]["payload"].as_str().unwrap().len()
        ),
        (&json!("MZ1"), 216)
    );
    vendor
        .send(json!({"event": "stop", "streamSid": "MZ1", "sequenceNumber": "2"}))
        .await;
    vendor.until_closed().await;
    server.settle().await;
    let (_, call) = server.test.call("GET", &format!("/calls/{id}"), None).await;
    assert_eq!(
        (&call["status"], &call["end_reason"]),
        (&json!("completed"), &json!("caller_hangup"))
    );
}

#[tokio::test]
async fn whoever_ends_a_call_it_ends_once() {
    let server = Server::start().await;
    let agent = server.agent(json!({})).await;
    for _ in 0..20 {
        let (id, ws_url) = server.connect(&agent, json!({})).await;
        let mut caller = Caller::join(&ws_url).await;
        caller.until("session_started").await;
        let (session, call) = (
            format!("/conversation/{id}/end"),
            format!("/calls/{id}/end"),
        );
        tokio::join!(
            caller.send(json!({"type": "end"})),
            server.test.call("POST", &session, None),
            server.test.call("POST", &call, None),
        );
        caller.until_closed().await;
        server.settle().await;
        assert_eq!(server.events(&id, "call.ended").await.len(), 1);
    }
    assert_eq!(
        server.test.app.admission.counts().await.unwrap(),
        control::admission::Counts::default()
    );
}

#[tokio::test]
async fn a_tool_result_needs_a_tool_call() {
    let server = Server::start().await;
    let agent = server.agent(json!({})).await;
    let (id, ws_url) = server.connect(&agent, json!({})).await;
    let path = format!("/conversation/{id}/tool-result");
    let answer = async |body: Value| server.test.call("POST", &path, Some(body)).await;
    let mut caller = Caller::join(&ws_url).await;
    caller.until("session_started").await;
    let (status, error) = answer(json!({"tool_call_id": "c1", "result": {"ok": true}})).await;
    assert_eq!(
        (status.as_u16(), &error["code"]),
        (404, &json!("tool_call_not_found"))
    );
    let (status, error) =
        answer(json!({"tool_call_id": "c1", "result": "x".repeat(65 * 1024)})).await;
    assert_eq!(
        (status.as_u16(), &error["fields"][0]["loc"][1]),
        (422, &json!("result"))
    );
    caller.send(json!({"type": "end"})).await;
    caller.until_closed().await;
    server.settle().await;
    let (status, error) = answer(json!({"tool_call_id": "c1", "result": 1})).await;
    assert_eq!(
        (status.as_u16(), &error["code"]),
        (410, &json!("tool_call_expired"))
    );
}

/// What a caller who is not let in reads before the close, with this code.
async fn turned_away(ws_url: &str, code: u16) -> Value {
    let (error, closed) = Caller::join(ws_url).await.until_closed().await;
    assert_eq!((&error["type"], closed), (&json!("error"), code), "{error}");
    for key in ["message", "request_id"] {
        assert!(error[key].is_string(), "no {key} in {error}");
    }
    error
}

#[tokio::test]
async fn without_a_place_on_the_engine_the_caller_reads_so_before_1013() {
    let server = Server::start().await;
    let agent = server.agent(json!({})).await;
    let (id, ws_url) = server.connect(&agent, json!({})).await;
    server.test.app.engine.shutdown(Duration::ZERO);
    let error = turned_away(&ws_url, 1013).await;
    assert_eq!(
        (&error["code"], &error["retry_after"]),
        (&json!("admission_rejected"), &json!(2))
    );
    let (_, call) = server.test.call("GET", &format!("/calls/{id}"), None).await;
    assert_eq!(
        (&call["status"], &call["end_reason"]),
        (&json!("failed"), &json!("engine_error"))
    );
}

#[tokio::test]
async fn a_node_that_leaves_or_has_no_database_says_so_before_1013() {
    for loses_database in [false, true] {
        let server = Server::start().await;
        let agent = server.agent(json!({})).await;
        let (_, ws_url) = server.connect(&agent, json!({})).await;
        match loses_database {
            true => server.test.app.db.close().await,
            false => server.test.app.start_leaving(),
        }
        let error = turned_away(&ws_url, 1013).await;
        assert_eq!(
            (&error["code"], &error["retry_after"]),
            (&json!("service_unavailable"), &json!(2)),
            "{loses_database}"
        );
    }
}

#[tokio::test]
async fn a_call_that_cannot_start_says_so_before_1011() {
    let server = Server::start().await;
    let agent = server.agent(json!({})).await;
    let (id, ws_url) = server.connect(&agent, json!({})).await;
    let path = format!("/agents/{agent}?force=true");
    let (status, answer) = server.test.call("DELETE", &path, None).await;
    assert_eq!(status.as_u16(), 204, "{answer}");
    let error = turned_away(&ws_url, 1011).await;
    assert_eq!(error["code"], "call_failed");
    assert_eq!(error.get("retry_after"), None);
    let (_, call) = server.test.call("GET", &format!("/calls/{id}"), None).await;
    assert_eq!(
        (&call["status"], &call["end_reason"]),
        (&json!("failed"), &json!("engine_error"))
    );
}

#[tokio::test]
async fn a_french_agent_is_refused_where_english_alone_is_understood() {
    let server = kit::server::Setup::default()
        .set("SPEECH__WORKERS", "1")
        .start()
        .await;
    let client = server.client();
    let fields = json!({
        "voice_id": kit::socket::scripted_voice(&client).await,
        "language": "french", "llm_model": "echo", "first_message": "Bonjour.",
    });
    let agent = kit::socket::agent(&client, fields).await;
    for connect in [kit::socket::native(&agent), kit::socket::telco(&agent)] {
        let answer = client.post("/conversation/connect", &connect).await;
        let refused = answer.expect(422);
        assert_eq!(refused.text("code"), "validation_error");
        assert_eq!(
            refused.text("error"),
            "The offline recogniser knows English only, and the agent's language is French."
        );
    }
    let calls = client.get("/calls").await.expect(200);
    assert_eq!(calls.body["total"], 0, "a refusal leaves no record");
}
