//! The outbox table: events from the transaction that made them true to the end of their delivery.
//!
//! An event is due when `next_attempt_at` has come and it is not settled. A claim raises
//! `claim_token`, counts the attempt and moves `next_attempt_at` to the claim's end, so that a process
//! that dies leaves the event to whoever comes next; a finish with an older token writes nothing.
//!
//! `next_attempt_at` is of the time that all processes of one database share ([`crate::time::Clock::shared`]),
//! and so is every `now` that it is compared with; what people are told in the end is wall time.

use std::time::Duration;

use super::event::{EventType, Status};
use super::schedule::Class;
use crate::agents;
use crate::db::{Arg, Db, DbError, Tx};
use crate::ids::{AccountId, AgentId, CallId, EventId};
use crate::time::Timestamp;

/// Where an event goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// To the agent's `webhook_url`, as it is at each attempt.
    Agent(AgentId),
    /// To an address that came with the request.
    Url(String),
}

/// A new row of the outbox.
pub struct NewEvent {
    pub id: EventId,
    pub r#type: EventType,
    pub target: Target,
    pub call: Option<CallId>,
    /// The body as it will be sent, byte for byte.
    pub body: String,
}

/// An event whose time has come.
#[derive(Clone, Debug)]
pub struct Due {
    pub id: EventId,
    pub target: Target,
}

/// An event that this process delivers now.
pub struct Claimed {
    pub id: EventId,
    pub account: AccountId,
    /// The call that it is about.
    pub call: Option<CallId>,
    /// Larger than those of all claims before.
    pub token: i64,
    /// Attempts, this one included.
    pub attempts: u32,
    /// As in the header.
    pub r#type: String,
    pub class: Class,
    pub body: String,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    pub status: Status,
    /// Of a failed one that will be tried again.
    pub next_attempt_at: Option<Timestamp>,
    pub error: Option<String>,
}

/// Not settled. The text stands in the index as well.
const OPEN: &str = "status in ('pending', 'failed', 'delivering')";

/// Adds an event in the transaction that made it true, at `now` by the wall; it is due at `due`. Without an
/// address now it is kept as `skipped`. After the commit, [`super::Webhooks::wake`] spares it the wait for
/// the next look.
pub async fn insert(
    tx: &mut Tx,
    account: AccountId,
    event: &NewEvent,
    now: Timestamp,
    due: Timestamp,
) -> Result<(), DbError> {
    let (agent, url, has_address) = match &event.target {
        Target::Agent(agent) => {
            let has_address = agents::store::has_webhook(tx, account, *agent).await?;
            (Some(*agent), None, has_address)
        }
        Target::Url(url) => (None, Some(url.as_str()), true),
    };
    let status = if has_address {
        Status::Pending
    } else {
        Status::Skipped
    };
    tx.query(
        "insert into events (id, account_id, type, class, agent_id, url, call_id, body, status, attempts,
            next_attempt_at, created_at, updated_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, 0, $10, $11, $11)",
    )
    .bind(event.id)
    .bind(account)
    .bind(event.r#type.name())
    .bind(event.r#type.class().name())
    .bind(agent)
    .bind(url)
    .bind(event.call)
    .bind(event.body.as_str())
    .bind(status.name())
    .bind(has_address.then_some(due))
    .bind(now)
    .execute()
    .await?;
    Ok(())
}

/// How much waits in the outbox of all nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Events that are not settled, by their status.
    pub of: Vec<(String, u64)>,
    /// The age of the oldest of them; zero when there is none.
    pub oldest: Duration,
}

/// How much waits at `now`, of all accounts: for the operator.
pub async fn depth(db: &Db, now: Timestamp) -> Result<Depth, DbError> {
    let rows = db
        .query_built(format!(
            "select status, count(*) as events, min(created_at) as oldest from events where {OPEN}
             group by status order by status"
        ))
        .all(|row| {
            Ok((
                row.text("status")?,
                row.i64("events")?.unsigned_abs(),
                row.time("oldest")?,
            ))
        })
        .await?;
    let oldest = rows.iter().map(|(_, _, oldest)| *oldest).min();
    Ok(Depth {
        oldest: oldest.map_or(Duration::ZERO, |oldest| now.since(oldest)),
        of: rows
            .into_iter()
            .map(|(status, events, _)| (status, events))
            .collect(),
    })
}

/// The accounts that have something due: the node's own housekeeping, of all accounts.
pub async fn due_accounts(db: &Db, now: Timestamp) -> Result<Vec<AccountId>, DbError> {
    db.query_built(format!(
        "select a.id from accounts a where exists (select 1 from events e
            where e.account_id = a.id and e.{OPEN} and e.next_attempt_at <= $1) order by a.id"
    ))
    .bind(now)
    .all(|row| row.parse("id"))
    .await
}

/// What is due in an account, oldest first, without the events of some targets (their receivers are
/// busy).
pub async fn due(
    db: &Db,
    account: AccountId,
    now: Timestamp,
    busy: &[Target],
    limit: u32,
) -> Result<Vec<Due>, DbError> {
    // After $1, $2 and $3 come the targets.
    let except: String = (4..)
        .zip(busy)
        .map(|(place, target)| match target {
            Target::Agent(_) => format!(" and (agent_id is null or agent_id <> ${place})"),
            Target::Url(_) => format!(" and (url is null or url <> ${place})"),
        })
        .collect();
    db.query_built(format!(
        "select id, agent_id, url from events
         where account_id = $1 and {OPEN} and next_attempt_at <= $2{except}
         order by next_attempt_at, id limit $3"
    ))
    .bind(account)
    .bind(now)
    .bind(limit)
    .bind_all(busy.iter().map(|target| match target {
        Target::Agent(agent) => Arg::from(*agent),
        Target::Url(url) => Arg::from(url),
    }))
    .all(|row| {
        let target = match (row.opt_text("url")?, row.opt_parse("agent_id")?) {
            (Some(url), _) => Target::Url(url),
            (None, Some(agent)) => Target::Agent(agent),
            // An agent that is not there has no address: the event will be skipped.
            (None, None) => Target::Agent(AgentId::NIL),
        };
        Ok(Due {
            id: row.parse("id")?,
            target,
        })
    })
    .await
}

/// Makes due what waits for longer than any pause or claim lasts: its time was written by a clock that was
/// ahead, of an earlier process or of another node. How many there were. The node's own housekeeping, of all
/// accounts.
pub async fn mend(db: &Db, now: Timestamp, longest: Duration) -> Result<u64, DbError> {
    db.query_built(format!(
        "update events set next_attempt_at = $1 where {OPEN} and next_attempt_at > $2"
    ))
    .bind(now)
    .bind(now.plus(longest))
    .execute()
    .await
}

/// Takes a due event until `lease_end`. `None`: another process has it, or it is settled.
pub async fn claim(
    tx: &mut Tx,
    account: AccountId,
    id: EventId,
    now: Timestamp,
    lease_end: Timestamp,
) -> Result<Option<Claimed>, DbError> {
    tx.query_built(format!(
        "update events set status = 'delivering', claim_token = claim_token + 1, attempts = attempts + 1,
            next_attempt_at = $1, updated_at = $2
         where account_id = $3 and id = $4 and {OPEN} and next_attempt_at <= $2
         returning call_id, claim_token, attempts, type, class, body"
    ))
    .bind(lease_end)
    .bind(now)
    .bind(account)
    .bind(id)
    .optional(|row| {
        let class = row.text("class")?;
        Ok(Claimed {
            id,
            account,
            call: row.opt_parse("call_id")?,
            token: row.i64("claim_token")?,
            attempts: row.u32("attempts")?,
            r#type: row.text("type")?,
            class: Class::from_name(&class).ok_or_else(|| DbError::Column {
                column: "class".to_owned(),
                why: format!("{class:?} is no class"),
            })?,
            body: row.text("body")?,
        })
    })
    .await
}

/// Settles a due event that has no address any more. `false`: it was settled or taken meanwhile.
pub async fn skip(
    tx: &mut Tx,
    account: AccountId,
    id: EventId,
    now: Timestamp,
) -> Result<bool, DbError> {
    let rows = tx
        .query_built(format!(
            "update events set status = 'skipped', next_attempt_at = null, claim_token = claim_token + 1,
                updated_at = $1
             where account_id = $2 and id = $3 and {OPEN} and next_attempt_at <= $1"
        ))
        .bind(now)
        .bind(account)
        .bind(id)
        .execute()
        .await?;
    Ok(rows == 1)
}

/// Makes an event with an address of its own due again, from its first attempt on, with the same id and
/// body. An attempt that is under way counts no more.
pub async fn redeliver(
    db: &Db,
    account: AccountId,
    id: EventId,
    url: &str,
    now: Timestamp,
    due: Timestamp,
) -> Result<(), DbError> {
    db.query(
        "update events set status = 'pending', url = $3, attempts = 0, next_attempt_at = $5,
            delivered_at = null, last_error = null, claim_token = claim_token + 1, updated_at = $4
         where account_id = $1 and id = $2",
    )
    .bind(account)
    .bind(id)
    .bind(url)
    .bind(now)
    .bind(due)
    .execute()
    .await?;
    Ok(())
}

/// Writes down how a claimed event went. `false`: the claim ran out and another has it; nothing was
/// written.
pub async fn finish(
    db: &Db,
    account: AccountId,
    id: EventId,
    token: i64,
    finished: &Finished,
    now: Timestamp,
) -> Result<bool, DbError> {
    let Finished {
        status,
        next_attempt_at,
        error,
    } = finished;
    let delivered_at = (*status == Status::Delivered).then_some(now);
    let rows = db
        .query(
            "update events set status = $1, next_attempt_at = $2, delivered_at = $3, last_error = $4,
                updated_at = $5
             where account_id = $6 and id = $7 and claim_token = $8 and status = 'delivering'",
        )
        .bind(status.name())
        .bind(*next_attempt_at)
        .bind(delivered_at)
        .bind(error.as_deref())
        .bind(now)
        .bind(account)
        .bind(id)
        .bind(token)
        .execute()
        .await?;
    Ok(rows == 1)
}

/// Lets go of what was settled before then, at most `limit` events of each kind: the bodies of calls'
/// ends (their state is told with the call), and all of the others but firings of triggers, which may be
/// delivered again. How many there were. The node's own housekeeping, of all accounts.
pub async fn prune(db: &Db, before: Timestamp, limit: u32) -> Result<u64, DbError> {
    let bodies = db
        .query_built(format!(
            "update events set body = '' where id in (select id from events
                where type = 'call.ended' and body <> '' and updated_at < $1 and not {OPEN}
                order by updated_at limit $2)"
        ))
        .bind(before)
        .bind(limit)
        .execute()
        .await?;
    let events = db
        .query_built(format!(
            "delete from events where id in (select id from events
                where type <> 'call.ended' and url is null and updated_at < $1 and not {OPEN}
                order by updated_at limit $2)"
        ))
        .bind(before)
        .bind(limit)
        .execute()
        .await?;
    Ok(bodies + events)
}

/// Notes that an agent's owner is told today (`day`, UTC) of unfilled placeholders. `false`: they were
/// told already.
pub async fn note_unfilled(
    tx: &mut Tx,
    account: AccountId,
    agent: AgentId,
    day: &str,
) -> Result<bool, DbError> {
    let rows = tx
        .query(
            "insert into unfilled_notices (account_id, agent_id, day) values ($1, $2, $3)
             on conflict (agent_id) do update set day = $3 where unfilled_notices.day < $3",
        )
        .bind(account)
        .bind(agent)
        .bind(day)
        .execute()
        .await?;
    Ok(rows == 1)
}
