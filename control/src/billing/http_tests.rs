//! Balances and blocks, as clients and the operator see them.

#![allow(clippy::unwrap_used, reason = "a test may stop at a surprise")]

use serde_json::{Value, json};

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::admission::{Renewal, State};
use crate::billing::guard;
use crate::calls::dial::store::Placing;
use crate::calls::live::{Canceled, Dialling};
use crate::calls::{self, bridge};
use crate::config::{BillingMode, Config, Prices};
use crate::http::Endpoint;
use crate::ids::{AgentId, CallId};
use crate::secret::Secret;
use crate::testing::TestApp;
use crate::usage::{Resource, Used, record};

const ADMIN: &str = "swordfish-of-the-operator";

fn prepaid(config: &mut Config) {
    config.admin_token = Some(Secret::new(ADMIN.to_owned()));
    config.billing.mode = BillingMode::Prepaid;
    config.billing.action_url = Some("https://acme.com/credit".to_owned());
    config.billing.prices = Prices {
        tts_thousand_characters_millicents: 1_500,
        ..Prices::default()
    };
}

async fn speak(test: &TestApp, characters: i64, source: &str) -> i64 {
    let mut tx = test.app.db.begin_write().await.unwrap();
    let used = Used {
        resource: Resource::TtsCharacters,
        amount: characters,
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

async fn balance(test: &TestApp) -> (Value, Value) {
    let (status, mut answer) = test.call("GET", "/billing/status", None).await;
    assert_eq!((status, &answer["enabled"]), (StatusCode::OK, &json!(true)));
    (
        answer["balance_cents"].take(),
        answer["hard_blocked"].take(),
    )
}

#[tokio::test]
async fn credit_is_given_spent_and_runs_out() {
    let test = TestApp::with(prepaid).await;
    assert_eq!(balance(&test).await, (json!(0), json!(true)));
    let body = json!({"account_id": test.account, "amount_cents": 3, "note": "welcome"});
    let (status, made) = test
        .call_as(ADMIN, "POST", "/billing/adjustments", Some(body))
        .await;
    assert_eq!(status, StatusCode::CREATED, "{made}");
    assert_eq!(
        (&made["balance_cents"], &made["note"]),
        (&json!(3), &json!("welcome"))
    );
    assert_eq!(balance(&test).await, (json!(3), json!(false)));
    // 1.2 cents: 800 characters at 1.5 cents a thousand.
    assert_eq!(speak(&test, 800, "tts:1").await, 1_200_000);
    assert_eq!(speak(&test, 800, "tts:1").await, 0);
    assert_eq!(balance(&test).await, (json!(1), json!(false)));
    speak(&test, 800, "tts:2").await;
    assert_eq!(balance(&test).await, (json!(0), json!(true)));
    speak(&test, 800, "tts:3").await;
    assert_eq!(balance(&test).await, (json!(-1), json!(true)));
}

#[tokio::test]
async fn adjustments_are_the_operators() {
    let test = TestApp::with(prepaid).await;
    let body = json!({"account_id": test.account, "amount_cents": 3});
    let adjust = "/billing/adjustments";
    let (status, _) = test.call("POST", adjust, Some(body.clone())).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    let unknown = json!({"account_id": uuid::Uuid::new_v4(), "amount_cents": 3});
    let (status, answer) = test.call_as(ADMIN, "POST", adjust, Some(unknown)).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(answer["detail"][0]["loc"], json!(["body", "account_id"]));
    let test = TestApp::new().await;
    for path in [adjust, "/admin/accounts"] {
        let (status, _) = test.call_as(ADMIN, "POST", path, Some(body.clone())).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{path} without a token set");
    }
}

#[tokio::test]
async fn a_blocked_account_gets_402_where_it_would_spend() {
    let test = TestApp::with(prepaid).await;
    let agent = uuid::Uuid::new_v4();
    let body = json!({"agent_id": agent, "transport": "websocket"});
    let connect = "/conversation/connect";
    let (status, refused) = test.call("POST", connect, Some(body.clone())).await;
    assert_eq!(
        (status, &refused["code"]),
        (StatusCode::PAYMENT_REQUIRED, &json!("billing.hard_block"))
    );
    assert_eq!(
        refused["detail"],
        json!({
            "code": "billing.hard_block",
            "message": "This account has no credit left",
            "action_url": "https://acme.com/credit",
        })
    );
    assert_eq!(refused["error"], refused["detail"]["message"]);
    // Reading goes on.
    assert_eq!(test.call("GET", "/calls", None).await.0, StatusCode::OK);
    crate::billing::adjust(&test.app.db, &test.app.clock, test.account, 100, None)
        .await
        .unwrap();
    assert_eq!(
        test.call("POST", connect, Some(body)).await.0,
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn the_operator_blocks_and_unblocks_whatever_the_mode() {
    let test = TestApp::with(|config| {
        config.admin_token = Some(Secret::new(ADMIN.to_owned()));
    })
    .await;
    let path = format!("/admin/accounts/{}", test.account);
    let block = format!("{path}/block");
    let (status, blocked) = test
        .call_as(ADMIN, "POST", &block, Some(json!({"reason": "unpaid"})))
        .await;
    assert_eq!(status, StatusCode::OK, "{blocked}");
    assert_eq!(
        (&blocked["hard_blocked"], &blocked["block_reason"]),
        (&json!(true), &json!("unpaid"))
    );
    let body = json!({"agent_id": uuid::Uuid::new_v4(), "transport": "websocket"});
    let connect = async || {
        test.call("POST", "/conversation/connect", Some(body.clone()))
            .await
    };
    let (status, refused) = connect().await;
    assert_eq!(status, StatusCode::PAYMENT_REQUIRED);
    assert_eq!(refused["detail"]["action_url"], json!(null));
    let (_, standing) = test.call("GET", "/billing/status", None).await;
    assert_eq!(
        standing,
        json!({"enabled": false, "hard_blocked": true, "balance_cents": 0})
    );
    let (status, open) = test
        .call_as(ADMIN, "POST", &format!("{path}/unblock"), None)
        .await;
    assert_eq!(
        (status, &open["blocked_at"]),
        (StatusCode::OK, &json!(null))
    );
    assert_eq!(connect().await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn accounts_are_made_named_and_given_keys_by_the_operator() {
    let test = TestApp::with(prepaid).await;
    let admin = async |method, path: &str, body| test.call_as(ADMIN, method, path, body).await;
    let (status, made) = admin("POST", "/admin/accounts", Some(json!({"name": "new"}))).await;
    assert_eq!(status, StatusCode::CREATED);
    let path = format!("/admin/accounts/{}", made["id"].as_str().unwrap());
    assert_eq!(admin("GET", &path, None).await.1, made);
    let (status, renamed) = admin("PATCH", &path, Some(json!({"name": "newer"}))).await;
    assert_eq!(
        (status, &renamed["name"]),
        (StatusCode::OK, &json!("newer"))
    );
    let (status, taken) = admin("PATCH", &path, Some(json!({"name": "default"}))).await;
    assert_eq!(
        (status, &taken["code"]),
        (StatusCode::CONFLICT, &json!("name_taken"))
    );
    let key = json!({"name": "first", "scopes": ["usage:read"]});
    let (status, key) = admin("POST", &format!("{path}/api-keys"), Some(key)).await;
    assert_eq!(status, StatusCode::CREATED, "{key}");
    let (status, _) = test
        .call_as(key["key"].as_str().unwrap(), "GET", "/billing/status", None)
        .await;
    assert_eq!(status, StatusCode::OK);
    let unknown = format!("/admin/accounts/{}", uuid::Uuid::new_v4());
    for (method, path) in [
        ("GET", unknown.clone()),
        ("POST", format!("{unknown}/block")),
        ("POST", format!("{unknown}/unblock")),
    ] {
        assert_eq!(admin(method, &path, None).await.0, StatusCode::NOT_FOUND);
    }
}

#[tokio::test]
async fn what_rings_for_a_blocked_account_is_let_go() {
    let test = TestApp::with(prepaid).await;
    let (other, _) = test.other_account().await;
    let credit = json!({"account_id": other, "amount_cents": 3});
    let (status, _) = test
        .call_as(ADMIN, "POST", "/billing/adjustments", Some(credit))
        .await;
    assert_eq!(status, StatusCode::CREATED);
    let mut ringing = Vec::new();
    for account in [test.account, other] {
        let id = CallId::new(&test.app.clock);
        let call = calls::store::NewCall {
            id,
            agent_id: AgentId::new(&test.app.clock),
            agent_name: "Reception",
            direction: "outbound",
            channel: "sip",
            language: "english",
            from_number: None,
            to_number: None,
            phone_number_id: None,
            trunk_id: None,
            matched_by: None,
            from_withheld: false,
            dynamic_variables: &json!({}),
        };
        let placing = Placing {
            metadata: &json!({}),
            forwards: None,
            max_duration_seconds: None,
            node: &test.app.config.cluster.node,
            incarnation: test.app.incarnation.number,
            placed_at: test.app.clock.shared(),
        };
        let mut tx = test.app.db.begin_write().await.unwrap();
        let now = test.app.clock.now();
        calls::store::insert(&mut tx, account, &call, now)
            .await
            .unwrap();
        calls::dial::store::host(&mut tx, account, id, &placing, now)
            .await
            .unwrap();
        tx.commit().await.unwrap();
        let wish = bridge::wish(&test.app, account, id, State::Live);
        let dialling = Arc::new(Dialling::new(account, Renewal::from(&wish)));
        test.app.live.dial(id, Arc::clone(&dialling));
        ringing.push(dialling);
    }
    assert_eq!(guard::sweep(&test.app).await.unwrap(), 1);
    let within = Duration::from_millis(50);
    let by = tokio::time::timeout(within, ringing[0].canceled()).await;
    assert_eq!(by.unwrap(), Canceled::Blocked);
    let by = tokio::time::timeout(within, ringing[1].canceled()).await;
    assert!(by.is_err(), "another account's call rings on");
}

#[test]
fn every_route_that_makes_calls_or_speech_asks_for_credit() {
    let spends = |endpoint: &Endpoint| endpoint.spends;
    let all = crate::routes::endpoints();
    assert!(all.iter().any(spends));
    for endpoint in all {
        let costs = matches!(endpoint.class, Class::CallCreation | Class::Tts);
        assert!(!costs || endpoint.spends, "{}", endpoint.path);
    }
}
