//! What a conversation keeps beside its call: feedback, and what went wrong.

use crate::calls::rules::Network;
use crate::calls::store::CallRow;
use crate::db::{self, Db, args, named};
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
pub async fn faults(db: &Db, account: AccountId, id: CallId) -> db::Result<Option<Faults>> {
    db.query(
        "select errors, provider_faults, provider_request_ids, network from calls where account_id = $1 and id = $2",
    )
    .bind_all(args![account, id])
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
) -> db::Result<bool> {
    let rated = named! {
        feedback_rating: rating,
        feedback_comment: comment,
        feedback_at: now,
        updated_at: now,
    };
    let call = db.of::<CallRow>(account).whose("id", id);
    Ok(call.set(rated).await? == 1)
}
