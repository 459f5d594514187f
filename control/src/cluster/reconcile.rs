//! Puts right what a death left: calls of dead nodes end, leases without a call are freed.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use super::store;
use crate::admission::{Health, Held};
use crate::app::App;
use crate::calls;
use crate::db::DbError;

/// How often.
const EVERY: Duration = Duration::from_secs(5);
/// A lease this young may have no record yet: its request is still writing it, and may wait ten
/// seconds for the database.
const GRACE: Duration = Duration::from_secs(12);
/// How long a dead node's row is kept for people to see.
const REMEMBERED: Duration = Duration::from_secs(3600);

/// Reconciles until the process ends.
pub async fn run(app: App) {
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
pub async fn once(app: &App) -> Result<(), DbError> {
    end_calls(app).await?;
    free_leases(app).await?;
    store::forget(&app.db, app.clock.now().minus(REMEMBERED)).await
}

/// Ends calls whose node is dead. How many there were.
pub async fn end_calls(app: &App) -> Result<usize, DbError> {
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

/// Frees leases whose call is over or was never written. How many there were.
pub async fn free_leases(app: &App) -> Result<usize, DbError> {
    if app.admission.health() != Health::Ready {
        return Ok(0);
    }
    let Ok(held) = app.admission.list().await else {
        return Ok(0);
    };
    let old: Vec<Held> = held.into_iter().filter(|held| held.age >= GRACE).collect();
    let ids: Vec<_> = old.iter().map(|held| held.lease).collect();
    let open = calls::store::open_among(&app.db, &ids).await?;
    let mut freed = 0;
    for held in old.iter().filter(|held| !open.contains(&held.lease)) {
        app.admission.release(held.lease, &held.owner);
        freed += 1;
    }
    if freed > 0 {
        tracing::warn!(freed, "leases without a call were freed");
    }
    Ok(freed)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
