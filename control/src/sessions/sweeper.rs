//! Housekeeping of one process: sessions that nobody joined.

use std::time::Duration;

use super::store;
use crate::calls::ending::{self, Also};
use crate::calls::rules::Ending;
use crate::db::DbError;
use crate::node::Node;
use crate::time::Timestamp;

/// How often the sweeper looks: an expired session is unusable at once, only its record is late.
const EVERY: Duration = Duration::from_secs(2);
/// Sessions that one look ends: a bound on one pass, not on the work.
const BATCH: u32 = 200;

/// Sweeps until the process ends.
pub async fn run(app: Node) {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let now = app.clock.shared();
        if let Err(error) = sweep(&app, now).await {
            tracing::warn!(%error, "sessions that expired could not be swept");
        }
    }
}

/// Ends every session that nobody joined by `now`: call `canceled`, conversation `abandoned`, no
/// event, its slot freed. How many there were.
pub async fn sweep(app: &Node, now: Timestamp) -> Result<usize, DbError> {
    let expired = store::expired(&app.db, now, BATCH).await?;
    for (account, id) in &expired {
        let also = Also {
            event: false,
            recording: false,
        };
        if ending::end(app, *account, *id, 0, &Ending::session_expired(), also).await? {
            app.admission.release(*id, &app.incarnation.owner);
        }
    }
    Ok(expired.len())
}
