//! Whether the database server is there. Who meets a dead connection, or waits long for one, raises a
//! suspicion; then one task tries to connect until it succeeds, and meanwhile nobody else does: each
//! request fails at once in place of waiting for its own connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool};
use sqlx::{ConnectOptions as _, Connection as _};
use tokio::sync::watch;

use super::error::lost;

/// A server that does not complete a connection within this is not there.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between two looks: how much later than the server itself its users are back.
const EVERY: Duration = Duration::from_millis(200);

/// The state of one server. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Outage(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    options: PgConnectOptions,
    pool: PgPool,
    on: watch::Sender<bool>,
    looking: AtomicBool,
}

impl Outage {
    pub(super) fn new(options: PgConnectOptions, pool: PgPool) -> Self {
        Self(Arc::new(Inner {
            options,
            pool,
            on: watch::Sender::new(false),
            looking: AtomicBool::new(false),
        }))
    }

    /// Whether the server is known to be away.
    pub(super) fn is_on(&self) -> bool {
        *self.0.on.borrow()
    }

    /// Waits until the server is known to be away.
    pub(super) async fn begun(&self) {
        self.until(true).await;
    }

    /// Waits until the server is not known to be away.
    pub(super) async fn over(&self) {
        self.until(false).await;
    }

    async fn until(&self, wanted: bool) {
        let mut on = self.0.on.subscribe();
        // The sender lives as long as `self`, so this ends with the wish only.
        let _ = on.wait_for(|on| *on == wanted).await;
    }

    /// Has somebody look, unless somebody does.
    pub(super) fn suspect(&self) {
        if !self.0.looking.swap(true, Ordering::SeqCst) {
            tokio::spawn(self.clone().look());
        }
    }

    /// Looks until the server is there, or nobody uses it any more.
    async fn look(self) {
        while !self.0.pool.is_closed() {
            match self.reach().await {
                Ok(()) => break,
                Err(error) => {
                    if !self.0.on.send_replace(true) {
                        tracing::error!(%error, "the database is away");
                    }
                }
            }
            tokio::time::sleep(EVERY).await;
        }
        // Before the word is given, so that a suspicion from then on is looked into.
        self.0.looking.store(false, Ordering::SeqCst);
        if self.0.on.send_replace(false) {
            tracing::warn!("the database is back");
        }
    }

    /// Connects once. A server that refuses this connection for a reason of its own is there.
    async fn reach(&self) -> Result<(), sqlx::Error> {
        let connected = tokio::time::timeout(PATIENCE, self.0.options.connect()).await;
        match connected {
            Ok(Ok(connection)) => {
                let closed: Result<(), sqlx::Error> = PgConnection::close(connection).await;
                closed.or(Ok(()))
            }
            Ok(Err(error)) if lost(&error) => Err(error),
            Ok(Err(_)) => Ok(()),
            Err(_) => Err(sqlx::Error::PoolTimedOut),
        }
    }
}
