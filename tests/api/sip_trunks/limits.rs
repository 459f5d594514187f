//! How many trunks an account may have, and how much a trunk may be given.

use super::*;

#[tokio::test]
async fn an_account_has_so_many_trunks_and_no_more() {
    let test = kit::app::with(|config| config.sip.account_trunks = 2).await;
    let (_, other) = test.other_account().await;
    let first = make(&test, outbound()).await;
    let second = make(&test, inbound()).await;
    // A disabled one is one of them.
    let (status, _) = test
        .call("PATCH", &path(&second), Some(json!({"status": "disabled"})))
        .await;
    assert_eq!(status, 200);
    for (path, body) in [
        ("/sip-trunks", outbound()),
        ("/sip-trunks", inbound()),
        ("/sip-trunks/onboard", onboarding()),
    ] {
        let answer = test.call("POST", path, Some(body)).await;
        let why = answer.1["error"].as_str().unwrap().to_owned();
        assert!(
            why.contains("2 SIP trunks") && why.contains("sip.account_trunks"),
            "{why}"
        );
        refused(answer, 409, "trunk_limit_reached", &[]);
    }
    // Nothing of it is left, a trunk that is there may change, and another account has room of its own.
    let (_, numbers) = test.call("GET", "/phone-numbers", None).await;
    assert_eq!(numbers["total"], 0, "{numbers}");
    let (status, _) = test
        .call("PATCH", &path(&second), Some(json!({"status": "active"})))
        .await;
    assert_eq!(status, 200);
    let body = Some(with(outbound(), json!({"numbers": ["+15550177"]})));
    let (status, made) = test.call_as(&other, "POST", "/sip-trunks", body).await;
    assert_eq!(status, 201, "{made}");
    // One that is deleted makes room.
    let (status, _) = test.call("DELETE", &path(&first), None).await;
    assert_eq!(status, 204);
    make(&test, outbound()).await;
}

#[tokio::test]
async fn of_many_trunks_that_are_made_at_once_there_are_as_many_as_there_may_be() {
    let test = kit::app::with(|config| config.sip.account_trunks = 3).await;
    let each = (0..10).map(|at| {
        let numbers = json!({"numbers": [format!("+155501{at:02}")]});
        test.call("POST", "/sip-trunks", Some(with(outbound(), numbers)))
    });
    let answers = futures_util::future::join_all(each).await;
    let made = answers.iter().filter(|(status, _)| *status == 201).count();
    let full = answers.iter().filter(|(status, _)| *status == 409).count();
    assert_eq!((made, full), (3, 7), "{answers:?}");
}

#[tokio::test]
async fn limits_are_clamped_to_the_platforms() {
    let test = kit::app::with(|config| {
        config.sip.trunk_calls = 20;
        config.sip.trunk_calls_per_hour = 100;
    });
    let test = test.await;
    let much = json!({"max_concurrent_calls": 5_000, "calls_per_hour_limit": 5_000});
    let made = make(&test, with(outbound(), much.clone())).await;
    let clamped = |trunk: &Value| {
        assert_eq!(trunk["max_concurrent_calls"], 20);
        assert_eq!(trunk["calls_per_hour_limit"], 100);
    };
    clamped(&made);
    let (_, lower) = test
        .call(
            "PATCH",
            &path(&made),
            Some(json!({"max_concurrent_calls": 3, "calls_per_hour_limit": 4})),
        )
        .await;
    assert_eq!(
        (
            &lower["max_concurrent_calls"],
            &lower["calls_per_hour_limit"]
        ),
        (&json!(3), &json!(4))
    );
    clamped(&test.call("PATCH", &path(&made), Some(much)).await.1);
    let none = json!({"calls_per_hour_limit": null});
    let (_, none) = test.call("PATCH", &path(&made), Some(none)).await;
    assert_eq!(none["calls_per_hour_limit"], json!(null));
}
