//! What carries a call panics, or cannot tell the stack any more: the call ends once, as `engine_error`, and its
//! slot is free.

use std::sync::atomic::Ordering;

use super::*;
use crate::supervisor::faults;

/// A number of the stack for a call that came in.
const LINE: SipLegId = SipLegId((1 << 63) + 7);

impl Bench {
    /// Has the stack tell of a call over this trunk.
    fn comes_in(&self, trunk: TrunkId) {
        let incoming = Box::new(incoming(&[trunk], NUMBER));
        hand_on(
            &self.test.app,
            &self.exchange,
            Event::Incoming(LINE, incoming),
        );
    }

    /// The caller presses a key.
    fn key(&self) {
        let event = Event::Digit {
            call: LINE,
            digit: '1',
            duration_ms: 100,
        };
        hand_on(&self.test.app, &self.exchange, event);
    }

    /// A call to the agent's number that has begun.
    async fn talks(&self) {
        let trunk = self.line().await;
        self.comes_in(trunk);
        self.stood("in_progress").await;
        let app = &self.test.app;
        let until = Instant::now() + Duration::from_secs(10);
        while app.live.is_empty() {
            assert!(Instant::now() < until, "the engine has no call");
            tokio::task::yield_now().await;
        }
    }

    /// Every call has ended as the server's fault, was told of once, and holds nothing.
    async fn all_broke(&self, count: usize) -> Vec<Value> {
        let app = &self.test.app;
        assert!(app.live.drained(Duration::from_secs(20)).await);
        let until = Instant::now() + Duration::from_secs(10);
        let over = loop {
            let (_, list) = self.test.call("GET", "/calls", None).await;
            let items = list["items"].as_array().unwrap().clone();
            if items.len() == count && items.iter().all(|call| !call["ended_at"].is_null()) {
                break items;
            }
            assert!(Instant::now() < until, "not over: {list}");
        };
        for call in &over {
            told(call, ["failed", "engine_error", "system"]);
        }
        assert_eq!(self.ends_told().await.len(), count);
        // It is freed behind the end.
        while app.admission.counts().await.unwrap().live > 0 {
            assert!(Instant::now() < until, "a slot is held");
            tokio::task::yield_now().await;
        }
        over
    }

    /// Places a call over a trunk to nobody.
    async fn places(&self) {
        let agent = json!({"name": "Echo", "system_prompt": "Repeat.", "voice_id": "scripted-tone",
            "llm_model": "echo"});
        let agent = self.post(&self.test.key, "/agents", agent).await;
        let way = self.way_out(json!({})).await;
        let dials = json!({"agent_id": agent["id"], "outbound_enabled": true});
        self.number(&self.test.key, NUMBER, way, dials).await;
        let wish = json!({"agent_id": agent["id"], "to_number": "+4989654321",
            "from_number": NUMBER});
        self.post(&self.test.key, "/calls", wish).await;
    }
}

#[tokio::test]
async fn a_panic_while_a_call_is_let_in_leaves_no_line_and_no_slot() {
    let bench = Bench::new().await;
    let trunk = bench.line().await;
    faults::arm("a call that comes in", bench.test.account);
    bench.comes_in(trunk);
    let until = Instant::now() + Duration::from_secs(10);
    while bench.exchange.count_lines() > 0 {
        assert!(Instant::now() < until, "its line is open");
        tokio::task::yield_now().await;
    }
    let (_, list) = bench.test.call("GET", "/calls", None).await;
    assert_eq!(list["total"], 0, "{list}");
    let counts = bench.test.app.admission.counts().await.unwrap();
    assert_eq!((counts.live, counts.pending), (0, 0));
}

#[tokio::test]
async fn a_panic_beside_a_conversation_ends_it_once() {
    let bench = Bench::new().await;
    bench.talks().await;
    faults::arm("a telephone call", bench.test.account);
    bench.key();
    bench.all_broke(1).await;
    assert_eq!(bench.exchange.count_lines(), 0);
}

#[tokio::test]
async fn a_panic_while_a_call_is_placed_on_the_engine_ends_it_once() {
    let bench = Bench::new().await;
    let trunk = bench.line().await;
    faults::arm("a call's placing", bench.test.account);
    bench.comes_in(trunk);
    bench.all_broke(1).await;
}

#[tokio::test]
async fn a_panic_while_a_call_is_placed_ends_it_once() {
    let bench = Bench::new().await;
    faults::arm("a call that is placed", bench.test.account);
    bench.places().await;
    let over = bench.all_broke(1).await;
    assert_eq!(over[0]["answered_at"], Value::Null);
    assert_eq!(bench.exchange.count_lines(), 0);
}

/// The caller, and the callee to whom the call was forwarded.
#[tokio::test]
async fn a_panic_beside_two_that_hear_each_other_ends_both_calls_once() {
    let bench = Bench::new().await;
    bench.way_out(json!({})).await;
    let trunk = bench.by_address(&bench.test.key).await;
    let rules = json!({"outbound_enabled": true,
        "inbound": {"fallback_action": "forward", "fallback_number": "+4989654321",
        "max_ring_seconds": 5}});
    bench.number(&bench.test.key, NUMBER, trunk, rules).await;
    // There is no agent to be waited for.
    let at_once = "update phone_numbers set routing_rules =
        replace(routing_rules, '\"max_ring_seconds\":5', '\"max_ring_seconds\":0')";
    bench.test.app.db.query(at_once).execute().await.unwrap();
    bench.comes_in(trunk);
    let until = Instant::now() + Duration::from_secs(20);
    while bench.exchange.count_lines() < 2 {
        assert!(Instant::now() < until, "nobody is called");
        tokio::task::yield_now().await;
    }
    // The first number that the exchange gives to a call of its own.
    let callee = SipLegId(1);
    let answered = Event::Answered {
        call: callee,
        body: Some(Body::sdp(OFFER)),
    };
    hand_on(&bench.test.app, &bench.exchange, answered);
    let joined = async || {
        let (_, list) = bench.test.call("GET", "/calls", None).await;
        let items = list["items"].as_array().unwrap().clone();
        items.iter().all(|call| call["status"] == "in_progress")
    };
    while !joined().await {
        assert!(Instant::now() < until, "they are not joined");
    }
    faults::arm("joined calls", bench.test.account);
    bench.key();
    for call in bench.all_broke(2).await {
        assert_ne!(call["answered_at"], Value::Null, "{call}");
    }
    assert_eq!(bench.exchange.count_lines(), 0);
}

#[tokio::test]
async fn a_command_of_a_call_that_finds_no_room_ends_it() {
    let bench = Bench::new().await;
    bench.talks().await;
    bench.exchange.full.store(true, Ordering::Relaxed);
    let offer = Event::Offer {
        call: LINE,
        body: Some(Body::sdp(OFFER)),
    };
    hand_on(&bench.test.app, &bench.exchange, offer);
    bench.all_broke(1).await;
    assert!(bench.exchange.not_led() >= 1);
    assert_eq!(bench.exchange.count_lines(), 0);
}

#[tokio::test]
async fn a_call_that_cannot_be_placed_for_want_of_room_says_so() {
    let bench = Bench::new().await;
    bench.exchange.full.store(true, Ordering::Relaxed);
    bench.places().await;
    let over = bench.all_broke(1).await;
    let path = format!(
        "/conversations/{}/diagnostics",
        over[0]["id"].as_str().unwrap()
    );
    let (_, told) = bench.test.call("GET", &path, None).await;
    let why = told["errors"].to_string();
    assert!(why.contains("no more commands"), "{why}");
}

#[tokio::test]
async fn calls_end_with_the_stack_and_the_process_is_told() {
    let bench = Bench::new().await;
    bench.talks().await;
    assert_eq!(bench.test.app.fault(), None);
    bench.exchange.break_off();
    bench.all_broke(1).await;
    let fault = bench.test.app.failed().await;
    assert_eq!(fault.to_string(), "thread sip died: it ended");
    let asked = http::Request::get("/readyz").body(axum::body::Body::empty());
    let (status, _, _, answer) = bench.test.whole(asked.unwrap()).await;
    assert_eq!(status.as_u16(), 503, "{answer}");
    let message = answer.to_string();
    assert!(message.contains("thread sip (died)"), "{message}");
}
