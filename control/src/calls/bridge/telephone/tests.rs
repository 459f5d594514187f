//! Calls that come in, told to a desk as the stack would tell them: the stack listens, and nobody calls it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

use std::net::UdpSocket;
use std::sync::Arc;
use std::time::{Duration, Instant};

use media::rtp::sdp::Encryption;
use serde_json::{Value, json};
use sip::event::{CallId as LineId, EndedBy, Event, Incoming};
use sip::message::{Body, Transport, Uri};
use sip::shell::Listen;
use tokio::task::JoinHandle;

use super::exchange::hand_on;
use super::inbound::{Called, Conversation, Declined, Desk, Taken};
use super::standings::{self, Standings};
use super::{Exchange, Line, open};
use crate::admission::{Request, State};
use crate::app::testing::{Logged, TestApp};
use crate::calls::bridge;
use crate::config::Config;
use crate::egress::Allow;
use crate::ids::{CallId, TrunkId};
use crate::sip_trunks;
use crate::sip_trunks::store::Failure;
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
        let exchange = Arc::clone(open(&test.app).await.unwrap());
        Self { test, exchange }
    }

    fn desk(&self) -> Desk {
        Desk {
            app: self.test.app.clone(),
            exchange: Arc::clone(&self.exchange),
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
        let more = json!({"auth_mode": "register", "auth_username": "a", "auth_password": "b",
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
    async fn stands(&self, trunk: TrunkId, standing: Result<Timestamp, Failure>) -> Value {
        let standings = Standings::default();
        standings.put(self.test.account, trunk, standing);
        standings::write(&self.test.app, &standings).await;
        let path = format!("/sip-trunks/{trunk}");
        let (_, mut shown) = self.test.call("GET", &path, None).await;
        shown["registration"].take()
    }

    /// A call over the trunk is answered, and then the stack says that it is over.
    async fn lose(&self, trunk: TrunkId, by: EndedBy) {
        let app = &self.test.app;
        let mut line = self.exchange.line();
        let incoming = incoming(&[trunk], NUMBER);
        let events = &mut line.events;
        let taken = self.desk().take(line.id, &incoming, events).await;
        let Ok(Conversation::Agent(talking)) = taken else {
            panic!("not taken");
        };
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
        let called = self.desk().called(&incoming(&[trunk], NUMBER)).await;
        (called.unwrap_or_else(|why| panic!("{why:?}")), number)
    }

    /// Lets a call ring in a task of its own. Its line, and what becomes of it.
    fn ring(&self, mut called: Called) -> (LineId, JoinHandle<Result<Taken, Declined>>) {
        let rules = called.number.as_mut().unwrap().routing_rules.as_mut();
        rules.unwrap().max_ring_seconds = Some(120);
        let Line { id, mut events } = self.exchange.line();
        let desk = self.desk();
        let rings = async move { desk.admit_or_ring(id, called, &mut events).await };
        (id, tokio::spawn(rings))
    }

    /// The same call another time.
    async fn called_again(&self, trunk: TrunkId) -> Called {
        let called = self.desk().called(&incoming(&[trunk], NUMBER)).await;
        called.unwrap_or_else(|why| panic!("{why:?}"))
    }

    /// The caller on a line hangs up.
    fn leave(&self, line: LineId) {
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
        let mut body = json!({"type": "outbound", "auth_mode": "ip_acl",
            "outbound_address": "127.0.0.1:5998"});
        let fields = body.as_object_mut().unwrap();
        fields.extend(more.as_object().unwrap().clone());
        let trunk = self.trunk(&self.test.key, body).await;
        let path = format!("/sip-trunks/{trunk}/set-default-outbound");
        let (status, answer) = self.test.call("PATCH", &path, None).await;
        assert!(status.is_success(), "{answer}");
        trunk
    }

    /// A number whose calls are forwarded to another one, and the trunk that they come over.
    async fn forwards(&self, number: &str, to: &str) -> TrunkId {
        let trunk = self.by_address(&self.test.key).await;
        let rules = json!({"inbound": {"fallback_action": "forward", "fallback_number": to}});
        self.number(&self.test.key, number, trunk, rules).await;
        trunk
    }

    /// A call to a number that is forwarded, of a caller who gives up as soon as it goes out; the code that ends it.
    async fn forward(&self, trunk: TrunkId, number: &str) -> u16 {
        let called = self.desk().called(&incoming(&[trunk], number)).await;
        let mut called = called.unwrap_or_else(|why| panic!("{why:?}"));
        let rules = called.number.as_mut().unwrap().routing_rules.as_mut();
        // There is no agent to be waited for.
        rules.unwrap().max_ring_seconds = Some(0);
        let mut line = self.exchange.line();
        let left = Event::Ended {
            call: line.id,
            by: EndedBy::Remote,
            code: Some(487),
            reason: "Request Terminated".to_owned(),
        };
        hand_on(&self.test.app, &self.exchange, left);
        let events = &mut line.events;
        let taken = self.desk().admit_or_ring(line.id, called, events).await;
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
        let taken = self.desk().admit_or_ring(line.id, called, events).await;
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
        may_prove: false,
        source: ([127, 0, 0, 1], 5060).into(),
        to: uri(to),
        addressed: uri(to),
        from: uri("+33123456789"),
        display: None,
        asserted: None,
        headers: Vec::new(),
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

/// Document 3: an inbound trunk matches the called number exactly as the carrier sends it.
#[tokio::test]
async fn a_trunk_with_numbers_takes_calls_to_those_as_they_are_written_there() {
    let bench = Bench::new().await;
    let key = &bench.test.key;
    let trunk = bench.by_address(key).await;
    bench.number(key, NUMBER, trunk, json!({})).await;
    let written = [NUMBER, "4930123456", "030123456", "004930123456"];
    let taken = async || {
        let mut taken = Vec::new();
        for to in written {
            match bench.desk().called(&incoming(&[trunk], to)).await {
                Ok(called) => {
                    assert_eq!(called.to, NUMBER);
                    taken.push(to);
                }
                Err(why) => assert_eq!(why, Declined::NOBODY, "{to}"),
            }
        }
        taken
    };
    assert_eq!(taken().await, written, "none are listed");
    let path = format!("/sip-trunks/{trunk}");
    // What is changed holds for the next call.
    for listed in [
        &["030123456"][..],
        &["4930123456", NUMBER],
        &["+4930999999"],
        &[],
    ] {
        let body = json!({"numbers": listed});
        let (status, changed) = bench.test.call("PATCH", &path, Some(body)).await;
        assert!(status.is_success(), "{changed}");
        let expected = written.into_iter();
        let expected: Vec<&str> = expected
            .filter(|to| listed.is_empty() || listed.contains(to))
            .collect();
        assert_eq!(taken().await, expected, "{listed:?}");
    }
}

/// Two accounts have trunks of one carrier.
#[tokio::test]
async fn a_number_is_its_accounts_whatever_others_register_that_ends_alike() {
    let bench = Bench::new().await;
    let (other, key) = bench.test.other_account().await;
    let theirs = bench.by_address(&key).await;
    let ours = bench.by_address(&bench.test.key).await;
    let none = || json!({});
    bench.number(&bench.test.key, NUMBER, ours, none()).await;
    bench.number(&key, "994930123456", theirs, none()).await;
    let whose = async |to: &str| {
        let mut found = Vec::new();
        for trunks in [[theirs, ours], [ours, theirs]] {
            let called = bench.desk().called(&incoming(&trunks, to)).await;
            found.push(called.map(|called| called.account));
        }
        assert_eq!(found[0], found[1], "{to}");
        found.remove(0)
    };
    let us = bench.test.account;
    for to in [NUMBER, "4930123456", "030123456", "004930123456"] {
        assert_eq!(whose(to).await, Ok(us), "{to}");
    }
    assert_eq!(whose("994930123456").await, Ok(other));
    // It ends as both do, and means neither.
    assert_eq!(whose("30123456").await, Err(Declined::NOBODY));
    // In France and in Italy the same is dialled for them.
    let french = "+33612345678";
    bench.number(&bench.test.key, french, ours, none()).await;
    assert_eq!(whose("0612345678").await, Ok(us));
    // Who was there first keeps it.
    bench.test.app.clock.advance(Duration::from_secs(1));
    let italian = "+390612345678";
    bench.number(&key, italian, theirs, none()).await;
    assert_eq!(whose("0612345678").await, Ok(us));
    assert_eq!(whose(french).await, Ok(us));
    assert_eq!(whose(italian).await, Ok(other));
    // Of one account's, neither is meant.
    bench
        .number(&bench.test.key, "+33612345679", ours, none())
        .await;
    bench
        .number(&bench.test.key, "+390612345679", ours, none())
        .await;
    assert_eq!(whose("0612345679").await, Err(Declined::NOBODY));
}

/// Two accounts have trunks of one carrier, which any account can say of its own. Who has a number keeps its calls.
#[tokio::test]
async fn no_spelling_that_another_account_registers_later_takes_or_blocks_a_numbers_calls() {
    let bench = Bench::new().await;
    let (_, key) = bench.test.other_account().await;
    let ours = bench.by_address(&bench.test.key).await;
    let theirs = bench.by_address(&key).await;
    let us = bench.test.account;
    let none = || json!({});
    let american = "+12025550123";
    for number in [NUMBER, american] {
        bench.number(&bench.test.key, number, ours, none()).await;
    }
    for spelling in [
        "030123456",
        "004930123456",
        "+49030123456",
        "2025550123",
        "0012025550123",
    ] {
        let body = json!({"phone_number": spelling, "trunk_id": theirs});
        let path = "/phone-numbers/sip/register";
        let (status, answer) = bench.test.call_as(&key, "POST", path, Some(body)).await;
        assert_eq!(status, 409, "{spelling}: {answer}");
        assert_eq!(answer["code"], "number_already_registered");
    }
    // In Egypt and in Italy these are numbers, which are theirs to register.
    bench.test.app.clock.advance(Duration::from_secs(1));
    for number in ["+2025550123", "+39030123456"] {
        bench.number(&key, number, theirs, none()).await;
    }
    for to in [
        NUMBER,
        "4930123456",
        "030123456",
        "004930123456",
        "+49030123456",
        american,
        "12025550123",
        "2025550123",
        "0012025550123",
    ] {
        for trunks in [[theirs, ours], [ours, theirs]] {
            let called = bench.desk().called(&incoming(&trunks, to)).await;
            assert_eq!(called.map(|called| called.account), Ok(us), "{to}");
        }
    }
    for to in ["+2025550123", "39030123456", "002025550123"] {
        let called = bench.desk().called(&incoming(&[ours, theirs], to)).await;
        let whose = called.map(|called| called.account);
        assert!(whose.is_ok_and(|whose| whose != us), "{to}");
    }
}

/// Each country has its own prefix: in Russia it is 8, in Hungary 06, in North America none.
#[tokio::test]
async fn a_number_is_found_as_its_country_dials_it_whatever_its_prefix_is() {
    let bench = Bench::new().await;
    let trunk = bench.by_address(&bench.test.key).await;
    for (number, dialled) in [
        ("+74951234567", "84951234567"),
        ("+3612345678", "0612345678"),
        ("+12025550123", "2025550123"),
        ("+442079460018", "02079460018"),
    ] {
        bench
            .number(&bench.test.key, number, trunk, json!({}))
            .await;
        let called = bench.desk().called(&incoming(&[trunk], dialled)).await;
        assert_eq!(called.map(|called| called.to), Ok(number.to_owned()));
    }
}

#[tokio::test]
async fn a_number_of_the_trunk_for_calls_out_is_meant_where_calls_in_come_over_another() {
    let bench = Bench::new().await;
    let key = &bench.test.key;
    let out =
        json!({"type": "outbound", "auth_mode": "ip_acl", "outbound_address": "127.0.0.1:5998"});
    let out = bench.trunk(key, out).await;
    let inward = bench.by_address(key).await;
    bench.number(key, NUMBER, out, json!({})).await;
    let called = async |trunks: Vec<TrunkId>, to: &str| {
        let called = bench.desk().called(&incoming(&trunks, to)).await;
        called.map(|called| called.to)
    };
    let ours = || Ok(NUMBER.to_owned());
    for to in [NUMBER, "4930123456", "030123456", "004930123456"] {
        assert_eq!(called(vec![inward], to).await, ours(), "{to}");
    }
    // Where the call may be another account's, what is written so must be on the trunk itself.
    let (_, other) = bench.test.other_account().await;
    let theirs = bench.by_address(&other).await;
    let both = || vec![inward, theirs];
    assert_eq!(called(both(), NUMBER).await, ours());
    assert_eq!(called(both(), "030123456").await, Err(Declined::NOBODY));
}

#[tokio::test]
async fn a_registered_user_who_is_called_without_a_number_is_the_only_one_of_its_trunk() {
    let bench = Bench::new().await;
    // Its user is `a`.
    let trunk = bench.registers().await;
    let called = async |to: &str| {
        let called = bench.desk().called(&incoming(&[trunk], to)).await;
        called.map(|called| called.to)
    };
    let nobody = || Err(Declined::NOBODY);
    assert_eq!(called("a").await, nobody());
    bench
        .number(&bench.test.key, NUMBER, trunk, json!({}))
        .await;
    assert_eq!(called("a").await, Ok(NUMBER.to_owned()));
    assert_eq!(called("b").await, nobody());
    // Another trunk of the carrier takes none of it.
    let (_, key) = bench.test.other_account().await;
    let other = bench.by_address(&key).await;
    bench.number(&key, "+4930123457", other, json!({})).await;
    let both = incoming(&[other, trunk], "a");
    let whose = bench.desk().called(&both).await.map(|called| called.to);
    assert_eq!(whose, Ok(NUMBER.to_owned()));
    bench
        .number(&bench.test.key, "+4930123458", trunk, json!({}))
        .await;
    assert_eq!(called("a").await, nobody());
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
        let taken = bench.desk().take(line.id, &incoming, events).await;
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
    let exchange = Arc::clone(open(&test.app).await.unwrap());
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
    let taken = bench.desk().take(line.id, &incoming, events).await;
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
            code: Some(503),
            reason: "Busy".to_owned(),
            retry_in: Duration::from_secs(30),
        },
        Event::Registered {
            trunk: number,
            expires: 60,
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
async fn who_gives_up_while_the_call_is_let_in_is_not_answered() {
    let bench = Bench::new().await;
    let trunk = bench.line().await;
    let mut line = bench.exchange.line();
    bench.leave(line.id);
    let incoming = incoming(&[trunk], NUMBER);
    let events = &mut line.events;
    let taken = bench.desk().take(line.id, &incoming, events).await;
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
    let taken = bench.desk().take(line.id, &incoming, events).await;
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
    let taken = bench.desk().take(line.id, &incoming, events).await;
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
        (EndedBy::Local, ["failed", "media_timeout", "system"]),
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

#[tokio::test]
async fn a_number_that_is_released_while_it_rings_leaves_a_record() {
    let bench = Bench::new().await;
    let (called, number) = bench.called_in_vain().await;
    let path = format!("/phone-numbers/{number}");
    let (status, _) = bench.test.call("DELETE", &path, None).await;
    assert!(status.is_success(), "{status}");
    assert_eq!(bench.ring_in_vain(called).await, Declined::NOBODY);
    let record = bench.record().await;
    told(&record, ["no-answer", "no_answer", "system"]);
    assert_eq!(
        (&record["sip_code"], &record["to_number"]),
        (&json!(404), &json!(NUMBER))
    );
}

#[tokio::test]
async fn a_server_that_ends_leaves_a_call_that_would_ring_to_another() {
    let bench = Bench::new().await;
    let (called, _) = bench.called_in_vain().await;
    bench.test.app.start_draining();
    assert_eq!(bench.ring_in_vain(called).await, Declined::UNAVAILABLE);
    // It rang nowhere, and its rules were not followed.
    let calls = "select count(*) as calls from calls";
    let calls = bench.test.app.db.query(calls).one(|row| row.i64("calls"));
    assert_eq!(calls.await.unwrap(), 0);
}

#[tokio::test]
async fn a_call_rings_on_while_the_database_cannot_say_who_answers() {
    let bench = Bench::new().await;
    let (mut called, _) = bench.called_in_vain().await;
    let rules = called.number.as_mut().unwrap().routing_rules.as_mut();
    rules.unwrap().max_ring_seconds = Some(1);
    let db = &bench.test.app.db;
    let gone = db.query("alter table phone_numbers rename to numbers_away");
    gone.execute().await.unwrap();
    assert_eq!(bench.ring_in_vain(called).await, Declined::UNAVAILABLE);
    let record = bench.record().await;
    told(&record, ["no-answer", "no_answer", "system"]);
    assert_eq!(record["sip_code"], 503);
}

#[tokio::test]
async fn a_call_that_rings_is_in_the_records_and_a_server_that_ends_refuses_it() {
    let bench = Bench::new().await;
    let app = &bench.test.app;
    let (called, _) = bench.called_in_vain().await;
    let (_, rings) = bench.ring(called);
    let record = bench.stood("ringing").await;
    assert_eq!(
        (&record["direction"], &record["to_number"]),
        (&json!("inbound"), &json!(NUMBER))
    );
    assert_eq!(record["answered_at"], Value::Null);
    let hosted = "select count(*) as calls from calls where owner_incarnation is not null";
    let hosted = app.db.query(hosted).one(|row| row.i64("calls"));
    assert_eq!(hosted.await.unwrap(), 1, "the next process ends it");
    assert_eq!(app.live.count_dialling(), 1, "the end of this one waits");
    app.start_draining();
    assert_eq!(rings.await.unwrap().err(), Some(Declined::UNAVAILABLE));
    assert_eq!(app.live.count_dialling(), 0);
    let record = bench.record().await;
    told(&record, ["no-answer", "no_answer", "system"]);
    assert_eq!(record["sip_code"], 503);
    never_answered(&record, &bench.ends_told().await);
}

#[tokio::test]
async fn a_call_that_rings_is_ended_over_the_api() {
    let bench = Bench::new().await;
    let (called, _) = bench.called_in_vain().await;
    let (_, rings) = bench.ring(called);
    let record = bench.stood("ringing").await;
    let path = format!("/calls/{}/end", record["id"].as_str().unwrap());
    let ended = bench.post(&bench.test.key, &path, json!({})).await;
    assert_eq!(ended["end_reason"], "ended_by_api");
    assert_eq!(rings.await.unwrap().err(), Some(Declined::AWAY));
    let record = bench.record().await;
    told(&record, ["canceled", "ended_by_api", "api"]);
    assert_eq!(record["sip_code"], 480);
}

#[tokio::test]
async fn a_call_that_rang_and_is_taken_is_one_record() {
    let bench = Bench::new().await;
    let (called, number) = bench.called_in_vain().await;
    let (_, rings) = bench.ring(called);
    let rang = bench.stood("ringing").await;
    bench.test.app.clock.advance(Duration::from_secs(3));
    let agent = json!({"name": "Echo", "system_prompt": "Repeat.", "voice_id": "scripted-tone",
        "llm_model": "echo"});
    let agent = bench.post(&bench.test.key, "/agents", agent).await;
    let path = format!("/phone-numbers/{number}");
    let answered = json!({"agent_id": agent["id"]});
    bench.test.call("PATCH", &path, Some(answered)).await;
    let taken = rings.await.unwrap();
    assert!(matches!(taken, Ok(Taken::Call(_))));
    let record = bench.record().await;
    assert_eq!(
        (&record["id"], &record["agent_id"], &record["agent_name"]),
        (&rang["id"], &agent["id"], &json!("Echo"))
    );
    assert_eq!(
        (&record["status"], &record["sip_code"]),
        (&json!("in_progress"), &json!(200))
    );
    assert_eq!(record["started_at"], rang["started_at"]);
    assert_eq!(record["ring_seconds"], 3.0);
}

#[tokio::test]
async fn no_more_calls_ring_over_a_trunk_than_it_may_have() {
    let bench = Bench::new().await;
    let more = json!({"auth_mode": "ip_acl", "allowed_addresses": ["127.0.0.1"],
        "max_concurrent_calls": 1});
    let trunk = bench.trunk(&bench.test.key, more).await;
    let (called, _) = bench.called_over(trunk).await;
    let (line, rings) = bench.ring(called);
    bench.stood("ringing").await;
    let second = bench.called_again(trunk).await;
    assert_eq!(bench.ring_in_vain(second).await, Declined::BUSY);
    // One that did not ring leaves no record, as where a number has no rules.
    bench.leave(line);
    assert_eq!(rings.await.unwrap().err(), Some(Declined::CANCELED));
    told(
        &bench.record().await,
        ["canceled", "caller_hangup", "caller"],
    );
    let third = bench.called_again(trunk).await;
    let (line, rings) = bench.ring(third);
    let until = Instant::now() + Duration::from_secs(10);
    while bench.test.app.live.count_dialling() == 0 {
        assert!(Instant::now() < until, "it does not ring");
        tokio::task::yield_now().await;
    }
    bench.leave(line);
    assert_eq!(rings.await.unwrap().err(), Some(Declined::CANCELED));
}

#[tokio::test]
async fn calls_that_are_not_answered_leave_the_ports_to_others() {
    let bench = Bench::with(|config| config.sip.ports = (43_002, 43_005)).await;
    let app = &bench.test.app;
    let trunk = bench.line().await;
    let take = async || {
        let mut line = bench.exchange.line();
        let incoming = incoming(&[trunk], NUMBER);
        let (desk, events) = (bench.desk(), &mut line.events);
        let taken = desk.take(line.id, &incoming, events).await;
        taken.map(|taken| (line, taken))
    };
    // Not let in, ten times as often as there are ports.
    let idle = app.db.query("update agents set status = 'archived'");
    idle.execute().await.unwrap();
    for _ in 0..20 {
        assert_eq!(take().await.err(), Some(Declined::AWAY));
    }
    // Let in, and refused at the last moment.
    let active = app.db.query("update agents set status = 'active'");
    active.execute().await.unwrap();
    let block = app.db.query("update accounts set blocked_at = 1");
    block.execute().await.unwrap();
    for _ in 0..20 {
        assert_eq!(take().await.err(), Some(Declined::with(403)));
    }
    let unblock = app.db.query("update accounts set blocked_at = null");
    unblock.execute().await.unwrap();
    let both = [take().await, take().await];
    assert!(both.iter().all(Result::is_ok), "both pairs are free");
    // Now there are none, and the record of the third says so.
    assert_eq!(take().await.err(), Some(Declined::UNAVAILABLE));
    let (_, list) = bench.test.call("GET", "/calls?limit=1", None).await;
    let third = &list["items"][0];
    told(third, ["failed", "engine_error", "system"]);
    assert_eq!(
        (&third["sip_code"], &third["answered_at"]),
        (&json!(503), &Value::Null)
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

#[tokio::test]
async fn a_number_that_is_itself_forwarded_is_not_called_however_it_is_registered() {
    for own in ["+4930654321", "4930654321", "030654321"] {
        let bench = Bench::new().await;
        bench.way_out(json!({})).await;
        let trunk = bench.forwards(own, "+4930654321").await;
        assert_eq!(bench.forward(trunk, own).await, 480, "{own}");
        let why = bench.not_forwarded().await;
        assert!(why.contains("itself forwarded"), "{own}: {why}");
    }
}

/// What guards calls that clients place guards those of rules.
#[tokio::test]
async fn no_rule_calls_whom_no_client_may_call() {
    const TO: &str = "+4989654321";
    // Without credit.
    let bench = Bench::new().await;
    bench.way_out(json!({})).await;
    let trunk = bench.forwards(NUMBER, TO).await;
    let block = "update accounts set blocked_at = 1";
    bench.test.app.db.query(block).execute().await.unwrap();
    assert_eq!(bench.forward(trunk, NUMBER).await, 480);
    let why = bench.not_forwarded().await;
    assert!(why.contains("blocked"), "{why}");
    // A number that wants no calls.
    let bench = Bench::new().await;
    bench.way_out(json!({})).await;
    let trunk = bench.forwards(NUMBER, TO).await;
    let entry = json!({"phone_number": TO});
    bench.post(&bench.test.key, "/suppressions", entry).await;
    assert_eq!(bench.forward(trunk, NUMBER).await, 480);
    let why = bench.not_forwarded().await;
    assert!(why.contains("do-not-call"), "{why}");
    // A trunk that has no place.
    let bench = Bench::new().await;
    let way = bench.way_out(json!({"max_concurrent_calls": 1})).await;
    let trunk = bench.forwards(NUMBER, TO).await;
    let (app, account) = (&bench.test.app, bench.test.account);
    let taken = Request {
        trunk: Some((way, 1)),
        ..bridge::wish(app, account, CallId::new(&app.clock), State::Live)
    };
    let taken = app.admit(taken).await.unwrap();
    assert_eq!(bench.forward(trunk, NUMBER).await, 486);
    let why = bench.not_forwarded().await;
    assert!(why.contains("trunk"), "{why}");
    drop(taken);
}

/// The calls of an hour are counted whoever places them.
#[tokio::test]
async fn a_forwarded_call_is_one_of_its_trunks_hour() {
    let bench = Bench::new().await;
    let way = bench.way_out(json!({"calls_per_hour_limit": 1})).await;
    let trunk = bench.forwards(NUMBER, "+4989654321").await;
    let placed = async || {
        let calls =
            "select count(*) as calls from calls where trunk_id = $1 and direction = 'outbound'";
        let calls = bench.test.app.db.query(calls).bind(way);
        calls.one(|row| row.i64("calls")).await.unwrap()
    };
    assert_eq!(bench.forward(trunk, NUMBER).await, 487);
    assert_eq!(placed().await, 1);
    assert_eq!(bench.forward(trunk, NUMBER).await, 486);
    assert_eq!(placed().await, 1);
    bench.test.app.clock.advance(Duration::from_secs(3_600));
    assert_eq!(bench.forward(trunk, NUMBER).await, 487);
    assert_eq!(placed().await, 2);
}
