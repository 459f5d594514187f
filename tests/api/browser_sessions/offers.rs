//! Offers and candidates: what is wrong with them is named, one offer joins, the slot is taken first.

use control::app::App;

use super::*;
use crate::in_process::{PATIENCE, abandoned};

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

/// What the engine would refuse is known before the call begins.
#[tokio::test]
async fn an_offer_that_cannot_be_answered_leaves_the_session_open_for_another() {
    let server = Server::start().await;
    let agent = server.agent(json!({})).await;
    let id = session(&server, &agent).await;
    let path = format!("/conversation/{id}/offer");
    let offer = async |sdp: &str| {
        let body = json!({"sdp": sdp, "type": "offer"});
        let (status, answer) = server.test.call("POST", &path, Some(body)).await;
        (status.as_u16(), answer)
    };
    let good = recorded();
    let audio = good.lines().find(|line| line.starts_with("m=audio "));
    let refused = audio.unwrap().split(' ').skip(2).collect::<Vec<_>>();
    let refused = format!("m=audio 0 {}", refused.join(" "));
    for (sdp, word) in [
        (good.replace("opus/48000", "speex/48000"), "opus"),
        (good.replace("sha-256", "sha-512"), "sha-256"),
        (good.replace(audio.unwrap(), &refused), "no audio"),
        (good.replace("a=mid:1", "a=mid:0"), "mid"),
    ] {
        let (status, answer) = offer(&sdp).await;
        assert_eq!(
            (status, &answer["code"]),
            (422, &json!("invalid_sdp")),
            "{answer}"
        );
        let why = answer["error"].as_str().unwrap();
        assert!(why.contains(word), "{why}");
        assert_eq!(answer.get("fields"), None);
    }
    let (_, status) = server
        .test
        .call("GET", &format!("/conversation/{id}/status"), None)
        .await;
    assert_eq!(status["status"], "open");
    let counts = server.test.app.admission.counts().await.unwrap();
    assert_eq!((counts.pending, counts.live), (1, 0));
    let (status, answer) = offer(&good).await;
    assert_eq!(status, 200, "{answer}");
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

/// The store forgets the slot of a session, and by now the node knows.
async fn forget_slot(app: &App, id: &str) {
    app.admission
        .release(id.parse().unwrap(), &app.incarnation.owner);
    app.admission.settled().await;
    app.clock.advance(Duration::from_secs(11));
}

#[tokio::test]
async fn an_offer_is_admitted_anew_when_its_slot_has_gone() {
    let server = Server::with(|config| config.limits.account_calls = 1).await;
    let app = &server.test.app;
    let agent = server.agent(json!({})).await;
    let id = session(&server, &agent).await;
    // The store forgot the slot, and somebody else has it.
    forget_slot(app, &id).await;
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

#[tokio::test]
async fn an_offer_to_a_full_node_is_503_and_the_session_stays() {
    let server = Server::with(|config| config.limits.node_calls = 2).await;
    let app = &server.test.app;
    let agent = server.agent(json!({})).await;
    let id = session(&server, &agent).await;
    // The store forgot the session's slot, and the node is full of others.
    forget_slot(app, &id).await;
    let mut others = Vec::new();
    for _ in 0..2 {
        let other = bridge::wish(
            app,
            server.test.account,
            CallId::new(&app.clock),
            State::Live,
        );
        others.push(app.admit(other).await.unwrap());
    }
    let key = [("x-api-key", server.test.key.as_str())];
    let client = Client::of(&server, &key);
    let path = |route: &str| format!("/conversation/{id}/{route}");
    for (method, body) in [
        ("POST", json!({"sdp": recorded(), "type": "offer"})),
        ("GET", Value::Null),
    ] {
        let answer = client.ask(method, &path("offer"), body).await;
        assert_eq!(code(&answer), (503, "service_unavailable"), "{method}");
        assert_eq!(
            (
                &answer.1["resource"],
                &answer.1["current"],
                &answer.1["cap"]
            ),
            (&json!("node"), &json!(2), &json!(2)),
            "{method}"
        );
        let seconds = answer.1["retry_after"].as_u64().unwrap();
        assert_eq!(answer.2["retry-after"], seconds.to_string().as_str());
    }
    let (_, status) = server.test.call("GET", &path("status"), None).await;
    assert_eq!(status["status"], "open");
    drop(others);
    app.admission.settled().await;
    let offer = json!({"sdp": recorded(), "type": "offer"});
    let answer = client.ask("POST", &path("offer"), offer).await;
    assert_eq!(answer.0, 200, "{}", answer.1);
}

#[tokio::test]
async fn a_node_that_ends_leaves_a_first_offer_to_another_one() {
    let server = Server::start().await;
    let app = &server.test.app;
    let agent = server.agent(json!({})).await;
    let id = session(&server, &agent).await;
    let key = [("x-api-key", server.test.key.as_str())];
    let client = Client::of(&server, &key);
    let path = |route: &str| format!("/conversation/{id}/{route}");
    let other =
        "insert into nodes (incarnation, name, address, capacity, beats, beat_at, started_at)
        values (999, 'other', 'http://127.0.0.1:1', 1, 0, 0, 0)";
    app.db.query(other).execute().await.unwrap();
    app.start_draining();
    for (method, body) in [
        ("POST", json!({"sdp": recorded(), "type": "offer"})),
        ("GET", Value::Null),
    ] {
        let answer = client.ask(method, &path("offer"), body).await;
        assert_eq!(code(&answer), (503, "service_unavailable"), "{method}");
        assert_eq!(answer.2["retry-after"], "1", "{method}");
    }
    let (_, status) = server.test.call("GET", &path("status"), None).await;
    assert_eq!(status["status"], "open");
    let counts = app.admission.counts().await.unwrap();
    assert_eq!((counts.pending, counts.live), (1, 0), "the slot is kept");
    // Alone it takes whom it let in before.
    let gone = "delete from nodes where incarnation = 999";
    app.db.query(gone).execute().await.unwrap();
    let offer = json!({"sdp": recorded(), "type": "offer"});
    let answer = client.ask("POST", &path("offer"), offer).await;
    assert_eq!(answer.0, 200, "{}", answer.1);
}

#[tokio::test]
async fn a_call_that_cannot_start_is_500_at_its_first_offer_and_its_slot_is_free() {
    let server = Server::start().await;
    let app = &server.test.app;
    let agent = server.agent(json!({})).await;
    let id = session(&server, &agent).await;
    let held = app.admission.counts().await.unwrap();
    assert_eq!((held.pending, held.live), (1, 0));
    let forced = format!("/agents/{agent}?force=true");
    let (status, answer) = server.test.call("DELETE", &forced, None).await;
    assert_eq!(status, 204, "{answer}");
    let path = format!("/conversation/{id}/offer");
    let offer = json!({"sdp": SDP, "type": "offer"});
    let (status, answer) = server.test.call("POST", &path, Some(offer.clone())).await;
    assert_eq!(
        (status.as_u16(), &answer["code"]),
        (500, &json!("internal_error")),
        "{answer}"
    );
    app.admission.settled().await;
    let held = app.admission.counts().await.unwrap();
    assert_eq!((held.pending, held.live), (0, 0));
    let (_, call) = server.test.call("GET", &format!("/calls/{id}"), None).await;
    assert_eq!(
        (&call["status"], &call["end_reason"]),
        (&json!("failed"), &json!("engine_error"))
    );
    let (status, answer) = server.test.call("POST", &path, Some(offer)).await;
    assert_eq!(
        (status.as_u16(), &answer["code"]),
        (404, &json!("session_ended"))
    );
}

/// Whoever gives up while an offer is being answered leaves no call that is in progress for ever.
#[tokio::test]
async fn a_client_who_goes_at_any_moment_leaves_no_call_behind() {
    let server = Server::start().await;
    let agent = server.agent(json!({})).await;
    let app = &server.test.app;
    for polls in 1..=40 {
        let id = session(&server, &agent).await;
        let path = format!("/conversation/{id}/offer");
        let body = json!({"sdp": recorded(), "type": "offer"});
        abandoned(server.test.call("POST", &path, Some(body)), polls).await;
    }
    // Those that were joined, and that no engine has and nobody has ended.
    let lost = async || {
        let joined =
            "select id from calls where owner_incarnation is not null and ended_at is null";
        let ids = app
            .db
            .query(joined)
            .all(|row| row.text("id"))
            .await
            .unwrap();
        let all = ids.len();
        let lost = ids.into_iter().filter(|id| {
            let id = id.parse().unwrap();
            app.live.get(server.test.account, id).is_none()
        });
        (all, lost.count())
    };
    let until = tokio::time::Instant::now() + PATIENCE;
    loop {
        let (all, lost) = lost().await;
        if lost == 0 {
            assert!(all > 0, "no client stayed long enough to join");
            break;
        }
        assert!(
            tokio::time::Instant::now() < until,
            "{lost} of {all} calls are nobody's"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// An offer as aiortc makes it; nobody listens at its candidates.
pub(super) fn recorded() -> String {
    include_str!("../../../fixtures/sdp/aiortc_offer.sdp").replace('\n', "\r\n")
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
