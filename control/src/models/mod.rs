//! Models: the catalogue that an agent's `llm_model` chooses from (document 2, Model catalog entry).
//!
//! [`crate::catalogue`] holds the entries; who answers behind an id is the business of `vendors`.

pub mod http;
pub mod wire;

pub use crate::catalogue::models as catalogue;
pub use catalogue::{DEFAULT_ALIAS, Model, resolve};
