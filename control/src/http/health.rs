//! `/healthz`, `/readyz`, `/metrics`, the OpenAPI document and its page.

use axum::Json;
use axum::extract::State;
use axum::response::{Html, IntoResponse, Response};
use bytes::Bytes;
use http::{StatusCode, header};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::endpoint::{Access, Class, Endpoint};
use super::error::ApiError;
use super::openapi;
use crate::admission::Health as Leases;
use crate::app::App;
use crate::db::Readiness;
use crate::metrics::render::render;
use crate::metrics::text;

/// The routes that tell about the server itself.
pub fn endpoints() -> Vec<Endpoint> {
    let own = |endpoint: Endpoint| endpoint.at_root().class(Class::Exempt);
    vec![
        own(Endpoint::get("/healthz", Access::None, healthz))
            .summary("The process lives")
            .answers::<Health>(),
        own(Endpoint::get("/readyz", Access::None, readyz))
            .summary("Calls can be taken")
            .answers::<Health>()
            .refuses(
                StatusCode::SERVICE_UNAVAILABLE,
                "service_unavailable",
                "something is missing that calls need; the message names it",
            ),
        own(Endpoint::get("/metrics", Access::None, metrics))
            .summary("Prometheus text")
            .sends(&["text/plain"]),
        own(Endpoint::get("/docs", Access::None, docs))
            .summary("This document as a page")
            .sends(&["text/html"]),
        Endpoint::get("/openapi.json", Access::None, document)
            .class(Class::Exempt)
            .summary("This document")
            .answers::<Map<String, Value>>(),
    ]
}

/// How the server is.
#[derive(Serialize, JsonSchema)]
struct Health {
    #[schemars(extend("enum" = ["ok", "ready"]))]
    status: &'static str,
}

async fn healthz() -> Json<Health> {
    Json(Health { status: "ok" })
}

async fn readyz(State(app): State<App>) -> Result<Json<Health>, ApiError> {
    let fault = app.fault().map(|fault| format!("{} (died)", fault.name));
    let mut missing = Vec::new();
    missing.extend(fault.as_deref());
    if app.is_draining() {
        missing.push("draining");
    }
    missing.extend(match app.db.readiness().await {
        Readiness::Ready => None,
        Readiness::Slow => Some("database (does not answer in time)"),
        Readiness::NoWrites => Some("database (takes no writes: is its disk full?)"),
        Readiness::Away => Some("database"),
    });
    match app.admission.health() {
        Leases::Ready => {}
        Leases::Cold => {
            missing.push("redis (cold: waiting for all nodes to tell it of their calls)")
        }
        Leases::Away => missing.push("redis (no connection)"),
    }
    if app.is_lost() {
        missing.push("node (taken for dead by the others)");
    }
    if app.media_is_late() {
        missing.push("media");
    }
    if missing.is_empty() {
        return Ok(Json(Health { status: "ready" }));
    }
    let message = format!("Not ready: {}", missing.join(", "));
    Err(ApiError::Unavailable {
        code: "service_unavailable",
        message,
        retry_after: 5,
    })
}

async fn metrics(State(app): State<App>) -> Response {
    (
        [(header::CONTENT_TYPE, text::CONTENT_TYPE)],
        render(&app).await,
    )
        .into_response()
}

async fn document(State(app): State<App>) -> Response {
    json(written(&app))
}

/// The document, which is made once.
fn written(app: &App) -> Bytes {
    let make = || {
        let base = &app.config.server.public_url;
        let document = openapi::document(&crate::routes::endpoints(), base);
        Bytes::from(document.to_string())
    };
    app.openapi.get_or_init(make).clone()
}

/// A body that is JSON already.
pub fn json(text: Bytes) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

async fn docs() -> Response {
    let policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'";
    (
        [(header::CONTENT_SECURITY_POLICY, policy)],
        Html(include_str!("docs.html")),
    )
        .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::testing::TestApp;

    #[tokio::test]
    async fn the_document_is_made_once_and_names_this_server() {
        let test = TestApp::new().await;
        let (first, again) = (written(&test.app), written(&test.app));
        assert_eq!(first.as_ptr(), again.as_ptr());
        let (status, document) = test.call_as("", "GET", "/openapi.json", None).await;
        assert_eq!(status, StatusCode::OK);
        let server = document["servers"][0]["url"].as_str().unwrap_or("");
        assert!(server.starts_with("http://sidetone.test"), "{server}");
    }
}
