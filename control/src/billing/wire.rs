//! Bodies of the billing routes.

use schemars::JsonSchema;
use serde::Serialize;

use crate::http::validate::Kind;
use crate::http::wire::body;
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

/// A hundred million dollars at once is a slip of the keyboard.
const AMOUNT: Kind = Kind::int(-10_000_000_000, 10_000_000_000);

body! {
    /// `POST /billing/adjustments`.
    #[derive(Debug)]
    pub struct CreateAdjustment = "CreateAdjustment";
    required account_id: AccountId, "The account whose balance it is.";
    required amount_cents: i64 = AMOUNT, "How much is added to the balance, in cents; a negative amount takes away.";
    nullable note: String = Kind::Str { min: 0, max: 500 }, "Why, for the operator.";
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
