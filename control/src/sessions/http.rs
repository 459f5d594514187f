//! Routes of sessions (document 2, Real-time conversation sessions).

use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::response::IntoResponse;
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use media::config::OptionalEvents;

use super::connect::{self, Visitor};
use super::wire::{
    Connect, Connected, Described, End, Ended, MintToken, Minted, Offer, Status, ToolAccepted,
    ToolResult, Trickle, Trickled, WantedEvents,
};
use super::{peer, rules, service, store};
use crate::http::auth::ClientAddress;
use crate::http::{Access, ApiError, Body, Caller, Class, Endpoint, Id, Query, Scope};
use crate::ids::SessionId;
use crate::node::Node;
use crate::telemetry::TraceParent;

/// The routes, in the order of the document; the socket's own come last.
pub fn endpoints() -> Vec<Endpoint<Node>> {
    const WRITE: &[Scope] = &[Scope::CallsWrite];
    let (key, token) = (Access::Scopes(WRITE), Access::CallToken(WRITE));
    let mut endpoints = vec![
        Endpoint::post("/conversation/connect", Access::PublicAgent(WRITE), open)
            .summary("Open a session: who speaks with which agent, and how")
            .operation(
                "openSession",
                "Opens a session with an agent and takes its slot. A WebRTC session goes on with \
                 an offer, a WebSocket session with its `ws_url`; one that nobody joins within a \
                 minute (30 seconds where no API key opened it) ends as `session_expired`. \
                 Without a credential only public agents can be called, over WebRTC, and the \
                 answer has the token to go on with.",
            )
            .body::<Connect>()
            .answers::<Connected>()
            .refuses(
                StatusCode::NOT_FOUND,
                "not_found",
                "there is no such agent in this account",
            )
            .refuses(
                StatusCode::FORBIDDEN,
                "forbidden",
                "a WebSocket without an API key, or the token of a keyless session",
            )
            .refuses(
                StatusCode::FORBIDDEN,
                "origin_not_allowed",
                "the page may not call this agent without a credential",
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
        Endpoint::post("/conversation/token", key, mint_token)
            .summary("Mint a token with which a browser may call one agent")
            .operation(
                "createCallToken",
                "Mints a signed token for a browser, so that no API key has to be given to it. \
                 The token opens sessions with one agent and leads them, with no more scopes \
                 than the key that minted it; it ends with its time or with that key.",
            )
            .body::<MintToken>()
            .answers::<Minted>()
            .refuses(
                StatusCode::NOT_FOUND,
                "not_found",
                "there is no such agent in this account",
            )
            .returns(StatusCode::OK)
            .cors(),
        negotiated(Endpoint::post(
            "/conversation/{session_id}/offer",
            token,
            offer,
        ))
        .summary(
            "Offer a peer connection, the first or a changed one, or answer the server's offer",
        )
        .operation(
            "sendOffer",
            "Joins a WebRTC session with the browser's offer, or changes a connection that \
             stands (ICE restart, other tracks); the answer holds the server's description. The \
             first offer starts the call. An offer that cannot be used is 422 `invalid_sdp` and \
             ends nothing that stands.",
        )
        .body::<Offer>()
        .query::<WantedEvents>()
        .refuses(
            StatusCode::UNPROCESSABLE_ENTITY,
            "invalid_sdp",
            "the description cannot be used",
        )
        .refuses(
            StatusCode::NOT_FOUND,
            "peer_not_found",
            "`pc_id` is not that of the session's connection",
        )
        .returns(StatusCode::OK)
        .cors(),
        negotiated(Endpoint::get(
            "/conversation/{session_id}/offer",
            token,
            make_offer,
        ))
        .summary("Have the server make the offer")
        .operation(
            "getServerOffer",
            "Joins a WebRTC session the other way round: the server offers, and the client \
             answers with `sendOffer` and `type` `answer`. It starts the call as the first offer \
             does. Asked again before the answer, the server repeats its offer.",
        )
        .query::<WantedEvents>()
        .cors(),
        hosted(Endpoint::patch(
            "/conversation/{session_id}/ice",
            token,
            trickle,
        ))
        .summary("Add ICE candidates to the peer connection")
        .operation(
            "addIceCandidates",
            "Adds candidates that the browser found after it had sent its offer. Either all of a \
             request's candidates are taken or none. 400 `peer_not_found` means that the \
             connection is gone: open a session anew.",
        )
        .body::<Trickle>()
        .answers::<Trickled>()
        .refuses(
            StatusCode::BAD_REQUEST,
            "peer_not_found",
            "no connection of this `pc_id` is open: connect and offer anew",
        )
        .refuses(
            StatusCode::BAD_REQUEST,
            "invalid_candidate",
            "a candidate cannot be used; none of the request's was taken",
        )
        .class(Class::Exempt)
        .cors(),
        hosted(Endpoint::post(
            "/conversation/{session_id}/tool-result",
            key,
            tool_result,
        ))
        .summary("Answer a tool call of the agent (agents cannot be given tools by the API yet)")
        .operation(
            "sendToolResult",
            "Hands the result of a client's tool to the live call that waits for it; 202 says \
             that it is on its way. Each tool call takes one result: a second one is 409, one \
             that comes too late is 410 `tool_call_expired`.",
        )
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
        hosted(Endpoint::post("/conversation/{session_id}/end", token, end))
            .summary("End a session")
            .operation(
                "endSession",
                "Ends a session and with it its call: one that nobody has joined is canceled, a \
                 live one hangs up. The answer comes when the end is written. A session that is \
                 over already is no error: `already_ended` says so.",
            )
            .body::<End>()
            .answers::<Ended>()
            .returns(StatusCode::OK)
            .cors(),
        hosted(Endpoint::get(
            "/conversation/{session_id}/status",
            Access::CallToken(&[Scope::CallsRead, Scope::CallsWrite]),
            status,
        ))
        .summary("Where a session stands")
        .operation(
            "getSessionStatus",
            "Tells where a session stands: whether it is joined, what the agent does now, and \
             how well the audio travels. It is asked at the node that hosts the call, so it is \
             as new as the call itself.",
        )
        .answers::<Status>()
        .cors(),
    ];
    endpoints.extend(super::ws::endpoints());
    endpoints
}

/// How every route of a session may refuse that goes on to the node which hosts it.
pub fn hosted(endpoint: Endpoint<Node>) -> Endpoint<Node> {
    endpoint.refuses(
        StatusCode::BAD_GATEWAY,
        "session_host_unreachable",
        "the node that hosts the session does not answer",
    )
}

/// What the two offers have in common.
fn negotiated(endpoint: Endpoint<Node>) -> Endpoint<Node> {
    hosted(endpoint)
        .answers::<Described>()
        .refuses(
            StatusCode::FORBIDDEN,
            "forbidden",
            "the session belongs to another account",
        )
        .refuses(
            StatusCode::NOT_FOUND,
            "session_expired",
            "nobody joined the session in time",
        )
        .refuses(
            StatusCode::NOT_FOUND,
            "session_ended",
            "the session has ended",
        )
        .refuses(
            StatusCode::CONFLICT,
            "session_not_webrtc",
            "the session is joined over its `ws_url`",
        )
        .refuses(
            StatusCode::CONFLICT,
            "conflict",
            "another request joins the session, or has",
        )
        .refuses(
            StatusCode::PAYMENT_REQUIRED,
            "billing.hard_block",
            "the account may not spend; `detail` tells where that is mended",
        )
        .refuses(
            StatusCode::TOO_MANY_REQUESTS,
            "capacity",
            "a cap on concurrent calls is reached; `resource` tells whose",
        )
        .refuses(
            StatusCode::CONFLICT,
            "duplicate_lease",
            "this call is being handled elsewhere; try again",
        )
        .refuses(
            StatusCode::SERVICE_UNAVAILABLE,
            "redis_unavailable",
            "concurrent calls cannot be counted right now",
        )
        .refuses(
            StatusCode::SERVICE_UNAVAILABLE,
            "redis_error",
            "concurrent calls cannot be counted right now",
        )
}

impl<S: Sync> FromRequestParts<S> for Visitor {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let origin = parts.headers.get(http::header::ORIGIN);
        Ok(Self {
            ip: ClientAddress::ip(&parts.extensions),
            // What is no text is no origin that could be on a list.
            origin: origin.map(|value| value.to_str().unwrap_or_default().to_owned()),
        })
    }
}

async fn open(
    State(app): State<Node>,
    caller: Option<Caller>,
    visitor: Visitor,
    headers: HeaderMap,
    Body(body): Body<Connect>,
) -> Result<impl IntoResponse, ApiError> {
    let (account, connected) = connect::connect(&app, caller, &visitor, body).await?;
    if app.telemetry.sample_percent().is_some()
        && let Some(parent) = headers.get("traceparent").and_then(|v| v.to_str().ok())
        && TraceParent::parse(parent).is_some()
        && let Err(error) =
            store::set_traceparent(&app.db, account, connected.session_id(), parent).await
    {
        // The call is worth more than where its trace hangs.
        tracing::warn!(%error, "a traceparent could not be noted");
    }
    Ok(Json(connected))
}

async fn mint_token(
    State(app): State<Node>,
    caller: Caller,
    Body(body): Body<MintToken>,
) -> Result<impl IntoResponse, ApiError> {
    connect::mint_token(&app, caller, &body).await.map(Json)
}

async fn offer(
    State(app): State<Node>,
    caller: Caller,
    Id(id): Id<SessionId>,
    Query(wanted): Query<WantedEvents>,
    Body(body): Body<Offer>,
) -> Result<impl IntoResponse, ApiError> {
    peer::offer(&app, &caller, id, body, events(&wanted))
        .await
        .map(Json)
}

async fn make_offer(
    State(app): State<Node>,
    caller: Caller,
    Id(id): Id<SessionId>,
    Query(wanted): Query<WantedEvents>,
) -> Result<impl IntoResponse, ApiError> {
    peer::make_offer(&app, &caller, id, events(&wanted))
        .await
        .map(Json)
}

fn events(wanted: &WantedEvents) -> OptionalEvents {
    rules::optional_events(wanted.events.as_deref().unwrap_or_default())
}

async fn trickle(
    State(app): State<Node>,
    caller: Caller,
    Id(id): Id<SessionId>,
    Body(body): Body<Trickle>,
) -> Result<impl IntoResponse, ApiError> {
    peer::trickle(&app, &caller, id, body).await.map(Json)
}

async fn tool_result(
    State(app): State<Node>,
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
    State(app): State<Node>,
    caller: Caller,
    Id(id): Id<SessionId>,
    Body(body): Body<End>,
) -> Result<impl IntoResponse, ApiError> {
    service::reach(&app, &caller, id).await?;
    let ended = super::end::end_by_api(&app, caller.account, id, body.reason.as_deref()).await?;
    Ok(Json(Ended {
        session_id: id,
        status: "ended",
        end_reason: ended.end_reason,
        ended_at: ended.ended_at,
        already_ended: ended.already,
    }))
}

async fn status(
    State(app): State<Node>,
    caller: Caller,
    Id(id): Id<SessionId>,
) -> Result<impl IntoResponse, ApiError> {
    service::status(&app, &caller, id).await.map(Json)
}
