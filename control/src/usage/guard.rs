//! Ends calls of accounts that may not go on: the operator blocked them, or what their live calls have
//! cost so far uses up the balance. The caller's socket gets `billing_blocked` and 1013; what rings or is
//! forwarded is let go.

use std::time::Duration;

use media::call::input::EndRequest;

use super::Resource;
use crate::billing::rules::Standing;
use crate::billing::store;
use crate::config::BillingMode;
use crate::db::DbError;
use crate::node::Node;

/// How often balances are held against live calls: the most that a call can go on without credit.
const EVERY: Duration = Duration::from_secs(5);

/// Runs until the process ends.
pub async fn run(app: Node) {
    let mut tick = tokio::time::interval(EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        if app.live.is_empty() && app.live.count_dialling() == 0 {
            continue;
        }
        if let Err(error) = sweep(&app).await {
            tracing::warn!(%error, "live calls could not be held against balances");
        }
    }
}

/// Ends this node's calls of every account that may not go on; how many.
pub async fn sweep(app: &Node) -> Result<usize, DbError> {
    let mut ended = 0;
    let own = app.incarnation.number;
    for talking in store::talking(&app.db, own, app.clock.shared()).await? {
        // Of its own calls this process knows it better than two readings of a wall clock tell.
        let here = app.live.talked(talking.account, app.clock.moment());
        let here = i64::try_from(here.as_millis()).unwrap_or(i64::MAX);
        let talked_ms = talking.elsewhere_ms.saturating_add(here);
        let so_far = Resource::CallMinutes.cost(talked_ms, &app.config.billing.prices);
        let standing = Standing {
            prepaid: app.config.billing.mode == BillingMode::Prepaid,
            blocked: talking.blocked,
            balance_microcents: talking.balance_microcents.saturating_sub(so_far),
        };
        if !standing.is_hard_blocked() {
            continue;
        }
        for call in app.live.of_account(talking.account) {
            call.handle.end(EndRequest::Blocked);
            ended += 1;
        }
        ended += app.live.cancel_account(talking.account);
    }
    Ok(ended)
}
