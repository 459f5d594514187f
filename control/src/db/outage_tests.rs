//! What looks and questions say of a database, by a probe that sees what a test tells it.

#![allow(clippy::unwrap_used, reason = "a test may stop at a surprise")]

use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use super::*;

/// Sees what comes over the channel, one a look.
#[derive(Debug)]
struct Script {
    seen: tokio::sync::Mutex<UnboundedReceiver<Seen>>,
    /// Of each look that began, whether it was to try a write.
    looks: watch::Sender<Vec<bool>>,
}

impl Probe for Script {
    async fn look(&self, writes: bool) -> Seen {
        self.looks.send_modify(|looks| looks.push(writes));
        let mut seen = self.seen.lock().await;
        match seen.recv().await {
            Some(seen) => seen,
            None => std::future::pending().await,
        }
    }

    fn is_closed(&self) -> bool {
        false
    }
}

struct Stage {
    outage: Outage<Script>,
    tell: UnboundedSender<Seen>,
}

impl Stage {
    fn new() -> Self {
        let (tell, seen) = mpsc::unbounded_channel();
        let outage = Outage::new(Script {
            seen: tokio::sync::Mutex::new(seen),
            looks: watch::Sender::new(Vec::new()),
        });
        Self { outage, tell }
    }

    /// Has the next look see this, and waits until the one after it has begun.
    async fn sees(&self, seen: Seen) -> State {
        let mut looks = self.outage.0.probe.looks.subscribe();
        looks.wait_for(|looks| !looks.is_empty()).await.unwrap();
        let before = looks.borrow().len();
        self.tell.send(seen).unwrap();
        looks.wait_for(|looks| looks.len() > before).await.unwrap();
        *self.outage.0.state.borrow()
    }

    fn last_look_tried_a_write(&self) -> bool {
        *self.outage.0.probe.looks.borrow().last().unwrap()
    }
}

fn slow() -> Seen {
    Seen::Slow(DbError::TimedOut)
}

fn no_writes() -> Seen {
    Seen::NoWrites(DbError::NoWrites)
}

fn away() -> Seen {
    Seen::Away(DbError::Away)
}

#[test]
fn the_table_of_what_is_seen_and_what_it_says() {
    for (seen, from_there, from_no_writes, from_away) in [
        (Seen::Well, State::There, State::There, State::There),
        (slow(), State::There, State::NoWrites, State::There),
        (
            no_writes(),
            State::NoWrites,
            State::NoWrites,
            State::NoWrites,
        ),
        (away(), State::Away, State::Away, State::Away),
    ] {
        let after = [State::There, State::NoWrites, State::Away].map(|known| known.after(&seen));
        assert_eq!(after, [from_there, from_no_writes, from_away], "{seen:?}");
    }
}

#[tokio::test]
async fn a_trial_without_an_answer_takes_no_writes_away_and_gives_none_back() {
    let stage = Stage::new();
    stage.outage.doubt_writes();
    for _ in 0..2 {
        assert_eq!(stage.sees(slow()).await, State::There);
        stage.outage.check(false).unwrap();
        assert!(stage.last_look_tried_a_write(), "the doubt stays");
    }
    assert_eq!(stage.sees(no_writes()).await, State::NoWrites);
    for _ in 0..2 {
        assert_eq!(stage.sees(slow()).await, State::NoWrites);
        assert!(matches!(stage.outage.check(false), Err(DbError::NoWrites)));
        stage.outage.check(true).unwrap();
    }
    stage.tell.send(Seen::Well).unwrap();
    stage.outage.over().await;
    stage.outage.check(false).unwrap();
}

#[tokio::test]
async fn a_server_that_is_reached_again_is_there_though_it_is_slow() {
    let stage = Stage::new();
    stage.outage.doubt_writes();
    assert_eq!(stage.sees(away()).await, State::Away);
    assert!(matches!(stage.outage.check(true), Err(DbError::Away)));
    assert_eq!(stage.sees(slow()).await, State::There);
    assert!(stage.last_look_tried_a_write());
    assert_eq!(stage.sees(no_writes()).await, State::NoWrites);
}

/// The answers of a database that nothing is known of, each so many seconds after the first question.
fn asked(answers: &[(u64, Result<(), &DbError>)]) -> Vec<Readiness> {
    let (began, mut asked) = (Instant::now(), Asked::default());
    let answer = |(seconds, answer): &(u64, Result<(), &DbError>)| {
        let now = began + Duration::from_secs(*seconds);
        asked.answered(now, *answer, State::There)
    };
    answers.iter().map(answer).collect()
}

#[test]
fn a_database_that_has_much_to_do_is_ready_until_nobody_was_answered_for_a_while() {
    use Readiness::{Ready, Slow};
    let late = Err(&DbError::TimedOut);
    let pool = DbError::Engine(sqlx::Error::PoolTimedOut);
    let told = asked(&[
        (0, late),
        (5, Err(&pool)),
        (9, late),
        (10, late),
        (13, Err(&pool)),
    ]);
    assert_eq!(told, [Ready, Ready, Ready, Slow, Slow]);
    // One answer is enough, and the count begins anew.
    let told = asked(&[
        (0, late),
        (9, Ok(())),
        (10, late),
        (19, late),
        (20, late),
        (21, Ok(())),
    ]);
    assert_eq!(told, [Ready, Ready, Ready, Ready, Slow, Ready]);
}

#[test]
fn a_fault_is_told_at_once_and_what_is_known_goes_before_what_was_answered() {
    let told = asked(&[
        (0, Err(&DbError::NoWrites)),
        (1, Err(&DbError::Away)),
        (2, Err(&DbError::Engine(sqlx::Error::PoolClosed))),
        (3, Ok(())),
    ]);
    use Readiness::{Away, NoWrites, Ready};
    assert_eq!(told, [NoWrites, Away, Away, Ready]);
    for (known, readiness) in [(State::NoWrites, NoWrites), (State::Away, Away)] {
        for answer in [Ok(()), Err(&DbError::TimedOut)] {
            let mut asked = Asked::default();
            assert_eq!(asked.answered(Instant::now(), answer, known), readiness);
        }
    }
}
