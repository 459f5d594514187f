//! A call that rings: who lets go of it, what it holds meanwhile, and that it is over.

use std::sync::OnceLock;
use std::time::Duration;

use tokio::sync::watch;

use crate::admission::Renewal;
use crate::ids::{AccountId, TrunkId};
use crate::time::Moment;

/// A call that this process places, or that came in and rings here, until it is answered or over.
pub struct Dialling {
    pub account: AccountId,
    /// What is renewed at the lease store while it rings. One that came in has none before it is let in.
    slot: OnceLock<Renewal>,
    /// What it came in over.
    came_over: Option<TrunkId>,
    /// Since when a forwarded one is talked in.
    answered: OnceLock<Moment>,
    /// Who let go of it while it rang.
    canceled: watch::Sender<Option<Canceled>>,
    /// Becomes `true` once it is answered or its end is written.
    done: watch::Sender<bool>,
}

/// Who lets go of a call that rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canceled {
    /// An API client.
    Api,
    /// The server ends.
    Drain,
    /// The account may not go on.
    Blocked,
}

impl Dialling {
    /// A call that is placed.
    pub fn new(account: AccountId, slot: Renewal) -> Self {
        Self {
            slot: slot.into(),
            ..Self::came_in(account, None)
        }
    }

    /// A call that came in over this trunk and rings.
    pub fn came_in(account: AccountId, over: Option<TrunkId>) -> Self {
        Self {
            account,
            slot: OnceLock::new(),
            came_over: over,
            answered: OnceLock::new(),
            canceled: watch::Sender::new(None),
            done: watch::Sender::new(false),
        }
    }

    /// It was given its slot, which is renewed from now on.
    pub fn hold(&self, slot: Renewal) {
        self.slot.get_or_init(|| slot);
    }

    /// It is talked in from now on, and no agent is in it.
    pub fn answered(&self, now: Moment) {
        self.answered.get_or_init(|| now);
    }

    /// What is renewed at the lease store while it rings.
    pub(super) fn slot(&self) -> Option<Renewal> {
        self.slot.get().copied()
    }

    /// Whether this is a call without a slot that came in over the same trunk as `other`.
    pub(super) fn rings_beside(&self, other: &Self) -> bool {
        self.slot.get().is_none() && self.came_over == other.came_over
    }

    /// Since when it is talked in without an agent.
    pub(super) fn answered_at(&self) -> Option<Moment> {
        self.answered.get().copied()
    }

    /// It is answered, or its end is written.
    pub(super) fn done(&self) {
        self.done.send_replace(true);
    }

    /// Lets go of it; the first who does is named in its record.
    pub fn cancel(&self, by: Canceled) {
        self.canceled.send_if_modified(|canceled| {
            let first = canceled.is_none();
            canceled.get_or_insert(by);
            first
        });
    }

    /// Resolves when somebody lets go of it.
    pub async fn canceled(&self) -> Canceled {
        let mut canceled = self.canceled.subscribe();
        loop {
            let by = *canceled.borrow_and_update();
            if let Some(by) = by {
                return by;
            }
            if canceled.changed().await.is_err() {
                // The sender lives as long as this.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits until it is answered or its end is written, at most `patience`.
    pub async fn wait_done(&self, patience: Duration) {
        let mut done = self.done.subscribe();
        // Who asks reads the record afterwards, which tells.
        let _ = tokio::time::timeout(patience, done.wait_for(|done| *done)).await;
    }
}
