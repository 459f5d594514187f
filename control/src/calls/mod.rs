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
pub mod live;
pub mod matched;
pub mod recover;
pub mod renewal;
pub mod rules;
pub mod service;
pub mod store;
pub mod turn;
pub mod wire;
pub mod writer;

use std::path::PathBuf;

use crate::config::Config;
use crate::ids::{AccountId, CallId};

pub use live::LiveCalls;
pub use recover::recover;
pub use renewal::run as run_renewals;
pub use service::{EndedCall, end_by_api};
pub use store::agent_is_live;

/// What every line of the log about a call carries: its id and its account. It holds at any level of the
/// filter.
pub fn span(account: AccountId, call: CallId) -> tracing::Span {
    tracing::error_span!("call", %call, %account)
}

/// Where the engine writes what it records, until a call is over.
pub fn spool_dir(config: &Config) -> PathBuf {
    config.server.data_dir.join("spool")
}
