//! Leases of one process: the book of [`super::policy`] behind a lock, by moments of this process, so that
//! nobody who sets the machine's clock ends or prolongs a lease.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::policy::Book;
use super::{Answer, Counts, Health, Held, Lease, Leases, Owner, Refusal, Renewal, Request, Roll};
use crate::config::Limits;
use crate::ids::CallId;
use crate::time::Clock;

/// The lease store of a single node.
pub struct Local {
    book: Mutex<Book>,
    clock: Clock,
    me: Weak<Self>,
}

impl Local {
    pub fn start(limits: &Limits, clock: Clock) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            book: Mutex::new(Book::new(limits.into())),
            clock,
            me: me.clone(),
        })
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        // The book is consistent between its methods, so a panic elsewhere leaves a good one.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lease(&self, request: Request) -> Result<Lease, Refusal> {
        let store = self.me.upgrade().ok_or(Refusal::unavailable())?;
        Ok(Lease::new(request.lease, request.owner, store))
    }
}

impl Leases for Local {
    fn acquire(&self, request: Request) -> Answer<'_, Result<Lease, Refusal>> {
        Box::pin(async move {
            self.book().acquire(&request, self.clock.moment())?;
            self.lease(request)
        })
    }

    fn adopt(&self, request: Request) -> Answer<'_, Result<Lease, Refusal>> {
        Box::pin(async move {
            self.book().adopt(&request, self.clock.moment())?;
            self.lease(request)
        })
    }

    fn renew<'a>(
        &'a self,
        owner: &'a Owner,
        leases: &'a [Renewal],
    ) -> Answer<'a, Result<(), Refusal>> {
        Box::pin(async move {
            self.book().renew(owner, leases, self.clock.moment());
            Ok(())
        })
    }

    fn release(&self, lease: CallId, owner: &Owner) {
        self.book().release(lease, owner, self.clock.moment());
    }

    fn settled(&self) -> Answer<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn leave(&self, _lease: CallId) {}

    fn counts(&self) -> Answer<'_, Result<Counts, Refusal>> {
        Box::pin(async move {
            let mut book = self.book();
            book.expire(self.clock.moment());
            Ok(book.counts())
        })
    }

    fn list(&self) -> Answer<'_, Result<Vec<Held>, Refusal>> {
        Box::pin(async move {
            let (mut book, now) = (self.book(), self.clock.moment());
            book.expire(now);
            Ok(book.list(now))
        })
    }

    // What is in the process knows all that the process knows.
    fn health(&self) -> Health {
        Health::Ready
    }

    fn beat(&self) -> Answer<'_, Health> {
        Box::pin(async { Health::Ready })
    }

    fn is_complete<'a>(&'a self, _roll: &'a Roll) -> Answer<'a, bool> {
        Box::pin(async { true })
    }

    fn open<'a>(&'a self, _roll: &'a Roll) -> Answer<'a, Health> {
        Box::pin(async { Health::Ready })
    }

    fn trouble(&self) -> Answer<'_, ()> {
        Box::pin(std::future::pending())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at a surprise")]

    use super::super::State;
    use super::*;
    use crate::config::Config;
    use crate::ids::AccountId;
    use crate::time::Timestamp;

    fn wish(account: AccountId, clock: &Clock) -> Request {
        Request {
            lease: CallId::new(clock),
            owner: Owner::new("n", 1),
            account,
            agent: None,
            trunk: None,
            beyond: false,
            state: State::Live,
        }
    }

    #[tokio::test]
    async fn a_dropped_lease_is_free_and_one_left_is_not() {
        let clock = Clock::fixed(Timestamp(1_000_000_000));
        let store = Local::start(&Config::defaults().unwrap().limits, clock.clone());
        let account = AccountId::new(&clock);
        let held = store.acquire(wish(account, &clock)).await.unwrap();
        store.acquire(wish(account, &clock)).await.unwrap().leave();
        assert_eq!(store.counts().await.unwrap().live, 2);
        drop(held);
        assert_eq!(store.counts().await.unwrap().live, 1);
        clock.advance(super::super::LIVE_TTL);
        assert_eq!(store.counts().await.unwrap().live, 0);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_thousand_at_once_get_the_cap_exactly() {
        let clock = Clock::fixed(Timestamp(1_000_000_000));
        let store = Local::start(&Config::defaults().unwrap().limits, clock.clone());
        let account = AccountId::new(&clock);
        let tasks: Vec<_> = (0..1000)
            .map(|_| {
                let (store, wish) = (Arc::clone(&store), wish(account, &clock));
                tokio::spawn(async move { store.acquire(wish).await.map(Lease::leave).is_ok() })
            })
            .collect();
        let mut admitted = 0;
        for task in tasks {
            admitted += u32::from(task.await.unwrap());
        }
        assert_eq!(admitted, 10);
    }

    #[tokio::test]
    async fn setting_the_wall_clock_admits_nobody_and_frees_what_has_run_out() {
        for seconds in [3_600, -3_600, 86_400, -86_400] {
            let clock = Clock::fixed(Timestamp(1_767_323_045_000_006));
            let mut limits = Config::defaults().unwrap().limits;
            limits.account_calls = 3;
            let store = Local::start(&limits, clock.clone());
            let account = AccountId::new(&clock);
            let ask = async |state| {
                let request = Request {
                    state,
                    ..wish(account, &clock)
                };
                let lease = request.lease;
                store
                    .acquire(request)
                    .await
                    .map(Lease::leave)
                    .map(|()| lease)
            };
            let first = ask(State::Live).await.unwrap();
            for state in [State::Pending, State::Keyless] {
                ask(state).await.unwrap();
            }
            clock.step(seconds);
            assert!(ask(State::Live).await.is_err(), "{seconds} s: one too many");
            let held = store.list().await.unwrap();
            assert!(held.iter().all(|held| held.age.is_zero()), "{held:?}");
            // What was given back cannot be taken again for its while, and no longer.
            store.release(first, &Owner::new("n", 1));
            clock.step(-seconds);
            let again = Request {
                lease: first,
                ..wish(account, &clock)
            };
            assert!(store.adopt(again.clone()).await.is_err());
            clock.step(seconds);
            clock.advance(super::super::GONE_FOR);
            store.adopt(again).await.map(Lease::leave).unwrap();
            clock.advance(super::super::PENDING_TTL);
            let counts = store.counts().await.unwrap();
            assert_eq!((counts.pending, counts.live), (0, 0), "{seconds} s");
        }
    }
}
