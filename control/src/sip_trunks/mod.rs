//! SIP trunks: the carriers over which calls come and go (document 3, SIP trunks).
//!
//! A trunk is active or disabled, and once deleted it is no more than what old calls name. Its
//! password lies sealed in the database. To other resources it is [`Trunk`], [`store::get`],
//! [`store::find_default_outbound`] and [`store::for_number`]; the SIP stack knows it by [`sip_id`].

pub mod auth;
mod entries;
pub mod http;
pub mod rules;
pub mod service;
pub mod store;
pub mod wire;

pub use crate::numbers::DialFormat;
pub use rules::{
    AuthMode, Destinations, FromUser, ListMode, MediaEncryption, OutboundAuth, RegistrationStatus,
    Status, Transport, TrunkType,
};
pub use store::Trunk;

use std::ops::Deref;
use std::sync::Arc;

use axum::extract::FromRef;
use futures_util::future::BoxFuture;

use crate::db::Db;
use crate::ids::{AccountId, TrunkId};
use crate::node::Node;

/// The trunk's number in the SIP stack, the same on every node: the random half of its id.
pub const fn sip_id(id: TrunkId) -> sip::trunk::TrunkId {
    sip::trunk::TrunkId(id.0.as_u64_pair().1)
}

/// An account as the SIP stack knows it: what of its trunks' names is looked up, and how much at a time, is the
/// account's.
pub const fn tenant(account: AccountId) -> sip::trunk::Tenant {
    sip::trunk::Tenant(account.0.as_u64_pair().1)
}

/// The SIP stack, as far as trunks ask for it.
pub trait Stack: Send + Sync {
    /// Opens the stack where it is not open; whether it listens over this transport. The error says why it does not
    /// listen at all.
    fn listens<'a>(
        &'a self,
        node: &'a Node,
        transport: Transport,
    ) -> BoxFuture<'a, std::io::Result<bool>>;
}

/// What the routes of trunks work on: the node and its SIP stack.
#[derive(Clone)]
pub struct Trunks {
    pub node: Node,
    pub stack: Arc<dyn Stack>,
}

impl Deref for Trunks {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.node
    }
}

impl AsRef<Db> for Trunks {
    fn as_ref(&self) -> &Db {
        &self.node.db
    }
}

impl FromRef<Trunks> for Node {
    fn from_ref(trunks: &Trunks) -> Self {
        trunks.node.clone()
    }
}
