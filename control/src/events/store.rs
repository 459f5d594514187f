//! The outbox table.

use super::rules::{self, EventType};
use crate::db::{DbError, Tx};
use crate::ids::{AccountId, AgentId, CallId, EventId};
use crate::time::Timestamp;

/// A new row of the outbox.
pub struct NewEvent {
    pub id: EventId,
    pub r#type: EventType,
    pub agent: AgentId,
    pub call: CallId,
    /// The body as it will be sent, byte for byte.
    pub body: String,
}

/// Adds an event in the transaction that made it true. `has_address`: the agent has a webhook URL
/// now; without one the event is kept as `skipped`.
pub async fn insert(
    tx: &mut Tx,
    account: AccountId,
    event: &NewEvent,
    has_address: bool,
    now: Timestamp,
) -> Result<(), DbError> {
    let due = has_address.then_some(now);
    tx.query(
        "insert into events (id, account_id, type, class, agent_id, call_id, body, status, attempts,
            next_attempt_at, created_at, updated_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8, 0, $9, $10, $10)",
    )
    .bind(event.id)
    .bind(account)
    .bind(event.r#type.name())
    .bind(event.r#type.class())
    .bind(event.agent)
    .bind(event.call)
    .bind(event.body.as_str())
    .bind(rules::first_status(has_address))
    .bind(due)
    .bind(now)
    .execute()
    .await?;
    Ok(())
}
