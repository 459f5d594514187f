//! Rows of keys. The account comes first in every question but the one that finds it.

use crate::db::{Db, DbError, Row, Tx};
use crate::http::Caller;
use crate::http::scope::Scopes;
use crate::ids::{AccountId, ApiKeyId};
use crate::secret::same;
use crate::time::Timestamp;

use super::rules::Presented;

/// A key without its string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKey {
    pub id: ApiKeyId,
    pub account: AccountId,
    pub name: String,
    pub key_prefix: String,
    pub scopes: Scopes,
    pub expires_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl ApiKey {
    /// `active`, `expired` or `revoked`.
    pub fn status(&self, now: Timestamp) -> &'static str {
        if self.revoked_at.is_some() {
            "revoked"
        } else if self.expires_at.is_some_and(|time| time <= now) {
            "expired"
        } else {
            "active"
        }
    }
}

/// The caller whose key this is, if it opens anything now. Asks across any account: it is this that
/// finds out which.
pub async fn authenticate(
    db: &Db,
    presented: &Presented,
    now: Timestamp,
) -> Result<Option<Caller>, DbError> {
    let found = db
        .query(
            "select k.*, s.hash, s.valid_until from api_key_secrets s join api_keys k on k.id = s.key_id
             where s.public_id = $1",
        )
        .bind(presented.public_id())
        .optional(|row| Ok((read(row)?, row.blob("hash")?, row.opt_time("valid_until")?)))
        .await?;
    // Without a row the comparison is made all the same, so the time tells nothing.
    let (key, hash, valid_until) = match found {
        Some((key, hash, valid_until)) => (Some(key), hash, valid_until),
        None => (None, vec![0; 32], None),
    };
    let matches = same(&hash, &presented.hash());
    Ok(key
        .filter(|key| {
            matches && key.status(now) == "active" && valid_until.is_none_or(|until| now < until)
        })
        .map(|key| Caller {
            account: key.account,
            key: key.id,
            scopes: key.scopes,
            token: None,
        }))
}

/// The key that a string was ever for, whether it opens anything or not, and until when the string holds.
/// Across any account.
pub async fn of_string(
    db: &Db,
    public_id: &str,
) -> Result<Option<(ApiKey, Option<Timestamp>)>, DbError> {
    db.query(
        "select k.*, s.valid_until from api_key_secrets s join api_keys k on k.id = s.key_id
         where s.public_id = $1",
    )
    .bind(public_id)
    .optional(|row| Ok((read(row)?, row.opt_time("valid_until")?)))
    .await
}

/// Whether the account has a key at all.
pub async fn any(db: &Db, account: AccountId) -> Result<bool, DbError> {
    let count = db
        .query("select count(*) as total from api_keys where account_id = $1")
        .bind(account)
        .one(|row| row.i64("total"))
        .await?;
    Ok(count > 0)
}

/// A new key with its string.
pub async fn insert(
    db: &Db,
    account: AccountId,
    key: &ApiKey,
    public_id: &str,
    hash: &[u8; 32],
) -> Result<(), DbError> {
    let mut tx = db.begin_write().await?;
    tx.query(
        "insert into api_keys (id, account_id, name, key_prefix, scopes, expires_at, revoked_at, created_at, updated_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
    )
    .bind(key.id)
    .bind(account)
    .bind(&key.name)
    .bind(&key.key_prefix)
    .bind(key.scopes.to_string())
    .bind(key.expires_at)
    .bind(key.revoked_at)
    .bind(key.created_at)
    .bind(key.updated_at)
    .execute()
    .await?;
    tx.query("insert into api_key_secrets (public_id, key_id, hash) values ($1, $2, $3)")
        .bind(public_id)
        .bind(key.id)
        .bind(*hash)
        .execute()
        .await?;
    tx.commit().await
}

pub async fn find(db: &Db, account: AccountId, id: ApiKeyId) -> Result<Option<ApiKey>, DbError> {
    db.query("select * from api_keys where account_id = $1 and id = $2")
        .bind(account)
        .bind(id)
        .optional(read)
        .await
}

/// A page of the account's keys, newest first, and how many there are.
pub async fn list(
    db: &Db,
    account: AccountId,
    limit: u32,
    offset: u32,
) -> Result<(Vec<ApiKey>, u64), DbError> {
    let total = db
        .query("select count(*) as total from api_keys where account_id = $1")
        .bind(account)
        .one(|row| row.i64("total"))
        .await?;
    let keys = db
        .query("select * from api_keys where account_id = $1 order by created_at desc, id desc limit $2 offset $3")
        .bind(account)
        .bind(limit)
        .bind(offset)
        .all(read)
        .await?;
    Ok((keys, total.unsigned_abs()))
}

/// The key, which nobody else changes before the transaction ends.
pub async fn hold(
    tx: &mut Tx,
    account: AccountId,
    id: ApiKeyId,
) -> Result<Option<ApiKey>, DbError> {
    let lock = tx.engine().for_update();
    tx.query_built(format!(
        "select * from api_keys where account_id = $1 and id = $2{lock}"
    ))
    .bind(account)
    .bind(id)
    .optional(read)
    .await
}

/// Name, scopes and expiry of a key that is [held](hold).
pub async fn update(tx: &mut Tx, account: AccountId, key: &ApiKey) -> Result<(), DbError> {
    tx.query(
        "update api_keys set name = $3, scopes = $4, expires_at = $5, updated_at = $6
         where account_id = $1 and id = $2",
    )
    .bind(account)
    .bind(key.id)
    .bind(&key.name)
    .bind(key.scopes.to_string())
    .bind(key.expires_at)
    .bind(key.updated_at)
    .execute()
    .await
    .map(drop)
}

/// Ends a key; the first time counts. False: there is none.
pub async fn revoke(
    tx: &mut Tx,
    account: AccountId,
    id: ApiKeyId,
    now: Timestamp,
) -> Result<bool, DbError> {
    let rows = tx
        .query(
            "update api_keys set revoked_at = coalesce(revoked_at, $3), updated_at = $3
             where account_id = $1 and id = $2",
        )
        .bind(account)
        .bind(id)
        .bind(now)
        .execute()
        .await?;
    Ok(rows == 1)
}

/// A new string for a key that is [held](hold); older ones end at `old_until` at the latest. They stay
/// known, so that the operator's is not adopted anew.
pub async fn rotate(
    tx: &mut Tx,
    account: AccountId,
    key: &ApiKey,
    public_id: &str,
    hash: &[u8; 32],
    old_until: Timestamp,
) -> Result<(), DbError> {
    tx.query(
        "update api_keys set key_prefix = $3, updated_at = $4 where account_id = $1 and id = $2",
    )
    .bind(account)
    .bind(key.id)
    .bind(&key.key_prefix)
    .bind(key.updated_at)
    .execute()
    .await?;
    tx.query(
        "update api_key_secrets set valid_until = $2
         where key_id = $1 and (valid_until is null or valid_until > $2)",
    )
    .bind(key.id)
    .bind(old_until)
    .execute()
    .await?;
    tx.query("insert into api_key_secrets (public_id, key_id, hash) values ($1, $2, $3)")
        .bind(public_id)
        .bind(key.id)
        .bind(*hash)
        .execute()
        .await?;
    Ok(())
}

fn read(row: &Row) -> Result<ApiKey, DbError> {
    Ok(ApiKey {
        id: row.parse("id")?,
        account: row.parse("account_id")?,
        name: row.text("name")?,
        key_prefix: row.text("key_prefix")?,
        scopes: row.parse("scopes")?,
        expires_at: row.opt_time("expires_at")?,
        revoked_at: row.opt_time("revoked_at")?,
        created_at: row.time("created_at")?,
        updated_at: row.time("updated_at")?,
    })
}
