//! Every route against every kind of wrong caller, and the list of routes against the API documents.

use std::collections::{BTreeMap, BTreeSet};

use control::http::Access;
use control::http::endpoint::Operation;
use control::routes;
use kit::client::Client;
use kit::server::Server;
use reqwest::Method;
use serde_json::json;
use uuid::Uuid;

/// Routes that the documents do not name, each with its reason.
const ADDITIONS: [(&str, &str); 13] = [
    ("GET /healthz", "health"),
    ("GET /readyz", "health"),
    ("GET /metrics", "observability"),
    ("GET /docs", "the document for people"),
    ("GET /api/v1/openapi.json", "the document"),
    ("POST /api/v1/admin/accounts", "tenants"),
    ("GET /api/v1/admin/accounts", "tenants"),
    (
        "GET /ws/v1/conversation/{id}/{token}",
        "a vendor that drops query strings",
    ),
    (
        "GET /api/v1/recordings/{id}/file",
        "what a signed recording URL points to",
    ),
    (
        "GET /api/v1/recordings/files/{id}",
        "what a signed recording URL points to",
    ),
    (
        "POST /api/v1/api-keys/{id}/rotate",
        "not shown by the documents",
    ),
    ("GET /api/v1/calls", "not shown by the documents"),
    ("GET /api/v1/calls/{id}", "not shown by the documents"),
];

/// Parameter names differ between the documents and the router.
fn plain(path: &str) -> String {
    let mut out = String::new();
    for part in path.split('/').skip(1) {
        out.push('/');
        out.push_str(if part.starts_with('{') { "{}" } else { part });
    }
    out
}

fn mounted() -> BTreeSet<String> {
    routes::endpoints()
        .iter()
        .map(|endpoint| format!("{} {}", endpoint.method, plain(&endpoint.full_path())))
        .collect()
}

#[test]
fn every_documented_route_that_is_said_to_be_mounted_is_and_no_other() {
    let table = include_str!("../../fixtures/spec/endpoints.tsv");
    let mut documented = BTreeMap::new();
    for line in table.lines().skip(1) {
        let cells: Vec<&str> = line.split('\t').collect();
        assert!(cells.len() >= 4, "{line:?}");
        documented.insert(
            format!("{} {}", cells[0], plain(cells[1])),
            cells[3] == "yes",
        );
    }
    let mounted = mounted();
    for (route, said) in &documented {
        assert_eq!(
            mounted.contains(route),
            *said,
            "{route} in fixtures/spec/endpoints.tsv"
        );
    }
    let additions: BTreeSet<String> = ADDITIONS
        .iter()
        .map(|(route, _)| route.split_once(' ').unwrap())
        .map(|(m, p)| format!("{m} {}", plain(p)))
        .collect();
    for route in &mounted {
        assert!(
            documented.contains_key(route) || additions.contains(route),
            "{route} is in no document"
        );
    }
}

/// The route with these values in place of its parameters.
fn filled(endpoint: &Operation, id: &str) -> String {
    let full = endpoint.full_path();
    let parts: Vec<&str> = full
        .split('/')
        .map(|part| if part.starts_with('{') { id } else { part })
        .collect();
    format!("/{}", parts.join("/"))
}

fn keyed(endpoint: &Operation) -> bool {
    matches!(
        endpoint.access,
        Access::Scopes(_) | Access::AnyScope(_) | Access::CallToken(_)
    )
}

async fn key_with(client: &Client, scopes: &[&str]) -> Client {
    let made = client
        .post("/api-keys", &json!({"name": "grid", "scopes": scopes}))
        .await
        .expect(201);
    client.with_key(&made.text("key"))
}

#[tokio::test]
async fn every_route_refuses_the_wrong_caller_and_the_wrong_method() {
    let server = Server::scripted().await;
    let (client, anonymous) = (server.client(), server.anonymous());
    let models = key_with(&client, &["models:read"]).await;
    let voices = key_with(&client, &["voices:read"]).await;
    let wrong_key = anonymous.with_key("st_live_AAAAAAAA_BBBB");
    let mut probed = 0;
    for endpoint in routes::endpoints()
        .iter()
        .filter(|endpoint| keyed(endpoint))
    {
        let route = format!("{} {}", endpoint.method, endpoint.full_path());
        let path = filled(endpoint, &Uuid::new_v4().to_string());
        let method = endpoint.method.clone();
        let body = (method != Method::GET && method != Method::DELETE).then(|| b"{}".to_vec());
        for stranger in [&anonymous, &wrong_key] {
            let answer = stranger.send(method.clone(), &path, body.clone()).await;
            assert_eq!(
                (answer.status, answer.text("code").as_str()),
                (401, "unauthorized"),
                "{route}"
            );
        }
        // A key without the scope: of two such keys at least one lacks it.
        let other = if endpoint.full_path().contains("/models") {
            &voices
        } else {
            &models
        };
        let answer = other.send(method.clone(), &path, body.clone()).await;
        assert_eq!(
            (answer.status, answer.text("code").as_str()),
            (403, "insufficient_scope"),
            "{route}"
        );
        for wrong in [
            Method::PUT,
            Method::PATCH,
            Method::DELETE,
            Method::POST,
            Method::GET,
        ] {
            let exists = routes::endpoints().iter().any(|e| {
                e.method == wrong && plain(&e.full_path()) == plain(&endpoint.full_path())
            });
            if !exists {
                let answer = client.send(wrong.clone(), &path, None).await;
                assert_eq!(
                    (answer.status, answer.text("code").as_str()),
                    (405, "method_not_allowed"),
                    "{wrong} {route}"
                );
                assert!(
                    answer
                        .header("allow")
                        .is_some_and(|allow| allow.contains(endpoint.method.as_str())),
                    "{route}"
                );
            }
        }
        probed += 1;
    }
    assert!(probed > 25, "only {probed} routes were probed");
}

#[tokio::test]
async fn ids_that_are_unknown_or_malformed_are_told_apart() {
    let server = Server::scripted().await;
    let client = server.client();
    for endpoint in routes::endpoints()
        .iter()
        .filter(|e| keyed(e) && e.full_path().contains('{'))
    {
        let route = format!("{} {}", endpoint.method, endpoint.full_path());
        let body = match endpoint.method {
            Method::GET | Method::DELETE => None,
            _ => Some(body_for(endpoint).to_string().into_bytes()),
        };
        let unknown = filled(endpoint, &Uuid::new_v4().to_string());
        let answer = client
            .send(endpoint.method.clone(), &unknown, body.clone())
            .await;
        // A trunk that is not there is deleted already (document 3).
        if endpoint.method == Method::DELETE && endpoint.full_path().contains("/sip-trunks/") {
            assert_eq!(answer.status, 204, "{route}");
        } else {
            assert_eq!(
                (answer.status, answer.text("code").as_str()),
                (404, "not_found"),
                "{route}: {}",
                answer.body
            );
        }
        // A voice may be named by its slug, so any text is a possible id there.
        if !endpoint.full_path().contains("/voices/") {
            let answer = client
                .send(
                    endpoint.method.clone(),
                    &filled(endpoint, "not-a-uuid"),
                    body,
                )
                .await;
            assert_eq!(
                (answer.status, answer.text("code").as_str()),
                (422, "validation_error"),
                "{route}"
            );
            assert_eq!(answer.body["detail"][0]["type"], "uuid_parsing", "{route}");
        }
    }
}

/// A body that passes the table of the route, so that the id is what is judged.
pub(crate) fn body_for(endpoint: &Operation) -> serde_json::Value {
    let path = endpoint.full_path();
    if path.ends_with("/feedback") {
        json!({"rating": 5})
    } else if path.ends_with("/revoke") {
        json!({"token": "x"})
    } else if path.ends_with("/routing") {
        json!({"fallback_action": "hangup"})
    } else if path.ends_with("/tool-result") {
        json!({"tool_call_id": "x", "result": null})
    } else if path.ends_with("/offer") {
        json!({"sdp": "v=0", "type": "offer"})
    } else if path.ends_with("/ice") {
        json!({"pc_id": "x", "candidates": []})
    } else {
        json!({})
    }
}

pub(crate) const ADMIN: &str = "admin-token-for-tests";

/// A server whose routes for the administrator are mounted.
async fn with_admin() -> Server {
    let setup = kit::server::Setup::default().scripted();
    setup.set("ADMIN_TOKEN", ADMIN).start().await
}

/// A usage trigger; its id.
async fn a_trigger(client: &Client) -> String {
    a_trigger_on(client, "call_minutes", "https://hooks.acme.com/usage").await
}

/// A trigger that the first use of the resource fires, told to this address; its id.
pub(crate) async fn a_trigger_on(client: &Client, resource: &str, callback: &str) -> String {
    let body = json!({
        "name": callback, "resource_type": resource, "threshold_type": "absolute",
        "threshold_value": 1, "period": "month", "event_callback_url": callback,
    });
    client
        .post("/usage/triggers", &body)
        .await
        .expect(201)
        .text("id")
}

#[tokio::test]
async fn pages_have_a_default_a_maximum_and_refuse_one_beyond() {
    let server = with_admin().await;
    let (keyed, admin) = (server.client(), server.anonymous().with_bearer(ADMIN));
    let trigger = a_trigger(&keyed).await;
    let mut lists = 0;
    for endpoint in &routes::endpoints() {
        let Some((default, max, min)) = endpoint.page else {
            continue;
        };
        let client = match endpoint.access {
            Access::Admin => &admin,
            _ => &keyed,
        };
        // The one list that belongs to something.
        let mut path = filled(endpoint, &trigger)[1..].to_owned() + "?";
        // What a search looks for has no default.
        if path.ends_with("/search?") {
            path += "q=hello&";
        }
        let answer = client.get(&format!("/{path}")).await.expect(200);
        assert_eq!(answer.body["limit"], default, "{path}");
        assert_eq!(answer.body["offset"], 0, "{path}");
        for key in ["items", "total", "has_more"] {
            assert!(!answer.body[key].is_null(), "{path} without {key}");
        }
        client.get(&format!("/{path}limit={max}")).await.expect(200);
        for wrong in [
            format!("limit={}", max + 1),
            format!("limit={}", i64::from(min) - 1),
            "offset=-1".into(),
            "limit=x".into(),
            "limit=1.5".into(),
        ] {
            let answer = client.get(&format!("/{path}{wrong}")).await.expect(422);
            let name = wrong.split('=').next().unwrap();
            assert_eq!(
                answer.wrong_fields(),
                [format!("query.{name}")],
                "{path}{wrong}"
            );
        }
        lists += 1;
    }
    assert!(lists >= 5, "only {lists} lists");
}
