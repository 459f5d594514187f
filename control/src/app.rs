//! What every handler can reach: settings, database, clock, engine, leases, counters.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use media::shell::Engine;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::admission::{
    ADOPT_AGAIN, ADOPT_PATIENCE, Lease, Leases, Owner, Refusal, Request, State,
};
use crate::calls::LiveCalls;
use crate::calls::bridge::telephone::Telephone;
use crate::config::Config;
use crate::db::{Db, DbError};
use crate::egress::Egress;
use crate::http::ApiError;
use crate::http::error::Reason;
use crate::http::limits::Limits;
use crate::metrics::{LeaseStep, Metrics};
use crate::redis_link::Link;
use crate::secret::MasterKey;
use crate::storage::Storage;
use crate::supervisor::{Fault, Supervisor};
use crate::telemetry::Telemetry;
use crate::time::Clock;
use crate::tts::Desk;
use crate::vendors::Speech;
use crate::webhooks::Webhooks;

/// A node whose media threads are later than this (p99, µs) takes no more calls: frames would come
/// unevenly to those it has.
const MAX_LATENESS_US: u64 = 10_000;

/// How often it is looked whether a thread has died.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Fewer passes than one call makes in ten seconds have no p99: a single late one would be it.
const MIN_PASSES: u64 = 500;

/// The application. Cheap to clone.
#[derive(Clone)]
pub struct App(Arc<Inner>);

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
    /// Sound on its way to clients who asked for a text.
    pub tts: Arc<Desk>,
    pub metrics: Metrics,
    /// Where traces of calls go.
    pub telemetry: Telemetry,
    /// The watch over tasks and threads that live as long as the process.
    pub supervisor: Supervisor,
    pub webhooks: Webhooks,
    /// The SIP stack, once it listens.
    pub telephone: Telephone,
    /// One for each call that this node may host: what a lease store says wrongly stops here.
    seats: Arc<Semaphore>,
    /// The OpenAPI document as it is sent: made when it is first asked for.
    pub openapi: OnceLock<crate::http::document::Written>,
    /// Held while calls of dead processes are ended: two at it would salvage one recording.
    pub burying: tokio::sync::Mutex<()>,
    draining: watch::Sender<bool>,
    leaving: AtomicBool,
    lost: AtomicBool,
    recovering: AtomicBool,
}

/// What an [`App`] is made of.
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

impl App {
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
        let seats = (config.limits.node_calls as usize).min(Semaphore::MAX_PERMITS);
        let tts = Desk::new(config.speech.tts_memory_mib);
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
            tts,
            metrics: Metrics::default(),
            telemetry,
            supervisor,
            webhooks: Webhooks::default(),
            telephone: Telephone::default(),
            seats: Arc::new(Semaphore::new(seats)),
            openapi: OnceLock::new(),
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

    /// What died that lives as long as the process. Asked, too, are the threads of engine and stack, which know nothing
    /// of it.
    pub fn fault(&self) -> Option<Fault> {
        while let Some((name, how)) = self.engine.fallen() {
            self.supervisor.ended(&format!("thread {name}"), how);
        }
        self.telephone.look_after(&self.supervisor);
        self.supervisor.fault()
    }

    /// Resolves when something has died that lives as long as the process.
    pub async fn failed(&self) -> Fault {
        loop {
            if let Some(fault) = self.fault() {
                return fault;
            }
            // A thread tells nobody of its end.
            let _ = tokio::time::timeout(LOOK_EVERY, self.supervisor.failed()).await;
        }
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
        if self.is_draining() || self.is_lost() {
            let message = "The server is ending: try again shortly".to_owned();
            return Err(ApiError::Unavailable {
                code: "service_unavailable",
                message,
                retry_after: 5,
            });
        }
        if self.media_is_late() {
            let (current, cap) = (
                u32::try_from(self.engine.live_calls()).ok(),
                Some(self.config.limits.node_calls),
            );
            let reason = Reason::ServiceUnavailable;
            return Err(ApiError::Capacity {
                reason,
                resource: Some("node"),
                current,
                cap,
                retry_after: 5,
            });
        }
        let seat = match request.state {
            State::Live => Some(self.seat()?),
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
        let seat = self.seat()?;
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

    /// A seat for one call on this node.
    fn seat(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        let cap = self.config.limits.node_calls;
        if self.is_lost() {
            return Err(Refusal::full("node", cap, cap));
        }
        Arc::clone(&self.seats)
            .try_acquire_owned()
            .map_err(|_| Refusal::full("node", cap, cap))
    }
}

impl Deref for App {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
