//! Billing: whether an account may spend, and its prepaid balance.
//!
//! An account is hard-blocked when the operator blocked it, or when billing is prepaid and its balance
//! is below one cent. A blocked account gets 402 on every route that spends ([`require`], which the gate
//! of such routes asks), its live calls end with
//! `billing_blocked` ([`crate::usage::run_guard`]). What usage costs
//! comes off the balance in the transaction that writes the usage ([`charge`]).

pub mod http;
pub mod rules;
pub mod store;
pub mod wire;

use rules::Standing;
use store::Adjustment;

use crate::config::BillingMode;
use crate::db::{Db, DbError, Tx};
use crate::http::ApiError;
use crate::ids::{AccountId, AdjustmentId};
use crate::node::Node;
use crate::time::Clock;

/// Where an account stands.
pub async fn standing(app: &Node, account: AccountId) -> Result<Standing, DbError> {
    let (balance_microcents, blocked) = store::get(&app.db, account).await?;
    Ok(Standing {
        prepaid: app.config.billing.mode == BillingMode::Prepaid,
        blocked,
        balance_microcents,
    })
}

/// 402 unless the account may spend. An unreadable balance refuses too: nothing is given away.
pub async fn require(app: &Node, account: AccountId) -> Result<(), ApiError> {
    let standing = standing(app, account).await?;
    if standing.is_hard_blocked() {
        return Err(ApiError::PaymentRequired {
            message: standing.message(),
            action_url: app.config.billing.action_url.clone(),
        });
    }
    Ok(())
}

/// Takes what usage cost off a prepaid balance. Usage that was made is never refused: the balance may
/// go below zero, and then blocks.
pub async fn charge(
    app: &Node,
    tx: &mut Tx,
    account: AccountId,
    microcents: i64,
) -> Result<(), DbError> {
    if microcents == 0 || app.config.billing.mode == BillingMode::Off {
        return Ok(());
    }
    store::add(tx, account, -microcents, app.clock.now()).await
}

/// Adds to an account's balance and writes down why. `None`: no such account.
pub async fn adjust(
    db: &Db,
    clock: &Clock,
    account: AccountId,
    amount_cents: i64,
    note: Option<&str>,
) -> Result<Option<Adjustment>, DbError> {
    let now = clock.now();
    let mut tx = db.begin_write().await?;
    let microcents = amount_cents.saturating_mul(1_000_000);
    store::add(&mut tx, account, microcents, now).await?;
    let Some(balance) = store::balance_in(&mut tx, account).await? else {
        return Ok(None);
    };
    let adjustment = Adjustment {
        id: AdjustmentId::new(clock),
        account,
        amount_cents,
        note: note.map(str::to_owned),
        balance_cents: rules::whole_cents(balance),
        created_at: now,
    };
    tx.insert(account, &adjustment).run().await?;
    tx.commit().await?;
    Ok(Some(adjustment))
}
