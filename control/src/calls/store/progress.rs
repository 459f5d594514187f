//! The progress of a call's row, from its creation to its end. A process writes only to calls that it hosts: its
//! incarnation is in the row.

use serde_json::{Value, json};

use crate::calls::matched::MatchedBy;
use crate::calls::rules::{CallStatus, ConversationStatus, Ending};
use crate::db::{Db, DbError, Tx};
use crate::ids::{AccountId, AgentId, CallId, PhoneNumberId, TrunkId};
use crate::time::Timestamp;

/// What is known of a call at its creation.
pub struct NewCall<'a> {
    pub id: CallId,
    pub agent_id: AgentId,
    pub agent_name: &'a str,
    pub direction: &'a str,
    pub channel: &'a str,
    pub language: &'a str,
    pub from_number: Option<&'a str>,
    pub to_number: Option<&'a str>,
    pub phone_number_id: Option<PhoneNumberId>,
    pub trunk_id: Option<TrunkId>,
    /// Of a call that came in, to a number that is registered.
    pub matched_by: Option<MatchedBy>,
    /// Who calls asks that nobody is told.
    pub from_withheld: bool,
    pub dynamic_variables: &'a Value,
}

/// Adds a call that waits for its caller to join.
pub async fn insert(
    tx: &mut Tx,
    account: AccountId,
    call: &NewCall<'_>,
    now: Timestamp,
) -> Result<(), DbError> {
    tx.query(
        "insert into calls (id, account_id, agent_id, agent_name, status, conversation_status, direction,
            channel, language, from_number, to_number, dynamic_variables, phone_number_id, trunk_id,
            created_at, updated_at, matched_by, from_withheld)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $15, $16, $17)",
    )
    .bind(call.id)
    .bind(account)
    .bind(call.agent_id)
    .bind(call.agent_name)
    .bind(CallStatus::Queued.name())
    .bind(ConversationStatus::Created.name())
    .bind(call.direction)
    .bind(call.channel)
    .bind(call.language)
    .bind(call.from_number)
    .bind(call.to_number)
    .bind(call.dynamic_variables.to_string())
    .bind(call.phone_number_id)
    .bind(call.trunk_id)
    .bind(now)
    .bind(call.matched_by.map(|matched| json!(matched).to_string()))
    .bind(call.from_withheld)
    .execute()
    .await?;
    Ok(())
}

/// Makes this process the host of a call that waits, and which is answered: over SIP with 200. `false`: it
/// ended, or has a host.
pub async fn take(
    tx: &mut Tx,
    account: AccountId,
    id: CallId,
    node: &str,
    incarnation: i64,
    now: Timestamp,
) -> Result<bool, DbError> {
    let rows = tx
        .query(
            "update calls set owner_node = $1, owner_incarnation = $2, status = $3, conversation_status = $4,
                started_at = $5, answered_at = $5, sip_code = case when channel = 'sip' then 200 end, updated_at = $5
             where account_id = $6 and id = $7 and owner_incarnation is null and ended_at is null",
        )
        .bind(node)
        .bind(incarnation)
        .bind(CallStatus::InProgress.name())
        .bind(ConversationStatus::InProgress.name())
        .bind(now)
        .bind(account)
        .bind(id)
        .execute()
        .await?;
    Ok(rows == 1)
}

/// Makes this process the host of a call that was inserted in this transaction, came in and rings since then.
pub async fn rings(
    tx: &mut Tx,
    account: AccountId,
    id: CallId,
    node: &str,
    incarnation: i64,
    since: Timestamp,
) -> Result<(), DbError> {
    tx.query(
        "update calls set owner_node = $1, owner_incarnation = $2, status = $3, started_at = $4, rang_at = $4
         where account_id = $5 and id = $6",
    )
    .bind(node)
    .bind(incarnation)
    .bind(CallStatus::Ringing.name())
    .bind(since)
    .bind(account)
    .bind(id)
    .execute()
    .await?;
    Ok(())
}

/// A call that rings at this incarnation is answered: by the agent of `call`, or to leave a message. `false`: it
/// is over, or not theirs any more.
pub async fn take_ringing(
    tx: &mut Tx,
    account: AccountId,
    call: &NewCall<'_>,
    incarnation: i64,
    now: Timestamp,
) -> Result<bool, DbError> {
    let rows = tx
        .query(
            "update calls set agent_id = $1, agent_name = $2, language = $3, status = $4,
                conversation_status = $5, answered_at = $6, sip_code = 200, updated_at = $6
             where account_id = $7 and id = $8 and owner_incarnation = $9 and ended_at is null",
        )
        .bind(call.agent_id)
        .bind(call.agent_name)
        .bind(call.language)
        .bind(CallStatus::InProgress.name())
        .bind(ConversationStatus::InProgress.name())
        .bind(now)
        .bind(account)
        .bind(call.id)
        .bind(incarnation)
        .execute()
        .await?;
    Ok(rows == 1)
}

/// Writes what a caller was told whose call ended before it was answered.
pub async fn refused(db: &Db, account: AccountId, id: CallId, code: u16) -> Result<(), DbError> {
    db.query("update calls set sip_code = $1 where account_id = $2 and id = $3")
        .bind(i64::from(code))
        .bind(account)
        .bind(id)
        .execute()
        .await?;
    Ok(())
}

/// Writes the end of a call that `incarnation` hosts (0: nobody). `false`: it had ended already, or
/// is not theirs any more, and nothing was written.
pub async fn finish(
    tx: &mut Tx,
    account: AccountId,
    id: CallId,
    incarnation: i64,
    ending: &Ending,
    summary: Option<&Value>,
    now: Timestamp,
) -> Result<bool, DbError> {
    let faults = ending.provider_faults.as_ref();
    let rows = tx
        .query(
            "update calls set status = $1, conversation_status = $2, end_reason = $3, ended_by = $4,
                ended_at = $5, answered_at = case when not $16 then answered_at end,
                duration_ms = coalesce($6, duration_ms,
                    case when not $16 and answered_at <= $5 then $5 / 1000 - answered_at / 1000 end, 0),
                turn_count = coalesce($7, (select count(*) from turns where call_id = $9)),
                latency_summary = $8, errors = $10, network = $13,
                sip_code = coalesce($14, case when not $16 then sip_code end), provider_request_ids = $15,
                provider_faults = $17, updated_at = $5
             where account_id = $11 and id = $9 and coalesce(owner_incarnation, 0) = $12 and ended_at is null",
        )
        .bind(ending.status.name())
        .bind(ending.conversation.name())
        .bind(ending.reason.as_ref())
        .bind(ending.ended_by.as_ref())
        .bind(now)
        .bind(ending.duration_ms.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX)))
        .bind(ending.turn_count.map(i64::from))
        .bind(summary.map(ToString::to_string))
        .bind(id)
        .bind(serde_json::json!(ending.errors).to_string())
        .bind(account)
        .bind(incarnation)
        .bind(ending.network.as_ref().map(|network| serde_json::json!(network).to_string()))
        .bind(ending.sip_code.map(i64::from))
        .bind(serde_json::json!(ending.provider_request_ids).to_string())
        .bind(ending.never_answered)
        .bind(faults.map(|faults| serde_json::json!(faults).to_string()))
        .execute()
        .await?;
    Ok(rows == 1)
}

/// Errors of a call that are kept beside those of its end.
const MOST_LATE_ERRORS: usize = 10;

/// Adds what went wrong once a call was over, such as a BYE that reached nobody.
pub async fn add_error(
    db: &Db,
    account: AccountId,
    id: CallId,
    error: &str,
    now: Timestamp,
) -> Result<(), DbError> {
    let mut tx = db.begin_write().await?;
    let errors = tx
        .query("select errors from calls where account_id = $1 and id = $2")
        .bind(account)
        .bind(id)
        .optional(|row| row.opt_json("errors"))
        .await?;
    let Some(errors) = errors else {
        return Ok(());
    };
    let mut errors = match errors {
        Some(Value::Array(errors)) => errors,
        _ => Vec::new(),
    };
    if errors.len() >= MOST_LATE_ERRORS || errors.iter().any(|one| one == error) {
        return Ok(());
    }
    errors.push(json!(error));
    tx.query("update calls set errors = $1, updated_at = $2 where account_id = $3 and id = $4")
        .bind(Value::Array(errors).to_string())
        .bind(now)
        .bind(account)
        .bind(id)
        .execute()
        .await?;
    tx.commit().await
}

/// Writes what a call cost.
pub async fn set_cost(
    tx: &mut Tx,
    account: AccountId,
    id: CallId,
    cost_cents: i64,
) -> Result<(), DbError> {
    tx.query("update calls set cost_cents = $1 where account_id = $2 and id = $3")
        .bind(cost_cents)
        .bind(account)
        .bind(id)
        .execute()
        .await?;
    Ok(())
}
