//! What the session routes do.

use media::call::input::ToolOutcome;

use super::rules::{self, Status as Standing};
use super::store::{self, SessionRow};
use super::wire::{Quality, Status, TOOL_RESULT_LIMIT, ToolResult};
use crate::calls;
use crate::calls::ending::seconds;
use crate::calls::live::{Claimed, PeerConnection};
use crate::calls::store::CallRow;
use crate::cluster::route::{self, Answer, Ask};
use crate::http::validate::FieldError;
use crate::http::{ApiError, Caller};
use crate::ids::{AccountId, SessionId};
use crate::node::Node;

/// A session and its call, if this caller may know of them: those of the account, for a call token those
/// that it opens.
pub async fn reach(
    app: &Node,
    caller: &Caller,
    id: SessionId,
) -> Result<(SessionRow, CallRow), ApiError> {
    let session = store::get(&app.db, caller.account, id)
        .await?
        .ok_or(ApiError::NotFound)?;
    let call = calls::store::get(&app.db, caller.account, id)
        .await?
        .ok_or(ApiError::NotFound)?;
    match caller.token {
        Some(grant) if !rules::opens(&grant, &session, call.agent_id) => Err(ApiError::NotFound),
        _ => Ok((session, call)),
    }
}

/// Where a session stands, asked at the node that hosts it.
pub async fn status(
    app: &Node,
    caller: &Caller,
    id: SessionId,
) -> Result<Answer<Status>, ApiError> {
    let (_, call) = reach(app, caller, id).await?;
    if route::is_elsewhere(app, &call) {
        return route::ask(app, &call, Ask::Status).await.map(Answer::There);
    }
    status_here(app, caller.account, id).await.map(Answer::Here)
}

/// Where a session stands, with what only the engine knows of a live one.
pub async fn status_here(
    app: &Node,
    account: AccountId,
    id: SessionId,
) -> Result<Status, ApiError> {
    let session = store::get(&app.db, account, id)
        .await?
        .ok_or(ApiError::NotFound)?;
    let call = calls::store::get(&app.db, account, id)
        .await?
        .ok_or(ApiError::NotFound)?;
    let status = rules::status(call.status, call.incarnation > 0, call.ended_at.is_some());
    let live = app
        .live
        .get(account, id)
        .filter(|_| call.ended_at.is_none());
    let duration_seconds = match &live {
        Some(live) => app.clock.moment().since(live.since).as_millis() as f64 / 1000.0,
        None => seconds(call.duration_ms),
    };
    let peer = live.as_ref().and_then(|live| live.peer.as_ref());
    Ok(Status {
        session_id: id,
        call_id: id,
        status,
        transport: session.transport,
        agent_id: call.agent_id,
        agent_state: live.as_ref().and_then(|live| live.pulse.agent()),
        pc_id: peer.map(PeerConnection::pc_id),
        connection_state: match (status, &live) {
            (Standing::Open, _) => "new",
            (Standing::Live, Some(live)) if peer.is_some() => live.pulse.peer().name(),
            (Standing::Live, _) => "connected",
            _ => "closed",
        },
        started_at: call.started_at,
        ended_at: call.ended_at,
        duration_seconds,
        turn_count: live
            .as_ref()
            .map_or(call.turn_count, |live| i64::from(live.pulse.turns())),
        end_reason: call.end_reason,
        quality: live
            .and_then(|live| live.pulse.network().last())
            .map(Quality::from)
            .unwrap_or_default(),
    })
}

/// The call, if another node hosts it now.
async fn hosted_elsewhere(
    app: &Node,
    account: AccountId,
    id: SessionId,
) -> Result<Option<CallRow>, ApiError> {
    let call = calls::store::get(&app.db, account, id)
        .await?
        .ok_or(ApiError::NotFound)?;
    Ok(Some(call).filter(|call| route::is_elsewhere(app, call)))
}

/// Hands a tool's answer to the live call that waits for it, at the node that hosts it.
pub async fn tool_result(
    app: &Node,
    account: AccountId,
    id: SessionId,
    body: ToolResult,
) -> Result<(), ApiError> {
    if body.result.to_string().len() > TOOL_RESULT_LIMIT {
        let message = format!("Result should have at most {TOOL_RESULT_LIMIT} bytes of JSON");
        return Err(ApiError::fields(vec![FieldError::body(
            "result",
            "string_too_long",
            message,
        )]));
    }
    if let Some(call) = hosted_elsewhere(app, account, id).await? {
        let ask = Ask::ToolResult {
            tool_call_id: body.tool_call_id,
            result: body.result,
            is_error: body.is_error,
        };
        return route::ask(app, &call, ask).await.map(drop);
    }
    tool_result_here(app, account, id, body).await
}

/// Hands a tool's answer to a live call of this node.
pub async fn tool_result_here(
    app: &Node,
    account: AccountId,
    id: SessionId,
    body: ToolResult,
) -> Result<(), ApiError> {
    let call = calls::store::get(&app.db, account, id)
        .await?
        .ok_or(ApiError::NotFound)?;
    let unknown = || ApiError::Missing {
        code: "tool_call_not_found",
        message: "No such tool call in this session".to_owned(),
    };
    let expired = || ApiError::Gone {
        code: "tool_call_expired",
        message: "The call does not wait for this tool any more".to_owned(),
    };
    let Some(live) = app
        .live
        .get(account, id)
        .filter(|_| call.ended_at.is_none())
    else {
        return Err(if call.ended_at.is_some() {
            expired()
        } else {
            unknown()
        });
    };
    match live.pulse.claim_tool(&body.tool_call_id) {
        Claimed::Unknown => return Err(unknown()),
        Claimed::Expired => return Err(expired()),
        Claimed::Answered => {
            return Err(ApiError::conflict(
                "conflict",
                "This tool call has been answered already",
            ));
        }
        Claimed::Yes => {}
    }
    let outcome = ToolOutcome {
        id: body.tool_call_id,
        result: body.result.to_string(),
        is_error: body.is_error,
    };
    if live.handle.tool(outcome) {
        Ok(())
    } else {
        Err(expired())
    }
}
