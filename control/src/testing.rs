//! For tests of the API without a server: a whole application in a folder of its own.

pub mod answer;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex};

use ::http::{HeaderMap, Request, StatusCode};
use axum::Router;
use bytes::Bytes;
use http_body_util::BodyExt;
use serde_json::{Map, Value};
use tower::ServiceExt;

use media::shell::{Engine, EngineConfig};

use crate::admission::local::Local;
use crate::app::App;
use crate::calls::rules::{Channel, Direction};
use crate::calls::store::NewCall;
use crate::config::Config;
use crate::db::Db;
use crate::egress::{Egress, Resolver, Resolving};
use crate::http::scope::{Scope, Scopes};
use crate::ids::{AccountId, AgentId, CallId};
use crate::node::{Incarnation, Parts};
use crate::secret::{MasterKey, Secret};
use crate::sessions::rules::Transport;
use crate::sessions::store::NewSession;
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

/// A call that came in over a WebSocket, to be written down.
pub fn call_over_socket(id: CallId, agent: AgentId) -> NewCall<'static> {
    static NO_VARIABLES: LazyLock<Value> = LazyLock::new(|| Value::Object(Map::new()));
    NewCall {
        id,
        agent_id: agent,
        agent_name: "Reception",
        direction: Direction::Inbound,
        channel: Channel::WebSocket,
        language: "english",
        from_number: None,
        to_number: None,
        phone_number_id: None,
        trunk_id: None,
        matched_by: None,
        from_withheld: false,
        dynamic_variables: &NO_VARIABLES,
    }
}

/// How that call is joined, at the latest then, with a token of this fingerprint.
pub fn session_of_socket(id: CallId, token_hash: &str, expires_at: Timestamp) -> NewSession<'_> {
    NewSession {
        id,
        transport: Transport::WebSocket,
        protocol: "native",
        audio_format: "pcm_16000",
        token_hash,
        keyless: false,
        opened_by: None,
        visitor: None,
        expires_at,
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
        let master_key = MasterKey::load_or_create(&dir.path().join("master.key")).expect("a key");
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
        let new = call_over_socket(call, agent);
        let now = self.app.clock.now();
        crate::calls::store::insert(tx, self.account, &new, now)
            .await
            .expect("a call");
        (call, agent)
    }

    /// A request with the full key; `path` without `/api/v1`. The status and the JSON of the
    /// answer (null when there is none).
    pub async fn call(&self, method: &str, path: &str, body: Option<Value>) -> (StatusCode, Value) {
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
