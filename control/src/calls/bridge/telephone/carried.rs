//! What the task of a call that came in is answerable for: should it panic, each of its calls ends once, as
//! `engine_error`, and each of its lines is ended.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sip::event::CallId as SipLegId;

use super::Exchange;
use crate::calls::bridge;
use crate::ids::{AccountId, CallId};
use crate::node::Node;

/// Shared by the task and by whoever puts right what it left.
#[derive(Clone, Default)]
pub(super) struct Carried(Arc<Mutex<Load>>);

/// The lines and the records of one call, or of two that are joined.
#[derive(Default)]
struct Load {
    lines: Vec<SipLegId>,
    calls: Vec<Whose>,
}

struct Whose {
    account: AccountId,
    id: CallId,
    /// The record has an answer only where somebody answered.
    is_exact: bool,
}

impl Carried {
    pub(super) fn line(&self, line: SipLegId) {
        self.load().lines.push(line);
    }

    /// A call whose record says that it is answered before its caller knows.
    pub(super) fn call(&self, account: AccountId, id: CallId) {
        self.add(account, id, false);
    }

    /// A call whose record says that it rings until somebody has answered.
    pub(super) fn leg(&self, account: AccountId, id: CallId) {
        self.add(account, id, true);
    }

    fn add(&self, account: AccountId, id: CallId, is_exact: bool) {
        let mut load = self.load();
        if load.calls.iter().all(|call| call.id != id) {
            load.calls.push(Whose {
                account,
                id,
                is_exact,
            });
        }
    }

    /// Ends all of them; `why` goes to the log.
    pub(super) async fn put_right(&self, app: &Node, exchange: &Exchange, why: &str) {
        let Load { lines, calls } = std::mem::take(&mut *self.load());
        for line in lines {
            exchange.abandon(line);
        }
        for call in calls {
            bridge::broke(app, call.account, call.id, why, call.is_exact).await;
        }
    }

    fn load(&self) -> MutexGuard<'_, Load> {
        // Whole after any panic: entries are only added, and taken all at once.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
