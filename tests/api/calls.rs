//! A call from the first frame to its recording, and what is kept of it.

use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::in_process::{Caller, Server};

/// A call in which the caller is greeted, types a line, is answered, and hangs up. Its id.
async fn a_call(server: &Server, agent: &str) -> String {
    let (id, ws_url) = server
        .connect(agent, json!({"caller_phone": "+15550100"}))
        .await;
    let mut caller = Caller::join(&format!("{ws_url}&events=turn_metrics")).await;
    let started = caller.until("session_started").await;
    assert_eq!(
        (&started["session_id"], &started["conversation_id"]),
        (&json!(id), &json!(id))
    );
    let audio = caller.until("audio").await;
    assert!(audio["audio"].as_str().unwrap().len() > 800 && audio["duration_ms"] == 20);
    caller
        .send(json!({"type": "user_message", "text": "Good morning"}))
        .await;
    loop {
        let response = caller.until("agent_response").await;
        if response["text"]
            .as_str()
            .unwrap()
            .to_lowercase()
            .contains("good morning")
        {
            break;
        }
    }
    caller.until("audio").await;
    caller.send(json!({"type": "end"})).await;
    let (last, code) = caller.until_closed().await;
    assert_eq!(
        (&last["type"], &last["reason"], code),
        (&json!("call_ended"), &json!("caller_hangup"), 1000)
    );
    server.settle().await;
    id
}

#[tokio::test]
async fn a_call_is_written_down_from_greeting_to_recording() {
    let server = Server::start().await;
    let agent = server.agent(json!({})).await;
    let id = a_call(&server, &agent).await;

    let (_, call) = server.test.call("GET", &format!("/calls/{id}"), None).await;
    assert_eq!(
        [
            &call["status"],
            &call["end_reason"],
            &call["ended_by"],
            &call["channel"],
            &call["has_recording"]
        ],
        [
            &json!("completed"),
            &json!("caller_hangup"),
            &json!("caller"),
            &json!("websocket"),
            &json!(true)
        ]
    );
    assert!(call["duration_seconds"].as_f64().unwrap() > 0.0);
    let turns = call["transcript"].as_array().unwrap();
    let said: Vec<(&str, &str)> = turns
        .iter()
        .map(|turn| {
            (
                turn["role"].as_str().unwrap(),
                turn["source"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        said,
        [
            ("assistant", "speech"),
            ("user", "text"),
            ("assistant", "speech")
        ],
        "{call:#}"
    );
    assert_eq!(call["turn_count"], 3);
    let text = call["transcript_text"].as_str().unwrap();
    assert!(
        text.starts_with("Agent: Hello and welcome.\nCaller: Good morning\nAgent: "),
        "{text}"
    );

    let (_, state) = server
        .test
        .call("GET", &format!("/conversation/{id}/status"), None)
        .await;
    assert_eq!(
        (&state["status"], &state["end_reason"]),
        (&json!("ended"), &json!("caller_hangup"))
    );
    let (_, talk) = server
        .test
        .call("GET", &format!("/conversations/{id}"), None)
        .await;
    assert_eq!(
        (&talk["status"], &talk["has_transcript"]),
        (&json!("completed"), &json!(true))
    );
    let (_, transcript) = server
        .test
        .call("GET", &format!("/conversations/{id}/transcript"), None)
        .await;
    assert_eq!(
        (&transcript["conversation_id"], &transcript["turns"]),
        (&json!(id), &call["transcript"])
    );
    assert_eq!(server.test.app.admission.counts().live, 0);

    let events = server.events(&id, "call.ended").await;
    let [(event, status)] = events.as_slice() else {
        panic!("{} events", events.len())
    };
    assert_eq!(status, "skipped");
    let keys: Vec<&String> = event.as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        [
            "agent_id",
            "batch_id",
            "batch_recipient_index",
            "call_id",
            "conversation_id",
            "cost_cents",
            "direction",
            "duration_seconds",
            "ended_at",
            "event_id",
            "from_number",
            "metadata",
            "metadata_truncated",
            "started_at",
            "status",
            "timestamp",
            "to_number",
            "transcript",
            "transcript_text",
            "transcript_truncated",
        ]
    );
    assert_eq!(
        (&event["transcript"], &event["from_number"]),
        (&call["transcript"], &json!("+15550100"))
    );
    assert_eq!(server.events(&id, "recording.ready").await.len(), 1);

    let (status, live) = server
        .test
        .call("POST", &format!("/calls/{id}/end"), None)
        .await;
    assert_eq!(
        (status.as_u16(), &live["already_ended"], &live["call_id"]),
        (200, &json!(true), &json!(id))
    );
}

#[tokio::test]
async fn ending_over_the_api_reaches_the_caller_and_is_one_end() {
    let server = Server::start().await;
    let agent = server
        .agent(json!({"webhook_url": "https://hooks.example.com/calls"}))
        .await;
    let (id, ws_url) = server.connect(&agent, json!({})).await;
    let mut caller = Caller::join(&ws_url).await;
    caller.until("audio").await;
    let (_, state) = server
        .test
        .call("GET", &format!("/conversation/{id}/status"), None)
        .await;
    assert_eq!(
        (&state["status"], &state["agent_state"]),
        (&json!("live"), &json!("speaking"))
    );
    let (status, _) = server
        .test
        .call("DELETE", &format!("/agents/{agent}"), None)
        .await;
    assert_eq!(status.as_u16(), 409, "the agent is on a live call");

    let path = format!("/conversation/{id}/end");
    let (first, second, third) = tokio::join!(
        server.test.call("POST", &path, None),
        server.test.call("POST", &path, None),
        caller.until_closed(),
    );
    for (status, answer) in [first, second] {
        assert_eq!(
            (status.as_u16(), &answer["end_reason"]),
            (200, &json!("ended_by_api")),
            "{answer}"
        );
    }
    assert_eq!((&third.0["type"], third.1), (&json!("call_ended"), 1000));
    server.settle().await;
    let events = server.events(&id, "call.ended").await;
    assert_eq!((events.len(), events[0].1.as_str()), (1, "pending"));
}

/// The status, headers and bytes of a GET of a whole URL, without a key.
async fn fetch(
    server: &Server,
    method: &str,
    url: &str,
    headers: &[(&str, &str)],
) -> (StatusCode, HeaderMap, Vec<u8>) {
    let path = url
        .strip_prefix(&server.test.app.config.server.public_url)
        .unwrap_or(url);
    let request = headers.iter().fold(
        http::Request::builder().method(method).uri(path),
        |request, (name, value)| request.header(*name, *value),
    );
    let response = server
        .test
        .send(request.body(axum::body::Body::empty()).unwrap())
        .await;
    let (parts, body) = response.into_parts();
    (
        parts.status,
        parts.headers,
        body.collect().await.unwrap().to_bytes().to_vec(),
    )
}

#[tokio::test]
async fn audio_is_served_in_ranges_to_whoever_holds_its_token() {
    let server = Server::start().await;
    let agent = server.agent(json!({})).await;
    let id = a_call(&server, &agent).await;
    let (_, link) = server
        .test
        .call("GET", &format!("/conversations/{id}/audio"), None)
        .await;
    let url = link["audio_url"].as_str().unwrap();
    let size = link["size_bytes"].as_u64().unwrap();
    assert_eq!(
        (&link["expires_in"], &link["content_type"]),
        (&json!(3600), &json!("audio/wav"))
    );
    assert!(url.ends_with(link["token"].as_str().unwrap()));

    let (status, headers, whole) = fetch(&server, "GET", url, &[]).await;
    assert_eq!((status.as_u16(), whole.len() as u64), (200, size));
    assert_eq!(
        (
            &whole[..4],
            &headers["content-type"],
            &headers["accept-ranges"]
        ),
        (
            &b"RIFF"[..],
            &"audio/wav".parse().unwrap(),
            &"bytes".parse().unwrap()
        )
    );
    let wav = hound::WavReader::new(whole.as_slice()).unwrap();
    assert_eq!(
        (
            wav.spec().channels,
            wav.spec().sample_rate,
            wav.spec().bits_per_sample
        ),
        (2, 16_000, 16)
    );
    let agent_side: Vec<i16> = wav
        .into_samples::<i16>()
        .skip(1)
        .step_by(2)
        .map(Result::unwrap)
        .collect();
    assert!(
        agent_side.iter().any(|sample| sample.unsigned_abs() > 1000),
        "the greeting is audible"
    );

    let etag = headers["etag"].to_str().unwrap();
    for (range, more, expected, first, count) in [
        ("bytes=0-3", None, 206, 0, 4),
        ("bytes=8-11", None, 206, 8, 4),
        ("bytes=-4", None, 206, size - 4, 4),
        ("bytes=10-", None, 206, 10, size - 10),
        ("bytes=0-3", Some(etag), 206, 0, 4),
        ("bytes=0-3", Some("\"another\""), 200, 0, size),
        ("bytes=0-3,8-11", None, 200, 0, size),
        ("lines=0-3", None, 200, 0, size),
    ] {
        let mut headers = vec![("range", range)];
        headers.extend(more.map(|tag| ("if-range", tag)));
        let (status, headers, part) = fetch(&server, "GET", url, &headers).await;
        assert_eq!(status.as_u16(), expected, "{range}");
        assert_eq!(
            part,
            whole[first as usize..(first + count) as usize],
            "{range}"
        );
        if expected == 206 {
            let told = format!("bytes {first}-{}/{size}", first + count - 1);
            assert_eq!(headers["content-range"], told.as_str());
        }
    }
    let (status, headers, body) =
        fetch(&server, "GET", url, &[("range", &format!("bytes={size}-"))]).await;
    let error: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        (status.as_u16(), &error["code"]),
        (416, &json!("range_not_satisfiable"))
    );
    assert_eq!(headers["content-range"], format!("bytes */{size}").as_str());
    let (status, headers, body) = fetch(&server, "HEAD", url, &[("range", "bytes=0-3")]).await;
    assert_eq!(
        (status.as_u16(), &headers["content-length"], body.len()),
        (200, &size.to_string().parse().unwrap(), 0)
    );
    assert_eq!(
        fetch(&server, "GET", url, &[("if-none-match", etag)])
            .await
            .0
            .as_u16(),
        304
    );

    // Without a token a key does; without either nothing does.
    let path = format!("/api/v1/conversations/{id}/audio.wav");
    assert_eq!(fetch(&server, "GET", &path, &[]).await.0.as_u16(), 401);
    assert_eq!(
        fetch(&server, "GET", &format!("{path}?token=x"), &[])
            .await
            .0
            .as_u16(),
        401
    );
    assert_eq!(
        fetch(&server, "GET", &path, &[("x-api-key", &server.test.key)])
            .await
            .0
            .as_u16(),
        200
    );
    let narrow = server
        .test
        .key_for(&[control::http::Scope::CallsRead])
        .await;
    assert_eq!(
        fetch(&server, "GET", &path, &[("x-api-key", &narrow)])
            .await
            .0
            .as_u16(),
        403
    );

    // Revoked is revoked at once.
    let (status, answer) = server
        .test
        .call(
            "POST",
            &format!("/conversations/{id}/audio/revoke"),
            Some(json!({"token": link["token"]})),
        )
        .await;
    assert_eq!((status.as_u16(), answer), (200, json!({"revoked": true})));
    assert_eq!(fetch(&server, "GET", url, &[]).await.0.as_u16(), 401);
    // And expired is expired.
    let (_, link) = server
        .test
        .call("GET", &format!("/conversations/{id}/audio"), None)
        .await;
    server
        .test
        .app
        .clock
        .advance(std::time::Duration::from_secs(3601));
    assert_eq!(
        fetch(&server, "GET", link["audio_url"].as_str().unwrap(), &[])
            .await
            .0
            .as_u16(),
        401
    );
}

#[tokio::test]
async fn a_recording_is_listed_downloaded_and_deleted() {
    let server = Server::start().await;
    let agent = server.agent(json!({})).await;
    let id = a_call(&server, &agent).await;
    let (_, list) = server.test.call("GET", "/recordings", None).await;
    assert_eq!(list["total"], 1);
    let recording = &list["items"][0];
    assert_eq!(
        (
            &recording["status"],
            &recording["call_id"],
            &recording["channel_map"]
        ),
        (&json!("ready"), &json!(id), &json!(["caller", "agent"]))
    );
    let path = format!("/recordings/{}", recording["id"].as_str().unwrap());
    let (_, call) = server.test.call("GET", &format!("/calls/{id}"), None).await;
    assert_eq!(call["recording_id"], recording["id"]);

    let (_, link) = server
        .test
        .call("GET", &format!("{path}/audio"), None)
        .await;
    let url = link["audio_url"].as_str().unwrap().to_owned();
    let (status, headers, bytes) = fetch(&server, "GET", &url, &[("range", "bytes=0-3")]).await;
    assert_eq!((status.as_u16(), bytes.as_slice()), (206, &b"RIFF"[..]));
    assert_eq!(
        headers["etag"],
        format!("\"{}\"", recording["sha256"].as_str().unwrap()).as_str()
    );
    server
        .test
        .app
        .clock
        .advance(std::time::Duration::from_secs(3600));
    let (status, _, body) = fetch(&server, "GET", &url, &[]).await;
    let error: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        (status.as_u16(), &error["code"]),
        (410, &json!("url_expired"))
    );

    let (_, link) = server
        .test
        .call("GET", &format!("{path}/audio"), None)
        .await;
    let (status, _) = server.test.call("DELETE", &path, None).await;
    assert_eq!(status.as_u16(), 204);
    assert_eq!(
        server.test.call("DELETE", &path, None).await.0.as_u16(),
        404
    );
    assert_eq!(server.test.call("GET", &path, None).await.0.as_u16(), 404);
    assert_eq!(
        server.test.call("GET", "/recordings", None).await.1["total"],
        0
    );
    assert_eq!(
        fetch(&server, "GET", link["audio_url"].as_str().unwrap(), &[])
            .await
            .0
            .as_u16(),
        404
    );
    let (_, talk) = server
        .test
        .call("GET", &format!("/conversations/{id}"), None)
        .await;
    assert_eq!(
        (&talk["has_recording"], &talk["has_transcript"]),
        (&json!(false), &json!(true))
    );
    assert_eq!(
        server
            .test
            .call("GET", &format!("/conversations/{id}/audio"), None)
            .await
            .0
            .as_u16(),
        404
    );
    let control::storage::Storage::Local { root } = &server.test.app.storage;
    let left: Vec<_> = walk(root).collect();
    assert!(left.is_empty(), "objects of a deleted recording: {left:?}");
}

fn walk(folder: &std::path::Path) -> Box<dyn Iterator<Item = std::path::PathBuf>> {
    Box::new(
        std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .flat_map(|path| {
                if path.is_dir() {
                    walk(&path)
                } else {
                    Box::new(std::iter::once(path))
                }
            }),
    )
}

#[tokio::test]
async fn an_agent_that_keeps_nothing_keeps_nothing() {
    let server = Server::start().await;
    let agent = server
        .agent(json!({"recording_enabled": false, "transcription_enabled": false}))
        .await;
    let id = a_call(&server, &agent).await;
    let (_, call) = server.test.call("GET", &format!("/calls/{id}"), None).await;
    assert_eq!(
        (
            &call["has_recording"],
            &call["recording_id"],
            &call["transcript"]
        ),
        (&json!(false), &json!(null), &json!([]))
    );
    assert_eq!(
        server.test.call("GET", "/recordings", None).await.1["total"],
        0
    );
    assert_eq!(
        server
            .test
            .call("GET", &format!("/conversations/{id}/audio"), None)
            .await
            .0
            .as_u16(),
        404
    );
}

#[tokio::test]
async fn feedback_is_kept_with_the_conversation() {
    let server = Server::start().await;
    let agent = server.agent(json!({})).await;
    let (id, _) = server.connect(&agent, json!({})).await;
    let path = format!("/conversations/{id}/feedback");
    for body in [
        json!({}),
        json!({"rating": 0}),
        json!({"rating": 6}),
        json!({"rating": "5"}),
        json!({"rating": 4.5}),
    ] {
        let (status, answer) = server.test.call("POST", &path, Some(body)).await;
        assert_eq!(
            (status.as_u16(), &answer["fields"][0]["loc"]),
            (422, &json!(["body", "rating"])),
            "{answer}"
        );
    }
    let long = json!({"rating": 5, "comment": "x".repeat(1001)});
    assert_eq!(
        server.test.call("POST", &path, Some(long)).await.0.as_u16(),
        422
    );
    let (status, talk) = server
        .test
        .call(
            "POST",
            &path,
            Some(json!({"rating": 4, "comment": "Fine."})),
        )
        .await;
    assert_eq!(
        (
            status.as_u16(),
            &talk["feedback"]["rating"],
            &talk["feedback"]["comment"]
        ),
        (200, &json!(4), &json!("Fine."))
    );
    let (_, talk) = server
        .test
        .call("GET", &format!("/conversations/{id}"), None)
        .await;
    assert_eq!(talk["feedback"]["rating"], 4);
}

#[tokio::test]
async fn calls_are_listed_by_what_is_asked() {
    let server = Server::start().await;
    let (one, two) = (
        server.agent(json!({})).await,
        server.agent(json!({"name": "Other"})).await,
    );
    let (first, _) = server
        .connect(&one, json!({"caller_phone": "+15550101"}))
        .await;
    server
        .test
        .app
        .clock
        .advance(std::time::Duration::from_secs(10));
    let middle = server.test.app.clock.now().to_string().replace('+', "%2B");
    let (second, _) = server
        .connect(
            &two,
            json!({"direction": "outbound", "caller_phone": "+15550102"}),
        )
        .await;
    server
        .test
        .call("POST", &format!("/calls/{first}/end"), None)
        .await;
    let ids = async |query: &str| {
        let (status, list) = server
            .test
            .call("GET", &format!("/calls?{query}"), None)
            .await;
        assert_eq!(status.as_u16(), 200, "{list}");
        let items = list["items"].as_array().unwrap();
        assert_eq!(list["total"], items.len());
        items
            .iter()
            .map(|call| call["id"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids("").await, [second.clone(), first.clone()]);
    assert_eq!(ids("status=canceled").await, std::slice::from_ref(&first));
    assert_eq!(
        ids("direction=outbound").await,
        std::slice::from_ref(&second)
    );
    assert_eq!(
        ids(&format!("agent_id={one}")).await,
        std::slice::from_ref(&first)
    );
    assert_eq!(
        ids("phone=%2B15550102").await,
        std::slice::from_ref(&second)
    );
    assert_eq!(
        ids(&format!("from={middle}")).await,
        std::slice::from_ref(&second)
    );
    assert_eq!(
        ids(&format!("to={middle}")).await,
        std::slice::from_ref(&first)
    );
    let (status, error) = server
        .test
        .call(
            "GET",
            "/calls?status=asleep&agent_id=x&from=now&limit=101",
            None,
        )
        .await;
    assert_eq!(status.as_u16(), 422, "{error}");
    let (_, page) = server.test.call("GET", "/calls?limit=1", None).await;
    assert_eq!(
        (
            page["items"].as_array().unwrap().len(),
            &page["total"],
            &page["has_more"]
        ),
        (1, &json!(2), &json!(true))
    );
}

#[tokio::test]
async fn a_call_that_died_with_its_server_is_ended_once_by_the_next() {
    let mut server = kit::server::Server::scripted().await;
    let client = server.client();
    let voice = kit::socket::scripted_voice(&client).await;
    let fields = json!({
        "voice_id": voice, "llm_model": "echo", "webhook_url": "https://hooks.example.com/calls",
        "first_message": "Good morning, and thank you for calling us on this fine day; how may I help you?",
    });
    let agent = kit::socket::agent(&client, fields).await;
    let mut caller = kit::socket::Caller::call(&client, &kit::socket::native(&agent)).await;
    caller.listen(2500).await;
    let id = caller.session_id.clone();
    let live = client
        .get(&format!("/conversation/{id}/status"))
        .await
        .expect(200);
    assert_eq!(live.text("status"), "live");

    server.kill();
    for _ in 0..2 {
        server.start_again().await;
        let client = server.client();
        let mut call = client.get(&format!("/calls/{id}")).await.expect(200);
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while !(call.body["status"] == "failed" && call.body["has_recording"] == true) {
            assert!(std::time::Instant::now() < until, "{:#}", call.body);
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            call = client.get(&format!("/calls/{id}")).await.expect(200);
        }
        assert_eq!(
            (call.text("end_reason"), call.text("ended_by")),
            ("node_lost".into(), "system".into())
        );
        let seconds = call.body["duration_seconds"].as_f64().unwrap();
        assert!((1.5..=3.5).contains(&seconds), "{seconds} s");

        let wav = client
            .get(&format!("/conversations/{id}/audio.wav"))
            .await
            .expect(200);
        let wav = hound::WavReader::new(wav.bytes.as_slice()).unwrap();
        let samples: Vec<i16> = wav.into_samples::<i16>().map(Result::unwrap).collect();
        assert_eq!((samples.len() as f64 / 32.0).round() / 1000.0, seconds);
        let agent_side = samples.iter().skip(1).step_by(2);
        let voiced = agent_side
            .filter(|sample| sample.unsigned_abs() > 500)
            .count();
        assert!(
            voiced > 16_000,
            "a second of the greeting is to be heard, not {voiced} samples"
        );

        let db = control::db::Db::open(&format!(
            "sqlite:{}",
            server.data.join("sidetone.db").display()
        ))
        .await
        .unwrap();
        let events = db
            .query("select type, status from events where call_id = $1 order by type")
            .bind(&id);
        let events = events
            .all(|row| Ok((row.text("type")?, row.text("status")?)))
            .await
            .unwrap();
        let pending = |kind: &str| (kind.to_owned(), "pending".to_owned());
        assert_eq!(events, [pending("call.ended"), pending("recording.ready")]);
        db.close().await;
        server.kill();
    }
}
