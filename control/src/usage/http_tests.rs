//! Usage and its triggers, as a client sees them.

#![allow(clippy::unwrap_used, reason = "a test may stop at a surprise")]

use serde_json::{Value, json};

use super::*;
use crate::config::Prices;
use crate::ids::{AgentId, CallId};
use crate::testing::{START, TestApp};
use crate::usage::{CallUse, Resource, Used, record, record_call, record_request};

/// What the account of the test uses of one resource, by one source.
async fn used(test: &TestApp, resource: Resource, amount: i64, source: &str) -> i64 {
    let mut tx = test.app.db.begin_write().await.unwrap();
    let used = Used {
        resource,
        amount,
        source,
        agent: None,
        call: None,
        priced: true,
    };
    let now = test.app.clock.now();
    let cost = record(&test.app, &mut tx, test.account, &used, now)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    cost
}

/// As at the end of a call.
async fn called(test: &TestApp, call: CallId, agent: AgentId, used: CallUse) -> i64 {
    let mut tx = test.app.db.begin_write().await.unwrap();
    let now = test.app.clock.now();
    let cost = record_call(&test.app, &mut tx, test.account, (call, agent), used, now)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    cost
}

const CALL: CallUse = CallUse {
    duration_ms: 90_000,
    characters: 120,
    heard_ms: 30_500,
    tokens: 77,
};

#[tokio::test]
async fn a_call_is_metered_once_and_its_minutes_cover_it() {
    let test = TestApp::with(|config| {
        config.billing.prices = Prices {
            call_minute_millicents: 2_000,
            tts_thousand_characters_millicents: 1_000_000,
            ..Prices::default()
        };
    })
    .await;
    let (call, agent) = (CallId::new(&test.app.clock), AgentId::new(&test.app.clock));
    assert_eq!(called(&test, call, agent, CALL).await, 3_000_000);
    assert_eq!(called(&test, call, agent, CALL).await, 0, "counted twice");
    let end = "2099-01-01T00:00:00Z";
    let (status, report) = test
        .call(
            "GET",
            &format!("/usage?to={end}&from=2098-12-01T00:00:00Z"),
            None,
        )
        .await;
    assert_eq!((status, &report["items"]), (StatusCode::OK, &json!([])));
    test.app.clock.advance(Duration::from_secs(1));
    let (_, report) = test.call("GET", "/usage", None).await;
    assert_eq!(
        report["items"],
        json!([
            {"resource_type": "call_minutes", "quantity": 1.5, "unit": "minutes", "cost_cents": 3},
            {"resource_type": "llm_tokens", "quantity": 77, "unit": "tokens", "cost_cents": 0},
            {"resource_type": "transcription_seconds", "quantity": 30.5, "unit": "seconds", "cost_cents": 0},
            {"resource_type": "tts_characters", "quantity": 120, "unit": "characters", "cost_cents": 0},
        ])
    );
    assert_eq!(report["totals"]["cost_cents"], 3);
    assert_eq!(report["totals"]["call_minutes"], 1.5);
    assert_eq!(report["totals"]["sms_segments"], 0);
    assert_eq!(
        report["period_started_at"],
        "2026-01-01T00:00:00.000000+00:00"
    );
    let (_, other) = test.other_account().await;
    let (_, theirs) = test.call_as(&other, "GET", "/usage", None).await;
    assert_eq!(theirs["items"], json!([]));
}

#[tokio::test]
async fn usage_is_split_by_day_and_by_agent() {
    let test = TestApp::new().await;
    let agent = AgentId::new(&test.app.clock);
    called(&test, CallId::new(&test.app.clock), agent, CALL).await;
    used(&test, Resource::TtsCharacters, 30, "tts:1").await;
    test.app.clock.advance(Duration::from_secs(86_400));
    used(&test, Resource::TtsCharacters, 5, "tts:2").await;
    test.app.clock.advance(Duration::from_secs(1));
    let characters = |report: &Value, key: &str| -> Vec<Value> {
        let items = report["items"].as_array().unwrap().iter();
        let of_it = items.filter(|item| item["resource_type"] == "tts_characters");
        of_it
            .map(|item| json!([item[key], item["quantity"]]))
            .collect()
    };
    let (_, by_day) = test.call("GET", "/usage?group_by=day", None).await;
    assert_eq!(
        characters(&by_day, "date"),
        [json!(["2026-01-02", 150]), json!(["2026-01-03", 5])]
    );
    let (_, by_agent) = test.call("GET", "/usage?group_by=agent", None).await;
    // What no agent used comes last.
    let agent = agent.to_string();
    assert_eq!(
        characters(&by_agent, "agent_id"),
        [json!([agent, 120]), json!([null, 35])]
    );
    let (_, one_day) = test
        .call(
            "GET",
            "/usage?from=2026-01-03T00:00:00Z&to=2026-01-04T00:00:00Z",
            None,
        )
        .await;
    assert_eq!(one_day["totals"]["tts_characters"], 5);
}

#[tokio::test]
async fn a_request_is_metered_by_itself() {
    let test = TestApp::new().await;
    let id = uuid::Uuid::new_v4();
    for _ in 0..2 {
        record_request(&test.app, test.account, Resource::TtsCharacters, 650, id)
            .await
            .unwrap();
    }
    test.app.clock.advance(Duration::from_secs(1));
    let (_, report) = test.call("GET", "/usage", None).await;
    assert_eq!(report["totals"]["tts_characters"], 650);
}

#[tokio::test]
async fn a_wrong_period_is_named() {
    let test = TestApp::new().await;
    for (query, field) in [
        ("from=yesterday", "from"),
        ("group_by=colour", "group_by"),
        ("from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z", "to"),
        ("from=2024-01-02T00:00:00Z&to=2026-01-01T00:00:00Z", "to"),
    ] {
        let (status, answer) = test.call("GET", &format!("/usage?{query}"), None).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{query}");
        assert_eq!(
            answer["detail"][0]["loc"],
            json!(["query", field]),
            "{query}"
        );
    }
}

fn trigger() -> Value {
    json!({
        "name": "minutes", "resource_type": "call_minutes", "threshold_type": "absolute",
        "threshold_value": 2, "period": "day", "event_callback_url": "https://hooks.acme.com/usage"
    })
}

#[tokio::test]
async fn a_trigger_lives_and_is_its_accounts_alone() {
    let test = TestApp::new().await;
    let (status, made) = test.call("POST", "/usage/triggers", Some(trigger())).await;
    assert_eq!(status, StatusCode::CREATED, "{made}");
    let path = format!("/usage/triggers/{}", made["id"].as_str().unwrap());
    assert_eq!(test.call("GET", &path, None).await.1, made);
    let (status, same) = test.call("PATCH", &path, Some(json!({}))).await;
    assert_eq!((status, &same), (StatusCode::OK, &made));
    let change = json!({"name": null, "threshold_value": 5, "period": "month"});
    let (_, changed) = test.call("PATCH", &path, Some(change)).await;
    assert_eq!(
        (
            &changed["name"],
            &changed["threshold_value"],
            &changed["period"]
        ),
        (&json!(null), &json!(5), &json!("month"))
    );
    let (_, other) = test.other_account().await;
    for (method, path) in [
        ("GET", path.clone()),
        ("PATCH", path.clone()),
        ("DELETE", path.clone()),
        ("GET", format!("{path}/firings")),
        (
            "POST",
            format!("{path}/firings/{}/redeliver", uuid::Uuid::new_v4()),
        ),
    ] {
        let body = (method == "PATCH").then(|| json!({"threshold_value": 1}));
        let (status, _) = test.call_as(&other, method, &path, body).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{method} {path}");
    }
    let (status, _) = test.call("DELETE", &path, None).await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    assert_eq!(
        test.call("GET", "/usage/triggers", None).await.1["total"],
        0
    );
}

#[tokio::test]
async fn a_trigger_that_could_never_fire_is_refused() {
    let test = TestApp::new().await;
    let mut percent = trigger();
    percent["threshold_type"] = json!("percent_of_limit");
    let (status, answer) = test
        .call("POST", "/usage/triggers", Some(percent.clone()))
        .await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(
        answer["detail"][0]["loc"],
        json!(["body", "threshold_type"])
    );
    for (field, value) in [
        ("threshold_value", json!(0)),
        ("period", json!("hour")),
        ("resource_type", json!("coffee")),
        ("event_callback_url", json!("http://acme.com")),
        ("event_callback_url", json!("https://10.0.0.1/")),
    ] {
        let mut body = trigger();
        body[field] = value;
        let (status, answer) = test.call("POST", "/usage/triggers", Some(body)).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{field}");
        assert_eq!(answer["detail"][0]["loc"], json!(["body", field]));
    }
    let test = TestApp::with(|config| config.usage.limits.call_minutes = 100).await;
    let (status, _) = test.call("POST", "/usage/triggers", Some(percent)).await;
    assert_eq!(status, StatusCode::CREATED);
}

#[tokio::test]
async fn a_trigger_may_tell_a_host_that_the_operator_allows() {
    let test = TestApp::with(|config| {
        config.egress.allow = crate::egress::Allow::parse(&["10.1.0.0/16", "hooks"]).unwrap();
    })
    .await;
    let (_, made) = test.call("POST", "/usage/triggers", Some(trigger())).await;
    let path = format!("/usage/triggers/{}", made["id"].as_str().unwrap());
    for (url, taken) in [
        ("http://hooks:9000/usage", true),
        ("https://10.1.2.3/", true),
        ("https://10.2.2.3/", false),
        ("http://acme.com/", false),
    ] {
        let mut body = trigger();
        body["event_callback_url"] = json!(url);
        let (status, answer) = test.call("POST", "/usage/triggers", Some(body)).await;
        assert_eq!(status == StatusCode::CREATED, taken, "{url}: {answer}");
        let change = json!({"event_callback_url": url});
        let (status, answer) = test.call("PATCH", &path, Some(change)).await;
        assert_eq!(status == StatusCode::OK, taken, "{url}: {answer}");
    }
}

#[tokio::test]
async fn an_account_has_a_hundred_triggers_at_most() {
    let test = TestApp::new().await;
    for number in 0..100 {
        let (status, answer) = test.call("POST", "/usage/triggers", Some(trigger())).await;
        assert_eq!(status, StatusCode::CREATED, "{number}: {answer}");
    }
    let (status, answer) = test.call("POST", "/usage/triggers", Some(trigger())).await;
    assert_eq!(
        (status, &answer["code"]),
        (
            StatusCode::UNPROCESSABLE_ENTITY,
            &json!("too_many_triggers")
        )
    );
    assert!(answer["error"].to_string().contains("100"), "{answer}");
    let (_, other) = test.other_account().await;
    let (status, _) = test
        .call_as(&other, "POST", "/usage/triggers", Some(trigger()))
        .await;
    assert_eq!(status, StatusCode::CREATED);
    let (_, listed) = test.call("GET", "/usage/triggers?limit=1", None).await;
    let id = listed["items"][0]["id"].as_str().unwrap();
    let path = format!("/usage/triggers/{id}");
    test.call("DELETE", &path, None).await;
    let (status, _) = test.call("POST", "/usage/triggers", Some(trigger())).await;
    assert_eq!(status, StatusCode::CREATED);
}

#[tokio::test]
async fn triggers_of_every_period_fire_once_each() {
    let test = TestApp::new().await;
    let mut ids = Vec::new();
    for period in ["day", "week", "month", "all_time"] {
        for value in [1, 2] {
            let mut body = trigger();
            body["period"] = json!(period);
            body["threshold_value"] = json!(value);
            let (_, made) = test.call("POST", "/usage/triggers", Some(body)).await;
            ids.push(made["id"].as_str().unwrap().to_owned());
        }
    }
    let fired = async || {
        let mut counts = Vec::new();
        for id in &ids {
            let path = format!("/usage/triggers/{id}/firings");
            counts.push(test.call("GET", &path, None).await.1["total"].clone());
        }
        json!(counts)
    };
    used(&test, Resource::CallMinutes, 60_000, "call:a").await;
    assert_eq!(fired().await, json!([1, 0, 1, 0, 1, 0, 1, 0]));
    used(&test, Resource::CallMinutes, 60_000, "call:b").await;
    used(&test, Resource::CallMinutes, 60_000, "call:c").await;
    assert_eq!(fired().await, json!([1, 1, 1, 1, 1, 1, 1, 1]));
    // Saturday the 3rd is of the same week and month.
    test.app.clock.advance(Duration::from_secs(86_400));
    used(&test, Resource::CallMinutes, 120_000, "call:d").await;
    assert_eq!(fired().await, json!([2, 2, 1, 1, 1, 1, 1, 1]));
    // Monday the 5th.
    test.app.clock.advance(Duration::from_secs(2 * 86_400));
    used(&test, Resource::CallMinutes, 120_000, "call:e").await;
    assert_eq!(fired().await, json!([3, 3, 2, 2, 1, 1, 1, 1]));
    test.app.clock.advance(Duration::from_secs(30 * 86_400));
    used(&test, Resource::CallMinutes, 120_000, "call:f").await;
    assert_eq!(fired().await, json!([4, 4, 3, 3, 2, 2, 1, 1]));
}

#[tokio::test]
async fn a_trigger_is_changed_as_it_stands_when_the_change_is_written() {
    let test = TestApp::new().await;
    let (_, made) = test.call("POST", "/usage/triggers", Some(trigger())).await;
    let path = format!("/usage/triggers/{}", made["id"].as_str().unwrap());
    // Another request is in the midst of changing it.
    let mut tx = test.app.db.begin_write().await.unwrap();
    let other = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let change = "update usage_triggers set threshold_value = 77";
        tx.query(change).execute().await.unwrap();
        tx.commit().await.unwrap();
    };
    let patch = test.call("PATCH", &path, Some(json!({"name": "other"})));
    let ((status, answer), ()) = tokio::join!(patch, other);
    assert_eq!(
        (status, &answer["name"], &answer["threshold_value"]),
        (StatusCode::OK, &json!("other"), &json!(77))
    );
    assert_eq!(test.call("GET", &path, None).await.1, answer);
}

#[tokio::test]
async fn a_trigger_fires_once_a_period_with_its_event() {
    let test = TestApp::new().await;
    let (_, made) = test.call("POST", "/usage/triggers", Some(trigger())).await;
    let firings = format!("/usage/triggers/{}/firings", made["id"].as_str().unwrap());
    let fired = async || test.call("GET", &firings, None).await.1;
    used(&test, Resource::CallMinutes, 119_999, "call:a").await;
    assert_eq!(fired().await["total"], 0);
    used(&test, Resource::CallMinutes, 1, "call:b").await;
    used(&test, Resource::CallMinutes, 60_000, "call:c").await;
    let first = fired().await;
    assert_eq!(first["total"], 1);
    let firing = &first["items"][0];
    assert_eq!(
        (
            &firing["threshold_value"],
            &firing["observed_value"],
            &firing["period"]
        ),
        (&json!(2), &json!(2.0), &json!("day"))
    );
    assert_eq!(
        firing["period_started_at"],
        "2026-01-02T00:00:00.000000+00:00"
    );
    assert_eq!(firing["period_ends_at"], "2026-01-03T00:00:00.000000+00:00");
    assert_eq!(firing["fired_at"], START.to_string());
    assert_eq!(firing["delivery_status"], "pending");
    // The event as it goes out: these fields and no others.
    let event = test.app.db.query("select * from events where id = $1");
    let (kind, class, body): (String, String, Value) = event
        .bind(firing["event_id"].as_str().unwrap())
        .one(|row| Ok((row.text("type")?, row.text("class")?, row.json("body")?)))
        .await
        .unwrap();
    assert_eq!(
        (kind.as_str(), class.as_str()),
        ("usage.threshold.crossed", "short")
    );
    let mut keys: Vec<&String> = body.as_object().unwrap().keys().collect();
    keys.sort();
    assert_eq!(
        keys,
        [
            "event_id",
            "event_type",
            "fired_at",
            "observed_value",
            "period",
            "period_ends_at",
            "period_started_at",
            "resource_type",
            "threshold_type",
            "threshold_value",
            "trigger_id"
        ]
    );
    assert_eq!(body["event_id"], firing["event_id"]);
    // The next day it may fire again.
    test.app.clock.advance(Duration::from_secs(86_400));
    used(&test, Resource::CallMinutes, 60_000, "call:d").await;
    assert_eq!(fired().await["total"], 1);
    used(&test, Resource::CallMinutes, 60_000, "call:e").await;
    assert_eq!(fired().await["total"], 2);
    used(&test, Resource::TtsCharacters, 1_000_000, "tts:a").await;
    assert_eq!(fired().await["total"], 2);
}

#[tokio::test]
async fn a_trigger_that_watches_for_something_else_fires_again_in_its_period() {
    let test = TestApp::new().await;
    let (_, made) = test.call("POST", "/usage/triggers", Some(trigger())).await;
    let path = format!("/usage/triggers/{}", made["id"].as_str().unwrap());
    let firings = format!("{path}/firings");
    let fired = async || test.call("GET", &firings, None).await.1;
    used(&test, Resource::CallMinutes, 120_000, "call:a").await;
    assert_eq!(fired().await["total"], 1);
    // What it is called and whom it tells is not what it watches for, nor is the same value again.
    let same =
        json!({"name": "other", "event_callback_url": "https://acme.com/", "threshold_value": 2});
    test.call("PATCH", &path, Some(same)).await;
    used(&test, Resource::CallMinutes, 1, "call:b").await;
    assert_eq!(fired().await["total"], 1);
    for (number, change) in [
        json!({"threshold_value": 3}),
        json!({"period": "week"}),
        json!({"resource_type": "tts_characters"}),
        json!({"resource_type": "call_minutes", "period": "day", "threshold_value": 2}),
    ]
    .into_iter()
    .enumerate()
    {
        let (status, answer) = test.call("PATCH", &path, Some(change)).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        assert_eq!(fired().await["total"], number + 1, "a change is no usage");
        test.app.clock.advance(Duration::from_secs(1));
        for (resource, amount) in [
            (Resource::CallMinutes, 60_000),
            (Resource::TtsCharacters, 3),
        ] {
            for half in ["first", "second"] {
                used(&test, resource, amount, &format!("{number}:{half}")).await;
            }
        }
        let found = fired().await;
        assert_eq!(found["total"], number + 2, "{answer}");
        let newest = &found["items"][0];
        for field in ["resource_type", "threshold_value", "period"] {
            assert_eq!(newest[field], answer[field], "{field}");
        }
    }
}

#[tokio::test]
async fn a_firing_is_sent_again_with_the_same_event() {
    let test = TestApp::new().await;
    let (_, made) = test.call("POST", "/usage/triggers", Some(trigger())).await;
    let path = format!("/usage/triggers/{}", made["id"].as_str().unwrap());
    used(&test, Resource::CallMinutes, 200_000, "call:a").await;
    let (_, fired) = test.call("GET", &format!("{path}/firings"), None).await;
    let firing = &fired["items"][0];
    let settle = "update events set status = 'exhausted', attempts = 3, next_attempt_at = null where id = $1";
    let event = firing["event_id"].as_str().unwrap();
    test.app
        .db
        .query(settle)
        .bind(event)
        .execute()
        .await
        .unwrap();
    let again = format!(
        "{path}/firings/{}/redeliver",
        firing["id"].as_str().unwrap()
    );
    assert_eq!(firing["updated_at"], firing["created_at"]);
    test.app.clock.advance(Duration::from_secs(60));
    let (status, answer) = test.call("POST", &again, None).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    assert_eq!(answer["updated_at"], json!(test.app.clock.now()));
    assert_eq!(answer["created_at"], firing["created_at"]);
    assert_eq!(
        (
            &answer["event_id"],
            &answer["delivery_status"],
            &answer["delivery_attempts"]
        ),
        (&firing["event_id"], &json!("pending"), &json!(0))
    );
}

#[tokio::test]
async fn racing_calls_cross_a_threshold_once() {
    let test = TestApp::new().await;
    let (_, made) = test.call("POST", "/usage/triggers", Some(trigger())).await;
    let sources: Vec<String> = (0..40).map(|index| format!("call:{index}")).collect();
    let all = sources
        .iter()
        .map(|source| used(&test, Resource::CallMinutes, 60_000, source));
    futures_util::future::join_all(all).await;
    let path = format!("/usage/triggers/{}/firings", made["id"].as_str().unwrap());
    let (_, fired) = test.call("GET", &path, None).await;
    assert_eq!(fired["total"], 1);
    assert_eq!(fired["items"][0]["observed_value"], 2.0);
}
