//! Telephone calls: the SIP stack of this node, and its trunks.
//!
//! `exchange.rs` is the stack, its ports and the line from its events to each call's task. `trunks.rs` keeps the
//! stack's trunks as the database has them, on every node, and `standings.rs` brings back to the database what their
//! carriers say of them.
//!
//! `inbound.rs` leads an inbound call one way forward. `called.rs` says whose it is (`caller.rs`: the numbers that it
//! tells), `lobby.rs` who answers it, `forward.rs` calls another telephone for it (`diversion.rs`: unless that goes in
//! a circle), and `declined.rs` is the refusal of any step. All of them work with `task.rs`, the task of one call
//! (`carried.rs`: what is put right when it breaks); `record.rs` writes the call down, and `call_leg.rs` is the record
//! and slot of each leg.
//!
//! `outbound.rs` places calls, `talking.rs` follows those that were answered, and `joined.rs` two that were joined;
//! `session.rs` is what both sides agreed on, and `whereabouts.rs` where audio may be sent for it. The stack listens
//! from the moment on in which there is a trunk, or at the start where `sip.sources` names somebody.

mod call_leg;
mod called;
mod caller;
mod carried;
mod declined;
mod diversion;
mod exchange;
mod forward;
mod inbound;
mod joined;
mod lobby;
pub mod outbound;
mod record;
mod session;
mod standings;
mod talking;
mod task;
#[cfg(test)]
mod tests;
pub mod traces;
mod trunks;
mod whereabouts;

use std::io;
use std::ops::Deref;
use std::sync::Arc;

use axum::extract::FromRef;
use futures_util::future::BoxFuture;
use media::shell::Relays;
use sip::trunk::TrunkId;
use tokio::sync::OnceCell;

pub use exchange::{Exchange, SipLeg};

use crate::node::Node;
use crate::sip_traces;
use crate::sip_trunks::{Stack, Transport};
use crate::supervisor::Supervisor;

/// The trunk of `sip.sources`, which is no record of the API.
const SOURCES: TrunkId = TrunkId(1);

/// What this node has of telephony. Cheap to clone.
#[derive(Clone, Default)]
pub struct Telephone {
    exchange: Arc<OnceCell<Arc<Exchange>>>,
}

impl Telephone {
    /// The stack, if it listens.
    pub fn exchange(&self) -> Option<&Arc<Exchange>> {
        self.exchange.get()
    }

    /// The stack; opens it when it is not. The error says which setting is in the way.
    pub async fn open(&self, app: &Node) -> io::Result<&Arc<Exchange>> {
        let opening = || async move {
            let exchange = Arc::new(Exchange::bind(app).await?);
            exchange.clone().run(app)?;
            Ok::<_, io::Error>(exchange)
        };
        self.exchange.get_or_try_init(opening).await
    }

    /// Looks whether the threads of telephony live.
    pub fn look_after(&self, supervisor: &Supervisor) {
        let Some(exchange) = self.exchange.get() else {
            return;
        };
        if let Some((name, how)) = exchange.fallen() {
            supervisor.ended(&format!("thread {name}"), how);
        }
        if exchange.relays.get().is_some_and(Relays::has_fallen) && supervisor.fault().is_none() {
            supervisor.ended("thread relay", Ok(()));
        }
    }
}

impl std::fmt::Debug for Telephone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Telephone").finish_non_exhaustive()
    }
}

impl Stack for Telephone {
    fn listens<'a>(
        &'a self,
        node: &'a Node,
        transport: Transport,
    ) -> BoxFuture<'a, io::Result<bool>> {
        Box::pin(async move { Ok(self.open(node).await?.listens_on(transport)) })
    }
}

/// What the routes of telephone calls work on: the node and its SIP stack.
#[derive(Clone)]
pub struct Calling {
    pub node: Node,
    pub telephone: Telephone,
}

impl Deref for Calling {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.node
    }
}

impl FromRef<Calling> for Node {
    fn from_ref(calling: &Calling) -> Self {
        calling.node.clone()
    }
}

/// Writes down what the last calls of this process said to their carriers.
pub async fn settle(app: &Calling) {
    if let Some(exchange) = app.telephone.exchange()
        && let Err(error) = sip_traces::write(app, &exchange.traces).await
    {
        tracing::error!(%error, "the SIP messages of the last calls are not written down");
    }
}

/// Opens the stack where the settings want it, and follows the trunks until the process ends.
pub async fn start(app: &Calling) -> io::Result<()> {
    if !app.config.sip.sources.is_empty() {
        app.telephone.open(app).await?;
    }
    let following = trunks::follow(app.clone());
    app.supervisor.keep("the follower of SIP trunks", following);
    Ok(())
}
