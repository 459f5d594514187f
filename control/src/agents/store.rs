//! Agents in the database. The account comes first in every function: another account's agent is no
//! row.

use serde_json::{Map, Value};

use super::{
    rules::{Refused, Status, World, change},
    settings::Settings,
};
use crate::{
    db::{self, Db, DbError, Record, Row, Tx, Window, args, named, record},
    ids::{AccountId, AgentId},
    time::Timestamp,
};

record! {
    /// An agent as it is stored. Its `Debug` leaves the settings out: they hold phone numbers.
    #[derive(Clone, PartialEq)]
    pub struct Agent in "agents" {
        id: AgentId,
        status: Status,
        /// Why, where the status alone does not tell.
        status_reason: Option<String>,
        /// Only what was set; `complete` adds the rest.
        stored: Map<String, Value> as "settings",
        settings: Settings => settings,
        /// Grows with every change.
        version: i64,
        created_at: Timestamp,
        updated_at: Timestamp,
    }
    also "name" = |agent: &Agent| agent.settings.name.clone();
}

fn settings(row: &Row) -> db::Result<Settings> {
    let stored = row.json("settings")?;
    Settings::read(&stored).map_err(|error| DbError::Column {
        column: "settings".to_owned(),
        why: error.to_string(),
    })
}

/// What a write came to.
#[derive(Debug)]
pub enum Update {
    Done(Box<Agent>),
    NoSuchAgent,
    Refused(Refused),
}

/// Inserts a new, active agent. `stored` and `settings` come from `rules::change`.
pub async fn create(
    tx: &mut Tx,
    account: AccountId,
    id: AgentId,
    stored: Map<String, Value>,
    settings: Settings,
    now: Timestamp,
) -> db::Result<Agent> {
    let agent = Agent {
        id,
        status: Status::Active,
        status_reason: None,
        stored,
        settings,
        version: 1,
        created_at: now,
        updated_at: now,
    };
    tx.insert(account, &agent).run().await?;
    Ok(agent)
}

/// The agent of this id.
pub async fn get(db: &Db, account: AccountId, id: AgentId) -> db::Result<Option<Agent>> {
    db.of(account).get(id).await
}

/// The public agent of this id, with its account. Who asks has no key: the account follows from the
/// agent.
pub async fn get_public(db: &Db, id: AgentId) -> db::Result<Option<(AccountId, Agent)>> {
    let found = db
        .query("select * from agents where id = $1")
        .bind(id)
        .optional(|row| Ok((row.parse("account_id")?, Agent::read(row)?)))
        .await?;
    Ok(found.filter(|(_, agent)| agent.settings.public_access))
}

/// A page of agents, newest first, and how many there are.
pub async fn list(
    db: &Db,
    account: AccountId,
    limit: u32,
    offset: u32,
) -> db::Result<(Vec<Agent>, u64)> {
    db.of(account).page(Window { limit, offset }).await
}

/// Changes an agent: read, judged and written in one writing transaction, so that no other change is
/// lost. A change that changes nothing writes nothing.
pub async fn update(
    db: &Db,
    account: AccountId,
    id: AgentId,
    changes: &Map<String, Value>,
    world: &World<'_>,
    now: Timestamp,
) -> db::Result<Update> {
    let mut tx = db.begin_write().await?;
    let Some(agent) = tx.of::<Agent>(account).hold(id).await? else {
        return Ok(Update::NoSuchAgent);
    };
    let (stored, settings) = match change(&agent.stored, changes, world) {
        Ok(next) => next,
        Err(refused) => return Ok(Update::Refused(refused)),
    };
    if stored == agent.stored {
        return Ok(Update::Done(Box::new(agent)));
    }
    let agent = Agent {
        stored,
        settings,
        version: agent.version + 1,
        updated_at: now.max(agent.updated_at),
        ..agent
    };
    tx.update(account, &agent).await?;
    tx.commit().await?;
    Ok(Update::Done(Box::new(agent)))
}

/// Removes an agent; false when there was none.
pub async fn delete(tx: &mut Tx, account: AccountId, id: AgentId) -> db::Result<bool> {
    tx.of::<Agent>(account).delete(id).await
}

/// Whether the agent is on a call that has not ended, or that somebody may still join.
pub async fn agent_is_live(
    tx: &mut Tx,
    account: AccountId,
    agent: AgentId,
) -> Result<bool, DbError> {
    tx.query(
        "select count(*) as live from calls where account_id = $1 and agent_id = $2 and ended_at is null",
    )
    .bind(account)
    .bind(agent)
    .one(|row| Ok(row.i64("live")? > 0))
    .await
}

/// Whether the agent is there, and stays so until the transaction ends.
pub async fn hold(tx: &mut Tx, account: AccountId, id: AgentId) -> db::Result<bool> {
    let lock = tx.engine().for_share();
    let found = tx
        .query_built(format!(
            "select id from agents where account_id = $1 and id = $2{lock}"
        ))
        .bind_all(args![account, id])
        .optional(|row| row.text("id"))
        .await?;
    Ok(found.is_some())
}

/// Whether the agent has an address for its events; false for one that is deleted.
pub async fn has_webhook(tx: &mut Tx, account: AccountId, id: AgentId) -> db::Result<bool> {
    let agent: Option<Agent> = tx.of(account).get(id).await?;
    Ok(agent.is_some_and(|agent| agent.settings.webhook_url.is_some()))
}

/// Notes that the account has been given its demo agent; false when it had been before.
pub async fn note_demo(
    tx: &mut Tx,
    account: AccountId,
    id: AgentId,
    now: Timestamp,
) -> db::Result<bool> {
    let given = named! { account_id: account, agent_id: id, created_at: now };
    let insert = tx.insert_into("demo_agents", given);
    let before = "on conflict (account_id) do nothing";
    insert.unless(before).run().await
}
