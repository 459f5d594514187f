//! The same runs at real stores: what a run asked of its database is asked of SQLite and PostgreSQL with
//! the product's own statements, what it asked of its lease store of a Redis with the product's scripts,
//! in the same order and at the same times. Every answer must be the same, and every row at the end.

use std::collections::BTreeMap;
use std::sync::Arc;

use control::admission::Owner as LeaseOwner;
use control::admission::lease::{self, KEY_CLOCK};
use control::app::Incarnation;
use control::calls::journal::Entry;
use control::calls::{self, ending, writer};
use control::cluster;
use control::http::scope::Scopes;
use control::ids::{AccountId, AgentId, CallId, EventId};
use control::jobs::{self, Held, Look, Then};
use control::redis_link::Link;
use control::secret::Secret;
use control::sessions;
use control::supervisor::Supervisor;
use control::testing::TestApp;
use control::time::Timestamp;
use control::webhooks::Delivery;
use kit::redis::Redis;
use redis::aio::MultiplexedConnection;
use serde_json::json;

use crate::calls::account;
use crate::database::{Ask, Told};
use crate::run::{Keep, Outcome, run};
use crate::world::{START, Step};
use crate::{number, replay};

/// Accounts of a run, the one of its probe among them.
const ACCOUNTS: [u64; 3] = [0, 1, 7];

/// A database with the accounts of a run, an agent with an address each.
struct Place {
    test: TestApp,
    agents: BTreeMap<AccountId, AgentId>,
    /// The event of each call, and the body that was first read of it.
    events: BTreeMap<CallId, (EventId, Option<String>)>,
}

impl Place {
    async fn new(url: Option<String>) -> Self {
        let test = TestApp::with(|config| {
            if let Some(url) = url {
                config.database.url = Secret::new(url);
            }
            config.egress.allow = control::egress::Allow::parse(&["127.0.0.0/8"]).unwrap();
        })
        .await;
        let mut agents = BTreeMap::new();
        for number in ACCOUNTS {
            let account = account(number);
            test.app
                .db
                .query(
                    "insert into accounts (id, name, created_at, updated_at) values ($1, $2, $3, $3)",
                )
                .bind(account)
                .bind(format!("account {number}"))
                .bind(START)
                .execute()
                .await
                .unwrap();
            let key = test.key_with(account, Scopes::all()).await;
            let agent = json!({
                "name": "Line", "system_prompt": "Talk.", "voice_id": "scripted-tone",
                "llm_model": "echo", "webhook_url": "http://127.0.0.1:9/hook",
            });
            let (status, agent) = test.call_as(&key, "POST", "/agents", Some(agent)).await;
            assert_eq!(status, 201, "{agent}");
            agents.insert(account, agent["id"].as_str().unwrap().parse().unwrap());
        }
        Self {
            test,
            agents,
            events: BTreeMap::new(),
        }
    }

    /// Forgets the run before.
    async fn clear(&mut self) {
        self.events.clear();
        for table in ["events", "turns", "sessions", "calls", "nodes"] {
            let sql = format!("delete from {table}");
            self.test.app.db.query_built(sql).execute().await.unwrap();
        }
        let reset = "update counters set value = 0 where name = 'incarnation'";
        self.test.app.db.query(reset).execute().await.unwrap();
    }

    async fn event(&mut self, call: CallId) -> EventId {
        if let Some((event, _)) = self.events.get(&call) {
            return *event;
        }
        let id = self
            .test
            .app
            .db
            .query("select id from events where call_id = $1 and type = 'call.ended'")
            .bind(call)
            .one(|row| row.parse("id"))
            .await
            .unwrap();
        self.events.insert(call, (id, None));
        id
    }

    async fn run(&mut self, ask: &Ask) -> Told {
        let app = self.test.app.clone();
        let db = &app.db;
        match ask {
            Ask::Start => Told::Number(Incarnation::take(db, "x").await.unwrap().number),
            Ask::Register {
                incarnation,
                name,
                now,
            } => {
                let node = cluster::store::NewNode {
                    incarnation: *incarnation,
                    name,
                    address: "http://127.0.0.1:9",
                    capacity: 1,
                };
                cluster::store::register(db, &node, *now).await.unwrap();
                Told::Done
            }
            Ask::Beat { incarnation, now } => {
                Told::Flag(cluster::store::beat(db, *incarnation, *now).await.unwrap())
            }
            Ask::Nodes => {
                let nodes = cluster::store::live(db).await.unwrap().into_iter();
                Told::Nodes(
                    nodes
                        .map(|node| (node.incarnation, node.name, node.beats))
                        .collect(),
                )
            }
            Ask::Bury {
                incarnation,
                beats,
                now,
            } => Told::Flag(
                cluster::store::bury(db, *incarnation, *beats, *now)
                    .await
                    .unwrap(),
            ),
            Ask::Leave { incarnation } => {
                cluster::store::leave(db, *incarnation).await.unwrap();
                Told::Done
            }
            Ask::Create {
                account,
                call,
                token,
                expires_at,
                now,
            } => {
                let new = calls::store::NewCall {
                    id: *call,
                    agent_id: self.agents[account],
                    agent_name: "Line",
                    direction: "inbound",
                    channel: "websocket",
                    language: "english",
                    from_number: None,
                    to_number: None,
                    phone_number_id: None,
                    trunk_id: None,
                    matched_by: None,
                    from_withheld: false,
                    dynamic_variables: &json!({}),
                };
                let session = sessions::store::NewSession {
                    id: *call,
                    transport: "websocket",
                    protocol: "native",
                    audio_format: "pcm_16000",
                    token_hash: &token.to_string(),
                    keyless: false,
                    opened_by: None,
                    visitor: None,
                    expires_at: *expires_at,
                };
                let mut tx = db.begin_write().await.unwrap();
                calls::store::insert(&mut tx, *account, &new, *now)
                    .await
                    .unwrap();
                sessions::store::insert(&mut tx, *account, &session, *now)
                    .await
                    .unwrap();
                tx.commit().await.unwrap();
                Told::Done
            }
            Ask::Join {
                call,
                token,
                node,
                incarnation,
                now,
            } => {
                let mut tx = db.begin_write().await.unwrap();
                let token = token.to_string();
                let consumed = sessions::store::consume(&mut tx, *call, &token, *now);
                let Some(session) = consumed.await.unwrap() else {
                    return Told::Flag(false);
                };
                let of = session.account;
                let taken = calls::store::take(&mut tx, of, *call, node, *incarnation, *now);
                if !taken.await.unwrap() {
                    return Told::Flag(false);
                }
                tx.commit().await.unwrap();
                Told::Flag(true)
            }
            Ask::Get { account, call } => {
                let row = calls::store::get(db, *account, *call).await.unwrap();
                Told::Call(row.map(|row| (row.ended_at.is_some(), row.incarnation)))
            }
            Ask::End {
                account,
                call,
                incarnation,
                ending,
                event,
                now,
            } => {
                app.clock.set(*now);
                let also = ending::Also {
                    event: *event,
                    recording: false,
                };
                let ended = ending::end(&app, *account, *call, *incarnation, ending, also).await;
                Told::Flag(ended.unwrap())
            }
            Ask::Write { owner, entries } => {
                let mut entries = entries.clone();
                // An event is due from the time on at which the end is written: here that of the end.
                for entry in &entries {
                    if let Entry::End { at, .. } = entry {
                        app.clock.set(*at);
                    }
                }
                writer::write(&app, *owner, &mut entries).await.unwrap();
                Told::Done
            }
            Ask::Orphans { node, incarnation } => {
                orphans(calls::store::orphans(db, node, *incarnation).await.unwrap())
            }
            Ask::WithoutNode => orphans(calls::store::without_node(db).await.unwrap()),
            Ask::OpenCalls { now } => {
                let open = calls::store::open(db, *now).await.unwrap().into_iter();
                Told::Open(
                    open.map(|row| (row.id, row.account, row.host, row.expires_at))
                        .collect(),
                )
            }
            Ask::OpenAmong { ids } => {
                let open = calls::store::open_among(db, ids).await.unwrap();
                Told::Ids(open.into_iter().collect())
            }
            Ask::Expired { now } => {
                Told::Sessions(sessions::store::expired(db, *now, 1000).await.unwrap())
            }
            Ask::Due { now } => {
                let mut all = Vec::new();
                for account in jobs::store::due_accounts::<Delivery>(db, *now)
                    .await
                    .unwrap()
                {
                    let look = Look::new::<Delivery>(db, account, *now, 1000);
                    let due = look.rows("call_id", "", Vec::new(), |row| row.parse("call_id"));
                    all.extend(due.await.unwrap().into_iter().map(|call| (account, call)));
                }
                Told::Sessions(all)
            }
            Ask::Claim {
                account,
                call,
                now,
                end,
            } => {
                let id = self.event(*call).await;
                let mut tx = db.begin_write().await.unwrap();
                let claimed = jobs::store::claim::<Delivery>(&mut tx, *account, id.0, *now, *end);
                let claimed = claimed.await.unwrap();
                tx.commit().await.unwrap();
                Told::Claimed(claimed.map(|(held, event)| {
                    let first = &mut self.events.get_mut(call).unwrap().1;
                    let first = first.get_or_insert_with(|| event.body.clone());
                    assert_eq!(*first, event.body, "{call}: its body changed");
                    // What it says is the product's matter; here it only has to stay.
                    (held.token, held.attempts, String::new())
                }))
            }
            Ask::Finish {
                account,
                call,
                token,
                finished,
                now,
            } => {
                let held = Held {
                    account: *account,
                    id: self.event(*call).await.0,
                    token: *token,
                    attempts: 0,
                    intended_at: None,
                };
                let written =
                    jobs::store::finish::<Delivery>(db, &held, finished, Then::Attempt, *now);
                Told::Flag(written.await.unwrap())
            }
        }
    }

    /// As [`crate::database::Database::rows`].
    async fn rows(&self) -> Vec<String> {
        let db = &self.test.app.db;
        let time = |time: Option<Timestamp>| time.map_or(-1, |time| time.0);
        let mut rows = db
            .query(
                "select c.id, c.status, c.end_reason, c.owner_node, c.owner_incarnation, c.ended_at,
                    s.spent_at, (select count(*) from turns t where t.call_id = c.id) as turns
                 from calls c join sessions s on s.id = c.id order by c.id",
            )
            .all(|row| {
                Ok(format!(
                    "call {} {} {} {}:{} {} {} {}",
                    row.text("id")?,
                    row.text("status")?,
                    row.opt_text("end_reason")?.as_deref().unwrap_or("-"),
                    row.opt_text("owner_node")?.unwrap_or_default(),
                    row.opt_i64("owner_incarnation")?.unwrap_or(0),
                    time(row.opt_time("ended_at")?),
                    time(row.opt_time("spent_at")?),
                    row.i64("turns")?,
                ))
            })
            .await
            .unwrap();
        let events = db
            .query(
                "select call_id, status, attempts, claim_token, next_attempt_at from events
                 order by call_id",
            )
            .all(|row| {
                Ok(format!(
                    "event {} {} {} {} {}",
                    row.text("call_id")?,
                    row.text("status")?,
                    row.i64("attempts")?,
                    row.i64("claim_token")?,
                    time(row.opt_time("next_attempt_at")?),
                ))
            })
            .await
            .unwrap();
        let nodes = db
            .query("select incarnation, name, beats, lost_at from nodes order by incarnation")
            .all(|row| {
                Ok(format!(
                    "node {} {} {} {}",
                    row.i64("incarnation")?,
                    row.text("name")?,
                    row.i64("beats")?,
                    time(row.opt_time("lost_at")?),
                ))
            })
            .await
            .unwrap();
        rows.extend(events);
        rows.extend(nodes);
        rows
    }

    /// Does a run's transactions again.
    async fn again(&mut self, seed: u64, outcome: &Outcome) {
        self.clear().await;
        for (at, step) in outcome.trace.iter().enumerate() {
            let Step::Ask(ask, told) = step else { continue };
            let real = sorted(self.run(ask).await);
            let told = sorted(told.clone());
            assert_eq!(real, told, "step {at} of seed {seed}; {}", replay(seed));
        }
        assert_eq!(self.rows().await, outcome.rows, "the rows of seed {seed}");
    }
}

fn orphans(rows: Vec<calls::store::CallRow>) -> Told {
    let orphan = |row: calls::store::CallRow| {
        let node = row.node.unwrap_or_default();
        (row.account, row.id, node, row.incarnation)
    };
    Told::Orphans(rows.into_iter().map(orphan).collect())
}

/// Without an order that no statement promises, and without bodies.
fn sorted(told: Told) -> Told {
    match told {
        Told::Open(mut rows) => {
            rows.sort_by_key(|(id, ..)| *id);
            Told::Open(rows)
        }
        Told::Sessions(mut rows) => {
            rows.sort_unstable();
            Told::Sessions(rows)
        }
        Told::Claimed(claimed) => {
            Told::Claimed(claimed.map(|(token, attempts, _)| (token, attempts, String::new())))
        }
        told => told,
    }
}

/// A Redis whose time a run owns.
struct Leases {
    redis: Redis,
    link: Arc<Link>,
    connection: MultiplexedConnection,
}

/// The lease store without its copy, which a replica that is behind still has.
const FORGET: &str =
    "for _, key in ipairs(redis.call('KEYS', 'sidetone:*')) do redis.call('DEL', key) end";

/// All keys of the lease store, copied beside them.
const COPY: &str = "for _, key in ipairs(redis.call('KEYS', 'replica:*')) do redis.call('DEL', key) end
    for _, key in ipairs(redis.call('KEYS', 'sidetone:*')) do redis.call('COPY', key, 'replica:' .. key) end";

/// The copies in place of what was there, served by a process that is not the one they name.
const REPLACE: &str = "for _, key in ipairs(redis.call('KEYS', 'sidetone:*')) do redis.call('DEL', key) end
    for _, key in ipairs(redis.call('KEYS', 'replica:*')) do redis.call('RENAME', key, string.sub(key, 9)) end
    for _, key in ipairs(redis.call('KEYS', 'sidetone:*:back:*')) do redis.call('DEL', key) end
    if redis.call('EXISTS', 'sidetone:{adm}:epoch') == 1 then redis.call('SET', 'sidetone:{adm}:epoch', 'x') end";

/// Nothing runs out by the clock of the machine, which may be slow: the run says what has run out.
const KEEP: &str =
    "for _, key in ipairs(redis.call('KEYS', 'sidetone:*')) do redis.call('PERSIST', key) end";

impl Leases {
    async fn new() -> Self {
        let redis = Redis::start().await;
        let link = Link::new(&Secret::new(redis.url())).unwrap();
        let connection = redis.connection().await;
        Self {
            redis,
            link,
            connection,
        }
    }

    async fn command(&mut self, words: &[&str]) {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        let done = command.query_async::<redis::Value>(&mut self.connection);
        done.await.unwrap();
    }

    /// Does a run's scripts again.
    async fn again(&mut self, seed: u64, outcome: &Outcome) {
        self.command(&["FLUSHALL"]).await;
        let owner = LeaseOwner::new("test", 1);
        let store = {
            let watch = Supervisor::default();
            lease::Redis::start(self.link.clone(), outcome.caps, owner, KEY_CLOCK, &watch)
        };
        assert!(self.link.connect().await, "{}", self.redis.url());
        for (at, step) in outcome.trace.iter().enumerate() {
            match step {
                Step::Ask(..) => {}
                Step::Lease(command, told, now) => {
                    let (key, now) = (format!("{}:now", lease::PREFIX), now.micros().to_string());
                    self.command(&["SET", &key, &now]).await;
                    let real = store.run(command).await;
                    assert_eq!(
                        real.as_ref(),
                        Ok(told),
                        "step {at} of seed {seed}: {command:?}; {}",
                        replay(seed)
                    );
                    self.command(&["EVAL", KEEP, "0"]).await;
                }
                Step::RanOut(keys) => {
                    for key in keys {
                        let pattern = match key.as_str() {
                            "back" => format!("{}:back:*", lease::PREFIX),
                            key => format!("{}:{key}", lease::PREFIX),
                        };
                        let delete = "for _, key in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('DEL', key) end";
                        self.command(&["EVAL", delete, "0", &pattern]).await;
                    }
                }
                Step::Flushed => self.command(&["EVAL", FORGET, "0"]).await,
                Step::Copied => self.command(&["EVAL", COPY, "0"]).await,
                Step::Replaced => self.command(&["EVAL", REPLACE, "0"]).await,
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_stores_answer_as_those_in_memory() {
    let seeds = number("SIDETONE_REAL_SEEDS").unwrap_or(20);
    // One alone, to look into it.
    let seeds = number("SIDETONE_SEED").map_or(0..seeds, |seed| seed..seed + 1);
    let count = seeds.end - seeds.start;
    let url = kit::postgres::shared().database().await;
    let mut postgres = Place::new(Some(url)).await;
    let mut sqlite = Place::new(None).await;
    let mut leases = Leases::new().await;
    let (mut asks, mut scripts) = (0, 0);
    for seed in seeds {
        let outcome = run(seed, None, Keep::Steps);
        assert!(outcome.wrong.is_empty(), "{}", outcome.wrong.join("\n"));
        let all = &outcome.trace;
        asks += all
            .iter()
            .filter(|step| matches!(step, Step::Ask(..)))
            .count();
        scripts += all
            .iter()
            .filter(|step| matches!(step, Step::Lease(..)))
            .count();
        leases.again(seed, &outcome).await;
        // Two databases hold the product's one text to both; SQLite takes a tenth.
        tokio::join!(postgres.again(seed, &outcome), async {
            if seed % 10 == 0 {
                sqlite.again(seed, &outcome).await;
            }
        });
    }
    println!("{count} seeds: {asks} transactions at PostgreSQL, {scripts} scripts at Redis");
}
