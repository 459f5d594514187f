//! A disk that is full or fails, under the database, the journal and the recordings (SQLite: all in one
//! folder) or under the database alone (PostgreSQL), in each place where something is written: the start,
//! an agent, a call's start and end, its recording, its webhook. What a client gets meanwhile, and what is
//! there afterwards; each test walks all six.

use std::time::Duration;

use kit::client::{Answer, Client};
use kit::faults::{Fault, Injector, SmallDisk};
use kit::postgres::Postgres;
use kit::receiver::{Got, Receiver};
use kit::server::Server;
use kit::socket::{Caller, native};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::stage;

/// A fault is noticed, and its end, within this.
const NOTICED: Duration = Duration::from_millis(2500);
/// After its end everything is written within this.
const WRITTEN: Duration = Duration::from_secs(10);
/// SIGTERM ends the process within this: two seconds of drain, the goodbyes, and a busy machine.
const ENDED: Duration = Duration::from_secs(15);

/// The disk of a test.
enum Disk {
    Small(SmallDisk),
    Injected(Injector, Fault),
}

impl Disk {
    fn fail(&self) {
        match self {
            Self::Small(disk) => disk.fill(),
            Self::Injected(faults, fault) => faults.begin(*fault),
        }
    }

    fn heal(&self) {
        match self {
            Self::Small(disk) => disk.free(),
            Self::Injected(faults, fault) => faults.end(*fault),
        }
    }
}

/// What becomes of a call that ends while the disk fails.
#[derive(Clone, Copy)]
struct Expected {
    /// Of its recording, and of that of a call that lives through it.
    recorded: bool,
    /// Of its end: nothing gives room back, so it is not written while the disk fails.
    end_waits: bool,
    /// Of its end, when the process ends before the disk is well again.
    reason_after_restart: &'static str,
}

/// One disk, one server on it, and who hears of its calls.
struct Scene {
    disk: Disk,
    server: Server,
    client: Client,
    hooks: Receiver,
    agent: String,
    expected: Expected,
}

/// A refusal that a client may repeat.
fn check_refused(answer: Answer) {
    let answer = answer.expect(503);
    assert_eq!(answer.text("code"), "service_unavailable");
    assert!(answer.header("retry-after").is_some());
}

impl Scene {
    async fn new(disk: Disk, setup: kit::server::Setup, expected: Expected) -> Self {
        let setup = setup
            .set("EGRESS__ALLOW", "127.0.0.1")
            .set("RECORDINGS__MIN_FREE_MIB", "1")
            .set("SERVER__DRAIN_SECONDS", "2");
        let server = setup.start().await;
        let (client, hooks) = (server.client(), Receiver::start().await);
        let fields = json!({
            "first_message": stage::long_greeting(), "interruption_enabled": false,
            "webhook_url": format!("{}/calls", hooks.url),
        });
        let agent = stage::agent(&client, fields).await;
        Self {
            disk,
            server,
            client,
            hooks,
            agent,
            expected,
        }
    }

    async fn call(&self) -> Caller {
        let mut caller = Caller::call(&self.client, &native(&self.agent)).await;
        caller.speak(&stage::voice(1200)).await;
        caller.listen(600).await;
        caller
    }

    /// Asks `/readyz` until it says so.
    async fn until_ready(&self, ready: bool) {
        let until = Instant::now() + NOTICED;
        loop {
            let answer = self.client.get("//readyz").await;
            if !ready && answer.status == 503 {
                assert!(answer.text("error").contains("database"), "{answer:?}");
                return;
            }
            if ready && answer.status == 200 {
                return;
            }
            assert!(Instant::now() < until, "{answer:?}");
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Makes agents that take room until one is refused. How many there are.
    async fn write_until_refused(&self) -> u64 {
        let mut made = 0;
        loop {
            let fields = json!({
                "name": "written", "voice_id": "scripted-tone", "llm_model": "echo",
                "system_prompt": noise(60_000),
            });
            let answer = self.client.post("/agents", &fields).await;
            if answer.status == 503 {
                check_refused(answer);
                return made;
            }
            answer.expect(201);
            made += 1;
            assert!(made < 400, "the disk does not fail");
        }
    }

    async fn count_agents(&self) -> u64 {
        let list = self.client.get("/agents?limit=1").await.expect(200);
        list.body["total"].as_u64().unwrap()
    }

    async fn check_call(&self, id: &str, reason: &str) {
        let until = Instant::now() + WRITTEN;
        let call = loop {
            let call = self.client.get(&format!("/calls/{id}")).await.expect(200);
            if !call.body["ended_at"].is_null() {
                break call.body;
            }
            assert!(Instant::now() < until, "not over: {}", call.body);
            sleep(Duration::from_millis(20)).await;
        };
        assert_eq!(call["end_reason"], reason, "{call}");
    }

    /// The webhook is told of the end of a call, once.
    async fn check_told(&self, id: &str) {
        self.hooks.until(WRITTEN, |got| told(got, id) > 0).await;
        assert_eq!(told(&self.hooks.got(), id), 1, "{id}");
    }

    async fn check_recording(&self, id: &str) {
        let over = stage::over(&self.client, id, WRITTEN).await;
        assert_eq!(over["has_recording"], self.expected.recorded, "{over}");
        if self.expected.recorded {
            stage::recording(&self.client, id).await;
        }
    }

    /// All but the start.
    async fn walk(&mut self) {
        let (mut leaving, mut staying) = (self.call().await, self.call().await);
        let session = stage::session(&self.client, &self.agent).await;
        let before = self.count_agents().await;
        self.disk.fail();

        // An agent: refused, and nothing of it is there.
        let made = self.write_until_refused().await;
        self.until_ready(false).await;
        assert_eq!(self.count_agents().await, before + made);
        // What was written before is read.
        let path = format!("/agents/{}", self.agent);
        self.client.get(&path).await.expect(200);
        let changed = json!({"name": "changed"});
        check_refused(self.client.patch(&path, &changed).await);
        // A call's start: no session, and nobody joins one; what was promised is still there afterwards.
        let connect = native(&self.agent);
        check_refused(self.client.post("/conversation/connect", &connect).await);
        let (error, code) = stage::refused(&session.text("ws_url")).await;
        assert_eq!(code, 1013, "{error}");
        // A call's end: the caller sees nothing of it. It is not in the record yet, nor told.
        leaving.send(&json!({"type": "end"})).await;
        let closed = leaving.close_code(Duration::from_secs(5)).await;
        assert_eq!(closed, Some(1000));
        let left = leaving.session_id.clone();
        staying.speak(&stage::voice(800)).await;
        if self.expected.end_waits {
            let call = self.client.get(&format!("/calls/{left}")).await.expect(200);
            assert!(call.body["ended_at"].is_null(), "{}", call.body);
            assert_eq!(told(&self.hooks.got(), &left), 0);
        }

        self.disk.heal();
        self.until_ready(true).await;
        self.check_call(&left, "caller_hangup").await;
        self.check_told(&left).await;
        self.check_recording(&left).await;
        assert_eq!(self.count_agents().await, before + made);
        let answer = self.client.patch(&path, &changed).await.expect(200);
        assert_eq!(answer.text("name"), "changed");
        // Who was refused may join now.
        let mut late = Caller::join(&session, "").await.unwrap();
        late.listen(300).await;
        for mut caller in [staying, late] {
            caller.send(&json!({"type": "end"})).await;
            assert_eq!(caller.close_code(Duration::from_secs(5)).await, Some(1000));
            self.check_call(&caller.session_id, "caller_hangup").await;
            self.check_told(&caller.session_id).await;
        }
    }

    /// The process ends while the disk fails, and the next one begins after that.
    async fn restart(&mut self, cannot_start: bool) {
        let mut last = self.call().await;
        self.disk.fail();
        self.write_until_refused().await;
        last.send(&json!({"type": "end"})).await;
        last.close_code(Duration::from_secs(5)).await;
        self.server.terminate();
        assert_eq!(self.server.ended(ENDED).await, Some(0));
        if cannot_start {
            // The end of the last call gave room back.
            self.disk.fail();
            let (code, log) = self.server.fails_to_start(ENDED).await;
            assert_eq!(code, Some(1), "{log}");
            // What the disk takes from a start first is its claim to the folder.
            assert!(
                log.contains("node.lock") || log.contains("database"),
                "{log}"
            );
        }
        self.disk.heal();
        self.server.start_again().await;
        let reason = self.expected.reason_after_restart;
        self.check_call(&last.session_id, reason).await;
        self.check_told(&last.session_id).await;
    }

    async fn check_sqlite(&self) {
        let db = self.server.database().await;
        let check = db.query("select integrity_check as found from pragma_integrity_check");
        assert_eq!(check.one(|row| row.text("found")).await.unwrap(), "ok");
        db.close().await;
    }
}

/// How often an end of this call is among the events.
fn told(got: &[Got], id: &str) -> usize {
    let ends = got.iter().filter(|got| got.event == "call.ended");
    ends.filter(|got| got.text("call_id") == id).count()
}

/// Text that does not compress.
fn noise(length: usize) -> String {
    let words = std::iter::repeat_with(|| uuid::Uuid::new_v4().simple().to_string());
    words.take(length / 32).collect()
}

#[tokio::test]
async fn sqlite_on_a_full_disk() {
    let _together = stage::together().await;
    let disk = SmallDisk::new(24);
    let data = disk.path().display().to_string();
    let enter = disk.enter();
    let setup = stage::setup()
        .through(&enter.iter().map(String::as_str).collect::<Vec<_>>())
        .set("SERVER__DATA_DIR", &data)
        .database(&format!("sqlite:{data}/sidetone.db"));
    let expected = Expected {
        recorded: false,
        // A recording that the disk cannot take is given up at the end of its call: that is room for the end.
        end_waits: false,
        // The journal has room of its own.
        reason_after_restart: "caller_hangup",
    };
    let mut scene = Scene::new(Disk::Small(disk), setup, expected).await;
    scene.walk().await;
    scene.restart(true).await;
}

#[tokio::test]
async fn sqlite_on_a_disk_that_fails() {
    let _together = stage::together().await;
    let faults = Injector::new();
    let environment = faults.environment("/sidetone-test");
    let setup = environment
        .iter()
        .fold(stage::setup(), |setup, (name, value)| {
            setup.env(name, value)
        });
    // Not on PostgreSQL, whatever the other tests run on.
    let folder = tempfile::Builder::new()
        .prefix("sidetone-test")
        .tempdir()
        .unwrap();
    let setup = setup.database(&format!("sqlite:{}/own.db", folder.path().display()));
    let expected = Expected {
        recorded: false,
        end_waits: true,
        // Neither the database nor the journal could be written before the process ended.
        reason_after_restart: "node_lost",
    };
    let disk = Disk::Injected(faults, Fault::Io);
    let mut scene = Scene::new(disk, setup, expected).await;
    scene.walk().await;
    scene.restart(true).await;
    scene.check_sqlite().await;
}

async fn postgres(fault: Fault) {
    let _together = stage::together().await;
    let faults = Injector::new();
    let database = Postgres::start_failing(&faults);
    let empty = database.database().await;
    let setup = stage::setup().database(&database.database().await);
    let expected = Expected {
        recorded: true,
        end_waits: true,
        reason_after_restart: "caller_hangup",
    };
    let disk = Disk::Injected(faults, fault);
    let mut scene = Scene::new(disk, setup, expected).await;
    scene.walk().await;
    scene.restart(false).await;
    // The start of a server whose tables cannot be made.
    scene.server.kill();
    scene.disk.fail();
    scene.server.set_env("DATABASE_URL", &empty);
    let (code, log) = scene.server.fails_to_start(ENDED).await;
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains("database"), "{log}");
    scene.disk.heal();
    scene.server.start_again().await;
}

#[tokio::test]
async fn postgres_on_a_full_disk() {
    postgres(Fault::Full).await;
}

#[tokio::test]
async fn postgres_on_a_disk_that_fails() {
    postgres(Fault::Io).await;
}
