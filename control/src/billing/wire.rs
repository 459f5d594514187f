//! Bodies of the billing routes.

use schemars::JsonSchema;
use serde::Serialize;

use super::store::Adjustment;
use crate::http::validate::Kind;
use crate::http::wire::{answer, body};
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

answer! {
    /// An adjustment as it is answered.
    #[derive(Debug)]
    pub struct AdjustmentRecord = "Adjustment" of Adjustment uses(account) {
        id: AdjustmentId,
        account_id: AccountId = account,
        amount_cents: i64,
        note: Option<String>,
        /// The balance that follows, in cents.
        balance_cents: i64,
        created_at: Timestamp,
        updated_at: Timestamp = created_at,
    }
}
