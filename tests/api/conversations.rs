//! Conversations found by what was said, explained by their diagnostics; and the log of changes.

use serde_json::{Value, json};

use crate::calls::a_call;
use crate::in_process::{Caller, Server};

/// A call in which the caller types these lines. Its id.
async fn a_talk(server: &Server, agent: &str, lines: &[&str]) -> String {
    let (id, ws_url) = server.connect(agent, json!({})).await;
    let mut caller = Caller::join(&ws_url).await;
    caller.until("audio").await;
    for line in lines {
        caller
            .send(json!({"type": "user_message", "text": line}))
            .await;
        loop {
            let response = caller.until("agent_response").await;
            // Markup in what it says is not spoken.
            let said = response["text"].as_str().unwrap();
            if said.contains(line.split('_').next().unwrap()) {
                break;
            }
        }
    }
    caller.send(json!({"type": "end"})).await;
    caller.until_closed().await;
    server.settle().await;
    id
}

/// The ids that a search finds, in order.
async fn found(server: &Server, query: &str) -> Vec<String> {
    let (status, list) = server
        .test
        .call("GET", &format!("/conversations/search?{query}"), None)
        .await;
    assert_eq!(status.as_u16(), 200, "{list}");
    let items = list["items"].as_array().unwrap();
    items
        .iter()
        .map(|item| item["id"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn a_transcript_is_there_while_the_call_goes_on() {
    let server = Server::start().await;
    let agent = server.agent(json!({})).await;
    let (id, ws_url) = server.connect(&agent, json!({})).await;
    let has = async || {
        let path = format!("/conversations/{id}");
        let tells = async || {
            let (_, talk) = server.test.call("GET", &path, None).await;
            talk["has_transcript"].as_bool().unwrap()
        };
        // What is told before is so still, and what is there is told afterwards: the call goes on meanwhile.
        let before = tells().await;
        let (_, transcript) = server
            .test
            .call("GET", &format!("{path}/transcript"), None)
            .await;
        let turns = transcript["turns"].as_array().unwrap();
        assert!(!before || !turns.is_empty(), "{transcript}");
        assert!(turns.is_empty() || tells().await, "{transcript}");
        !turns.is_empty()
    };
    assert!(!has().await, "nobody has said anything");
    let mut caller = Caller::join(&ws_url).await;
    caller.until("audio").await;
    caller
        .send(json!({"type": "user_message", "text": "Are you there?"}))
        .await;
    caller.until("agent_response").await;
    let written = async {
        while !has().await {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    let patience = std::time::Duration::from_secs(10);
    tokio::time::timeout(patience, written).await.unwrap();
    caller.send(json!({"type": "end"})).await;
    caller.until_closed().await;
    server.settle().await;
    assert!(has().await);
}

#[tokio::test]
async fn a_conversation_is_found_by_what_was_said_in_it() {
    let server = Server::start().await;
    let (one, two) = (
        server.agent(json!({})).await,
        server
            .agent(json!({"name": "Other", "first_message": "Bonjour à tous."}))
            .await,
    );
    let refund = a_talk(&server, &one, &["About my REFUND", "it is 100%_sure"]).await;
    server
        .test
        .app
        .clock
        .advance(std::time::Duration::from_secs(10));
    let middle = server.test.app.clock.now().to_string().replace('+', "%2B");
    let order = a_talk(&server, &two, &["My order and my refund, s'il vous plaît"]).await;

    let both = [order.clone(), refund.clone()];
    assert_eq!(found(&server, "q=refund").await, both);
    assert_eq!(found(&server, "q=ReFund").await, both);
    assert_eq!(
        found(&server, "q=hello").await,
        std::slice::from_ref(&refund)
    );
    for (query, expected) in [
        ("q=refund%20order", &order),
        ("q=refund&limit=1", &order),
        ("q=refund&limit=1&offset=1", &refund),
        ("q=%C3%80", &order),
        ("q=PLA%C3%8ET", &order),
        ("q=100%25_s", &refund),
        (&format!("q=refund&agent_id={one}"), &refund),
        (&format!("q=refund&to={middle}"), &refund),
        (&format!("q=refund&from={middle}"), &order),
    ] {
        assert_eq!(
            found(&server, query).await,
            std::slice::from_ref(expected),
            "{query}"
        );
    }
    // Neither the names of a turn's members nor a pattern's signs are what was said.
    for nothing in [
        "q=turn_id",
        "q=assistant",
        "q=refund%25order",
        "q=r_fund",
        "q=%5C",
    ] {
        assert!(found(&server, nothing).await.is_empty(), "{nothing}");
    }
    let (_, list) = server
        .test
        .call("GET", "/conversations/search?q=refund&limit=1", None)
        .await;
    assert_eq!(
        (&list["total"], &list["has_more"]),
        (&json!(2), &json!(true))
    );
    let matches = list["items"][0]["matches"].as_array().unwrap();
    assert_eq!(
        (&matches[0]["role"], &matches[0]["text"]),
        (
            &json!("user"),
            &json!("My order and my refund, s'il vous plaît")
        )
    );
    let (_, stranger) = server.test.other_account().await;
    let (_, theirs) = server
        .test
        .call_as(&stranger, "GET", "/conversations/search?q=refund", None)
        .await;
    assert_eq!(theirs["total"], 0);
    for (query, field) in [
        ("", "q"),
        ("q=", "q"),
        ("q=%20", "q"),
        ("q=a+b+c+d+e+f+g+h+i", "q"),
        ("q=a&agent_id=x", "agent_id"),
        ("q=a&from=now", "from"),
        ("q=a&limit=101", "limit"),
    ] {
        let (status, answer) = server
            .test
            .call("GET", &format!("/conversations/search?{query}"), None)
            .await;
        assert_eq!(
            (status.as_u16(), &answer["fields"][0]["loc"]),
            (422, &json!(["query", field])),
            "{query}: {answer}"
        );
    }
}

#[tokio::test]
async fn diagnostics_tell_where_the_time_went_and_what_went_wrong() {
    let server = Server::start().await;
    let agent = server.agent(json!({})).await;
    let id = a_call(&server, &agent).await;
    let (status, told) = server
        .test
        .call("GET", &format!("/conversations/{id}/diagnostics"), None)
        .await;
    assert_eq!(status.as_u16(), 200, "{told}");
    assert_eq!(
        (&told["conversation_id"], &told["status"], &told["errors"]),
        (&json!(id), &json!("completed"), &json!([]))
    );
    assert_eq!(
        told["network"],
        json!({"channel": "websocket", "rtt_ms": null, "loss_pct": null, "jitter_ms": null, "mos": null})
    );
    let (_, talk) = server
        .test
        .call("GET", &format!("/conversations/{id}/transcript"), None)
        .await;
    let measured: Vec<&Value> = talk["turns"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|turn| !turn["latency"].is_null())
        .collect();
    let steps = told["waterfall"].as_array().unwrap();
    assert_eq!(steps.len(), measured.len());
    for (step, turn) in steps.iter().zip(measured) {
        assert_eq!(step["turn_id"], turn["turn_id"]);
        assert_eq!(step["contributions"], turn["latency"]["contributions"]);
        let sum: u64 = step["contributions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|part| part["duration_ms"].as_u64().unwrap())
            .sum();
        assert_eq!(step["response_ms"], sum);
    }

    // A call that nobody could serve says why.
    let (lost, ws_url) = server.connect(&agent, json!({})).await;
    server
        .test
        .call("DELETE", &format!("/agents/{agent}?force=true"), None)
        .await;
    Caller::join(&ws_url).await.until_closed().await;
    server.settle().await;
    let (_, told) = server
        .test
        .call("GET", &format!("/conversations/{lost}/diagnostics"), None)
        .await;
    assert_eq!(
        (&told["end_reason"], &told["errors"][0]["source"]),
        (&json!("engine_error"), &json!("call")),
        "{told}"
    );
    assert!(
        told["errors"][0]["message"]
            .as_str()
            .unwrap()
            .contains("agent was deleted")
    );
}

#[tokio::test]
async fn the_change_log_is_open_dated_and_marks_what_needs_action() {
    let server = Server::start().await;
    let request = http::Request::get("/api/v1/changelog")
        .body(axum::body::Body::empty())
        .unwrap();
    let response = server.test.send(request).await;
    assert_eq!(response.status(), 200);
    let (_, log) = server.test.call("GET", "/changelog", None).await;
    let days = log["items"].as_array().unwrap();
    assert_eq!(days.last().unwrap()["date"], "2026-11-21");
    for day in days {
        for change in day["changes"].as_array().unwrap() {
            assert!(change["text"].is_string() && change["requires_action"].is_boolean());
        }
    }
}
