//! Telephone calls: the SIP stack of this node, and its trunks.
//!
//! `exchange.rs` is the stack, its ports and the line from its events to each call's task; `trunks.rs`
//! keeps the stack's trunks as the database has them, on every node (`standings.rs`: what their carriers say of
//! them, back to the database); `inbound.rs` takes calls that come
//! in (`called.rs`: whose they are; `lobby.rs`: while nobody answers; `caller.rs`: the numbers that they tell;
//! `carried.rs`: what is put right when the task of one breaks), `outbound.rs` places
//! calls, and `talking.rs` follows those that were answered; `session.rs` is what both sides agreed on, and
//! `whereabouts.rs` where audio may be sent for it. `forward.rs` places a second call for one that came in
//! (`diversion.rs`: unless that goes in a circle), and `joined.rs` follows both. The stack listens from the moment on in which there is a trunk, or at the
//! start where `sip.sources` names somebody.

mod called;
mod caller;
mod carried;
mod diversion;
mod exchange;
mod forward;
mod inbound;
mod joined;
mod lobby;
pub mod outbound;
mod session;
mod standings;
mod talking;
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
