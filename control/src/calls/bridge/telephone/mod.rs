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
mod trunks;
mod whereabouts;

use std::io;
use std::sync::Arc;

use media::shell::Relays;
use sip::trunk::TrunkId;
use tokio::sync::{Notify, OnceCell};

pub use exchange::{Exchange, Line};

use crate::app::App;
use crate::sip_traces;
use crate::supervisor::Supervisor;

/// The trunk of `sip.sources`, which is no record of the API.
const SOURCES: TrunkId = TrunkId(1);

/// What this node has of telephony. Part of [`App`].
#[derive(Default)]
pub struct Telephone {
    exchange: OnceCell<Arc<Exchange>>,
    /// Started with the first call that is handed on.
    relays: OnceCell<Relays>,
    changed: Notify,
}

impl Telephone {
    /// The stack, if it listens.
    pub fn exchange(&self) -> Option<&Arc<Exchange>> {
        self.exchange.get()
    }

    /// The thread on which two telephones hear each other.
    async fn relays(&self) -> io::Result<&Relays> {
        self.relays
            .get_or_try_init(|| async { Relays::start() })
            .await
    }

    /// Looks whether the threads of telephony live.
    pub fn look_after(&self, supervisor: &Supervisor) {
        if let Some((name, how)) = self.exchange.get().and_then(|exchange| exchange.fallen()) {
            supervisor.ended(&format!("thread {name}"), how);
        }
        if self.relays.get().is_some_and(Relays::has_fallen) && supervisor.fault().is_none() {
            supervisor.ended("thread relay", Ok(()));
        }
    }

    /// A trunk was written: this node looks at once, the others within [`trunks::LOOK_EVERY`].
    pub fn trunks_changed(&self) {
        self.changed.notify_one();
    }
}

/// Writes down what the last calls of this process said to their carriers.
pub async fn settle(app: &App) {
    if let Some(exchange) = app.telephone.exchange()
        && let Err(error) = sip_traces::write(app, &exchange.traces).await
    {
        tracing::error!(%error, "the SIP messages of the last calls are not written down");
    }
}

/// Opens the stack where the settings want it, and follows the trunks until the process ends.
pub async fn start(app: &App) -> io::Result<()> {
    if !app.config.sip.sources.is_empty() {
        open(app).await?;
    }
    let following = trunks::follow(app.clone());
    app.supervisor.keep("the follower of SIP trunks", following);
    Ok(())
}

/// The stack; opens it when it is not. The error says which setting is in the way.
pub async fn open(app: &App) -> io::Result<&Arc<Exchange>> {
    let opening = || async move {
        let exchange = Arc::new(Exchange::bind(app).await?);
        exchange.clone().run(app)?;
        Ok::<_, io::Error>(exchange)
    };
    app.telephone.exchange.get_or_try_init(opening).await
}
