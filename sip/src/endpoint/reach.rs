//! Where another side may lead our requests.
//!
//! A Contact or a Record-Route may name any address, and whoever wrote it may be a stranger's carrier.
//! Names are judged by who resolves them; addresses are judged here, so that no request of ours, and no
//! connection, goes to a place inside our own network that it names. What leads nowhere goes back to where the dialog
//! was last heard: gateways name hosts of their own networks, numbers, and protocols that nobody speaks, and wait for
//! the ACK all the same.

use core::net::IpAddr;
use std::sync::Arc;

use super::{Endpoint, Peer};
use crate::dialog::next_hop;
use crate::locate::{Located, locate};
use crate::message::{Request, Uri};

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
        let Located::At(_, named) = &located else {
            return Some(located);
        };
        if named.ip().is_unspecified() || named.port() == 0 {
            return back(flow);
        }
        let Some(reach) = &self.reach else {
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
        back(flow)
    }

    /// Where a request of a dialog goes whose other side was last heard over `flow`, before its name is looked up.
    /// What leads nowhere (`tel:`, another protocol) goes back to where the dialog was heard.
    pub(super) fn way(&self, request: &Request, flow: &Peer) -> Option<Located> {
        match next_hop(request) {
            Uri::Sip(uri) => self.within_reach(locate(&uri, flow.transport), flow),
            Uri::Other(_) => back(flow),
        }
    }
}

/// To where a dialog was last heard. `None`: nothing was heard yet.
fn back(flow: &Peer) -> Option<Located> {
    is_heard(flow).then_some(Located::At(flow.transport, flow.addr))
}

pub(super) fn is_heard(flow: &Peer) -> bool {
    !flow.addr.ip().is_unspecified()
}
