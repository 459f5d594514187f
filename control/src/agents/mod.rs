//! Agents: who answers and calls, as one record of settings (document 2, Agent).
//!
//! The settings are a table (`fields.rs`) that validation, the record and the OpenAPI document read;
//! `settings.rs` is their typed view and tells the engine what it needs; `placeholders.rs` fills
//! `{{name}}`. An agent is active from its creation on. Its row holds only what was set, so a later
//! default reaches every agent that did not choose.

pub mod demo;
pub mod fields;
pub mod http;
pub mod placeholders;
pub mod rules;
pub mod settings;
pub mod store;
pub mod wire;

pub use placeholders::{Builtins, Variables};
pub use rules::{Agent, Status};
pub use settings::Settings;

#[cfg(test)]
mod document_tests;
#[cfg(test)]
mod http_tests;
#[cfg(test)]
mod table_tests;
