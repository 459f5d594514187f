//! Calls: the record of who spoke with which agent, and the life of a call from placing to end.
//!
//! `queued` until somebody joins (a call that is placed: until it rings, see [`dial`]), `in_progress`
//! while the engine has it, then one of the final states. A live call belongs to one process: its *incarnation*, a number taken at each start, is
//! in the row and fences every write, so a process that was thought dead cannot change what its
//! successor wrote. The end is written once ([`ending`]), with its `call.ended` event in the same
//! transaction. While the database is away calls go on and what happens to them is kept ([`writer`],
//! [`journal`]). What dies with its process is ended by the next start ([`recover()`]) or by the other
//! nodes.

pub mod backlog;
pub mod bridge;
pub mod dial;
pub mod ending;
pub mod http;
pub mod journal;
pub mod latency;
pub mod lifecycle;
pub mod matched;
pub mod recover;
pub mod renewal;
pub mod rules;
pub mod service;
pub mod store;
mod trace;
pub mod wire;
pub mod writer;

pub use crate::live::{self, LiveCalls};
pub use crate::recordings::spool::spool_dir;
pub use crate::telemetry::span;
pub use crate::transcript as turn;
pub use recover::recover;
pub use renewal::run as run_renewals;
pub use service::EndedCall;
