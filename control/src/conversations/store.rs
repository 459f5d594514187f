//! What a conversation keeps beside its call: feedback, and what went wrong.

use crate::calls::rules::Network;
use crate::db::{Db, DbError};
use crate::ids::{AccountId, CallId};
use crate::time::Timestamp;
use crate::vendors::faults::ProviderFaults;

/// What went wrong in a conversation, and which of the providers' requests can be asked about.
pub struct Faults {
    /// In words, oldest first.
    pub errors: Vec<String>,
    pub of_providers: ProviderFaults,
    pub provider_request_ids: Vec<String>,
    /// How the audio travelled, where the channel measures it.
    pub network: Option<Network>,
}

/// The faults of one conversation of the account.
pub async fn faults(db: &Db, account: AccountId, id: CallId) -> Result<Option<Faults>, DbError> {
    db.query(
        "select errors, provider_faults, provider_request_ids, network from calls where account_id = $1 and id = $2",
    )
    .bind(account)
    .bind(id)
    .optional(|row| {
        Ok(Faults {
            errors: row.json("errors")?,
            of_providers: row.opt_json("provider_faults")?.unwrap_or_default(),
            provider_request_ids: row.json("provider_request_ids")?,
            network: row.opt_json("network")?,
        })
    })
    .await
}

/// Keeps a rating, in place of an earlier one. `false`: the account has no such conversation.
pub async fn rate(
    db: &Db,
    account: AccountId,
    id: CallId,
    rating: i64,
    comment: Option<&str>,
    now: Timestamp,
) -> Result<bool, DbError> {
    let rows = db
        .query(
            "update calls set feedback_rating = $1, feedback_comment = $2, feedback_at = $3, updated_at = $3
             where account_id = $4 and id = $5",
        )
        .bind(rating)
        .bind(comment)
        .bind(now)
        .bind(account)
        .bind(id)
        .execute()
        .await?;
    Ok(rows == 1)
}
