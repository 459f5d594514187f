//! What the `calls` table holds of calls that are placed.

use std::time::Duration;

use serde_json::Value;

use super::rules::LiveForward;
use crate::calls::rules::{CallStatus, ConversationStatus};
use crate::calls::store::{CallRow, hosted};
use crate::db::{self, Db, Query, Tx, args, named};
use crate::ids::{AccountId, CallId, TrunkId};
use crate::time::Timestamp;

/// What `calls_per_hour_limit` counts in.
pub const HOUR: Duration = Duration::from_secs(3600);

/// What is known of a call that is placed, beside what every call has at its creation.
pub struct Placing<'a> {
    pub metadata: &'a Value,
    /// The call that came in, where this one goes out because that one is forwarded.
    pub forwards: Option<CallId>,
    pub max_duration_seconds: Option<u32>,
    /// Who hosts it, from its first moment on.
    pub node: &'a str,
    pub incarnation: i64,
    /// By the time that all processes share: the trunk's calls of the hour are counted by it.
    pub placed_at: Timestamp,
}

/// Completes a call that was inserted in this transaction.
pub async fn host(
    tx: &mut Tx,
    account: AccountId,
    id: CallId,
    placing: &Placing<'_>,
    now: Timestamp,
) -> db::Result<()> {
    let placed = named! {
        metadata: placing.metadata.to_string(),
        max_duration_seconds: placing.max_duration_seconds,
        owner_node: placing.node,
        owner_incarnation: placing.incarnation,
        started_at: now,
        placed_at: placing.placed_at,
        forwarded_call_id: placing.forwards,
    };
    let call = tx.of::<CallRow>(account).whose("id", id);
    call.set(placed).await.map(drop)
}

/// When a trunk that has placed `limit` calls or more within the last hour may place another one. `None`:
/// now. Inside a transaction that holds the trunk the answer stays true to its end. `now` is the time that all
/// processes share, as `placed_at` is.
pub async fn full_until_in(
    tx: &mut Tx,
    account: AccountId,
    trunk: TrunkId,
    limit: u32,
    now: Timestamp,
) -> db::Result<Option<Timestamp>> {
    full_until_of(tx.query(LAST_HOUR), account, trunk, limit, now).await
}

/// The same as a first look.
pub async fn full_until(
    db: &Db,
    account: AccountId,
    trunk: TrunkId,
    limit: u32,
    now: Timestamp,
) -> db::Result<Option<Timestamp>> {
    full_until_of(db.query(LAST_HOUR), account, trunk, limit, now).await
}

/// The call of the last hour before which `limit` others were placed: when it is an hour old there is
/// room again. Nodes of a version that knew no `placed_at` write none, and their calls count by `created_at`. In two
/// halves, each of which an index gives in its order: `calls_by_trunk_placed` and `calls_by_trunk_direction`.
const LAST_HOUR: &str = "select placed from (
        select placed_at as placed from calls
        where account_id = $1 and trunk_id = $2 and direction = 'outbound' and placed_at > $3
        union all
        select created_at as placed from calls
        where account_id = $1 and trunk_id = $2 and direction = 'outbound' and placed_at is null and created_at > $3
    ) as hour order by placed desc limit 1 offset $4";

async fn full_until_of(
    query: Query<'_>,
    account: AccountId,
    trunk: TrunkId,
    limit: u32,
    now: Timestamp,
) -> db::Result<Option<Timestamp>> {
    let Some(before) = limit.checked_sub(1) else {
        return Ok(Some(now.plus(HOUR)));
    };
    let last = query
        .bind_all(args![account, trunk, now.minus(HOUR), before])
        .optional(|row| row.time("placed"))
        .await?;
    Ok(last.map(|placed| placed.plus(HOUR)))
}

/// How old the forwarded calls are that are looked at: a loop comes round within the ringing of a few numbers, and
/// what is older was answered long ago or left by a node that died.
const LOOKED_BACK: Duration = Duration::from_secs(300);

/// How many of them, the latest: as many as a node carries by default.
const MOST_LIVE: i64 = 1_000;

/// Asked for each call that is forwarded, in two halves: the indexes `calls_forwarded_open` and `calls_forwarded_before`
/// have no other rows, in this order. The second half is of nodes of the version before, which run beside this one while
/// it is rolled out: they write the call that came in into `metadata` alone, and no `placed_at`. It goes, and its index
/// with it, in the release after this one.
const LIVE_FORWARDS: &str = "select * from (
        select o.from_number as shown, o.to_number as wanted, o.answered_at, i.from_number, i.to_number,
            i.phone_number_id, i.created_at as came, o.created_at as went
        from calls o
        join calls i on i.id = o.forwarded_call_id and i.account_id = o.account_id
        where o.forwarded_call_id is not null and o.ended_at is null and o.created_at > $1
        union all
        select o.from_number as shown, o.to_number as wanted, o.answered_at, i.from_number, i.to_number,
            i.phone_number_id, i.created_at as came, o.created_at as went
        from calls o
        join calls i on i.id = substr(o.metadata, 23, 36) and i.account_id = o.account_id
        where o.forwarded_call_id is null and o.placed_at is null and o.direction = 'outbound'
            and o.ended_at is null and o.created_at > $1 and o.metadata like '{\"forwarded_call_id\":\"%'
    ) as live order by went desc limit $2";

/// The latest forwarded calls of all accounts and nodes that are not over, each with the call that came in.
pub async fn live_forwards(db: &Db, now: Timestamp) -> db::Result<Vec<LiveForward>> {
    db.query(LIVE_FORWARDS)
        .bind_all(args![now.minus(LOOKED_BACK), MOST_LIVE])
        .all(|row| {
            Ok(LiveForward {
                caller: row.opt_text("from_number")?,
                called: row.opt_text("to_number")?,
                number: row.opt_parse("phone_number_id")?,
                from: row.opt_text("shown")?,
                to: row.opt_text("wanted")?,
                answered: row.opt_time("answered_at")?.is_some(),
                came: row.time("came")?,
                went: row.time("went")?,
            })
        })
        .await
}

/// Notes that a call which this incarnation hosts rings.
pub async fn rings(
    db: &Db,
    account: AccountId,
    id: CallId,
    incarnation: i64,
    now: Timestamp,
) -> db::Result<()> {
    let rings = named! { status: CallStatus::Ringing, rang_at: now, updated_at: now };
    let call = hosted(db.of(account), id, incarnation);
    call.only("rang_at is null").set(rings).await.map(drop)
}

/// Notes that a call which this incarnation hosts was answered. `false`: it had ended.
pub async fn answered(
    db: &Db,
    account: AccountId,
    id: CallId,
    incarnation: i64,
    now: Timestamp,
) -> db::Result<bool> {
    let answered = named! {
        status: CallStatus::InProgress,
        conversation_status: ConversationStatus::InProgress,
        answered_at: now,
        sip_code: 200_u32,
        updated_at: now,
    };
    let rows = hosted(db.of(account), id, incarnation).set(answered);
    Ok(rows.await? == 1)
}

#[cfg(test)]
mod tests;
