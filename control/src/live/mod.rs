//! The calls that this process hosts right now: what the database does not know of them.
//!
//! [`LiveCalls`] is the list, with the calls that ring ([`Dialling`]) beside those on the engine
//! ([`LiveCall`]); of a browser's call it knows the connection ([`PeerConnection`]), and of each what changes many times in it
//! ([`Pulse`]).

mod hosted;
mod peer;
mod pulse;
mod ringing;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::admission::Renewal;
use crate::ids::{AccountId, CallId};
use crate::time::Moment;
use crate::words::words;

pub use hosted::{LiveCall, TellDropped};
pub use peer::PeerConnection;
pub use pulse::{Claimed, NetworkLog, Pulse};
pub use ringing::{Canceled, Dialling};

words! {
    /// Who calls whom.
    pub enum Direction { Inbound = "inbound", Outbound = "outbound" }
}

/// The calls of this process, by id. Bounded by the engine's cap on calls.
#[derive(Default)]
pub struct LiveCalls {
    calls: Mutex<HashMap<CallId, Arc<LiveCall>>>,
    /// Sessions whose first offer is being answered; as many as requests are served at a time.
    joining: Mutex<HashSet<CallId>>,
    /// Calls that ring, and forwarded ones to their end. Each holds a seat of the node, or is one of as many as
    /// may ring over its trunk.
    dialling: Mutex<HashMap<CallId, Arc<Dialling>>>,
    /// Calls that are over here, and of which something is still being stored.
    keeping: Mutex<HashSet<CallId>>,
    changed: Notify,
}

/// The right to answer a session's first offer; given back when dropped.
pub struct Joining<'a> {
    calls: &'a LiveCalls,
    id: CallId,
}

impl LiveCalls {
    /// Adds a call that was just placed.
    pub fn insert(&self, id: CallId, call: Arc<LiveCall>) {
        self.lock().insert(id, call);
        self.changed.notify_waiters();
    }

    /// The right to answer the first offer of a session: of two at a time one has it.
    pub fn begin(&self, id: CallId) -> Option<Joining<'_>> {
        let mut joining = self.joining.lock().unwrap_or_else(PoisonError::into_inner);
        // Lazily: a right that is not given must not be dropped, for that would give back the other's.
        joining.insert(id).then(|| Joining { calls: self, id })
    }

    /// Forgets a call: its end and its recording are written.
    pub fn remove(&self, id: CallId) {
        self.lock().remove(&id);
        self.changed.notify_waiters();
    }

    /// The call, if the account owns it and this process hosts it.
    pub fn get(&self, account: AccountId, id: CallId) -> Option<Arc<LiveCall>> {
        self.lock()
            .get(&id)
            .filter(|call| call.account == account)
            .cloned()
    }

    /// Whether somebody here carries this call, or stores what is left of it.
    pub fn has(&self, id: CallId) -> bool {
        self.lock().contains_key(&id)
            || self.ringing().contains_key(&id)
            || self.keeping().contains(&id)
    }

    /// Notes that what is left of a call is being stored. `false`: somebody does so, or carries the call.
    pub fn begin_keeping(&self, id: CallId) -> bool {
        !self.lock().contains_key(&id) && self.keeping().insert(id)
    }

    pub fn end_keeping(&self, id: CallId) {
        self.keeping().remove(&id);
    }

    fn keeping(&self) -> MutexGuard<'_, HashSet<CallId>> {
        // Whole after any panic: each use is one operation.
        self.keeping.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`get`](Self::get), waiting up to `patience` for a call that is just being placed.
    pub async fn await_call(
        &self,
        account: AccountId,
        id: CallId,
        patience: Duration,
    ) -> Option<Arc<LiveCall>> {
        let found = async {
            loop {
                let changed = self.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if let Some(call) = self.get(account, id) {
                    return call;
                }
                changed.await;
            }
        };
        tokio::time::timeout(patience, found).await.ok()
    }

    /// Waits until every call is written down, at most `patience`. `false`: some are left.
    pub async fn drained(&self, patience: Duration) -> bool {
        let empty = async {
            loop {
                let changed = self.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if self.lock().is_empty() && self.count_dialling() == 0 {
                    return;
                }
                changed.await;
            }
        };
        tokio::time::timeout(patience, empty).await.is_ok()
    }

    /// What this process renews at the lease store.
    pub fn renewals(&self) -> Vec<Renewal> {
        let calls = self.lock();
        let leased = calls
            .values()
            .filter(|call| call.leased.load(Ordering::SeqCst));
        let mut renewals: Vec<Renewal> = leased.map(|call| call.slot).collect();
        drop(calls);
        let ringing = self.ringing();
        renewals.extend(ringing.values().filter_map(|call| call.slot()));
        drop(ringing);
        renewals
    }

    /// Notes a call that came in and rings. `false`: as many ring over its trunk as may. They hold no slot, and
    /// without a bound the calls to one number could take the node from all others.
    pub fn ring(&self, id: CallId, call: Arc<Dialling>, most: u32) -> bool {
        let mut ringing = self.ringing();
        let beside = ringing
            .values()
            .filter(|other| other.rings_beside(call.as_ref()));
        let room = beside.count() < most as usize;
        if room {
            ringing.insert(id, call);
        }
        room
    }

    /// Notes a call that is being placed.
    pub fn dial(&self, id: CallId, dialling: Arc<Dialling>) {
        self.ringing().insert(id, dialling);
    }

    /// The call, if the account owns it and it rings here.
    pub fn get_dialling(&self, account: AccountId, id: CallId) -> Option<Arc<Dialling>> {
        let ringing = self.ringing();
        let found = ringing.get(&id).filter(|call| call.account == account);
        found.cloned()
    }

    /// A call is answered, or over before that.
    pub fn dialled(&self, id: CallId) {
        let over = self.ringing().remove(&id);
        if let Some(over) = over {
            over.done();
        }
        self.changed.notify_waiters();
    }

    /// How many calls this process is placing, or lets ring.
    pub fn count_dialling(&self) -> usize {
        self.ringing().len()
    }

    /// Lets go of all calls that ring.
    pub fn cancel_dialling(&self) {
        for call in self.ringing().values() {
            call.cancel(Canceled::Drain);
        }
    }

    /// Lets go of all calls of one account that ring or are forwarded; how many.
    pub fn cancel_account(&self, account: AccountId) -> usize {
        let ringing = self.ringing();
        let theirs = ringing.values().filter(|call| call.account == account);
        theirs
            .inspect(|call| call.cancel(Canceled::Blocked))
            .count()
    }

    fn ringing(&self) -> MutexGuard<'_, HashMap<CallId, Arc<Dialling>>> {
        // The map is whole after any panic: each use is one operation.
        self.dialling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The calls of one account that this process hosts.
    pub fn of_account(&self, account: AccountId) -> Vec<Arc<LiveCall>> {
        let calls = self.lock();
        let theirs = calls.values().filter(|call| call.account == account);
        theirs.cloned().collect()
    }

    /// How long the calls of this account have been talked in that this process hosts now, forwarded ones too.
    pub fn talked(&self, account: AccountId, now: Moment) -> Duration {
        let calls: Duration = self
            .of_account(account)
            .iter()
            // One that is over was paid for, and is here until its recording is stored.
            .filter(|call| call.leased.load(Ordering::SeqCst))
            .map(|call| now.since(call.since))
            .sum();
        let ringing = self.ringing();
        let forwarded = ringing.values().filter(|call| call.account == account);
        let since = forwarded.filter_map(|call| call.answered_at());
        calls + since.map(|since| now.since(since)).sum::<Duration>()
    }

    /// How many calls this process hosts.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether this process hosts no call.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<CallId, Arc<LiveCall>>> {
        // The map is whole after any panic: each use is one operation.
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Joining<'_> {
    fn drop(&mut self) {
        let mut joining = self
            .calls
            .joining
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        joining.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_first_offers_one_is_answered() {
        let calls = LiveCalls::default();
        let first = calls.begin(CallId::NIL);
        assert!(first.is_some() && calls.begin(CallId::NIL).is_none());
        drop(first);
        assert!(calls.begin(CallId::NIL).is_some());
    }
}
