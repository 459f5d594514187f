//! Routes of sessions (document 2, Real-time conversation sessions).

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use http::{HeaderMap, StatusCode};

use super::service;
use super::store;
use super::wire::{Connect, Connected, End, Ended, Status, ToolAccepted, ToolResult};
use crate::app::App;
use crate::calls;
use crate::http::{Access, ApiError, Body, Caller, Class, Endpoint, Id, Scope};
use crate::ids::SessionId;
use crate::telemetry::TraceParent;

/// The routes, in the order of the document; the socket's own come last.
pub fn endpoints() -> Vec<Endpoint> {
    let write = Access::Scopes(&[Scope::CallsWrite]);
    let mut endpoints = vec![
        Endpoint::post("/conversation/connect", write, connect)
            .summary("Open a session: who speaks with which agent, and how")
            .body::<Connect>()
            .answers::<Connected>()
            .refuses(
                StatusCode::NOT_FOUND,
                "not_found",
                "there is no such agent in this account",
            )
            .refuses(
                StatusCode::CONFLICT,
                "agent_not_ready",
                "the agent is not active",
            )
            .refuses(
                StatusCode::UNPROCESSABLE_ENTITY,
                "voice_unavailable",
                "nothing here can speak with the agent's voice",
            )
            .refuses(
                StatusCode::SERVICE_UNAVAILABLE,
                "service_unavailable",
                "no call can be taken right now",
            )
            .class(Class::CallCreation)
            .returns(StatusCode::OK)
            .cors(),
        hosted(Endpoint::post(
            "/conversation/{session_id}/tool-result",
            write,
            tool_result,
        ))
        .summary("Answer a tool call of the agent")
        .body::<ToolResult>()
        .answers::<ToolAccepted>()
        .refuses(
            StatusCode::NOT_FOUND,
            "tool_call_not_found",
            "the session has no such tool call",
        )
        .refuses(
            StatusCode::CONFLICT,
            "conflict",
            "the tool call has been answered already",
        )
        .refuses(
            StatusCode::GONE,
            "tool_call_expired",
            "the call does not wait for this tool any more",
        )
        .returns(StatusCode::ACCEPTED)
        .cors(),
        hosted(Endpoint::post("/conversation/{session_id}/end", write, end))
            .summary("End a session")
            .body::<End>()
            .answers::<Ended>()
            .returns(StatusCode::OK)
            .cors(),
        hosted(Endpoint::get(
            "/conversation/{session_id}/status",
            Access::AnyScope(&[Scope::CallsRead, Scope::CallsWrite]),
            status,
        ))
        .summary("Where a session stands")
        .answers::<Status>()
        .cors(),
    ];
    endpoints.extend(super::ws::endpoints());
    endpoints
}

/// How every route of a session may refuse that goes on to the node which hosts it.
pub fn hosted(endpoint: Endpoint) -> Endpoint {
    endpoint.refuses(
        StatusCode::BAD_GATEWAY,
        "session_host_unreachable",
        "the node that hosts the session does not answer",
    )
}

async fn connect(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    Body(body): Body<Connect>,
) -> Result<impl IntoResponse, ApiError> {
    let connected = service::connect(&app, caller.account, body).await?;
    if app.telemetry.sample_percent().is_some()
        && let Some(parent) = headers.get("traceparent").and_then(|v| v.to_str().ok())
        && TraceParent::parse(parent).is_some()
        && let Err(error) =
            store::set_traceparent(&app.db, caller.account, connected.session_id, parent).await
    {
        // The call is worth more than where its trace hangs.
        tracing::warn!(%error, "a traceparent could not be noted");
    }
    Ok(Json(connected))
}

async fn tool_result(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<SessionId>,
    Body(body): Body<ToolResult>,
) -> Result<impl IntoResponse, ApiError> {
    let tool_call_id = body.tool_call_id.clone();
    service::tool_result(&app, caller.account, id, body).await?;
    Ok((
        StatusCode::ACCEPTED,
        Json(ToolAccepted {
            accepted: true,
            tool_call_id,
        }),
    ))
}

async fn end(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<SessionId>,
    Body(body): Body<End>,
) -> Result<impl IntoResponse, ApiError> {
    let ended = calls::end_by_api(&app, caller.account, id, body.reason.as_deref()).await?;
    Ok(Json(Ended {
        session_id: id,
        status: "ended",
        end_reason: ended.end_reason,
        ended_at: ended.ended_at,
        already_ended: ended.already,
    }))
}

async fn status(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<SessionId>,
) -> Result<impl IntoResponse, ApiError> {
    service::status(&app, caller.account, id).await.map(Json)
}
