//! Sessions: how a caller gets onto a call, and what can be done to it while it lives.
//!
//! `open` from connect until somebody joins (60 s at most, 30 s without an API key, then it has expired),
//! `live` while its one socket or its browser is there, `ended` or `failed` afterwards. A session, its call
//! and its conversation share one id and one record. A socket arrives at [`ws`], outside the API's prefix;
//! a browser joins with its first offer ([`peer`]). A call token ([`call_token`]) stands in for a key where
//! a browser calls, and the agents that are public may be called with neither.

pub mod between;
pub mod call_token;
pub mod connect;
pub mod end;
pub mod http;
pub mod ice_config;
pub mod peer;
pub mod rules;
pub mod sdp;
pub mod service;
pub mod start_token;
pub mod sweeper;
pub mod token;
pub mod wire;
pub mod ws;

pub use crate::calls::store::sessions as store;
pub use sweeper::{run as run_sweeper, sweep};
pub use wire::End;
