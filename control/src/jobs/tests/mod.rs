//! Errands: a kind of job for the tests of this module, over a SQLite database. An errand has pages, one
//! step each, and may have a deed that must not be repeated. A test stops its steps at a point, or kills the
//! process there by dropping the worker.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod deeds;
mod worker;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use uuid::Uuid;

use super::{
    Answer, Claim, Ended, Finished, Found, Held, Kind, Lane, Lease, Left, Limits, Look, Plan,
    Queue, Table, Then, Worker,
};
use crate::db::{Arg, Db, DbError, Row, Tx};
use crate::ids::AccountId;
use crate::testing::{START, TempDir};
use crate::time::{Clock, Timestamp};

pub(super) const LEASE: Duration = Duration::from_secs(60);
/// How long an errand waits for a vendor that does not answer.
pub(super) const LATER: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Pending,
    Failed,
    Done,
    Canceled,
    Unknown,
}

/// Where a step can be stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Point {
    Begun,
    Intended,
    Did,
}

/// The world outside of the processes and their database.
#[derive(Default)]
pub(super) struct Stage {
    /// How many steps have each errand in hand.
    hands: Mutex<BTreeMap<Uuid, u32>>,
    /// Steps that had an errand in hand which another had, too.
    pub(super) twice: AtomicU32,
    pub(super) begun: Mutex<Vec<AccountId>>,
    /// What cannot be taken back.
    pub(super) deeds: Mutex<Vec<Uuid>>,
    pub(super) ended: Mutex<Vec<Status>>,
    stop: Mutex<Option<Point>>,
    pub(super) reached: Notify,
    gate: Option<Arc<Semaphore>>,
    /// Whether the vendor can tell what was done, and whether it answers.
    pub(super) vendor_tells: AtomicBool,
    pub(super) vendor_away: AtomicBool,
    /// How often the database goes away while an end is written down.
    pub(super) refused: AtomicU32,
}

impl Stage {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            gate: Some(Arc::new(Semaphore::new(0))),
            ..Self::default()
        })
    }

    /// Steps stop at this point from now on.
    pub(super) fn stop_at(&self, point: impl Into<Option<Point>>) {
        *self.stop.lock().unwrap() = point.into();
    }

    /// So many steps that were stopped go on.
    pub(super) fn let_go(&self, steps: usize) {
        self.gate.as_ref().unwrap().add_permits(steps);
    }

    async fn pass(&self, point: Point) {
        if *self.stop.lock().unwrap() == Some(point) {
            self.reached.notify_one();
            self.gate
                .as_ref()
                .unwrap()
                .acquire()
                .await
                .unwrap()
                .forget();
        }
    }

    pub(super) fn in_hand(&self) -> u32 {
        self.hands.lock().unwrap().values().sum()
    }
}

/// An errand in the hand of a step.
struct Hand<'a>(&'a Stage, Uuid);

impl<'a> Hand<'a> {
    fn new(stage: &'a Stage, id: Uuid) -> Self {
        let mut hands = stage.hands.lock().unwrap();
        let count = hands.entry(id).or_default();
        *count += 1;
        if *count > 1 {
            stage.twice.fetch_add(1, Ordering::SeqCst);
        }
        Self(stage, id)
    }
}

impl Drop for Hand<'_> {
    fn drop(&mut self) {
        *self.0.hands.lock().unwrap().get_mut(&self.1).unwrap() -= 1;
    }
}

/// Where an errand leads: one door lets a few in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Door(String);

impl Lane for Door {
    fn scarce(&self) -> Option<&str> {
        Some(&self.0)
    }
}

pub(super) struct Errand {
    is_deed: bool,
    pages: i64,
    cursor: i64,
}

pub(super) struct Errands {
    stage: Arc<Stage>,
    clock: Clock,
    limits: Limits,
    lease: Lease,
    queue: Queue,
}

fn finished(status: Status, next_attempt_at: Option<Timestamp>) -> Finished<Status> {
    Finished {
        status,
        next_attempt_at,
        error: None,
    }
}

impl Kind for Errands {
    type Status = Status;
    type Lane = Door;
    type Job = Errand;
    /// The page that was done.
    type Effect = i64;

    const TABLE: &'static Table = &Table {
        name: "errands",
        open: "status in ('pending', 'working', 'failed')",
        claimed: "working",
        columns: "is_deed, pages, page",
        done: Some(("done", "done_at")),
    };
    const UNKNOWN: Option<Status> = Some(Status::Unknown);

    fn word(status: Status) -> &'static str {
        match status {
            Status::Pending => "pending",
            Status::Failed => "failed",
            Status::Done => "done",
            Status::Canceled => "canceled",
            Status::Unknown => "unknown",
        }
    }

    fn read(row: &Row) -> Result<Errand, DbError> {
        Ok(Errand {
            is_deed: row.bool("is_deed")?,
            pages: row.i64("pages")?,
            cursor: row.i64("page")?,
        })
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn lease(&self) -> Lease {
        self.lease
    }

    fn longest_wait(&self) -> Option<Duration> {
        None
    }

    fn queue(&self) -> &Queue {
        &self.queue
    }

    async fn due(
        &self,
        look: &Look<'_>,
        full: &[Door],
    ) -> Result<Vec<Found<Door, Status>>, DbError> {
        let places = Look::FIRST..Look::FIRST + full.len();
        let except: String = places
            .map(|place| format!(" and door <> ${place}"))
            .collect();
        let values = full.iter().map(|door| Arg::from(&door.0)).collect();
        look.rows("id, door, is_canceled", &except, values, |row| {
            Ok(Found {
                id: row.parse("id")?,
                plan: match row.bool("is_canceled")? {
                    true => Plan::Close(Status::Canceled),
                    false => Plan::Run(Door(row.text("door")?)),
                },
            })
        })
        .await
    }

    async fn step(
        &self,
        claim: &Claim<Self>,
        _: Door,
        errand: Errand,
    ) -> Result<Ended<Status, i64>, Left> {
        let (stage, held) = (&self.stage, &claim.held);
        let _hand = Hand::new(stage, held.id);
        stage.begun.lock().unwrap().push(held.account);
        stage.pass(Point::Begun).await;
        if errand.is_deed {
            claim.intend().await?;
            stage.pass(Point::Intended).await;
            stage.deeds.lock().unwrap().push(held.id);
            stage.pass(Point::Did).await;
        }
        // Others come and go meanwhile.
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
        let last = errand.cursor + 1 == errand.pages;
        let ended = match last {
            true => Ended::new(finished(Status::Done, None)),
            false => {
                Ended::new(finished(Status::Pending, Some(self.clock.shared()))).then(Then::Step)
            }
        };
        Ok(ended.with(errand.cursor))
    }

    async fn ask(&self, claim: &Claim<Self>, errand: &Errand) -> Result<Answer<Status, i64>, Left> {
        let stage = &self.stage;
        if stage.vendor_away.load(Ordering::SeqCst) {
            let next = self.clock.shared().plus(LATER);
            let later = Ended::new(finished(Status::Failed, Some(next)));
            return Ok(Answer::Ended(later.then(Then::Ask)));
        }
        if !stage.vendor_tells.load(Ordering::SeqCst) {
            return Ok(Answer::Unknown);
        }
        match stage.deeds.lock().unwrap().contains(&claim.held.id) {
            true => {
                let done = Ended::new(finished(Status::Done, None));
                Ok(Answer::Ended(done.with(errand.cursor)))
            }
            false => Ok(Answer::NotDone),
        }
    }

    async fn keep(&self, tx: &mut Tx, held: &Held, page: &i64) -> Result<(), DbError> {
        tx.query("insert into pages (errand, page) values ($1, $2)")
            .bind(held.id.to_string())
            .bind(*page)
            .execute()
            .await?;
        if self.stage.refused.load(Ordering::SeqCst) > 0 {
            self.stage.refused.fetch_sub(1, Ordering::SeqCst);
            return Err(DbError::Away);
        }
        tx.query("update errands set page = page + 1 where id = $1")
            .bind(held.id.to_string())
            .execute()
            .await?;
        Ok(())
    }

    fn ended(&self, status: Status) {
        self.stage.ended.lock().unwrap().push(status);
    }
}

/// What a test reads of an errand.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) status: String,
    pub(super) attempts: i64,
    pub(super) next: Option<Timestamp>,
    pub(super) error: Option<String>,
    pub(super) intended: bool,
    pub(super) done: bool,
}

/// A database with errands.
pub(super) struct Place {
    pub(super) db: Db,
    pub(super) clock: Clock,
    url: String,
    _dir: TempDir,
}

impl Place {
    pub(super) async fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let url = format!("sqlite:{}", dir.path().join("jobs.db").display());
        let db = Db::open(&url).await.unwrap();
        db.migrate().await.unwrap();
        for sql in [
            "create table errands (id text primary key not null, account_id text not null, door text not null,
                is_deed boolean not null, is_canceled boolean not null default false, pages bigint not null,
                page bigint not null default 0, status text not null, attempts bigint not null default 0,
                next_attempt_at bigint, claim_token bigint not null default 0, last_error text,
                intended_at bigint, done_at bigint, updated_at bigint not null default 0)",
            "create index errands_due on errands (account_id, next_attempt_at)
                where status in ('pending', 'working', 'failed')",
            "create table pages (errand text not null, page bigint not null, primary key (errand, page))",
        ] {
            db.query(sql).execute().await.unwrap();
        }
        Self {
            db,
            clock: Clock::fixed(START),
            url,
            _dir: dir,
        }
    }

    pub(super) async fn account(&self, name: &str) -> AccountId {
        crate::accounts::ensure(&self.db, &self.clock, name)
            .await
            .unwrap()
    }

    /// Adds an errand that is due now.
    pub(super) async fn add(
        &self,
        account: AccountId,
        door: &str,
        is_deed: bool,
        pages: i64,
    ) -> Uuid {
        let id = Uuid::new_v4();
        self.db
            .query(
                "insert into errands (id, account_id, door, is_deed, pages, status, next_attempt_at)
                 values ($1, $2, $3, $4, $5, 'pending', $6)",
            )
            .bind(id.to_string())
            .bind(account)
            .bind(door)
            .bind(is_deed)
            .bind(pages)
            .bind(self.clock.shared())
            .execute()
            .await
            .unwrap();
        id
    }

    pub(super) async fn cancel(&self, id: Uuid) {
        let query = self
            .db
            .query("update errands set is_canceled = true where id = $1");
        assert_eq!(query.bind(id.to_string()).execute().await.unwrap(), 1);
    }

    /// Another process takes the claim.
    pub(super) async fn steal(&self, id: Uuid) {
        let query = self
            .db
            .query("update errands set claim_token = claim_token + 1 where id = $1");
        assert_eq!(query.bind(id.to_string()).execute().await.unwrap(), 1);
    }

    pub(super) async fn see(&self, id: Uuid) -> Seen {
        let query = self.db.query("select * from errands where id = $1");
        let seen = query.bind(id.to_string()).one(|row| {
            Ok(Seen {
                status: row.text("status")?,
                attempts: row.i64("attempts")?,
                next: row.opt_time("next_attempt_at")?,
                error: row.opt_text("last_error")?,
                intended: row.opt_time("intended_at")?.is_some(),
                done: row.opt_time("done_at")?.is_some(),
            })
        });
        seen.await.unwrap()
    }

    /// The pages of an errand that were done.
    pub(super) async fn pages(&self, id: Uuid) -> Vec<i64> {
        let query = self
            .db
            .query("select page from pages where errand = $1 order by page");
        query
            .bind(id.to_string())
            .all(|row| row.i64("page"))
            .await
            .unwrap()
    }

    /// Errands that are not settled.
    pub(super) async fn open(&self) -> i64 {
        let query = self
            .db
            .query("select count(*) as n from errands where next_attempt_at is not null");
        query.one(|row| row.i64("n")).await.unwrap()
    }

    /// A process, with a connection of its own.
    pub(super) async fn worker(
        &self,
        stage: &Arc<Stage>,
        limits: Limits,
        lease: Lease,
    ) -> Worker<Errands> {
        let kind = Errands {
            stage: stage.clone(),
            clock: self.clock.clone(),
            limits,
            lease,
            queue: Queue::default(),
        };
        let db = Db::open(&self.url).await.unwrap();
        Worker::new(kind, db, self.clock.clone())
    }

    /// A process with room for everything.
    pub(super) async fn roomy(&self, stage: &Arc<Stage>) -> Worker<Errands> {
        let limits = Limits {
            node: 64,
            account: 8,
            lane: 8,
        };
        self.worker(stage, limits, Lease::Bounded(LEASE)).await
    }

    /// A process that takes an errand, stops at that point and is killed there. The claim it leaves is over.
    pub(super) async fn killed_at(&self, stage: &Arc<Stage>, point: Point) {
        stage.stop_at(point);
        let mut worker = self.roomy(stage).await;
        worker.fill().await.unwrap();
        stage.reached.notified().await;
        drop(worker);
        stage.stop_at(None);
        self.clock.advance(LEASE);
    }
}
