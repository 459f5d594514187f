//! Routes that place calls.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Serialize;

use super::service;
use super::wire::{PlaceCall, PlacedCall, TriggerCall};
use crate::calls::bridge::telephone::Calling;
use crate::http::answers::HeaderDoc;
use crate::http::extract::Wire;
use crate::http::{Access, ApiError, Body, Caller, Class, Endpoint, Scope};
use crate::idempotency::{Key, REPLAYED};

const CALLS: &str = "/calls";
const TRIGGER: &str = "/calls/trigger";

/// The routes.
pub fn endpoints() -> Vec<Endpoint<Calling>> {
    vec![
        placing::<PlaceCall>(Endpoint::post(
            CALLS,
            Access::Scopes(&[Scope::CallsWrite]),
            place,
        ))
        .summary("Place a call")
        .operation(
            "placeCall",
            "Has an agent call a number over the account's SIP trunk. The answer (202) comes \
             before anything rings: `getCall` and the event `call.ended` tell how the call went. \
             A number on the do-not-call list is 403 `number_suppressed`, a cap that is reached \
             is 429; with an `Idempotency-Key` a request can be sent again without calling \
             twice.",
        ),
        placing::<TriggerCall>(Endpoint::post(
            TRIGGER,
            Access::Scopes(&[Scope::CallsWrite]),
            trigger,
        ))
        .summary("Place a call, with the fewest words")
        .operation(
            "triggerCall",
            "Does what `placeCall` does, for systems that can send no more than an agent, two \
             numbers and variables. Metadata, the longest duration and the time to ring are \
             those of the agent and the server.",
        ),
    ]
}

/// What both routes have in common.
fn placing<T: Wire>(endpoint: Endpoint<Calling>) -> Endpoint<Calling> {
    endpoint
        .body::<T>()
        .answers::<PlacedCall>()
        .returns(StatusCode::ACCEPTED)
        .class(Class::CallCreation)
        .bills_late()
        .idempotent()
        .tells(&[HeaderDoc {
            name: REPLAYED,
            kind: "string",
            doc: "`true` where an earlier request of the same `Idempotency-Key` placed this call",
        }])
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
            StatusCode::FORBIDDEN,
            "number_suppressed",
            "the number is on the do-not-call list; `detail` tells which entry, and whether it may be released",
        )
        .refuses(
            StatusCode::SERVICE_UNAVAILABLE,
            "suppression_check_unavailable",
            "the do-not-call list cannot be read: no call is placed",
        )
        .refuses(
            StatusCode::UNPROCESSABLE_ENTITY,
            "trunk_inactive",
            "no active outbound trunk is there for the number, the agent or the account",
        )
        .refuses(
            StatusCode::FORBIDDEN,
            "destination_not_allowed",
            "the trunk's `destination_allowlist` does not let the number be called",
        )
        .refuses(
            StatusCode::UNPROCESSABLE_ENTITY,
            "voice_unavailable",
            "nothing here can speak with the agent's voice",
        )
}

async fn place(
    State(app): State<Calling>,
    caller: Caller,
    headers: HeaderMap,
    Body(wish): Body<PlaceCall>,
) -> Result<Response, ApiError> {
    let key = named(&headers, CALLS, &wish)?;
    answer(&app, &caller, wish, key).await
}

async fn trigger(
    State(app): State<Calling>,
    caller: Caller,
    headers: HeaderMap,
    Body(wish): Body<TriggerCall>,
) -> Result<Response, ApiError> {
    let key = named(&headers, TRIGGER, &wish)?;
    answer(&app, &caller, wish.into(), key).await
}

fn named(headers: &HeaderMap, route: &str, wish: &impl Serialize) -> Result<Option<Key>, ApiError> {
    Key::read(headers, route, wish)
}

async fn answer(
    app: &Calling,
    caller: &Caller,
    wish: PlaceCall,
    key: Option<Key>,
) -> Result<Response, ApiError> {
    let answer = service::place(app, caller.account, wish, key).await?;
    let mut response = (StatusCode::ACCEPTED, Json(answer.call)).into_response();
    if answer.replayed {
        let told = HeaderValue::from_static("true");
        response.headers_mut().insert(REPLAYED, told);
    }
    Ok(response)
}
