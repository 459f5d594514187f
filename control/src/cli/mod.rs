//! cli

pub mod call;
pub mod client;
