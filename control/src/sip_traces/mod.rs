//! Traces: the SIP messages of each telephone call, for whoever wants to know why a call went wrong.
//!
//! The stack tells each message with credentials, keys and keypad digits masked. [`Keeper`] holds those of
//! the calls of this process, within bounds, and writes what is new into the `sip_traces` table each second.

mod keeper;
pub mod store;
pub mod wire;

pub use keeper::{Keeper, run, write};
