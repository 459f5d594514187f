//! Several nodes: leases in a Redis that the tests start, against the rules and against the program
//! itself, with servers and Redis dying, sleeping and forgetting.
//!
//! `SIDETONE_SOAK=1` takes the full volumes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod buckets;
mod crowd;
mod dial;
mod encrypted;
mod faults;
mod leases;
mod model;
mod outage;
mod rolling;
mod routing;
mod stage;
