//! Which calls count in a trunk's hour, and which are forwarded.

#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use serde_json::json;
use uuid::Uuid;

use super::*;
use crate::calls::store::{self, NewCall};
use crate::ids::AgentId;
use crate::testing::{START, TestApp};

const TRUNK: TrunkId = TrunkId(Uuid::from_u128(7));
const OTHER_TRUNK: TrunkId = TrunkId(Uuid::from_u128(8));

/// A call over this trunk; one that goes out is hosted here.
async fn call(
    test: &TestApp,
    trunk: TrunkId,
    direction: &str,
    more: Option<Placing<'_>>,
) -> CallId {
    let (app, id) = (&test.app, CallId::new(&test.app.clock));
    let call = NewCall {
        id,
        agent_id: AgentId::NIL,
        agent_name: "Reception",
        direction,
        channel: "sip",
        language: "english",
        from_number: Some("+33123456789"),
        to_number: Some("+4930123456"),
        phone_number_id: None,
        trunk_id: Some(trunk),
        matched_by: None,
        from_withheld: false,
        dynamic_variables: &json!({}),
    };
    let now = app.clock.now();
    let mut tx = app.db.begin_write().await.unwrap();
    store::insert(&mut tx, test.account, &call, now)
        .await
        .unwrap();
    if let Some(placing) = more {
        host(&mut tx, test.account, id, &placing, now)
            .await
            .unwrap();
    }
    tx.commit().await.unwrap();
    id
}

fn placing<'a>(test: &TestApp, metadata: &'a Value, forwards: Option<CallId>) -> Placing<'a> {
    Placing {
        metadata,
        forwards,
        max_duration_seconds: None,
        node: "a",
        incarnation: 1,
        placed_at: test.app.clock.shared(),
    }
}

/// A call that goes out over this trunk, of a node of the version before `placed_at`, or of this one.
async fn goes_out(test: &TestApp, trunk: TrunkId, of_this_version: bool) {
    let none = json!({});
    let id = call(test, trunk, "outbound", Some(placing(test, &none, None))).await;
    if !of_this_version {
        let before = "update calls set placed_at = null where id = $1";
        let before = test.app.db.query(before).bind(id);
        assert_eq!(before.execute().await.unwrap(), 1);
    }
}

/// While nodes of two versions run beside each other.
#[tokio::test]
async fn a_call_of_a_node_of_the_version_before_counts_in_its_trunk_s_hour() {
    let test = TestApp::new().await;
    let clock = &test.app.clock;
    let full = async |trunk, limit| {
        full_until(&test.app.db, test.account, trunk, limit, clock.shared())
            .await
            .unwrap()
            .map(|until| until.since(START))
    };
    let minutes = |minutes: u64| Some(Duration::from_secs(60 * minutes));
    goes_out(&test, TRUNK, false).await;
    for of_this_version in [true, false] {
        clock.advance(Duration::from_secs(600));
        goes_out(&test, TRUNK, of_this_version).await;
    }
    // Neither what comes in nor what goes over another trunk is one of them.
    call(&test, TRUNK, "inbound", None).await;
    goes_out(&test, OTHER_TRUNK, false).await;
    assert_eq!(full(TRUNK, 4).await, None);
    assert_eq!(full(TRUNK, 3).await, minutes(60));
    assert_eq!(full(TRUNK, 2).await, minutes(70));
    assert_eq!(full(TRUNK, 1).await, minutes(80));
    assert_eq!(full(OTHER_TRUNK, 1).await, minutes(80));
    // The first is an hour old, then the second, which has placed_at.
    clock.advance(Duration::from_secs(40 * 60));
    assert_eq!(full(TRUNK, 3).await, None);
    assert_eq!(full(TRUNK, 2).await, minutes(70));
    clock.advance(Duration::from_secs(600));
    assert_eq!(full(TRUNK, 2).await, None);
    assert_eq!(full(TRUNK, 1).await, minutes(80));
}

/// `metadata` is the client's.
#[tokio::test]
async fn what_a_client_writes_into_metadata_forwards_no_call() {
    let test = TestApp::new().await;
    let live = async || {
        let live = live_forwards(&test.app.db, test.app.clock.now());
        live.await.unwrap().len()
    };
    let came = call(&test, TRUNK, "inbound", None).await;
    let metadata = json!({"forwarded_call_id": came});
    let of_client = placing(&test, &metadata, None);
    call(&test, TRUNK, "outbound", Some(of_client)).await;
    assert_eq!(live().await, 0);
    // What is told to clients of a call that was forwarded makes no difference.
    let none = json!({});
    let mut forwards = Vec::new();
    for metadata in [&metadata, &none] {
        let placing = placing(&test, metadata, Some(came));
        forwards.push(call(&test, TRUNK, "outbound", Some(placing)).await);
    }
    assert_eq!(live().await, 2);
    let over = "update calls set ended_at = $1 where id = $2";
    let over = test.app.db.query(over).bind(START).bind(forwards[0]);
    over.execute().await.unwrap();
    assert_eq!(live().await, 1);
    test.app.clock.advance(LOOKED_BACK);
    assert_eq!(live().await, 0);
}

/// Both are asked before a telephone rings: neither may read all the calls that there ever were.
#[tokio::test]
async fn what_is_asked_before_a_call_goes_out_is_answered_by_indexes_in_their_order() {
    let test = TestApp::new().await;
    for (question, values, indexes) in [
        (
            LAST_HOUR,
            4,
            &[
                "calls_by_trunk_placed (trunk_id=? AND placed_at>?)",
                "calls_by_trunk_direction (trunk_id=? AND direction=? AND created_at>?)",
            ][..],
        ),
        (LIVE_FORWARDS, 2, &["calls_forwarded_open (created_at>?)"]),
    ] {
        let plan = format!("explain query plan {question}");
        let mut plan = test.app.db.query_built(plan);
        for _ in 0..values {
            plan = plan.bind(0_i64);
        }
        let plan: Vec<String> = plan.all(|row| row.text("detail")).await.unwrap();
        for index in indexes {
            let used = |line: &String| line.ends_with(&format!("USING INDEX {index}"));
            assert!(plan.iter().any(used), "{index}: {plan:?}");
        }
        let is_costly = |line: &String| line.starts_with("SCAN") || line.contains("TEMP B-TREE");
        assert!(!plan.iter().any(is_costly), "{plan:?}");
    }
}
