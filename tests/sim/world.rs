//! One run's world: its time, the network between nodes and stores, what is broken, and an eye on what
//! must never happen.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use control::admission::command::Command;
use control::admission::policy::Caps;
use control::admission::{Health, Refusal};
use control::calls::journal::Entry;
use control::ids::{AccountId, CallId};
use control::time::{Moment, Timestamp};
use control::webhooks::event::Status;
use uuid::Uuid;

use crate::database::{Ask, CallRow, Database, Told};
use crate::executor::{Dice, Executor, Life, Slot, Time};
use crate::mutants::Mutant;
use crate::node::Node;
use crate::server::{Server, Snapshot};

pub(crate) const MS: Time = 1000;
pub(crate) const SECOND: Time = 1_000_000;
/// The wall time at which a run begins.
pub(crate) const START: Timestamp = Timestamp(1_767_323_045_000_006);
/// How long a node waits for an answer of the lease store (`redis_link::OPERATION`), and how many may
/// stay out in a row.
const OPERATION: Time = 150 * MS;
const TOLERATED: u32 = 3;

pub(crate) type W = Rc<World>;

/// A transaction without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// Nothing was done.
    Before,
    /// It may have been done.
    Unsure,
}

/// What happened at the stores, in order: `real.rs` does it again at real ones.
pub(crate) enum Step {
    Ask(Ask, Told),
    Lease(Command, Vec<String>, Moment),
    /// These keys ran out.
    RanOut(Vec<String>),
    Flushed,
    Copied,
    Replaced,
}

/// What is broken, until when.
#[derive(Default)]
pub(crate) struct Broken {
    cut_redis: Vec<Time>,
    cut_db: Vec<Time>,
    db_away: Time,
    redis_asleep: Time,
    redis_down: Time,
    receiver_down: Time,
}

pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) executor: Executor,
    dice: RefCell<Dice>,
    pub(crate) mutant: Option<Mutant>,
    pub(crate) caps: Caps,
    pub(crate) db: RefCell<Database>,
    pub(crate) server: RefCell<Server>,
    replica: RefCell<Option<Snapshot>>,
    /// Counts the processes of the lease store: what was on its way to one that died is lost.
    redis_process: Cell<u32>,
    redis_offset: Cell<i64>,
    broken: RefCell<Broken>,
    pub(crate) nodes: Vec<RefCell<Node>>,
    /// The calls that an engine has, by the life of its process.
    pub(crate) placed: RefCell<BTreeMap<CallId, Life>>,
    /// Ends of which a writer said that they are kept.
    pub(crate) promised: RefCell<BTreeSet<CallId>>,
    /// What the receiver was sent: bodies, and whether it took one.
    pub(crate) received: RefCell<BTreeMap<CallId, (String, u32, bool)>>,
    last_beat: RefCell<BTreeMap<i64, Time>>,
    claims: RefCell<BTreeMap<CallId, i64>>,
    pub(crate) wrong: RefCell<Vec<String>>,
    pub(crate) steps: RefCell<Option<Vec<Step>>>,
    pub(crate) story: RefCell<Option<Vec<String>>>,
    calls: Cell<u128>,
    /// How badly receivers do, per cent.
    pub(crate) failing: u64,
    /// When the storm is over: nobody connects or joins any more.
    pub(crate) storm: Cell<Time>,
    /// When each call ended.
    pub(crate) ended: RefCell<BTreeMap<CallId, Time>>,
    /// A clock was set: sessions may wait for longer than a minute.
    pub(crate) clocks_jumped: Cell<bool>,
}

impl World {
    pub(crate) fn new(seed: u64, nodes: usize, caps: Caps, mutant: Option<Mutant>) -> W {
        let failing = [0, 30, 30, 100][(seed % 4) as usize];
        let mut db = Database::default();
        db.mutant = mutant;
        Rc::new(Self {
            seed,
            executor: Executor::new(nodes),
            dice: RefCell::new(Dice::new(seed)),
            mutant,
            caps,
            db: RefCell::new(db),
            server: RefCell::new(Server::new(caps, mutant)),
            replica: RefCell::default(),
            redis_process: Cell::new(0),
            redis_offset: Cell::new(0),
            broken: RefCell::new(Broken {
                cut_redis: vec![0; nodes],
                cut_db: vec![0; nodes],
                ..Broken::default()
            }),
            nodes: (0..nodes)
                .map(|node| RefCell::new(Node::new(node)))
                .collect(),
            placed: RefCell::default(),
            promised: RefCell::default(),
            received: RefCell::default(),
            last_beat: RefCell::default(),
            claims: RefCell::default(),
            wrong: RefCell::default(),
            steps: RefCell::default(),
            story: RefCell::default(),
            calls: Cell::new(0),
            failing,
            storm: Cell::new(0),
            ended: RefCell::default(),
            clocks_jumped: Cell::new(false),
        })
    }

    pub(crate) fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    pub(crate) fn now(&self) -> Time {
        self.executor.now()
    }

    pub(crate) fn roll(&self, sides: u64) -> u64 {
        self.dice.borrow_mut().roll(sides.max(1))
    }

    pub(crate) fn between(&self, low: Time, high: Time) -> Time {
        low + self.roll(high - low + 1)
    }

    pub(crate) async fn sleep(&self, time: Time) {
        self.executor.sleep(time).await;
    }

    /// A line of the story, for somebody who replays the run.
    pub(crate) fn say(&self, line: impl FnOnce() -> String) {
        if let Some(story) = &mut *self.story.borrow_mut() {
            let now = self.now();
            story.push(format!("{:>10.3} {}", now as f64 / 1e6, line()));
        }
    }

    pub(crate) fn fail(&self, what: String) {
        self.say(|| format!("WRONG: {what}"));
        let mut wrong = self.wrong.borrow_mut();
        if wrong.len() < 20 {
            wrong.push(format!("at {:.3} s: {what}", self.now() as f64 / 1e6));
        }
    }

    pub(crate) fn next_call(&self) -> CallId {
        let number = self.calls.get() + 1;
        self.calls.set(number);
        CallId(Uuid::from_u128(u128::from(self.seed) << 32 | number))
    }

    /// The clock on a node's wall.
    pub(crate) fn wall(&self, node: usize) -> Timestamp {
        let offset = self.nodes[node].borrow().clock_offset;
        Timestamp(START.0 + self.now() as i64 + offset)
    }

    /// The lease clock.
    pub(crate) fn lease_clock(&self) -> Moment {
        Moment::from_micros(START.0 + self.now() as i64 + self.redis_offset.get())
    }

    fn note(&self, step: impl FnOnce() -> Step) {
        if let Some(steps) = &mut *self.steps.borrow_mut() {
            steps.push(step());
        }
    }

    // The database.

    fn reaches_db(&self, node: usize) -> bool {
        let (broken, now) = (self.broken.borrow(), self.now());
        broken.db_away <= now && broken.cut_db[node] <= now
    }

    /// One transaction, from a node and back.
    pub(crate) async fn ask(self: &Rc<Self>, life: Life, ask: Ask) -> Result<Told, Lost> {
        let node = life.node;
        if !self.reaches_db(node) {
            self.sleep(self.between(MS, 20 * MS)).await;
            return Err(Lost::Before);
        }
        let there = match self.roll(200) {
            0 => self.between(100 * MS, 3 * SECOND),
            _ => self.between(MS / 5, 4 * MS),
        };
        let back = self.between(MS / 5, 2 * MS);
        // Now and then an answer is lost although nothing else is.
        let swallowed = self.roll(400) == 0;
        let slot = Slot::default();
        let (world, answer) = (self.clone(), slot.clone());
        self.executor.at(self.now() + there, move || {
            if !world.reaches_db(node) {
                // Whether the commit was on its way, nobody can tell.
                let lost = match world.roll(2) {
                    0 => Lost::Before,
                    _ => Lost::Unsure,
                };
                return answer.fill(&world.executor, Err(lost));
            }
            let told = world.run(&ask);
            let again = world.clone();
            world.executor.at(world.now() + back, move || {
                let got = if swallowed || !again.reaches_db(node) {
                    Err(Lost::Unsure)
                } else {
                    Ok(told)
                };
                answer.fill(&again.executor, got);
            });
        });
        match slot.within(&self.executor, 5 * SECOND).await {
            Some(told) => told,
            None => Err(Lost::Unsure),
        }
    }

    /// One transaction, now.
    pub(crate) fn run(&self, ask: &Ask) -> Told {
        let about = match ask {
            Ask::Join { call, .. } | Ask::End { call, .. } | Ask::Claim { call, .. } => Some(*call),
            Ask::Write { owner, .. } => Some(owner.call),
            Ask::Finish { call, .. } => Some(*call),
            _ => None,
        };
        let before = about.and_then(|call| self.db.borrow().calls.get(&call).cloned());
        let told = self.db.borrow_mut().run(ask);
        self.note(|| Step::Ask(ask.clone(), told.clone()));
        let db = self.db.borrow();
        if let (Some(call), Some(before)) = (about, before)
            && let Some(after) = db.calls.get(&call)
        {
            if before.ended_at.is_some()
                && (before.ended_at, &before.reason, &before.turns)
                    != (after.ended_at, &after.reason, &after.turns)
            {
                self.fail(format!("{call}: what had ended was changed"));
            }
            let host = after.host.as_ref().map_or(0, |(_, number)| *number);
            if before.ended_at.is_none() && after.ended_at.is_some() {
                self.ended.borrow_mut().insert(call, self.now());
                if after.ended_under != host {
                    self.fail(format!(
                        "{call}: ended under {} for {host}",
                        after.ended_under
                    ));
                }
                let node = after.host.as_ref().map(|(name, _)| name.as_str());
                let reason = after.reason.as_deref().unwrap_or_default();
                self.say(|| format!("{call} ends: {reason} (at {node:?}:{host})"));
            }
            if after.joined > 1 {
                self.fail(format!("{call}: {} joined", after.joined));
            }
            if let Ask::Write { owner, entries } = ask {
                let turns = entries
                    .iter()
                    .any(|entry| matches!(entry, Entry::Turn { .. }));
                if turns && before.turns != after.turns && owner.incarnation != host {
                    self.fail(format!("{call}: a stranger wrote a turn"));
                }
            }
        }
        match (ask, &told) {
            (Ask::Beat { incarnation, .. }, Told::Flag(true))
            | (Ask::Register { incarnation, .. }, _) => {
                self.last_beat.borrow_mut().insert(*incarnation, self.now());
            }
            (Ask::Bury { incarnation, .. }, Told::Flag(true)) => {
                let beat = self.last_beat.borrow().get(incarnation).copied();
                let silent = self.now() - beat.unwrap_or(0);
                self.say(|| format!("incarnation {incarnation} is taken for dead"));
                if silent < 6 * SECOND {
                    self.fail(format!("buried after {} ms of silence", silent / MS));
                }
            }
            (Ask::Claim { call, .. }, Told::Claimed(Some((token, _, body)))) => {
                let older = self.claims.borrow_mut().insert(*call, *token);
                if older.is_some_and(|older| older >= *token) {
                    self.fail(format!("{call}: claim {token} after {older:?}"));
                }
                if let Some((first, ..)) = self.received.borrow().get(call)
                    && first != body
                {
                    self.fail(format!("{call}: its body is another"));
                }
            }
            (Ask::Finish { call, token, .. }, Told::Flag(true))
                if self.claims.borrow().get(call) != Some(token) =>
            {
                self.fail(format!("{call}: a stale claim was finished"));
            }
            _ => {}
        }
        told
    }

    // The lease store.

    fn reaches_redis(&self, node: usize) -> bool {
        let (broken, now) = (self.broken.borrow(), self.now());
        broken.redis_down <= now && broken.cut_redis[node] <= now
    }

    /// A connection, if there is none: whether there is one now.
    pub(crate) async fn connect(&self, life: Life) -> bool {
        if self.nodes[life.node].borrow().link_up {
            return true;
        }
        let asleep = self.broken.borrow().redis_asleep > self.now();
        let there = self.reaches_redis(life.node) && !asleep;
        self.sleep(if there { MS } else { 200 * MS }).await;
        if there {
            let mut node = self.nodes[life.node].borrow_mut();
            node.link_up = true;
            node.silent = 0;
        }
        there
    }

    /// One script, from a node and back (`redis_link::Link::run`).
    pub(crate) async fn lease(
        self: &Rc<Self>,
        life: Life,
        command: Command,
    ) -> Result<Vec<String>, Refusal> {
        if !self.nodes[life.node].borrow().link_up {
            self.set_health(life, Health::Away);
            return Err(Refusal::unavailable());
        }
        let now = self.now();
        if self.broken.borrow().redis_down > now {
            self.sleep(MS).await;
            self.cut(life);
            self.set_health(life, Health::Away);
            return Err(Refusal::unavailable());
        }
        let quick = self.between(MS / 10, MS);
        let there = {
            let broken = self.broken.borrow();
            let cut = broken.cut_redis[life.node];
            if cut > now {
                // Lost, or it waits on the way until the network is back.
                (self.roll(2) == 0).then(|| cut.min(now + 12 * SECOND) + quick)
            } else {
                Some(match self.roll(150) {
                    0 => now + self.between(50 * MS, 400 * MS),
                    1 => now + self.between(SECOND, 12 * SECOND),
                    _ => now + quick,
                })
            }
        };
        let slot = Slot::default();
        if let Some(arrives) = there {
            let back = match self.roll(150) {
                0 => self.between(50 * MS, 400 * MS),
                _ => self.between(MS / 10, MS),
            };
            let (world, answer, process) = (self.clone(), slot.clone(), self.redis_process.get());
            self.executor.at(arrives, move || {
                world.arrive(life, command, process, back, answer)
            });
        }
        match slot.within(&self.executor, OPERATION).await {
            Some(answer) => {
                self.nodes[life.node].borrow_mut().silent = 0;
                Ok(answer)
            }
            None => {
                let silent = {
                    let mut node = self.nodes[life.node].borrow_mut();
                    node.silent += 1;
                    node.silent
                };
                if silent >= TOLERATED {
                    self.cut(life);
                }
                Err(Refusal::error())
            }
        }
    }

    /// A script is at the server, which may sleep.
    fn arrive(
        self: Rc<Self>,
        life: Life,
        command: Command,
        process: u32,
        back: Time,
        answer: Slot<Vec<String>>,
    ) {
        let asleep = self.broken.borrow().redis_asleep;
        if asleep > self.now() {
            let wakes = asleep + self.between(0, 5 * MS);
            let world = self.clone();
            return self.executor.at(wakes, move || {
                world.arrive(life, command, process, back, answer)
            });
        }
        if self.redis_process.get() != process {
            return;
        }
        let words = self.run_lease(&command);
        let world = self.clone();
        self.executor.at(self.now() + back, move || {
            if world.broken.borrow().cut_redis[life.node] <= world.now() {
                answer.fill(&world.executor, words);
            }
        });
    }

    /// One script, now.
    pub(crate) fn run_lease(&self, command: &Command) -> Vec<String> {
        let now = self.lease_clock();
        let mut server = self.server.borrow_mut();
        let ran_out = server.ran_out(now);
        if !ran_out.is_empty() {
            self.note(|| Step::RanOut(ran_out));
        }
        let words = server.run(command, now);
        drop(server);
        if let Command::Release { lease, .. } = command
            && words == ["ok"]
        {
            self.slot_is_free(*lease);
        }
        self.note(|| Step::Lease(command.clone(), words.clone(), now));
        words
    }

    fn cut(&self, life: Life) {
        let mut node = self.nodes[life.node].borrow_mut();
        if std::mem::take(&mut node.link_up) {
            node.trouble.fill(&self.executor, ());
        }
    }

    /// What a node knows of the lease store (`lease::Redis::note`).
    pub(crate) fn set_health(&self, life: Life, health: Health) {
        let mut node = self.nodes[life.node].borrow_mut();
        if node.health == Health::Ready && health != Health::Ready {
            node.trouble.fill(&self.executor, ());
        }
        node.health = health;
    }

    // Faults.

    pub(crate) fn cut_redis(&self, node: usize, time: Time) {
        self.broken.borrow_mut().cut_redis[node] = self.now() + time;
    }

    pub(crate) fn cut_db(&self, node: usize, time: Time) {
        self.broken.borrow_mut().cut_db[node] = self.now() + time;
    }

    pub(crate) fn db_away(&self, time: Time) {
        self.broken.borrow_mut().db_away = self.now() + time;
    }

    pub(crate) fn redis_sleeps(&self, time: Time) {
        self.broken.borrow_mut().redis_asleep = self.now() + time;
    }

    pub(crate) fn redis_restarts(&self, time: Time) {
        self.broken.borrow_mut().redis_down = self.now() + time;
        self.redis_process.set(self.redis_process.get() + 1);
        self.server.borrow_mut().replace(None);
        self.note(|| Step::Flushed);
    }

    pub(crate) fn redis_forgets(&self) {
        self.server.borrow_mut().flush();
        self.note(|| Step::Flushed);
    }

    /// From now on the replica gets nothing more.
    pub(crate) fn replica_falls_behind(&self) {
        let now = self.lease_clock();
        let mut server = self.server.borrow_mut();
        let ran_out = server.ran_out(now);
        self.note(|| Step::RanOut(ran_out));
        *self.replica.borrow_mut() = Some(server.snapshot());
        self.note(|| Step::Copied);
    }

    pub(crate) fn replica_takes_over(&self) {
        let Some(snapshot) = self.replica.borrow_mut().take() else {
            return;
        };
        self.redis_process.set(self.redis_process.get() + 1);
        self.server.borrow_mut().replace(Some(snapshot));
        self.note(|| Step::Replaced);
    }

    pub(crate) fn receiver_fails(&self, time: Time) {
        self.broken.borrow_mut().receiver_down = self.now() + time;
    }

    pub(crate) fn set_redis_clock(&self, offset: i64) {
        self.clocks_jumped.set(true);
        self.redis_offset.set(offset);
    }

    pub(crate) fn set_node_clock(&self, node: usize, offset: i64) {
        self.clocks_jumped.set(true);
        self.nodes[node].borrow_mut().clock_offset = offset;
    }

    /// Everything works from now on.
    pub(crate) fn heal(&self) {
        let nodes = self.nodes.len();
        *self.broken.borrow_mut() = Broken {
            cut_redis: vec![0; nodes],
            cut_db: vec![0; nodes],
            ..Broken::default()
        };
        self.redis_offset.set(0);
        for node in 0..nodes {
            self.executor.put_to_sleep(node, 0);
            self.nodes[node].borrow_mut().clock_offset = 0;
        }
    }

    // What must never happen.

    /// Called when an engine has taken a call.
    pub(crate) fn place(&self, call: CallId, life: Life) {
        let other = self.placed.borrow_mut().insert(call, life);
        if let Some(other) = other {
            self.fail(format!("{call} is at {other:?} and at {life:?}"));
        }
        self.say(|| format!("{call} is placed at node {}", life.node));
        self.count_live();
    }

    /// No call lives whose slot was given back: another's would make one too many.
    fn slot_is_free(&self, lease: CallId) {
        let open = |row: &CallRow| row.ended_at.is_none();
        let lives = self.placed.borrow().contains_key(&lease);
        if lives && self.db.borrow().calls.get(&lease).is_some_and(open) {
            self.fail(format!("{lease} lives, and its slot was given back"));
        }
    }

    /// No more calls live than the caps say: on the engine of a process that runs, and open in the
    /// database.
    fn count_live(&self) {
        let db = self.db.borrow();
        let mut of_accounts: BTreeMap<AccountId, u32> = BTreeMap::new();
        let mut of_nodes: BTreeMap<usize, u32> = BTreeMap::new();
        let mut all = 0;
        for (call, life) in &*self.placed.borrow() {
            let row = db.calls.get(call).filter(|row| row.ended_at.is_none());
            if let Some(row) = row {
                *of_accounts.entry(row.account).or_default() += 1;
                *of_nodes.entry(life.node).or_default() += 1;
                all += 1;
            }
        }
        if all > self.caps.pool {
            self.fail(format!("{all} calls live, the pool has {}", self.caps.pool));
        }
        for live in of_accounts
            .values()
            .filter(|live| **live > self.caps.account)
        {
            self.fail(format!("{live} calls of one account live"));
        }
        for live in of_nodes.values().filter(|live| **live > self.caps.node) {
            self.fail(format!("{live} calls live on one node"));
        }
    }

    /// The receiver is sent an event: whether it takes it, or `None` when it does not answer.
    pub(crate) fn receive(&self, call: CallId, body: &str) -> Option<bool> {
        let away = self.broken.borrow().receiver_down > self.now();
        if away && self.roll(2) == 0 {
            return None;
        }
        let takes = !away && self.roll(100) >= self.failing;
        let mut received = self.received.borrow_mut();
        let (first, times, taken) = received
            .entry(call)
            .or_insert_with(|| (body.to_owned(), 0, false));
        *times += 1;
        *taken |= takes;
        let differs = *first != body;
        drop(received);
        if differs {
            self.fail(format!("{call}: another body was sent"));
        }
        Some(takes)
    }

    /// Whether some event is to be delivered by then: spares a look that would find none.
    pub(crate) fn has_due(&self, now: Timestamp) -> bool {
        self.db.borrow().events.values().any(|event| {
            let open = matches!(
                event.status,
                Status::Pending | Status::Failed | Status::Delivering
            );
            open && event.next.is_some_and(|next| next <= now)
        })
    }
}

/// As a duration.
pub(crate) const fn duration(time: Time) -> Duration {
    Duration::from_micros(time)
}
