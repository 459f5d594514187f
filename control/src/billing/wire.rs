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
    /// Whether balances count here.
    pub enabled: bool,
    pub hard_blocked: bool,
    /// Rounded down.
    pub balance_cents: i64,
}

/// A hundred million dollars at once is a slip of the keyboard.
const AMOUNT: Kind = Kind::int(-10_000_000_000, 10_000_000_000);

body! {
    /// `POST /billing/adjustments`.
    #[derive(Debug)]
    pub struct CreateAdjustment = "CreateAdjustment";
    required account_id: AccountId, "Whose balance";
    required amount_cents: i64 = AMOUNT, "Added to the balance; negative takes away";
    nullable note: String = Kind::Str { min: 0, max: 500 }, "Why";
}

/// An adjustment as it is answered.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Adjustment")]
pub struct AdjustmentRecord {
    pub id: AdjustmentId,
    pub account_id: AccountId,
    pub amount_cents: i64,
    pub note: Option<String>,
    /// After it.
    pub balance_cents: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}
