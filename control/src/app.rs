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
            Err(error) => self.metrics.refused_with(LeaseStep::Acquire, error),
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
            Err(refusal) => self.metrics.refused(LeaseStep::Adopt, refusal),
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

/// For tests of the API without a server: a whole application in a folder of its own.
pub mod testing {
    pub mod answer;

    use std::io;
    use std::path::{Path, PathBuf};
    use std::sync::{Arc, Mutex};

    use ::http::{HeaderMap, Request, StatusCode};
    use axum::Router;
    use bytes::Bytes;
    use http_body_util::BodyExt;
    use serde_json::Value;
    use tower::ServiceExt;

    use media::shell::{Engine, EngineConfig};

    use super::{App, Incarnation, Parts};
    use crate::admission::local::Local;
    use crate::config::Config;
    use crate::db::Db;
    use crate::egress::{Egress, Resolver, Resolving};
    use crate::http::scope::{Scope, Scopes};
    use crate::ids::{AccountId, AgentId, CallId};
    use crate::secret::{MasterKey, Secret};
    use crate::storage::Storage;
    use crate::supervisor::Supervisor;
    use crate::telemetry::Telemetry;
    use crate::time::{Clock, Timestamp};
    use crate::vendors::queue::lock;
    use crate::vendors::{RecogniserKind, Speech, SpeechSettings};

    /// A folder that goes away when dropped.
    #[derive(Debug)]
    pub struct TempDir(PathBuf);

    impl TempDir {
        pub fn new() -> io::Result<Self> {
            let path = std::env::temp_dir().join(format!("sidetone-test-{}", uuid::Uuid::new_v4()));
            std::fs::create_dir_all(&path)?;
            Ok(Self(path))
        }

        pub fn path(&self) -> &Path {
            &self.0
        }
    }

    impl Drop for TempDir {
        fn drop(&mut self) {
            // What cannot be removed is left to the system's own cleaning.
            drop(std::fs::remove_dir_all(&self.0));
        }
    }

    /// An application, its clock, and one account with a key.
    #[derive(Debug)]
    pub struct TestApp {
        pub app: App,
        pub account: AccountId,
        /// A key with every scope.
        pub key: String,
        pub router: Router,
        _dir: TempDir,
    }

    /// What is logged on this thread, every level of it, until it is dropped.
    pub struct Logged {
        lines: Lines,
        _here: tracing::subscriber::DefaultGuard,
    }

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            lock(&self.0).extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Logged {
        pub fn start() -> Self {
            let lines = Lines::default();
            let written = lines.clone();
            let subscriber = tracing_subscriber::fmt()
                .with_ansi(false)
                .with_max_level(tracing::Level::TRACE)
                .with_writer(move || written.clone())
                .finish();
            Self {
                lines,
                _here: tracing::subscriber::set_default(subscriber),
            }
        }

        pub fn text(&self) -> String {
            String::from_utf8_lossy(&lock(&self.lines.0)).into_owned()
        }
    }

    /// A resolver that knows no name.
    struct NoNames;

    impl Resolver for NoNames {
        fn addresses(&self, _: &str) -> Resolving {
            Box::pin(async { Err("NXDOMAIN".to_owned()) })
        }
    }

    /// The time at which a test's clock stands at first.
    pub const START: Timestamp = Timestamp(1_767_323_045_000_006);

    impl TestApp {
        pub async fn new() -> Self {
            Self::with(|_| {}).await
        }

        /// With settings changed.
        #[expect(clippy::expect_used, reason = "only tests call it")]
        pub async fn with(change: impl FnOnce(&mut Config)) -> Self {
            // As `main` does; an error means that another test was first.
            let _ = rustls::crypto::ring::default_provider().install_default();
            let dir = TempDir::new().expect("a temporary folder");
            let mut config = Config::defaults().expect("the defaults are right");
            config.server.data_dir = dir.path().to_owned();
            config.server.public_url = "http://sidetone.test".to_owned();
            // Any free port: tests run beside each other.
            for listen in &mut config.sip.listen {
                listen.addr.set_port(0);
            }
            let file = dir.path().join("test.db");
            config.database.url = Secret::new(format!("sqlite:{}", file.display()));
            change(&mut config);
            let db = Db::open_with(config.database.url.expose(), &config.database.pool);
            let db = db.await.expect("a database");
            db.migrate().await.expect("migrations");
            let clock = Clock::fixed(START);
            let master_key =
                MasterKey::load_or_create(&dir.path().join("master.key")).expect("a key");
            let admission = Local::start(&config.limits, clock.clone());
            let incarnation = Incarnation::take(&db, &config.cluster.node)
                .await
                .expect("an incarnation");
            let engine = EngineConfig {
                threads: 1,
                node_calls: 64,
                spool_dir: dir.path().join("spool"),
                min_free: 0,
                lead_ms: 400,
                webrtc: Some(config.webrtc.to_engine(([127, 0, 0, 1], 0).into())),
                priority: 0,
            };
            let engine = Arc::new(Engine::start(engine).expect("an engine"));
            let speech = SpeechSettings {
                recogniser: RecogniserKind::Scripted,
                recogniser_threads: 1,
                voice_threads: 1,
                request_threads: 1,
                ..SpeechSettings::default()
            };
            let speech = Speech::start(speech, dir.path()).expect("speech");
            let storage = if config.storage.url.is_empty() {
                Storage::local(dir.path().join("objects"))
            } else {
                let key = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"];
                let key = key.map(|name| (name.to_owned(), "of-a-test".to_owned()));
                Storage::remote(&config.storage, key)
            };
            let storage = storage.expect("a store");
            // No name is known, so no test asks a name server.
            let egress = Egress::with(config.egress.allow.clone(), Arc::new(NoNames), Vec::new())
                .expect("a client");
            let app = App::new(Parts {
                config,
                db,
                clock,
                master_key,
                admission,
                redis: None,
                incarnation,
                engine,
                speech,
                storage,
                egress,
                telemetry: Telemetry::default(),
                supervisor: Supervisor::default(),
            });
            let account = crate::accounts::ensure(&app.db, &app.clock, "default")
                .await
                .expect("an account");
            let router = crate::routes::router(&app);
            let mut test = Self {
                app,
                account,
                key: String::new(),
                router,
                _dir: dir,
            };
            test.key = test.key_with(account, Scopes::all()).await;
            test
        }

        /// A new key of an account.
        #[expect(clippy::expect_used, reason = "only tests call it")]
        pub async fn key_with(&self, account: AccountId, scopes: Scopes) -> String {
            crate::api_keys::create(&self.app.db, &self.app.clock, account, "test", scopes, None)
                .await
                .expect("a key")
                .key
                .expose()
                .clone()
        }

        /// A key of the first account with these scopes only.
        pub async fn key_for(&self, scopes: &[Scope]) -> String {
            self.key_with(self.account, scopes.iter().copied().collect())
                .await
        }

        /// A second account and a full key of it.
        #[expect(clippy::expect_used, reason = "only tests call it")]
        pub async fn other_account(&self) -> (AccountId, String) {
            let account = crate::accounts::ensure(&self.app.db, &self.app.clock, "other")
                .await
                .expect("an account");
            (account, self.key_with(account, Scopes::all()).await)
        }

        /// Writes down a call over a WebSocket, of an agent that is not written down.
        #[expect(clippy::expect_used, reason = "only tests call it")]
        pub async fn insert_call(&self, tx: &mut crate::db::Tx) -> (CallId, AgentId) {
            let (call, agent) = (CallId::new(&self.app.clock), AgentId::new(&self.app.clock));
            let new = crate::calls::store::NewCall {
                id: call,
                agent_id: agent,
                agent_name: "Reception",
                direction: "inbound",
                channel: "websocket",
                language: "english",
                from_number: None,
                to_number: None,
                phone_number_id: None,
                trunk_id: None,
                matched_by: None,
                dynamic_variables: &serde_json::json!({}),
            };
            let now = self.app.clock.now();
            crate::calls::store::insert(tx, self.account, &new, now)
                .await
                .expect("a call");
            (call, agent)
        }

        /// A request with the full key; `path` without `/api/v1`. The status and the JSON of the
        /// answer (null when there is none).
        pub async fn call(
            &self,
            method: &str,
            path: &str,
            body: Option<Value>,
        ) -> (StatusCode, Value) {
            self.call_as(&self.key, method, path, body).await
        }

        /// As [`TestApp::call`], with another key.
        #[expect(clippy::expect_used, reason = "only tests call it")]
        pub async fn call_as(
            &self,
            key: &str,
            method: &str,
            path: &str,
            body: Option<Value>,
        ) -> (StatusCode, Value) {
            let builder = Request::builder()
                .method(method)
                .uri(format!("/api/v1{path}"))
                .header("x-api-key", key);
            let request = match body {
                Some(body) => builder
                    .header("content-type", "application/json")
                    .body(body.to_string().into()),
                None => builder.body(axum::body::Body::empty()),
            };
            let (status, _, _, body) = self.whole(request.expect("a request")).await;
            (status, body)
        }

        /// The whole answer to any request, after checking what holds for all of them: its status, its
        /// headers, its bytes and the JSON of them (null when there is none).
        #[expect(clippy::expect_used, reason = "only tests call it")]
        pub async fn whole(
            &self,
            request: Request<axum::body::Body>,
        ) -> (StatusCode, HeaderMap, Bytes, Value) {
            let method = request.method().clone();
            let what = format!("{method} {}", request.uri());
            let (parts, body) = self.send(request).await.into_parts();
            let bytes = body.collect().await.expect("a body").to_bytes();
            let json = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
            answer::check(&what, &method, parts.status, &parts.headers, &json);
            (parts.status, parts.headers, bytes, json)
        }

        /// Any request, and its answer as it begins.
        pub async fn send(
            &self,
            request: Request<axum::body::Body>,
        ) -> ::http::Response<axum::body::Body> {
            match self.router.clone().oneshot(request).await {
                Ok(response) => response,
                Err(never) => match never {},
            }
        }
    }
}
