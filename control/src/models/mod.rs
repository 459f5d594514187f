//! Models: the catalogue that an agent's `llm_model` chooses from (document 2, Model catalog entry).
//!
//! `catalogue.rs` holds the entries; who answers behind an id is the business of `vendors`.

pub mod catalogue;
pub mod http;
pub mod wire;

pub use catalogue::{DEFAULT_ALIAS, Model, resolve};
