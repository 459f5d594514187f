//! Outbound calls: `POST /calls` and `POST /calls/trigger` (document 2, call triggering errors).
//!
//! A wish is judged in one order, whatever else is wrong with it: its form, the agent, credit, the number
//! to call from, the do-not-call list, the trunk's destinations, its calls of this hour, and then the
//! caps on concurrent calls ([`service`]). A call that is let in has a record (`queued`), a slot and a
//! host before its INVITE goes out ([`super::bridge::telephone::outbound`]); it is `ringing` when the
//! carrier says so, `in_progress` from the answer on, or ends as [`rules::outcome`] says.

pub mod http;
pub mod rules;
pub mod service;
pub mod store;
pub mod wire;

pub use crate::numbers::spelling as number;
