//! Trunks and numbers over the API, at their bounds: what still is taken, what only some trunks have, and
//! that a body names nothing of another account.

use control::testing::TestApp;
use serde_json::{Value, json};

use crate::sip_trunks::{agent_body, inbound, make, onboarding, outbound, path, refused, with};

const REGISTER: &str = "/phone-numbers/sip/register";

/// The body of a trunk that registers.
fn registering() -> Value {
    json!({"name": "r", "type": "inbound", "auth_mode": "register", "auth_username": "100",
        "auth_password": "b", "outbound_address": "sip.acme.com"})
}

/// A number of the trunk.
async fn number(test: &TestApp, trunk: &Value, number: &str) -> Value {
    let body = json!({"phone_number": number, "trunk_id": trunk["id"]});
    let (status, made) = test.call("POST", REGISTER, Some(body)).await;
    assert_eq!(status, 201, "{made}");
    made
}

fn of_number(number: &Value) -> String {
    format!("/phone-numbers/{}", number["id"].as_str().unwrap())
}

#[tokio::test]
async fn a_registration_lasts_between_half_a_minute_and_an_hour() {
    let test = kit::app::new().await;
    for seconds in [30, 3600] {
        let body = with(registering(), json!({"register_expires": seconds}));
        assert_eq!(make(&test, body).await["register_expires"], seconds);
    }
    for seconds in [29, 3601] {
        let body = with(registering(), json!({"register_expires": seconds}));
        let answer = test.call("POST", "/sip-trunks", Some(body)).await;
        refused(answer, 422, "validation_error", &["register_expires"]);
    }
}

#[tokio::test]
async fn an_inbound_trunk_lists_a_number_in_each_way_that_its_carrier_writes_it() {
    let test = kit::app::new().await;
    let ways = json!({"numbers": ["+15550100", "15550100", "5550100"]});
    let made = make(&test, with(inbound(), ways.clone())).await;
    assert_eq!(made["numbers"], ways["numbers"]);
    let twice = json!({"numbers": ["+15550100", "15550100", "+15550100"]});
    let body = with(inbound(), twice.clone());
    let answer = test.call("POST", "/sip-trunks", Some(body)).await;
    refused(answer, 422, "validation_error", &["numbers.2"]);
    let answer = test.call("PATCH", &path(&made), Some(twice)).await;
    refused(answer, 422, "validation_error", &["numbers.2"]);
    let two = json!({"numbers": ["15550100", "+15550100"]});
    let (status, changed) = test.call("PATCH", &path(&made), Some(two.clone())).await;
    assert_eq!(
        (status.as_u16(), &changed["numbers"]),
        (200, &two["numbers"])
    );
    // What an outbound trunk presents is one number, however it is written.
    let answer = test
        .call("POST", "/sip-trunks", Some(with(outbound(), two)))
        .await;
    refused(answer, 422, "validation_error", &["numbers.1"]);
}

#[tokio::test]
async fn what_registrations_have_no_other_trunk_has_and_none_changes() {
    let test = kit::app::new().await;
    let fields = [
        ("outbound_auth", json!("direct")),
        ("outbound_from_user", json!("username")),
        ("realm", json!("acme.com")),
        ("register_expires", json!(60)),
    ];
    let both =
        json!({"auth_mode": "digest_plus_ip_acl", "auth_username": "a", "auth_password": "b"});
    for (field, value) in &fields {
        for body in [outbound(), inbound(), with(inbound(), both.clone())] {
            let body = with(body, json!({*field: value}));
            let answer = test.call("POST", "/sip-trunks", Some(body)).await;
            refused(answer, 400, "trunk_auth_inconsistent", &[]);
        }
        let body = with(onboarding(), json!({*field: value}));
        let answer = test.call("POST", "/sip-trunks/onboard", Some(body)).await;
        refused(answer, 422, "validation_error", &[field]);
    }
    let made = make(&test, registering()).await;
    for (field, value) in &fields {
        let change = Some(json!({*field: value}));
        let answer = test.call("PATCH", &path(&made), change).await;
        refused(answer, 422, "validation_error", &[field]);
    }
    assert_eq!(test.call("GET", &path(&made), None).await.1, made);
}

#[tokio::test]
async fn trunks_and_numbers_are_listed_newest_first_in_long_pages() {
    let test = kit::app::new().await;
    let (mut trunks, mut numbers) = (Vec::new(), Vec::new());
    for last in 0..3 {
        let trunk = make(&test, with(outbound(), json!({"numbers": []}))).await;
        numbers.push(number(&test, &trunk, &format!("+1555010{last}")).await["id"].clone());
        trunks.push(trunk["id"].clone());
        test.app.clock.advance(std::time::Duration::from_secs(1));
    }
    for (route, most, mut made) in [
        ("/sip-trunks", 200, trunks),
        ("/phone-numbers", 1000, numbers),
    ] {
        made.reverse();
        let (status, page) = test
            .call("GET", &format!("{route}?limit={most}"), None)
            .await;
        assert_eq!((status.as_u16(), &page["limit"]), (200, &json!(most)));
        let items = page["items"].as_array().unwrap().iter();
        let ids: Vec<Value> = items.map(|item| item["id"].clone()).collect();
        assert_eq!(ids, made, "{route}");
        let over = format!("{route}?limit={}", most + 1);
        let answer = test.call("GET", &over, None).await;
        refused(answer, 422, "validation_error", &["limit"]);
    }
}

#[tokio::test]
async fn trunks_and_agents_of_another_account_are_not_there_for_numbers() {
    let test = kit::app::new().await;
    let (_, other) = test.other_account().await;
    let bare = with(outbound(), json!({"numbers": []}));
    let (_, their_trunk) = test
        .call_as(&other, "POST", "/sip-trunks", Some(bare.clone()))
        .await;
    let (_, their_agent) = test
        .call_as(&other, "POST", "/agents", Some(agent_body()))
        .await;
    let trunk = make(&test, bare).await;
    let own = number(&test, &trunk, "+15550100").await;
    let new = json!({"phone_number": "+15550101", "trunk_id": trunk["id"]});
    let (a_trunk, an_agent) = (
        json!({"trunk_id": their_trunk["id"]}),
        json!({"agent_id": their_agent["id"]}),
    );
    let of_own = of_number(&own);
    let onboard = with(onboarding(), json!({"numbers": ["+15550188"]}));
    for (method, route, body) in [
        ("POST", REGISTER, with(new.clone(), a_trunk.clone())),
        ("POST", REGISTER, with(new, an_agent.clone())),
        ("PATCH", of_own.as_str(), a_trunk),
        ("PATCH", of_own.as_str(), an_agent.clone()),
        ("POST", "/sip-trunks/onboard", with(onboard, an_agent)),
    ] {
        let answer = test.call(method, route, Some(body)).await;
        refused(answer, 404, "not_found", &[]);
    }
    let (_, trunks) = test.call("GET", "/sip-trunks", None).await;
    assert_eq!(trunks["items"], json!([trunk]));
    let (_, numbers) = test.call("GET", "/phone-numbers", None).await;
    assert_eq!(numbers["items"], json!([own]));
}

#[tokio::test]
async fn a_number_moves_to_an_active_trunk_only() {
    let test = kit::app::new().await;
    let bare = with(outbound(), json!({"numbers": []}));
    let (first, second) = (make(&test, bare.clone()).await, make(&test, bare).await);
    let own = number(&test, &first, "+15550100").await;
    let disable = json!({"status": "disabled"});
    test.call("PATCH", &path(&second), Some(disable.clone()))
        .await;
    let moved = json!({"trunk_id": second["id"]});
    let answer = test.call("PATCH", &of_number(&own), Some(moved)).await;
    refused(answer, 422, "trunk_inactive", &[]);
    // Where it is, it may stay.
    test.call("PATCH", &path(&first), Some(disable)).await;
    let same = json!({"trunk_id": first["id"]});
    let (status, stays) = test.call("PATCH", &of_number(&own), Some(same)).await;
    assert_eq!((status.as_u16(), &stays), (200, &own));
}

#[tokio::test]
async fn onboarded_numbers_place_calls_unless_it_is_said_otherwise() {
    let test = kit::app::new().await;
    let body = with(onboarding(), json!({"outbound_enabled": false}));
    let (status, made) = test.call("POST", "/sip-trunks/onboard", Some(body)).await;
    assert_eq!(status, 201, "{made}");
    let numbers = made["phone_numbers"].as_array().unwrap();
    assert_eq!(numbers.len(), 2);
    for number in numbers {
        assert_eq!(number["outbound_enabled"], false);
        let (_, read) = test.call("GET", &of_number(number), None).await;
        assert_eq!(read["outbound_enabled"], false);
    }
}

#[tokio::test]
async fn a_friendly_name_has_at_most_255_characters() {
    let test = kit::app::new().await;
    let trunk = make(&test, with(outbound(), json!({"numbers": []}))).await;
    // Characters, not bytes.
    let (longest, longer) = ("é".repeat(255), "é".repeat(256));
    let body = |name: &str| {
        Some(json!({"phone_number": "+15550100", "trunk_id": trunk["id"], "friendly_name": name}))
    };
    let field = &["friendly_name"];
    let answer = test.call("POST", REGISTER, body(&longer)).await;
    refused(answer, 422, "validation_error", field);
    let (status, made) = test.call("POST", REGISTER, body(&longest)).await;
    assert_eq!(
        (status.as_u16(), &made["friendly_name"]),
        (201, &json!(longest))
    );
    let rename = |name: &str| Some(json!({"friendly_name": name}));
    let answer = test.call("PATCH", &of_number(&made), rename(&longer)).await;
    refused(answer, 422, "validation_error", field);
    let (status, empty) = test.call("PATCH", &of_number(&made), rename("")).await;
    assert_eq!(
        (status.as_u16(), &empty["friendly_name"]),
        (200, &json!(""))
    );
    let (status, full) = test
        .call("PATCH", &of_number(&made), rename(&longest))
        .await;
    assert_eq!(
        (status.as_u16(), &full["friendly_name"]),
        (200, &json!(longest))
    );
}
