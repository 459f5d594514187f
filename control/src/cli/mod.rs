//! cli

pub mod call;
pub mod client;
pub mod load;
