//! Routes of API keys.

use axum::Json;
use http::StatusCode;

use super::grants::Write;
use super::rules::Minted;
use super::store::{self, ApiKey};
use super::wire::{ApiKeyOut, CreateApiKey, PatchApiKey, RotateApiKey};
use crate::http::page::{List, Page, UpTo};
use crate::http::scope::Scopes;
use crate::http::{
    Access, ApiError, Body, Caller, Context, Created, Done, Endpoint, Found, Id, Made, NoContent,
    Patch, Reply, Scope,
};
use crate::ids::ApiKeyId;
use crate::node::Node;
use crate::time::Timestamp;

const READ: Access = Access::Scopes(&[Scope::ApiKeysRead]);
const WRITE: Access = Access::Scopes(&[Scope::ApiKeysWrite]);

const REVOKED: &str = "conflict: the key is revoked";

/// The route table.
pub fn endpoints() -> Vec<Endpoint<Node>> {
    vec![
        Endpoint::post("/api-keys", WRITE, create)
            .body::<CreateApiKey>()
            .answers::<ApiKeyOut>()
            .summary("Make a key; its string is shown once")
            .operation(
                "createApiKey",
                "Creates a key of the account. The answer holds the whole string, which is shown \
                 here and never again. Without `scopes` it gets those of the default bundle that \
                 the caller has; a scope that the caller lacks is 403 `insufficient_scope`.",
            ),
        Endpoint::get("/api-keys", READ, list)
            .page::<UpTo<200>>()
            .answers::<List<ApiKeyOut>>()
            .summary("List keys, newest first")
            .operation(
                "listApiKeys",
                "Lists the account's keys without their strings. Revoked and expired keys stay \
                 on the list, with their status.",
            ),
        Endpoint::get("/api-keys/{id}", READ, get)
            .summary("Get a key")
            .operation(
                "getApiKey",
                "Answers what is known of a key: its name, its scopes, how its string begins, \
                 and whether it still works. The string itself is not kept.",
            )
            .answers::<ApiKeyOut>(),
        Endpoint::patch("/api-keys/{id}", WRITE, patch)
            .body::<PatchApiKey>()
            .answers::<ApiKeyOut>()
            .or_409(REVOKED)
            .summary("Change a key")
            .operation(
                "updateApiKey",
                "Changes the name, the scopes or the end of a key; what is left out stays. \
                 Scopes and a later end are held against the caller's own scopes, as for a new \
                 key. A revoked key is 409 `conflict`.",
            ),
        Endpoint::delete("/api-keys/{id}", WRITE, delete)
            .summary("Revoke a key, at once")
            .operation(
                "revokeApiKey",
                "Revokes a key: from the next request on its string is 401, on every node. It \
                 stays on the list with the status `revoked`, and cannot be brought back.",
            ),
        Endpoint::post("/api-keys/{id}/rotate", WRITE, rotate)
            .body::<RotateApiKey>()
            .answers::<ApiKeyOut>()
            .or_409(REVOKED)
            .returns(StatusCode::OK)
            .summary("Give a key a new string")
            .operation(
                "rotateApiKey",
                "Gives a key a new string, which is shown here and never again; id, name and \
                 scopes stay. The old string goes on working for `grace_seconds` (none by \
                 default), so that programs can be changed over without a gap.",
            ),
    ]
}

async fn create(cx: Context<Node>, Body(body): Body<CreateApiKey>) -> Made<ApiKeyOut> {
    let (clock, now) = (&cx.clock, cx.clock.now());
    let scopes = match body.scopes {
        Some(scopes) => scopes.into_iter().collect(),
        None => Scopes::default_bundle()
            .iter()
            .filter(|scope| cx.caller.scopes.has(*scope))
            .collect(),
    };
    may(cx.caller, Write::Create(scopes))?;
    in_future(body.expires_at, now)?;
    let (account, name, end) = (cx.account, &body.name, body.expires_at);
    let created = super::create(&cx.db, clock, account, name, scopes, end).await?;
    let out = ApiKeyOut::new(created.record, clock.now());
    Ok(Created(out.with_key(&created.key)))
}

async fn list(cx: Context<Node>, page: Page<UpTo<200>>) -> Result<List<ApiKeyOut>, ApiError> {
    let now = cx.clock.now();
    let keys = cx.rows().page(page).await?;
    Ok(List::each(keys, page, |key| ApiKeyOut::new(key, now)))
}

async fn get(cx: Context<Node>, Id(id): Id<ApiKeyId>) -> Reply<ApiKeyOut> {
    let key = cx.rows().get(id).await?.found()?;
    Ok(Json(ApiKeyOut::new(key, cx.clock.now())))
}

async fn patch(
    cx: Context<Node>,
    Id(id): Id<ApiKeyId>,
    Body(body): Body<PatchApiKey>,
) -> Reply<ApiKeyOut> {
    let PatchApiKey {
        name,
        scopes,
        expires_at,
    } = body;
    let now = cx.clock.now();
    // Read, judged and written in one transaction, so that no other change is lost.
    let mut tx = cx.db.begin_write().await?;
    let old: ApiKey = tx.of(cx.account).hold(id).await?.found()?;
    if name.is_none() && scopes.is_none() && expires_at.is_absent() {
        return Ok(Json(ApiKeyOut::new(old, now)));
    }
    not_revoked(&old)?;
    if let Patch::Value(time) = &expires_at {
        in_future(Some(*time), now)?;
    }
    let named = scopes.is_some();
    let new = ApiKey {
        name: name.unwrap_or_else(|| old.name.clone()),
        scopes: scopes.map_or(old.scopes, |scopes| scopes.into_iter().collect()),
        expires_at: expires_at.or(old.expires_at),
        updated_at: now,
        ..old.clone()
    };
    let change = Write::Change {
        before: &old,
        after: &new,
        scopes: named,
    };
    may(cx.caller, change)?;
    tx.update(cx.account, &new).await?;
    tx.commit().await?;
    Ok(Json(ApiKeyOut::new(new, now)))
}

async fn delete(cx: Context<Node>, Id(id): Id<ApiKeyId>) -> Done {
    may(cx.caller, Write::Revoke)?;
    let mut tx = cx.db.begin_write().await?;
    let is_there = store::revoke(&mut tx, cx.account, id, cx.clock.now()).await?;
    tx.commit().await?;
    is_there.found().map(|()| NoContent)
}

async fn rotate(
    cx: Context<Node>,
    Id(id): Id<ApiKeyId>,
    Body(body): Body<RotateApiKey>,
) -> Reply<ApiKeyOut> {
    let now = cx.clock.now();
    let mut tx = cx.db.begin_write().await?;
    let old: ApiKey = tx.of(cx.account).hold(id).await?.found()?;
    not_revoked(&old)?;
    may(cx.caller, Write::Rotate(&old))?;
    let minted = Minted::new()?;
    let until = now.plus(std::time::Duration::from_secs(body.grace_seconds.into()));
    let new = ApiKey {
        key_prefix: minted.prefix(),
        updated_at: now,
        ..old
    };
    store::rotate(&mut tx, cx.account, &new, &minted, until).await?;
    tx.commit().await?;
    let out = ApiKeyOut::new(new, now);
    Ok(Json(out.with_key(&minted.into_key())))
}

fn may(caller: Caller, write: Write<'_>) -> Result<(), ApiError> {
    write
        .beyond(caller.scopes)
        .map_or(Ok(()), |scope| Err(ApiError::Scope(scope)))
}

fn in_future(time: Option<Timestamp>, now: Timestamp) -> Result<(), ApiError> {
    match time {
        Some(time) if time <= now => Err(ApiError::field(
            "expires_at",
            "datetime_future",
            "Input should be in the future",
        )),
        _ => Ok(()),
    }
}

fn not_revoked(key: &ApiKey) -> Result<(), ApiError> {
    if key.revoked_at.is_some() {
        Err(ApiError::conflict("conflict", "The key is revoked"))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::testing::TestApp;

    #[tokio::test]
    async fn a_key_lives_and_ends() {
        let test = TestApp::new().await;
        let (status, made) = test
            .call(
                "POST",
                "/api-keys",
                Some(json!({"name": "ci", "scopes": ["api_keys:read"]})),
            )
            .await;
        assert_eq!(status, StatusCode::CREATED, "{made}");
        let key = made["key"].as_str().unwrap_or("");
        let path = format!("/api-keys/{}", made["id"].as_str().unwrap_or(""));
        let (status, read) = test.call_as(key, "GET", &path, None).await;
        assert_eq!(
            (status, &read["key"], &read["status"]),
            (StatusCode::OK, &json!(null), &json!("active"))
        );
        let (status, refused) = test.call_as(key, "DELETE", &path, None).await;
        assert_eq!(
            (status, &refused["code"]),
            (StatusCode::FORBIDDEN, &json!("insufficient_scope"))
        );
        assert!(refused["detail"].to_string().contains("api_keys:write"));
        let (status, patched) = test
            .call(
                "PATCH",
                &path,
                Some(json!({"name": "other", "expires_at": null})),
            )
            .await;
        assert_eq!(
            (status, &patched["name"]),
            (StatusCode::OK, &json!("other"))
        );
        let (status, _) = test.call("DELETE", &path, None).await;
        assert_eq!(status, StatusCode::NO_CONTENT);
        let (status, _) = test.call_as(key, "GET", &path, None).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED);
        let (_, listed) = test.call("GET", "/api-keys", None).await;
        assert_eq!(listed["total"], 2);
    }

    #[tokio::test]
    async fn a_rotation_has_its_grace() {
        let test = TestApp::new().await;
        let (_, made) = test
            .call(
                "POST",
                "/api-keys",
                Some(json!({"name": "a", "scopes": ["api_keys:read"]})),
            )
            .await;
        let path = format!("/api-keys/{}", made["id"].as_str().unwrap_or(""));
        let (status, rotated) = test
            .call(
                "POST",
                &format!("{path}/rotate"),
                Some(json!({"grace_seconds": 60})),
            )
            .await;
        assert_eq!(status, StatusCode::OK, "{rotated}");
        let works = async |key: &serde_json::Value| {
            test.call_as(key.as_str().unwrap_or(""), "GET", &path, None)
                .await
                .0
                == StatusCode::OK
        };
        assert!(works(&made["key"]).await && works(&rotated["key"]).await);
        test.app.clock.advance(Duration::from_secs(61));
        assert!(!works(&made["key"]).await && works(&rotated["key"]).await);
    }

    #[tokio::test]
    async fn a_change_is_judged_by_what_stands_when_it_is_written() {
        let test = TestApp::new().await;
        for revoked in [true, false] {
            let (_, made) = test
                .call("POST", "/api-keys", Some(json!({"name": "a"})))
                .await;
            let id: ApiKeyId = made["id"].as_str().unwrap_or("").parse().expect("an id");
            let path = format!("/api-keys/{id}");
            // Another request is in the midst of changing it.
            let mut tx = test.app.db.begin_write().await.expect("a transaction");
            let other = async {
                tokio::time::sleep(Duration::from_millis(200)).await;
                let key = tx.of::<ApiKey>(test.account).hold(id).await;
                let key = key.expect("read").expect("the key");
                let now = test.app.clock.now();
                if revoked {
                    let done = store::revoke(&mut tx, test.account, id, now).await;
                    done.expect("revoked");
                } else {
                    let scopes = [Scope::AgentsRead].into_iter().collect();
                    let narrow = ApiKey { scopes, ..key };
                    let written = tx.update(test.account, &narrow).await;
                    written.expect("narrowed");
                }
                tx.commit().await.expect("written");
            };
            let patch = test.call("PATCH", &path, Some(json!({"name": "b"})));
            let ((status, answer), ()) = tokio::join!(patch, other);
            if revoked {
                assert_eq!(status, StatusCode::CONFLICT, "{answer}");
            } else {
                assert_eq!(
                    (status, &answer["scopes"]),
                    (StatusCode::OK, &json!(["agents:read"]))
                );
                assert_eq!(test.call("GET", &path, None).await.1, answer);
            }
        }
    }

    #[tokio::test]
    async fn nobody_gives_more_than_they_have() {
        let test = TestApp::new().await;
        let small = test
            .key_for(&[Scope::ApiKeysWrite, Scope::AgentsRead])
            .await;
        let (status, body) = test
            .call_as(
                &small,
                "POST",
                "/api-keys",
                Some(json!({"name": "x", "scopes": ["calls:write"]})),
            )
            .await;
        assert_eq!(
            (status, &body["code"]),
            (StatusCode::FORBIDDEN, &json!("insufficient_scope"))
        );
        let (status, body) = test
            .call_as(&small, "POST", "/api-keys", Some(json!({"name": "x"})))
            .await;
        assert_eq!(
            (status, &body["scopes"]),
            (StatusCode::CREATED, &json!(["agents:read"]))
        );
        let (_, big) = test
            .call("POST", "/api-keys", Some(json!({"name": "big"})))
            .await;
        let rotate = format!("/api-keys/{}/rotate", big["id"].as_str().unwrap_or(""));
        assert_eq!(
            test.call_as(&small, "POST", &rotate, None).await.0,
            StatusCode::FORBIDDEN
        );
    }

    #[tokio::test]
    async fn a_key_beyond_the_caller_is_not_made_to_last_and_may_be_taken_away() {
        let test = TestApp::new().await;
        let small = test
            .key_for(&[Scope::ApiKeysWrite, Scope::AgentsRead])
            .await;
        let at = |seconds| json!(test.app.clock.now().plus(Duration::from_secs(seconds)));
        let ends =
            json!({"name": "big", "scopes": ["agents:read", "calls:write"], "expires_at": at(60)});
        let (_, big) = test.call("POST", "/api-keys", Some(ends)).await;
        let path = format!("/api-keys/{}", big["id"].as_str().unwrap_or(""));
        // While it is good, once it has expired, and beside a change that is allowed by itself.
        for wait in [0, 61] {
            test.app.clock.advance(Duration::from_secs(wait));
            for wish in [
                json!({"expires_at": at(3600)}),
                json!({"expires_at": null}),
                json!({"name": "mine", "expires_at": at(3600)}),
                json!({"scopes": ["agents:read", "calls:write"]}),
            ] {
                let (status, body) = test
                    .call_as(&small, "PATCH", &path, Some(wish.clone()))
                    .await;
                assert_eq!(
                    (status, &body["code"]),
                    (StatusCode::FORBIDDEN, &json!("insufficient_scope")),
                    "{wish} after {wait} s"
                );
                assert!(body["detail"].to_string().contains("calls:write"), "{body}");
            }
            let rotate = format!("{path}/rotate");
            let (status, _) = test.call_as(&small, "POST", &rotate, None).await;
            assert_eq!(status, StatusCode::FORBIDDEN);
            let (_, kept) = test.call("GET", &path, None).await;
            assert_eq!(
                (&kept["name"], &kept["expires_at"]),
                (&json!("big"), &big["expires_at"])
            );
        }
        // With all of its scopes it is extended.
        let later = json!({"expires_at": at(3600)});
        let (status, _) = test.call("PATCH", &path, Some(later)).await;
        assert_eq!(status, StatusCode::OK);
        // What takes away or renames gives nothing.
        for wish in [
            json!({"name": "theirs"}),
            json!({"expires_at": at(1800)}),
            json!({"scopes": ["agents:read"], "expires_at": null}),
        ] {
            let (status, body) = test.call_as(&small, "PATCH", &path, Some(wish)).await;
            assert_eq!(status, StatusCode::OK, "{body}");
        }
        let (_, other) = test
            .call("POST", "/api-keys", Some(json!({"name": "other"})))
            .await;
        let path = format!("/api-keys/{}", other["id"].as_str().unwrap_or(""));
        let (status, _) = test.call_as(&small, "DELETE", &path, None).await;
        assert_eq!(status, StatusCode::NO_CONTENT);
    }

    #[tokio::test]
    async fn another_accounts_key_is_not_there() {
        let test = TestApp::new().await;
        let (_, other) = test.other_account().await;
        let (_, made) = test
            .call("POST", "/api-keys", Some(json!({"name": "a"})))
            .await;
        let path = format!("/api-keys/{}", made["id"].as_str().unwrap_or(""));
        for method in ["GET", "DELETE"] {
            assert_eq!(
                test.call_as(&other, method, &path, None).await.0,
                StatusCode::NOT_FOUND
            );
        }
        assert_eq!(
            test.call_as(&other, "PATCH", &path, Some(json!({"name": "z"})))
                .await
                .0,
            StatusCode::NOT_FOUND
        );
        assert_eq!(
            test.call_as(&other, "POST", &format!("{path}/rotate"), None)
                .await
                .0,
            StatusCode::NOT_FOUND
        );
    }
}
