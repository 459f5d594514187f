//! The `idempotency_keys` table.

use super::{Key, REMEMBERED};
use crate::db::{Db, DbError, Tx};
use crate::ids::AccountId;
use crate::time::Timestamp;

/// A request that was here before.
pub struct Known {
    pub fingerprint: String,
    /// The id of what it made.
    pub resource: String,
}

/// The request of this key, if it came after `since`.
pub async fn find(
    db: &Db,
    account: AccountId,
    key_hash: &str,
    since: Timestamp,
) -> Result<Option<Known>, DbError> {
    db.query(
        "select fingerprint, resource_id from idempotency_keys
         where account_id = $1 and key_hash = $2 and created_at > $3",
    )
    .bind(account)
    .bind(key_hash)
    .bind(since)
    .optional(|row| {
        Ok(Known {
            fingerprint: row.text("fingerprint")?,
            resource: row.text("resource_id")?,
        })
    })
    .await
}

/// Writes down what a request makes in this transaction, and forgets the account's requests of more than
/// a day ago. `false`: another request of this key was first, and nothing may be made.
pub async fn keep(
    tx: &mut Tx,
    account: AccountId,
    key: &Key,
    resource: &str,
    now: Timestamp,
) -> Result<bool, DbError> {
    tx.query("delete from idempotency_keys where account_id = $1 and created_at <= $2")
        .bind(account)
        .bind(now.minus(REMEMBERED))
        .execute()
        .await?;
    let rows = tx
        .query(
            "insert into idempotency_keys (account_id, key_hash, fingerprint, resource_id, created_at)
             values ($1, $2, $3, $4, $5) on conflict (account_id, key_hash) do nothing",
        )
        .bind(account)
        .bind(key.hash.as_str())
        .bind(key.fingerprint.as_str())
        .bind(resource)
        .bind(now)
        .execute()
        .await?;
    Ok(rows == 1)
}
