//! Accounts: the tenants. Everything else belongs to one. They are made by the administrator (the
//! command line, or the admin route), and `default` by the first start.

pub mod http;
pub mod store;
pub mod wire;

pub use store::{Account, create, ensure, find_by_name, list, set_blocked};

use crate::api_keys::{self, store::ApiKey};
use crate::db::{Db, DbError};
use crate::http::scope::Scopes;
use crate::secret::Secret;
use crate::time::Clock;

/// What the first start made, to be told once.
#[derive(Debug)]
pub struct Bootstrap {
    pub account: Account,
    /// A new key, unless the account had one or the operator brought one.
    pub new_key: Option<Secret<String>>,
}

/// Makes sure of the account `default` and of a key that opens it: the operator's (if given), else a
/// new one when the account has none.
pub async fn bootstrap(
    db: &Db,
    clock: &Clock,
    given: Option<&Secret<String>>,
) -> Result<Bootstrap, DbError> {
    let id = ensure(db, clock, "default").await?;
    let account = find_by_name(db, "default").await?.ok_or(DbError::NoRow)?;
    let new_key = match given {
        Some(key) => {
            api_keys::adopt(db, clock, id, "bootstrap", key).await?;
            None
        }
        None if db.of::<ApiKey>(id).count().await? > 0 => None,
        // The operator of the installation gets everything.
        None => Some(
            api_keys::create(db, clock, id, "first key", Scopes::all(), None)
                .await?
                .key,
        ),
    };
    Ok(Bootstrap { account, new_key })
}
