//! Who gets onto a call: one holder, once.

use std::time::Duration;

use futures_util::future::join_all;
use kit::socket::{Caller, telco};
use serde_json::json;
use tokio::time::sleep;

use crate::stage::{self, refused};

/// At the same time on one `ws_url`: a hundred, in a soak a thousand; and how long they are waited for.
fn race() -> (usize, Duration) {
    if stage::soak() {
        (1000, Duration::from_secs(15))
    } else {
        (100, Duration::from_secs(2))
    }
}

#[tokio::test]
async fn of_a_hundred_racers_one_is_let_in() {
    let _together = stage::together().await;
    let server = stage::server().await;
    let client = server.client();
    let agent = stage::agent(&client, json!({})).await;
    let session = stage::session(&client, &agent).await;
    let url = session.text("ws_url");
    let (count, patience) = race();
    let racers = join_all((0..count).map(|_| async {
        let mut racer = Caller::open(&url)
            .await
            .expect("everybody gets the upgrade");
        racer.close_code(patience).await;
        racer
    }))
    .await;
    let (winners, losers): (Vec<Caller>, Vec<Caller>) =
        racers.into_iter().partition(|racer| racer.closed.is_none());
    assert_eq!((winners.len(), losers.len()), (1, count - 1));
    assert_eq!(winners[0].of_kind("session_started").len(), 1);
    for loser in losers {
        assert_eq!(loser.closed, Some(1008));
        assert_eq!(loser.messages.len(), 1);
        assert_eq!(loser.of_kind("error").len(), 1);
    }
    let id = session.text("session_id");
    let status = client.get(&format!("/conversation/{id}/status")).await;
    assert_eq!(status.expect(200).text("status"), "live");
}

#[tokio::test]
async fn a_url_that_is_not_good_any_more_or_never_was_is_1008() {
    let _together = stage::together().await;
    let server = stage::server().await;
    let client = server.client();
    let agent = stage::agent(&client, json!({})).await;

    let used = stage::session(&client, &agent).await;
    let used_url = used.text("ws_url");
    let mut caller = Caller::join(&used, "").await.unwrap();
    caller.listen(100).await;
    let is_1008 = async |url: &str| {
        let (error, code) = refused(url).await;
        assert_eq!(code, 1008, "{url}");
        for key in ["code", "message", "request_id"] {
            assert!(error[key].is_string(), "{error}");
        }
    };
    is_1008(&used_url).await;
    caller.listen(100).await;
    assert_eq!(caller.closed, None, "the first one is not disturbed");

    caller.send(&json!({"type": "end"})).await;
    assert_eq!(caller.close_code(Duration::from_secs(3)).await, Some(1000));
    is_1008(&used_url).await;

    let fresh = stage::session(&client, &agent).await;
    let (base, token) = {
        let url = fresh.text("ws_url");
        let (base, token) = url.split_once("?token=").unwrap();
        (base.to_owned(), token.to_owned())
    };
    let other = stage::session(&client, &agent).await;
    let other_token = other
        .text("ws_url")
        .split_once("?token=")
        .unwrap()
        .1
        .to_owned();
    let (id, other_id) = (fresh.text("session_id"), other.text("session_id"));
    for url in [
        base.clone(),
        format!("{base}?token="),
        format!("{base}?token={other_token}"),
        format!("{base}/{other_token}"),
        format!("{base}?token={token}A"),
        format!("{base}?token={}", &token[..token.len() - 1]),
        format!("{base}?token={}", "A".repeat(6000)),
        format!("{}?token={token}", base.replace(&id, &other_id)),
        format!(
            "{}?token={token}",
            base.replace(&id, &uuid::Uuid::new_v4().to_string())
        ),
        format!("{}?token={token}", base.replace(&id, "%00")),
    ] {
        is_1008(&url).await;
    }

    // None of them used it up. Ended before anybody joined, it is.
    client
        .post(&format!("/conversation/{other_id}/end"), &json!({}))
        .await
        .expect(200);
    is_1008(&other.text("ws_url")).await;
    let mut caller = Caller::open(&format!("{base}/{token}")).await.unwrap();
    caller.listen(200).await;
    assert_eq!(
        caller.of_kind("session_started")[0]["session_id"],
        json!(id)
    );
    caller.hang_up().await;
}

#[tokio::test]
async fn a_vendor_joins_with_the_token_in_the_path_or_the_query() {
    let _together = stage::together().await;
    let server = stage::server().await;
    let client = server.client();
    let agent = stage::agent(&client, json!({})).await;
    for in_query in [false, true] {
        let mut session = client.connect(&telco(&agent)).await;
        let url = session.text("ws_url");
        let (base, token) = url.rsplit_once('/').unwrap();
        assert!(
            base.ends_with(&session.text("session_id")) && !token.contains('?'),
            "{url}"
        );
        if in_query {
            session.body["ws_url"] = json!(format!("{base}?token={token}"));
        }
        let mut caller = Caller::join(&session, "").await.unwrap();
        caller.wait_for("media", 2000).await;
        assert_eq!(refused(&url).await.1, 1008);
        caller.hang_up().await;
    }
}

#[tokio::test]
async fn an_expired_url_is_1008_and_its_slot_is_free() {
    if !stage::soak() {
        return;
    }
    let server = stage::setup()
        .set("LIMITS__ACCOUNT_CALLS", "1")
        .start()
        .await;
    let client = server.client();
    let agent = stage::agent(&client, json!({})).await;
    let session = stage::session(&client, &agent).await;
    sleep(Duration::from_secs(61)).await;
    assert_eq!(refused(&session.text("ws_url")).await.1, 1008);
    sleep(Duration::from_secs(4)).await;
    let id = session.text("session_id");
    let call = client.get(&format!("/calls/{id}")).await.expect(200);
    assert_eq!(
        (call.text("status"), call.text("end_reason")),
        ("canceled".into(), "session_expired".into())
    );
    assert!(server.events(&id, "call.ended").await.is_empty());
    stage::session(&client, &agent).await;
}
