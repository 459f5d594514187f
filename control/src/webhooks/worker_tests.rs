//! Delivery against receivers on loopback: the whole schedule on a clock that the test moves, what each
//! answer makes of an event, fairness, secrets, and claims that ran out.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ::http::{HeaderMap, StatusCode, header};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

use super::event::{EventType, Status};
use super::outbox::{self, NewEvent, Target};
use super::{Delivery, service, sign};
use crate::egress::Allow;
use crate::ids::{AccountId, AgentId, EventId};
use crate::jobs::{self, Finished, Held, Kind, Table, Then, Worker};
use crate::testing::{START, TestApp};
use crate::time::Timestamp;

/// What a receiver got.
#[derive(Clone)]
struct Got {
    path: String,
    kind: String,
    signature: String,
    body: Bytes,
    at: Instant,
}

/// A receiver: its path tells how it answers.
#[derive(Clone)]
struct Receiver {
    url: String,
    got: Arc<Mutex<Vec<Got>>>,
    /// Requests to `/tarpit` end when the test opens this.
    tarpit: Arc<Semaphore>,
}

impl Receiver {
    async fn start() -> Self {
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let receiver = Self {
            url: format!("http://127.0.0.1:{}", listener.local_addr().unwrap().port()),
            got: Arc::default(),
            tarpit: Arc::new(Semaphore::new(0)),
        };
        let router = Router::new()
            .route("/{path}", post(Self::take))
            .with_state(receiver.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        receiver
    }

    async fn take(
        State(own): State<Self>,
        Path(path): Path<String>,
        headers: HeaderMap,
        body: Bytes,
    ) -> Response {
        let text = |name| {
            let value = headers.get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default().to_owned()
        };
        own.got.lock().unwrap().push(Got {
            path: path.clone(),
            kind: text(sign::EVENT_HEADER),
            signature: text(sign::SIGNATURE_HEADER),
            body,
            at: Instant::now(),
        });
        match path.as_str() {
            "ok" => StatusCode::NO_CONTENT.into_response(),
            "tarpit" => {
                drop(own.tarpit.acquire().await);
                StatusCode::OK.into_response()
            }
            "redirect" => {
                let to = format!("{}/ok", own.url);
                (StatusCode::FOUND, [(header::LOCATION, to)]).into_response()
            }
            _ => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        }
    }

    fn at(&self, path: &str) -> Vec<Got> {
        let got = self.got.lock().unwrap();
        got.iter().filter(|got| got.path == path).cloned().collect()
    }
}

async fn app() -> TestApp {
    let _ = rustls::crypto::ring::default_provider().install_default();
    TestApp::with(|config| config.egress.allow = Allow::parse(&["127.0.0.0/8"]).unwrap()).await
}

fn deliverer(test: &TestApp) -> Worker<Delivery> {
    let app = test.app.node.clone();
    let (db, clock) = (app.db.clone(), app.clock.clone());
    Worker::new(Delivery::new(app), db, clock)
}

async fn agent(test: &TestApp, url: &str) -> String {
    agent_of(test, &test.key, url).await
}

async fn agent_of(test: &TestApp, key: &str, url: &str) -> String {
    let body = json!({
        "name": "Line", "system_prompt": "Talk.", "voice_id": "scripted-tone", "llm_model": "echo",
        "webhook_url": url,
    });
    let (status, agent) = test.call_as(key, "POST", "/agents", Some(body)).await;
    assert_eq!(status, StatusCode::CREATED, "{agent}");
    agent["id"].as_str().unwrap().to_owned()
}

/// A call that nobody joined and the API ended: the cheapest `call.ended`. Its id.
async fn ended_call(test: &TestApp, agent: &str) -> String {
    let body = json!({"agent_id": agent, "transport": "websocket", "caller_phone": "+15550100"});
    let (status, session) = test.call("POST", "/conversation/connect", Some(body)).await;
    assert_eq!(status, StatusCode::OK, "{session}");
    let id = session["session_id"].as_str().unwrap().to_owned();
    let (status, _) = test.call("POST", &format!("/calls/{id}/end"), None).await;
    assert_eq!(status, StatusCode::OK);
    id
}

async fn call(test: &TestApp, id: &str) -> Value {
    let (status, call) = test.call("GET", &format!("/calls/{id}"), None).await;
    assert_eq!(status, StatusCode::OK);
    call
}

/// Adds an event of the account to the agent's address.
async fn event(test: &TestApp, account: AccountId, agent: &str, kind: EventType) -> EventId {
    let id = EventId::new(&test.app.clock);
    let event = NewEvent {
        id,
        r#type: kind,
        target: Target::Agent(agent.parse().unwrap()),
        call: None,
        body: json!({"event_id": id}).to_string(),
    };
    let mut tx = test.app.db.begin_write().await.unwrap();
    outbox::insert(
        &mut tx,
        account,
        &event,
        test.app.clock.now(),
        test.app.clock.shared(),
    )
    .await
    .unwrap();
    tx.commit().await.unwrap();
    test.app.webhooks.wake();
    id
}

/// Status, attempts, next attempt and last error of an event.
async fn row(test: &TestApp, id: EventId) -> (String, i64, Option<Timestamp>, Option<String>) {
    let query = test
        .app
        .db
        .query("select * from events where id = $1")
        .bind(id);
    query
        .one(|row| {
            Ok((
                row.text("status")?,
                row.i64("attempts")?,
                row.opt_time("next_attempt_at")?,
                row.opt_text("last_error")?,
            ))
        })
        .await
        .unwrap()
}

/// The header's time.
fn t(got: &Got) -> i64 {
    let (t, _) = got
        .signature
        .strip_prefix("t=")
        .unwrap()
        .split_once(',')
        .unwrap();
    t.parse().unwrap()
}

#[tokio::test]
async fn what_is_due_is_found_in_the_index() {
    let test = app().await;
    let Table { name, open, .. } = Delivery::TABLE;
    for what in [
        format!(
            "select id from {name} where account_id = '' and {open} and next_attempt_at <= 1
             order by next_attempt_at, id limit 1"
        ),
        format!(
            "select a.id from accounts a where exists (select 1 from {name} j
                where j.account_id = a.id and j.{open} and j.next_attempt_at <= 1) order by a.id"
        ),
    ] {
        let plan = format!("explain query plan {what}");
        let plan = test.app.db.query_built(plan).all(|row| row.text("detail"));
        let plan = plan.await.unwrap().join("; ");
        assert!(plan.contains("events_due_by_account"), "{plan}");
    }
}

#[tokio::test]
async fn what_is_settled_goes_when_it_is_old_and_what_is_told_of_it_stays() {
    let (test, receiver) = (app().await, Receiver::start().await);
    let good = agent(&test, &format!("{}/ok", receiver.url)).await;
    let bad = agent(&test, &format!("{}/fail", receiver.url)).await;
    let (told, untold) = (
        ended_call(&test, &good).await,
        ended_call(&test, &bad).await,
    );
    deliverer(&test).until_quiet().await;
    let bodies = async || -> Vec<(String, usize)> {
        test.app
            .db
            .query("select status, body from events where type = 'call.ended' order by status")
            .all(|row| Ok((row.text("status")?, row.text("body")?.len())))
            .await
            .unwrap()
    };
    let before = bodies().await;
    assert_eq!(
        (before[0].0.as_str(), before[1].0.as_str()),
        ("delivered", "failed")
    );
    let now = test.app.clock.now();
    // What was settled at that moment is not older than it.
    assert_eq!(outbox::prune(&test.app.db, now, 10).await.unwrap(), 0);
    let later = now.plus(Duration::from_secs(1));
    assert_eq!(outbox::prune(&test.app.db, later, 10).await.unwrap(), 1);
    assert_eq!(outbox::prune(&test.app.db, later, 10).await.unwrap(), 0);
    let after = bodies().await;
    assert_eq!(after, [("delivered".to_owned(), 0), before[1].clone()]);
    assert_eq!(
        call(&test, &told).await["webhook_delivery_status"],
        "delivered"
    );
    assert_eq!(
        call(&test, &untold).await["webhook_delivery_status"],
        "failed"
    );
}

#[tokio::test]
async fn three_days_of_failure_keep_the_schedule_to_the_round() {
    let (test, receiver) = (app().await, Receiver::start().await);
    let agent = agent(&test, &format!("{}/fail", receiver.url)).await;
    let id = ended_call(&test, &agent).await;
    let before = call(&test, &id).await;
    assert_eq!(
        (
            &before["webhook_delivery_status"],
            &before["webhook_attempts"]
        ),
        (&json!("pending"), &json!(0))
    );
    let mut worker = deliverer(&test);
    let mut pauses = Vec::new();
    loop {
        worker.until_quiet().await;
        let now = call(&test, &id).await;
        assert_eq!(now["webhook_attempts"], json!(pauses.len() + 1));
        let next = test
            .app
            .db
            .query("select next_attempt_at from events where call_id = $1")
            .bind(&id)
            .one(|row| row.opt_time("next_attempt_at"))
            .await
            .unwrap();
        let Some(next) = next else {
            assert_eq!(now["webhook_delivery_status"], "exhausted");
            assert_eq!(now["webhook_delivered_at"], Value::Null);
            break;
        };
        assert_eq!(now["webhook_delivery_status"], "failed");
        pauses.push(next.since(test.app.clock.now()).as_secs_f64());
        // Not a moment earlier.
        test.app.clock.set(next.minus(Duration::from_micros(1)));
        worker.until_quiet().await;
        assert_eq!(receiver.at("fail").len(), pauses.len());
        test.app.clock.set(next);
    }
    let plain = [1.0, 2.0].into_iter();
    let plain = plain.chain((0..20).map(|round| (60.0 * 2_f64.powi(round)).min(21_600.0)));
    let plain: Vec<f64> = plain.collect();
    assert_eq!(pauses.len(), plain.len());
    for (pause, plain) in pauses.iter().zip(&plain) {
        assert!((pause / plain - 1.0).abs() <= 0.1001, "{pause} for {plain}");
    }
    let total = test.app.clock.now().since(START).as_secs_f64() / 3600.0;
    assert!((total / 74.5 - 1.0).abs() < 0.1, "{total} h");

    let got = receiver.at("fail");
    assert_eq!(got.len(), 23);
    let secret = service::signing_secret(&test.app, test.account)
        .await
        .unwrap();
    for (index, one) in got.iter().enumerate() {
        assert_eq!((one.kind.as_str(), &one.body), ("call.ended", &got[0].body));
        let sent = t(one);
        assert_eq!(
            sign::verify(secret.expose(), sent, &one.body, &one.signature),
            Ok(())
        );
        // Seconds; the first pause, of one second, may be a little shorter.
        let before = index.checked_sub(1).map_or(0, |index| t(&got[index]));
        assert!(
            sent > before || (index == 1 && sent == before),
            "a fresh time each attempt"
        );
    }
    // The next day changes nothing.
    test.app.clock.advance(Duration::from_secs(86_400));
    worker.until_quiet().await;
    assert_eq!(receiver.at("fail").len(), 23);
}

#[tokio::test]
async fn no_retry_and_no_claim_follows_the_wall_clock_and_a_signature_does() {
    let (test, receiver) = (app().await, Receiver::start().await);
    let agent = agent(&test, &format!("{}/fail", receiver.url)).await;
    let (clock, mut sent) = (&test.app.clock, 0);
    for seconds in [3_600, -3_600, 86_400, -86_400] {
        let mut worker = deliverer(&test);
        // Due at once, also after a jump.
        clock.step(seconds);
        let id = event(
            &test,
            test.account,
            &agent,
            EventType::PromptVariablesUnfilled,
        )
        .await;
        worker.until_quiet().await;
        sent += 1;
        assert_eq!(receiver.at("fail").len(), sent, "{seconds} s");
        let signed = t(receiver.at("fail").last().unwrap());
        assert_eq!(signed, clock.now().seconds(), "{seconds} s");
        // The next attempt is due a second later, and not before.
        clock.step(-seconds);
        worker.until_quiet().await;
        assert_eq!(receiver.at("fail").len(), sent, "{seconds} s");
        clock.step(2 * seconds);
        worker.until_quiet().await;
        assert_eq!(receiver.at("fail").len(), sent, "{seconds} s");
        clock.advance(Duration::from_millis(1_200));
        worker.until_quiet().await;
        sent += 1;
        assert_eq!(receiver.at("fail").len(), sent, "{seconds} s");
        // Of a process whose clock was ahead: it waits for no longer than any pause lasts.
        let far = clock.shared().plus(Duration::from_secs(7 * 86_400));
        let query = test
            .app
            .db
            .query("update events set next_attempt_at = $1 where id = $2");
        query.bind(far).bind(id).execute().await.unwrap();
        let longest = test.app.config.webhooks.schedule.longest_wait();
        let mended = jobs::store::mend::<Delivery>(&test.app.db, clock.shared(), longest).await;
        assert_eq!(mended.unwrap(), 1);
        worker.until_quiet().await;
        sent += 1;
        assert_eq!(receiver.at("fail").len(), sent, "{seconds} s");
        let query = test
            .app
            .db
            .query("update events set status = 'exhausted', next_attempt_at = null");
        query.execute().await.unwrap();
        clock.step(-seconds * 2);
    }
}

#[tokio::test]
async fn a_report_holds_every_field_and_is_told_to_the_call() {
    let (test, receiver) = (app().await, Receiver::start().await);
    let agent = agent(&test, &format!("{}/ok", receiver.url)).await;
    let id = ended_call(&test, &agent).await;
    deliverer(&test).until_quiet().await;
    let got = receiver.at("ok");
    let body: Value = serde_json::from_slice(&got[0].body).unwrap();
    let names: Vec<&str> = body
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    let mut wanted = vec![
        "event_id",
        "timestamp",
        "call_id",
        "conversation_id",
        "agent_id",
        "status",
        "direction",
        "from_number",
        "to_number",
        "duration_seconds",
        "cost_cents",
        "started_at",
        "ended_at",
        "transcript",
        "transcript_text",
        "batch_id",
        "batch_recipient_index",
        "metadata",
        "metadata_truncated",
        "transcript_truncated",
    ];
    wanted.sort_unstable();
    assert_eq!(names, wanted);
    assert_eq!(
        (
            &body["call_id"],
            &body["status"],
            &body["from_number"],
            &body["metadata"]
        ),
        (
            &json!(id),
            &json!("canceled"),
            &json!("+15550100"),
            &json!({})
        )
    );
    assert_eq!(body["timestamp"], json!(START.seconds()));
    let call = call(&test, &id).await;
    assert_eq!(
        (&call["webhook_delivery_status"], &call["webhook_attempts"]),
        (&json!("delivered"), &json!(1))
    );
    assert_eq!(call["webhook_delivered_at"], json!(START));
}

#[tokio::test]
async fn what_each_answer_makes_of_an_event() {
    let (test, receiver) = (app().await, Receiver::start().await);
    let mut worker = deliverer(&test);
    for (url, kind, status, error) in [
        (
            format!("{}/ok", receiver.url),
            EventType::RecordingReady,
            "delivered",
            None,
        ),
        (
            format!("{}/redirect", receiver.url),
            EventType::RecordingReady,
            "failed",
            Some("answered 302"),
        ),
        (
            format!("{}/fail", receiver.url),
            EventType::CallEnded,
            "failed",
            Some("answered 500"),
        ),
        // Nobody listens on that port.
        (
            "http://127.0.0.1:9/".to_owned(),
            EventType::CallEnded,
            "failed",
            Some(""),
        ),
        // No such name, which may be there tomorrow.
        (
            "https://hooks.example.com/".to_owned(),
            EventType::CallEnded,
            "failed",
            Some("NXDOMAIN"),
        ),
    ] {
        let agent = agent(&test, &url).await;
        let id = event(&test, test.account, &agent, kind).await;
        worker.until_quiet().await;
        let (found, attempts, next, why) = row(&test, id).await;
        assert_eq!(
            (found.as_str(), attempts, next.is_some()),
            (status, 1, status == "failed"),
            "{url}"
        );
        assert_eq!(error.is_some(), why.is_some(), "{url}");
        let why = why.unwrap_or_default();
        assert!(why.contains(error.unwrap_or_default()), "{url}: {why}");
    }
    // The redirection was not followed.
    assert_eq!(receiver.at("ok").len(), 1);
}

#[tokio::test]
async fn short_events_end_after_three_attempts() {
    let (test, receiver) = (app().await, Receiver::start().await);
    let agent = agent(&test, &format!("{}/fail", receiver.url)).await;
    let id = event(&test, test.account, &agent, EventType::RecordingReady).await;
    let mut worker = deliverer(&test);
    for _ in 0..5 {
        worker.until_quiet().await;
        test.app.clock.advance(Duration::from_secs(10));
    }
    assert_eq!(receiver.at("fail").len(), 3);
    assert_eq!(row(&test, id).await.0, "exhausted");
}

#[tokio::test]
async fn an_address_is_read_at_each_attempt() {
    let (test, receiver) = (app().await, Receiver::start().await);
    let agent = agent(&test, &format!("{}/fail", receiver.url)).await;
    let path = format!("/agents/{agent}");
    let mut worker = deliverer(&test);
    let moved = event(&test, test.account, &agent, EventType::CallEnded).await;
    worker.until_quiet().await;
    let to = json!({"webhook_url": format!("{}/ok", receiver.url)});
    test.call("PATCH", &path, Some(to)).await;
    test.app.clock.advance(Duration::from_secs(5));
    worker.until_quiet().await;
    assert_eq!(row(&test, moved).await.0, "delivered");

    // Removed between two attempts.
    let to = json!({"webhook_url": format!("{}/fail", receiver.url)});
    test.call("PATCH", &path, Some(to)).await;
    let removed = event(&test, test.account, &agent, EventType::CallEnded).await;
    worker.until_quiet().await;
    test.call("PATCH", &path, Some(json!({"webhook_url": null})))
        .await;
    test.app.clock.advance(Duration::from_secs(5));
    worker.until_quiet().await;
    assert_eq!(
        (
            row(&test, removed).await.0.as_str(),
            row(&test, removed).await.1
        ),
        ("skipped", 1)
    );

    // Never there.
    let never = event(&test, test.account, &agent, EventType::CallEnded).await;
    assert_eq!(
        (
            row(&test, never).await.0.as_str(),
            row(&test, never).await.2
        ),
        ("skipped", None)
    );

    // Deleted with its agent.
    let to = json!({"webhook_url": format!("{}/fail", receiver.url)});
    test.call("PATCH", &path, Some(to)).await;
    let orphan = event(&test, test.account, &agent, EventType::CallEnded).await;
    test.call("DELETE", &path, None).await;
    worker.until_quiet().await;
    assert_eq!(row(&test, orphan).await.0, "skipped");
}

#[tokio::test]
async fn an_address_that_became_unsafe_ends_the_delivery() {
    let (test, receiver) = (app().await, Receiver::start().await);
    let agent = agent(&test, &format!("{}/ok", receiver.url)).await;
    let id = event(&test, test.account, &agent, EventType::CallEnded).await;
    // The row of an agent whose address would be refused today: the setting has changed since.
    test.app
        .db
        .query(
            "update agents set settings = replace(settings, '127.0.0.1', '10.0.0.1') where id = $1",
        )
        .bind(agent.parse::<AgentId>().unwrap())
        .execute()
        .await
        .unwrap();
    deliverer(&test).until_quiet().await;
    let (status, _, next, why) = row(&test, id).await;
    assert_eq!((status.as_str(), next), ("unsafe", None));
    assert!(why.is_some());
    assert!(receiver.at("ok").is_empty());
}

#[tokio::test]
async fn a_new_secret_signs_every_attempt_from_then_on() {
    let (test, receiver) = (app().await, Receiver::start().await);
    let agent = agent(&test, &format!("{}/fail", receiver.url)).await;
    let mut worker = deliverer(&test);
    let mut secrets = Vec::new();
    for round in 0..3 {
        let (status, rotated) = test
            .call("POST", "/usage/webhook-secret/rotate", None)
            .await;
        assert_eq!(status, StatusCode::OK, "{rotated}");
        let secret = rotated["secret"].as_str().unwrap().to_owned();
        assert!(
            secret.starts_with("whsec_") && secret.len() == 49,
            "{} long",
            secret.len()
        );
        assert_eq!(rotated["rotated_at"], json!(test.app.clock.now()));
        secrets.push(secret);
        if round == 0 {
            event(&test, test.account, &agent, EventType::CallEnded).await;
        }
        worker.until_quiet().await;
        test.app.clock.advance(Duration::from_secs(10));
    }
    let got = receiver.at("fail");
    assert_eq!(got.len(), 3);
    for (index, one) in got.iter().enumerate() {
        let held: Vec<bool> = secrets
            .iter()
            .map(|secret| {
                sign::verify(secret.as_bytes(), t(one), &one.body, &one.signature).is_ok()
            })
            .collect();
        let only: Vec<bool> = (0..3).map(|other| other == index).collect();
        assert_eq!(held, only);
    }
    // It does not lie in the database as it is.
    let query = test.app.db.query("select sealed from webhook_secrets");
    let sealed = query.one(|row| row.text("sealed")).await.unwrap();
    assert!(!sealed.contains(&secrets[2][6..]));
    // Another account has another.
    let (other, _) = test.other_account().await;
    let theirs = service::signing_secret(&test.app, other).await.unwrap();
    assert!(
        secrets
            .iter()
            .all(|secret| secret.as_bytes() != theirs.expose())
    );
    let small = test.key_for(&[crate::http::Scope::UsageRead]).await;
    let (status, _) = test
        .call_as(&small, "POST", "/usage/webhook-secret/rotate", None)
        .await;
    assert_eq!(status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_stale_claim_writes_nothing_and_tokens_only_grow() {
    let test = app().await;
    let agent = agent(&test, "http://127.0.0.1:9/").await;
    let id = event(&test, test.account, &agent, EventType::CallEnded).await;
    let claim = async || {
        let now = test.app.clock.now();
        let mut tx = test.app.db.begin_write().await.unwrap();
        let end = now.plus(Duration::from_secs(15));
        let claimed = jobs::store::claim::<Delivery>(&mut tx, test.account, id.0, now, end);
        let claimed = claimed.await.unwrap();
        tx.commit().await.unwrap();
        claimed.map(|(held, _)| held)
    };
    let finish = async |held: &Held, status| {
        let finished = Finished {
            status,
            next_attempt_at: None,
            error: None,
        };
        let now = test.app.clock.now();
        jobs::store::finish::<Delivery>(&test.app.db, held, &finished, Then::Attempt, now)
            .await
            .unwrap()
    };
    let first = claim().await.unwrap();
    assert_eq!(claim().await, None, "one holder");
    // The holder dies; its claim runs out.
    test.app.clock.advance(Duration::from_secs(15));
    let second = claim().await.unwrap();
    assert!(second.token > first.token);
    assert!(!finish(&first, Status::Failed).await, "too late");
    assert_eq!(row(&test, id).await.0, "delivering");
    assert!(finish(&second, Status::Delivered).await);
    assert!(!finish(&second, Status::Failed).await, "settled");
    assert_eq!(row(&test, id).await.0, "delivered");
    // Another account cannot touch it.
    let (other, _) = test.other_account().await;
    let other_id = event(&test, test.account, &agent, EventType::CallEnded).await;
    let mut tx = test.app.db.begin_write().await.unwrap();
    let now = test.app.clock.now();
    assert!(
        jobs::store::claim::<Delivery>(&mut tx, other, other_id.0, now, now)
            .await
            .unwrap()
            .is_none()
    );
    let close = jobs::store::close::<Delivery>(&mut tx, other, other_id.0, Status::Skipped, now);
    assert!(close.await.unwrap().is_none());
}

#[tokio::test]
async fn a_tarpit_holds_up_neither_other_accounts_nor_its_own_other_receivers() {
    let (test, receiver) = (app().await, Receiver::start().await);
    let (other, other_key) = test.other_account().await;
    let stuck = agent(&test, &format!("{}/tarpit", receiver.url)).await;
    let quick_host = Receiver::start().await;
    // The same machine under another address.
    let beside = quick_host.url.replace("127.0.0.1", "127.0.0.2");
    let beside = agent(&test, &format!("{beside}/beside")).await;
    let theirs = agent_of(&test, &other_key, &format!("{}/ok", quick_host.url)).await;
    for _ in 0..100 {
        event(&test, test.account, &stuck, EventType::CallEnded).await;
    }
    event(&test, test.account, &beside, EventType::RecordingReady).await;
    let (stop, stopped) = watch::channel(false);
    let app = test.app.node.clone();
    let (db, clock) = (app.db.clone(), app.clock.clone());
    let worker = tokio::spawn(jobs::run(Delivery::new(app), db, clock, stopped));
    let mut waits = Vec::new();
    for _ in 0..100 {
        let began = Instant::now();
        let id = event(&test, other, &theirs, EventType::CallEnded).await;
        let at = loop {
            let got = quick_host.at("ok");
            let own = |got: &&Got| {
                got.body
                    .windows(36)
                    .any(|part| part == id.to_string().as_bytes())
            };
            if let Some(got) = got.iter().find(own) {
                break got.at;
            }
            assert!(
                began.elapsed() < Duration::from_secs(5),
                "an event of the other account waits"
            );
            tokio::task::yield_now().await;
        };
        waits.push(at.duration_since(began));
    }
    waits.sort_unstable();
    assert!(waits[98] < Duration::from_secs(1), "p99 {:?}", waits[98]);
    assert_eq!(receiver.at("tarpit").len(), 4, "in flight at one receiver");
    assert_eq!(quick_host.at("beside").len(), 1);
    receiver.tarpit.close();
    stop.send_replace(true);
    worker.await.unwrap();
    assert_eq!(receiver.at("tarpit").len(), 100);
}

#[tokio::test]
async fn receivers_at_one_stuck_host_hide_no_other() {
    let (test, receiver) = (app().await, Receiver::start().await);
    for _ in 0..3 {
        let stuck = agent(&test, &format!("{}/tarpit", receiver.url)).await;
        // More than are read at once.
        for _ in 0..20 {
            event(&test, test.account, &stuck, EventType::CallEnded).await;
            test.app.clock.advance(Duration::from_millis(1));
        }
    }
    // The same machine under another address.
    let beside = receiver.url.replace("127.0.0.1", "127.0.0.2");
    let beside = agent(&test, &format!("{beside}/ok")).await;
    let last = event(&test, test.account, &beside, EventType::CallEnded).await;
    let mut worker = deliverer(&test);
    worker.fill().await.unwrap();
    assert_eq!(row(&test, last).await.1, 1, "it is being delivered");
    let begun = test
        .app
        .db
        .query("select count(*) as n from events where attempts > 0");
    let begun = begun.one(|row| row.i64("n")).await.unwrap();
    assert_eq!(begun, 5, "four at the stuck host, as ever");
    receiver.tarpit.close();
    worker.until_quiet().await;
    assert_eq!(
        (receiver.at("tarpit").len(), receiver.at("ok").len()),
        (60, 1)
    );
}

#[tokio::test]
async fn an_unfilled_placeholder_is_told_once_a_day_and_no_call_is_refused() {
    let (test, receiver) = (app().await, Receiver::start().await);
    let body = json!({
        "name": "Line", "system_prompt": "You are {{who}} of {{where}} on {{system__date}}, {{mood}}.",
        "voice_id": "scripted-tone", "llm_model": "echo",
        "dynamic_variables": {"where": "the house", "mood": " "},
        "webhook_url": format!("{}/ok", receiver.url),
    });
    let (_, agent) = test.call("POST", "/agents", Some(body)).await;
    assert_eq!(agent["unfilled_variables"], json!(["mood", "who"]));
    let connect = async |variables: Value| {
        let body = json!({"agent_id": agent["id"], "transport": "websocket", "dynamic_variables": variables});
        let (status, session) = test.call("POST", "/conversation/connect", Some(body)).await;
        assert_eq!(status, StatusCode::OK, "{session}");
        session["session_id"].clone()
    };
    let mut worker = deliverer(&test);
    connect(json!({"who": "Sam", "mood": "calm"})).await;
    worker.until_quiet().await;
    assert!(receiver.at("ok").is_empty(), "the session filled them");
    let first = connect(json!({"who": "Sam"})).await;
    connect(json!({})).await;
    worker.until_quiet().await;
    let got = receiver.at("ok");
    assert_eq!(got.len(), 1);
    assert_eq!(got[0].kind, "agent.prompt_variables.unfilled");
    let body: Value = serde_json::from_slice(&got[0].body).unwrap();
    assert!(body["event_id"].is_string() && body["reason"].is_string());
    for (name, value) in [
        ("event", json!("agent.prompt_variables.unfilled")),
        ("agent_id", agent["id"].clone()),
        ("conversation_id", first),
        ("channel", json!("voice")),
        ("reason_code", json!("unfilled_prompt_variables")),
        ("variables", json!(["mood"])),
    ] {
        assert_eq!(body[name], value, "{name}");
    }
    test.app.clock.advance(Duration::from_secs(86_400));
    connect(json!({})).await;
    worker.until_quiet().await;
    assert_eq!(receiver.at("ok").len(), 2);
}
