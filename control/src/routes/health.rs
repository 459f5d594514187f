//! `/healthz`, `/readyz`, `/metrics`, the OpenAPI document and its page.

use axum::Json;
use axum::extract::State;
use axum::response::{Html, IntoResponse, Response};
use http::{StatusCode, header};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::document;
use super::figures::render;
use crate::admission::Health as Leases;
use crate::app::App;
use crate::db::Readiness;
use crate::http::answers::HeaderDoc;
use crate::http::{Access, ApiError, Class, Endpoint};
use crate::metrics::text;

/// The routes that tell about the server itself.
pub(super) fn endpoints() -> Vec<Endpoint<App>> {
    let own = |endpoint: Endpoint<App>| endpoint.at_root().class(Class::Exempt);
    vec![
        own(Endpoint::get("/healthz", Access::None, healthz))
            .summary("The process lives")
            .operation(
                "getHealth",
                "Answers as long as the process can answer at all, and looks at nothing else. \
                 Use it to decide whether the process must be started anew; `getReadiness` \
                 tells whether calls may be sent to it.",
            )
            .answers::<Health>(),
        own(Endpoint::get("/readyz", Access::None, readyz))
            .summary("Calls can be taken")
            .operation(
                "getReadiness",
                "Tells whether this node takes calls: the database answers and takes writes, \
                 slots can be counted, the engine keeps its time, and the node is not ending. \
                 Load balancers ask it. 503 names everything that is missing.",
            )
            .answers::<Health>()
            .refuses(
                StatusCode::SERVICE_UNAVAILABLE,
                "service_unavailable",
                "something is missing that calls need; the message names it",
            ),
        own(Endpoint::get("/metrics", Access::None, metrics))
            .summary("Prometheus text")
            .operation(
                "getMetrics",
                "Answers the figures of this node in Prometheus' text format; `docs/metrics.md` \
                 explains each. No label holds an id of an account, an agent or a call.",
            )
            .sends(&["text/plain"]),
        own(Endpoint::get("/docs", Access::None, docs))
            .summary("This document as a page")
            .operation(
                "getDocsPage",
                "Shows this document as a page with a filter, for people. It needs no key, and \
                 makes no requests but for the document.",
            )
            .sends(&["text/html"]),
        Endpoint::get("/openapi.json", Access::None, document::get)
            .class(Class::Exempt)
            .summary("This document")
            .operation(
                "getOpenApiDocument",
                "Answers this document, with the address of this server in it. It is compressed \
                 where `Accept-Encoding` takes gzip. Ask again with `If-None-Match`: 304 means \
                 that nothing has changed.",
            )
            .answers::<Map<String, Value>>()
            .tells(&[HeaderDoc {
                name: "ETag",
                kind: "string",
                doc: "Names this version of the document, in this coding.",
            }]),
    ]
}

/// How the server is.
#[derive(Serialize, JsonSchema)]
struct Health {
    /// `ok`: the process lives. `ready`: it takes calls.
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

async fn docs() -> Response {
    let policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'";
    (
        [(header::CONTENT_SECURITY_POLICY, policy)],
        Html(include_str!("docs.html")),
    )
        .into_response()
}
