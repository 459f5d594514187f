//! One call, one machine.
pub mod input;
pub mod output;
pub mod record;
