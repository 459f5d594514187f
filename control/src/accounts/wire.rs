//! Bodies of the account routes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::store::Account;
use crate::billing::rules::Standing;
use crate::config::BillingMode;
use crate::http::Wire;
use crate::http::scope::Scope;
use crate::http::validate::{Field, Kind, Schema, Unknown};
use crate::ids::AccountId;
use crate::time::Timestamp;

const NAME: Kind = Kind::Str { min: 1, max: 100 };

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
            NAME,
            "What it is called. No two accounts have one name.",
        )],
    };
}

/// `PATCH /admin/accounts/{id}`.
#[derive(Debug, Deserialize)]
pub struct PatchAccount {
    pub name: Option<String>,
}

impl Wire for PatchAccount {
    const SCHEMA: &'static Schema = &Schema {
        name: "UpdateAccount",
        unknown: Unknown::Refuse,
        fields: &[Field::opt(
            "name",
            NAME,
            "What it is called. No two accounts have one name.",
        )],
    };
}

/// `POST /admin/accounts/{id}/block`.
#[derive(Debug, Deserialize)]
pub struct BlockAccount {
    pub reason: Option<String>,
}

impl Wire for BlockAccount {
    const SCHEMA: &'static Schema = &Schema {
        name: "BlockAccount",
        unknown: Unknown::Refuse,
        fields: &[Field::opt(
            "reason",
            Kind::Str { min: 0, max: 500 },
            "Why, for the operator.",
        )
        .nullable()],
    };
}

/// `POST /admin/accounts/{id}/api-keys`.
#[derive(Debug, Deserialize)]
pub struct CreateAccountKey {
    pub name: String,
    pub scopes: Option<Vec<Scope>>,
}

impl Wire for CreateAccountKey {
    const SCHEMA: &'static Schema = &Schema {
        name: "CreateAccountKey",
        unknown: Unknown::Refuse,
        fields: &[
            Field::req("name", NAME, "What the key is for."),
            Field::opt(
                "scopes",
                Kind::List {
                    item: &Kind::Enum(Scope::NAMES),
                    min: 1,
                    max: 64,
                },
                "What it may do; unset: the default bundle.",
            )
            .nullable(),
        ],
    };
}

/// An account as it is answered.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Account")]
pub struct AccountOut {
    pub id: AccountId,
    pub name: String,
    /// Whether it may not spend: blocked by the operator, or out of prepaid credit.
    pub hard_blocked: bool,
    /// When the operator blocked it.
    pub blocked_at: Option<Timestamp>,
    /// Why the operator blocked it, in the operator's words.
    pub block_reason: Option<String>,
    /// The credit that is left, in cents, rounded down.
    pub balance_cents: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl AccountOut {
    pub fn new(account: Account, mode: BillingMode) -> Self {
        let Account {
            id,
            name,
            balance_microcents,
            blocked_at,
            block_reason,
            created_at,
            updated_at,
        } = account;
        let standing = Standing {
            prepaid: mode == BillingMode::Prepaid,
            blocked: blocked_at.is_some(),
            balance_microcents,
        };
        Self {
            id,
            name,
            hard_blocked: standing.is_hard_blocked(),
            blocked_at,
            block_reason,
            balance_cents: standing.balance_cents(),
            created_at,
            updated_at,
        }
    }
}
