//! Whom calls are forwarded to, and whom not.

use super::*;

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
