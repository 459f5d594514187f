//! The end of a call or session that an API client asks for, at the node that hosts it.

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use http::StatusCode;

use super::http::hosted;
use super::wire::End;
use crate::calls::wire::CallEnded;
use crate::calls::{self, EndedCall};
use crate::cluster::route::{self, Ask};
use crate::http::{Access, ApiError, Body, Caller, Endpoint, Id, Scope};
use crate::ids::{AccountId, CallId};
use crate::node::Node;

/// The route that ends a call over any channel.
pub fn endpoints() -> Vec<Endpoint<Node>> {
    vec![
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

async fn end(
    State(app): State<Node>,
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

/// Ends a call for an API client, at the node that hosts it, and answers when it is over. `reason` is
/// for the log.
pub async fn end_by_api(
    app: &Node,
    account: AccountId,
    id: CallId,
    reason: Option<&str>,
) -> Result<EndedCall, ApiError> {
    let call = calls::store::get(&app.db, account, id)
        .await?
        .ok_or(ApiError::NotFound)?;
    if route::is_elsewhere(app, &call) {
        let reason = reason.map(str::to_owned);
        let ended = route::ask(app, &call, Ask::End { reason }).await?;
        return serde_json::from_value(ended).map_err(ApiError::internal);
    }
    calls::service::end_here(app, account, id, reason).await
}
