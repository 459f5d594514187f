//! The `usage_triggers` and `usage_firings` tables.

use serde_json::Value;

use super::rules::{Period, Resource, ThresholdType};
use crate::db::{Db, DbError, Row, Tx};
use crate::ids::{AccountId, EventId, UsageFiringId, UsageTriggerId};
use crate::time::Timestamp;

/// What an account wants to be told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trigger {
    pub id: UsageTriggerId,
    pub name: Option<String>,
    pub resource: Resource,
    pub threshold_type: ThresholdType,
    pub threshold_value: i64,
    pub period: Period,
    pub event_callback_url: String,
    /// How often what it watches for was changed. It fires once a period in each generation.
    pub generation: i64,
    /// Beginning of the period in which this generation fired last.
    pub fired_period_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// One time that a trigger fired, and what became of its event.
#[derive(Clone, Debug, PartialEq)]
pub struct Firing {
    pub id: UsageFiringId,
    pub trigger: UsageTriggerId,
    pub event: EventId,
    /// The event as it was told.
    pub body: Value,
    pub delivery_status: Option<String>,
    pub delivery_attempts: i64,
    pub delivered_at: Option<Timestamp>,
    pub created_at: Timestamp,
    /// When its delivery changed last.
    pub updated_at: Timestamp,
}

/// A firing that is to be written.
pub struct NewFiring<'a> {
    pub id: UsageFiringId,
    pub trigger: UsageTriggerId,
    /// Of the trigger.
    pub generation: i64,
    pub event: EventId,
    pub body: &'a str,
    pub period_started_at: Timestamp,
}

const FIRINGS: &str =
    "select f.*, e.status as delivery_status, coalesce(e.attempts, 0) as attempts,
        e.delivered_at as delivered_at, coalesce(e.updated_at, f.created_at) as updated_at
    from usage_firings f left join events e on e.id = f.event_id";

/// How many triggers the account has. Of two transactions that ask, one waits for the other's end.
pub async fn count(tx: &mut Tx, account: AccountId) -> Result<i64, DbError> {
    let lock = tx.engine().for_update();
    tx.query_built(format!("select id from accounts where id = $1{lock}"))
        .bind(account)
        .optional(|row| row.text("id"))
        .await?;
    tx.query("select count(*) as total from usage_triggers where account_id = $1")
        .bind(account)
        .one(|row| row.i64("total"))
        .await
}

/// Adds a trigger.
pub async fn insert(tx: &mut Tx, account: AccountId, trigger: &Trigger) -> Result<(), DbError> {
    tx.query(
        "insert into usage_triggers (id, account_id, name, resource_type, threshold_type, threshold_value,
            period, event_callback_url, created_at, updated_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
    )
    .bind(trigger.id)
    .bind(account)
    .bind(trigger.name.as_deref())
    .bind(trigger.resource.name())
    .bind(trigger.threshold_type.name())
    .bind(trigger.threshold_value)
    .bind(trigger.period.name())
    .bind(&trigger.event_callback_url)
    .bind(trigger.created_at)
    .bind(trigger.updated_at)
    .execute()
    .await?;
    Ok(())
}

/// The trigger of this id.
pub async fn get(
    db: &Db,
    account: AccountId,
    id: UsageTriggerId,
) -> Result<Option<Trigger>, DbError> {
    db.query("select * from usage_triggers where account_id = $1 and id = $2")
        .bind(account)
        .bind(id)
        .optional(Trigger::read)
        .await
}

/// The trigger, which nobody else changes before the transaction ends.
pub async fn hold(
    tx: &mut Tx,
    account: AccountId,
    id: UsageTriggerId,
) -> Result<Option<Trigger>, DbError> {
    let lock = tx.engine().for_update();
    tx.query_built(format!(
        "select * from usage_triggers where account_id = $1 and id = $2{lock}"
    ))
    .bind(account)
    .bind(id)
    .optional(Trigger::read)
    .await
}

/// A page of triggers, newest first, and how many there are.
pub async fn list(
    db: &Db,
    account: AccountId,
    limit: u32,
    offset: u32,
) -> Result<(Vec<Trigger>, u64), DbError> {
    let total = db
        .query("select count(*) as total from usage_triggers where account_id = $1")
        .bind(account)
        .one(|row| row.i64("total"))
        .await?;
    let triggers = db
        .query(
            "select * from usage_triggers where account_id = $1
             order by created_at desc, id desc limit $2 offset $3",
        )
        .bind(account)
        .bind(limit)
        .bind(offset)
        .all(Trigger::read)
        .await?;
    Ok((triggers, total.unsigned_abs()))
}

/// The triggers on one resource that have not fired in their period around `now`.
pub async fn watching(
    tx: &mut Tx,
    account: AccountId,
    resource: Resource,
    now: Timestamp,
) -> Result<Vec<Trigger>, DbError> {
    tx.query(
        "select * from usage_triggers where account_id = $1 and resource_type = $2
            and (fired_period_at is null or fired_period_at <> case period
                when 'day' then $3 when 'week' then $4 when 'month' then $5 else $6 end)
         order by id",
    )
    .bind(account)
    .bind(resource.name())
    .bind(Period::Day.began(now))
    .bind(Period::Week.began(now))
    .bind(Period::Month.began(now))
    .bind(Period::AllTime.began(now))
    .all(Trigger::read)
    .await
}

/// Writes a changed trigger that is [held](hold).
pub async fn update(tx: &mut Tx, account: AccountId, trigger: &Trigger) -> Result<(), DbError> {
    tx.query(
        "update usage_triggers set name = $3, resource_type = $4, threshold_type = $5,
            threshold_value = $6, period = $7, event_callback_url = $8, generation = $9,
            fired_period_at = $10, updated_at = $11
         where account_id = $1 and id = $2",
    )
    .bind(account)
    .bind(trigger.id)
    .bind(trigger.name.as_deref())
    .bind(trigger.resource.name())
    .bind(trigger.threshold_type.name())
    .bind(trigger.threshold_value)
    .bind(trigger.period.name())
    .bind(&trigger.event_callback_url)
    .bind(trigger.generation)
    .bind(trigger.fired_period_at)
    .bind(trigger.updated_at)
    .execute()
    .await?;
    Ok(())
}

/// Deletes a trigger and its firings. `false`: there is none.
pub async fn delete(tx: &mut Tx, account: AccountId, id: UsageTriggerId) -> Result<bool, DbError> {
    tx.query("delete from usage_firings where account_id = $1 and trigger_id = $2")
        .bind(account)
        .bind(id)
        .execute()
        .await?;
    let rows = tx
        .query("delete from usage_triggers where account_id = $1 and id = $2")
        .bind(account)
        .bind(id)
        .execute()
        .await?;
    Ok(rows == 1)
}

/// Writes a firing down. `false`: the trigger's generation has fired in this period.
pub async fn insert_firing(
    tx: &mut Tx,
    account: AccountId,
    firing: &NewFiring<'_>,
    now: Timestamp,
) -> Result<bool, DbError> {
    let rows = tx
        .query(
            "insert into usage_firings (id, account_id, trigger_id, generation, event_id, body,
                period_started_at, created_at)
             values ($1, $2, $3, $4, $5, $6, $7, $8)
             on conflict (trigger_id, generation, period_started_at) do nothing",
        )
        .bind(firing.id)
        .bind(account)
        .bind(firing.trigger)
        .bind(firing.generation)
        .bind(firing.event)
        .bind(firing.body)
        .bind(firing.period_started_at)
        .bind(now)
        .execute()
        .await?;
    // Nothing of a trigger that was changed since it was read.
    tx.query(
        "update usage_triggers set fired_period_at = $3
         where account_id = $1 and id = $2 and generation = $4",
    )
    .bind(account)
    .bind(firing.trigger)
    .bind(firing.period_started_at)
    .bind(firing.generation)
    .execute()
    .await?;
    Ok(rows == 1)
}

/// One firing of one trigger.
pub async fn firing(
    db: &Db,
    account: AccountId,
    trigger: UsageTriggerId,
    id: UsageFiringId,
) -> Result<Option<Firing>, DbError> {
    let sql = format!("{FIRINGS} where f.account_id = $1 and f.trigger_id = $2 and f.id = $3");
    db.query_built(sql)
        .bind(account)
        .bind(trigger)
        .bind(id)
        .optional(Firing::read)
        .await
}

/// A page of a trigger's firings, newest first, and how many there are.
pub async fn firings(
    db: &Db,
    account: AccountId,
    trigger: UsageTriggerId,
    limit: u32,
    offset: u32,
) -> Result<(Vec<Firing>, u64), DbError> {
    let total = db
        .query(
            "select count(*) as total from usage_firings where account_id = $1 and trigger_id = $2",
        )
        .bind(account)
        .bind(trigger)
        .one(|row| row.i64("total"))
        .await?;
    let sql = format!(
        "{FIRINGS} where f.account_id = $1 and f.trigger_id = $2
         order by f.created_at desc, f.id desc limit $3 offset $4"
    );
    let firings = db
        .query_built(sql)
        .bind(account)
        .bind(trigger)
        .bind(limit)
        .bind(offset)
        .all(Firing::read)
        .await?;
    Ok((firings, total.unsigned_abs()))
}

impl Trigger {
    /// Whether both watch for the same, so that one's firing is the other's.
    pub fn watches_as(&self, other: &Self) -> bool {
        let what = |trigger: &Self| {
            (
                trigger.resource,
                trigger.threshold_type,
                trigger.threshold_value,
                trigger.period,
            )
        };
        what(self) == what(other)
    }

    fn read(row: &Row) -> Result<Self, DbError> {
        Ok(Self {
            id: row.parse("id")?,
            name: row.opt_text("name")?,
            resource: row.parse("resource_type")?,
            threshold_type: row.parse("threshold_type")?,
            threshold_value: row.i64("threshold_value")?,
            period: row.parse("period")?,
            event_callback_url: row.text("event_callback_url")?,
            generation: row.i64("generation")?,
            fired_period_at: row.opt_time("fired_period_at")?,
            created_at: row.time("created_at")?,
            updated_at: row.time("updated_at")?,
        })
    }
}

impl Firing {
    fn read(row: &Row) -> Result<Self, DbError> {
        Ok(Self {
            id: row.parse("id")?,
            trigger: row.parse("trigger_id")?,
            event: row.parse("event_id")?,
            body: row.json("body")?,
            delivery_status: row.opt_text("delivery_status")?,
            delivery_attempts: row.i64("attempts")?,
            delivered_at: row.opt_time("delivered_at")?,
            created_at: row.time("created_at")?,
            updated_at: row.time("updated_at")?,
        })
    }
}
