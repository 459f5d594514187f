//! Bodies of the billing routes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::http::Wire;
use crate::http::validate::{Field, Kind, Schema, Unknown};
use crate::ids::{AccountId, AdjustmentId};
use crate::time::Timestamp;

/// Whether the account may spend.
#[derive(Debug, Serialize, JsonSchema)]
pub struct BillingStatus {
    /// Whether this server counts prepaid credit.
    pub enabled: bool,
    /// Whether the account may not spend: it is out of credit, or the operator blocked it.
    pub hard_blocked: bool,
    /// The credit that is left, in cents, rounded down.
    pub balance_cents: i64,
}

/// `POST /billing/adjustments`.
#[derive(Debug, Deserialize)]
pub struct CreateAdjustment {
    pub account_id: AccountId,
    pub amount_cents: i64,
    pub note: Option<String>,
}

impl Wire for CreateAdjustment {
    const SCHEMA: &'static Schema = &Schema {
        name: "CreateAdjustment",
        unknown: Unknown::Refuse,
        fields: &[
            Field::req("account_id", Kind::Uuid, "The account whose balance it is."),
            Field::req(
                "amount_cents",
                // A hundred million dollars at once is a slip of the keyboard.
                Kind::Int {
                    min: -10_000_000_000,
                    max: 10_000_000_000,
                },
                "How much is added to the balance, in cents; a negative amount takes away.",
            ),
            Field::opt(
                "note",
                Kind::Str { min: 0, max: 500 },
                "Why, for the operator.",
            )
            .nullable(),
        ],
    };
}

/// An adjustment as it is answered.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Adjustment")]
pub struct AdjustmentRecord {
    pub id: AdjustmentId,
    pub account_id: AccountId,
    pub amount_cents: i64,
    pub note: Option<String>,
    /// The balance that follows, in cents.
    pub balance_cents: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}
