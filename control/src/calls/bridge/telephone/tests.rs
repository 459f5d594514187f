//! Calls that come in, told to their task as the stack would tell them: the stack listens, and nobody calls it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

mod breaking;
mod field;
mod forwarding;
mod numbers;
mod registrars;
mod ringing;

use std::net::UdpSocket;
use std::sync::Arc;
use std::time::{Duration, Instant};

use media::rtp::sdp::Encryption;
use serde_json::{Value, json};
use sip::event::{CallId as SipLegId, EndedBy, Event, Hops, Incoming};
use sip::message::{Body, Transport, Uri};
use sip::shell::Listen;
use tokio::task::JoinHandle;

use super::called::Called;
use super::carried::Carried;
use super::declined::Declined;
use super::exchange::hand_on;
use super::inbound::Conversation;
use super::lobby::Answerer;
use super::standings::{self, Standings};
use super::task::InboundTask;
use super::{Exchange, SipLeg};
use crate::admission::{Request, State};
use crate::calls::bridge;
use crate::config::Config;
use crate::egress::Allow;
use crate::ids::{CallId, TrunkId};
use crate::sip_trunks;
use crate::sip_trunks::store::{Failure, Standing};
use crate::testing::{Logged, TestApp};
use crate::time::Timestamp;

/// How long a claim lasts here.
const CLAIM: Duration = Duration::from_secs(15);

const NUMBER: &str = "+4930123456";

const OFFER: &str = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n\
    m=audio 40000 RTP/AVP 0\r\n";

struct Bench {
    test: TestApp,
    exchange: Arc<Exchange>,
}

impl Bench {
    async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// With other settings.
    async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let test = TestApp::with(|config| {
            config.egress.allow = Allow::parse(&["127.0.0.0/8"]).unwrap();
            change(config);
        })
        .await;
        let exchange = Arc::clone(test.app.telephone.open(&test.app).await.unwrap());
        Self { test, exchange }
    }

    fn task(&self) -> InboundTask {
        InboundTask {
            app: self.test.app.node.clone(),
            exchange: Arc::clone(&self.exchange),
            carried: Carried::default(),
        }
    }

    async fn post(&self, key: &str, path: &str, body: Value) -> Value {
        let (status, made) = self.test.call_as(key, "POST", path, Some(body)).await;
        assert!(status.is_success(), "{path}: {made}");
        made
    }

    /// A trunk with these fields beside; the stack's events may name it.
    async fn trunk(&self, key: &str, more: Value) -> TrunkId {
        let mut body = json!({"name": "carrier", "type": "inbound"});
        let fields = body.as_object_mut().unwrap();
        fields.extend(more.as_object().unwrap().clone());
        let made = self.post(key, "/sip-trunks", body).await;
        let all = sip_trunks::store::all_active(&self.test.app.db).await;
        self.exchange.trunks.set(&all.unwrap());
        made["id"].as_str().unwrap().parse().unwrap()
    }

    /// A trunk that is known by its carrier's address.
    async fn by_address(&self, key: &str) -> TrunkId {
        let more = json!({"auth_mode": "ip_acl", "allowed_addresses": ["127.0.0.1"]});
        self.trunk(key, more).await
    }

    /// A trunk that registers, with nobody's claim.
    async fn registers(&self) -> TrunkId {
        self.registers_as("a").await
    }

    /// The same with this user.
    async fn registers_as(&self, user: &str) -> TrunkId {
        let more = json!({"auth_mode": "register", "auth_username": user, "auth_password": "b",
            "outbound_address": "127.0.0.1:5999"});
        self.trunk(&self.test.key, more).await
    }

    /// A node claims what registers and nobody else does.
    async fn claim(&self, node: &str) {
        let app = &self.test.app;
        let claims = sip_trunks::store::claim_registrations(&app.db, node, app.clock.now(), CLAIM);
        assert_eq!(claims.await.unwrap().len(), 1, "{node}");
    }

    /// What a node writes down of a trunk's registration, and what its record says then.
    async fn stands(&self, trunk: TrunkId, standing: impl Into<Standing>) -> Value {
        let standings = Standings::default();
        standings.put(self.test.account, trunk, standing);
        standings::write(&self.test.app, &standings).await;
        let path = format!("/sip-trunks/{trunk}");
        let (_, mut shown) = self.test.call("GET", &path, None).await;
        shown["registration"].take()
    }

    /// A call over the trunk is answered, and then the stack says that it is over.
    async fn lose(&self, trunk: TrunkId, by: EndedBy) {
        self.lose_after(trunk, by, async || {}).await;
    }

    /// The same, after something that happens while the call lasts.
    async fn lose_after(&self, trunk: TrunkId, by: EndedBy, before: impl AsyncFnOnce()) {
        let app = &self.test.app;
        let mut line = self.exchange.line();
        let incoming = incoming(&[trunk], NUMBER);
        let events = &mut line.events;
        let taken = self.task().take(line.id, &incoming, events).await;
        let Ok(Conversation::Agent(talking)) = taken else {
            panic!("not taken");
        };
        before().await;
        let ended = Event::Ended {
            call: line.id,
            by,
            code: None,
            reason: "Session Expired".to_owned(),
        };
        hand_on(app, &self.exchange, ended);
        talking.follow(&self.exchange, line.id, line.events).await;
        assert!(app.live.drained(Duration::from_secs(20)).await);
    }

    async fn number(&self, key: &str, number: &str, trunk: TrunkId, more: Value) -> String {
        let mut body = json!({"phone_number": number, "trunk_id": trunk});
        let fields = body.as_object_mut().unwrap();
        fields.extend(more.as_object().unwrap().clone());
        let made = self.post(key, "/phone-numbers/sip/register", body).await;
        made["id"].as_str().unwrap().to_owned()
    }

    /// A trunk, an agent, and its number on that trunk.
    async fn line(&self) -> TrunkId {
        let agent = json!({"name": "Echo", "system_prompt": "Repeat.", "voice_id": "scripted-tone",
            "llm_model": "echo"});
        let agent = self.post(&self.test.key, "/agents", agent).await;
        let trunk = self.by_address(&self.test.key).await;
        let answered = json!({"agent_id": agent["id"]});
        self.number(&self.test.key, NUMBER, trunk, answered).await;
        trunk
    }

    /// A call to a number that has rules and no agent, as it was looked up.
    async fn called_in_vain(&self) -> (Called, String) {
        let trunk = self.by_address(&self.test.key).await;
        self.called_over(trunk).await
    }

    /// The same over this trunk.
    async fn called_over(&self, trunk: TrunkId) -> (Called, String) {
        let rules = json!({"inbound": {"fallback_action": "hangup", "max_ring_seconds": 5}});
        let number = self.number(&self.test.key, NUMBER, trunk, rules).await;
        let called = self.task().called(&incoming(&[trunk], NUMBER)).await;
        (called.unwrap_or_else(|why| panic!("{why:?}")), number)
    }

    /// Lets a call ring in a task of its own. Its line, and what becomes of it.
    fn ring(&self, mut called: Called) -> (SipLegId, JoinHandle<Result<Answerer, Declined>>) {
        let rules = called.number.as_mut().unwrap().routing_rules.as_mut();
        rules.unwrap().max_ring_seconds = Some(120);
        let SipLeg { id, mut events } = self.exchange.line();
        let task = self.task();
        let rings = async move { task.admit_or_ring(id, called, &mut events).await };
        (id, tokio::spawn(rings))
    }

    /// The same call another time.
    async fn called_again(&self, trunk: TrunkId) -> Called {
        let called = self.task().called(&incoming(&[trunk], NUMBER)).await;
        called.unwrap_or_else(|why| panic!("{why:?}"))
    }

    /// The caller on a line hangs up.
    fn leave(&self, line: SipLegId) {
        let ended = Event::Ended {
            call: line,
            by: EndedBy::Remote,
            code: Some(487),
            reason: "Request Terminated".to_owned(),
        };
        hand_on(&self.test.app, &self.exchange, ended);
    }

    /// The only call, once it stands so.
    async fn stood(&self, status: &str) -> Value {
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            let (_, list) = self.test.call("GET", "/calls", None).await;
            if list["items"][0]["status"] == status {
                return self.record().await;
            }
            assert!(Instant::now() < until, "never {status}: {list}");
        }
    }

    /// What clients were told of the end of calls.
    async fn ends_told(&self) -> Vec<Value> {
        let app = &self.test.app;
        let told = app
            .db
            .query("select body from events where type = 'call.ended'");
        told.all(|row| row.json("body")).await.unwrap()
    }

    /// The account's default trunk for calls out, to a carrier that is not there.
    async fn way_out(&self, more: Value) -> TrunkId {
        self.way_out_of(&self.test.key, more).await
    }

    /// The same of another account.
    async fn way_out_of(&self, key: &str, more: Value) -> TrunkId {
        let mut body = json!({"type": "outbound", "auth_mode": "ip_acl",
            "outbound_address": "127.0.0.1:5998"});
        let fields = body.as_object_mut().unwrap();
        fields.extend(more.as_object().unwrap().clone());
        let trunk = self.trunk(key, body).await;
        let path = format!("/sip-trunks/{trunk}/set-default-outbound");
        let (status, answer) = self.test.call_as(key, "PATCH", &path, None).await;
        assert!(status.is_success(), "{answer}");
        trunk
    }

    /// A number whose calls are forwarded to another one, and the trunk that they come over.
    async fn forwards(&self, number: &str, to: &str) -> TrunkId {
        self.forwards_of(&self.test.key, number, to).await
    }

    /// The same of another account.
    async fn forwards_of(&self, key: &str, number: &str, to: &str) -> TrunkId {
        let trunk = self.by_address(key).await;
        let rules = json!({"outbound_enabled": true,
            "inbound": {"fallback_action": "forward", "fallback_number": to}});
        self.number(key, number, trunk, rules).await;
        trunk
    }

    /// A call to a number that is forwarded, of a caller who gives up as soon as it goes out; the code that ends it.
    async fn forward(&self, trunk: TrunkId, number: &str) -> u16 {
        self.forward_incoming(&incoming(&[trunk], number)).await
    }

    /// A call to a number that is forwarded, as it was looked up. There is no agent to be waited for.
    async fn called_to_forward(&self, incoming: &Incoming) -> Called {
        let called = self.task().called(incoming).await;
        let mut called = called.unwrap_or_else(|why| panic!("{why:?}"));
        let rules = called.number.as_mut().unwrap().routing_rules.as_mut();
        rules.unwrap().max_ring_seconds = Some(0);
        called
    }

    /// The same call; the caller gives up as soon as it goes out.
    async fn forward_incoming(&self, incoming: &Incoming) -> u16 {
        let called = self.called_to_forward(incoming).await;
        let mut line = self.exchange.line();
        let left = Event::Ended {
            call: line.id,
            by: EndedBy::Remote,
            code: Some(487),
            reason: "Request Terminated".to_owned(),
        };
        hand_on(&self.test.app, &self.exchange, left);
        let events = &mut line.events;
        let taken = self.task().admit_or_ring(line.id, called, events).await;
        taken.err().unwrap().code
    }

    /// Why the only call was not forwarded.
    async fn not_forwarded(&self) -> String {
        let record = self.record().await;
        let path = format!(
            "/conversations/{}/diagnostics",
            record["id"].as_str().unwrap()
        );
        self.test.call("GET", &path, None).await.1["errors"].to_string()
    }

    /// Lets a call ring that nobody answers; why it is not taken.
    async fn ring_in_vain(&self, called: Called) -> Declined {
        let mut line = self.exchange.line();
        let events = &mut line.events;
        let taken = self.task().admit_or_ring(line.id, called, events).await;
        taken.err().unwrap()
    }

    /// The only record of a call.
    async fn record(&self) -> Value {
        let (_, list) = self.test.call("GET", "/calls", None).await;
        assert_eq!(list["total"], 1, "{list}");
        let path = format!("/calls/{}", list["items"][0]["id"].as_str().unwrap());
        self.test.call("GET", &path, None).await.1
    }
}

/// When every failure here was.
const FAILED_AT: Timestamp = Timestamp(1_767_323_046_000_000);

fn busy() -> Failure {
    Failure {
        at: FAILED_AT,
        code: Some(503),
        reason: "Busy".to_owned(),
    }
}

fn incoming(trunks: &[TrunkId], to: &str) -> Incoming {
    let uri = |user: &str| Uri::parse(&format!("sip:{user}@127.0.0.1")).unwrap();
    Incoming {
        trunks: trunks.iter().map(|id| sip_trunks::sip_id(*id)).collect(),
        registered: trunks.iter().map(|id| sip_trunks::sip_id(*id)).collect(),
        by_password: false,
        may_prove: false,
        source: ([127, 0, 0, 1], 5060).into(),
        to: uri(to),
        addressed: uri(to),
        from: uri("+33123456789"),
        display: None,
        asserted: Vec::new(),
        withheld: false,
        headers: Vec::new(),
        hops: Hops::default(),
        offer: Some(Body::sdp(OFFER)),
    }
}

#[track_caller]
fn told(record: &Value, expected: [&str; 3]) {
    let told = ["status", "end_reason", "ended_by"].map(|field| record[field].as_str().unwrap());
    assert_eq!(told, expected, "{record}");
}

/// Neither the record nor `call.ended` tells of an answer.
#[track_caller]
fn never_answered(record: &Value, told: &[Value]) {
    assert_eq!(
        (&record["answered_at"], &record["duration_seconds"]),
        (&Value::Null, &json!(0.0)),
        "{record}"
    );
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0]["duration_seconds"], 0.0);
}

#[tokio::test]
async fn a_caller_who_may_give_a_password_is_asked_for_it_before_the_number_is_nobodys() {
    let bench = Bench::new().await;
    let trunk = bench.by_address(&bench.test.key).await;
    for (may_prove, code) in [(false, 404), (true, 401)] {
        let incoming = Incoming {
            may_prove,
            ..incoming(&[trunk], NUMBER)
        };
        let mut line = bench.exchange.line();
        let events = &mut line.events;
        let taken = bench.task().take(line.id, &incoming, events).await;
        assert_eq!(taken.err(), Some(Declined::with(code)));
    }
}

#[tokio::test]
async fn audio_is_of_the_family_that_the_call_comes_over() {
    let test = TestApp::with(|config| {
        let udp = |addr: &str| Listen {
            transport: Transport::Udp,
            addr: addr.parse().unwrap(),
        };
        config.sip.listen = vec![udp("[::1]:0"), udp("127.0.0.1:0")];
    })
    .await;
    let exchange = Arc::clone(test.app.telephone.open(&test.app).await.unwrap());
    for (source, ours) in [
        ("127.0.0.1:5060", "127.0.0.1"),
        ("[::1]:5060", "::1"),
        ("192.0.2.7:5060", "127.0.0.1"),
    ] {
        let incoming = Incoming {
            source: source.parse().unwrap(),
            ..incoming(&[], NUMBER)
        };
        let place = exchange.place(&exchange.of_caller(&incoming, &[]));
        let local = place.local(Encryption::Allow).unwrap();
        assert_eq!(local.address.to_string(), ours, "{source}");
    }
}

#[tokio::test]
async fn a_caller_whose_audio_is_of_the_other_family_is_told_so_and_leaves_no_record() {
    let bench = Bench::new().await;
    let trunk = bench.line().await;
    let incoming = Incoming {
        offer: Some(Body::sdp(OFFER.replace("IP4 127.0.0.1", "IP6 ::1"))),
        ..incoming(&[trunk], NUMBER)
    };
    let mut line = bench.exchange.line();
    let events = &mut line.events;
    let taken = bench.task().take(line.id, &incoming, events).await;
    assert_eq!(taken.err(), Some(Declined::WRONG_FAMILY));
    let (_, list) = bench.test.call("GET", "/calls", None).await;
    assert_eq!(list["total"], 0, "{list}");
}

#[tokio::test]
async fn a_registration_waits_for_the_database_and_the_events_behind_it_do_not() {
    let bench = Bench::new().await;
    let app = &bench.test.app;
    let trunk = bench.registers().await;
    bench.claim(&app.config.cluster.node).await;
    let number = sip_trunks::sip_id(trunk);
    let busy = app.db.begin_write().await.unwrap();
    let events = [
        Event::RegistrationFailed {
            trunk: number,
            realms: Vec::new(),
            code: Some(503),
            reason: "Busy".to_owned(),
            retry_in: Duration::from_secs(30),
        },
        Event::Registered {
            trunk: number,
            expires: 60,
            realms: Vec::new(),
        },
    ];
    // It is no future: there is nothing that it could wait for.
    for event in events {
        hand_on(app, &bench.exchange, event);
    }
    drop(busy);
    standings::write(app, &bench.exchange.standings).await;
    let path = format!("/sip-trunks/{trunk}");
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let (_, shown) = bench.test.call("GET", &path, None).await;
        if shown["registration"]["status"] == "registered" {
            return;
        }
        // The task of the stack may have taken it.
        assert!(Instant::now() < until, "{shown}");
    }
}

#[tokio::test]
async fn a_node_that_slept_past_its_claim_writes_over_no_newer_word() {
    let bench = Bench::new().await;
    let app = &bench.test.app;
    let trunk = bench.registers().await;
    let (node, until) = (app.config.cluster.node.clone(), app.clock.now().plus(CLAIM));
    bench.claim(&node).await;
    let newer = bench.stands(trunk, Ok(until)).await;
    assert_eq!(newer["status"], "registered");
    // Its claim runs out while it sleeps; while nobody else has it, its word is still the newest.
    app.clock.advance(CLAIM);
    assert_eq!(bench.stands(trunk, Err(busy())).await["status"], "failed");
    let newer = bench.stands(trunk, Ok(until)).await;
    bench.claim("another").await;
    let logged = Logged::start();
    assert_eq!(bench.stands(trunk, Err(busy())).await, newer);
    assert!(logged.text().contains("holds its claim no more"));
    app.clock.advance(CLAIM);
    bench.claim(&node).await;
    assert_eq!(bench.stands(trunk, Err(busy())).await["status"], "failed");
}

#[tokio::test]
async fn no_claim_follows_a_wall_clock_and_one_of_a_clock_that_was_ahead_holds_nobody_back() {
    let bench = Bench::new().await;
    let app = &bench.test.app;
    let trunk = bench.registers().await;
    let claims = async |node: &str| {
        let now = app.clock.shared();
        let claims = sip_trunks::store::claim_registrations(&app.db, node, now, CLAIM).await;
        claims.unwrap()
    };
    for seconds in [3_600, -3_600, 86_400, -86_400] {
        assert_eq!(claims("one").await, [trunk]);
        app.clock.step(seconds);
        // Set forward it has not run out, and it is renewed.
        assert_eq!(claims("another").await, [], "{seconds} s");
        app.clock.advance(CLAIM.mul_f64(0.6));
        assert_eq!(claims("one").await, [trunk], "{seconds} s");
        app.clock.advance(CLAIM.mul_f64(0.6));
        assert_eq!(claims("another").await, [], "{seconds} s");
        // Set back it runs out in its time.
        app.clock.advance(CLAIM);
        assert_eq!(claims("another").await, [trunk], "{seconds} s");
        app.clock.advance(CLAIM);
        // A node whose clock was ahead has claimed it, and died.
        let ahead = app
            .clock
            .shared()
            .plus(Duration::from_secs(seconds.unsigned_abs()));
        let claimed = sip_trunks::store::claim_registrations(&app.db, "ahead", ahead, CLAIM);
        assert_eq!(claimed.await.unwrap(), [trunk]);
        assert_eq!(claims("one").await, [trunk], "{seconds} s");
        app.clock.advance(CLAIM);
    }
}

#[tokio::test]
async fn the_last_failure_of_a_registration_stays_when_the_next_one_succeeds() {
    let bench = Bench::new().await;
    let app = &bench.test.app;
    let trunk = bench.registers().await;
    bench.claim(&app.config.cluster.node).await;
    let failed = bench.stands(trunk, Err(busy())).await;
    let failure = json!({"at": FAILED_AT, "code": 503, "reason": "Busy"});
    assert_eq!(
        failed,
        json!({"status": "failed", "expires_at": null, "last_error": "503 Busy", "last_failure": failure})
    );
    let registered = bench.stands(trunk, Ok(app.clock.now())).await;
    assert_eq!(
        (&registered["status"], &registered["last_error"]),
        (&json!("registered"), &Value::Null)
    );
    assert_eq!(registered["last_failure"], failure);
    // No response has no code, and none of the failure before.
    let away = Failure {
        code: None,
        reason: "no answer".to_owned(),
        ..busy()
    };
    let failed = bench.stands(trunk, Err(away)).await;
    assert_eq!(failed["last_error"], "no answer");
    assert_eq!(failed["last_failure"]["code"], Value::Null);
    let path = format!("/sip-trunks/{trunk}");
    for status in ["disabled", "active"] {
        let body = json!({"status": status});
        let (_, shown) = bench.test.call("PATCH", &path, Some(body)).await;
        assert_eq!(
            shown["registration"]["last_failure"],
            Value::Null,
            "{shown}"
        );
    }
}

#[tokio::test]
async fn a_challenge_that_is_not_answered_is_in_the_trunks_record_whatever_node_was_asked() {
    let bench = Bench::new().await;
    let trunk = bench.by_address(&bench.test.key).await;
    for method in ["BYE", "INVITE"] {
        let event = Event::ChallengeWithheld {
            trunk: sip_trunks::sip_id(trunk),
            code: 401,
            reason: format!("{method}: challenge not answered: {}", "x".repeat(400)),
        };
        hand_on(&bench.test.app, &bench.exchange, event);
        standings::write(&bench.test.app, &bench.exchange.standings).await;
        let path = format!("/sip-trunks/{trunk}");
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            let (_, shown) = bench.test.call("GET", &path, None).await;
            let told = &shown["last_refused_challenge"];
            let reason = told["reason"].as_str().unwrap_or_default();
            if reason.starts_with(method) {
                assert_eq!((&told["code"], reason.len()), (&json!(401), 200), "{shown}");
                break;
            }
            // The task of the stack may have taken it.
            assert!(Instant::now() < until, "{shown}");
        }
    }
}

/// Each account would learn of the other.
#[tokio::test]
async fn that_two_trunks_have_a_password_in_common_is_logged_and_told_to_neither() {
    let bench = Bench::new().await;
    let (_, key) = bench.test.other_account().await;
    let trunks = [
        bench.by_address(&bench.test.key).await,
        bench.by_address(&key).await,
    ];
    let logged = Logged::start();
    let event = Event::SharedPassword {
        trunks: trunks.iter().map(|id| sip_trunks::sip_id(*id)).collect(),
        source: ([192, 0, 2, 1], 5060).into(),
    };
    hand_on(&bench.test.app, &bench.exchange, event);
    let text = logged.text();
    assert!(text.contains("password in common"), "{text}");
    assert!(
        trunks.iter().all(|id| text.contains(&id.to_string())),
        "{text}"
    );
    let path = format!("/sip-trunks/{}", trunks[0]);
    let (_, shown) = bench.test.call("GET", &path, None).await;
    assert_eq!(shown["last_refused_challenge"], Value::Null);
}

#[tokio::test]
async fn who_gives_up_while_the_call_is_let_in_is_not_answered() {
    let bench = Bench::new().await;
    let trunk = bench.line().await;
    let mut line = bench.exchange.line();
    bench.leave(line.id);
    let incoming = incoming(&[trunk], NUMBER);
    let events = &mut line.events;
    let taken = bench.task().take(line.id, &incoming, events).await;
    assert_eq!(taken.err(), Some(Declined::CANCELED));
    let record = bench.record().await;
    told(&record, ["canceled", "caller_hangup", "caller"]);
    assert_eq!(record["sip_code"], 487);
    never_answered(&record, &bench.ends_told().await);
    assert!(bench.test.app.live.is_empty());
    let path = format!("/sip-trunks/{trunk}");
    let (_, trunk) = bench.test.call("GET", &path, None).await;
    assert_eq!(trunk["active_calls"], 0, "its slot is free");
}

#[tokio::test]
async fn the_record_has_the_response_that_the_caller_got() {
    let bench = Bench::new().await;
    let trunk = bench.line().await;
    let app = &bench.test.app;
    let mut line = bench.exchange.line();
    let incoming = incoming(&[trunk], NUMBER);
    let events = &mut line.events;
    let taken = bench.task().take(line.id, &incoming, events).await;
    assert!(matches!(taken, Ok(Conversation::Agent(_))));
    let record = bench.record().await;
    assert_eq!(
        (&record["status"], &record["sip_code"]),
        (&json!("in_progress"), &json!(200))
    );
    let path = format!("/calls/{}/end", record["id"].as_str().unwrap());
    bench.post(&bench.test.key, &path, json!({})).await;
    assert!(app.live.drained(Duration::from_secs(20)).await);
    let record = bench.record().await;
    assert_eq!(
        (&record["status"], &record["sip_code"]),
        (&json!("completed"), &json!(200))
    );
}

/// An INVITE without an offer is answered with ours, and the caller answers that later. The agent and its speech are
/// those of the moment in which the call was let in.
#[tokio::test]
async fn who_speaks_is_settled_when_a_call_is_let_in() {
    let bench = Bench::new().await;
    let trunk = bench.line().await;
    let app = &bench.test.app;
    let SipLeg { id, mut events } = bench.exchange.line();
    let incoming = Incoming {
        offer: None,
        ..incoming(&[trunk], NUMBER)
    };
    let task = bench.task();
    let answers = async {
        bench.stood("in_progress").await;
        let gone = app.db.query("delete from agents");
        gone.execute().await.unwrap();
        let acknowledged = Event::Established {
            call: id,
            body: Some(Body::sdp(OFFER)),
        };
        hand_on(app, &bench.exchange, acknowledged);
    };
    let (taken, ()) = tokio::join!(task.take(id, &incoming, &mut events), answers);
    assert!(matches!(taken, Ok(Conversation::Agent(_))));
    assert_eq!(app.live.len(), 1, "the engine has it");
}

/// Its record stood as that of a call which is answered.
#[tokio::test]
async fn a_call_that_is_refused_at_the_last_moment_has_that_response() {
    let bench = Bench::new().await;
    let trunk = bench.line().await;
    let app = &bench.test.app;
    let block = app.db.query("update accounts set blocked_at = 1");
    block.execute().await.unwrap();
    let mut line = bench.exchange.line();
    let incoming = incoming(&[trunk], NUMBER);
    let events = &mut line.events;
    let taken = bench.task().take(line.id, &incoming, events).await;
    assert_eq!(taken.err(), Some(Declined::with(403)));
    let record = bench.record().await;
    assert_eq!(record["sip_code"], 403);
    never_answered(&record, &bench.ends_told().await);
}

#[tokio::test]
async fn a_call_whose_telephone_is_lost_has_failed() {
    for (by, expected) in [
        (EndedBy::Remote, ["completed", "caller_hangup", "caller"]),
        (EndedBy::Network, ["failed", "media_timeout", "system"]),
        // What was agreed holds no more, say: the stack hangs up by itself.
        (EndedBy::Local, ["failed", "engine_error", "system"]),
    ] {
        let bench = Bench::new().await;
        let trunk = bench.line().await;
        bench.lose(trunk, by).await;
        let record = bench.record().await;
        told(&record, expected);
        assert_eq!(record["sip_code"], 200, "it was answered");
    }
}

#[tokio::test]
async fn what_failed_over_a_trunk_is_told_for_a_day() {
    let bench = Bench::new().await;
    let trunk = bench.line().await;
    let app = &bench.test.app;
    for _ in 0..2 {
        app.clock.advance(Duration::from_secs(1));
        bench.lose(trunk, EndedBy::Network).await;
    }
    let path = format!("/sip-trunks/{trunk}");
    let (_, record) = bench.test.call("GET", &path, None).await;
    let (_, calls) = bench.test.call("GET", "/calls", None).await;
    let latest = &calls["items"][0];
    let last = json!({"call_id": latest["id"], "ended_at": latest["ended_at"], "status": "failed", "sip_code": 200});
    assert_eq!(
        (&record["failed_calls"], &record["last_failed_call"]),
        (&json!(2), &last)
    );
    let (_, list) = bench.test.call("GET", "/sip-trunks", None).await;
    assert_eq!(list["items"], json!([record]));
    app.clock.advance(Duration::from_secs(86_401));
    let (_, record) = bench.test.call("GET", &path, None).await;
    assert_eq!(
        (&record["failed_calls"], &record["last_failed_call"]),
        (&json!(0), &Value::Null)
    );
}

/// A node looks at the trunks, and its stack is told of a new one a moment later.
#[tokio::test]
async fn a_call_over_a_trunk_that_the_stack_is_still_to_be_told_of_goes_out() {
    let bench = Bench::new().await;
    let key = &bench.test.key;
    let carrier = UdpSocket::bind("127.0.0.1:0").unwrap();
    carrier
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let address = carrier.local_addr().unwrap().to_string();
    let out = json!({"type": "outbound", "auth_mode": "ip_acl", "outbound_address": address});
    // It is among the trunks of the node, and nobody has told the stack.
    let trunk = bench.trunk(key, out).await;
    let more = json!({"outbound_enabled": true});
    bench.number(key, NUMBER, trunk, more).await;
    let agent = json!({"name": "Echo", "system_prompt": "Repeat.", "voice_id": "scripted-tone",
        "llm_model": "echo"});
    let agent = bench.post(key, "/agents", agent).await;
    let wish = json!({"agent_id": agent["id"], "to_number": "+4989654321", "from_number": NUMBER});
    bench.post(key, "/calls", wish).await;
    let heard = tokio::task::spawn_blocking(move || {
        let mut datagram = [0; 2_048];
        let length = carrier.recv(&mut datagram).expect("an INVITE");
        String::from_utf8_lossy(&datagram[..length]).into_owned()
    });
    let heard = heard.await.unwrap();
    assert!(heard.starts_with("INVITE sip:"), "{heard}");
}
