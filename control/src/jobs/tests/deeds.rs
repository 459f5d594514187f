//! Deeds that must not be repeated: the process is killed before, between and after.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use uuid::Uuid;

use super::{LATER, Place, Point, Seen, Stage};
use crate::jobs::store::NOBODY_KNOWS;

/// A deed whose process was killed at that point; its claim is over.
async fn killed_at(point: Point) -> (Place, Arc<Stage>, Uuid) {
    let (place, stage) = (Place::new().await, Stage::new());
    let account = place.account("one").await;
    let id = place.add(account, "a door", true, 1).await;
    place.killed_at(&stage, point).await;
    (place, stage, id)
}

/// How often the deed was done.
fn deeds(stage: &Stage) -> usize {
    stage.deeds.lock().unwrap().len()
}

async fn work(place: &Place, stage: &Arc<Stage>) {
    place.roomy(stage).await.until_quiet().await;
}

#[tokio::test]
async fn a_deed_that_was_not_intended_yet_is_done() {
    let (place, stage, id) = killed_at(Point::Begun).await;
    work(&place, &stage).await;
    let Seen {
        status, intended, ..
    } = place.see(id).await;
    assert_eq!((status.as_str(), intended), ("done", false));
    assert_eq!(deeds(&stage), 1);
}

#[tokio::test]
async fn a_kill_between_intended_and_done_is_told_as_unknown() {
    for (point, done) in [(Point::Intended, 0), (Point::Did, 1)] {
        let (place, stage, id) = killed_at(point).await;
        assert_eq!(deeds(&stage), done);
        work(&place, &stage).await;
        let seen = place.see(id).await;
        assert_eq!(
            (seen.status.as_str(), seen.next, seen.done),
            ("unknown", None, false),
            "{point:?}"
        );
        let error = seen.error.unwrap();
        assert!(error.contains("It may have been done"), "{error}");
        // Nor on any later day.
        place.clock.advance(super::LEASE * 1000);
        work(&place, &stage).await;
        assert_eq!(deeds(&stage), done, "{point:?}");
        assert!(place.pages(id).await.is_empty());
    }
}

#[tokio::test]
async fn a_vendor_that_can_be_asked_tells() {
    for (point, before) in [(Point::Intended, 0), (Point::Did, 1)] {
        let (place, stage, id) = killed_at(point).await;
        stage.vendor_tells.store(true, Ordering::SeqCst);
        assert_eq!(deeds(&stage), before);
        work(&place, &stage).await;
        let seen = place.see(id).await;
        assert_eq!(
            (seen.status.as_str(), seen.intended, seen.error),
            ("done", false, None),
            "{point:?}"
        );
        assert_eq!(deeds(&stage), 1, "{point:?}");
        assert_eq!(place.pages(id).await, [0], "{point:?}");
    }
}

#[tokio::test]
async fn a_vendor_that_is_away_is_asked_again() {
    let (place, stage, id) = killed_at(Point::Did).await;
    stage.vendor_tells.store(true, Ordering::SeqCst);
    stage.vendor_away.store(true, Ordering::SeqCst);
    work(&place, &stage).await;
    let seen = place.see(id).await;
    assert_eq!((seen.status.as_str(), seen.intended), ("failed", true));
    place.clock.advance(LATER);
    stage.vendor_away.store(false, Ordering::SeqCst);
    work(&place, &stage).await;
    assert_eq!(place.see(id).await.status, "done");
    assert_eq!(deeds(&stage), 1);
}

#[tokio::test]
async fn a_known_end_outlives_a_database_that_is_away_for_a_moment() {
    let (place, stage) = (Place::new().await, Stage::new());
    let account = place.account("one").await;
    let id = place.add(account, "a door", true, 1).await;
    stage.refused.store(2, Ordering::SeqCst);
    work(&place, &stage).await;
    let seen = place.see(id).await;
    assert_eq!((seen.status.as_str(), seen.attempts), ("done", 1));
    assert_eq!(place.pages(id).await, [0]);
    assert_eq!(
        (deeds(&stage), stage.refused.load(Ordering::SeqCst)),
        (1, 0)
    );
}

#[tokio::test]
async fn a_lost_claim_intends_nothing() {
    let (place, stage) = (Place::new().await, Stage::new());
    let account = place.account("one").await;
    let id = place.add(account, "a door", true, 1).await;
    stage.stop_at(Point::Begun);
    let mut slow = place.roomy(&stage).await;
    slow.fill().await.unwrap();
    stage.reached.notified().await;
    stage.stop_at(None);
    place.clock.advance(super::LEASE);
    work(&place, &stage).await;
    stage.let_go(1);
    slow.one_done().await;
    assert_eq!(place.see(id).await.status, "done");
    assert_eq!(deeds(&stage), 1, "of the other");
}

#[tokio::test]
async fn a_cancelled_job_whose_deed_may_be_done_says_so() {
    let (place, stage, id) = killed_at(Point::Did).await;
    place.cancel(id).await;
    work(&place, &stage).await;
    let seen = place.see(id).await;
    assert_eq!(
        (seen.status.as_str(), seen.error.as_deref()),
        ("unknown", Some(NOBODY_KNOWS))
    );
    let (place, stage, id) = killed_at(Point::Begun).await;
    place.cancel(id).await;
    work(&place, &stage).await;
    let seen = place.see(id).await;
    assert_eq!((seen.status.as_str(), seen.error), ("canceled", None));
    assert_eq!(deeds(&stage), 0);
}
