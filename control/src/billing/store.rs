//! Balances and blocks (columns of `accounts`) and the `billing_adjustments` table.

use crate::db::{self, Db, Tx, args, record};
use crate::ids::{AccountId, AdjustmentId};
use crate::time::Timestamp;

record! {
    /// Credit given or taken by the operator.
    #[derive(Debug)]
    pub struct Adjustment in "billing_adjustments" {
        id: AdjustmentId,
        account: AccountId as "account_id",
        amount_cents: i64,
        note: Option<String>,
        /// After it.
        balance_cents: i64,
        created_at: Timestamp,
    }
}

/// An account that has live calls, and what decides whether they may go on.
pub struct Talking {
    pub account: AccountId,
    pub balance_microcents: i64,
    pub blocked: bool,
    /// How long its answered calls on other nodes have lasted so far, all together, ms.
    pub elsewhere_ms: i64,
}

/// The balance, millionths of a cent, and whether the account is blocked.
pub async fn get(db: &Db, account: AccountId) -> db::Result<(i64, bool)> {
    db.query("select balance_microcents, blocked_at from accounts where id = $1")
        .bind(account)
        .one(|row| {
            Ok((
                row.i64("balance_microcents")?,
                row.opt_time("blocked_at")?.is_some(),
            ))
        })
        .await
}

/// Adds to the balance, which may become negative.
pub async fn add(
    tx: &mut Tx,
    account: AccountId,
    microcents: i64,
    now: Timestamp,
) -> db::Result<()> {
    tx.query(
        "update accounts set balance_microcents = balance_microcents + $2, updated_at = $3 where id = $1",
    )
    .bind_all(args![account, microcents, now])
    .execute()
    .await
    .map(drop)
}

/// The balance within the transaction; `None`: no such account.
pub async fn balance_in(tx: &mut Tx, account: AccountId) -> db::Result<Option<i64>> {
    tx.query("select balance_microcents from accounts where id = $1")
        .bind(account)
        .optional(|row| row.i64("balance_microcents"))
        .await
}

/// Every account with a call on any node that rings or is live, and how long those have lasted that this
/// incarnation does not host.
pub async fn talking(db: &Db, incarnation: i64, now: Timestamp) -> db::Result<Vec<Talking>> {
    db.query(
        "select c.account_id, a.balance_microcents, a.blocked_at,
            cast(coalesce(sum(case when c.owner_incarnation <> $2 and c.answered_at < $1
                then $1 - c.answered_at end), 0) / 1000 as bigint) as elsewhere_ms
         from calls c join accounts a on a.id = c.account_id
         where c.ended_at is null and c.owner_node is not null
         group by c.account_id, a.balance_microcents, a.blocked_at",
    )
    .bind_all(args![now, incarnation])
    .all(|row| {
        Ok(Talking {
            account: row.parse("account_id")?,
            balance_microcents: row.i64("balance_microcents")?,
            blocked: row.opt_time("blocked_at")?.is_some(),
            elsewhere_ms: row.i64("elsewhere_ms")?,
        })
    })
    .await
}
