//! Sessions: how a caller gets onto a call, and what can be done to it while it lives.
//!
//! `open` from connect until somebody joins (60 s at most, then it has expired), `live` while its one
//! socket is there, `ended` or `failed` afterwards. A session, its call and its conversation share
//! one id and one record. The socket itself arrives at [`ws`], outside the API's prefix.

pub mod http;
pub mod rules;
pub mod service;
pub mod start_token;
pub mod store;
pub mod sweeper;
pub mod token;
pub mod wire;
pub mod ws;

pub use sweeper::{run as run_sweeper, sweep};
pub use wire::End;
