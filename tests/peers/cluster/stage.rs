//! What the tests share: a lease store whose time they own, in the process and in Redis; a node of a
//! cluster.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use control::admission::lease::{self, KEY_CLOCK};
use control::admission::local::Local;
use control::admission::policy::Caps;
use control::admission::{Health, Leases, Owner, Request, Roll, State};
use control::config::Config;
use control::db::Db;
use control::ids::{AccountId, CallId};
use control::redis_link::Link;
use control::redis_link::SERVER_CLOCK;
use control::secret::Secret;
use control::supervisor::Supervisor;
use control::time::{Clock, Timestamp};
use kit::client::Client;
use kit::peer::Mix;
use kit::ports::{free_udp, of_calls};
use kit::redis::Redis;
use kit::server::Setup;
use kit::socket;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

pub(crate) const START: Timestamp = Timestamp(1_767_323_045_000_006);

/// A lease store and its time.
pub(crate) struct Stage {
    pub(crate) store: Arc<dyn Leases>,
    pub(crate) name: &'static str,
    clock: Clock,
    redis: Option<Redis>,
}

pub(crate) fn caps(account: u32, pool: u32, node: u32) -> Caps {
    Caps {
        account,
        pool,
        node,
    }
}

/// The store in the process and the one in Redis, with the same caps, empty and ready.
pub(crate) async fn both(caps: Caps) -> [Stage; 2] {
    let clock = Clock::fixed(START);
    let mut limits = Config::defaults().unwrap().limits;
    limits.account_calls = caps.account;
    limits.pool_calls = caps.pool;
    limits.node_calls = caps.node;
    let local = Stage {
        store: Local::start(&limits, clock.clone()),
        name: "local",
        clock: clock.clone(),
        redis: None,
    };
    let redis = Redis::start().await;
    let shared = Stage {
        store: node(&link(&redis), caps, "a", KEY_CLOCK),
        name: "redis",
        clock,
        redis: Some(redis),
    };
    shared.pass(Duration::ZERO).await;
    assert_eq!(warm(&*shared.store, &["a"]).await, Health::Ready);
    [local, shared]
}

impl Stage {
    /// Time passes.
    pub(crate) async fn pass(&self, time: Duration) {
        match &self.redis {
            None => self.clock.advance(time),
            Some(redis) => {
                let key = format!("{}:now", lease::PREFIX);
                let now: Option<i64> = redis.command(&["GET", &key]).await;
                let now = Timestamp(now.unwrap_or(START.0)).plus(time).0.to_string();
                redis.command::<()>(&["SET", &key, &now]).await;
            }
        }
    }

    pub(crate) async fn counts(&self) -> (u32, u32) {
        self.store.settled().await;
        let counts = self.store.counts().await.unwrap();
        (counts.pending, counts.live)
    }
}

pub(crate) fn link(redis: &Redis) -> Arc<Link> {
    Link::new(&Secret::new(redis.url())).unwrap()
}

/// The lease store of the node of this name.
pub(crate) fn node(link: &Arc<Link>, caps: Caps, name: &str, clock: &str) -> Arc<lease::Redis> {
    lease::Redis::start(
        link.clone(),
        caps,
        Owner::new(name, 1),
        clock,
        &Supervisor::default(),
    )
}

/// As [`node`], on the server's own time.
pub(crate) fn real_node(link: &Arc<Link>, caps: Caps, name: &str) -> Arc<lease::Redis> {
    node(link, caps, name, SERVER_CLOCK)
}

/// One beat, and the opening if these are all the nodes.
pub(crate) async fn warm(store: &dyn Leases, nodes: &[&str]) -> Health {
    match store.beat().await {
        Health::Cold => store.open(&roll(nodes)).await,
        health => health,
    }
}

pub(crate) fn roll(nodes: &[&str]) -> Roll {
    Roll {
        owners: nodes.iter().map(|name| Owner::new(name, 1)).collect(),
        open: Vec::new(),
    }
}

pub(crate) fn call(number: u128) -> CallId {
    CallId(Uuid::from_u128(number))
}

pub(crate) fn account(number: u128) -> AccountId {
    AccountId(Uuid::from_u128(number))
}

/// A wish of a node for an account's call.
pub(crate) fn wish(number: u128, node: &str, of: u128, state: State) -> Request {
    Request {
        lease: call(number),
        owner: Owner::new(node, 1),
        account: account(of),
        agent: None,
        trunk: None,
        beyond: false,
        state,
    }
}

/// A longer pause between two pieces of the agent's sound is a gap that is heard. In the small volume
/// other tests run beside it.
pub(crate) fn gap() -> Duration {
    Duration::from_millis(if soak() { 500 } else { 3000 })
}

/// A few calls of each kind in the small volume; else fifty, divided by so many.
pub(crate) fn mix(parts: usize) -> Mix {
    let (sockets, browsers, telephones, called) =
        if soak() { (30, 10, 6, 4) } else { (4, 4, 4, 4) };
    Mix {
        sockets: sockets / parts,
        browsers: browsers / parts,
        telephones: telephones / parts,
        called: called / parts,
    }
}

pub(crate) fn soak() -> bool {
    std::env::var_os("SIDETONE_SOAK").is_some()
}

/// Several servers on one Redis and one database, ended with the test.
pub(crate) struct Cluster {
    pub(crate) redis: Redis,
    pub(crate) db: Db,
    pub(crate) key: String,
    url: String,
    master: String,
    _folder: tempfile::TempDir,
}

impl Cluster {
    /// A Redis and an empty database.
    pub(crate) async fn new() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("sidetone-cluster")
            .tempdir()
            .unwrap();
        let url = format!("sqlite:{}", folder.path().join("shared.db").display());
        let db = Db::open(&url).await.unwrap();
        db.migrate().await.unwrap();
        let master: Vec<u8> = (0..32).collect();
        Self {
            redis: Redis::start().await,
            db,
            key: kit::server::new_key(),
            url,
            master: base64_simd::STANDARD.encode_to_string(master),
            _folder: folder,
        }
    }

    /// How a node of this name is started.
    pub(crate) fn node(&self, name: &str) -> Setup {
        Setup::default()
            .scripted()
            .set("ENGINE__VAD", "energy")
            .set("ENGINE__MEDIA_THREADS", "1")
            .set("CLUSTER__NODE", name)
            .set("MASTER_KEY", &self.master)
            .env("REDIS_URL", &self.redis.url())
            .env("DATABASE_URL", &self.url)
            .key(&self.key)
    }

    /// The same, and where telephones call it.
    pub(crate) fn reachable_node(&self, name: &str) -> (Setup, SocketAddr) {
        let listen = free_udp();
        let node = self.node(name).telephones(listen);
        (node.set("RTP__PORTS", &of_calls()), listen)
    }

    /// Calls that have not ended and sessions that can still be joined: of all, and of the account
    /// that has most.
    pub(crate) async fn open_calls(&self) -> (u64, u64) {
        let now = Clock::system().now();
        let of_accounts: Vec<i64> = self
            .db
            .query(
                "select count(*) as open from calls c left join sessions s on s.id = c.id
                 where c.ended_at is null and (c.owner_incarnation is not null or s.expires_at > $1)
                 group by c.account_id",
            )
            .bind(now)
            .all(|row| row.i64("open"))
            .await
            .unwrap();
        let all: i64 = of_accounts.iter().sum();
        let most = of_accounts.iter().max().copied().unwrap_or(0);
        (all.unsigned_abs(), most.unsigned_abs())
    }

    /// All calls there ever were.
    pub(crate) async fn calls(&self) -> i64 {
        self.db
            .query("select count(*) as calls from calls")
            .one(|row| row.i64("calls"))
            .await
            .unwrap()
    }

    /// The calls once they are over, each ended for this reason, with its one event.
    pub(crate) async fn check_over(&self, client: &Client, ids: &[String], reason: &str) {
        let until = Instant::now() + Duration::from_secs(20);
        let mut events = BTreeSet::new();
        for id in ids {
            let call = loop {
                let call = client.get(&format!("/calls/{id}")).await;
                let call = call.expect(200).body;
                if !call["ended_at"].is_null() {
                    break call;
                }
                assert!(Instant::now() < until, "still open: {call}");
                sleep(Duration::from_millis(50)).await;
            };
            let status = if reason == "node_lost" {
                "failed"
            } else {
                "completed"
            };
            assert_eq!(
                (&call["end_reason"], &call["status"]),
                (&json!(reason), &json!(status)),
                "{call}"
            );
            let bodies: Vec<String> = self
                .db
                .query("select body from events where call_id = $1 and type = 'call.ended'")
                .bind(id.as_str())
                .all(|row| row.text("body"))
                .await
                .unwrap();
            assert_eq!(bodies.len(), 1, "{id}");
            let body: Value = serde_json::from_str(&bodies[0]).unwrap();
            assert_eq!(body["status"], call["status"]);
            events.insert(body["event_id"].to_string());
        }
        assert_eq!(events.len(), ids.len());
    }

    /// Waits until no call is open and no lease is left.
    pub(crate) async fn empty(&self, within: Duration) {
        let until = Instant::now() + within;
        loop {
            let (open, leases) = (self.open_calls().await.0, self.redis.leases().await);
            if (open, leases) == (0, 0) {
                return;
            }
            assert!(
                Instant::now() < until,
                "{open} calls and {leases} leases are left"
            );
            sleep(Duration::from_millis(100)).await;
        }
    }
}

/// An agent that speaks in a tone and says what it hears. Its id.
pub(crate) async fn agent(client: &Client) -> String {
    let fields = json!({
        "voice_id": socket::scripted_voice(client).await,
        "llm_model": "echo",
        "first_message": "Hello, this is the test line.",
        "idle_check_in_after_secs": 600,
    });
    socket::agent(client, fields).await
}

/// One that speaks for minutes, whatever it hears, and whose ends are told.
pub(crate) async fn talker(client: &Client) -> String {
    let fields = json!({
        "voice_id": socket::scripted_voice(client).await,
        "llm_model": "echo",
        "first_message": "And this goes on and on, as long as somebody listens. ".repeat(17),
        "interruption_enabled": false,
        "webhook_url": "https://hooks.example.com/calls",
    });
    socket::agent(client, fields).await
}

/// The value that 99 of 100 stay below.
pub(crate) fn p99(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[(times.len() * 99).div_ceil(100).saturating_sub(1)]
}
