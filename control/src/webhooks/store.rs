//! The `webhook_secrets` table.

use crate::db::{Db, DbError};
use crate::ids::AccountId;
use crate::time::Timestamp;

/// The account's secret as it is stored, encrypted.
pub async fn sealed(db: &Db, account: AccountId) -> Result<Option<String>, DbError> {
    db.query("select sealed from webhook_secrets where account_id = $1")
        .bind(account)
        .optional(|row| row.text("sealed"))
        .await
}

/// Gives the account its first secret; one that it has stays.
pub async fn create(
    db: &Db,
    account: AccountId,
    sealed: &str,
    now: Timestamp,
) -> Result<(), DbError> {
    db.query(
        "insert into webhook_secrets (account_id, sealed, rotated_at) values ($1, $2, $3)
         on conflict (account_id) do nothing",
    )
    .bind(account)
    .bind(sealed)
    .bind(now)
    .execute()
    .await?;
    Ok(())
}

/// Gives the account a new secret; the old one is gone at once.
pub async fn replace(
    db: &Db,
    account: AccountId,
    sealed: &str,
    now: Timestamp,
) -> Result<(), DbError> {
    db.query(
        "insert into webhook_secrets (account_id, sealed, rotated_at) values ($1, $2, $3)
         on conflict (account_id) do update set sealed = $2, rotated_at = $3",
    )
    .bind(account)
    .bind(sealed)
    .bind(now)
    .execute()
    .await?;
    Ok(())
}
