//! `POST /calls` and `POST /calls/trigger`: who may call whom, in which order that is judged, and how many
//! calls there are when a crowd asks at once. The carrier of these tests never answers.

mod crowds;

use std::net::UdpSocket;
use std::time::Duration;

use control::config::Config;
use control::egress::Allow;
use control::http::scope::Scope;
use control::secret::Secret;
use control::testing::TestApp;
use futures_util::future::join_all;
use http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use sip::message::parse::{Framing, parse};
use sip::message::{Message, Method, Name, Request as SipRequest};
use tokio::time::timeout;

use crate::in_process::{PATIENCE, abandoned};

const FROM: &str = "+15550100";
const TO: &str = "+4930123456";
const ADMIN: &str = "swordfish-of-the-operator";

/// An account with an agent, a trunk to a carrier that is silent, and a number.
struct Desk {
    test: TestApp,
    agent: String,
    trunk: String,
    number: String,
    /// Where the carrier would be.
    carrier: UdpSocket,
}

impl Desk {
    async fn new() -> Self {
        Self::with(|_| {}, json!({})).await
    }

    /// With settings changed, and fields of the trunk set.
    async fn with(change: impl FnOnce(&mut Config), trunk: Value) -> Self {
        let test = kit::app::with(|config| {
            config.egress.allow = Allow::parse(&["127.0.0.0/8"]).unwrap();
            config.admin_token = Some(Secret::new(ADMIN.to_owned()));
            config.limits.account_calls = 5_000;
            config.limits.node_calls = 5_000;
            config.limits.pool_calls = 5_000;
            config.sip.trunk_calls = 5_000;
            config.limits.call_creations_per_minute = 1_000_000;
            change(config);
        })
        .await;
        let carrier = UdpSocket::bind("127.0.0.1:0").unwrap();
        let agent = made(&test, "/agents", agent_body()).await;
        let trunk = made(&test, "/sip-trunks", trunk_to(&carrier, trunk)).await;
        let number = json!({"phone_number": FROM, "trunk_id": trunk, "outbound_enabled": true});
        let number = made(&test, "/phone-numbers/sip/register", number).await;
        Self {
            test,
            agent,
            trunk,
            number,
            carrier,
        }
    }

    fn wish(&self) -> Value {
        json!({"agent_id": self.agent, "to_number": TO, "from_number": FROM})
    }

    async fn place(&self, body: Value) -> (u16, Value) {
        let (status, answer) = self.test.call("POST", "/calls", Some(body)).await;
        (status.as_u16(), answer)
    }

    async fn trigger(&self, body: Value) -> (u16, Value) {
        let (status, answer) = self.test.call("POST", "/calls/trigger", Some(body)).await;
        (status.as_u16(), answer)
    }

    /// With an `Idempotency-Key`; the status, the answer, and whether it was given before.
    async fn named(&self, key: &str, path: &str, body: &Value) -> (u16, Value, bool) {
        let request = Request::builder()
            .method("POST")
            .uri(format!("/api/v1{path}"))
            .header("x-api-key", &self.test.key)
            .header("content-type", "application/json")
            .header("idempotency-key", key)
            .body(body.to_string().into())
            .unwrap();
        let answer = self.test.send(request).await;
        let status = answer.status().as_u16();
        let replayed = answer.headers().get("idempotent-replayed");
        let replayed = replayed.is_some_and(|value| value == "true");
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap(), replayed)
    }

    async fn change(&self, path: &str, body: Value) {
        let (status, answer) = self.test.call("PATCH", path, Some(body)).await;
        assert_eq!(status, 200, "{answer}");
    }

    async fn change_trunk(&self, body: Value) {
        self.change(&format!("/sip-trunks/{}", self.trunk), body)
            .await;
    }

    async fn calls(&self) -> u64 {
        let (_, list) = self.test.call("GET", "/calls", None).await;
        list["total"].as_u64().unwrap()
    }

    async fn record(&self, id: &Value) -> Value {
        let path = format!("/calls/{}", id.as_str().unwrap());
        self.test.call("GET", &path, None).await.1
    }

    async fn end(&self, call: &Value) -> Value {
        let path = format!("/calls/{}/end", call["call_id"].as_str().unwrap());
        let (status, answer) = self.test.call("POST", &path, Some(json!({}))).await;
        assert_eq!(status, 200, "{answer}");
        answer
    }
}

fn agent_body() -> Value {
    json!({"name": "Caller", "system_prompt": "Call people.", "voice_id": "scripted-tone", "llm_model": "echo"})
}

/// The body of an outbound trunk to this socket, with fields set.
fn trunk_to(carrier: &UdpSocket, fields: Value) -> Value {
    let mut trunk = json!({
        "name": "Silence", "type": "outbound", "auth_mode": "ip_acl",
        "outbound_address": carrier.local_addr().unwrap().to_string(), "max_concurrent_calls": 5_000,
    });
    for (name, value) in fields.as_object().unwrap() {
        trunk[name] = value.clone();
    }
    trunk
}

async fn made(test: &TestApp, path: &str, body: Value) -> String {
    let (status, made) = test.call("POST", path, Some(body)).await;
    assert_eq!(status, 201, "{path}: {made}");
    made["id"].as_str().unwrap().to_owned()
}

/// Status and slug.
#[track_caller]
fn refused((status, body): &(u16, Value), expected: u16, code: &str) {
    assert_eq!((*status, &body["code"]), (expected, &json!(code)), "{body}");
}

/// The one reason in a refusal of call dispatch.
fn reason(body: &Value) -> &Value {
    let recipients = body["detail"]["invalid_recipients"].as_array().unwrap();
    assert_eq!(recipients.len(), 1, "{body}");
    assert_eq!(recipients[0]["recipient_index"], 0);
    assert!(body["fields"].is_null(), "{body}");
    &recipients[0]["reason"]
}

#[tokio::test]
async fn a_call_is_taken_and_its_record_names_what_it_goes_over() {
    let desk = Desk::new().await;
    let mut wish = desk.wish();
    wish["metadata"] = json!({"order": 4711});
    wish["dynamic_variables"] = json!({"guest": "Kim"});
    wish["ring_timeout_seconds"] = json!(90);
    wish["max_duration_seconds"] = json!(60);
    let (status, call) = desk.place(wish).await;
    assert_eq!(status, 202, "{call}");
    assert_eq!(call["call_id"], call["conversation_id"]);
    assert_eq!(call["status"], "queued");
    assert_eq!(
        (&call["agent_id"], &call["to_number"], &call["from_number"]),
        (&json!(desk.agent), &json!(TO), &json!(FROM))
    );
    assert!(call["created_at"].is_string());
    let record = desk.record(&call["call_id"]).await;
    for (field, value) in [
        ("status", json!("queued")),
        ("direction", json!("outbound")),
        ("channel", json!("sip")),
        ("trunk_id", json!(desk.trunk)),
        ("phone_number_id", json!(desk.number)),
        ("metadata", json!({"order": 4711})),
        ("dynamic_variables", json!({"guest": "Kim"})),
        ("answered_at", json!(null)),
        ("ring_seconds", json!(null)),
        ("sip_code", json!(null)),
    ] {
        assert_eq!(record[field], value, "{field}: {record}");
    }
    let (status, call) = desk.trigger(desk.wish()).await;
    assert_eq!(status, 202, "{call}");
    assert_eq!(desk.calls().await, 2);
}

#[tokio::test]
async fn refusals_come_in_their_order() {
    let desk = Desk::with(
        |_| {},
        json!({"calls_per_hour_limit": 1, "max_concurrent_calls": 1}),
    )
    .await;
    let test = &desk.test;
    // Everything is wrong at first, and put right from the front.
    let elsewhere = json!({"destination_allowlist": {"mode": "allowlist", "entries": ["+33"]}});
    desk.change_trunk(elsewhere.clone()).await;
    let number = format!("/phone-numbers/{}", desk.number);
    desk.change(&number, json!({"outbound_enabled": false}))
        .await;
    let on_list = json!({"phone_number": TO});
    let entry = made(test, "/suppressions", on_list).await;
    let account = test.account;
    let admin = async |path: &str| {
        let path = format!("/admin/accounts/{account}/{path}");
        assert_eq!(test.call_as(ADMIN, "POST", &path, None).await.0, 200);
    };
    admin("block").await;
    let nobody = "0193a5c2-7d10-7c3e-9a41-5b6e2f0c1d22";
    let mut wish = json!({"agent_id": nobody, "to_number": "49301"});

    let reads = test.key_for(&[Scope::CallsRead]).await;
    for path in ["/calls", "/calls/trigger"] {
        let strange = test.call_as("st_live_x", "POST", path, Some(wish.clone()));
        refused(&plain(strange.await), 401, "unauthorized");
        let lacking = test.call_as(&reads, "POST", path, Some(wish.clone()));
        refused(&plain(lacking.await), 403, "insufficient_scope");
    }
    let answer = desk.trigger(wish.clone()).await;
    refused(&answer, 422, "validation_error");
    assert_eq!(answer.1["fields"][0]["loc"], json!(["body", "to_number"]));
    wish["to_number"] = json!(TO);
    refused(&desk.trigger(wish.clone()).await, 404, "not_found");
    wish["agent_id"] = json!(desk.agent);
    sql(test, "update agents set status = 'provisioning'").await;
    refused(&desk.trigger(wish.clone()).await, 409, "agent_not_ready");
    refused(&desk.place(wish.clone()).await, 409, "agent_not_ready");
    sql(test, "update agents set status = 'active'").await;
    refused(&desk.trigger(wish.clone()).await, 402, "billing.hard_block");
    admin("unblock").await;
    let answer = desk.trigger(wish.clone()).await;
    refused(&answer, 422, "validation_error");
    assert_eq!(reason(&answer.1), "from_number_required");
    wish["from_number"] = json!("+15559999");
    let answer = desk.trigger(wish.clone()).await;
    refused(&answer, 422, "validation_error");
    assert_eq!(reason(&answer.1), "not_registered");
    wish["from_number"] = json!(FROM);
    sql(test, "alter table suppressions rename to elsewhere").await;
    let answer = desk.trigger(wish.clone()).await;
    refused(&answer, 422, "validation_error");
    assert_eq!(reason(&answer.1), "outbound_disabled");
    desk.change(&number, json!({"outbound_enabled": true}))
        .await;
    let answer = desk.trigger(wish.clone()).await;
    refused(&answer, 503, "suppression_check_unavailable");
    sql(test, "alter table elsewhere rename to suppressions").await;
    refused(&desk.trigger(wish.clone()).await, 403, "number_suppressed");
    let release = format!("/suppressions/{entry}/release");
    assert_eq!(test.call("POST", &release, None).await.0, 200);
    refused(
        &desk.trigger(wish.clone()).await,
        403,
        "destination_not_allowed",
    );
    assert_eq!(desk.calls().await, 0, "nothing was spent on any of them");
    let here = json!({"destination_allowlist": {"mode": "allowlist", "entries": ["+49"]}});
    desk.change_trunk(here.clone()).await;
    let tone = control::voices::find("scripted-tone").unwrap();
    let tone = tone.id.to_string();
    let voice = async |from: &str, to: &str| {
        let change = "update agents set settings = replace(settings, $1, $2)";
        let change = test.app.db.query(change).bind(from).bind(to);
        change.execute().await.unwrap();
    };
    voice(&tone, "nobodys-voice").await;
    refused(&desk.trigger(wish.clone()).await, 422, "voice_unavailable");
    refused(&desk.place(wish.clone()).await, 422, "voice_unavailable");
    voice("nobodys-voice", &tone).await;
    let (status, first) = desk.trigger(wish.clone()).await;
    assert_eq!(status, 202, "{first}");
    // What may not be called is told before the hour that is full, and the hour before the slots.
    desk.change_trunk(elsewhere).await;
    let answer = desk.trigger(wish.clone()).await;
    refused(&answer, 403, "destination_not_allowed");
    desk.change_trunk(here).await;
    let answer = desk.trigger(wish.clone()).await;
    refused(&answer, 429, "capacity");
    assert_eq!(
        answer.1["error"],
        "The trunk has placed its 1 calls of this hour"
    );
    desk.change_trunk(json!({"calls_per_hour_limit": null}))
        .await;
    let answer = desk.trigger(wish.clone()).await;
    refused(&answer, 429, "capacity");
    assert_eq!(
        answer.1["error"],
        "Concurrent call limit of the trunk reached (1 of 1)"
    );
    desk.end(&first).await;
    assert_eq!(desk.trigger(wish).await.0, 202);
}

fn plain((status, body): (http::StatusCode, Value)) -> (u16, Value) {
    (status.as_u16(), body)
}

/// Breaks something, or puts it right.
async fn sql(test: &TestApp, text: &'static str) {
    test.app.db.query(text).execute().await.unwrap();
}

#[tokio::test]
async fn a_node_that_is_full_says_that_another_may_have_room() {
    let desk = Desk::with(|config| config.limits.node_calls = 1, json!({})).await;
    let (status, first) = desk.place(desk.wish()).await;
    assert_eq!(status, 202, "{first}");
    let both = [
        desk.place(desk.wish()).await,
        desk.trigger(desk.wish()).await,
    ];
    for answer in both {
        refused(&answer, 503, "service_unavailable");
        assert_eq!(
            (
                &answer.1["resource"],
                &answer.1["current"],
                &answer.1["cap"]
            ),
            (&json!("node"), &json!(1), &json!(1))
        );
        assert!(answer.1["retry_after"].as_u64().unwrap() > 0);
    }
    assert_eq!(desk.calls().await, 1, "no record is left");
    desk.end(&first).await;
    assert_eq!(desk.place(desk.wish()).await.0, 202);
}

/// The next call that the carrier is asked for. What it was asked for before comes again, for it is silent.
async fn invited(carrier: &tokio::net::UdpSocket, known: &mut Vec<String>) -> SipRequest {
    let mut buffer = vec![0; 65_536];
    loop {
        let heard = timeout(PATIENCE, carrier.recv(&mut buffer)).await;
        let length = heard.expect("an INVITE").unwrap();
        if let Ok(Some(Message::Request(request))) = parse(&buffer[..length], Framing::Datagram)
            && request.method == Method::Invite
            && !known.iter().any(|known| known == request.call_id())
        {
            known.push(request.call_id().to_owned());
            return request;
        }
    }
}

#[tokio::test]
async fn a_carrier_is_told_the_number_as_it_wants_it() {
    let desk = Desk::with(|_| {}, json!({"numbers": ["15550100"]})).await;
    let carrier = desk.carrier.try_clone().unwrap();
    carrier.set_nonblocking(true).unwrap();
    let carrier = tokio::net::UdpSocket::from_std(carrier).unwrap();
    let mut known = Vec::new();
    for (format, to, dialled) in [
        ("e164", TO, "+4930123456"),
        ("digits", TO, "4930123456"),
        ("national", TO, "030123456"),
        ("national", "+12025550123", "2025550123"),
    ] {
        desk.change_trunk(json!({"outbound_dial_format": format}))
            .await;
        let mut wish = desk.wish();
        wish["to_number"] = json!(to);
        let (status, call) = desk.trigger(wish).await;
        assert_eq!(status, 202, "{call}");
        let invite = invited(&carrier, &mut known).await;
        let called = invite.to().unwrap().uri;
        for uri in [&invite.uri, &called] {
            assert_eq!(uri.user().as_deref(), Some(dialled), "{format}");
        }
        // As the carrier was given it, whatever the callee's format.
        let from = invite.from().unwrap().uri;
        assert_eq!(from.user().as_deref(), Some("15550100"), "{format}");
        let preferred = Name::parse("P-Preferred-Identity");
        assert_eq!(invite.headers.get(&preferred), None);
        assert_eq!(desk.record(&call["call_id"]).await["to_number"], to);
    }
}

#[tokio::test]
async fn each_wrong_field_of_a_call_is_named() {
    let desk = Desk::new().await;
    let long = "x".repeat(17_000);
    for (field, wrong) in [
        ("agent_id", json!("")),
        ("agent_id", json!(null)),
        ("to_number", json!(null)),
        ("to_number", json!("4930123456")),
        ("to_number", json!("+0301234")),
        ("to_number", json!("+1234567890123456")),
        ("from_number", json!("15550100")),
        ("dynamic_variables", json!([])),
        ("dynamic_variables", json!({"system__channel": "x"})),
        ("dynamic_variables", json!({"a": {"b": 1}})),
        ("metadata", json!("x")),
        ("metadata", json!({"a": long})),
        ("max_duration_seconds", json!(29)),
        ("max_duration_seconds", json!(3601)),
        ("ring_timeout_seconds", json!(4)),
        ("ring_timeout_seconds", json!(91)),
        ("batch_id", json!("x")),
    ] {
        let mut wish = desk.wish();
        wish[field] = wrong.clone();
        let answer = desk.place(wish).await;
        refused(&answer, 422, "validation_error");
        assert_eq!(
            answer.1["fields"][0]["loc"][1], field,
            "{wrong}: {}",
            answer.1
        );
    }
    // What only POST /calls knows.
    for field in ["metadata", "max_duration_seconds", "ring_timeout_seconds"] {
        let mut wish = desk.wish();
        wish[field] = json!(30);
        let answer = desk.trigger(wish).await;
        refused(&answer, 422, "validation_error");
        assert_eq!(answer.1["fields"][0]["type"], "extra_forbidden");
    }
    // An agent's id of no form that it could have is an unknown one.
    let mut wish = desk.wish();
    wish["agent_id"] = json!("somebody");
    refused(&desk.trigger(wish).await, 404, "not_found");
    assert_eq!(desk.calls().await, 0);
}

#[tokio::test]
async fn nobody_calls_with_what_is_another_accounts() {
    let desk = Desk::new().await;
    let (_, other) = desk.test.other_account().await;
    let wish = desk.wish();
    let theirs = desk
        .test
        .call_as(&other, "POST", "/calls", Some(wish.clone()));
    refused(&plain(theirs.await), 404, "not_found");
    let (status, agent) = desk
        .test
        .call_as(&other, "POST", "/agents", Some(agent_body()))
        .await;
    assert_eq!(status, 201);
    let mut wish = wish;
    wish["agent_id"] = agent["id"].clone();
    let theirs = desk.test.call_as(&other, "POST", "/calls", Some(wish));
    let answer = plain(theirs.await);
    refused(&answer, 422, "validation_error");
    assert_eq!(reason(&answer.1), "not_registered");
}

#[tokio::test]
async fn a_suppressed_number_is_not_called_until_its_entry_is_released() {
    let desk = Desk::new().await;
    let own = json!({"phone_number": TO, "source": "person_request"});
    let entry = made(&desk.test, "/suppressions", own).await;
    let answer = desk.trigger(desk.wish()).await;
    refused(&answer, 403, "number_suppressed");
    assert_eq!(
        answer.1["detail"],
        json!({"suppression_id": entry, "source": "person_request", "releasable": false})
    );
    // Another number, and another account's list, are nobody's business.
    let mut wish = desk.wish();
    wish["to_number"] = json!("+4930999999");
    assert_eq!(desk.trigger(wish).await.0, 202);
    assert_eq!(desk.calls().await, 1);
}

#[tokio::test]
async fn a_do_not_call_list_that_cannot_be_read_places_no_call() {
    let desk = Desk::new().await;
    sql(&desk.test, "alter table suppressions rename to elsewhere").await;
    let answer = desk.trigger(desk.wish()).await;
    refused(&answer, 503, "suppression_check_unavailable");
    assert_eq!(desk.calls().await, 0);
    assert_eq!(desk.test.app.live.count_dialling(), 0);
}

#[tokio::test]
async fn a_trunk_calls_its_destinations_only() {
    let desk = Desk::new().await;
    for (mode, entries, allowed) in [
        ("allowlist", json!(["+33", "+4930"]), true),
        ("allowlist", json!(["+33"]), false),
        ("blocklist", json!(["+4930"]), false),
        ("blocklist", json!(["+4989"]), true),
    ] {
        let list = json!({"destination_allowlist": {"mode": mode, "entries": entries}});
        desk.change_trunk(list).await;
        let answer = desk.trigger(desk.wish()).await;
        if allowed {
            assert_eq!(answer.0, 202, "{mode}: {}", answer.1);
        } else {
            refused(&answer, 403, "destination_not_allowed");
            assert_eq!(
                answer.1["detail"],
                json!({"trunk_id": desk.trunk, "mode": mode})
            );
        }
    }
}

#[tokio::test]
async fn the_trunk_is_the_numbers_then_the_agents_then_the_accounts() {
    let desk = Desk::new().await;
    let test = &desk.test;
    let agents = made(test, "/sip-trunks", trunk_to(&desk.carrier, json!({}))).await;
    let default = made(test, "/sip-trunks", trunk_to(&desk.carrier, json!({}))).await;
    let path = format!("/agents/{}", desk.agent);
    desk.change(&path, json!({"outbound_trunk_id": agents}))
        .await;
    let path = format!("/sip-trunks/{default}/set-default-outbound");
    desk.change(&path, json!({})).await;
    for trunk in [&desk.trunk, &agents, &default] {
        let (status, call) = desk.trigger(desk.wish()).await;
        assert_eq!(status, 202, "{call}");
        assert_eq!(
            desk.record(&call["call_id"]).await["trunk_id"],
            json!(trunk)
        );
        let path = format!("/sip-trunks/{trunk}");
        desk.change(&path, json!({"status": "disabled"})).await;
    }
    refused(&desk.trigger(desk.wish()).await, 422, "trunk_inactive");
}

#[tokio::test]
async fn a_number_that_is_registered_as_its_country_writes_it_is_called_from_by_its_whole_name() {
    let desk = Desk::new().await;
    let register = async |number: &str| {
        let body =
            json!({"phone_number": number, "trunk_id": desk.trunk, "outbound_enabled": true});
        made(&desk.test, "/phone-numbers/sip/register", body).await
    };
    let own = register("030654321").await;
    // Its digits are those that a Spanish number has in Spain.
    register("+912345678").await;
    let mut wish = desk.wish();
    for stranger in ["+49306543210", "+34912345678"] {
        wish["from_number"] = json!(stranger);
        let answer = desk.trigger(wish.clone()).await;
        refused(&answer, 422, "validation_error");
        assert_eq!(reason(&answer.1), "not_registered", "{stranger}");
    }
    wish["from_number"] = json!("+4930654321");
    let (status, call) = desk.trigger(wish.clone()).await;
    assert_eq!(status, 202, "{call}");
    // In Brescia they dial the same; but the trunk is of a German carrier.
    register("+4930654399").await;
    wish["from_number"] = json!("+39030654321");
    let answer = desk.trigger(wish.clone()).await;
    refused(&answer, 422, "validation_error");
    assert_eq!(reason(&answer.1), "not_registered");
    wish["from_number"] = json!("+4930654321");
    assert_eq!(desk.trigger(wish).await.0, 202);
    let record = desk.record(&call["call_id"]).await;
    assert_eq!(
        (&record["phone_number_id"], &record["from_number"]),
        (&json!(own), &json!("+4930654321"))
    );
}

#[tokio::test]
async fn a_number_without_a_national_form_is_not_dialled_in_one() {
    let desk = Desk::with(|_| {}, json!({"outbound_dial_format": "national"})).await;
    let mut wish = desk.wish();
    assert_eq!(desk.trigger(wish.clone()).await.0, 202);
    wish["to_number"] = json!("+999123456789");
    let answer = desk.trigger(wish).await;
    refused(&answer, 422, "validation_error");
    assert_eq!(answer.1["fields"][0]["loc"], json!(["body", "to_number"]));
}

#[tokio::test]
async fn a_trunk_s_hour_ends_when_its_first_call_is_an_hour_old() {
    let desk = Desk::with(|_| {}, json!({"calls_per_hour_limit": 2})).await;
    let clock = desk.test.app.clock.clone();
    assert_eq!(desk.trigger(desk.wish()).await.0, 202);
    clock.advance(Duration::from_secs(600));
    assert_eq!(desk.trigger(desk.wish()).await.0, 202);
    clock.advance(Duration::from_secs(600));
    let answer = desk.trigger(desk.wish()).await;
    refused(&answer, 429, "capacity");
    for (key, value) in [
        ("reason", json!("capacity")),
        ("resource_class", json!("call")),
        ("resource", json!("trunk")),
        ("current", json!(2)),
        ("cap", json!(2)),
        ("retry_after", json!(2400)),
    ] {
        assert_eq!(answer.1[key], value, "{key}");
    }
    clock.advance(Duration::from_millis(2_399_999));
    let answer = desk.trigger(desk.wish()).await;
    assert_eq!((answer.0, &answer.1["retry_after"]), (429, &json!(1)));
    clock.advance(Duration::from_millis(1));
    assert_eq!(desk.trigger(desk.wish()).await.0, 202);
    assert_eq!(
        desk.trigger(desk.wish()).await.0,
        429,
        "the second is still of this hour"
    );
}

#[tokio::test]
async fn a_trunk_s_hour_and_a_request_s_day_follow_no_wall_clock() {
    for seconds in [3_600, -3_600, 86_400, -86_400] {
        let desk = Desk::with(|_| {}, json!({"calls_per_hour_limit": 1})).await;
        let (clock, wish) = (desk.test.app.clock.clone(), desk.wish());
        let (status, call, _) = desk.named("order-1", "/calls", &wish).await;
        assert_eq!(status, 202, "{call}");
        clock.step(seconds);
        let (status, again, replayed) = desk.named("order-1", "/calls", &wish).await;
        assert_eq!(
            (status, replayed, &again),
            (202, true, &call),
            "{seconds} s"
        );
        let answer = desk.trigger(wish.clone()).await;
        assert_eq!(
            (answer.0, &answer.1["retry_after"]),
            (429, &json!(3600)),
            "{seconds} s"
        );
        clock.advance(Duration::from_secs(3600));
        assert_eq!(desk.trigger(wish).await.0, 202, "{seconds} s");
    }
}

#[tokio::test]
async fn a_request_that_is_sent_again_dials_nobody_twice() {
    let desk = Desk::with(|_| {}, json!({"max_concurrent_calls": 1})).await;
    let wish = desk.wish();
    let (status, call, replayed) = desk.named("order-1", "/calls", &wish).await;
    assert_eq!((status, replayed), (202, false), "{call}");
    // The trunk is full now; what was answered before is answered again.
    let (status, again, replayed) = desk.named("order-1", "/calls", &wish).await;
    assert_eq!((status, replayed, &again), (202, true, &call));
    let mut other = wish.clone();
    other["to_number"] = json!("+4930999999");
    let (status, conflict, _) = desk.named("order-1", "/calls", &other).await;
    refused(&(status, conflict), 409, "idempotency_conflict");
    let (status, conflict, _) = desk.named("order-1", "/calls/trigger", &wish).await;
    refused(&(status, conflict), 409, "idempotency_conflict");
    assert_eq!(desk.calls().await, 1);
    // What was refused made nothing, and may be sent again.
    let (status, full, _) = desk.named("order-2", "/calls", &wish).await;
    refused(&(status, full), 429, "capacity");
    desk.end(&call).await;
    let (status, second, replayed) = desk.named("order-2", "/calls", &wish).await;
    assert_eq!((status, replayed), (202, false), "{second}");
    desk.end(&second).await;
    // Another account's key of the same name is another key.
    let (_, other) = desk.test.other_account().await;
    let theirs = desk
        .test
        .call_as(&other, "POST", "/calls", Some(wish.clone()));
    assert_eq!(theirs.await.0, 404);
    // After a day it is forgotten.
    desk.test.app.clock.advance(Duration::from_secs(24 * 3600));
    let (status, new, replayed) = desk.named("order-1", "/calls", &wish).await;
    assert_eq!((status, replayed), (202, false), "{new}");
    assert_ne!(new["call_id"], call["call_id"]);
}

#[tokio::test]
async fn of_a_crowd_with_one_key_one_is_dialled_and_all_hear_the_same() {
    let desk = Desk::new().await;
    let wish = desk.wish();
    let crowd = (0..20).map(|_| desk.named("order-1", "/calls", &wish));
    let answers = join_all(crowd).await;
    let first = answers[0].1["call_id"].clone();
    assert!(first.is_string());
    let placed = answers.iter().filter(|(_, _, replayed)| !replayed);
    assert_eq!(placed.count(), 1);
    for (status, answer, _) in &answers {
        assert_eq!((*status, &answer["call_id"]), (202, &first), "{answer}");
    }
    assert_eq!(desk.calls().await, 1);
    assert_eq!(desk.test.app.live.count_dialling(), 1);
}

#[tokio::test]
async fn a_key_that_is_none_is_named() {
    let desk = Desk::new().await;
    let (status, answer, _) = desk.named(&"k".repeat(201), "/calls", &desk.wish()).await;
    refused(&(status, answer.clone()), 422, "validation_error");
    assert_eq!(
        answer["fields"][0]["loc"],
        json!(["header", "Idempotency-Key"])
    );
    assert_eq!(desk.calls().await, 0);
}

#[tokio::test]
async fn a_call_that_nobody_answered_yet_is_canceled_once_and_gives_its_slot_back() {
    let desk = Desk::with(|_| {}, json!({"max_concurrent_calls": 1})).await;
    let path = format!("/agents/{}", desk.agent);
    desk.change(
        &path,
        json!({"webhook_url": "https://hooks.acme.com/calls"}),
    )
    .await;
    let (_, call) = desk.place(desk.wish()).await;
    let ended = desk.end(&call).await;
    assert_eq!(ended["end_reason"], "ended_by_api");
    assert_eq!(ended["already_ended"], false);
    assert_eq!(desk.end(&call).await["already_ended"], true);
    let record = desk.record(&call["call_id"]).await;
    for (field, value) in [
        ("status", json!("canceled")),
        ("end_reason", json!("ended_by_api")),
        ("ended_by", json!("api")),
        ("duration_seconds", json!(0.0)),
        ("answered_at", json!(null)),
        ("sip_code", json!(null)),
        ("cost_cents", json!(0)),
        ("has_recording", json!(false)),
    ] {
        assert_eq!(record[field], value, "{field}: {record}");
    }
    let events = desk
        .test
        .app
        .db
        .query("select body from events where call_id = $1 and type = 'call.ended'")
        .bind(call["call_id"].as_str().unwrap())
        .all(|row| row.json::<Value>("body"))
        .await
        .unwrap();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["status"], "canceled");
    assert_eq!(events[0]["to_number"], TO);
    let (status, next) = desk.place(desk.wish()).await;
    assert_eq!(status, 202, "{next}");
}

#[tokio::test]
async fn a_server_that_ends_takes_no_calls_and_lets_go_of_those_that_ring() {
    let desk = Desk::new().await;
    let (_, call) = desk.place(desk.wish()).await;
    desk.test.app.start_draining();
    refused(&desk.place(desk.wish()).await, 503, "service_unavailable");
    desk.test.app.live.cancel_dialling();
    assert!(desk.test.app.live.drained(Duration::from_secs(10)).await);
    let record = desk.record(&call["call_id"]).await;
    assert_eq!(
        (&record["status"], &record["ended_by"]),
        (&json!("canceled"), &json!("system")),
        "{record}"
    );
}

/// Whoever gives up while a call is being placed leaves no slot taken and no call that is queued for ever.
#[tokio::test]
async fn a_client_who_goes_while_a_call_is_placed_leaves_none_behind() {
    let desk = Desk::new().await;
    let app = &desk.test.app;
    for polls in 1..=60 {
        let asking = desk.test.call("POST", "/calls", Some(desk.wish()));
        abandoned(asking, polls).await;
    }
    let nobodys = "select id from calls where ended_at is null";
    let until = tokio::time::Instant::now() + PATIENCE;
    loop {
        app.live.cancel_dialling();
        let open = app.db.query(nobodys).all(|row| row.text("id")).await;
        let open = open.unwrap().len();
        app.admission.settled().await;
        let taken = app.admission.counts().await.unwrap().live;
        let placing = app.live.count_dialling();
        if (open, taken, placing) == (0, 0, 0) {
            break;
        }
        assert!(
            tokio::time::Instant::now() < until,
            "{open} open, {taken} slots, {placing} being placed"
        );
        tokio::task::yield_now().await;
    }
    assert!(desk.calls().await > 0, "some were placed");
}
