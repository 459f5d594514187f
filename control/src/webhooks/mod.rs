//! Webhooks: events that are told to an address of the user's, signed, at least once each.
//!
//! An event is a row of the outbox (`outbox.rs`), inserted in the transaction that made it true. Its id
//! and its body are fixed there and never change; address and secret are read at each attempt. An event is
//! a job (`worker.rs` tells the lanes and the step): what is due is attempted (`deliver.rs`) through the
//! egress client, fairly between accounts; `schedule.rs` tells when a failed one is tried again. `event.rs` are the
//! kinds, `bodies.rs` their fields, `sign.rs` the signature, and `service.rs` the account's secret.
//!
//! Another resource adds an event with [`outbox::insert`] and calls `wake` of its queue after its commit.

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

pub use crate::jobs::schedule;

pub use worker::{Delivery, run_pruning};

#[cfg(test)]
mod worker_tests;
