//! Whom calls are forwarded to, and whom not.

use super::*;
use crate::calls::dial::store as dial;

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

/// A number that may not place calls is not the caller of one that a rule places either.
#[tokio::test]
async fn a_number_without_outbound_enabled_is_not_forwarded_and_its_record_says_so() {
    let bench = Bench::new().await;
    bench.way_out(json!({})).await;
    let trunk = bench.by_address(&bench.test.key).await;
    let rules =
        json!({"inbound": {"fallback_action": "forward", "fallback_number": "+4989654321"}});
    let id = bench.number(&bench.test.key, NUMBER, trunk, rules).await;
    assert_eq!(bench.forward(trunk, NUMBER).await, 480);
    let why = bench.not_forwarded().await;
    assert!(why.contains("outbound_enabled"), "{why}");
    let record = bench.record().await;
    told(&record, ["no-answer", "no_answer", "system"]);
    assert_eq!(record["sip_code"], 480, "{record}");
    for (enabled, code) in [(true, 487), (false, 480)] {
        let path = format!("/phone-numbers/{id}");
        let body = Some(json!({"outbound_enabled": enabled}));
        let (status, changed) = bench.test.call("PATCH", &path, body).await;
        assert_eq!(status, 200, "{changed}");
        assert_eq!(bench.forward(trunk, NUMBER).await, code, "{enabled}");
    }
}

/// A call without a hop left may be answered here and goes nowhere else.
#[tokio::test]
async fn a_call_without_a_hop_left_is_not_forwarded() {
    for (left, code) in [(Some(0), 483), (Some(1), 487), (None, 487)] {
        let bench = Bench::new().await;
        bench.way_out(json!({})).await;
        let trunk = bench.forwards(NUMBER, "+4989654321").await;
        let mut call = incoming(&[trunk], NUMBER);
        call.hops.max_forwards = left;
        assert_eq!(bench.forward_incoming(&call).await, code, "{left:?}");
        if code == 483 {
            let why = bench.not_forwarded().await;
            assert!(why.contains("Max-Forwards is 0"), "{why}");
            assert_eq!(bench.record().await["sip_code"], 483);
        }
    }
}

/// What rings is read from the records: of any account, and of any node.
#[tokio::test]
async fn a_call_that_comes_back_over_another_account_is_known_by_what_rings() {
    const OTHER: &str = "+4989654321";
    let bench = Bench::new().await;
    let (_, key) = bench.test.other_account().await;
    // It takes what is sent there, and says nothing.
    let carrier = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    let address = carrier.local_addr().unwrap().to_string();
    let there = json!({"outbound_address": address});
    bench.way_out(there.clone()).await;
    bench.way_out_of(&key, there).await;
    let first = bench.forwards(NUMBER, OTHER).await;
    let second = bench.forwards_of(&key, OTHER, NUMBER).await;
    let mut call = incoming(&[first], NUMBER);
    let app = &bench.test.app;
    let mut lines = Vec::new();
    for lap in 1..=2 {
        let called = bench.called_to_forward(&call).await;
        let SipLeg { id, mut events } = bench.exchange.line();
        let task = bench.task();
        let rings = async move { task.admit_or_ring(id, called, &mut events).await.is_ok() };
        lines.push((id, tokio::spawn(rings)));
        let until = Instant::now() + Duration::from_secs(10);
        while dial::live_forwards(&app.db, app.clock.now())
            .await
            .unwrap()
            .len()
            < lap
        {
            assert!(Instant::now() < until, "lap {lap} does not ring");
            tokio::task::yield_now().await;
        }
        // The carrier shows nothing but one number of its own.
        let (trunk, number) = match lap {
            1 => (second, OTHER),
            _ => (first, NUMBER),
        };
        call = incoming(&[trunk], number);
        call.from = Uri::parse("sip:anonymous@anonymous.invalid").unwrap();
    }
    assert_eq!(bench.forward_incoming(&call).await, 483);
    // Another caller of a number that does not come back is forwarded meanwhile.
    let third = bench.forwards("+4930222333", "+15550100").await;
    assert_eq!(bench.forward(third, "+4930222333").await, 487);
    for (line, rings) in lines {
        bench.leave(line);
        assert!(!rings.await.unwrap());
    }
    let left = dial::live_forwards(&app.db, app.clock.now()).await.unwrap();
    assert!(left.is_empty(), "{left:?}");
    // The number is forwarded as before.
    assert_eq!(bench.forward(first, NUMBER).await, 487);
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
