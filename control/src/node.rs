//! The running node, which every resource works on: settings, database, clock, engine, leases, live calls, counters.
//! It knows no resource; what only some need is put together in [`crate::app`].

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use media::shell::Engine;

use tokio::sync::{Notify, watch};

use crate::admission::seats::{Seats, Standing};
use crate::admission::{
    ADOPT_AGAIN, ADOPT_PATIENCE, Lease, Leases, Owner, Refusal, Request, State,
};
use crate::config::Config;
use crate::db::{Db, DbError};
use crate::egress::Egress;
use crate::http::ApiError;
use crate::http::limits::Limits;
use crate::jobs::Queue;
use crate::live::LiveCalls;
use crate::metrics::{LeaseStep, Metrics};
use crate::redis_link::Link;
use crate::secret::MasterKey;
use crate::storage::Storage;
use crate::supervisor::Supervisor;
use crate::telemetry::Telemetry;
use crate::time::Clock;
use crate::vendors::Speech;

/// A node whose media threads are later than this (p99, µs) takes no more calls: frames would come
/// unevenly to those it has.
const MAX_LATENESS_US: u64 = 10_000;

/// Fewer passes than one call makes in ten seconds have no p99: a single late one would be it.
const MIN_PASSES: u64 = 500;

/// The node. Cheap to clone.
#[derive(Clone)]
pub struct Node(Arc<Inner>);

/// Its parts.
pub struct Inner {
    pub config: Config,
    pub db: Db,
    pub clock: Clock,
    pub master_key: MasterKey,
    pub limits: Limits,
    pub admission: Arc<dyn Leases>,
    /// Who this process is among all starts of all nodes.
    pub incarnation: Incarnation,
    pub engine: Arc<Engine>,
    pub speech: Arc<Speech>,
    /// Recordings and tapes.
    pub storage: Storage,
    /// To addresses that users gave.
    pub egress: Egress,
    /// The calls that this process hosts right now.
    pub live: LiveCalls,
    pub metrics: Arc<Metrics>,
    /// Where traces of calls go.
    pub telemetry: Telemetry,
    /// The watch over tasks and threads that live as long as the process.
    pub supervisor: Supervisor,
    /// What the delivery of events and those who add them share.
    pub webhooks: Queue,
    /// Told when a SIP trunk was written: this node looks at once.
    pub trunks_changed: Notify,
    /// One for each call that this node may host: what a lease store says wrongly stops here.
    seats: Seats,
    /// Held while calls of dead processes are ended: two at it would salvage one recording.
    pub burying: tokio::sync::Mutex<()>,
    draining: watch::Sender<bool>,
    leaving: AtomicBool,
    lost: AtomicBool,
    recovering: AtomicBool,
}

/// What a [`Node`] is made of.
pub struct Parts {
    pub config: Config,
    pub db: Db,
    pub clock: Clock,
    pub master_key: MasterKey,
    pub admission: Arc<dyn Leases>,
    /// To what several nodes share; `None`: there is one node.
    pub redis: Option<Arc<Link>>,
    pub incarnation: Incarnation,
    pub engine: Arc<Engine>,
    pub speech: Arc<Speech>,
    pub storage: Storage,
    pub egress: Egress,
    pub telemetry: Telemetry,
    pub supervisor: Supervisor,
}

/// One start of one node.
#[derive(Clone, Debug)]
pub struct Incarnation {
    /// Larger than those of all starts before; fences writes to the rows of calls.
    pub number: i64,
    /// The same as an owner of leases.
    pub owner: Owner,
}

impl Incarnation {
    /// The next one, of the node of this name.
    pub async fn take(db: &Db, node: &str) -> Result<Self, DbError> {
        // In a transaction: a single statement that gives a row is not told where it cannot be committed.
        let mut tx = db.begin_write().await?;
        let number = tx
            .query(
                "update counters set value = value + 1 where name = 'incarnation' returning value",
            )
            .one(|row| row.i64("value"))
            .await?;
        tx.commit().await?;
        Ok(Self {
            number,
            owner: Owner::new(node, number),
        })
    }
}

impl Node {
    pub fn new(parts: Parts) -> Self {
        let Parts {
            config,
            db,
            clock,
            master_key,
            admission,
            redis,
            incarnation,
            engine,
            speech,
            storage,
            egress,
            telemetry,
            supervisor,
        } = parts;
        let limits = Limits::new(&config.limits, redis);
        let seats = Seats::new(config.limits.node_calls);
        Self(Arc::new(Inner {
            config,
            db,
            clock,
            master_key,
            limits,
            admission,
            incarnation,
            engine,
            speech,
            storage,
            egress,
            live: LiveCalls::default(),
            metrics: Arc::default(),
            telemetry,
            supervisor,
            webhooks: Queue::default(),
            trunks_changed: Notify::new(),
            seats,
            burying: tokio::sync::Mutex::default(),
            draining: watch::Sender::new(false),
            leaving: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            recovering: AtomicBool::new(false),
        }))
    }
}

impl Inner {
    /// Whether the process was told to end: no new calls.
    pub fn is_draining(&self) -> bool {
        *self.draining.borrow()
    }

    pub fn start_draining(&self) {
        self.draining.send_replace(true);
    }

    /// Resolves once the process was told to end.
    pub async fn draining(&self) {
        let mut draining = self.draining.subscribe();
        if draining.wait_for(|draining| *draining).await.is_err() {
            // The sender lives as long as this.
            std::future::pending::<()>().await;
        }
    }

    /// Whether nobody may join any more: the last live call is over, and the process ends.
    pub fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::SeqCst)
    }

    pub fn start_leaving(&self) {
        self.leaving.store(true, Ordering::SeqCst);
    }

    /// Whether the other nodes took this one for dead: no new calls until it is back.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }

    pub fn set_lost(&self, lost: bool) {
        self.lost.store(lost, Ordering::SeqCst);
    }

    /// Whether this process still writes down what an earlier one of this node left: until then nobody
    /// here may take calls for lost.
    pub fn is_recovering(&self) -> bool {
        self.recovering.load(Ordering::SeqCst)
    }

    pub fn set_recovering(&self, recovering: bool) {
        self.recovering.store(recovering, Ordering::SeqCst);
    }

    /// Whether the media threads are behind with the calls they have.
    pub fn media_is_late(&self) -> bool {
        let lateness = self.engine.lateness();
        lateness.passes >= MIN_PASSES && lateness.p99_us > MAX_LATENESS_US
    }

    /// Takes a lease for a new call, unless this node is ending or is behind with the calls it has.
    pub async fn admit(&self, request: Request) -> Result<Lease, ApiError> {
        let admitted = self.admit_uncounted(request).await;
        match &admitted {
            Ok(_) => self.metrics.admitted(LeaseStep::Acquire),
            Err(ApiError::Capacity {
                reason, resource, ..
            }) => self
                .metrics
                .refused(LeaseStep::Acquire, reason.name(), *resource),
            Err(_) => self
                .metrics
                .refused(LeaseStep::Acquire, "service_unavailable", None),
        }
        admitted
    }

    async fn admit_uncounted(&self, request: Request) -> Result<Lease, ApiError> {
        self.seats.open(self.standing())?;
        let seat = match request.state {
            State::Live => Some(self.seats.take(self.is_lost())?),
            State::Pending | State::Keyless => None,
        };
        let began = Instant::now();
        let lease = self.admission.acquire(request).await;
        self.metrics.lease(LeaseStep::Acquire, began.elapsed());
        Ok(lease?.with_seat(seat))
    }

    /// Makes a session's pending lease this node's own, for a call that begins. The caller was promised
    /// it: a store that is cold or away for a moment is asked again.
    pub async fn adopt(&self, request: Request) -> Result<Lease, Refusal> {
        let adopted = self.adopt_uncounted(request).await;
        match &adopted {
            Ok(_) => self.metrics.admitted(LeaseStep::Adopt),
            Err(refusal) => {
                self.metrics
                    .refused(LeaseStep::Adopt, refusal.reason.name(), refusal.resource)
            }
        }
        adopted
    }

    async fn adopt_uncounted(&self, request: Request) -> Result<Lease, Refusal> {
        let seat = self.seats.take(self.is_lost())?;
        let until = Instant::now() + ADOPT_PATIENCE;
        loop {
            let began = Instant::now();
            let lease = self.admission.adopt(request.clone()).await;
            self.metrics.lease(LeaseStep::Adopt, began.elapsed());
            match lease {
                Ok(lease) => return Ok(lease.with_seat(Some(seat))),
                Err(refusal) if !refusal.may_pass() || Instant::now() >= until => {
                    return Err(refusal);
                }
                Err(_) => tokio::time::sleep(ADOPT_AGAIN).await,
            }
        }
    }

    /// How this node stands when it is asked for one more call.
    fn standing(&self) -> Standing {
        if self.is_draining() || self.is_lost() {
            return Standing::Ending;
        }
        match self.media_is_late() {
            true => Standing::Late(u32::try_from(self.engine.live_calls()).ok()),
            false => Standing::Open,
        }
    }
}

impl AsRef<Db> for Node {
    fn as_ref(&self) -> &Db {
        &self.db
    }
}

impl Deref for Node {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
