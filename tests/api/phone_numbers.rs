//! Phone numbers over the API: whose they are, who answers, what they cannot do.

use control::testing::TestApp;
use serde_json::{Value, json};

use crate::sip_trunks::{agent_body, outbound};

const NOBODY: &str = "0193a5c2-7d10-7c3e-9a41-5b6e2f0c1d22";

async fn trunk(test: &TestApp) -> Value {
    let (status, made) = test.call("POST", "/sip-trunks", Some(outbound())).await;
    assert_eq!(status, 201, "{made}");
    made
}

async fn agent(test: &TestApp) -> Value {
    let (status, made) = test.call("POST", "/agents", Some(agent_body())).await;
    assert_eq!(status, 201, "{made}");
    made
}

async fn register(test: &TestApp, body: Value) -> Value {
    let (status, made) = test
        .call("POST", "/phone-numbers/sip/register", Some(body))
        .await;
    assert_eq!(status, 201, "{made}");
    made
}

fn path(number: &Value) -> String {
    format!("/phone-numbers/{}", number["id"].as_str().unwrap())
}

#[track_caller]
fn refused(answer: (http::StatusCode, Value), status: u16, code: &str, field: Option<&str>) {
    let (got, body) = answer;
    assert_eq!(
        (got.as_u16(), &body["code"]),
        (status, &json!(code)),
        "{body}"
    );
    if let Some(field) = field {
        let last = body["fields"][0]["loc"].as_array().unwrap().last().unwrap();
        assert_eq!(last, field, "{body}");
    }
}

#[tokio::test]
async fn a_number_is_registered_on_a_trunk_and_reads_as_it_was_given() {
    let test = kit::app::new().await;
    let (trunk, agent) = (trunk(&test).await, agent(&test).await);
    let made = register(
        &test,
        json!({"phone_number": "15550100", "trunk_id": trunk["id"], "agent_id": agent["id"],
            "friendly_name": "Front desk", "outbound_enabled": true,
            "inbound": {"fallback_action": "forward", "fallback_number": "+15550199"}}),
    )
    .await;
    for (field, value) in [
        ("phone_number", json!("15550100")),
        ("provider", json!("sip")),
        ("status", json!("active")),
        ("friendly_name", json!("Front desk")),
        ("agent_id", agent["id"].clone()),
        ("trunk_id", trunk["id"].clone()),
        ("outbound_enabled", json!(true)),
        ("capabilities", json!({"voice": true, "sms": false})),
        ("sms_sender", json!(false)),
        ("sms_sender_default", json!(false)),
        ("sms_inbound", json!(false)),
        ("replies_acknowledged_at", json!(null)),
        ("messaging_account_id", json!(null)),
        ("telco_account_id", json!(null)),
    ] {
        assert_eq!(made[field], value, "{field}");
    }
    assert_eq!(made["routing_rules"]["fallback_number"], "+15550199");
    assert_eq!(test.call("GET", &path(&made), None).await.1, made);
    let plain = json!({"phone_number": "+15550101", "trunk_id": trunk["id"]});
    let plain = register(&test, plain).await;
    assert_eq!(
        (
            &plain["friendly_name"],
            &plain["outbound_enabled"],
            &plain["routing_rules"]
        ),
        (&json!(""), &json!(false), &json!(null))
    );
    let (_, list) = test.call("GET", "/phone-numbers?limit=1000", None).await;
    assert_eq!((&list["total"], &list["limit"]), (&json!(2), &json!(1000)));
}

#[tokio::test]
async fn what_a_registration_names_must_be_there_and_active() {
    let test = kit::app::new().await;
    let trunk = trunk(&test).await;
    let route = "/phone-numbers/sip/register";
    let body = json!({"phone_number": "+15550100", "trunk_id": NOBODY});
    refused(
        test.call("POST", route, Some(body)).await,
        404,
        "not_found",
        None,
    );
    let body = json!({"phone_number": "+15550100", "trunk_id": trunk["id"], "agent_id": NOBODY});
    refused(
        test.call("POST", route, Some(body)).await,
        404,
        "not_found",
        None,
    );
    for (body, field) in [
        (json!({"trunk_id": trunk["id"]}), "phone_number"),
        (json!({"phone_number": "+15550100"}), "trunk_id"),
        (
            json!({"phone_number": "12", "trunk_id": trunk["id"]}),
            "phone_number",
        ),
        (
            json!({"phone_number": "+15550100", "trunk_id": trunk["id"], "friendly_name": "<i>x</i>"}),
            "friendly_name",
        ),
        (
            json!({"phone_number": "+15550100", "trunk_id": trunk["id"],
                "inbound": {"fallback_action": "forward"}}),
            "fallback_number",
        ),
        (
            json!({"phone_number": "+15550100", "trunk_id": trunk["id"], "provider": "telco"}),
            "provider",
        ),
    ] {
        let answer = test.call("POST", route, Some(body)).await;
        refused(answer, 422, "validation_error", Some(field));
    }
    let disable = format!("/sip-trunks/{}", trunk["id"].as_str().unwrap());
    test.call("PATCH", &disable, Some(json!({"status": "disabled"})))
        .await;
    let body = json!({"phone_number": "+15550100", "trunk_id": trunk["id"]});
    refused(
        test.call("POST", route, Some(body)).await,
        422,
        "trunk_inactive",
        None,
    );
    assert_eq!(test.call("GET", "/phone-numbers", None).await.1["total"], 0);
}

#[tokio::test]
async fn a_number_is_one_accounts_however_it_is_written() {
    let test = kit::app::new().await;
    let trunk = trunk(&test).await;
    let body = |number: &str| Some(json!({"phone_number": number, "trunk_id": trunk["id"]}));
    let route = "/phone-numbers/sip/register";
    let (_, made) = test.call("POST", route, body("+15550100")).await;
    let (status, again) = test.call("POST", route, body("15550100")).await;
    assert_eq!(status, 409);
    // On this account the message says which to release.
    let message = again["error"].as_str().unwrap();
    assert!(message.contains(made["id"].as_str().unwrap()), "{message}");
    let (_, other) = test.other_account().await;
    let mut bare = outbound();
    bare["numbers"] = json!([]);
    let (_, theirs) = test
        .call_as(&other, "POST", "/sip-trunks", Some(bare))
        .await;
    let theirs = Some(json!({"phone_number": "+15550100", "trunk_id": theirs["id"]}));
    let (status, refused) = test.call_as(&other, "POST", route, theirs.clone()).await;
    assert_eq!(
        (status.as_u16(), &refused["code"]),
        (409, &json!("number_already_registered"))
    );
    assert!(
        !refused["error"]
            .as_str()
            .unwrap()
            .contains(made["id"].as_str().unwrap())
    );
    // Released, it is anybody's.
    assert_eq!(test.call("DELETE", &path(&made), None).await.0, 204);
    assert_eq!(test.call_as(&other, "POST", route, theirs).await.0, 201);
}

#[tokio::test]
async fn a_released_number_is_hidden() {
    let test = kit::app::new().await;
    let trunk = trunk(&test).await;
    let made = register(
        &test,
        json!({"phone_number": "+15550100", "trunk_id": trunk["id"]}),
    )
    .await;
    let (_, other) = test.other_account().await;
    refused(
        test.call_as(&other, "DELETE", &path(&made), None).await,
        404,
        "not_found",
        None,
    );
    assert_eq!(test.call("DELETE", &path(&made), None).await.0, 204);
    for method in ["GET", "DELETE"] {
        refused(
            test.call(method, &path(&made), None).await,
            404,
            "not_found",
            None,
        );
    }
    let patch = test
        .call("PATCH", &path(&made), Some(json!({"friendly_name": "x"})))
        .await;
    refused(patch, 404, "not_found", None);
    assert_eq!(test.call("GET", "/phone-numbers", None).await.1["total"], 0);
}

#[tokio::test]
async fn a_patch_changes_what_it_names() {
    let test = kit::app::new().await;
    let (trunk, agent) = (trunk(&test).await, agent(&test).await);
    let made = register(
        &test,
        json!({"phone_number": "+15550100", "trunk_id": trunk["id"]}),
    )
    .await;
    let path = path(&made);
    let second = self::trunk(&test).await;
    let (status, changed) = test
        .call(
            "PATCH",
            &path,
            Some(
                json!({"friendly_name": "Desk", "agent_id": agent["id"], "outbound_enabled": true,
                "trunk_id": second["id"], "routing_rules": {"fallback_action": "voicemail"}}),
            ),
        )
        .await;
    assert_eq!(status, 200, "{changed}");
    assert_eq!(
        (
            &changed["friendly_name"],
            &changed["agent_id"],
            &changed["trunk_id"]
        ),
        (&json!("Desk"), &agent["id"], &second["id"])
    );
    assert_eq!(changed["routing_rules"]["fallback_action"], "voicemail");
    assert_eq!(test.call("PATCH", &path, Some(json!({}))).await.1, changed);
    let (_, cleared) = test
        .call(
            "PATCH",
            &path,
            Some(json!({"agent_id": null, "routing_rules": null})),
        )
        .await;
    assert_eq!(
        (&cleared["agent_id"], &cleared["routing_rules"]),
        (&json!(null), &json!(null))
    );
    assert_eq!(cleared["friendly_name"], "Desk");
    for (body, status, field) in [
        (json!({"trunk_id": null}), 422, Some("trunk_id")),
        (json!({"trunk_id": NOBODY}), 404, None),
        (json!({"agent_id": NOBODY}), 404, None),
        (json!({"agent_id": "x"}), 422, Some("agent_id")),
        (
            json!({"phone_number": "+15550101"}),
            422,
            Some("phone_number"),
        ),
        (
            json!({"routing_rules": {"fallback_action": "forward"}}),
            422,
            Some("fallback_number"),
        ),
    ] {
        let code = if status == 404 {
            "not_found"
        } else {
            "validation_error"
        };
        refused(
            test.call("PATCH", &path, Some(body)).await,
            status,
            code,
            field,
        );
    }
}

/// Document 3, PATCH fields.
#[tokio::test]
async fn a_telco_number_moves_to_no_trunk_and_outbound_enabled_does_nothing_to_it() {
    let test = kit::app::new().await;
    let trunk = trunk(&test).await;
    let body = json!({"phone_number": "+15550100", "trunk_id": trunk["id"]});
    let made = register(&test, body).await;
    // No route registers one here.
    let telco = "update phone_numbers set provider = 'telco', trunk_id = null";
    test.app.db.query(telco).execute().await.unwrap();
    let path = path(&made);
    let moves = json!({"trunk_id": trunk["id"]});
    let answer = test.call("PATCH", &path, Some(moves)).await;
    refused(answer, 422, "validation_error", Some("trunk_id"));
    let (_, before) = test.call("GET", &path, None).await;
    let enabled = json!({"outbound_enabled": true});
    let (status, after) = test.call("PATCH", &path, Some(enabled)).await;
    assert_eq!((status.as_u16(), &after), (200, &before));
}

#[tokio::test]
async fn a_trunks_number_carries_no_texts() {
    let test = kit::app::new().await;
    let trunk = trunk(&test).await;
    let made = register(
        &test,
        json!({"phone_number": "+15550100", "trunk_id": trunk["id"]}),
    )
    .await;
    for field in ["sms_sender", "sms_sender_default", "sms_inbound"] {
        let answer = test
            .call("PATCH", &path(&made), Some(json!({field: true})))
            .await;
        refused(answer, 422, "validation_error", Some(field));
        // What is so already may be said.
        let (status, same) = test
            .call("PATCH", &path(&made), Some(json!({field: false})))
            .await;
        assert_eq!((status.as_u16(), &same), (200, &made));
    }
    let account = json!({"messaging_account_id": NOBODY});
    let answer = test.call("PATCH", &path(&made), Some(account)).await;
    refused(
        answer,
        422,
        "validation_error",
        Some("messaging_account_id"),
    );
}

#[tokio::test]
async fn routing_rules_are_set_by_themselves() {
    let test = kit::app::new().await;
    let trunk = trunk(&test).await;
    let made = register(
        &test,
        json!({"phone_number": "+15550100", "trunk_id": trunk["id"]}),
    )
    .await;
    let route = format!("{}/routing", path(&made));
    let rules = json!({"fallback_action": "forward", "fallback_number": "+15550199",
        "max_ring_seconds": 5});
    let (status, set) = test.call("POST", &route, Some(rules.clone())).await;
    assert_eq!((status.as_u16(), &set["routing_rules"]), (200, &rules));
    for (body, field) in [
        (json!({}), "fallback_action"),
        (json!({"fallback_action": "ring"}), "fallback_action"),
        (json!({"fallback_action": "forward"}), "fallback_number"),
        (
            json!({"fallback_action": "forward", "fallback_number": "1"}),
            "fallback_number",
        ),
        (
            json!({"fallback_action": "hangup", "max_ring_seconds": 4}),
            "max_ring_seconds",
        ),
        (
            json!({"fallback_action": "hangup", "max_ring_seconds": 121}),
            "max_ring_seconds",
        ),
        (json!({"fallback_action": "hangup", "x": 1}), "x"),
    ] {
        let answer = test.call("POST", &route, Some(body)).await;
        refused(answer, 422, "validation_error", Some(field));
    }
    let (_, other) = test.other_account().await;
    refused(
        test.call_as(&other, "POST", &route, Some(rules)).await,
        404,
        "not_found",
        None,
    );
}

/// Carriers and the national format leave the prefix out: the same telephone would ring.
#[tokio::test]
async fn a_prefix_behind_the_country_code_leads_past_no_list() {
    let test = kit::app::new().await;
    let body = json!({"phone_number": "+15550100", "trunk_id": trunk(&test).await["id"]});
    let routing = format!("{}/routing", path(&register(&test, body).await));
    let called =
        |to: &str| json!({"agent_id": NOBODY, "from_number": "+15550100", "to_number": to});
    let prefixed = "+49030123456";
    for (route, field, body) in [
        ("/calls", "to_number", called(prefixed)),
        ("/calls/trigger", "to_number", called(prefixed)),
        (
            "/suppressions",
            "phone_number",
            json!({"phone_number": prefixed}),
        ),
        (
            routing.as_str(),
            "fallback_number",
            json!({"fallback_action": "forward", "fallback_number": prefixed}),
        ),
    ] {
        let (status, answer) = test.call("POST", route, Some(body)).await;
        let wrong = &answer["fields"][0];
        assert_eq!(
            (status.as_u16(), &wrong["loc"], &wrong["type"]),
            (
                422,
                &json!(["body", field]),
                &json!("string_pattern_mismatch")
            ),
            "{route}: {answer}"
        );
        let told = wrong["msg"].as_str().unwrap();
        assert!(told.ends_with("+4930123456"), "{told}");
    }
    // Italy's numbers begin with 0, and what no plan knows may be anything: it is only the agent that is missing.
    for to in ["+390612345678", "+999030123456", "+4930123456"] {
        let answer = test.call("POST", "/calls", Some(called(to))).await;
        refused(answer, 404, "not_found", None);
    }
}

#[tokio::test]
async fn an_agent_that_answers_a_number_is_deleted_only_by_force() {
    let test = kit::app::new().await;
    let (trunk, agent) = (trunk(&test).await, agent(&test).await);
    let body =
        json!({"phone_number": "+15550100", "trunk_id": trunk["id"], "agent_id": agent["id"]});
    let made = register(&test, body).await;
    let path_of_agent = format!("/agents/{}", agent["id"].as_str().unwrap());
    let (_, read) = test.call("GET", &path_of_agent, None).await;
    assert_eq!(read["phone_number_ids"], json!([made["id"]]));
    let answer = test.call("DELETE", &path_of_agent, None).await;
    refused(answer, 409, "agent_in_use", None);
    assert_eq!(test.call("GET", &path(&made), None).await.1, made);
    let forced = format!("{path_of_agent}?force=true");
    assert_eq!(test.call("DELETE", &forced, None).await.0, 204);
    let (_, left) = test.call("GET", &path(&made), None).await;
    assert_eq!(
        (&left["agent_id"], &left["status"]),
        (&json!(null), &json!("active"))
    );
}

#[tokio::test]
async fn a_deleted_trunks_numbers_stay_without_one() {
    let test = kit::app::new().await;
    let trunk = trunk(&test).await;
    let made = register(
        &test,
        json!({"phone_number": "+15550100", "trunk_id": trunk["id"]}),
    )
    .await;
    let of_trunk = format!("/sip-trunks/{}", trunk["id"].as_str().unwrap());
    assert_eq!(test.call("DELETE", &of_trunk, None).await.0, 204);
    assert_eq!(
        test.call("GET", &path(&made), None).await.1["trunk_id"],
        json!(null)
    );
}

#[tokio::test]
async fn an_own_number_that_sends_no_texts_is_no_sender_of_an_agent() {
    let test = kit::app::new().await;
    let (trunk, agent) = (trunk(&test).await, agent(&test).await);
    let number = json!({"phone_number": "+15550100", "trunk_id": trunk["id"]});
    let number = register(&test, number).await;
    let sender = Some("sms_sender_number_id");
    let body = json!({"sms_sender_number_id": number["id"]});
    let route = format!("/agents/{}", agent["id"].as_str().unwrap());
    refused(
        test.call("PATCH", &route, Some(body.clone())).await,
        422,
        "validation_error",
        sender,
    );
    let mut new = agent_body();
    new["sms_sender_number_id"] = number["id"].clone();
    refused(
        test.call("POST", "/agents", Some(new)).await,
        422,
        "validation_error",
        sender,
    );
    // To another account it is nobody's.
    let (_, other) = test.other_account().await;
    let (_, theirs) = test
        .call_as(&other, "POST", "/agents", Some(agent_body()))
        .await;
    let route = format!("/agents/{}", theirs["id"].as_str().unwrap());
    refused(
        test.call_as(&other, "PATCH", &route, Some(body)).await,
        404,
        "not_found",
        None,
    );
}
