//! Who may have one more call. Each call holds a lease: pending while its session waits for somebody
//! to join (60 s), live while it runs (15 s, renewed every 5 s). Caps of account, pool, agent, trunk
//! and node are checked together with taking the lease.
//!
//! A [`Lease`] is released when it is dropped. The store behind it is in this process
//! ([`local::Local`]) or in a Redis that several nodes share ([`lease::Redis`]); both do what
//! [`policy`] says. The database says which calls live; a store only counts them, and may forget:
//! then it is *cold* and takes no new calls until every live node has told it of its own.

pub mod command;
pub mod lease;
pub mod ledger;
pub mod local;
pub mod policy;
pub mod seats;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;

use crate::http::ApiError;
use crate::http::error::Reason;
use crate::ids::{AccountId, AgentId, CallId, TrunkId};

/// How long a pending lease waits, at most.
pub const PENDING_TTL: Duration = Duration::from_secs(60);
/// The same for a session that was opened without a key.
pub const KEYLESS_TTL: Duration = Duration::from_secs(30);
/// How long a live lease lasts without renewal.
pub const LIVE_TTL: Duration = Duration::from_secs(15);
/// How often live leases are renewed.
pub const RENEW_EVERY: Duration = Duration::from_secs(5);
/// How long a released lease cannot be taken again: a request that was given up may still be on its
/// way to a store that slept.
pub const GONE_FOR: Duration = Duration::from_secs(10);

/// How long a caller who joins waits for a lease store that does not know, and how often it is asked.
pub const ADOPT_PATIENCE: Duration = Duration::from_secs(3);
pub const ADOPT_AGAIN: Duration = Duration::from_millis(100);

/// Seconds after which a refused client may try again: a pending lease may have run out by then.
const RETRY_FULL: u32 = 5;
/// A duplicate lease is a race that is over in a moment.
const RETRY_DUPLICATE: u32 = 1;
/// A store that is away or cold is asked again after this.
const RETRY_UNAVAILABLE: u32 = 5;
/// A store that failed once may answer the next time.
const RETRY_ERROR: u32 = 1;

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
    /// The trunk that it goes over and the trunk's cap.
    pub trunk: Option<(TrunkId, u32)>,
    /// A message for which nobody had room: the caps of account and agent do not hold it back, those of
    /// trunk, pool and node do.
    pub beyond: bool,
    pub state: State,
}

/// What a lease is held for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// A session that nobody has joined yet.
    Pending,
    /// The same, opened without a key.
    Keyless,
    Live,
}

impl State {
    /// How long a lease of this state lasts.
    pub const fn ttl(self) -> Duration {
        match self {
            Self::Pending => PENDING_TTL,
            Self::Keyless => KEYLESS_TTL,
            Self::Live => LIVE_TTL,
        }
    }
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

impl Refusal {
    /// A cap is reached. A full node is the server's limit and not the client's: another may have
    /// room.
    pub const fn full(resource: &'static str, current: u32, cap: u32) -> Self {
        let reason = match resource.as_bytes() {
            b"node" => Reason::ServiceUnavailable,
            _ => Reason::Capacity,
        };
        Self {
            reason,
            resource: Some(resource),
            current: Some(current),
            cap: Some(cap),
            retry_after: RETRY_FULL,
        }
    }

    /// Another owner holds it, or it was given back.
    pub const fn duplicate() -> Self {
        Self {
            reason: Reason::DuplicateLease,
            resource: None,
            current: None,
            cap: None,
            retry_after: RETRY_DUPLICATE,
        }
    }

    /// The store is not there, or does not know who is on a call.
    pub const fn unavailable() -> Self {
        Self::of_store(Reason::RedisUnavailable, RETRY_UNAVAILABLE)
    }

    /// The store failed, or its answer did not come.
    pub const fn error() -> Self {
        Self::of_store(Reason::RedisError, RETRY_ERROR)
    }

    /// Whether the store itself was the reason: asked again in a moment it may grant the same wish.
    pub fn may_pass(&self) -> bool {
        [Self::unavailable(), Self::error()].contains(self)
    }

    const fn of_store(reason: Reason, retry_after: u32) -> Self {
        Self {
            reason,
            resource: Some("pool"),
            current: None,
            cap: None,
            retry_after,
        }
    }
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

/// A lease as a store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub lease: CallId,
    pub owner: Owner,
    pub live: bool,
    /// Since it was taken; by a clock that was set back meanwhile, how far that was.
    pub age: Duration,
    /// Until it runs out.
    pub left: Duration,
}

/// Whether leases can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    Ready,
    /// The store is there, but does not know yet who is on a call.
    Cold,
    /// The store does not answer.
    Away,
}

/// Who must have spoken before a cold store can count again, and what the database says is open.
#[derive(Clone, Debug, Default)]
pub struct Roll {
    /// The nodes that live.
    pub owners: Vec<Owner>,
    pub open: Vec<OpenCall>,
}

/// A call that the database says has not ended. Its node may not have told of it: a session that waits
/// has none, and one that was joined this moment has no lease of its node's yet.
#[derive(Clone, Debug)]
pub struct OpenCall {
    pub lease: CallId,
    pub account: AccountId,
    /// Who hosts it; `None`: it waits for somebody to join.
    pub owner: Option<Owner>,
    /// How long its lease lasts unless somebody renews it.
    pub left: Duration,
}

/// A future answer of a lease store.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A lease store.
///
/// Who asks for what: `connect` and the batch dialler [`acquire`](Self::acquire) a pending lease for a
/// session or a call that is to be dialled; whoever consumes a `ws_url`, answers the first offer or
/// hears the callee pick up makes it live with [`adopt`](Self::adopt); a call that is live from its
/// first packet (an inbound INVITE) acquires a live one at once.
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

    /// Gives a lease back, soon if not now. A live one of another owner stays.
    fn release(&self, lease: CallId, owner: &Owner);

    /// Resolves when everything that was released is.
    fn settled(&self) -> Answer<'_, ()>;

    /// The lease stands by itself from now on: its session's record is written.
    fn leave(&self, lease: CallId);

    /// How many leases there are.
    fn counts(&self) -> Answer<'_, Result<Counts, Refusal>>;

    /// All leases there are.
    fn list(&self) -> Answer<'_, Result<Vec<Held>, Refusal>>;

    /// What was last known of the store.
    fn health(&self) -> Health;

    /// Tells the store that this node lives, and a cold one of all that this node holds.
    fn beat(&self) -> Answer<'_, Health>;

    /// Whether all of the roll's owners have told a cold store of their calls.
    fn is_complete<'a>(&'a self, roll: &'a Roll) -> Answer<'a, bool>;

    /// Lets a cold store count again, if all of the roll's owners have told it of their calls.
    fn open<'a>(&'a self, roll: &'a Roll) -> Answer<'a, Health>;

    /// Resolves when the store was found cold or away by somebody who asked it.
    fn trouble(&self) -> Answer<'_, ()>;
}

/// A call that goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewal {
    pub lease: CallId,
    pub account: AccountId,
    pub agent: Option<AgentId>,
    pub trunk: Option<TrunkId>,
    pub state: State,
}

impl From<&Request> for Renewal {
    fn from(request: &Request) -> Self {
        Self {
            lease: request.lease,
            account: request.account,
            agent: request.agent.map(|(agent, _)| agent),
            trunk: request.trunk.map(|(trunk, _)| trunk),
            state: request.state,
        }
    }
}

/// One held lease; released when dropped.
pub struct Lease {
    id: CallId,
    owner: Owner,
    store: Option<Arc<dyn Leases>>,
    /// A seat on this node, where it needs one.
    seat: Option<OwnedSemaphorePermit>,
}

impl Lease {
    pub fn new(id: CallId, owner: Owner, store: Arc<dyn Leases>) -> Self {
        Self {
            id,
            owner,
            store: Some(store),
            seat: None,
        }
    }

    /// With a seat that is free again when the lease is.
    #[must_use]
    pub fn with_seat(mut self, seat: Option<OwnedSemaphorePermit>) -> Self {
        self.seat = seat;
        self
    }

    pub const fn id(&self) -> CallId {
        self.id
    }

    /// Lets the lease stand by itself until its time is over or somebody adopts it.
    pub fn leave(mut self) {
        if let Some(store) = self.store.take() {
            store.leave(self.id);
        }
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
