//! Crowds that ask for calls at once: exactly as many are placed as caps, the hour and credit allow.

use std::collections::BTreeMap;

use super::*;

/// How many ask at once.
const CROWD: usize = 1_000;

/// Lets a crowd ask at once: how many were taken, and what the others were told.
async fn rush(desk: &Desk) -> (usize, BTreeMap<String, usize>) {
    let answers = join_all((0..CROWD).map(|_| desk.trigger(desk.wish()))).await;
    let mut told = BTreeMap::new();
    let mut taken = 0;
    for (status, answer) in answers {
        if status == 202 {
            taken += 1;
            continue;
        }
        assert_eq!(status, 429, "{answer}");
        assert!(answer["retry_after"].as_u64().unwrap() > 0);
        *told.entry(answer["error"].to_string()).or_default() += 1;
    }
    assert_eq!(
        desk.calls().await,
        taken as u64,
        "a record for each, and for no other"
    );
    (taken, told)
}

#[tokio::test]
async fn of_a_crowd_exactly_as_many_are_called_as_trunk_account_and_pool_allow() {
    let trunk = |cap: u32| json!({"max_concurrent_calls": cap});
    let desk = Desk::with(|_| {}, trunk(17)).await;
    let (taken, told) = rush(&desk).await;
    assert_eq!(taken, 17, "{told:?}");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told.keys().all(|told| told.contains("trunk")), "{told:?}");

    let desk = Desk::with(|config| config.limits.account_calls = 13, trunk(100)).await;
    let (taken, told) = rush(&desk).await;
    assert_eq!(taken, 13, "{told:?}");
    assert!(told.keys().all(|told| told.contains("account")), "{told:?}");

    let desk = Desk::with(|config| config.limits.pool_calls = 11, trunk(100)).await;
    let (taken, told) = rush(&desk).await;
    assert_eq!(taken, 11, "{told:?}");
    assert!(told.keys().all(|told| told.contains("pool")), "{told:?}");
}

#[tokio::test]
async fn of_a_crowd_exactly_as_many_are_called_as_the_hour_allows() {
    let desk = Desk::with(|_| {}, json!({"calls_per_hour_limit": 23})).await;
    let (taken, told) = rush(&desk).await;
    assert_eq!(taken, 23, "{told:?}");
    assert!(told.keys().all(|told| told.contains("hour")), "{told:?}");
    // Their slots are given back, the hour is not.
    let (_, list) = desk.test.call("GET", "/calls?limit=100", None).await;
    for call in list["items"].as_array().unwrap() {
        desk.end(&json!({"call_id": call["id"]})).await;
    }
    assert_eq!(desk.trigger(desk.wish()).await.0, 429);
    assert_eq!(desk.calls().await, 23);
}

/// A leaked key and a carrier's expensive numbers.
#[tokio::test]
async fn of_a_crowd_of_triggers_to_premium_numbers_none_is_placed_and_none_counts() {
    let only = |mode, entries: &[&str]| json!({"mode": mode, "entries": entries});
    for list in [
        only("allowlist", &["+49", "+33"]),
        only("blocklist", &["+1900", "+4490", "+882", "+979"]),
    ] {
        let trunk = json!({"destination_allowlist": list, "calls_per_hour_limit": 2,
            "max_concurrent_calls": 2});
        let desk = Desk::with(|_| {}, trunk).await;
        let premium = [
            "+19005550100",
            "+449098790000",
            "+88213000000",
            "+97912345678",
        ];
        let asked = (0..CROWD).map(async |n| {
            let mut wish = desk.wish();
            wish["to_number"] = json!(premium[n % premium.len()]);
            match n % 2 {
                0 => desk.trigger(wish).await,
                _ => desk.place(wish).await,
            }
        });
        for answer in join_all(asked).await {
            refused(&answer, 403, "destination_not_allowed");
        }
        assert_eq!(desk.calls().await, 0, "no record is left");
        assert_eq!(desk.test.app.live.count_dialling(), 0);
        // The hour and the slots are as they were.
        let (taken, _) = rush(&desk).await;
        assert_eq!(taken, 2);
    }
}

/// An account that is blocked spends nothing, whoever asks at once.
#[tokio::test]
async fn of_a_crowd_of_a_blocked_account_none_is_called() {
    let desk = Desk::new().await;
    let block = format!("/admin/accounts/{}/block", desk.test.account);
    assert_eq!(desk.test.call_as(ADMIN, "POST", &block, None).await.0, 200);
    let asked = (0..CROWD).map(|_| desk.trigger(desk.wish()));
    for answer in join_all(asked).await {
        refused(&answer, 402, "billing.hard_block");
    }
    assert_eq!(desk.calls().await, 0);
    assert_eq!(desk.test.app.live.count_dialling(), 0);
}
