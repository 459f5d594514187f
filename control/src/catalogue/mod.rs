//! What an installation offers to agents, as data: the built-in voices and models, and what the operator's providers
//! add. The resources [`crate::voices`] and [`crate::models`] show it, [`crate::vendors`] speaks with it.

pub mod countries;
pub mod models;
pub mod providers;
pub mod voices;
