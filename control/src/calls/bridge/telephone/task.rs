//! The task of an inbound call, with what its steps share.

use std::sync::Arc;

use sip::event::{CallId as SipLegId, Command};

use super::Exchange;
use super::carried::Carried;
use crate::node::Node;

/// The task that serves one inbound call, from its INVITE to its end.
pub(super) struct InboundTask {
    pub(super) app: Node,
    pub(super) exchange: Arc<Exchange>,
    /// The lines and records that are put right should the task panic.
    pub(super) carried: Carried,
}

impl InboundTask {
    /// Commands the stack to do something on a line.
    pub(super) fn tell(&self, line: SipLegId, command: Command) {
        self.exchange.lead(line, command);
    }
}
