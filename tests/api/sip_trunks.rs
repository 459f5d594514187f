//! SIP trunks over the API: what goes together, what never changes, whose they are.

mod limits;

use control::http::scope::{Scope, Scopes};
use control::testing::TestApp;
use serde_json::{Value, json};
use sip::message::Transport;
use sip::shell::Listen;

/// A password that stands nowhere else.
const PASSWORD: &str = "kept-by-the-carrier-71";

/// The body of an outbound trunk.
pub(crate) fn outbound() -> Value {
    json!({
        "name": "Acme", "type": "outbound", "numbers": ["+15550100"],
        "outbound_address": "sip.acme.com", "auth_username": "acme", "auth_password": PASSWORD,
    })
}

/// The body of an inbound trunk that is known by its addresses.
pub(crate) fn inbound() -> Value {
    json!({
        "name": "Acme in", "type": "inbound", "numbers": ["+15550100"], "auth_mode": "ip_acl",
        "allowed_addresses": ["8.8.8.0/24"],
    })
}

pub(crate) fn onboarding() -> Value {
    json!({
        "name": "Acme", "outbound_address": "sip.acme.com:5070", "numbers": ["+15550100", "15550101"],
        "auth_username": "acme", "auth_password": PASSWORD,
    })
}

/// The same with fields set; null takes one away.
pub(crate) fn with(mut body: Value, fields: Value) -> Value {
    let map = body.as_object_mut().unwrap();
    for (key, value) in fields.as_object().unwrap() {
        match value {
            Value::Null => drop(map.remove(key)),
            value => drop(map.insert(key.clone(), value.clone())),
        }
    }
    body
}

pub(crate) async fn make(test: &TestApp, body: Value) -> Value {
    let (status, made) = test.call("POST", "/sip-trunks", Some(body)).await;
    assert_eq!(status, 201, "{made}");
    made
}

pub(crate) fn path(trunk: &Value) -> String {
    format!("/sip-trunks/{}", trunk["id"].as_str().unwrap())
}

/// Expects a refusal: its status, its slug, and the fields it names.
#[track_caller]
pub(crate) fn refused(answer: (http::StatusCode, Value), status: u16, code: &str, fields: &[&str]) {
    let (got, body) = answer;
    assert_eq!(
        (got.as_u16(), &body["code"]),
        (status, &json!(code)),
        "{body}"
    );
    let named: Vec<String> = body["fields"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|field| {
            let steps = field["loc"].as_array().unwrap()[1..].iter();
            let steps: Vec<String> = steps
                .map(|step| {
                    step.as_str()
                        .map_or_else(|| step.to_string(), str::to_owned)
                })
                .collect();
            steps.join(".")
        })
        .collect();
    assert_eq!(named, fields, "{body}");
}

#[tokio::test]
async fn a_trunk_has_the_documented_defaults_and_shows_no_secret() {
    let test = kit::app::new().await;
    let made = make(&test, outbound()).await;
    for (field, value) in [
        ("auth_mode", json!("digest")),
        ("transport", json!("udp")),
        ("media_encryption", json!("allow")),
        ("outbound_dial_format", json!("e164")),
        ("max_concurrent_calls", json!(10)),
        ("calls_per_hour_limit", json!(null)),
        ("destination_allowlist", json!(null)),
        ("status", json!("active")),
        ("is_default_outbound", json!(false)),
        ("has_credentials", json!(true)),
        ("allow_md5_without_qop", json!(false)),
        ("last_refused_challenge", json!(null)),
        ("follow_redirects", json!(false)),
        ("last_refused_message", json!(null)),
        ("registration", json!(null)),
        ("active_calls", json!(0)),
        ("failed_calls", json!(0)),
        ("last_failed_call", json!(null)),
        ("realm", json!(null)),
        ("register_expires", json!(null)),
    ] {
        assert_eq!(made[field], value, "{field}");
    }
    let (_, read) = test.call("GET", &path(&made), None).await;
    assert_eq!(read, made);
    let (_, list) = test.call("GET", "/sip-trunks", None).await;
    assert_eq!(list["items"], json!([made]));
    assert!(!format!("{made}{read}{list}").contains(PASSWORD));
    let sealed = "select password_sealed from sip_trunks";
    let sealed = test
        .app
        .db
        .query(sealed)
        .one(|row| row.text("password_sealed"));
    assert!(!sealed.await.unwrap().contains(PASSWORD));
}

#[tokio::test]
async fn fields_of_authentication_go_together_or_are_400() {
    let test = kit::app::new().await;
    for wrong in [
        with(outbound(), json!({"auth_password": null})),
        with(outbound(), json!({"auth_username": null})),
        with(outbound(), json!({"auth_mode": "ip_acl"})),
        with(outbound(), json!({"auth_mode": "register"})),
        with(outbound(), json!({"allowed_addresses": ["8.8.8.8"]})),
        with(outbound(), json!({"realm": "acme.com"})),
        with(outbound(), json!({"register_expires": 60})),
        with(inbound(), json!({"allowed_addresses": null})),
        with(inbound(), json!({"auth_mode": null})),
        with(
            inbound(),
            json!({"auth_username": "a", "auth_password": "b"}),
        ),
        with(inbound(), json!({"auth_mode": "digest_plus_ip_acl"})),
        with(
            inbound(),
            json!({"auth_mode": "register", "outbound_address": "sip.acme.com"}),
        ),
    ] {
        let answer = test.call("POST", "/sip-trunks", Some(wrong)).await;
        refused(answer, 400, "trunk_auth_inconsistent", &[]);
    }
    for wrong in [
        with(onboarding(), json!({"auth_password": null})),
        with(onboarding(), json!({"auth_mode": "ip_acl"})),
        with(
            onboarding(),
            json!({"auth_mode": "digest_plus_ip_acl", "auth_username": null}),
        ),
    ] {
        let answer = test.call("POST", "/sip-trunks/onboard", Some(wrong)).await;
        refused(answer, 400, "trunk_auth_inconsistent", &[]);
    }
    let (_, list) = test.call("GET", "/sip-trunks", None).await;
    assert_eq!(list["total"], 0);
}

#[tokio::test]
async fn wrong_fields_of_a_trunk_are_named() {
    let test = kit::app::new().await;
    let long = "x".repeat(256);
    for (body, fields) in [
        (json!({}), &["name", "type"][..]),
        (with(outbound(), json!({"name": ""})), &["name"]),
        (with(outbound(), json!({"name": long})), &["name"]),
        (with(outbound(), json!({"name": "<b>Acme</b>"})), &["name"]),
        (with(outbound(), json!({"type": "both"})), &["type"]),
        (
            with(outbound(), json!({"outbound_address": null})),
            &["outbound_address"],
        ),
        (
            with(inbound(), json!({"outbound_address": "sip.acme.com"})),
            &["outbound_address"],
        ),
        (with(outbound(), json!({"numbers": ["x"]})), &["numbers.0"]),
        (
            with(outbound(), json!({"numbers": ["+15550100", "15550100"]})),
            &["numbers.1"],
        ),
        (
            with(outbound(), json!({"transport": "sctp"})),
            &["transport"],
        ),
        (
            with(outbound(), json!({"media_encryption": "maybe"})),
            &["media_encryption"],
        ),
        (
            with(outbound(), json!({"outbound_dial_format": "local"})),
            &["outbound_dial_format"],
        ),
        (
            with(outbound(), json!({"max_concurrent_calls": 0})),
            &["max_concurrent_calls"],
        ),
        (
            with(outbound(), json!({"auth_username": "a b"})),
            &["auth_username"],
        ),
        (
            with(outbound(), json!({"auth_password": "a\r\nb"})),
            &["auth_password"],
        ),
        (with(outbound(), json!({"colour": "blue"})), &["colour"]),
        (
            with(
                outbound(),
                json!({"destination_allowlist": {"mode": "only", "entries": ["49"]}}),
            ),
            &[
                "destination_allowlist.mode",
                "destination_allowlist.entries.0",
            ],
        ),
        (
            json!({"name": "r", "type": "inbound", "auth_mode": "register", "auth_username": "a",
                "auth_password": "b", "outbound_address": "sip.acme.com", "register_expires": 29}),
            &["register_expires"],
        ),
        // Where it registers.
        (
            json!({"name": "r", "type": "inbound", "auth_mode": "register", "auth_username": "a",
                "auth_password": "b"}),
            &["outbound_address"],
        ),
    ] {
        let answer = test.call("POST", "/sip-trunks", Some(body)).await;
        refused(answer, 422, "validation_error", fields);
    }
}

#[tokio::test]
async fn a_carriers_addresses_are_public_unless_a_laboratory_says_otherwise() {
    let test = kit::app::new().await;
    for address in [
        "127.0.0.1",
        "10.1.2.3:5060",
        "169.254.169.254",
        "pbx.internal",
        "[::1]:5060",
    ] {
        let body = with(outbound(), json!({"outbound_address": address}));
        let answer = test.call("POST", "/sip-trunks", Some(body)).await;
        refused(answer, 422, "validation_error", &["outbound_address"]);
    }
    for block in [
        "8.8.0.0/16",
        "127.0.0.1",
        "10.0.0.0/24",
        "2001:4860::1",
        "::1",
        "acme.com",
    ] {
        let body = with(inbound(), json!({"allowed_addresses": ["8.8.8.8", block]}));
        let answer = test.call("POST", "/sip-trunks", Some(body)).await;
        refused(answer, 422, "validation_error", &["allowed_addresses.1"]);
    }
    let laboratory = kit::app::with(|config| {
        config.egress.allow = control::egress::Allow::parse(&["127.0.0.0/8", "::1"]).unwrap();
    });
    let laboratory = laboratory.await;
    for address in ["127.0.0.1:5080", "[::1]:5080"] {
        make(
            &laboratory,
            with(outbound(), json!({"outbound_address": address})),
        )
        .await;
    }
    make(
        &laboratory,
        with(
            inbound(),
            json!({"allowed_addresses": ["127.0.0.1", "::1"]}),
        ),
    )
    .await;
}

#[tokio::test]
async fn onboarding_makes_a_trunk_and_its_numbers() {
    let test = kit::app::new().await;
    let (_, agent) = test.call("POST", "/agents", Some(agent_body())).await;
    let body = with(
        onboarding(),
        json!({"agent_id": agent["id"], "set_as_tenant_default": true,
            "inbound": {"fallback_action": "hangup", "max_ring_seconds": 20}}),
    );
    let (status, made) = test.call("POST", "/sip-trunks/onboard", Some(body)).await;
    assert_eq!(status, 201, "{made}");
    let trunk = &made["trunk"];
    assert_eq!(
        (&trunk["type"], &trunk["is_default_outbound"]),
        (&json!("outbound"), &json!(true))
    );
    assert_eq!(trunk["numbers"], json!(["+15550100", "15550101"]));
    let numbers = made["phone_numbers"].as_array().unwrap();
    assert_eq!(numbers.len(), 2);
    for number in numbers {
        assert_eq!(number["provider"], "sip");
        assert_eq!(number["agent_id"], agent["id"]);
        assert_eq!(number["trunk_id"], trunk["id"]);
        assert_eq!(number["outbound_enabled"], true);
        assert_eq!(number["routing_rules"]["max_ring_seconds"], 20);
    }
    // As they were given, for the carrier's sake.
    assert_eq!(numbers[1]["phone_number"], "15550101");
    assert!(!made.to_string().contains(PASSWORD));
    let (_, read) = test
        .call(
            "GET",
            &format!("/agents/{}", agent["id"].as_str().unwrap()),
            None,
        )
        .await;
    let ids: Vec<&Value> = numbers.iter().map(|number| &number["id"]).collect();
    assert_eq!(read["phone_number_ids"], json!(ids));
}

#[tokio::test]
async fn onboarding_takes_a_hundred_numbers_and_no_more() {
    let test = kit::app::new().await;
    let numbers = |count: u32| {
        let numbers: Vec<String> = (0..count).map(|n| format!("+1555{n:06}")).collect();
        Some(with(onboarding(), json!({"numbers": numbers})))
    };
    let route = "/sip-trunks/onboard";
    for count in [0, 101] {
        let answer = test.call("POST", route, numbers(count)).await;
        refused(answer, 422, "validation_error", &["numbers"]);
    }
    let (status, made) = test.call("POST", route, numbers(100)).await;
    assert_eq!(status, 201, "{made}");
    let (_, list) = test.call("GET", "/phone-numbers", None).await;
    assert_eq!(list["total"], 100);
}

#[tokio::test]
async fn onboarding_is_all_or_nothing() {
    let test = kit::app::new().await;
    let (_, other) = test.other_account().await;
    let theirs = with(onboarding(), json!({"numbers": ["15550101"]}));
    let (status, _) = test
        .call_as(&other, "POST", "/sip-trunks/onboard", Some(theirs))
        .await;
    assert_eq!(status, 201);
    // The second number is another account's, in another spelling.
    let body = with(onboarding(), json!({"numbers": ["+15550100", "+15550101"]}));
    let answer = test.call("POST", "/sip-trunks/onboard", Some(body)).await;
    refused(answer, 409, "number_already_registered", &[]);
    let nobody = json!({"agent_id": "0193a5c2-7d10-7c3e-9a41-5b6e2f0c1d22"});
    let answer = test
        .call(
            "POST",
            "/sip-trunks/onboard",
            Some(with(onboarding(), nobody)),
        )
        .await;
    refused(answer, 404, "not_found", &[]);
    for list in ["/sip-trunks", "/phone-numbers"] {
        assert_eq!(test.call("GET", list, None).await.1["total"], 0, "{list}");
    }
    for (body, fields) in [
        (with(onboarding(), json!({"numbers": []})), &["numbers"][..]),
        (
            with(onboarding(), json!({"numbers": vec!["+15550100"; 101]})),
            &["numbers"],
        ),
        (
            with(onboarding(), json!({"auth_mode": "register"})),
            &["auth_mode"],
        ),
        (with(onboarding(), json!({"type": "outbound"})), &["type"]),
        (
            with(
                onboarding(),
                json!({"inbound": {"fallback_action": "forward"}}),
            ),
            &["inbound.fallback_number"],
        ),
    ] {
        let answer = test.call("POST", "/sip-trunks/onboard", Some(body)).await;
        refused(answer, 422, "validation_error", fields);
    }
}

#[tokio::test]
async fn onboarding_needs_both_scopes() {
    let test = kit::app::new().await;
    for (scopes, status) in [
        (vec![Scope::SipTrunksWrite], 403),
        (vec![Scope::PhoneNumbersWrite], 403),
        (vec![Scope::SipTrunksWrite, Scope::PhoneNumbersWrite], 201),
    ] {
        let key = test
            .key_with(test.account, scopes.into_iter().collect::<Scopes>())
            .await;
        let (got, body) = test
            .call_as(&key, "POST", "/sip-trunks/onboard", Some(onboarding()))
            .await;
        assert_eq!(got, status, "{body}");
    }
}

#[tokio::test]
async fn what_the_sip_stack_cannot_take_is_502_and_not_stored() {
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let test = kit::app::with(|config| config.sip.listen[0].addr = address).await;
    for (path, body) in [
        ("/sip-trunks", outbound()),
        ("/sip-trunks/onboard", onboarding()),
    ] {
        let answer = test.call("POST", path, Some(body)).await;
        refused(answer, 502, "provisioning_failed", &[]);
    }
    assert_eq!(test.call("GET", "/sip-trunks", None).await.1["total"], 0);
    assert_eq!(test.call("GET", "/phone-numbers", None).await.1["total"], 0);
    drop(taken);
    make(&test, outbound()).await;
}

#[tokio::test]
async fn a_transport_that_nothing_listens_on_is_502_and_not_stored() {
    let test = kit::app::new().await;
    for (path, body) in [
        ("/sip-trunks", outbound()),
        ("/sip-trunks", inbound()),
        ("/sip-trunks/onboard", onboarding()),
    ] {
        for transport in ["tcp", "tls"] {
            let body = with(body.clone(), json!({"transport": transport}));
            let answer = test.call("POST", path, Some(body)).await;
            refused(answer, 502, "provisioning_failed", &[]);
        }
    }
    assert_eq!(test.call("GET", "/sip-trunks", None).await.1["total"], 0);
    // One that was made when the settings named its transport is renamed and disabled, but not begun anew.
    let trunk = make(&test, outbound()).await;
    let db = &test.app.db;
    let moved = db.query("update sip_trunks set transport = 'tcp'");
    moved.execute().await.unwrap();
    let change = async |field: &str, value: &str| {
        let body = json!({ field: value });
        test.call("PATCH", &path(&trunk), Some(body)).await
    };
    assert_eq!(change("name", "Renamed").await.0, 200);
    assert_eq!(change("status", "disabled").await.0, 200);
    let answer = change("status", "active").await;
    refused(answer, 502, "provisioning_failed", &[]);
    let test = kit::app::with(|config| {
        let tcp = Listen {
            transport: Transport::Tcp,
            ..config.sip.listen[0]
        };
        config.sip.listen.push(tcp);
    })
    .await;
    make(&test, with(outbound(), json!({"transport": "tcp"}))).await;
}

#[tokio::test]
async fn an_outbound_trunk_keeps_its_numbers_addresses_and_mode() {
    let test = kit::app::new().await;
    let made = make(&test, outbound()).await;
    for field in ["numbers", "allowed_addresses"] {
        let answer = test
            .call("PATCH", &path(&made), Some(json!({field: []})))
            .await;
        refused(answer, 422, "validation_error", &[field]);
    }
    let mode = json!({"auth_mode": "ip_acl"});
    let answer = test.call("PATCH", &path(&made), Some(mode)).await;
    refused(answer, 422, "validation_error", &["auth_mode"]);
    for field in [
        "type",
        "outbound_address",
        "outbound_from_user",
        "realm",
        "id",
    ] {
        let answer = test
            .call("PATCH", &path(&made), Some(json!({field: "outbound"})))
            .await;
        refused(answer, 422, "validation_error", &[field]);
    }
    let (status, changed) = test
        .call(
            "PATCH",
            &path(&made),
            Some(json!({"name": "Acme 2", "outbound_dial_format": "digits",
                "destination_allowlist": {"mode": "blocklist", "entries": ["+1900"]}})),
        )
        .await;
    assert_eq!(status, 200, "{changed}");
    assert_eq!(
        (
            &changed["name"],
            &changed["outbound_dial_format"],
            &changed["has_credentials"]
        ),
        (&json!("Acme 2"), &json!("digits"), &json!(true))
    );
    assert_eq!(changed["destination_allowlist"]["mode"], "blocklist");
    let (_, cleared) = test
        .call(
            "PATCH",
            &path(&made),
            Some(json!({"destination_allowlist": null})),
        )
        .await;
    assert_eq!(cleared["destination_allowlist"], json!(null));
    assert_eq!(
        test.call("PATCH", &path(&made), Some(json!({}))).await.1,
        cleared
    );
}

#[tokio::test]
async fn an_inbound_trunk_changes_its_mode_with_the_new_credentials() {
    let test = kit::app::new().await;
    let made = make(&test, inbound()).await;
    let path = path(&made);
    for wrong in [
        json!({"auth_mode": "digest_plus_ip_acl"}),
        json!({"auth_mode": "digest_plus_ip_acl", "auth_username": "a"}),
        json!({"auth_mode": "digest", "auth_username": "a", "auth_password": "b"}),
        json!({"auth_username": "a", "auth_password": "b"}),
        json!({"allowed_addresses": []}),
    ] {
        let answer = test.call("PATCH", &path, Some(wrong)).await;
        refused(answer, 400, "trunk_auth_inconsistent", &[]);
    }
    let register = json!({"auth_mode": "register", "auth_username": "a", "auth_password": "b"});
    let answer = test.call("PATCH", &path, Some(register)).await;
    refused(answer, 422, "validation_error", &["auth_mode"]);
    let both =
        json!({"auth_mode": "digest_plus_ip_acl", "auth_username": "a", "auth_password": "b"});
    let (_, changed) = test.call("PATCH", &path, Some(both)).await;
    assert_eq!(
        (
            &changed["auth_mode"],
            &changed["has_credentials"],
            &changed["auth_username"]
        ),
        (&json!("digest_plus_ip_acl"), &json!(true), &json!("a"))
    );
    let digest = json!({"auth_mode": "digest", "auth_username": "c", "auth_password": "d",
        "allowed_addresses": [], "numbers": []});
    let (_, changed) = test.call("PATCH", &path, Some(digest)).await;
    assert_eq!(
        (
            &changed["auth_mode"],
            &changed["allowed_addresses"],
            &changed["numbers"]
        ),
        (&json!("digest"), &json!([]), &json!([]))
    );
}

/// An account's carriers are told apart by their user names; what others call theirs nobody learns.
#[tokio::test]
async fn a_user_name_is_taken_within_its_account_alone() {
    let test = kit::app::new().await;
    let (_, other) = test.other_account().await;
    let body =
        || json!({"name": "x", "type": "inbound", "auth_username": "c", "auth_password": "z"});
    make(&test, body()).await;
    let again = test.call("POST", "/sip-trunks", Some(body())).await;
    refused(again, 409, "name_taken", &[]);
    let theirs = async |expected: u16| {
        let answer = test
            .call_as(&other, "POST", "/sip-trunks", Some(body()))
            .await;
        assert_eq!(answer.0, expected, "{}", answer.1);
        answer.1
    };
    theirs(201).await;
    theirs(409).await;
    // A change is no way around it, and tells nothing either.
    let free = with(body(), json!({"auth_username": "free"}));
    let (status, free) = test
        .call_as(&other, "POST", "/sip-trunks", Some(free))
        .await;
    assert_eq!(status, 201, "{free}");
    for (user, expected) in [("c", 409), ("ours", 200)] {
        let patch = json!({"auth_mode": "digest", "auth_username": user, "auth_password": "p"});
        let answer = test
            .call_as(&other, "PATCH", &path(&free), Some(patch))
            .await;
        assert_eq!(answer.0, expected, "{user}: {}", answer.1);
    }
    let ours = with(body(), json!({"auth_username": "ours"}));
    make(&test, ours).await;
}

#[tokio::test]
async fn md5_without_qop_is_allowed_by_each_trunk_for_itself() {
    let test = kit::app::new().await;
    let allowed = json!({"allow_md5_without_qop": true});
    for body in [outbound(), inbound()] {
        let made = make(&test, with(body.clone(), allowed.clone())).await;
        assert_eq!(made["allow_md5_without_qop"], true);
        for now in [false, true] {
            let patch = json!({"allow_md5_without_qop": now});
            let (_, changed) = test.call("PATCH", &path(&made), Some(patch)).await;
            assert_eq!(changed["allow_md5_without_qop"], now, "{changed}");
            let (_, read) = test.call("GET", &path(&made), None).await;
            assert_eq!(read, changed);
        }
        let wrong = json!({"allow_md5_without_qop": "yes"});
        let answer = test
            .call("POST", "/sip-trunks", Some(with(body, wrong)))
            .await;
        refused(answer, 422, "validation_error", &["allow_md5_without_qop"]);
    }
    let onboard = with(onboarding(), allowed);
    let (status, made) = test
        .call("POST", "/sip-trunks/onboard", Some(onboard))
        .await;
    assert_eq!(status, 201, "{made}");
    assert_eq!(made["trunk"]["allow_md5_without_qop"], true);
}

#[tokio::test]
async fn redirections_are_followed_by_each_trunk_for_itself() {
    let test = kit::app::new().await;
    let follows = json!({"follow_redirects": true});
    let made = make(&test, with(outbound(), follows.clone())).await;
    assert_eq!(made["follow_redirects"], true);
    for now in [false, true] {
        let patch = json!({"follow_redirects": now});
        let (_, changed) = test.call("PATCH", &path(&made), Some(patch)).await;
        assert_eq!(changed["follow_redirects"], now, "{changed}");
        let (_, read) = test.call("GET", &path(&made), None).await;
        assert_eq!(read, changed);
    }
    let wrong = with(outbound(), json!({"follow_redirects": "yes"}));
    let answer = test.call("POST", "/sip-trunks", Some(wrong)).await;
    refused(answer, 422, "validation_error", &["follow_redirects"]);
    let onboard = with(onboarding(), follows);
    let (status, made) = test
        .call("POST", "/sip-trunks/onboard", Some(onboard))
        .await;
    assert_eq!(status, 201, "{made}");
    assert_eq!(made["trunk"]["follow_redirects"], true);
}

#[tokio::test]
async fn a_trunk_that_registers_has_its_own_fields_and_stays_one() {
    let test = kit::app::new().await;
    let body = json!({"name": "r", "type": "inbound", "auth_mode": "register", "auth_username": "100",
        "auth_password": "b", "outbound_address": "sip.acme.com"});
    let made = make(&test, body.clone()).await;
    assert_eq!(
        (
            &made["register_expires"],
            &made["outbound_auth"],
            &made["outbound_from_user"]
        ),
        (&json!(120), &json!("proxy"), &json!("number"))
    );
    assert_eq!(made["realm"], "sip.acme.com");
    let elsewhere = json!({"outbound_address": "[2606:4700::1]:5070"});
    let elsewhere = make(&test, with(body.clone(), elsewhere)).await;
    assert_eq!(elsewhere["realm"], "[2606:4700::1]");
    assert_eq!(
        made["registration"],
        json!({"status": "unregistered", "expires_at": null, "last_error": null, "last_failure": null})
    );
    let own = json!({"realm": "acme.com", "register_expires": 3600, "outbound_auth": "direct",
        "outbound_from_user": "username"});
    let made = make(&test, with(body, own.clone())).await;
    for (field, value) in own.as_object().unwrap() {
        assert_eq!(&made[field], value, "{field}");
    }
    let mode = json!({"auth_mode": "ip_acl", "allowed_addresses": ["8.8.8.8"]});
    let answer = test.call("PATCH", &path(&made), Some(mode)).await;
    refused(answer, 422, "validation_error", &["auth_mode"]);
}

#[tokio::test]
async fn one_active_outbound_trunk_is_the_default() {
    let test = kit::app::new().await;
    let (first, second) = (make(&test, outbound()).await, make(&test, outbound()).await);
    let third = make(&test, inbound()).await;
    let set = |trunk: &Value| format!("{}/set-default-outbound", path(trunk));
    for trunk in [&first, &second] {
        let (status, made) = test.call("PATCH", &set(trunk), None).await;
        assert_eq!(
            (status.as_u16(), &made["is_default_outbound"]),
            (200, &json!(true))
        );
    }
    let is_default = async |trunk: &Value| {
        test.call("GET", &path(trunk), None).await.1["is_default_outbound"] == true
    };
    assert!(!is_default(&first).await && is_default(&second).await);
    refused(
        test.call("PATCH", &set(&third), None).await,
        422,
        "trunk_inactive",
        &[],
    );
    let disable = json!({"status": "disabled"});
    let (_, disabled) = test
        .call("PATCH", &path(&second), Some(disable.clone()))
        .await;
    assert_eq!(
        (&disabled["status"], &disabled["is_default_outbound"]),
        (&json!("disabled"), &json!(false))
    );
    refused(
        test.call("PATCH", &set(&second), None).await,
        422,
        "trunk_inactive",
        &[],
    );
    let unknown = "/sip-trunks/0193a5c2-7d10-7c3e-9a41-5b6e2f0c1d22/set-default-outbound";
    refused(
        test.call("PATCH", unknown, None).await,
        404,
        "not_found",
        &[],
    );
}

#[tokio::test]
async fn a_disabled_trunk_is_listed_and_a_deleted_one_is_not() {
    let test = kit::app::new().await;
    let (first, second) = (make(&test, outbound()).await, make(&test, inbound()).await);
    test.call("PATCH", &path(&first), Some(json!({"status": "disabled"})))
        .await;
    let (_, list) = test.call("GET", "/sip-trunks", None).await;
    let ids: Vec<&Value> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| &t["id"])
        .collect();
    // Newest first; made within one instant they sort by their ids.
    assert_eq!(list["total"], 2);
    assert!(ids.contains(&&first["id"]) && ids.contains(&&second["id"]));
    for _ in 0..2 {
        let (status, _) = test.call("DELETE", &path(&first), None).await;
        assert_eq!(status, 204);
    }
    refused(
        test.call("GET", &path(&first), None).await,
        404,
        "not_found",
        &[],
    );
    let patch = test
        .call("PATCH", &path(&first), Some(json!({"name": "x"})))
        .await;
    refused(patch, 404, "not_found", &[]);
    let (_, list) = test.call("GET", "/sip-trunks", None).await;
    assert_eq!(list["items"], json!([second]));
    let kept = "select password_sealed from sip_trunks where deleted_at is not null";
    let kept = test
        .app
        .db
        .query(kept)
        .one(|row| row.opt_text("password_sealed"));
    assert_eq!(kept.await.unwrap(), None, "its password is gone");
}

#[tokio::test]
async fn another_accounts_trunk_is_not_there_and_its_delete_changes_nothing() {
    let test = kit::app::new().await;
    let made = make(&test, outbound()).await;
    let (_, other) = test.other_account().await;
    let path = path(&made);
    refused(
        test.call_as(&other, "GET", &path, None).await,
        404,
        "not_found",
        &[],
    );
    let patch = test
        .call_as(&other, "PATCH", &path, Some(json!({"name": "x"})))
        .await;
    refused(patch, 404, "not_found", &[]);
    let set = format!("{path}/set-default-outbound");
    refused(
        test.call_as(&other, "PATCH", &set, None).await,
        404,
        "not_found",
        &[],
    );
    assert_eq!(test.call_as(&other, "DELETE", &path, None).await.0, 204);
    assert_eq!(test.call("GET", &path, None).await.1, made);
    // A number that the first account has registered is no other's to match.
    let number = json!({"phone_number": "+15550100", "trunk_id": made["id"]});
    let (status, _) = test
        .call("POST", "/phone-numbers/sip/register", Some(number))
        .await;
    assert_eq!(status, 201);
    let theirs = with(inbound(), json!({"numbers": ["15550100"]}));
    let answer = test
        .call_as(&other, "POST", "/sip-trunks", Some(theirs))
        .await;
    refused(answer, 409, "number_already_registered", &[]);
    make(&test, inbound()).await;
}

#[tokio::test]
async fn an_agent_may_name_an_active_outbound_trunk_of_its_account() {
    let test = kit::app::new().await;
    let (out, inward) = (make(&test, outbound()).await, make(&test, inbound()).await);
    let body = with(agent_body(), json!({"outbound_trunk_id": out["id"]}));
    let (status, agent) = test.call("POST", "/agents", Some(body)).await;
    assert_eq!(
        (status.as_u16(), &agent["outbound_trunk_id"]),
        (201, &out["id"])
    );
    let agent = format!("/agents/{}", agent["id"].as_str().unwrap());
    let name = |trunk: &Value| json!({"outbound_trunk_id": trunk["id"]});
    let answer = test.call("PATCH", &agent, Some(name(&inward))).await;
    refused(answer, 422, "validation_error", &["outbound_trunk_id"]);
    let second = make(&test, outbound()).await;
    test.call("PATCH", &path(&second), Some(json!({"status": "disabled"})))
        .await;
    let answer = test.call("PATCH", &agent, Some(name(&second))).await;
    refused(answer, 422, "validation_error", &["outbound_trunk_id"]);
    let (_, other) = test.other_account().await;
    let body = with(agent_body(), json!({"outbound_trunk_id": out["id"]}));
    let answer = test.call_as(&other, "POST", "/agents", Some(body)).await;
    refused(answer, 422, "validation_error", &["outbound_trunk_id"]);
    let (_, cleared) = test
        .call("PATCH", &agent, Some(json!({"outbound_trunk_id": ""})))
        .await;
    assert_eq!(cleared["outbound_trunk_id"], json!(null));
}

/// The body of an agent.
pub(crate) fn agent_body() -> Value {
    json!({"name": "A", "system_prompt": "Be kind.", "voice_id": "flite-slt"})
}
