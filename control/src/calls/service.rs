//! What the API can do to a call.

use std::time::Duration;

use media::call::input::EndRequest;

use serde::{Deserialize, Serialize};
use tracing::Instrument;

use super::ending::{self, Also};
use super::live::Canceled;
use super::rules::Ending;
use super::store::{self, CallRow};
use crate::http::ApiError;
use crate::ids::{AccountId, CallId};
use crate::node::Node;
use crate::time::Timestamp;

/// How long the engine may take to say goodbye and the end to be written. The engine itself closes
/// within a second.
const END_PATIENCE: Duration = Duration::from_secs(5);
/// How long a call that was just joined may take to reach the engine.
const PLACING_PATIENCE: Duration = Duration::from_secs(2);

/// A call that is over.
#[derive(Deserialize, Serialize)]
pub struct EndedCall {
    pub end_reason: Option<String>,
    pub ended_at: Option<Timestamp>,
    /// It was over before the request came.
    pub already: bool,
}

impl EndedCall {
    fn of(call: CallRow, already: bool) -> Self {
        Self {
            end_reason: call.end_reason,
            ended_at: call.ended_at,
            already,
        }
    }
}

/// Ends a call that this node hosts, or that nobody joined.
pub async fn end_here(
    app: &Node,
    account: AccountId,
    id: CallId,
    reason: Option<&str>,
) -> Result<EndedCall, ApiError> {
    let span = super::span(account, id);
    end_in_span(app, account, id, reason).instrument(span).await
}

async fn end_in_span(
    app: &Node,
    account: AccountId,
    id: CallId,
    reason: Option<&str>,
) -> Result<EndedCall, ApiError> {
    let call = store::get(&app.db, account, id)
        .await?
        .ok_or(ApiError::NotFound)?;
    if call.ended_at.is_some() {
        return Ok(EndedCall::of(call, true));
    }
    // The reason is the client's own text: it may say more than a log should hold.
    let reason_length = reason.map(str::len);
    tracing::info!(reason_length, "an API client ends a call");
    let also = Also {
        event: true,
        recording: false,
    };
    let nobody_joined = call.incarnation == 0;
    if nobody_joined && ending::end(app, account, id, 0, &Ending::canceled_by_api(), also).await? {
        app.admission.release(id, &app.incarnation.owner);
        return reread(app, account, id).await;
    }
    if let Some(dialling) = app.live.get_dialling(account, id) {
        dialling.cancel(Canceled::Api);
        dialling.wait_done(END_PATIENCE).await;
        let call = store::get(&app.db, account, id)
            .await?
            .ok_or(ApiError::NotFound)?;
        if call.ended_at.is_some() {
            return Ok(EndedCall::of(call, false));
        }
        // Answered in this moment.
    }
    // Joined, perhaps a moment ago: the engine ends it, and its writer writes it down.
    let live = app.live.await_call(account, id, PLACING_PATIENCE).await;
    if let Some(live) = live {
        let told = live.insist(|handle| handle.end(EndRequest::Api));
        if tokio::time::timeout(END_PATIENCE, told).await.is_ok() {
            live.wait_ended(END_PATIENCE).await;
        }
    }
    reread(app, account, id).await
}

async fn reread(app: &Node, account: AccountId, id: CallId) -> Result<EndedCall, ApiError> {
    let call = store::get(&app.db, account, id)
        .await?
        .ok_or(ApiError::NotFound)?;
    if call.ended_at.is_some() {
        return Ok(EndedCall::of(call, false));
    }
    // The node that hosts it does not answer.
    Err(ApiError::Unavailable {
        code: "service_unavailable",
        message: "The call is being ended; ask again in a moment".to_owned(),
        retry_after: 1,
    })
}
