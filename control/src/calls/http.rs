//! Routes of calls.

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;

use super::store;
use super::wire::{CallRecord, CallsQuery};
use crate::http::page::CallsPage;
use crate::http::{Access, ApiError, Caller, Endpoint, Id, List, Page, Query, Scope};
use crate::ids::CallId;
use crate::node::Node;

/// The routes.
pub fn endpoints() -> Vec<Endpoint<Node>> {
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
    ]
}

async fn list(
    State(app): State<Node>,
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
    State(app): State<Node>,
    caller: Caller,
    Id(id): Id<CallId>,
) -> Result<impl IntoResponse, ApiError> {
    let call = store::get(&app.db, caller.account, id)
        .await?
        .ok_or(ApiError::NotFound)?;
    let turns = store::turns(&app.db, caller.account, id).await?;
    Ok(Json(CallRecord::with_turns(call, turns)))
}
