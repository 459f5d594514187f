//! Keeps the leases of live calls alive, all of them in one request.

use crate::admission::RENEW_EVERY;
use crate::app::App;

/// Renews until the process ends.
pub async fn run(app: App) {
    let mut ticks = tokio::time::interval(RENEW_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        renew(&app).await;
    }
}

/// Renews once. A store that does not answer loses nothing: the calls live, and a lease that it forgot
/// is taken up again by a later renewal.
pub async fn renew(app: &App) {
    let leases = app.live.renewals();
    if leases.is_empty() {
        return;
    }
    if let Err(refusal) = app.admission.renew(&app.incarnation.owner, &leases).await {
        tracing::warn!(
            reason = refusal.reason.name(),
            count = leases.len(),
            "leases of live calls could not be renewed"
        );
    }
}
