//! Bodies of the webhook routes. The bodies of events are in `bodies.rs`.

use schemars::JsonSchema;
use serde::Serialize;

use crate::time::Timestamp;

/// The answer of `POST /usage/webhook-secret/rotate`.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "WebhookSecret")]
pub struct Rotated {
    /// The secret, `whsec_…`. It is shown here and never again.
    pub secret: String,
    /// When the secret was made.
    pub rotated_at: Timestamp,
}
