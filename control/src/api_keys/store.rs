//! Rows of keys. The account comes first in every question but the one that finds it.

use crate::db::{self, Db, Record, Tx, args, named, record, text_column};
use crate::http::Caller;
use crate::http::scope::Scopes;
use crate::ids::{AccountId, ApiKeyId};
use crate::secret::same;
use crate::time::Timestamp;
use crate::words::words;

use super::rules::Presented;

record! {
    /// A key without its string.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ApiKey in "api_keys" {
        id: ApiKeyId,
        account: AccountId as "account_id",
        name: String,
        key_prefix: String,
        scopes: Scopes,
        expires_at: Option<Timestamp>,
        revoked_at: Option<Timestamp>,
        created_at: Timestamp,
        updated_at: Timestamp,
    }
}

text_column!(Scopes);

words! {
    /// Whether a key opens anything.
    pub enum Status { Active = "active", Expired = "expired", Revoked = "revoked" }
}

impl Status {
    /// That of a key that was revoked or ends then.
    pub fn at(now: Timestamp, revoked: Option<Timestamp>, expires: Option<Timestamp>) -> Self {
        match (revoked, expires) {
            (Some(_), _) => Self::Revoked,
            (None, Some(time)) if time <= now => Self::Expired,
            (None, _) => Self::Active,
        }
    }
}

impl ApiKey {
    pub fn status(&self, now: Timestamp) -> Status {
        Status::at(now, self.revoked_at, self.expires_at)
    }
}

/// The caller whose key this is, if it opens anything now. Asks across any account: it is this that
/// finds out which.
pub async fn authenticate(
    db: &Db,
    presented: &Presented,
    now: Timestamp,
) -> db::Result<Option<Caller>> {
    let found = db
        .query(
            "select k.*, s.hash, s.valid_until from api_key_secrets s join api_keys k on k.id = s.key_id
             where s.public_id = $1",
        )
        .bind(presented.public_id())
        .optional(|row| Ok((ApiKey::read(row)?, row.blob("hash")?, row.opt_time("valid_until")?)))
        .await?;
    // Without a row the comparison is made all the same, so the time tells nothing.
    let (key, hash, valid_until) = match found {
        Some((key, hash, valid_until)) => (Some(key), hash, valid_until),
        None => (None, vec![0; 32], None),
    };
    let matches = same(&hash, &presented.hash());
    Ok(key
        .filter(|key| {
            matches
                && key.status(now) == Status::Active
                && valid_until.is_none_or(|until| now < until)
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
) -> db::Result<Option<(ApiKey, Option<Timestamp>)>> {
    db.query(
        "select k.*, s.valid_until from api_key_secrets s join api_keys k on k.id = s.key_id
         where s.public_id = $1",
    )
    .bind(public_id)
    .optional(|row| Ok((ApiKey::read(row)?, row.opt_time("valid_until")?)))
    .await
}

/// A new key with its string.
pub async fn insert(
    db: &Db,
    account: AccountId,
    key: &ApiKey,
    string: &Presented,
) -> db::Result<()> {
    let mut tx = db.begin_write().await?;
    tx.insert(account, key).run().await?;
    add_string(&mut tx, key, string).await?;
    tx.commit().await
}

async fn add_string(tx: &mut Tx, key: &ApiKey, string: &Presented) -> db::Result<()> {
    let row = named! { public_id: string.public_id(), key_id: key.id, hash: string.hash() };
    tx.insert_into("api_key_secrets", row).run().await.map(drop)
}

/// Ends a key; the first time counts. False: there is none.
pub async fn revoke(
    tx: &mut Tx,
    account: AccountId,
    id: ApiKeyId,
    now: Timestamp,
) -> db::Result<bool> {
    let rows = tx
        .query(
            "update api_keys set revoked_at = coalesce(revoked_at, $3), updated_at = $3
             where account_id = $1 and id = $2",
        )
        .bind_all(args![account, id, now])
        .execute()
        .await?;
    Ok(rows == 1)
}

/// A new string for a key that is held; older ones end at `old_until` at the latest. They stay known, so that
/// the operator's is not adopted anew.
pub async fn rotate(
    tx: &mut Tx,
    account: AccountId,
    key: &ApiKey,
    string: &Presented,
    old_until: Timestamp,
) -> db::Result<()> {
    tx.update(account, key).await?;
    tx.query(
        "update api_key_secrets set valid_until = $2
         where key_id = $1 and (valid_until is null or valid_until > $2)",
    )
    .bind_all(args![key.id, old_until])
    .execute()
    .await?;
    add_string(tx, key, string).await
}
