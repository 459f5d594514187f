//! The `usage_records` and `usage_days` tables.

use super::rules::{DAY, Resource};
use super::service::Used;
use crate::db::{self, Db, Row, Tx, args, named};
use crate::ids::{AccountId, AgentId};
use crate::time::Timestamp;
use crate::words::words;

/// What was used in some stretch of time, of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sum {
    pub resource: Resource,
    /// In stored parts.
    pub amount: i64,
    pub cost_microcents: i64,
    /// Days since 1970-01-01, when summed by day.
    pub day: Option<i64>,
    /// When summed by agent; `None` too for what no agent used.
    pub agent: Option<AgentId>,
}

words! {
    /// How sums are split.
    pub enum GroupBy { Resource = "resource", Day = "day", Agent = "agent" }
}

/// Writes down a use. `false`: this source was counted before, nothing was written.
pub async fn insert(
    tx: &mut Tx,
    account: AccountId,
    used: &Used<'_>,
    cost_microcents: i64,
    now: Timestamp,
) -> db::Result<bool> {
    let row = named! {
        account_id: account,
        resource_type: used.resource,
        source: used.source,
        agent_id: used.agent,
        call_id: used.call,
        amount: used.amount,
        cost_microcents: cost_microcents,
        used_at: now,
    };
    let counted = "on conflict (account_id, resource_type, source) do nothing";
    tx.insert_into("usage_records", row)
        .unless(counted)
        .run()
        .await
}

/// Adds to the sum of the day.
pub async fn add_to_day(
    tx: &mut Tx,
    account: AccountId,
    resource: Resource,
    amount: i64,
    now: Timestamp,
) -> db::Result<()> {
    tx.query(
        "insert into usage_days (account_id, resource_type, day, amount) values ($1, $2, $3, $4)
         on conflict (account_id, resource_type, day)
         do update set amount = usage_days.amount + excluded.amount",
    )
    .bind_all(args![
        account,
        resource,
        now.micros().div_euclid(DAY),
        amount
    ])
    .execute()
    .await
    .map(drop)
}

/// What was used in these days: from `first` on, before `next`.
pub async fn in_days(
    tx: &mut Tx,
    account: AccountId,
    resource: Resource,
    first: i64,
    next: Option<i64>,
) -> db::Result<i64> {
    tx.query(
        "select cast(coalesce(sum(amount), 0) as bigint) as amount from usage_days
         where account_id = $1 and resource_type = $2 and day >= $3 and day < $4",
    )
    .bind_all(args![account, resource, first, next.unwrap_or(i64::MAX)])
    .one(|row| row.i64("amount"))
    .await
}

/// Sums from `from` on, before `to`, in a stable order.
pub async fn sums(
    db: &Db,
    account: AccountId,
    from: Timestamp,
    to: Timestamp,
    group_by: GroupBy,
) -> db::Result<Vec<Sum>> {
    let (column, split, order) = match group_by {
        GroupBy::Resource => ("", "", "resource_type"),
        GroupBy::Day => (
            "used_at / 86400000000 as day, ",
            "day, ",
            "day, resource_type",
        ),
        GroupBy::Agent => (
            "agent_id, ",
            "agent_id, ",
            "agent_id nulls last, resource_type",
        ),
    };
    let sql = format!(
        "select {column}resource_type, cast(sum(amount) as bigint) as amount,
            cast(sum(cost_microcents) as bigint) as cost
         from usage_records where account_id = $1 and used_at >= $2 and used_at < $3
         group by {split}resource_type order by {order}"
    );
    db.query_built(sql)
        .bind_all(args![account, from, to])
        .all(|row| read(row, group_by))
        .await
}

fn read(row: &Row, group_by: GroupBy) -> db::Result<Sum> {
    Ok(Sum {
        resource: row.parse("resource_type")?,
        amount: row.i64("amount")?,
        cost_microcents: row.i64("cost")?,
        day: match group_by {
            GroupBy::Day => Some(row.i64("day")?),
            GroupBy::Resource | GroupBy::Agent => None,
        },
        agent: match group_by {
            GroupBy::Agent => row.opt_parse("agent_id")?,
            GroupBy::Resource | GroupBy::Day => None,
        },
    })
}
