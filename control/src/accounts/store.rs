//! Rows of accounts.

use crate::db::{Db, DbError, Row};
use crate::ids::AccountId;
use crate::time::{Clock, Timestamp};

/// A tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    pub id: AccountId,
    pub name: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A new account; `None` when the name is taken.
pub async fn create(db: &Db, clock: &Clock, name: &str) -> Result<Option<Account>, DbError> {
    let now = clock.now();
    let account = Account {
        id: AccountId::new(clock),
        name: name.to_owned(),
        created_at: now,
        updated_at: now,
    };
    let rows = db
        .query(
            "insert into accounts (id, name, created_at, updated_at) values ($1, $2, $3, $4)
             on conflict (name) do nothing",
        )
        .bind(account.id)
        .bind(&account.name)
        .bind(now)
        .bind(now)
        .execute()
        .await?;
    Ok((rows == 1).then_some(account))
}

/// The account of this name, made if there is none.
pub async fn ensure(db: &Db, clock: &Clock, name: &str) -> Result<AccountId, DbError> {
    if let Some(account) = create(db, clock, name).await? {
        return Ok(account.id);
    }
    Ok(find_by_name(db, name).await?.ok_or(DbError::NoRow)?.id)
}

pub async fn find_by_name(db: &Db, name: &str) -> Result<Option<Account>, DbError> {
    db.query("select * from accounts where name = $1")
        .bind(name)
        .optional(read)
        .await
}

/// A page of all accounts, oldest first, and how many there are.
pub async fn list(db: &Db, limit: u32, offset: u32) -> Result<(Vec<Account>, u64), DbError> {
    let total = db
        .query("select count(*) as total from accounts")
        .one(|row| row.i64("total"))
        .await?;
    let accounts = db
        .query("select * from accounts order by created_at, id limit $1 offset $2")
        .bind(limit)
        .bind(offset)
        .all(read)
        .await?;
    Ok((accounts, total.unsigned_abs()))
}

fn read(row: &Row) -> Result<Account, DbError> {
    Ok(Account {
        id: row.parse("id")?,
        name: row.text("name")?,
        created_at: row.time("created_at")?,
        updated_at: row.time("updated_at")?,
    })
}
