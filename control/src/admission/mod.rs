//! Who may have one more call. Each call holds a lease: pending while its session waits for somebody
//! to join (60 s), live while it runs (15 s, renewed every 5 s). Caps of account, pool, agent, trunk
//! and node are checked together with taking the lease.
//!
//! A [`Lease`] is released when it is dropped. The store behind it is in this process
//! ([`local::Local`]); one that several nodes share has the same face.

pub mod local;
pub mod policy;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::http::ApiError;
use crate::http::error::Reason;
use crate::ids::{AccountId, AgentId, CallId};

/// How long a pending lease waits, at most.
pub const PENDING_TTL: Duration = Duration::from_secs(60);
/// How long a live lease lasts without renewal.
pub const LIVE_TTL: Duration = Duration::from_secs(15);
/// How often live leases are renewed.
pub const RENEW_EVERY: Duration = Duration::from_secs(5);

/// Who holds leases: one start of one node, `node:incarnation`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner(pub Arc<str>);

impl Owner {
    pub fn new(node: &str, incarnation: i64) -> Self {
        Self(format!("{node}:{incarnation}").into())
    }
}

/// A wish for a lease.
#[derive(Clone, Debug)]
pub struct Request {
    pub lease: CallId,
    pub owner: Owner,
    pub account: AccountId,
    /// The agent and its own cap, where it has one.
    pub agent: Option<(AgentId, u32)>,
    pub state: State,
}

/// What a lease is held for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// A session that nobody has joined yet.
    Pending,
    Live,
}

/// No lease, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub reason: Reason,
    pub resource: Option<&'static str>,
    pub current: Option<u32>,
    pub cap: Option<u32>,
    /// Seconds.
    pub retry_after: u32,
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let Refusal {
            reason,
            resource,
            current,
            cap,
            retry_after,
        } = refusal;
        Self::Capacity {
            reason,
            resource,
            current,
            cap,
            retry_after,
        }
    }
}

/// How many leases there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub pending: u32,
    pub live: u32,
}

/// A future answer of a lease store.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A lease store.
pub trait Leases: Send + Sync {
    /// Takes a lease within all caps. The same owner asking again gets the same lease.
    fn acquire(&self, request: Request) -> Answer<'_, Result<Lease, Refusal>>;

    /// Makes a pending lease live for this owner, at once and for one owner only. A lease that is
    /// gone (expired) is taken anew within the caps.
    fn adopt(&self, request: Request) -> Answer<'_, Result<Lease, Refusal>>;

    /// Prolongs all live leases of this owner among these; what the store had forgotten it takes up
    /// again. Never refused: the calls live.
    fn renew<'a>(
        &'a self,
        owner: &'a Owner,
        leases: &'a [Renewal],
    ) -> Answer<'a, Result<(), Refusal>>;

    /// Gives a lease back now. Nothing happens when `owner` does not hold it.
    fn release(&self, lease: CallId, owner: &Owner);

    fn counts(&self) -> Counts;

    /// Whether leases can be had.
    fn is_ready(&self) -> bool;
}

/// A live call that goes on.
#[derive(Clone, Copy, Debug)]
pub struct Renewal {
    pub lease: CallId,
    pub account: AccountId,
    pub agent: Option<AgentId>,
}

/// One held lease; released when dropped.
pub struct Lease {
    id: CallId,
    owner: Owner,
    store: Option<Arc<dyn Leases>>,
}

impl Lease {
    pub fn new(id: CallId, owner: Owner, store: Arc<dyn Leases>) -> Self {
        Self {
            id,
            owner,
            store: Some(store),
        }
    }

    pub const fn id(&self) -> CallId {
        self.id
    }

    /// Lets the lease stand by itself until its time is over or somebody adopts it.
    pub fn leave(mut self) {
        self.store = None;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(store) = self.store.take() {
            store.release(self.id, &self.owner);
        }
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lease({})", self.id)
    }
}
