//! `/healthz`, `/readyz`, `/metrics`, the OpenAPI document and its page.

use axum::extract::State;
use axum::response::{Html, IntoResponse, Response};
use http::header;
use serde_json::{Value, json};

use super::endpoint::{Access, Class, Endpoint};
use super::error::ApiError;
use super::openapi;
use crate::admission::Health;
use crate::app::App;
use crate::metrics::render::render;
use crate::metrics::text;

/// The routes that tell about the server itself.
pub fn endpoints() -> Vec<Endpoint> {
    let own = |endpoint: Endpoint| endpoint.at_root().class(Class::Exempt);
    vec![
        own(Endpoint::get("/healthz", Access::None, healthz)).summary("The process lives"),
        own(Endpoint::get("/readyz", Access::None, readyz)).summary("Calls can be taken"),
        own(Endpoint::get("/metrics", Access::None, metrics)).summary("Prometheus text"),
        own(Endpoint::get("/docs", Access::None, docs)).summary("This document as a page"),
        Endpoint::get("/openapi.json", Access::None, document)
            .class(Class::Exempt)
            .summary("This document"),
    ]
}

async fn healthz() -> axum::Json<Value> {
    axum::Json(json!({"status": "ok"}))
}

async fn readyz(State(app): State<App>) -> Result<axum::Json<Value>, ApiError> {
    let mut missing = Vec::new();
    if app.is_draining() {
        missing.push("draining");
    }
    if app.db.ping().await.is_err() {
        missing.push("database");
    }
    match app.admission.health() {
        Health::Ready => {}
        Health::Cold => {
            missing.push("redis (cold: waiting for all nodes to tell it of their calls)")
        }
        Health::Away => missing.push("redis (no connection)"),
    }
    if app.is_lost() {
        missing.push("node (taken for dead by the others)");
    }
    if app.media_is_late() {
        missing.push("media");
    }
    if missing.is_empty() {
        return Ok(axum::Json(json!({"status": "ready"})));
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

async fn document(State(app): State<App>) -> axum::Json<Value> {
    axum::Json(openapi::document(
        &crate::routes::endpoints(),
        &app.config.server.public_url,
    ))
}

async fn docs() -> Response {
    let policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'";
    (
        [(header::CONTENT_SECURITY_POLICY, policy)],
        Html(include_str!("docs.html")),
    )
        .into_response()
}
