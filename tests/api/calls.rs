//! A call from the first frame to its end, and what is kept of it.

use serde_json::json;

use crate::in_process::{Caller, Server};

/// A call in which the caller is greeted, types a line, is answered, and hangs up. Its id.
pub(crate) async fn a_call(server: &Server, agent: &str) -> String {
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
    // Audio comes ahead of its playing time: so much of it that some was played.
    for _ in 0..26 {
        caller.until("audio").await;
    }
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
    assert_eq!(server.test.app.admission.counts().await.unwrap().live, 0);

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
    let (_, talk) = server
        .test
        .call("GET", &format!("/conversations/{id}"), None)
        .await;
    assert!(talk["turn_count"].as_i64().unwrap() > 0, "{talk}");
    assert_eq!(talk["has_transcript"], false, "{talk}");
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
    // As a carrier may write it.
    let bare = "update calls set to_number = '15550102' where to_number = '+15550102'";
    server.test.app.db.query(bare).execute().await.unwrap();
    assert_eq!(
        ids("phone=%2B15550102").await,
        std::slice::from_ref(&second)
    );
    assert_eq!(ids("phone=%2B1555010").await, Vec::<String>::new());
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
