//! API keys: strings that open an account, as far as their scopes go. A string is shown once, when
//! it is made; the database keeps its hash.

pub mod http;
pub mod rules;
pub mod store;
pub mod wire;

use crate::db::{Db, DbError};
use crate::http::scope::Scopes;
use crate::ids::{AccountId, ApiKeyId};
use crate::secret::Secret;
use crate::time::{Clock, Timestamp};

use rules::{Minted, Presented};
use store::ApiKey;

/// A key that was just made, with its string.
#[derive(Debug)]
pub struct Created {
    pub record: ApiKey,
    pub key: Secret<String>,
}

/// Makes a key.
pub async fn create(
    db: &Db,
    clock: &Clock,
    account: AccountId,
    name: &str,
    scopes: Scopes,
    expires_at: Option<Timestamp>,
) -> Result<Created, DbError> {
    let minted = Minted::new().map_err(|error| DbError::Engine(error.into()))?;
    let record = record(clock, account, name, minted.prefix(), scopes, expires_at);
    store::insert(db, account, &record, minted.public_id(), &minted.hash()).await?;
    Ok(Created {
        record,
        key: minted.into_key(),
    })
}

/// Lets a string that the operator chose open the account, with every scope. Nothing happens when it
/// does already.
pub async fn adopt(
    db: &Db,
    clock: &Clock,
    account: AccountId,
    name: &str,
    key: &Secret<String>,
) -> Result<(), DbError> {
    let wrong = |why: &str| DbError::Column {
        column: "api key".to_owned(),
        why: why.to_owned(),
    };
    let presented =
        Presented::chosen(key.expose()).ok_or_else(|| wrong("not of the form of a key"))?;
    if store::authenticate(db, &presented, clock.now())
        .await?
        .is_some_and(|caller| caller.account == account)
    {
        return Ok(());
    }
    let record = record(
        clock,
        account,
        name,
        presented.prefix(),
        Scopes::all(),
        None,
    );
    store::insert(
        db,
        account,
        &record,
        presented.public_id(),
        &presented.hash(),
    )
    .await
}

fn record(
    clock: &Clock,
    account: AccountId,
    name: &str,
    key_prefix: String,
    scopes: Scopes,
    expires_at: Option<Timestamp>,
) -> ApiKey {
    let now = clock.now();
    ApiKey {
        id: ApiKeyId::new(clock),
        account,
        name: name.to_owned(),
        key_prefix,
        scopes,
        expires_at,
        revoked_at: None,
        created_at: now,
        updated_at: now,
    }
}
