//! Routes of calls.

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use http::StatusCode;

use super::end_by_api;
use super::store;
use super::wire::{CallEnded, CallRecord, CallsQuery};
use crate::app::App;
use crate::http::page::CallsPage;
use crate::http::{Access, ApiError, Body, Caller, Endpoint, Id, List, Page, Query, Scope};
use crate::ids::CallId;
use crate::sessions::End;
use crate::sessions::http::hosted;

/// The routes.
pub fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/calls", Access::Scopes(&[Scope::CallsRead]), list)
            .summary("Calls, newest first; without their transcripts")
            .operation(
                "listCalls",
                "Lists the account's calls over every channel, those that are live among them. \
                 The filters go together: only calls that all of them let through are listed. \
                 Transcripts are in `getCall`.",
            )
            .query::<CallsQuery>()
            .page::<CallsPage>()
            .answers::<List<CallRecord>>(),
        Endpoint::get("/calls/{call_id}", Access::Scopes(&[Scope::CallsRead]), get)
            .summary("One call with its transcript")
            .operation(
                "getCall",
                "Answers everything about a call: who, when, how it ended, what it cost, and its \
                 transcript. While a call is live its transcript grows.",
            )
            .answers::<CallRecord>(),
        hosted(Endpoint::post(
            "/calls/{call_id}/end",
            Access::Scopes(&[Scope::CallsWrite]),
            end,
        ))
        .summary("End a call")
        .operation(
            "endCall",
            "Ends a call, whatever its state: one that rings is canceled, one that is live hangs \
             up. The answer comes when the end is written, and `call.ended` is sent as for every \
             call. A call that is over already is no error: `already_ended` says so.",
        )
        .body::<End>()
        .answers::<CallEnded>()
        .returns(StatusCode::OK),
    ]
}

async fn list(
    State(app): State<App>,
    caller: Caller,
    page: Page<CallsPage>,
    Query(query): Query<CallsQuery>,
) -> Result<impl IntoResponse, ApiError> {
    let (calls, total) = store::list(
        &app.db,
        caller.account,
        &query.into(),
        page.limit,
        page.offset,
    )
    .await?;
    Ok(List::new(
        calls.into_iter().map(CallRecord::from).collect(),
        total,
        page,
    ))
}

async fn get(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<CallId>,
) -> Result<impl IntoResponse, ApiError> {
    let call = store::get(&app.db, caller.account, id)
        .await?
        .ok_or(ApiError::NotFound)?;
    let turns = store::turns(&app.db, caller.account, id).await?;
    Ok(Json(CallRecord::with_turns(call, turns)))
}

async fn end(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<CallId>,
    Body(body): Body<End>,
) -> Result<impl IntoResponse, ApiError> {
    let ended = end_by_api(&app, caller.account, id, body.reason.as_deref()).await?;
    Ok(Json(CallEnded {
        call_id: id,
        status: "ended",
        end_reason: ended.end_reason,
        ended_at: ended.ended_at,
        already_ended: ended.already,
    }))
}
