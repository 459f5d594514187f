//! The progress of a call's row, from its creation to its end. A process writes only to calls that it hosts: its
//! incarnation is in the row.

use serde_json::{Value, json};

use super::CallRow;
use crate::calls::matched::MatchedBy;
use crate::calls::rules::{CallStatus, Channel, ConversationStatus, Direction, Ending};
use crate::db::{self, Db, Rows, Tx, args, named};
use crate::ids::{AccountId, AgentId, CallId, PhoneNumberId, TrunkId};
use crate::time::Timestamp;

/// What is known of a call at its creation.
pub struct NewCall<'a> {
    pub id: CallId,
    pub agent_id: AgentId,
    pub agent_name: &'a str,
    pub direction: Direction,
    pub channel: Channel,
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
) -> db::Result<()> {
    let row = named! {
        id: call.id,
        account_id: account,
        agent_id: call.agent_id,
        agent_name: call.agent_name,
        status: CallStatus::Queued,
        conversation_status: ConversationStatus::Created,
        direction: call.direction,
        channel: call.channel,
        language: call.language,
        from_number: call.from_number,
        to_number: call.to_number,
        dynamic_variables: call.dynamic_variables.to_string(),
        phone_number_id: call.phone_number_id,
        trunk_id: call.trunk_id,
        matched_by: call.matched_by.map(|matched| json!(matched).to_string()),
        from_withheld: call.from_withheld,
        created_at: now,
        updated_at: now,
    };
    tx.insert_into("calls", row).run().await.map(drop)
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
) -> db::Result<bool> {
    let (status, conversation) = (CallStatus::InProgress, ConversationStatus::InProgress);
    let rows = tx
        .query(
            "update calls set owner_node = $1, owner_incarnation = $2, status = $3, conversation_status = $4,
                started_at = $5, answered_at = $5, sip_code = case when channel = 'sip' then 200 end, updated_at = $5
             where account_id = $6 and id = $7 and owner_incarnation is null and ended_at is null",
        )
        .bind_all(args![node, incarnation, status, conversation, now, account, id])
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
) -> db::Result<()> {
    let rings = named! {
        owner_node: node,
        owner_incarnation: incarnation,
        status: CallStatus::Ringing,
        started_at: since,
        rang_at: since,
    };
    let call = tx.of::<CallRow>(account).whose("id", id);
    call.set(rings).await.map(drop)
}

/// A call that rings at this incarnation is answered: by the agent of `call`, or to leave a message. `false`: it
/// is over, or not theirs any more.
pub async fn take_ringing(
    tx: &mut Tx,
    account: AccountId,
    call: &NewCall<'_>,
    incarnation: i64,
    now: Timestamp,
) -> db::Result<bool> {
    let answered = named! {
        agent_id: call.agent_id,
        agent_name: call.agent_name,
        language: call.language,
        status: CallStatus::InProgress,
        conversation_status: ConversationStatus::InProgress,
        answered_at: now,
        sip_code: 200_u32,
        updated_at: now,
    };
    let rows = hosted(tx.of(account), call.id, incarnation).set(answered);
    Ok(rows.await? == 1)
}

/// Writes what a caller was told whose call ended before it was answered.
pub async fn refused(db: &Db, account: AccountId, id: CallId, code: u16) -> db::Result<()> {
    let call = db.of::<CallRow>(account).whose("id", id);
    let told = named! { sip_code: u32::from(code) };
    call.set(told).await.map(drop)
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
) -> db::Result<bool> {
    let text = |value: Value| value.to_string();
    // What went wrong while it lasted, and was told already.
    let mut errors = ending.errors.clone();
    let told = errors_of(tx, account, id).await?.unwrap_or_default();
    errors.extend(
        told.into_iter()
            .filter(|error| !ending.errors.contains(error)),
    );
    let rows = tx
        .query(
            "update calls set status = $1, conversation_status = $2, end_reason = $3, ended_by = $4,
                ended_at = $5, answered_at = case when not $6 then answered_at end,
                duration_ms = coalesce($7, duration_ms,
                    case when not $6 and answered_at <= $5 then $5 / 1000 - answered_at / 1000 end, 0),
                turn_count = coalesce($8, (select count(*) from turns where call_id = $9)),
                latency_summary = $10, errors = $11, network = $12,
                sip_code = coalesce($13, case when not $6 then sip_code end), provider_request_ids = $14,
                provider_faults = $15, updated_at = $5
             where account_id = $16 and id = $9 and coalesce(owner_incarnation, 0) = $17 and ended_at is null",
        )
        .bind_all(args![
            ending.status,
            ending.conversation,
            ending.reason.as_ref(),
            ending.ended_by.as_ref(),
            now,
            ending.never_answered,
            ending.duration_ms,
            ending.turn_count,
            id,
            summary.map(ToString::to_string),
            text(json!(errors)),
            ending.network.as_ref().map(|network| text(json!(network))),
            ending.sip_code.map(u32::from),
            text(json!(ending.provider_request_ids)),
            ending.provider_faults.as_ref().map(|faults| text(json!(faults))),
            account,
            incarnation,
        ])
        .execute()
        .await?;
    Ok(rows == 1)
}

/// Errors of a call that are kept: those of its end, 32 at the most, and a few more.
const MOST_ERRORS: usize = 32 + 10;

/// The errors of a call, which nobody else changes meanwhile. `None`: there is no such call.
async fn errors_of(tx: &mut Tx, account: AccountId, id: CallId) -> db::Result<Option<Vec<String>>> {
    let lock = tx.engine().for_update();
    let sql = format!("select errors from calls where account_id = $1 and id = $2{lock}");
    let errors = tx.query_built(sql).bind_all(args![account, id]);
    let errors = errors.optional(|row| row.opt_json("errors")).await?;
    Ok(errors.map(|errors: Option<Value>| match errors {
        Some(Value::Array(errors)) => {
            let texts = errors.iter().filter_map(Value::as_str);
            texts.map(str::to_owned).collect()
        }
        _ => Vec::new(),
    }))
}

/// Adds what went wrong beside a call, such as a BYE that reached nobody; while it lasts, or once it is over.
pub async fn add_error(
    db: &Db,
    account: AccountId,
    id: CallId,
    error: &str,
    now: Timestamp,
) -> db::Result<()> {
    let mut tx = db.begin_write().await?;
    let Some(mut errors) = errors_of(&mut tx, account, id).await? else {
        return Ok(());
    };
    if errors.len() >= MOST_ERRORS || errors.iter().any(|one| one == error) {
        return Ok(());
    }
    errors.push(error.to_owned());
    tx.query("update calls set errors = $1, updated_at = $2 where account_id = $3 and id = $4")
        .bind(json!(errors).to_string())
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
) -> db::Result<()> {
    let call = tx.of::<CallRow>(account).whose("id", id);
    let cost = named! { cost_cents: cost_cents };
    call.set(cost).await.map(drop)
}

/// The call of this id, if this incarnation hosts it and it has not ended.
pub(in crate::calls) fn hosted(
    calls: Rows<'_, CallRow>,
    id: CallId,
    incarnation: i64,
) -> Rows<'_, CallRow> {
    let hosted = calls
        .whose("id", id)
        .whose("owner_incarnation", incarnation);
    hosted.only("ended_at is null")
}
