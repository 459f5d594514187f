//! Jobs: work that outlives the request which asked for it.
//!
//! A job is a row of its resource's own table. This module finds the rows that are due, claims them, runs
//! their steps beside each other, keeps the claims and writes down the ends; the resource says what a step
//! does. Several processes may work on one table.
//!
//! | Module | What it holds |
//! |---|---|
//! | [`kind`] | What a resource says of its jobs: [`Kind`], and the words in which a step tells its end |
//! | [`policy`] | Who is next: shares of the node, of an account and of a lane; how long claims last. Pure |
//! | [`backoff`] | Pauses that double, with jitter from a seed. Pure |
//! | [`store`] | The statements, one text for both databases |
//! | [`worker`] | The loop of a process, its tasks, the renewal of claims |
//!
//! # Contract
//!
//! - **Claim.** A row is due when its status is an open one and its `next_attempt_at` has come. A claim
//!   raises `claim_token`, counts the attempt and moves `next_attempt_at` to the claim's end: one column tells
//!   when anybody may take the row next. A claim names no process. The row of a process that died is due
//!   again when the claim runs out.
//! - **Renewal.** [`Lease::Bounded`] is for steps that end by themselves before the claim does.
//!   [`Lease::Renewed`] claims are renewed while the step runs; a step whose claim is lost is dropped.
//! - **Finish.** An end is written with the token of its claim, in one transaction with the step's effect
//!   ([`Kind::keep`]). With an older token neither is written. So a process that is killed repeats at most the
//!   step in hand.
//! - **Deeds.** Where repeating costs money, [`Claim::intend`] writes `intended_at` right before the deed and
//!   the finish clears it. Whoever claims a row that has it asks the vendor ([`Kind::ask`]); where nobody
//!   knows, the job ends as [`Kind::UNKNOWN`]. It is never tried again in silence.
//! - **Fairness.** Accounts take turns. None has more than its share in flight on a node, and within an
//!   account no lane (a receiver, a thread) has more than its own. Every kind has a worker and a room of its
//!   own, so that no batch takes the place of a reply.
//! - **Time.** `next_attempt_at` is of [`Clock::shared`](crate::time::Clock::shared), as is every `now` that it
//!   is compared with; what people read is wall time.
//! - **Cancelling.** A resource notes the wish in a column of its own; [`Kind::due`] then answers
//!   [`Plan::Close`]. The step in hand ends as it would have, and no other begins.
//!
//! # A new kind
//!
//! 1. A migration gives the table the columns and the index that [`Table`] names.
//! 2. `impl Kind` for a struct of what a step needs: the table, the limits (settings), the columns of a job.
//! 3. [`Kind::due`] tells the lane of each due row, [`Kind::step`] does one short step and tells its [`Ended`].
//! 4. Before a deed outside that must not be repeated: `claim.intend().await?`, with [`Kind::UNKNOWN`] set.
//! 5. Whoever makes rows due wakes the kind's [`Queue`] after the commit; `cli/serve.rs` keeps [`run`] running.

pub mod backoff;
pub mod kind;
pub mod policy;
pub mod schedule;
pub mod store;
pub mod worker;

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

pub use kind::{Answer, Ended, Finished, Found, Held, Kind, Left, Plan, Table, Then};
pub use policy::{Lane, Lease, Limits};
pub use store::Look;
pub use worker::{Claim, Worker, run};

#[cfg(test)]
mod tests;

/// What a kind's worker shares with those who make its rows due.
#[derive(Debug, Default)]
pub struct Queue {
    notify: Notify,
    in_flight: AtomicU64,
}

impl Queue {
    /// Something may be due: the worker of this process looks at once.
    pub fn wake(&self) {
        self.notify.notify_one();
    }

    /// How many steps run in this process right now.
    pub fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    async fn woken(&self) {
        self.notify.notified().await;
    }

    fn began(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    fn ended(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
