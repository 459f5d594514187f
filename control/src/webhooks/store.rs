//! The `webhook_secrets` table.

use crate::db::{self, Db, Insert, named};
use crate::ids::AccountId;
use crate::time::Timestamp;

/// The account's secret as it is stored, encrypted.
pub async fn sealed(db: &Db, account: AccountId) -> db::Result<Option<String>> {
    db.query("select sealed from webhook_secrets where account_id = $1")
        .bind(account)
        .optional(|row| row.text("sealed"))
        .await
}

/// Gives the account its first secret; one that it has stays.
pub async fn create(db: &Db, account: AccountId, sealed: &str, now: Timestamp) -> db::Result<()> {
    let first = secret(db, account, sealed, now);
    let there = "on conflict (account_id) do nothing";
    first.unless(there).run().await.map(drop)
}

/// Gives the account a new secret; the old one is gone at once.
pub async fn replace(db: &Db, account: AccountId, sealed: &str, now: Timestamp) -> db::Result<()> {
    let new = secret(db, account, sealed, now);
    new.or_replace(&["account_id"]).run().await.map(drop)
}

fn secret<'a>(db: &'a Db, account: AccountId, sealed: &str, now: Timestamp) -> Insert<'a> {
    let row = named! { account_id: account, sealed: sealed, rotated_at: now };
    db.insert_into("webhook_secrets", row)
}
