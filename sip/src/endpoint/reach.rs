//! Where another side may lead our requests.
//!
//! A Contact or a Record-Route may name any address, and whoever wrote it may be a stranger's carrier.
//! Names are judged by who resolves them; addresses are judged here, so that no request of ours, and no
//! connection, goes to a place inside our own network that it names.

use core::net::IpAddr;
use std::sync::Arc;

use super::{Endpoint, Peer};
use crate::locate::Located;

/// Whether an address that another side named may be called.
pub type Reach = Arc<dyn Fn(IpAddr) -> bool + Send + Sync>;

impl Endpoint {
    /// Has addresses that other sides name judged by this; without it all of them are called.
    pub fn judge_by(&mut self, reach: Reach) {
        self.reach = Some(reach);
    }

    /// Where a request of a dialog goes whose other side was last heard over `flow`. An address is called
    /// when it is the one of `flow`, is of the same trunk, or is let through; else the request goes over
    /// `flow`, for a telephone behind a NAT names an address of its own network. `None`: it goes nowhere.
    pub(super) fn within_reach(&self, located: Located, flow: &Peer) -> Option<Located> {
        let (Located::At(_, named), Some(reach)) = (&located, &self.reach) else {
            return Some(located);
        };
        let (named, heard) = (named.ip().to_canonical(), flow.addr.ip().to_canonical());
        let of_one_trunk = || {
            self.gate
                .trunks(named)
                .any(|one| self.gate.trunks(heard).any(|other| other == one))
        };
        if named == heard || of_one_trunk() || reach(named) {
            return Some(located);
        }
        (!heard.is_unspecified()).then_some(Located::At(flow.transport, flow.addr))
    }
}
