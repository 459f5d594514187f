//! API keys: strings that open an account, as far as their scopes go. A string is shown once, when
//! it is made; the database keeps its hash.

pub mod grants;
pub mod http;
pub mod store;
pub mod wire;

use crate::db::{Db, DbError};
use crate::http::scope::Scopes;
use crate::ids::{AccountId, ApiKeyId};
use crate::secret::Secret;
use crate::time::{Clock, Timestamp};

use store::ApiKey;

pub use crate::credential as rules;

use rules::{Minted, Presented};

/// A key that was just made, with its string.
#[derive(Debug)]
pub struct Created {
    pub record: ApiKey,
    pub key: Secret<String>,
}

/// Makes a key.
pub async fn create(
    db: &Db,
    clock: &Clock,
    account: AccountId,
    name: &str,
    scopes: Scopes,
    expires_at: Option<Timestamp>,
) -> Result<Created, DbError> {
    let minted = Minted::new().map_err(|error| DbError::Engine(error.into()))?;
    let record = record(clock, account, name, minted.prefix(), scopes, expires_at);
    store::insert(db, account, &record, &minted).await?;
    Ok(Created {
        record,
        key: minted.into_key(),
    })
}

/// Lets a string that the operator chose open the account, with every scope. A string that was ever known
/// stays what it has become: who revoked, rotated or narrowed its key meant it.
pub async fn adopt(
    db: &Db,
    clock: &Clock,
    account: AccountId,
    name: &str,
    key: &Secret<String>,
) -> Result<(), DbError> {
    let wrong = |why: &str| DbError::Column {
        column: "api key".to_owned(),
        why: why.to_owned(),
    };
    let presented =
        Presented::chosen(key.expose()).ok_or_else(|| wrong("not of the form of a key"))?;
    if let Some((known, until)) = store::of_string(db, presented.public_id()).await? {
        let opens = store::authenticate(db, &presented, clock.now()).await?;
        if opens.is_none_or(|caller| caller.account != account) {
            let (key, status) = (known.id, known.status(clock.now()));
            let rotated = until.is_some();
            tracing::warn!(%key, %status, rotated, "the bootstrap key opens nothing any more: give another one, or none");
        }
        return Ok(());
    }
    let prefix = presented.prefix();
    let record = record(clock, account, name, prefix, Scopes::all(), None);
    match store::insert(db, account, &record, &presented).await {
        // Another node, which started at the same moment, was first.
        Err(error) if error.is_unique_violation() => Ok(()),
        inserted => inserted,
    }
}

fn record(
    clock: &Clock,
    account: AccountId,
    name: &str,
    key_prefix: String,
    scopes: Scopes,
    expires_at: Option<Timestamp>,
) -> ApiKey {
    let now = clock.now();
    ApiKey {
        id: ApiKeyId::new(clock),
        account,
        name: name.to_owned(),
        key_prefix,
        scopes,
        expires_at,
        revoked_at: None,
        created_at: now,
        updated_at: now,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ::http::StatusCode;
    use futures_util::future::join_all;
    use serde_json::json;

    use super::*;
    use crate::accounts;
    use crate::testing::TestApp;

    /// A program whose settings have this key.
    async fn test_with(key: &Secret<String>) -> TestApp {
        let key = key.clone();
        TestApp::with(move |config| config.bootstrap_api_key = Some(key)).await
    }

    /// A start of the program with this key.
    async fn start(test: &TestApp, key: &Secret<String>) -> Result<(), DbError> {
        let (db, clock) = (&test.app.db, &test.app.clock);
        accounts::bootstrap(db, clock, Some(key)).await.map(drop)
    }

    #[tokio::test]
    async fn the_operators_key_stays_revoked_rotated_or_expired_over_a_start() {
        let past = json!({"expires_at": "2026-01-03T00:00:00Z"});
        let ends: [(&str, &str, Option<serde_json::Value>); 4] = [
            ("DELETE", "", None),
            ("POST", "/rotate", None),
            ("POST", "/rotate", Some(json!({"grace_seconds": 60}))),
            ("PATCH", "", Some(past)),
        ];
        for (at, (method, path, body)) in ends.into_iter().enumerate() {
            let key = Secret::new(format!("chosen-by-the-operator-{at}"));
            let test = test_with(&key).await;
            start(&test, &key).await.expect("the first start");
            let opens = async || {
                let (status, _) = test.call_as(key.expose(), "GET", "/api-keys", None).await;
                status == StatusCode::OK
            };
            assert!(opens().await);
            start(&test, &key).await.expect("an ordinary start");
            let (_, keys) = test.call("GET", "/api-keys", None).await;
            assert_eq!(keys["total"], 2, "{keys}");
            let items = keys["items"].as_array().expect("a list");
            let bootstrap = items.iter().find(|item| item["name"] == "bootstrap");
            let id = bootstrap.expect("it has a record")["id"].clone();
            let path = format!("/api-keys/{}{path}", id.as_str().unwrap_or(""));
            let (status, answer) = test.call(method, &path, body).await;
            assert!(status.is_success(), "{method} {path}: {answer}");
            test.app.clock.advance(Duration::from_secs(86_400));
            assert!(!opens().await, "{method} {path}");
            start(&test, &key).await.expect("a start after its end");
            assert!(!opens().await, "{method} {path}");
        }
    }

    #[tokio::test]
    async fn nodes_that_start_at_the_same_moment_adopt_the_operators_key_once() {
        let key = Secret::new("chosen-by-the-operator".to_owned());
        let test = test_with(&key).await;
        let starts = (0..8).map(|_| start(&test, &key));
        for started in join_all(starts).await {
            started.expect("each of them starts");
        }
        let (status, keys) = test.call_as(key.expose(), "GET", "/api-keys", None).await;
        assert_eq!(status, StatusCode::OK, "{keys}");
        assert_eq!(keys["total"], 2, "{keys}");
    }

    #[tokio::test]
    async fn the_operators_key_does_not_come_back_after_two_rotations() {
        let key = Secret::new("chosen-by-the-operator".to_owned());
        let test = test_with(&key).await;
        start(&test, &key).await.expect("the first start");
        let (_, keys) = test.call("GET", "/api-keys", None).await;
        let items = keys["items"].as_array().expect("a list");
        let bootstrap = items.iter().find(|item| item["name"] == "bootstrap");
        let id = bootstrap.expect("it has a record")["id"].clone();
        let path = format!("/api-keys/{}/rotate", id.as_str().unwrap_or(""));
        for _ in 0..2 {
            let (status, answer) = test.call("POST", &path, None).await;
            assert_eq!(status, StatusCode::OK, "{answer}");
            test.app.clock.advance(Duration::from_secs(2 * 86_400));
        }
        start(&test, &key).await.expect("a later start");
        let (status, _) = test.call_as(key.expose(), "GET", "/api-keys", None).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED);
    }
}
