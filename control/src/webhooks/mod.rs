//! Webhooks: events that are told to an address of the user's, signed, at least once each.
//!
//! An event is a row of the outbox (`outbox.rs`), inserted in the transaction that made it true. Its id
//! and its body are fixed there and never change; address and secret are read at each attempt. An event is
//! a job (`worker.rs` tells the lanes and the step): what is due is attempted (`deliver.rs`) through the
//! egress client, fairly between accounts; `schedule.rs` tells when a failed one is tried again. `event.rs` are the
//! kinds, `bodies.rs` their fields, `sign.rs` the signature, and `service.rs` the account's secret.
//!
//! Another resource adds an event with [`outbox::insert`] and calls [`Webhooks::wake`] after its commit.

pub mod bodies;
pub mod deliver;
pub mod event;
pub mod http;
pub mod outbox;
pub mod service;
pub mod sign;
pub mod store;
pub mod wire;
pub mod worker;

use std::sync::atomic::{AtomicU64, Ordering};

use event::Status;

use crate::jobs::Queue;

pub use crate::jobs::schedule;

pub use worker::{Delivery, run_pruning};

#[cfg(test)]
mod worker_tests;

/// What the worker and those who add events share.
#[derive(Debug, Default)]
pub struct Webhooks {
    queue: Queue,
    counts: Counts,
}

/// How many attempts ended how, since the start.
#[derive(Debug, Default)]
struct Counts {
    delivered: AtomicU64,
    failed: AtomicU64,
    exhausted: AtomicU64,
    r#unsafe: AtomicU64,
    skipped: AtomicU64,
}

impl Webhooks {
    /// Something may be due: the worker looks at once.
    pub fn wake(&self) {
        self.queue.wake();
    }

    /// Attempts that run right now.
    pub fn in_flight(&self) -> u64 {
        self.queue.in_flight()
    }

    /// How many attempts ended in each state that one can end in.
    pub fn ended(&self) -> [(&'static str, u64); 5] {
        let Counts {
            delivered,
            failed,
            exhausted,
            r#unsafe,
            skipped,
        } = &self.counts;
        [
            (Status::Delivered, delivered),
            (Status::Failed, failed),
            (Status::Exhausted, exhausted),
            (Status::Unsafe, r#unsafe),
            (Status::Skipped, skipped),
        ]
        .map(|(status, count)| (status.name(), count.load(Ordering::Relaxed)))
    }

    fn count(&self, status: Status) {
        let count = match status {
            Status::Delivered => &self.counts.delivered,
            Status::Failed => &self.counts.failed,
            Status::Exhausted => &self.counts.exhausted,
            Status::Unsafe => &self.counts.r#unsafe,
            Status::Skipped => &self.counts.skipped,
            Status::Pending | Status::Delivering => return,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}
