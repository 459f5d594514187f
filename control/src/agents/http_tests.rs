//! The agents' routes as a service.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use http::StatusCode;
use serde_json::{Value, json};

use super::{fields::SETTINGS, table_tests::wrong};
use crate::{
    agents::demo, calls, http::scope::Scope, ids::CallId, testing::TestApp, time::Timestamp, voices,
};

fn voice() -> Value {
    json!(voices::find("scripted-tone").unwrap().id)
}

fn body() -> Value {
    json!({"name": "Reception", "system_prompt": "Answer {{who}}.", "voice_id": voice()})
}

async fn created(test: &TestApp) -> Value {
    let (status, agent) = test.call("POST", "/agents", Some(body())).await;
    assert_eq!(status, StatusCode::CREATED, "{agent}");
    agent
}

fn path(agent: &Value) -> String {
    format!("/agents/{}", agent["id"].as_str().unwrap())
}

#[track_caller]
fn named(answer: &Value) -> Vec<&str> {
    assert_eq!(answer["code"], "validation_error", "{answer}");
    assert_eq!(answer["detail"], answer["fields"]);
    answer["fields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|field| field["loc"][1].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn a_created_agent_is_shown_whole() {
    let test = TestApp::new().await;
    let agent = created(&test).await;
    assert_eq!(agent["status"], "active");
    assert_eq!(agent["language"], "english");
    assert_eq!(agent["unfilled_variables"], json!(["who"]));
    assert_eq!(agent["tools"], json!([]));
    assert_eq!(agent["created_at"], agent["updated_at"]);
    assert_eq!(
        agent["created_at"].as_str().unwrap().len(),
        "2026-01-02T03:04:05.000006+00:00".len()
    );
    assert_eq!(agent.as_object().unwrap().len(), 59 + 10);
    assert_eq!(
        test.call("GET", &path(&agent), None).await,
        (StatusCode::OK, agent)
    );
}

#[tokio::test]
async fn a_voice_key_becomes_its_id() {
    let test = TestApp::new().await;
    let mut with_key = body();
    with_key["voice_id"] = json!("scripted-tone");
    let (_, agent) = test.call("POST", "/agents", Some(with_key)).await;
    assert_eq!(agent["voice_id"], voice());
}

#[tokio::test]
async fn all_wrong_fields_are_named_at_once() {
    let test = TestApp::new().await;
    let wrong = json!({"name": 5, "voice_id": "x", "temperature": 3, "colour": "red"});
    let (status, answer) = test.call("POST", "/agents", Some(wrong)).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(
        named(&answer),
        ["name", "system_prompt", "temperature", "colour"]
    );
    let mut unknown = body();
    unknown["voice_id"] = json!("nobody");
    unknown["llm_model"] = json!("nothing");
    let (status, answer) = test.call("POST", "/agents", Some(unknown)).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    let mut names = named(&answer);
    names.sort_unstable();
    assert_eq!(names, ["llm_model", "voice_id"]);
    assert_eq!(test.call("GET", "/agents", None).await.1["total"], 0);
}

/// The wrong values that the field table gives, as a client sends them.
#[tokio::test]
async fn every_field_wrong_in_turn_is_named_in_the_answer() {
    let test = TestApp::with(|config| config.limits.writes_per_minute = 100_000).await;
    let agent = created(&test).await;
    let mut cases = 0;
    for setting in SETTINGS {
        let name = setting.field.name;
        for value in wrong(&setting.field.kind) {
            let mut whole = body();
            whole[name] = value.clone();
            let part = json!({ name: value.clone() });
            for (method, path, body) in [
                ("POST", "/agents".to_owned(), whole),
                ("PATCH", path(&agent), part),
            ] {
                let (status, answer) = test.call(method, &path, Some(body)).await;
                assert_eq!(
                    status,
                    StatusCode::UNPROCESSABLE_ENTITY,
                    "{method} {name}: {value}: {answer}"
                );
                let named = named(&answer);
                assert!(
                    !named.is_empty() && named.iter().all(|field| *field == name),
                    "{method} {name}: {value}: {answer}"
                );
                cases += 1;
            }
        }
    }
    assert!(cases > 700, "{cases}");
    let (_, page) = test.call("GET", "/agents", None).await;
    assert_eq!(page["total"], 1);
    assert_eq!(test.call("GET", &path(&agent), None).await.1, agent);
}

#[tokio::test]
async fn a_number_of_nobody_is_a_404() {
    let test = TestApp::new().await;
    let mut with_number = body();
    with_number["sms_sender_number_id"] = json!("0193a1f2-0000-7000-8000-000000000001");
    assert_eq!(
        test.call("POST", "/agents", Some(with_number)).await.0,
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn a_patch_changes_only_what_it_holds() {
    let test = TestApp::new().await;
    let agent = created(&test).await;
    test.app.clock.advance(std::time::Duration::from_secs(1));
    let (status, same) = test.call("PATCH", &path(&agent), Some(json!({}))).await;
    assert_eq!((status, &same), (StatusCode::OK, &agent));

    let change = json!({"max_turns": 7, "first_message": "Hello."});
    let (status, changed) = test.call("PATCH", &path(&agent), Some(change)).await;
    assert_eq!(
        (status, &changed["max_turns"], &changed["name"]),
        (StatusCode::OK, &json!(7), &agent["name"])
    );
    assert!(
        Timestamp::parse(changed["updated_at"].as_str().unwrap())
            > Timestamp::parse(agent["updated_at"].as_str().unwrap())
    );

    let (_, cleared) = test
        .call(
            "PATCH",
            &path(&agent),
            Some(json!({"max_turns": null, "first_message": ""})),
        )
        .await;
    assert_eq!(
        (&cleared["max_turns"], &cleared["first_message"]),
        (&Value::Null, &Value::Null)
    );

    let (status, answer) = test
        .call(
            "PATCH",
            &path(&agent),
            Some(json!({"system_prompt": null, "name": null})),
        )
        .await;
    assert_eq!(
        (status, named(&answer)),
        (
            StatusCode::UNPROCESSABLE_ENTITY,
            vec!["name", "system_prompt"]
        )
    );
}

#[tokio::test]
async fn two_changes_at_once_are_both_kept() {
    let test = TestApp::new().await;
    let agent = created(&test).await;
    let path = path(&agent);
    let changes = (1..=20).map(|turns| {
        let field = if turns % 2 == 0 {
            "max_turns"
        } else {
            "history_max_turns"
        };
        test.call("PATCH", &path, Some(json!({ field: turns })))
    });
    for (status, _) in futures_util::future::join_all(changes).await {
        assert_eq!(status, StatusCode::OK);
    }
    let (_, after) = test.call("GET", &path, None).await;
    assert!(
        after["max_turns"].is_i64() && after["history_max_turns"].is_i64(),
        "{after}"
    );
}

#[tokio::test]
async fn the_list_is_newest_first_and_names_the_voice() {
    let test = TestApp::new().await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.insert(0, created(&test).await["id"].clone());
        test.app.clock.advance(std::time::Duration::from_secs(1));
    }
    let (status, page) = test.call("GET", "/agents?limit=2", None).await;
    assert_eq!(status, StatusCode::OK);
    let listed: Vec<Value> = page["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["id"].clone())
        .collect();
    assert_eq!(listed, ids[..2]);
    assert_eq!(
        (
            &page["total"],
            &page["limit"],
            &page["offset"],
            &page["has_more"]
        ),
        (&json!(3), &json!(2), &json!(0), &json!(true))
    );
    assert_eq!(
        page["items"][0]["voice"],
        json!({"id": voice(), "name": "Tone"})
    );
    assert_eq!(
        test.call("GET", "/agents?limit=2&offset=2", None).await.1["has_more"],
        false
    );
    for query in ["limit=0", "limit=101", "limit=x", "offset=-1"] {
        assert_eq!(
            test.call("GET", &format!("/agents?{query}"), None).await.0,
            StatusCode::UNPROCESSABLE_ENTITY,
            "{query}"
        );
    }
}

#[tokio::test]
async fn a_deleted_agent_is_gone() {
    let test = TestApp::new().await;
    let agent = created(&test).await;
    assert_eq!(
        test.call("DELETE", &path(&agent), None).await,
        (StatusCode::NO_CONTENT, Value::Null)
    );
    for method in ["GET", "PATCH", "DELETE"] {
        let body = (method == "PATCH").then(|| json!({}));
        assert_eq!(
            test.call(method, &path(&agent), body).await.0,
            StatusCode::NOT_FOUND,
            "{method}"
        );
    }
}

#[tokio::test]
async fn an_agent_on_a_live_call_is_deleted_only_by_force() {
    let test = TestApp::new().await;
    let agent = created(&test).await;
    let call = calls::store::NewCall {
        id: CallId::new(&test.app.clock),
        agent_id: agent["id"].as_str().unwrap().parse().unwrap(),
        agent_name: "Reception",
        direction: "inbound",
        channel: "websocket",
        language: "english",
        from_number: None,
        to_number: None,
        phone_number_id: None,
        trunk_id: None,
        matched_by: None,
        from_withheld: false,
        dynamic_variables: &json!({}),
    };
    let mut tx = test.app.db.begin_write().await.unwrap();
    calls::store::insert(&mut tx, test.account, &call, test.app.clock.now())
        .await
        .unwrap();
    tx.commit().await.unwrap();

    let (status, answer) = test.call("DELETE", &path(&agent), None).await;
    assert_eq!(
        (status, &answer["code"]),
        (StatusCode::CONFLICT, &json!("agent_in_use"))
    );
    assert_eq!(
        test.call("GET", &path(&agent), None).await.0,
        StatusCode::OK
    );
    let (status, _) = test
        .call("DELETE", &format!("{}?force=maybe", path(&agent)), None)
        .await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    let (status, _) = test
        .call("DELETE", &format!("{}?force=true", path(&agent)), None)
        .await;
    assert_eq!(status, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn a_copy_has_everything_but_what_is_the_agent_s_own() {
    let test = TestApp::new().await;
    let mut open = body();
    open["public_access"] = json!(true);
    open["allowed_origins"] = json!(["shop.example.org"]);
    open["max_turns"] = json!(9);
    let (_, agent) = test.call("POST", "/agents", Some(open)).await;
    test.app.clock.advance(std::time::Duration::from_secs(1));
    let (status, copy) = test
        .call("POST", &format!("{}/duplicate", path(&agent)), None)
        .await;
    assert_eq!(status, StatusCode::CREATED, "{copy}");
    assert_ne!(copy["id"], agent["id"]);
    let mut expected = agent.clone();
    for (field, value) in [
        ("id", copy["id"].clone()),
        ("name", json!("Reception (copy)")),
        ("public_access", json!(false)),
        ("created_at", copy["created_at"].clone()),
        ("updated_at", copy["created_at"].clone()),
    ] {
        expected[field] = value;
    }
    assert_eq!(copy, expected);
    assert_eq!(test.call("GET", &path(&agent), None).await.1, agent);

    let named = json!({"name": "Night desk"});
    let (_, copy) = test
        .call("POST", &format!("{}/duplicate", path(&copy)), Some(named))
        .await;
    assert_eq!(copy["name"], "Night desk");
    assert_eq!(test.call("GET", "/agents", None).await.1["total"], 3);
}

#[tokio::test]
async fn a_copy_s_name_is_a_name() {
    let test = TestApp::new().await;
    let mut long = body();
    long["name"] = json!("n".repeat(255));
    let (_, agent) = test.call("POST", "/agents", Some(long)).await;
    let duplicate = format!("{}/duplicate", path(&agent));
    let (_, copy) = test.call("POST", &duplicate, None).await;
    let name = copy["name"].as_str().unwrap();
    assert!(name.ends_with("n (copy)") && name.chars().count() == 255);
    for wrong in ["", "  ", &"n".repeat(256)] {
        let (status, answer) = test
            .call("POST", &duplicate, Some(json!({"name": wrong})))
            .await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
        assert_eq!(named(&answer), ["name"]);
    }
}

#[tokio::test]
async fn another_account_s_agent_does_not_exist_and_scopes_are_asked_for() {
    let test = TestApp::new().await;
    let agent = created(&test).await;
    let (_, other) = test.other_account().await;
    let reader = test.key_for(&[Scope::AgentsRead]).await;
    for method in ["GET", "PATCH", "DELETE"] {
        let body = (method == "PATCH").then(|| json!({"name": "Mine"}));
        assert_eq!(
            test.call_as(&other, method, &path(&agent), body.clone())
                .await
                .0,
            StatusCode::NOT_FOUND,
            "{method}"
        );
        let expect = if method == "GET" {
            StatusCode::OK
        } else {
            StatusCode::FORBIDDEN
        };
        assert_eq!(
            test.call_as(&reader, method, &path(&agent), body).await.0,
            expect,
            "{method}"
        );
    }
    assert_eq!(
        test.call_as(&other, "GET", "/agents", None).await.1["total"],
        0
    );
    assert_eq!(
        test.call("GET", "/agents/nonsense", None).await.0,
        StatusCode::UNPROCESSABLE_ENTITY
    );
}

#[tokio::test]
async fn the_demo_agent_is_made_once() {
    let test = TestApp::new().await;
    let id = demo::ensure(&test.app, test.account).await.unwrap();
    assert_eq!(demo::ensure(&test.app, test.account).await.unwrap(), id);
    let (status, agent) = test.call("GET", &format!("/agents/{id}"), None).await;
    assert_eq!(
        (status, &agent["unfilled_variables"]),
        (StatusCode::OK, &json!([]))
    );
    assert_eq!(
        test.call("DELETE", &path(&agent), None).await.0,
        StatusCode::NO_CONTENT
    );
    demo::ensure(&test.app, test.account).await.unwrap();
    assert_eq!(
        test.call("GET", &path(&agent), None).await.0,
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn models_and_voices_are_listed() {
    let test = TestApp::new().await;
    let (status, models) = test.call("GET", "/models", None).await;
    assert_eq!(status, StatusCode::OK);
    let ids: Vec<&str> = models["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| model["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["default", "faq", "echo"]);
    assert_eq!(
        test.call("GET", "/models?include_unavailable=perhaps", None)
            .await
            .0,
        StatusCode::UNPROCESSABLE_ENTITY
    );

    let (status, all) = test.call("GET", "/voices", None).await;
    assert_eq!(
        (status, &all["limit"], &all["has_more"]),
        (StatusCode::OK, &json!(100), &json!(false))
    );
    let count = |query: &'static str| {
        let test = &test;
        async move { test.call("GET", &format!("/voices?{query}"), None).await.1["total"].as_u64() }
    };
    assert_eq!(count("language=klingon").await, Some(0));
    assert_eq!(count("country=zz").await, Some(0));
    assert_eq!(count("tag=&country=").await, all["total"].as_u64());
    assert_eq!(
        count("tag=clear").await,
        count("tag=clear&supports_dialect_style=false")
            .await
            .zip(count("tag=clear&supports_dialect_style=true").await)
            .map(|(without, with)| without + with)
    );
    let (status, none) = test.call("GET", "/voices?limit=0", None).await;
    assert_eq!(
        (status, &none["items"], &none["total"]),
        (StatusCode::OK, &json!([]), &all["total"])
    );
    for query in [
        "limit=501",
        "limit=-1",
        "offset=-1",
        "supports_dialect_style=perhaps",
    ] {
        assert_eq!(
            test.call("GET", &format!("/voices?{query}"), None).await.0,
            StatusCode::UNPROCESSABLE_ENTITY,
            "{query}"
        );
    }

    let (_, by_key) = test.call("GET", "/voices/scripted-tone", None).await;
    let by_id = test
        .call(
            "GET",
            &format!("/voices/{}", voice().as_str().unwrap()),
            None,
        )
        .await;
    assert_eq!(by_id, (StatusCode::OK, by_key));
    assert_eq!(
        test.call("GET", "/voices/nobody", None).await.0,
        StatusCode::NOT_FOUND
    );
    assert_eq!(
        test.call("GET", "/voices/countries", None).await.1["items"]
            .as_array()
            .unwrap()
            .len(),
        149
    );
    let (_, vocabulary) = test.call("GET", "/voices/tag-vocabulary", None).await;
    for category in [
        "tone",
        "voice_texture",
        "delivery_style",
        "business_persona",
    ] {
        assert!(
            vocabulary[category]
                .as_array()
                .is_some_and(|tokens| !tokens.is_empty()),
            "{category}"
        );
    }
}
