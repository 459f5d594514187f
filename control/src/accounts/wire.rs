//! Bodies of the account routes.

use super::store::Account;
use crate::billing::rules::Standing;
use crate::config::BillingMode;
use crate::http::scope::Scope;
use crate::http::validate::Kind;
use crate::http::wire::{answer, body};
use crate::ids::AccountId;
use crate::time::Timestamp;

const NAME: Kind = Kind::Str { min: 1, max: 100 };
const SCOPES: Kind = Kind::list(&Kind::Enum(Scope::NAMES), 1, 64);

body! {
    /// `POST /admin/accounts`.
    #[derive(Debug)]
    pub struct CreateAccount = "CreateAccount";
    /// `PATCH /admin/accounts/{id}`.
    #[derive(Debug)]
    patch PatchAccount = "UpdateAccount";
    required name: String = NAME, "What it is called. No two accounts have one name.";
}

body! {
    /// `POST /admin/accounts/{id}/block`.
    #[derive(Debug)]
    pub struct BlockAccount = "BlockAccount";
    nullable reason: String = Kind::Str { min: 0, max: 500 }, "Why, for the operator.";
}

body! {
    /// `POST /admin/accounts/{id}/api-keys`.
    #[derive(Debug)]
    pub struct CreateAccountKey = "CreateAccountKey";
    required name: String = NAME, "What the key is for.";
    nullable scopes: Vec<Scope> = SCOPES, "What it may do; unset: the default bundle.";
}

answer! {
    /// An account as it is answered.
    #[derive(Debug)]
    pub struct AccountOut = "Account" of Account (mode: BillingMode) uses(balance_microcents) {
        id: AccountId,
        name: String,
        /// Whether it may not spend: blocked by the operator, or out of prepaid credit.
        hard_blocked: bool = standing(mode, blocked_at, balance_microcents).is_hard_blocked(),
        /// When the operator blocked it.
        blocked_at: Option<Timestamp>,
        /// Why the operator blocked it, in the operator's words.
        block_reason: Option<String>,
        /// The credit that is left, in cents, rounded down.
        balance_cents: i64 = standing(mode, blocked_at, balance_microcents).balance_cents(),
        created_at: Timestamp,
        updated_at: Timestamp,
    }
}

fn standing(mode: BillingMode, blocked: Option<Timestamp>, balance_microcents: i64) -> Standing {
    Standing {
        prepaid: mode == BillingMode::Prepaid,
        blocked: blocked.is_some(),
        balance_microcents,
    }
}
