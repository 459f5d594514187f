//! The outbox table: events from the transaction that made them true to the end of their delivery.
//!
//! An event is a job ([`crate::jobs`]): claimed, attempted and finished as every other. Here is what events
//! have beside that: how they come in, what waits, and how they are let go of.

use std::time::Duration;

use super::event::{EventType, Status};
use super::schedule::Class;
use crate::agents;
use crate::db::{self, Db, Tx, args, named};
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

/// An event that this process delivers now.
pub struct Event {
    /// The call that it is about.
    pub call: Option<CallId>,
    /// As in the header.
    pub r#type: String,
    pub class: Class,
    pub body: String,
}

/// Not settled. The text stands in the index as well.
pub(super) const OPEN: &str = "status in ('pending', 'failed', 'delivering')";

/// Adds an event in the transaction that made it true, at `now` by the wall; it is due at `due`. Without an
/// address now it is kept as `skipped`. After the commit, `wake` of the queue spares it the wait for
/// the next look.
pub async fn insert(
    tx: &mut Tx,
    account: AccountId,
    event: &NewEvent,
    now: Timestamp,
    due: Timestamp,
) -> db::Result<()> {
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
    let row = named! {
        id: event.id,
        account_id: account,
        "type": event.r#type,
        class: event.r#type.class(),
        agent_id: agent,
        url: url,
        call_id: event.call,
        body: event.body.as_str(),
        status: status,
        attempts: 0_u32,
        next_attempt_at: has_address.then_some(due),
        created_at: now,
        updated_at: now,
    };
    tx.insert_into("events", row).run().await.map(drop)
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
pub async fn depth(db: &Db, now: Timestamp) -> db::Result<Depth> {
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

/// Makes an event with an address of its own due again, from its first attempt on, with the same id and
/// body. An attempt that is under way counts no more.
pub async fn redeliver(
    db: &Db,
    account: AccountId,
    id: EventId,
    url: &str,
    now: Timestamp,
    due: Timestamp,
) -> db::Result<()> {
    db.query(
        "update events set status = 'pending', url = $3, attempts = 0, next_attempt_at = $5,
            delivered_at = null, last_error = null, claim_token = claim_token + 1, updated_at = $4
         where account_id = $1 and id = $2",
    )
    .bind_all(args![account, id, url, now, due])
    .execute()
    .await
    .map(drop)
}

/// Lets go of what was settled before then, at most `limit` events of each kind: the bodies of calls'
/// ends (their state is told with the call), and all of the others but firings of triggers, which may be
/// delivered again. How many there were. The node's own housekeeping, of all accounts.
pub async fn prune(db: &Db, before: Timestamp, limit: u32) -> db::Result<u64> {
    let bodies = db
        .query_built(format!(
            "update events set body = '' where id in (select id from events
                where type = 'call.ended' and body <> '' and updated_at < $1 and not {OPEN}
                order by updated_at limit $2)"
        ))
        .bind_all(args![before, limit])
        .execute()
        .await?;
    let events = db
        .query_built(format!(
            "delete from events where id in (select id from events
                where type <> 'call.ended' and url is null and updated_at < $1 and not {OPEN}
                order by updated_at limit $2)"
        ))
        .bind_all(args![before, limit])
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
) -> db::Result<bool> {
    let rows = tx
        .query(
            "insert into unfilled_notices (account_id, agent_id, day) values ($1, $2, $3)
             on conflict (agent_id) do update set day = $3 where unfilled_notices.day < $3",
        )
        .bind_all(args![account, agent, day])
        .execute()
        .await?;
    Ok(rows == 1)
}
