//! Leases of one process: the book of [`super::policy`] behind a lock.

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
            self.book().acquire(&request, self.clock.now())?;
            self.lease(request)
        })
    }

    fn adopt(&self, request: Request) -> Answer<'_, Result<Lease, Refusal>> {
        Box::pin(async move {
            self.book().adopt(&request, self.clock.now())?;
            self.lease(request)
        })
    }

    fn renew<'a>(
        &'a self,
        owner: &'a Owner,
        leases: &'a [Renewal],
    ) -> Answer<'a, Result<(), Refusal>> {
        Box::pin(async move {
            self.book().renew(owner, leases, self.clock.now());
            Ok(())
        })
    }

    fn release(&self, lease: CallId, owner: &Owner) {
        self.book().release(lease, owner, self.clock.now());
    }

    fn settled(&self) -> Answer<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn leave(&self, _lease: CallId) {}

    fn counts(&self) -> Answer<'_, Result<Counts, Refusal>> {
        Box::pin(async move {
            let mut book = self.book();
            book.expire(self.clock.now());
            Ok(book.counts())
        })
    }

    fn list(&self) -> Answer<'_, Result<Vec<Held>, Refusal>> {
        Box::pin(async move {
            let (mut book, now) = (self.book(), self.clock.now());
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
}
