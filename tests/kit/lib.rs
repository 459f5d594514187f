//! What the tests share: calls on virtual time, servers, clients, checks.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a test that meets the unexpected fails"
)]

pub mod virtual_call;
