//! Whether the database is there, and takes writes. A statement that fails as if it were not raises a
//! suspicion; then one task looks until all is well, and meanwhile nobody else tries: each request fails
//! at once in place of waiting by itself.
//!
//! What is seen, what that says, and what follows, for both engines:
//!
//! | Seen | State | `/readyz` | A read | A write |
//! |---|---|---|---|---|
//! | it answers, and took the last write that was tried | `There` | 200 | is tried | is tried |
//! | a statement, a trial of a write or a turn to write has no answer in time; all connections are taken | as before; `Away` becomes `There`, for it was reached | as before; 503 once nobody who asked was answered for [`SLOW_AFTER`] | is tried; 503 after its own deadline | the same |
//! | a write is refused for a fault (disk full, disk failing, no memory, read-only), or its trial breaks the connection | `NoWrites` | 503 | is tried | 503 at once |
//! | no connection within a second | `Away` | 503 | 503 at once | 503 at once |
//!
//! `NoWrites` ends when a trial met no fault, and never because a trial had no answer.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::DbError;

/// Between two looks: how much later than the database itself its users are back.
const EVERY: Duration = Duration::from_millis(200);
/// A write that succeeded within this proves that the database takes writes.
const LATELY: Duration = Duration::from_secs(1);

/// How long nobody may have been answered before a database is called slow. Longer than any one statement may take (5 s and
/// a second of grace) and than a write waits for its turn, so that neither a crowd nor a lock that is held does it.
const SLOW_AFTER: Duration = Duration::from_secs(10);

/// What is known of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum State {
    /// All is well, as far as is known.
    There,
    /// Reads are answered; no write is taken: its disk is full or fails, or it became read-only.
    NoWrites,
    /// Nothing is answered.
    Away,
}

/// What one look at a database saw.
#[derive(Debug)]
pub(super) enum Seen {
    /// It answered, and took a write if one was tried.
    Well,
    /// It is there; whether it takes writes was not answered in time, or others had all of it.
    Slow(DbError),
    /// It refused a write for a fault of its own, or broke the connection over it.
    NoWrites(DbError),
    /// No connection was made.
    Away(DbError),
}

impl State {
    /// What is known after a look. Slowness is no knowledge: only a connection that was made speaks against `Away`.
    const fn after(self, seen: &Seen) -> Self {
        match (seen, self) {
            (Seen::Well, _) | (Seen::Slow(_), Self::There | Self::Away) => Self::There,
            (Seen::Slow(_) | Seen::NoWrites(_), _) => Self::NoWrites,
            (Seen::Away(_), _) => Self::Away,
        }
    }
}

/// How ready a database is, as `/readyz` tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    Ready,
    /// Nobody who asked was answered for a while.
    Slow,
    NoWrites,
    Away,
}

/// The answers that those got who asked whether a database is ready. Pure: time is an argument.
#[derive(Debug, Default)]
struct Asked {
    /// The first question without an answer in time since the last that had one.
    unanswered_since: Option<Instant>,
}

impl Asked {
    /// Takes an answer to the question and what is known of the database; how ready it is.
    fn answered(&mut self, now: Instant, answer: Result<(), &DbError>, known: State) -> Readiness {
        let is_late = answer.is_err_and(DbError::is_busy);
        if is_late {
            self.unanswered_since.get_or_insert(now);
        } else {
            self.unanswered_since = None;
        }
        let unanswered = self.unanswered_since.map(|since| now.duration_since(since));
        match (answer, known) {
            (_, State::NoWrites) => Readiness::NoWrites,
            (_, State::Away) => Readiness::Away,
            (Err(error), State::There) if error.is_fault() => Readiness::NoWrites,
            (Err(_), State::There) if !is_late => Readiness::Away,
            _ if unanswered.is_some_and(|time| time >= SLOW_AFTER) => Readiness::Slow,
            _ => Readiness::Ready,
        }
    }
}

/// How one engine is looked at.
pub(super) trait Probe: Debug + Send + Sync + 'static {
    /// Looks once. `writes`: whether it takes writes is to be tried too.
    fn look(&self, writes: bool) -> impl Future<Output = Seen> + Send;

    /// Whether nobody uses the database any more.
    fn is_closed(&self) -> bool;

    /// Called once the database is back from this state, before anybody is told.
    fn returned(&self, _from: State) {}
}

/// The state of one database. Cheap to clone.
#[derive(Debug)]
pub(super) struct Outage<P>(Arc<Inner<P>>);

#[derive(Debug)]
struct Inner<P> {
    probe: P,
    state: watch::Sender<State>,
    looking: AtomicBool,
    /// A write failed: a look has to try one.
    writes_doubted: AtomicBool,
    began: Instant,
    /// The last write that succeeded, ms after `began`; 0: none yet.
    wrote: AtomicU64,
    asked: Mutex<Asked>,
}

impl<P> Clone for Outage<P> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<P: Probe> Outage<P> {
    pub(super) fn new(probe: P) -> Self {
        Self(Arc::new(Inner {
            probe,
            state: watch::Sender::new(State::There),
            looking: AtomicBool::new(false),
            writes_doubted: AtomicBool::new(false),
            began: Instant::now(),
            wrote: AtomicU64::new(0),
            asked: Mutex::default(),
        }))
    }

    /// Whether anything is known to be wrong.
    pub(super) fn is_on(&self) -> bool {
        *self.0.state.borrow() != State::There
    }

    /// Refuses at once what is known to fail.
    pub(super) fn check(&self, is_read: bool) -> Result<(), DbError> {
        match *self.0.state.borrow() {
            State::Away => Err(DbError::Away),
            State::NoWrites if !is_read => Err(DbError::NoWrites),
            State::NoWrites | State::There => Ok(()),
        }
    }

    /// Waits until nothing is answered any more.
    pub(super) async fn away(&self) {
        self.until(State::Away).await;
    }

    /// Waits until nothing is known to be wrong.
    pub(super) async fn over(&self) {
        self.until(State::There).await;
    }

    async fn until(&self, wanted: State) {
        let mut state = self.0.state.subscribe();
        // The sender lives as long as `self`, so this ends with the wish only.
        let _ = state.wait_for(|state| *state == wanted).await;
    }

    /// Notes a write that changed something.
    pub(super) fn wrote(&self) {
        self.0.wrote.store(self.now(), Ordering::Relaxed);
    }

    /// Whether a write changed something a moment ago.
    pub(super) fn wrote_lately(&self) -> bool {
        let wrote = self.0.wrote.load(Ordering::Relaxed);
        wrote > 0 && u128::from(self.now().saturating_sub(wrote)) < LATELY.as_millis()
    }

    /// Milliseconds since the database was opened, at least 1.
    fn now(&self) -> u64 {
        u64::try_from(self.0.began.elapsed().as_millis()).map_or(u64::MAX, |ms| ms.max(1))
    }

    /// Takes the answer to whether the database can be read and written; how ready it is.
    pub(super) fn answered(&self, now: Instant, answer: Result<(), &DbError>) -> Readiness {
        if answer.is_err_and(DbError::is_busy) {
            self.doubt_writes();
        }
        let mut asked = self.0.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let known = *self.0.state.borrow();
        asked.answered(now, answer, known)
    }

    /// Has somebody look whether a write is taken.
    pub(super) fn doubt_writes(&self) {
        self.0.writes_doubted.store(true, Ordering::SeqCst);
        self.suspect();
    }

    /// Has somebody look into an error that smells of an outage.
    pub(super) fn note(&self, error: &DbError) {
        if error.is_fault() {
            self.doubt_writes();
        } else if error.is_unavailable() && !error.is_too_slow() {
            self.suspect();
        }
    }

    /// Has somebody look, unless somebody does.
    pub(super) fn suspect(&self) {
        if !self.0.looking.swap(true, Ordering::SeqCst) {
            tokio::spawn(self.clone().look());
        }
    }

    /// Looks until all is well, or nobody uses the database any more.
    async fn look(self) {
        let probe = &self.0.probe;
        let mut was_slow = false;
        while !probe.is_closed() {
            // What is doubted from here on is for the next look.
            let doubted = self.0.writes_doubted.swap(false, Ordering::SeqCst);
            let before = *self.0.state.borrow();
            let writes = doubted || before == State::NoWrites;
            let seen = probe.look(writes).await;
            let now = before.after(&seen);
            match seen {
                Seen::Well if self.0.writes_doubted.load(Ordering::SeqCst) => continue,
                // The word is given below.
                Seen::Well => break,
                Seen::Slow(error) if !was_slow => {
                    was_slow = true;
                    tracing::warn!(%error, "the database is slow: whether it takes writes is not known");
                }
                Seen::NoWrites(error) if now != before => {
                    tracing::error!(%error, "the database takes no writes");
                }
                Seen::Away(error) if now != before => {
                    tracing::error!(%error, "the database is away");
                }
                Seen::Slow(_) | Seen::NoWrites(_) | Seen::Away(_) => {}
            }
            self.0.writes_doubted.fetch_or(writes, Ordering::SeqCst);
            self.becomes(now);
            tokio::time::sleep(EVERY).await;
        }
        // Before the word is given, so that a suspicion from then on is looked into.
        self.0.looking.store(false, Ordering::SeqCst);
        self.becomes(State::There);
    }

    /// Gives the word of what is known now.
    fn becomes(&self, now: State) {
        let before = *self.0.state.borrow();
        if now == State::There && before != State::There {
            self.0.probe.returned(before);
            tracing::warn!("the database is back");
        }
        if now != before {
            self.0.state.send_replace(now);
        }
    }
}

#[cfg(test)]
#[path = "outage_tests.rs"]
mod tests;
