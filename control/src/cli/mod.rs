//! cli

pub mod call;
pub mod client;
pub mod load;
pub mod replay;
