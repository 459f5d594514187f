//! Jobs (`control::jobs`) on both engines: every statement, and workers that claim at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use control::accounts;
use control::db::{Db, DbError, Row, Tx};
use control::ids::AccountId;
use control::jobs::{
    Claim, Ended, Finished, Found, Held, Kind, Lease, Left, Limits, Look, Plan, Queue, Table, Then,
    Worker, store,
};
use control::time::{Clock, Timestamp};
use futures_util::future::join_all;
use uuid::Uuid;

const LEASE: Duration = Duration::from_secs(60);

/// Parcels: each is sent once.
struct Parcels {
    sent: Arc<AtomicU32>,
    queue: Queue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Waiting,
    Sent,
    Lost,
    Returned,
}

impl Kind for Parcels {
    type Status = Status;
    type Lane = ();
    type Job = i64;
    type Effect = i64;

    const TABLE: &'static Table = &Table {
        name: "parcels",
        open: "status in ('waiting', 'going')",
        claimed: "going",
        columns: "weight",
        done: Some(("sent", "sent_at")),
    };
    const UNKNOWN: Option<Status> = Some(Status::Lost);

    fn word(status: Status) -> &'static str {
        match status {
            Status::Waiting => "waiting",
            Status::Sent => "sent",
            Status::Lost => "lost",
            Status::Returned => "returned",
        }
    }

    fn read(row: &Row) -> Result<i64, DbError> {
        row.i64("weight")
    }

    fn limits(&self) -> Limits {
        Limits {
            node: 16,
            account: 4,
            lane: 1,
        }
    }

    fn lease(&self) -> Lease {
        Lease::Renewed(LEASE)
    }

    fn longest_wait(&self) -> Option<Duration> {
        None
    }

    fn queue(&self) -> &Queue {
        &self.queue
    }

    async fn due(&self, look: &Look<'_>, _: &[()]) -> Result<Vec<Found<(), Status>>, DbError> {
        look.rows("id", "", Vec::new(), |row| {
            Ok(Found {
                id: row.parse("id")?,
                plan: Plan::Run(()),
            })
        })
        .await
    }

    async fn step(
        &self,
        claim: &Claim<Self>,
        (): (),
        weight: i64,
    ) -> Result<Ended<Status, i64>, Left> {
        claim.intend().await?;
        self.sent.fetch_add(1, Ordering::SeqCst);
        Ok(Ended::new(finished(Status::Sent, None)).with(weight))
    }

    async fn keep(&self, tx: &mut Tx, held: &Held, weight: &i64) -> Result<(), DbError> {
        let receipt = tx.query("insert into receipts (parcel, weight) values ($1, $2)");
        let receipt = receipt.bind(held.id.to_string()).bind(*weight);
        receipt.execute().await.map(drop)
    }
}

const fn finished(status: Status, next_attempt_at: Option<Timestamp>) -> Finished<Status> {
    Finished {
        status,
        next_attempt_at,
        error: None,
    }
}

async fn tables(db: &Db) {
    for sql in [
        "create table parcels (id text primary key not null, account_id text not null, weight bigint not null,
            status text not null, attempts bigint not null default 0, next_attempt_at bigint,
            claim_token bigint not null default 0, last_error text, intended_at bigint, sent_at bigint,
            updated_at bigint not null)",
        "create index parcels_due on parcels (account_id, next_attempt_at) where status in ('waiting', 'going')",
        "create table receipts (parcel text primary key not null, weight bigint not null)",
    ] {
        db.query(sql).execute().await.unwrap();
    }
}

async fn add(db: &Db, account: AccountId, now: Timestamp) -> Uuid {
    let id = Uuid::new_v4();
    db.query(
        "insert into parcels (id, account_id, weight, status, next_attempt_at, updated_at)
         values ($1, $2, 7, 'waiting', $3, $3)",
    )
    .bind(id.to_string())
    .bind(account)
    .bind(now)
    .execute()
    .await
    .unwrap();
    id
}

async fn claim(db: &Db, account: AccountId, id: Uuid, now: Timestamp) -> Option<Held> {
    let mut tx = db.begin_write().await.unwrap();
    let claimed = store::claim::<Parcels>(&mut tx, account, id, now, now.plus(LEASE)).await;
    tx.commit().await.unwrap();
    claimed.unwrap().map(|(held, weight)| {
        assert_eq!(weight, 7);
        held
    })
}

#[tokio::test]
async fn every_statement_of_a_job_holds() {
    for place in crate::both().await {
        let (db, clock) = (&place.db, Clock::system());
        tables(db).await;
        let account = accounts::ensure(db, &clock, "a").await.unwrap();
        let now = clock.shared();
        let id = add(db, account, now).await;
        let due = store::due_accounts::<Parcels>(db, now).await.unwrap();
        assert_eq!(due, [account]);

        let first = claim(db, account, id, now).await.unwrap();
        assert_eq!(
            (first.token, first.attempts, first.intended_at),
            (1, 1, None)
        );
        assert_eq!(claim(db, account, id, now).await, None, "it is taken");
        let end = now.plus(LEASE);
        assert!(
            store::intend::<Parcels>(db, &first, now, end)
                .await
                .unwrap()
        );
        // Its process dies; the next one learns of the deed, keeps its claim, and cannot tell yet.
        let later = now.plus(LEASE);
        let second = claim(db, account, id, later).await.unwrap();
        assert_eq!(
            (second.token, second.attempts, second.intended_at),
            (2, 2, Some(now))
        );
        let end = later.plus(LEASE);
        assert!(!store::renew::<Parcels>(db, &first, end).await.unwrap());
        assert!(
            !store::intend::<Parcels>(db, &first, now, end)
                .await
                .unwrap()
        );
        assert!(store::renew::<Parcels>(db, &second, end).await.unwrap());
        let waits = finished(Status::Waiting, Some(later));
        let finish = async |held: &Held, finished: &Finished<Status>, then| {
            let written = store::finish::<Parcels>(db, held, finished, then, now);
            written.await.unwrap()
        };
        assert!(!finish(&first, &waits, Then::Ask).await);
        assert!(finish(&second, &waits, Then::Ask).await);
        assert!(!finish(&second, &waits, Then::Ask).await, "once");
        // A step of several is done.
        let third = claim(db, account, id, later).await.unwrap();
        assert_eq!((third.attempts, third.intended_at), (3, Some(now)));
        assert!(finish(&third, &waits, Then::Step).await);
        let fourth = claim(db, account, id, later).await.unwrap();
        assert_eq!((fourth.attempts, fourth.intended_at), (1, None));
        let mut tx = db.begin_write().await.unwrap();
        let sent = finished(Status::Sent, None);
        let written =
            store::finish_in::<Parcels>(&mut tx, &fourth, &sent, Then::Attempt, now).await;
        assert!(written.unwrap());
        tx.commit().await.unwrap();
        let query = db.query("select status, sent_at, next_attempt_at from parcels");
        let row = query.one(|row| {
            let sent_at = row.opt_time("sent_at")?;
            Ok((
                row.text("status")?,
                sent_at,
                row.opt_time("next_attempt_at")?,
            ))
        });
        let row = row.await.unwrap();
        assert_eq!(
            row,
            ("sent".to_owned(), Some(now), None),
            "{:?}",
            db.engine()
        );

        // Closed: as it is wanted, or as unknown where the deed is intended.
        let (plain, begun) = (add(db, account, now).await, add(db, account, now).await);
        let held = claim(db, account, begun, now).await.unwrap();
        assert!(store::intend::<Parcels>(db, &held, now, now).await.unwrap());
        let mut tx = db.begin_write().await.unwrap();
        for (id, how) in [
            (plain, Some(Status::Returned)),
            (begun, Some(Status::Lost)),
            (id, None),
        ] {
            let closed = store::close::<Parcels>(&mut tx, account, id, Status::Returned, now);
            assert_eq!(closed.await.unwrap(), how, "{:?}", db.engine());
        }
        tx.commit().await.unwrap();
        // Written by a clock that was ahead.
        let far = add(db, account, now.plus(LEASE * 100)).await;
        assert_eq!(store::mend::<Parcels>(db, now, LEASE).await.unwrap(), 1);
        assert!(claim(db, account, far, now).await.is_some());
    }
}

/// A claim waits for no other that is not committed yet: it leaves the row to whoever has it.
#[tokio::test]
async fn a_row_that_is_being_claimed_is_left_out() {
    let [_, place] = crate::both().await;
    let (db, clock) = (&place.db, Clock::system());
    tables(db).await;
    let account = accounts::ensure(db, &clock, "a").await.unwrap();
    let now = clock.shared();
    let id = add(db, account, now).await;
    let mut tx = db.begin_write().await.unwrap();
    let end = now.plus(LEASE);
    let first = store::claim::<Parcels>(&mut tx, account, id, now, end).await;
    assert!(first.unwrap().is_some());
    assert_eq!(claim(db, account, id, now).await, None);
    drop(tx);
    // What was not committed was never claimed. The end of a transaction that was dropped comes by itself.
    let claimed = async {
        loop {
            if let Some(held) = claim(db, account, id, now).await {
                return held;
            }
            tokio::task::yield_now().await;
        }
    };
    let held = tokio::time::timeout(LEASE, claimed).await.unwrap();
    assert_eq!((held.token, held.attempts), (1, 1));
}

#[tokio::test]
async fn several_workers_send_each_parcel_once() {
    for place in crate::both().await {
        let (db, clock) = (&place.db, Clock::system());
        tables(db).await;
        for name in ["a", "b", "c"] {
            let account = accounts::ensure(db, &clock, name).await.unwrap();
            for _ in 0..40 {
                add(db, account, clock.shared()).await;
            }
        }
        let sent = Arc::new(AtomicU32::new(0));
        let work = (0..4).map(async |_| {
            let kind = Parcels {
                sent: sent.clone(),
                queue: Queue::default(),
            };
            let mut worker = Worker::new(kind, db.clone(), clock.clone());
            worker.until_quiet().await;
        });
        join_all(work).await;
        assert_eq!(sent.load(Ordering::SeqCst), 120, "{:?}", db.engine());
        for (sql, many) in [
            ("select count(*) as n from receipts", 120),
            (
                "select count(*) as n from parcels where status = 'sent' and attempts = 1",
                120,
            ),
        ] {
            let count = db.query(sql).one(|row| row.i64("n")).await.unwrap();
            assert_eq!(count, many, "{sql}");
        }
    }
}
