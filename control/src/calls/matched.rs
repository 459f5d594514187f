//! What told whose a call is that came in.

use schemars::JsonSchema;
use serde::Serialize;

/// By which rule a call that came in was matched with its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MatchedBy {
    /// What showed whose trunk the call came over: the trunk's password (`digest`), the registration that the carrier
    /// called, an address of this account's trunks alone, or only one that trunks of other accounts have too.
    pub trunk: Proof,
    /// How the number was found: as it is registered (`exact`), in another spelling (`spelling`), or as the only number
    /// of the trunk, where the carrier called the user that is registered and told none (`only_number`).
    pub number: Spelling,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Proof {
    Digest,
    Registration,
    Address,
    SharedAddress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Spelling {
    Exact,
    #[serde(rename = "spelling")]
    Other,
    OnlyNumber,
}
