//! Whoever may ask: with no key, with keys that are wrong in every way, with the key of another account.

use control::http::Scope;
use kit::client::Client;
use kit::server::new_key;
use serde_json::json;

use super::world::World;

/// What a caller's credential is worth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Standing {
    /// There is none.
    Anonymous,
    /// It is no key, or not any longer.
    Nobody,
    /// A key of some account, without the scope of any route.
    Scopeless,
    /// A key of the other account, with all scopes.
    Whole,
}

/// A caller.
pub(super) struct Caller {
    pub(super) name: &'static str,
    pub(super) standing: Standing,
    headers: Vec<(&'static str, String)>,
}

impl Caller {
    fn new(name: &'static str, standing: Standing, headers: &[(&'static str, &str)]) -> Self {
        let headers = headers.iter().map(|(k, v)| (*k, (*v).to_owned()));
        Self {
            name,
            standing,
            headers: headers.collect(),
        }
    }

    pub(super) fn headers(&self) -> Vec<(&str, &str)> {
        let own = self.headers.iter().map(|(k, v)| (*k, v.as_str()));
        own.chain([("content-type", "application/json")]).collect()
    }
}

/// A new key with these scopes: its id and its string.
async fn key(client: &Client, scopes: &[&str]) -> (String, String) {
    let body = json!({"name": "for a while", "scopes": scopes});
    let made = client.post("/api-keys", &body).await.expect(201);
    (made.text("id"), made.text("key"))
}

pub(super) async fn all(world: &World) -> Vec<Caller> {
    use Standing::{Anonymous, Nobody, Scopeless, Whole};
    let (first, other) = (&world.first.client, &world.other.client);
    // No route of today asks for this scope.
    let rare = [Scope::SmsInboxRead.name()];
    let (_, firsts_rare) = key(first, &rare).await;
    let (_, others_rare) = key(other, &rare).await;

    let all = Scope::NAMES;
    let (id, revoked) = key(first, all).await;
    first.delete(&format!("/api-keys/{id}")).await.expect(204);
    let (id, rotated) = key(first, all).await;
    let path = format!("/api-keys/{id}/rotate");
    first.post(&path, &json!({})).await.expect(200);
    let (id, expired) = key(first, all).await;
    let db = world.server.database().await;
    let set = db.query("update api_keys set expires_at = 1 where id = $1");
    assert_eq!(set.bind(&id).execute().await.expect("the update"), 1);
    db.close().await;

    let (_, whole) = key(other, all).await;
    let mut cut = whole.clone();
    cut.pop();
    let unknown = new_key();
    let bearer = |text: &str| format!("Bearer {text}");
    vec![
        Caller::new("no key", Anonymous, &[]),
        Caller::new("nonsense", Nobody, &[("x-api-key", "open sesame")]),
        Caller::new("an empty key", Nobody, &[("x-api-key", "")]),
        Caller::new("a key without its end", Nobody, &[("x-api-key", &cut)]),
        Caller::new("a key of nobody", Nobody, &[("x-api-key", &unknown)]),
        Caller::new("a revoked key", Nobody, &[("x-api-key", &revoked)]),
        Caller::new("a rotated key", Nobody, &[("x-api-key", &rotated)]),
        Caller::new("an expired key", Nobody, &[("x-api-key", &expired)]),
        Caller::new(
            "a key under another scheme",
            Nobody,
            &[("authorization", &format!("Basic {whole}"))],
        ),
        // The first header counts, and is wrong.
        Caller::new(
            "a wrong key before a right one",
            Nobody,
            &[("x-api-key", &unknown), ("authorization", &bearer(&whole))],
        ),
        Caller::new(
            "the account's key without the scope",
            Scopeless,
            &[("x-api-key", &firsts_rare)],
        ),
        Caller::new(
            "another account's key without the scope",
            Scopeless,
            &[("x-api-key", &others_rare)],
        ),
        Caller::new("another account's key", Whole, &[("x-api-key", &whole)]),
        Caller::new(
            "another account's key as a bearer",
            Whole,
            &[("authorization", &bearer(&whole))],
        ),
    ]
}
