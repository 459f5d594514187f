//! What the tests share: calls on virtual time, servers, clients, callers.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a test that meets the unexpected fails"
)]

pub mod app;
pub mod browser;
pub mod bucket;
pub mod carrier;
pub mod certificates;
pub mod client;
pub mod collector;
pub mod coturn;
pub mod faults;
pub mod offer_answer;
pub mod peer;
pub mod ports;
pub mod postgres;
pub mod provider;
pub mod receiver;
pub mod redis;
pub mod relay;
pub mod router;
pub mod server;
pub mod socket;
pub mod speech;
pub mod stage;
pub mod tape;
pub mod telephone;
pub mod virtual_call;
