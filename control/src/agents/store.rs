//! Agents in the database. The account comes first in every function: another account's agent is no
//! row.

use serde_json::{Map, Value};

use super::{
    rules::{Agent, Refused, Status, World, change},
    settings::Settings,
};
use crate::{
    db::{Db, DbError, Row, Tx},
    ids::{AccountId, AgentId},
    time::Timestamp,
};

const COLUMNS: &str = "id, status, status_reason, settings, version, created_at, updated_at";

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
) -> Result<Agent, DbError> {
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
    tx.query(
        "insert into agents (account_id, id, name, status, status_reason, settings, version, created_at, updated_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
    )
    .bind(account)
    .bind(agent.id)
    .bind(&agent.settings.name)
    .bind(agent.status.name())
    .bind(agent.status_reason.clone())
    .bind(text(&agent.stored))
    .bind(agent.version)
    .bind(agent.created_at)
    .bind(agent.updated_at)
    .execute()
    .await?;
    Ok(agent)
}

/// The agent of this id.
pub async fn get(db: &Db, account: AccountId, id: AgentId) -> Result<Option<Agent>, DbError> {
    db.query_built(format!(
        "select {COLUMNS} from agents where account_id = $1 and id = $2"
    ))
    .bind(account)
    .bind(id)
    .optional(read)
    .await
}

/// The public agent of this id, with its account. Who asks has no key: the account follows from the
/// agent.
pub async fn get_public(db: &Db, id: AgentId) -> Result<Option<(AccountId, Agent)>, DbError> {
    let found = db
        .query_built(format!(
            "select account_id, {COLUMNS} from agents where id = $1"
        ))
        .bind(id)
        .optional(|row| Ok((row.parse("account_id")?, read(row)?)))
        .await?;
    Ok(found.filter(|(_, agent)| agent.settings.public_access))
}

/// A page of agents, newest first, and how many there are.
pub async fn list(
    db: &Db,
    account: AccountId,
    limit: u32,
    offset: u32,
) -> Result<(Vec<Agent>, u64), DbError> {
    let total = db
        .query("select count(*) as total from agents where account_id = $1")
        .bind(account)
        .one(|row| row.i64("total"))
        .await?;
    let agents = db
        .query_built(format!(
            "select {COLUMNS} from agents where account_id = $1 order by created_at desc, id desc limit $2 offset $3"
        ))
        .bind(account)
        .bind(limit)
        .bind(offset)
        .all(read)
        .await?;
    Ok((agents, total.unsigned_abs()))
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
) -> Result<Update, DbError> {
    let mut tx = db.begin_write().await?;
    let lock = tx.engine().for_update();
    let found = tx
        .query_built(format!(
            "select {COLUMNS} from agents where account_id = $1 and id = $2{lock}"
        ))
        .bind(account)
        .bind(id)
        .optional(read)
        .await?;
    let Some(agent) = found else {
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
    tx.query("update agents set name = $3, settings = $4, version = $5, updated_at = $6 where account_id = $1 and id = $2")
        .bind(account)
        .bind(id)
        .bind(&agent.settings.name)
        .bind(text(&agent.stored))
        .bind(agent.version)
        .bind(agent.updated_at)
        .execute()
        .await?;
    tx.commit().await?;
    Ok(Update::Done(Box::new(agent)))
}

/// Removes an agent; false when there was none.
pub async fn delete(tx: &mut Tx, account: AccountId, id: AgentId) -> Result<bool, DbError> {
    let rows = tx
        .query("delete from agents where account_id = $1 and id = $2")
        .bind(account)
        .bind(id)
        .execute()
        .await?;
    Ok(rows > 0)
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
pub async fn hold(tx: &mut Tx, account: AccountId, id: AgentId) -> Result<bool, DbError> {
    let lock = tx.engine().for_share();
    let found = tx
        .query_built(format!(
            "select id from agents where account_id = $1 and id = $2{lock}"
        ))
        .bind(account)
        .bind(id)
        .optional(|row| row.text("id"))
        .await?;
    Ok(found.is_some())
}

/// Whether the agent has an address for its events; false for one that is deleted.
pub async fn has_webhook(tx: &mut Tx, account: AccountId, id: AgentId) -> Result<bool, DbError> {
    let agent = tx
        .query_built(format!(
            "select {COLUMNS} from agents where account_id = $1 and id = $2"
        ))
        .bind(account)
        .bind(id)
        .optional(read)
        .await?;
    Ok(agent.is_some_and(|agent| agent.settings.webhook_url.is_some()))
}

/// Notes that the account has been given its demo agent; false when it had been before.
pub async fn note_demo(
    tx: &mut Tx,
    account: AccountId,
    id: AgentId,
    now: Timestamp,
) -> Result<bool, DbError> {
    let rows = tx
        .query("insert into demo_agents (account_id, agent_id, created_at) values ($1, $2, $3) on conflict (account_id) do nothing")
        .bind(account)
        .bind(id)
        .bind(now)
        .execute()
        .await?;
    Ok(rows > 0)
}

fn text(stored: &Map<String, Value>) -> String {
    // A map of JSON values always prints.
    Value::Object(stored.clone()).to_string()
}

fn read(row: &Row) -> Result<Agent, DbError> {
    let stored: Map<String, Value> = row.json("settings")?;
    let settings =
        Settings::read(&stored).map_err(|error| column("settings", &error.to_string()))?;
    let status = row.text("status")?;
    Ok(Agent {
        id: row.parse("id")?,
        status: Status::from_name(&status).ok_or_else(|| column("status", &status))?,
        status_reason: row.opt_text("status_reason")?,
        stored,
        settings,
        version: row.i64("version")?,
        created_at: row.time("created_at")?,
        updated_at: row.time("updated_at")?,
    })
}

fn column(name: &str, why: &str) -> DbError {
    DbError::Column {
        column: name.to_owned(),
        why: why.to_owned(),
    }
}
