//! The `usage_triggers` and `usage_firings` tables.

use serde_json::Value;

use super::rules::{Period, Resource, ThresholdType};
use crate::db::{self, Record, Tx, args, named, record};
use crate::ids::{AccountId, EventId, UsageFiringId, UsageTriggerId};
use crate::time::Timestamp;

record! {
    /// What an account wants to be told of.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Trigger in "usage_triggers" {
        id: UsageTriggerId,
        name: Option<String>,
        resource: Resource as "resource_type",
        threshold_type: ThresholdType,
        threshold_value: i64,
        period: Period,
        event_callback_url: String,
        /// How often what it watches for was changed. It fires once a period in each generation.
        generation: i64,
        /// Beginning of the period in which this generation fired last.
        fired_period_at: Option<Timestamp>,
        created_at: Timestamp,
        updated_at: Timestamp,
    }
}

record! {
    /// One time that a trigger fired, and what became of its event.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Firing in "usage_firings"
        from "(select f.*, e.status as delivery_status, coalesce(e.attempts, 0) as attempts,
            e.delivered_at as delivered_at, coalesce(e.updated_at, f.created_at) as updated_at
        from usage_firings f left join events e on e.id = f.event_id) as firings" {
        id: UsageFiringId,
        trigger: UsageTriggerId as "trigger_id",
        event: EventId as "event_id",
        /// The event as it was told.
        body: Value,
        delivery_status: Option<String>,
        delivery_attempts: i64 as "attempts",
        delivered_at: Option<Timestamp>,
        created_at: Timestamp,
        /// When its delivery changed last.
        updated_at: Timestamp,
    }
}

record! {
    /// A firing that is to be written.
    pub struct NewFiring in "usage_firings" {
        id: UsageFiringId,
        trigger: UsageTriggerId as "trigger_id",
        /// Of the trigger.
        generation: i64,
        event: EventId as "event_id",
        body: String,
        period_started_at: Timestamp,
        created_at: Timestamp,
    }
}

/// How many triggers the account has. Of two transactions that ask, one waits for the other's end.
pub async fn count(tx: &mut Tx, account: AccountId) -> db::Result<u64> {
    let lock = tx.engine().for_update();
    tx.query_built(format!("select id from accounts where id = $1{lock}"))
        .bind(account)
        .optional(|row| row.text("id"))
        .await?;
    tx.of::<Trigger>(account).count().await
}

/// The triggers on one resource that have not fired in their period around `now`.
pub async fn watching(
    tx: &mut Tx,
    account: AccountId,
    resource: Resource,
    now: Timestamp,
) -> db::Result<Vec<Trigger>> {
    use Period::{AllTime, Day, Month, Week};
    tx.query(
        "select * from usage_triggers where account_id = $1 and resource_type = $2
            and (fired_period_at is null or fired_period_at <> case period
                when 'day' then $3 when 'week' then $4 when 'month' then $5 else $6 end)
         order by id",
    )
    .bind_all(args![account, resource])
    .bind_all([Day, Week, Month, AllTime].map(|period| period.began(now).into()))
    .all(Trigger::read)
    .await
}

/// Deletes a trigger and its firings. `false`: there is none.
pub async fn delete(tx: &mut Tx, account: AccountId, id: UsageTriggerId) -> db::Result<bool> {
    tx.query("delete from usage_firings where account_id = $1 and trigger_id = $2")
        .bind_all(args![account, id])
        .execute()
        .await?;
    tx.of::<Trigger>(account).delete(id).await
}

/// Writes a firing down. `false`: the trigger's generation has fired in this period.
pub async fn insert_firing(
    tx: &mut Tx,
    account: AccountId,
    firing: &NewFiring,
) -> db::Result<bool> {
    let fired = "on conflict (trigger_id, generation, period_started_at) do nothing";
    let fires = tx.insert(account, firing).unless(fired).run().await?;
    // Nothing of a trigger that was changed since it was read.
    let trigger = tx.of::<Trigger>(account).whose("id", firing.trigger);
    let unchanged = trigger.whose("generation", firing.generation);
    let noted = named! { fired_period_at: firing.period_started_at };
    unchanged.set(noted).await?;
    Ok(fires)
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
}
