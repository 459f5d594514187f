//! Every refusal has the one shape, whoever made it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

use axum::Router;
use axum::body::Body;
use axum::middleware;
use axum::routing::get;
use serde_json::{Value, json};

use super::*;
use crate::http::Access;
use crate::http::scope::Scope;
use crate::testing::TestApp;

async fn send(
    test: &TestApp,
    request: http::request::Builder,
    body: impl Into<Body>,
) -> (StatusCode, HeaderMap, Value) {
    let request = request.body(body.into()).unwrap();
    let (status, headers, _, body) = test.whole(request).await;
    (status, headers, body)
}

fn request(method: &str, path: &str) -> http::request::Builder {
    http::Request::builder().method(method).uri(path)
}

#[tokio::test]
async fn what_the_router_refuses_has_the_shape() {
    let test = TestApp::new().await;
    let (status, _, body) = send(&test, request("GET", "/api/v1/nowhere"), "").await;
    assert_eq!(
        (status, &body["code"]),
        (StatusCode::NOT_FOUND, &json!("not_found"))
    );
    let (status, headers, body) = send(&test, request("PUT", "/api/v1/api-keys"), "").await;
    assert_eq!(
        (status, &body["code"]),
        (StatusCode::METHOD_NOT_ALLOWED, &json!("method_not_allowed"))
    );
    let allow = headers["allow"].to_str().unwrap();
    assert!(allow.contains("GET") && allow.contains("POST"), "{allow}");
    let (status, headers, _) = send(&test, request("OPTIONS", "/api/v1/api-keys"), "").await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    assert!(headers["allow"].to_str().unwrap().contains("POST"));
    assert!(!headers.contains_key("access-control-allow-origin"));
    let (status, _, body) = send(&test, request("GET", "/api/v1/%ff/x"), "").await;
    assert_eq!(
        (status, &body["code"]),
        (StatusCode::NOT_FOUND, &json!("not_found"))
    );
}

#[tokio::test]
async fn too_much_is_refused_with_the_shape() {
    let test = TestApp::new().await;
    let key = test.key.as_str();
    let post = || request("POST", "/api/v1/api-keys").header("x-api-key", key);
    let json_post = || post().header("content-type", "application/json");
    let (status, headers, body) = send(&test, json_post(), vec![b' '; 1024 * 1024 + 1]).await;
    assert_eq!(
        (status, &body["code"]),
        (StatusCode::PAYLOAD_TOO_LARGE, &json!("payload_too_large"))
    );
    assert_eq!(headers["connection"], "close");
    let (status, headers, body) =
        send(&test, post().header("content-type", "text/plain"), "{}").await;
    assert!(!headers.contains_key("connection"));
    assert_eq!(
        (status, &body["code"]),
        (
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            &json!("unsupported_media_type")
        )
    );
    let (status, _, body) = send(&test, json_post(), "{").await;
    assert_eq!(
        (status, &body["fields"][0]["type"]),
        (StatusCode::UNPROCESSABLE_ENTITY, &json!("json_invalid"))
    );
    let (status, _, body) = send(&test, json_post(), "").await;
    assert_eq!(
        (status, &body["fields"][0]["loc"]),
        (StatusCode::UNPROCESSABLE_ENTITY, &json!(["body", "name"]))
    );
    assert_eq!(body["detail"], body["fields"]);
    let (status, _, body) = send(
        &test,
        request("GET", "/healthz").header("x-long", "y".repeat(40_000)),
        "",
    )
    .await;
    assert_eq!(
        status,
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        "{body}"
    );
    let (status, ..) = send(&test, request("GET", &format!("/{}", "x".repeat(9000))), "").await;
    assert_eq!(status, StatusCode::URI_TOO_LONG);
}

#[tokio::test]
async fn a_panic_is_a_500_that_tells_nothing() {
    let mut test = TestApp::new().await;
    test.router = Router::new()
        .route(
            "/boom",
            get(|| async {
                if true {
                    panic!("secret reason")
                }
            }),
        )
        .layer(middleware::from_fn_with_state(
            test.app.metrics.clone(),
            envelope,
        ));
    let (status, _, body) = send(&test, request("GET", "/boom"), "").await;
    assert_eq!(
        (status, &body["code"]),
        (StatusCode::INTERNAL_SERVER_ERROR, &json!("internal_error"))
    );
    assert!(!body.to_string().contains("secret reason"));
}

#[tokio::test]
async fn who_does_not_say_who_they_are_is_told_how() {
    let test = TestApp::new().await;
    for request in [
        request("GET", "/api/v1/api-keys"),
        request("GET", "/api/v1/api-keys").header("x-api-key", "st_live_nonsense"),
        request("GET", "/api/v1/api-keys").header("authorization", "Basic abc"),
        request("GET", "/api/v1/api-keys").header("authorization", "Bearer"),
    ] {
        let (status, headers, body) = send(&test, request, "").await;
        assert_eq!(
            (status, &body["code"]),
            (StatusCode::UNAUTHORIZED, &json!("unauthorized"))
        );
        assert_eq!(headers["www-authenticate"], "Bearer");
    }
    let bearer = format!("bearer {}", test.key);
    let (status, headers, _) = send(
        &test,
        request("GET", "/api/v1/api-keys").header("authorization", bearer),
        "",
    )
    .await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(headers["ratelimit-limit"], "1200");
    assert_eq!(headers["ratelimit-remaining"], "1199");
    assert!(headers.contains_key("ratelimit-reset"));
    let (status, headers, _) = send(
        &test,
        request("HEAD", "/api/v1/api-keys").header("x-api-key", &test.key),
        "",
    )
    .await;
    assert_eq!(
        (status, &headers["ratelimit-remaining"]),
        (StatusCode::OK, &HeaderValue::from_static("1198"))
    );
}

#[tokio::test]
async fn budgets_run_out_and_refill() {
    let test = TestApp::with(|config| {
        config.limits.reads_per_minute = 1;
        config.limits.failed_auth_per_minute = 1;
    })
    .await;
    let read = async |key: &str| {
        send(
            &test,
            request("GET", "/api/v1/api-keys").header("x-api-key", key),
            "",
        )
        .await
    };
    for _ in 0..2 {
        assert_eq!(read(&test.key).await.0, StatusCode::OK);
    }
    let (status, headers, body) = read(&test.key).await;
    assert_eq!(
        (status, &body["code"]),
        (StatusCode::TOO_MANY_REQUESTS, &json!("rate_limited"))
    );
    assert_eq!(
        (&headers["retry-after"], &headers["ratelimit-remaining"]),
        (&HeaderValue::from(60), &HeaderValue::from(0))
    );
    test.app.clock.advance(std::time::Duration::from_secs(60));
    assert_eq!(read(&test.key).await.0, StatusCode::OK);
    for _ in 0..2 {
        assert_eq!(read("wrong").await.0, StatusCode::UNAUTHORIZED);
    }
    let (status, headers, _) = read("wrong").await;
    assert_eq!(
        (status, headers.contains_key("retry-after")),
        (StatusCode::TOO_MANY_REQUESTS, true)
    );
}

/// The defaults, of each class that a key has besides reading: twice a minute's worth at once, then as many a
/// minute as they say. A refused body has counted like any other.
#[tokio::test]
async fn each_class_of_requests_runs_out_alone_and_for_one_key() {
    let test = TestApp::new().await;
    let other = test.key_for(Scope::ALL).await;
    let unknown = format!("/agents/{}", Uuid::nil());
    for (method, path, per_minute) in [
        ("DELETE", unknown.as_str(), 300),
        ("POST", "/conversation/connect", 120),
        ("POST", "/tts", 60),
    ] {
        let ask = async |key: &str| {
            let request = request(method, &format!("/api/v1{path}"))
                .header("x-api-key", key)
                .header("content-type", "application/json");
            send(&test, request, "{}").await
        };
        let size = 2 * per_minute;
        for left in (0..size).rev() {
            let (status, headers, body) = ask(&test.key).await;
            assert!(
                matches!(status.as_u16(), 404 | 422),
                "{method} {path}: {status} with {left} left: {body}"
            );
            assert_eq!(headers["ratelimit-limit"], HeaderValue::from(size));
            assert_eq!(headers["ratelimit-remaining"], HeaderValue::from(left));
        }
        let (status, headers, body) = ask(&test.key).await;
        assert_eq!(
            (status, &body["code"], &headers["retry-after"]),
            (
                StatusCode::TOO_MANY_REQUESTS,
                &json!("rate_limited"),
                &HeaderValue::from(1)
            ),
            "{method} {path}"
        );
        let (status, headers, _) = ask(&other).await;
        assert_ne!(status, StatusCode::TOO_MANY_REQUESTS, "another key");
        assert_eq!(headers["ratelimit-remaining"], HeaderValue::from(size - 1));
    }
    test.app.clock.advance(std::time::Duration::from_secs(1));
    for (path, passes) in [("/conversation/connect", 2), ("/tts", 1)] {
        for asked in 0..=passes {
            let (status, _) = test.call("POST", path, Some(json!({}))).await;
            assert_eq!(
                status == StatusCode::TOO_MANY_REQUESTS,
                asked == passes,
                "{path}: request {asked} after a second"
            );
        }
    }
}

#[tokio::test]
async fn the_administrator_has_routes_only_with_a_token() {
    let none = TestApp::new().await;
    assert_eq!(
        send(&none, request("POST", "/api/v1/admin/accounts"), "")
            .await
            .0,
        StatusCode::NOT_FOUND
    );
    let test = TestApp::with(|config| {
        config.admin_token = Some(crate::secret::Secret::new("swordfish".to_owned()))
    })
    .await;
    let post = |token: &str| {
        let bearer = format!("Bearer {token}");
        request("POST", "/api/v1/admin/accounts")
            .header("authorization", bearer)
            .header("content-type", "application/json")
    };
    let body = || json!({"name": "acme"}).to_string();
    assert_eq!(
        send(&test, post("wrong"), body()).await.0,
        StatusCode::UNAUTHORIZED
    );
    assert_eq!(
        send(&test, post(&test.key), body()).await.0,
        StatusCode::UNAUTHORIZED
    );
    assert_eq!(
        send(&test, post("swordfish"), body()).await.0,
        StatusCode::CREATED
    );
    let (status, _, again) = send(&test, post("swordfish"), body()).await;
    assert_eq!(
        (status, &again["code"]),
        (StatusCode::CONFLICT, &json!("name_taken"))
    );
}

#[tokio::test]
async fn the_server_tells_about_itself() {
    let test = TestApp::new().await;
    assert_eq!(
        send(&test, request("GET", "/healthz"), "").await.0,
        StatusCode::OK
    );
    assert_eq!(
        send(&test, request("GET", "/readyz"), "").await.0,
        StatusCode::OK
    );
    let (_, _, document) = send(&test, request("GET", "/api/v1/openapi.json"), "").await;
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(
        document["paths"]["/api/v1/api-keys"]["post"]["x-scopes"],
        json!([Scope::ApiKeysWrite])
    );
    assert!(document["components"]["schemas"]["CreateApiKey"]["properties"]["name"].is_object());
    assert_eq!(
        send(&test, request("GET", "/docs"), "").await.0,
        StatusCode::OK
    );
    let metrics = request("GET", "/metrics").body(Body::empty()).unwrap();
    let (_, _, metrics, _) = test.whole(metrics).await;
    let text = String::from_utf8(metrics.to_vec()).unwrap();
    assert!(
        text.contains(
            "sidetone_http_requests_total{route=\"/healthz\",method=\"GET\",status=\"200\"} 1"
        ),
        "{text}"
    );
    test.app.start_draining();
    let (status, headers, body) = send(&test, request("GET", "/readyz"), "").await;
    assert_eq!(
        (status, headers.contains_key("retry-after")),
        (StatusCode::SERVICE_UNAVAILABLE, true)
    );
    assert!(body["detail"].to_string().contains("draining"));
}

/// Read from the route table itself, so a new route is in it without a line here.
#[tokio::test]
async fn no_route_opens_without_its_scopes() {
    let test = TestApp::new().await;
    for endpoint in crate::routes::endpoints() {
        let (Access::Scopes(scopes) | Access::AnyScope(scopes) | Access::CallToken(scopes)) =
            endpoint.access
        else {
            continue;
        };
        let name = format!("{} {}", endpoint.method, endpoint.path);
        let path = endpoint
            .full_path()
            .split('/')
            .map(|part| {
                if part.starts_with('{') {
                    Uuid::nil().to_string()
                } else {
                    part.to_owned()
                }
            })
            .collect::<Vec<_>>()
            .join("/");
        let send = async |key: Option<&str>| {
            let mut request = request(endpoint.method.as_str(), &path);
            if let Some(key) = key {
                request = request.header("x-api-key", key);
            }
            send(&test, request, "").await
        };
        assert_eq!(send(None).await.0, StatusCode::UNAUTHORIZED, "{name}");
        let others: Vec<Scope> = Scope::ALL
            .iter()
            .copied()
            .filter(|scope| !scopes.contains(scope))
            .collect();
        let (status, _, body) = send(Some(&test.key_for(&others).await)).await;
        assert_eq!(
            (status, &body["code"]),
            (StatusCode::FORBIDDEN, &json!("insufficient_scope")),
            "{name}"
        );
        let (status, _, body) = send(Some(&test.key_for(scopes).await)).await;
        assert!(
            status != StatusCode::FORBIDDEN && !status.is_server_error(),
            "{name}: {status} {body}"
        );
    }
}
