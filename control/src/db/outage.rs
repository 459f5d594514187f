//! Whether the database is there, and takes writes. A statement that fails as if it were not raises a
//! suspicion; then one task looks until all is well, and meanwhile nobody else tries: each request fails
//! at once in place of waiting by itself.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::DbError;

/// Between two looks: how much later than the database itself its users are back.
const EVERY: Duration = Duration::from_millis(200);
/// A write that succeeded within this proves that the database takes writes.
const LATELY: Duration = Duration::from_secs(1);

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

/// How one engine is looked at.
pub(super) trait Probe: Debug + Send + Sync + 'static {
    /// Looks once; what is wrong, and why. `writes`: whether it takes writes is to be tried too.
    fn look(&self, writes: bool) -> impl Future<Output = Result<(), (State, DbError)>> + Send;

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

    /// Has somebody look into an error that smells of an outage.
    pub(super) fn note(&self, error: &DbError) {
        if error.is_fault() {
            self.0.writes_doubted.store(true, Ordering::SeqCst);
            self.suspect();
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
        let Inner { probe, state, .. } = &*self.0;
        while !probe.is_closed() {
            // What is doubted from here on is for the next look.
            let doubted = self.0.writes_doubted.swap(false, Ordering::SeqCst);
            let writes = doubted || *state.borrow() == State::NoWrites;
            match probe.look(writes).await {
                Ok(()) if self.0.writes_doubted.load(Ordering::SeqCst) => continue,
                Ok(()) => break,
                Err((now, error)) => {
                    self.0.writes_doubted.fetch_or(writes, Ordering::SeqCst);
                    let before = state.send_replace(now);
                    match now {
                        _ if now == before => {}
                        State::NoWrites => tracing::error!(%error, "the database takes no writes"),
                        State::There | State::Away => {
                            tracing::error!(%error, "the database is away")
                        }
                    }
                }
            }
            tokio::time::sleep(EVERY).await;
        }
        // Before the word is given, so that a suspicion from then on is looked into.
        self.0.looking.store(false, Ordering::SeqCst);
        let before = *state.borrow();
        if before != State::There {
            probe.returned(before);
            state.send_replace(State::There);
            tracing::warn!("the database is back");
        }
    }
}
