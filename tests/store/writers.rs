//! Those who write at the same time.

use std::collections::BTreeSet;

use control::agents::rules::{World, change};
use control::agents::store::{self as agents, Update};
use control::app::Incarnation;
use control::calls::journal::Owner;
use control::calls::store as calls;
use control::config::{BillingMode, Prices};
use control::db::{Db, Tx};
use control::egress::Allow;
use control::ids::{AccountId, AgentId, CallId};
use control::secret::Secret;
use control::sessions::store as sessions;
use control::testing::TestApp;
use control::time::Clock;
use control::usage::{CallUse, Resource, record_call, record_request};
use futures_util::future::join_all;
use serde_json::{Map, Value, json};

fn world(allow: &Allow) -> World<'_> {
    World {
        voice: |_| Some(uuid::Uuid::nil()),
        model: |_| true,
        trunk: None,
        sender: None,
        egress: allow,
    }
}

fn map(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

async fn agent(db: &Db, clock: &Clock) -> (AccountId, AgentId) {
    let account = control::accounts::ensure(db, clock, "a").await.unwrap();
    let body = map(json!({"name": "A", "system_prompt": "Be kind.", "voice_id": "v"}));
    let allow = Allow::default();
    let (stored, settings) = change(&Map::new(), &body, &world(&allow)).unwrap();
    let id = AgentId::new(clock);
    let mut tx = db.begin_write().await.unwrap();
    let now = clock.now();
    let made = agents::create(&mut tx, account, id, stored, settings, now).await;
    made.unwrap();
    tx.commit().await.unwrap();
    (account, id)
}

async fn call(db: &Db, account: AccountId, agent: AgentId, clock: &Clock, token: &str) -> CallId {
    let mut tx = db.begin_write().await.unwrap();
    let id = call_in(&mut tx, (account, agent), clock, token, None).await;
    tx.commit().await.unwrap();
    id
}

async fn call_in(
    tx: &mut Tx,
    (account, agent): (AccountId, AgentId),
    clock: &Clock,
    token: &str,
    visitor: Option<&str>,
) -> CallId {
    let (id, now) = (CallId::new(clock), clock.now());
    let call = calls::NewCall {
        id,
        agent_id: agent,
        agent_name: "A",
        direction: "inbound",
        channel: "websocket",
        language: "english",
        from_number: None,
        to_number: Some("+4930123456"),
        phone_number_id: None,
        trunk_id: None,
        matched_by: None,
        from_withheld: false,
        dynamic_variables: &json!({}),
    };
    let session = sessions::NewSession {
        id,
        transport: "websocket",
        protocol: "native",
        audio_format: "pcm_16000",
        token_hash: token,
        keyless: false,
        opened_by: None,
        visitor,
        expires_at: now.plus(std::time::Duration::from_secs(60)),
    };
    calls::insert(tx, account, &call, now).await.unwrap();
    let opened = sessions::insert(tx, account, &session, now).await;
    opened.unwrap();
    id
}

#[tokio::test]
async fn changes_at_the_same_time_are_all_kept() {
    for place in crate::both().await {
        let (db, clock, allow) = (&place.db, Clock::system(), Allow::default());
        let (account, id) = agent(db, &clock).await;
        let world = world(&allow);
        let changes = (0..20).map(async |n| {
            let body = map(json!({"metadata": {format!("key{n}"): n}}));
            let body = match n % 2 {
                0 => body,
                _ => map(json!({"max_turns": n + 1})),
            };
            match agents::update(db, account, id, &body, &world, clock.now()).await {
                Ok(Update::Done(agent)) => agent.version,
                other => panic!("{other:?}"),
            }
        });
        // Each saw the one before it: no version stands twice.
        let versions: BTreeSet<i64> = join_all(changes).await.into_iter().collect();
        assert_eq!(versions, (2..=21).collect(), "{:?}", db.engine());
    }
}

#[tokio::test]
async fn of_many_who_join_one_does() {
    for place in crate::both().await {
        let (db, clock) = (&place.db, Clock::system());
        let (account, agent) = agent(db, &clock).await;
        let id = call(db, account, agent, &clock, "token").await;
        let joins = (0..30).map(async |_| {
            let mut tx = db.begin_write().await.unwrap();
            let won = sessions::consume(&mut tx, id, "token", clock.now()).await;
            let won = won.unwrap().is_some();
            tx.commit().await.unwrap();
            won
        });
        let won = join_all(joins).await.into_iter().filter(|won| *won).count();
        assert_eq!(won, 1, "{:?}", db.engine());
    }
}

#[tokio::test]
async fn a_visitor_who_asks_many_times_at_once_has_as_many_calls_as_allowed() {
    for place in crate::both().await {
        let (db, clock) = (&place.db, Clock::system());
        let of = agent(db, &clock).await;
        // Another one has calls of their own.
        let mut tx = db.begin_write().await.unwrap();
        call_in(&mut tx, of, &clock, "other", Some("192.0.2.8")).await;
        tx.commit().await.unwrap();
        let clock = &clock;
        let asked = (0..12).map(async |number| {
            let mut tx = db.begin_write().await.unwrap();
            let open = sessions::open_of_visitor(&mut tx, "192.0.2.7").await;
            let is_let_in = open.unwrap() < 3;
            if is_let_in {
                let token = format!("token {number}");
                call_in(&mut tx, of, clock, &token, Some("192.0.2.7")).await;
            }
            tx.commit().await.unwrap();
            is_let_in
        });
        let asked = join_all(asked).await.into_iter();
        assert_eq!(
            asked.filter(|let_in| *let_in).count(),
            3,
            "{:?}",
            db.engine()
        );
    }
}

#[tokio::test]
async fn a_call_ends_once_and_takes_no_turn_afterwards() {
    for place in crate::both().await {
        let (db, clock) = (&place.db, Clock::system());
        let (account, agent) = agent(db, &clock).await;
        let id = call(db, account, agent, &clock, "token").await;
        let host = Incarnation::take(db, "store").await.unwrap().number;
        let mut tx = db.begin_write().await.unwrap();
        let now = clock.now();
        assert!(
            calls::take(&mut tx, account, id, "n", host, now)
                .await
                .unwrap()
        );
        tx.commit().await.unwrap();
        let turn = async |index: u32, incarnation: i64| {
            let body = json!({"index": index}).to_string();
            let turn = calls::NewTurn {
                index,
                body: &body,
                text: "Words.",
            };
            let owner = Owner {
                account,
                call: id,
                incarnation,
            };
            // By itself, and once more among others.
            calls::insert_lone_turn(db, owner, &turn, clock.now())
                .await
                .unwrap();
            let mut tx = db.begin_write().await.unwrap();
            calls::insert_turn(&mut tx, owner, &turn, clock.now())
                .await
                .unwrap();
            tx.commit().await.unwrap();
        };
        turn(0, host).await;
        turn(0, host).await;
        turn(1, host + 1).await;
        let ending = control::calls::rules::Ending::node_lost(None);
        let ends = (0..20).map(async |_| {
            let mut tx = db.begin_write().await.unwrap();
            let ended = calls::finish(&mut tx, account, id, host, &ending, None, clock.now()).await;
            let ended = ended.unwrap();
            tx.commit().await.unwrap();
            ended
        });
        let ended = join_all(ends).await.into_iter().filter(|ended| *ended);
        assert_eq!(ended.count(), 1, "{:?}", db.engine());
        turn(2, host).await;
        let row = calls::get(db, account, id).await.unwrap().unwrap();
        assert_eq!(
            (row.turn_count, row.end_reason.as_deref()),
            (1, Some("node_lost"))
        );
        let turns = calls::turns(db, account, id).await.unwrap();
        assert_eq!(turns, [json!({"index": 0})]);
        let filter = calls::Filter {
            status: Some("failed".to_owned()),
            phone: Some("+4930123456".to_owned()),
            from: Some(row.created_at),
            ..Default::default()
        };
        let (rows, total) = calls::list(db, account, &filter, 10, 0).await.unwrap();
        assert_eq!((rows.len(), total), (1, 1));
        let other = AccountId::new(&clock);
        assert!(calls::get(db, other, id).await.unwrap().is_none());
    }
}

#[tokio::test]
async fn an_agent_is_not_deleted_under_a_call_that_begins() {
    for place in crate::both().await {
        let (db, clock) = (&place.db, Clock::system());
        let (account, id) = agent(db, &clock).await;
        let mut tx = db.begin_write().await.unwrap();
        assert!(agents::hold(&mut tx, account, id).await.unwrap());
        let delete = async {
            let mut tx = db.begin_write().await.unwrap();
            let gone = agents::delete(&mut tx, account, id).await.unwrap();
            let live = calls::agent_is_live(&mut tx, account, id).await.unwrap();
            (gone, live)
        };
        let begin = async {
            let now = clock.now();
            let call = calls::NewCall {
                id: CallId::new(&clock),
                agent_id: id,
                agent_name: "A",
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
            // Long enough for the other to come to where it has to wait.
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            calls::insert(&mut tx, account, &call, now).await.unwrap();
            tx.commit().await.unwrap();
        };
        let (seen, ()) = tokio::join!(delete, begin);
        assert_eq!(seen, (true, true), "{:?}", db.engine());
    }
}

#[tokio::test]
async fn work_is_claimed_by_one() {
    for place in crate::both().await {
        let db = &place.db;
        let table = "create table jobs (id bigint primary key, owner bigint)";
        db.query(table).execute().await.unwrap();
        for id in 0..40_i64 {
            let insert = db.query("insert into jobs (id) values ($1)").bind(id);
            insert.execute().await.unwrap();
        }
        let claims = (0..8_i64).map(async |worker| {
            let mut mine = Vec::new();
            loop {
                let mut tx = db.begin_write().await.unwrap();
                let skip = tx.engine().skip_locked();
                let sql = format!(
                    "update jobs set owner = $1 where id in
                        (select id from jobs where owner is null order by id limit 3{skip})
                     returning id"
                );
                let claim = tx.query_built(sql).bind(worker);
                let claimed = claim.all(|row| row.i64("id")).await.unwrap();
                tx.commit().await.unwrap();
                if claimed.is_empty() {
                    return mine;
                }
                mine.extend(claimed);
            }
        });
        let all: Vec<i64> = join_all(claims).await.into_iter().flatten().collect();
        assert_eq!(all.len(), 40, "{:?}", db.engine());
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 40);
    }
}

#[tokio::test]
async fn what_calls_and_syntheses_use_is_written_down_in_one_order() {
    let url = kit::postgres::shared().database().await;
    let test = TestApp::with(|config| {
        config.database.url = Secret::new(url);
        config.billing.mode = BillingMode::Prepaid;
        config.billing.prices = Prices {
            call_minute_millicents: 1_000,
            tts_thousand_characters_millicents: 1_000_000,
            ..Prices::default()
        };
    });
    let test = test.await;
    let (app, account) = (&test.app, test.account);
    let call = async || {
        let (who, now) = ((CallId::new(&app.clock), AgentId::NIL), app.clock.now());
        let used = CallUse {
            duration_ms: 60_000,
            characters: 7,
            heard_ms: 1_000,
            tokens: 3,
        };
        let mut tx = app.db.begin_write().await.unwrap();
        let cost = record_call(app, &mut tx, account, who, used, now).await;
        assert_eq!(cost.unwrap(), 1_000_000);
        tx.commit().await.unwrap();
    };
    let synthesis = async || {
        let (resource, request) = (Resource::TtsCharacters, uuid::Uuid::new_v4());
        let written = record_request(app, account, resource, 1, request).await;
        written.unwrap();
    };
    // None waits for another that waits for it, which the server would end after a second.
    let rounds = (0..20).map(async |_| tokio::join!(call(), synthesis(), synthesis()));
    join_all(rounds).await;
    let standing = control::billing::standing(app, account).await.unwrap();
    assert_eq!(standing.balance_microcents, -20 * 3_000_000);
}

#[tokio::test]
async fn of_many_who_cross_a_threshold_one_fires_until_it_is_changed() {
    let url = kit::postgres::shared().database().await;
    let test = TestApp::with(|config| config.database.url = Secret::new(url)).await;
    let trigger = json!({
        "name": "x", "resource_type": "tts_characters", "threshold_type": "absolute",
        "threshold_value": 5, "period": "month", "event_callback_url": "https://hooks.acme.com/",
    });
    let (status, made) = test.call("POST", "/usage/triggers", Some(trigger)).await;
    assert_eq!(status, 201, "{made}");
    let path = format!("/usage/triggers/{}", made["id"].as_str().unwrap());
    let uses = async || {
        let uses = (0..10).map(async |_| {
            let (resource, request) = (Resource::TtsCharacters, uuid::Uuid::new_v4());
            let written = record_request(&test.app, test.account, resource, 1, request).await;
            written.unwrap();
        });
        join_all(uses).await;
        let (_, fired) = test.call("GET", &format!("{path}/firings"), None).await;
        fired["total"].clone()
    };
    assert_eq!((uses().await, uses().await), (json!(1), json!(1)));
    let change = json!({"threshold_value": 6});
    let (status, _) = test.call("PATCH", &path, Some(change)).await;
    assert_eq!(status, 200);
    assert_eq!((uses().await, uses().await), (json!(2), json!(2)));
}

/// Who chooses the default trunk at the same time is not told that the server failed.
#[tokio::test]
async fn of_many_who_choose_the_default_trunk_each_is_heard_and_one_stands() {
    let url = kit::postgres::shared().database().await;
    let test = TestApp::with(|config| config.database.url = Secret::new(url)).await;
    let body = |number: u32| {
        json!({"name": "Acme", "outbound_address": "sip.acme.com", "auth_mode": "ip_acl",
            "numbers": [format!("+1555{number:06}")], "set_as_tenant_default": true})
    };
    let onboard = async |number: u32| {
        let body = Some(body(number));
        let (status, made) = test.call("POST", "/sip-trunks/onboard", body).await;
        assert_eq!(status, 201, "{made}");
        made["trunk"]["id"].as_str().unwrap().to_owned()
    };
    let trunks = join_all((0..8).map(onboard)).await;
    for _ in 0..8 {
        let chosen = trunks.iter().map(async |trunk| {
            let path = format!("/sip-trunks/{trunk}/set-default-outbound");
            let (status, answer) = test.call("PATCH", &path, None).await;
            assert_eq!(status, 200, "{answer}");
        });
        join_all(chosen).await;
    }
    let (_, list) = test.call("GET", "/sip-trunks", None).await;
    let items = list["items"].as_array().unwrap();
    let default = items.iter().filter(|it| it["is_default_outbound"] == true);
    assert_eq!((items.len(), default.count()), (8, 1));
}

#[tokio::test]
async fn of_many_trunks_that_take_a_user_name_one_gets_it() {
    let url = kit::postgres::shared().database().await;
    let test = TestApp::with(|config| config.database.url = Secret::new(url)).await;
    let make = async |number: u32| {
        let body = json!({"name": "Acme in", "type": "inbound", "auth_username": format!("u{number}"),
            "auth_password": "p"});
        let (status, made) = test.call("POST", "/sip-trunks", Some(body)).await;
        assert_eq!(status, 201, "{made}");
        made["id"].as_str().unwrap().to_owned()
    };
    let trunks = join_all((0..8).map(make)).await;
    for round in 0..8 {
        let taken = trunks.iter().map(async |trunk| {
            let body = json!({"auth_mode": "digest", "auth_username": format!("r{round}"),
                "auth_password": "p"});
            let path = format!("/sip-trunks/{trunk}");
            let (status, answer) = test.call("PATCH", &path, Some(body)).await;
            assert!(
                status == 200 || answer["code"] == "name_taken",
                "{status} {answer}"
            );
            status == 200
        });
        let taken = join_all(taken).await;
        assert_eq!(taken.into_iter().filter(|taken| *taken).count(), 1);
    }
}

#[tokio::test]
async fn a_deadlock_is_told_as_a_conflict() {
    let [_, postgres] = crate::empty().await;
    let db = &postgres.db;
    let table = "create table pair (id bigint primary key, n bigint)";
    db.query(table).execute().await.unwrap();
    let rows = "insert into pair (id, n) values (1, 0), (2, 0)";
    db.query(rows).execute().await.unwrap();
    let both_have_one = tokio::sync::Barrier::new(2);
    let cross = async |first: i64, second: i64| {
        let mut tx = db.begin_write().await.unwrap();
        let update = "update pair set n = n + 1 where id = $1";
        tx.query(update).bind(first).execute().await.unwrap();
        both_have_one.wait().await;
        tx.query(update).bind(second).execute().await?;
        tx.commit().await
    };
    let (a, b) = tokio::join!(cross(1, 2), cross(2, 1));
    let lost = [a, b].into_iter().filter_map(Result::err);
    let lost: Vec<_> = lost.collect();
    assert_eq!(lost.len(), 1);
    assert!(lost[0].is_conflict(), "{}", lost[0]);
    let sum = db.query("select cast(sum(n) as bigint) as n from pair");
    assert_eq!(sum.one(|row| row.i64("n")).await.unwrap(), 2);
}
