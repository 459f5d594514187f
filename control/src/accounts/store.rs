//! Rows of accounts.

use crate::db::{Db, DbError, Row};
use crate::ids::AccountId;
use crate::time::{Clock, Timestamp};

/// A tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    pub id: AccountId,
    pub name: String,
    /// Millionths of a cent.
    pub balance_microcents: i64,
    /// When the operator blocked it.
    pub blocked_at: Option<Timestamp>,
    pub block_reason: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A new account; `None` when the name is taken.
pub async fn create(db: &Db, clock: &Clock, name: &str) -> Result<Option<Account>, DbError> {
    let now = clock.now();
    let account = Account {
        id: AccountId::new(clock),
        name: name.to_owned(),
        balance_microcents: 0,
        blocked_at: None,
        block_reason: None,
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

/// The account of this id.
pub async fn get(db: &Db, account: AccountId) -> Result<Option<Account>, DbError> {
    db.query("select * from accounts where id = $1")
        .bind(account)
        .optional(read)
        .await
}

/// Blocks an account, or lets it go on (`reason` is then forgotten). What it is already stays, with its
/// time. `false`: no such account.
pub async fn set_blocked(
    db: &Db,
    account: AccountId,
    blocked: bool,
    reason: Option<&str>,
    now: Timestamp,
) -> Result<bool, DbError> {
    let query = if blocked {
        db.query(
            "update accounts set blocked_at = coalesce(blocked_at, $2),
                block_reason = coalesce($3, block_reason), updated_at = $2 where id = $1",
        )
        .bind(account)
        .bind(now)
        .bind(reason)
    } else {
        db.query(
            "update accounts set blocked_at = null, block_reason = null, updated_at = $2 where id = $1",
        )
        .bind(account)
        .bind(now)
    };
    Ok(query.execute().await? == 1)
}

/// Renames an account; `None` when another has the name.
pub async fn rename(
    db: &Db,
    account: AccountId,
    name: &str,
    now: Timestamp,
) -> Result<Option<bool>, DbError> {
    let renamed = db
        .query("update accounts set name = $2, updated_at = $3 where id = $1")
        .bind(account)
        .bind(name)
        .bind(now)
        .execute()
        .await;
    match renamed {
        Ok(rows) => Ok(Some(rows == 1)),
        Err(error) if error.is_unique_violation() => Ok(None),
        Err(error) => Err(error),
    }
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
        balance_microcents: row.i64("balance_microcents")?,
        blocked_at: row.opt_time("blocked_at")?,
        block_reason: row.opt_text("block_reason")?,
        created_at: row.time("created_at")?,
        updated_at: row.time("updated_at")?,
    })
}
