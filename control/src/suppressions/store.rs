//! The `suppressions` table.

use super::rules::Source;
use crate::db::{Db, DbError, Row};
use crate::ids::{AccountId, SuppressionId};
use crate::time::{Clock, Timestamp};

/// One reason not to call a number. It has no `Debug`: it holds a phone number.
#[derive(Clone)]
pub struct Suppression {
    pub id: SuppressionId,
    pub phone_number: String,
    pub source: Source,
    pub reason: Option<String>,
    pub released_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// Puts a number on the list. `None`: it is on it for this reason already.
pub async fn suppress(
    db: &Db,
    clock: &Clock,
    account: AccountId,
    phone_number: &str,
    source: Source,
    reason: Option<&str>,
) -> Result<Option<Suppression>, DbError> {
    let now = clock.now();
    let entry = Suppression {
        id: SuppressionId::new(clock),
        phone_number: phone_number.to_owned(),
        source,
        reason: reason.map(str::to_owned),
        released_at: None,
        created_at: now,
        updated_at: now,
    };
    let rows = db
        .query(
            "insert into suppressions (id, account_id, phone_number, source, reason, status, created_at, updated_at)
             values ($1, $2, $3, $4, $5, 'active', $6, $6)
             on conflict (account_id, phone_number, source) where status = 'active' do nothing",
        )
        .bind(entry.id)
        .bind(account)
        .bind(phone_number)
        .bind(source.name())
        .bind(reason)
        .bind(now)
        .execute()
        .await?;
    Ok((rows == 1).then_some(entry))
}

/// The entry of this id.
pub async fn get(
    db: &Db,
    account: AccountId,
    id: SuppressionId,
) -> Result<Option<Suppression>, DbError> {
    db.query("select * from suppressions where account_id = $1 and id = $2")
        .bind(account)
        .bind(id)
        .optional(read)
        .await
}

/// The entries that stand against calling this number, in either spelling.
pub async fn active(
    db: &Db,
    account: AccountId,
    phone_number: &str,
    or: Option<&str>,
) -> Result<Vec<Suppression>, DbError> {
    db.query(
        "select * from suppressions where account_id = $1 and phone_number in ($2, $3)
            and status = 'active'",
    )
    .bind(account)
    .bind(phone_number)
    .bind(or.unwrap_or(phone_number))
    .all(read)
    .await
}

/// A page of entries, newest first, and how many there are.
pub async fn list(
    db: &Db,
    account: AccountId,
    phone_number: Option<&str>,
    status: Option<&str>,
    (limit, offset): (u32, u32),
) -> Result<(Vec<Suppression>, u64), DbError> {
    const WHERE: &str = "account_id = $1 and ($2 is null or phone_number = $2)
        and ($3 is null or status = $3)";
    let total = db
        .query_built(format!(
            "select count(*) as total from suppressions where {WHERE}"
        ))
        .bind(account)
        .bind(phone_number)
        .bind(status)
        .one(|row| row.i64("total"))
        .await?;
    let entries = db
        .query_built(format!(
            "select * from suppressions where {WHERE}
             order by created_at desc, id desc limit $4 offset $5"
        ))
        .bind(account)
        .bind(phone_number)
        .bind(status)
        .bind(limit)
        .bind(offset)
        .all(read)
        .await?;
    Ok((entries, total.unsigned_abs()))
}

/// Takes an entry off the list, once.
pub async fn release(
    db: &Db,
    account: AccountId,
    id: SuppressionId,
    now: Timestamp,
) -> Result<(), DbError> {
    db.query(
        "update suppressions set status = 'released', released_at = $3, updated_at = $3
         where account_id = $1 and id = $2 and status = 'active'",
    )
    .bind(account)
    .bind(id)
    .bind(now)
    .execute()
    .await?;
    Ok(())
}

fn read(row: &Row) -> Result<Suppression, DbError> {
    Ok(Suppression {
        id: row.parse("id")?,
        phone_number: row.text("phone_number")?,
        source: row.parse("source")?,
        reason: row.opt_text("reason")?,
        released_at: row.opt_time("released_at")?,
        created_at: row.time("created_at")?,
        updated_at: row.time("updated_at")?,
    })
}
