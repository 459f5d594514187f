//! Events that are told to an agent's webhook: `call.ended` and `recording.ready`.
//!
//! An event is a row of the outbox, inserted in the transaction that made it true. Its id and its
//! body are fixed there and never change; the address and the secret are read at each attempt.

pub mod rules;
pub mod store;
pub mod wire;
