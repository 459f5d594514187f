//! Keeps the leases of live calls alive, all of them in one request.

use std::time::Duration;

use tokio::time::sleep;

use crate::admission::RENEW_EVERY;
use crate::node::Node;

/// Pause after a renewal that failed: leases last for three renewals, not for four.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// Renews until the process ends.
pub async fn run(app: Node) {
    loop {
        let pause = if renew(&app).await {
            RENEW_EVERY
        } else {
            TRY_AGAIN
        };
        sleep(pause).await;
    }
}

/// Renews once; whether it was done. A store that does not answer loses nothing: the calls live, and a
/// lease that it forgot is taken up again by a later renewal.
pub async fn renew(app: &Node) -> bool {
    let leases = app.live.renewals();
    if leases.is_empty() {
        return true;
    }
    let renewed = app.admission.renew(&app.incarnation.owner, &leases).await;
    if let Err(refusal) = renewed {
        tracing::warn!(
            reason = refusal.reason.name(),
            count = leases.len(),
            "leases of live calls could not be renewed"
        );
    }
    renewed.is_ok()
}
