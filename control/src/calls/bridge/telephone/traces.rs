//! The route of the SIP messages of calls.

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;

use super::Calling;
use crate::calls;
use crate::http::{Access, ApiError, Caller, Endpoint, Id, Scope};
use crate::ids::CallId;
use crate::sip_traces::store;
use crate::sip_traces::wire::SipTrace;

/// The routes.
pub fn endpoints() -> Vec<Endpoint<Calling>> {
    vec![
        Endpoint::get(
            "/calls/{call_id}/sip-trace",
            Access::Scopes(&[Scope::CallsRead]),
            get,
        )
        .summary("The SIP messages of a telephone call, credentials masked")
        .operation(
            "getSipTrace",
            "Answers the signalling of a telephone call, oldest message first, while it is live \
             and afterwards. Use it when a call fails and the carrier asks why. What \
             authenticates, keys of the media and keypad digits are masked; calls over other \
             channels have no messages.",
        )
        .answers::<SipTrace>(),
    ]
}

async fn get(
    State(app): State<Calling>,
    caller: Caller,
    Id(id): Id<CallId>,
) -> Result<impl IntoResponse, ApiError> {
    calls::store::get(&app.db, caller.account, id)
        .await?
        .ok_or(ApiError::NotFound)?;
    // What this process holds is newer than what is written; another node's is a second old at most.
    let held = app
        .telephone
        .exchange()
        .and_then(|exchange| exchange.traces.of(caller.account, id));
    let kept = match held {
        Some(kept) => Some(kept),
        None => store::get(&app.db, caller.account, id).await?,
    };
    let store::Kept { messages, left_out } = kept.unwrap_or_default();
    Ok(Json(SipTrace {
        call_id: id,
        messages,
        left_out,
    }))
}
