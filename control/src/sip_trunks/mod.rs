//! SIP trunks: the carriers over which calls come and go (document 3, SIP trunks).
//!
//! A trunk is active or disabled, and once deleted it is no more than what old calls name. Its
//! password lies sealed in the database. To other resources it is [`Trunk`], [`store::get`],
//! [`store::find_default_outbound`] and [`store::for_number`]; the SIP stack knows it by [`sip_id`].

pub mod auth;
pub mod http;
pub mod rules;
pub mod service;
pub mod store;
pub mod wire;

pub use rules::{
    AuthMode, Destinations, DialFormat, FromUser, ListMode, MediaEncryption, OutboundAuth,
    RegistrationStatus, Status, Transport, TrunkType,
};
pub use store::Trunk;

use crate::ids::{AccountId, TrunkId};

/// The trunk's number in the SIP stack, the same on every node: the random half of its id.
pub const fn sip_id(id: TrunkId) -> sip::trunk::TrunkId {
    sip::trunk::TrunkId(id.0.as_u64_pair().1)
}

/// An account as the SIP stack knows it: what of its trunks' names is looked up, and how much at a time, is the
/// account's.
pub const fn tenant(account: AccountId) -> sip::trunk::Tenant {
    sip::trunk::Tenant(account.0.as_u64_pair().1)
}
