//! Usage: what an account used, what of it costs how much, and triggers that tell when a threshold
//! is crossed.
//!
//! A row says what one source (a call, a request) used of one resource. It is written in the
//! transaction that makes it true, and a source counts once for each resource, however often it is
//! written. To other resources this is [`record_request`] (a synthesis, a transcription),
//! [`record`] (the same, within a transaction) and [`record_call`] (a call's
//! end); both take the cost off a prepaid balance and fire what they cross, in the same transaction.

pub mod guard;
pub mod http;
pub mod rules;
pub mod service;
pub mod store;
pub mod trigger_store;
pub mod triggers;
pub mod wire;

pub use guard::run as run_guard;
pub use rules::Resource;
pub use service::{CallUse, Used, record, record_call, record_request};
