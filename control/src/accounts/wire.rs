//! Bodies of the account routes.

use serde::{Deserialize, Serialize};

use super::store::Account;
use crate::http::Wire;
use crate::http::validate::{Field, Kind, Schema, Unknown};
use crate::ids::AccountId;
use crate::time::Timestamp;

/// `POST /admin/accounts`.
#[derive(Debug, Deserialize)]
pub struct CreateAccount {
    pub name: String,
}

impl Wire for CreateAccount {
    const SCHEMA: &'static Schema = &Schema {
        name: "CreateAccount",
        unknown: Unknown::Refuse,
        fields: &[Field::req(
            "name",
            Kind::Str { min: 1, max: 100 },
            "Unique name",
        )],
    };
}

/// An account as it is answered.
#[derive(Debug, Serialize)]
pub struct AccountOut {
    pub id: AccountId,
    pub name: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl From<Account> for AccountOut {
    fn from(account: Account) -> Self {
        let Account {
            id,
            name,
            created_at,
            updated_at,
        } = account;
        Self {
            id,
            name,
            created_at,
            updated_at,
        }
    }
}
