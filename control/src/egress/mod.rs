//! The one HTTP client for addresses that a user gave: webhooks, tools, integrations, links of a
//! knowledge base.
//!
//! `url.rs` is what the text of an address must be, `address.rs` which IP addresses are public,
//! `resolve.rs` turns a name into addresses and refuses the name when any of them is not public, and
//! `client.rs` connects to one of those addresses and no other. An address of the operator's own (a
//! speech provider's) is not a user's and has its own client.

pub mod address;
mod client;
mod resolve;
pub mod url;

pub use client::{Answer, Call, Egress, Failure, MAX_BODY, TOTAL};
pub use resolve::{Resolver, Resolving, System};
pub use url::{Allow, Ports, Refusal, check, check_host, check_webhook_url, permits};

#[cfg(test)]
mod client_tests;
