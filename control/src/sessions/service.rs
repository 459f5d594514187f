//! What the session routes do.

use std::time::Duration;

use media::call::input::ToolOutcome;
use serde_json::Value;

use super::store::{self, NewSession};
use super::wire::{Connect, Connected, Quality, Status, TOOL_RESULT_LIMIT, ToolResult};
use super::{rules, token};
use crate::admission::State;
use crate::agents;
use crate::app::App;
use crate::calls;
use crate::calls::ending::seconds;
use crate::calls::live::Claimed;
use crate::http::ApiError;
use crate::http::validate::FieldError;
use crate::ids::{AccountId, CallId, SessionId};
use crate::secret;
use crate::webhooks;

/// How long a session waits for its caller.
const JOIN_WITHIN: Duration = Duration::from_secs(60);

/// Opens a session: a slot, a record, and a `ws_url` that one holder may use once.
pub async fn connect(app: &App, account: AccountId, body: Connect) -> Result<Connected, ApiError> {
    let plan = rules::plan(&body).map_err(ApiError::fields)?;
    let agent = agents::store::get(&app.db, account, body.agent_id)
        .await?
        .ok_or(ApiError::NotFound)?;
    if agent.status != agents::Status::Active {
        return Err(ApiError::conflict(
            "agent_not_ready",
            format!("The agent is {}", agent.status.name()),
        ));
    }
    calls::bridge::can_speak(app, &agent)?;

    let id = CallId::new(&app.clock);
    let random = secret::random_bytes().map_err(ApiError::internal)?;
    let ticket = token::mint(&app.master_key, id, random);
    let now = app.clock.now();
    let expires_at = now.plus(JOIN_WITHIN);
    // Given back when it is dropped: whatever fails from here on leaves nothing behind.
    let lease = app
        .admit(calls::bridge::wish(app, account, id, State::Pending))
        .await?;
    let (from_number, to_number) = match plan.direction {
        media::config::Direction::Inbound => (body.caller_phone.as_deref(), None),
        media::config::Direction::Outbound => (None, body.caller_phone.as_deref()),
    };
    let variables = body.dynamic_variables.unwrap_or_default();
    let call = calls::store::NewCall {
        id,
        agent_id: agent.id,
        agent_name: &agent.settings.name,
        direction: rules::direction_name(plan.direction),
        channel: "websocket",
        language: agents::rules::language_name(agent.settings.language),
        from_number,
        to_number,
        dynamic_variables: &Value::Object(variables.clone()),
    };
    let session = NewSession {
        id,
        transport: "websocket",
        protocol: rules::protocol_name(plan.protocol),
        audio_format: plan.audio_format.name(),
        token_hash: &token::fingerprint(&ticket),
        expires_at,
    };
    let mut tx = app.db.begin_write().await?;
    if !agents::store::hold(&mut tx, account, agent.id).await? {
        return Err(ApiError::NotFound);
    }
    calls::store::insert(&mut tx, account, &call, now).await?;
    store::insert(&mut tx, account, &session, now).await?;
    // No call is refused over a placeholder that nothing fills; the agent's owner is told.
    webhooks::service::tell_unfilled(app, &mut tx, account, &agent, &variables, id).await?;
    tx.commit().await?;
    app.webhooks.wake();
    lease.leave();
    Ok(Connected {
        session_id: id,
        transport: "websocket",
        ws_url: rules::ws_url(&app.config.server.public_url, plan.protocol, id, &ticket),
        protocol: rules::protocol_name(plan.protocol),
        audio_format: plan.audio_format.name(),
        direction: rules::direction_name(plan.direction),
        expires_at,
    })
}

/// Where a session stands, with what only the engine knows of a live one.
pub async fn status(app: &App, account: AccountId, id: SessionId) -> Result<Status, ApiError> {
    let session = store::get(&app.db, account, id)
        .await?
        .ok_or(ApiError::NotFound)?;
    let call = calls::store::get(&app.db, account, id)
        .await?
        .ok_or(ApiError::NotFound)?;
    let status = rules::status(&call.status, call.incarnation > 0, call.ended_at.is_some());
    let live = app
        .live
        .get(account, id)
        .filter(|_| call.ended_at.is_none());
    let duration_seconds = match (call.ended_at, call.answered_at) {
        (None, Some(answered)) => app.clock.now().since(answered).as_millis() as f64 / 1000.0,
        _ => seconds(call.duration_ms),
    };
    Ok(Status {
        session_id: id,
        call_id: id,
        status,
        transport: session.transport,
        agent_id: call.agent_id,
        agent_state: live.as_ref().and_then(|live| live.pulse.agent()),
        pc_id: None,
        connection_state: match status {
            "open" => "new",
            "live" => "connected",
            _ => "closed",
        },
        started_at: call.started_at,
        ended_at: call.ended_at,
        duration_seconds,
        turn_count: live.map_or(call.turn_count, |live| i64::from(live.pulse.turns())),
        end_reason: call.end_reason,
        quality: Quality::default(),
    })
}

/// Hands a tool's answer to the live call that waits for it.
pub async fn tool_result(
    app: &App,
    account: AccountId,
    id: SessionId,
    body: ToolResult,
) -> Result<(), ApiError> {
    let result = body.result.to_string();
    if result.len() > TOOL_RESULT_LIMIT {
        let message = format!("Result should have at most {TOOL_RESULT_LIMIT} bytes of JSON");
        return Err(ApiError::fields(vec![FieldError::body(
            "result",
            "string_too_long",
            message,
        )]));
    }
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
        result,
        is_error: body.is_error,
    };
    if live.handle.tool(outcome) {
        Ok(())
    } else {
        Err(expired())
    }
}
