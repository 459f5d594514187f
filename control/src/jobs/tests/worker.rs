//! Claims, leases, fairness and steps: two workers on one table, processes that die, claims that are lost.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{LEASE, Place, Point, Seen, Stage, Status};
use crate::jobs::{Lease, Limits};

/// Waits until that holds.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < Duration::from_secs(10), "{what}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_workers_never_hold_one_job_at_once() {
    let (place, stage) = (Place::new().await, Stage::new());
    let mut errands = Vec::new();
    for number in 0..5 {
        let account = place.account(&format!("account {number}")).await;
        for _ in 0..40 {
            errands.push(place.add(account, "a door", number == 0, 3).await);
        }
    }
    let (mut one, mut two) = (place.roomy(&stage).await, place.roomy(&stage).await);
    let work = async |worker: &mut crate::jobs::Worker<super::Errands>| {
        while place.open().await > 0 {
            worker.until_quiet().await;
        }
    };
    tokio::join!(work(&mut one), work(&mut two));
    assert_eq!(stage.twice.load(Ordering::SeqCst), 0, "two hands on one");
    for id in errands {
        assert_eq!(place.pages(id).await, [0, 1, 2]);
        let Seen {
            status, attempts, ..
        } = place.see(id).await;
        assert_eq!((status.as_str(), attempts), ("done", 1), "of its last step");
    }
    assert_eq!(stage.begun.lock().unwrap().len(), 600, "each step once");
    assert_eq!(stage.deeds.lock().unwrap().len(), 120);
}

#[tokio::test]
async fn a_job_whose_process_died_is_due_when_its_claim_is_over() {
    let (place, stage) = (Place::new().await, Stage::new());
    let account = place.account("one").await;
    let id = place.add(account, "a door", false, 1).await;
    stage.stop_at(Point::Begun);
    let mut killed = place.roomy(&stage).await;
    killed.fill().await.unwrap();
    stage.reached.notified().await;
    drop(killed);
    stage.stop_at(None);
    let mut worker = place.roomy(&stage).await;
    worker.until_quiet().await;
    place.clock.advance(LEASE - Duration::from_micros(1));
    worker.until_quiet().await;
    let seen = place.see(id).await;
    assert_eq!((seen.status.as_str(), seen.attempts), ("working", 1));
    place.clock.advance(Duration::from_micros(1));
    worker.until_quiet().await;
    let seen = place.see(id).await;
    assert_eq!(
        (seen.status.as_str(), seen.attempts, seen.next, seen.done),
        ("done", 2, None, true)
    );
    assert_eq!(place.pages(id).await, [0]);
}

#[tokio::test]
async fn what_ends_after_its_claim_writes_neither_its_end_nor_its_effect() {
    let (place, stage) = (Place::new().await, Stage::new());
    let account = place.account("one").await;
    let id = place.add(account, "a door", false, 2).await;
    stage.stop_at(Point::Begun);
    let mut slow = place.roomy(&stage).await;
    slow.fill().await.unwrap();
    stage.reached.notified().await;
    stage.stop_at(None);
    place.clock.advance(LEASE);
    let mut other = place.roomy(&stage).await;
    other.fill().await.unwrap();
    other.one_done().await;
    let before = place.see(id).await;
    assert_eq!(
        (before.status.as_str(), place.pages(id).await),
        ("pending", vec![0])
    );
    stage.let_go(1);
    slow.one_done().await;
    assert_eq!(place.see(id).await, before);
    assert_eq!(place.pages(id).await, [0]);
    assert_eq!(*stage.ended.lock().unwrap(), [Status::Pending], "of one");
}

#[tokio::test]
async fn a_step_that_takes_long_keeps_its_claim() {
    let (place, stage) = (Place::new().await, Stage::new());
    let account = place.account("one").await;
    let id = place.add(account, "a door", false, 1).await;
    let lease = Duration::from_millis(600);
    let limits = Limits {
        node: 1,
        account: 1,
        lane: 1,
    };
    stage.stop_at(Point::Begun);
    let mut slow = place.worker(&stage, limits, Lease::Renewed(lease)).await;
    slow.fill().await.unwrap();
    stage.reached.notified().await;
    stage.stop_at(None);
    let mut other = place.roomy(&stage).await;
    for _ in 0..3 {
        // Half the claim passes, and it is whole again.
        place.clock.advance(lease / 2);
        let whole = place.clock.shared().plus(lease);
        until("it is renewed", async || {
            place.see(id).await.next == Some(whole)
        })
        .await;
        other.until_quiet().await;
    }
    assert_eq!(place.see(id).await.attempts, 1);
    stage.let_go(1);
    slow.one_done().await;
    assert_eq!(place.see(id).await.status, "done");
    assert_eq!(stage.begun.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_step_whose_claim_is_lost_is_dropped() {
    let (place, stage) = (Place::new().await, Stage::new());
    let account = place.account("one").await;
    let id = place.add(account, "a door", false, 1).await;
    let limits = Limits {
        node: 1,
        account: 1,
        lane: 1,
    };
    let lease = Lease::Renewed(Duration::from_millis(60));
    stage.stop_at(Point::Begun);
    let mut worker = place.worker(&stage, limits, lease).await;
    worker.fill().await.unwrap();
    stage.reached.notified().await;
    assert_eq!(stage.in_hand(), 1);
    place.steal(id).await;
    worker.one_done().await;
    assert_eq!(stage.in_hand(), 0);
    assert_eq!(place.see(id).await.status, "working", "it is the other's");
    assert!(place.pages(id).await.is_empty());
    assert!(stage.ended.lock().unwrap().is_empty());
}

#[tokio::test]
async fn an_account_with_ten_thousand_jobs_starves_no_other() {
    let (place, stage) = (Place::new().await, Stage::new());
    let (many, few) = (place.account("many").await, place.account("few").await);
    let rows = place
        .db
        .query(
            "insert into errands (id, account_id, door, is_deed, pages, status, next_attempt_at)
             with recursive numbers (n) as (select 1 union all select n + 1 from numbers where n < 10000)
             select printf('00000000-0000-4000-8000-%012x', n), $1, 'door ' || n, false, 1, 'pending', $2
             from numbers",
        )
        .bind(many)
        .bind(place.clock.shared().minus(Duration::from_secs(3600)))
        .execute();
    assert_eq!(rows.await.unwrap(), 10_000);
    // Each has waited for an hour less.
    let mut last = Vec::new();
    for _ in 0..5 {
        last.push(place.add(few, "a door", false, 1).await);
    }
    let limits = Limits {
        node: 4,
        account: 4,
        lane: 4,
    };
    let lease = Lease::Bounded(LEASE);
    let mut worker = place.worker(&stage, limits, lease).await;
    let begun = || {
        let begun = stage.begun.lock().unwrap();
        let few = begun.iter().filter(|account| **account == few).count();
        (few, begun.len() - few)
    };
    while begun().0 < 5 {
        worker.fill().await.unwrap();
        worker.one_done().await;
        // Between two of theirs each has its share once.
        assert!(begun().1 <= 4 * 6, "{:?} began", begun());
    }
    worker.one_done().await;
    for id in last {
        assert_eq!(place.see(id).await.status, "done");
    }
}

#[tokio::test]
async fn a_closed_door_hides_no_other() {
    let (place, stage) = (Place::new().await, Stage::new());
    let account = place.account("one").await;
    // More than are read at once.
    for _ in 0..40 {
        place.add(account, "the closed one", false, 1).await;
    }
    place.clock.advance(Duration::from_millis(1));
    let beside = place.add(account, "the open one", false, 1).await;
    let limits = Limits {
        node: 64,
        account: 8,
        lane: 2,
    };
    let lease = Lease::Bounded(LEASE);
    let mut worker = place.worker(&stage, limits, lease).await;
    stage.stop_at(Point::Begun);
    worker.fill().await.unwrap();
    assert_eq!(place.see(beside).await.attempts, 1);
    until("three steps", async || stage.in_hand() == 3).await;
    stage.stop_at(None);
    stage.let_go(3);
    worker.until_quiet().await;
    assert_eq!(place.open().await, 0);
}

#[tokio::test]
async fn a_kill_repeats_the_step_in_hand_and_no_other() {
    let (place, stage) = (Place::new().await, Stage::new());
    let account = place.account("one").await;
    let id = place.add(account, "a door", false, 5).await;
    for page in 0..5 {
        assert_eq!(place.pages(id).await.len(), page);
        place.killed_at(&stage, Point::Begun).await;
        assert_eq!(place.see(id).await.attempts, 1, "counted anew each step");
        let mut worker = place.roomy(&stage).await;
        worker.fill().await.unwrap();
        worker.one_done().await;
    }
    assert_eq!(place.see(id).await.status, "done");
    assert_eq!(place.pages(id).await, [0, 1, 2, 3, 4]);
    assert_eq!(stage.begun.lock().unwrap().len(), 10);
}

#[tokio::test]
async fn a_cancelled_job_ends_the_step_in_hand_and_begins_no_other() {
    let (place, stage) = (Place::new().await, Stage::new());
    let account = place.account("one").await;
    let id = place.add(account, "a door", false, 5).await;
    stage.stop_at(Point::Begun);
    let mut worker = place.roomy(&stage).await;
    worker.fill().await.unwrap();
    stage.reached.notified().await;
    place.cancel(id).await;
    stage.let_go(1);
    worker.until_quiet().await;
    let seen = place.see(id).await;
    assert_eq!(
        (seen.status.as_str(), seen.next, seen.done),
        ("canceled", None, false)
    );
    assert_eq!(place.pages(id).await, [0]);
    assert_eq!(
        *stage.ended.lock().unwrap(),
        [Status::Pending, Status::Canceled]
    );
}
