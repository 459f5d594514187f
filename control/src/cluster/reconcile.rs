//! Puts right what a death left: calls of dead nodes end, leases without a call are freed.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use super::{rules, store};
use crate::admission::{Health, Held};
use crate::calls;
use crate::db::DbError;
use crate::node::Node;

/// How often.
const EVERY: Duration = Duration::from_secs(5);
/// How long a dead node's row is kept for people to see.
const REMEMBERED: Duration = Duration::from_secs(3600);

/// Reconciles until the process ends.
pub async fn run(app: Node) {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(error) = once(&app).await {
            tracing::warn!(%error, "calls and leases could not be reconciled");
        }
    }
}

/// All of it once.
pub async fn once(app: &Node) -> Result<(), DbError> {
    end_calls(app).await?;
    mend_leases(app).await?;
    store::forget(&app.db, app.clock.shared().minus(REMEMBERED)).await
}

/// Ends calls whose node is dead. How many there were.
pub async fn end_calls(app: &Node) -> Result<usize, DbError> {
    if app.is_recovering() {
        return Ok(0);
    }
    let _one = app.burying.lock().await;
    let orphans = calls::store::without_node(&app.db).await?;
    let count = orphans.len();
    for call in &orphans {
        calls::recover::lost(app, call).await?;
    }
    if count > 0 {
        tracing::warn!(count, "calls of dead nodes were ended as node_lost");
    }
    Ok(count)
}

/// Frees leases without a call, and renews those of calls whose host does not. How many were freed.
pub async fn mend_leases(app: &Node) -> Result<usize, DbError> {
    if app.admission.health() != Health::Ready {
        return Ok(0);
    }
    let Ok(held) = app.admission.list().await else {
        return Ok(0);
    };
    vouch(app, &rules::unrenewed(&held, &app.incarnation.owner)).await?;
    let old = rules::old(&held);
    let ids: Vec<_> = old.iter().map(|held| held.lease).collect();
    let open = calls::store::open_among(&app.db, &ids).await?;
    let over = rules::without_call(&old, &open);
    for held in &over {
        app.admission.release(held.lease, &held.owner);
    }
    if !over.is_empty() {
        tracing::warn!(count = over.len(), "leases without a call were freed");
    }
    Ok(over.len())
}

/// Renews leases whose host lives (else its calls were ended a moment ago) but does not reach the lease
/// store: its calls go on, and their slots must not be given to others.
async fn vouch(app: &Node, unrenewed: &[&Held]) -> Result<(), DbError> {
    if unrenewed.is_empty() {
        return Ok(());
    }
    let open = calls::store::open(&app.db, app.clock.shared()).await?;
    for (owner, renewal) in rules::vouched(unrenewed, &open) {
        if app.admission.renew(&owner, &[renewal]).await.is_err() {
            return Ok(());
        }
        tracing::warn!(lease = %renewal.lease, owner = %owner.0, "a lease was renewed for its host");
    }
    Ok(())
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
