//! Bodies of the models' routes.

use super::catalogue::Model;
use crate::http::wire::{answer, body};

answer! {
    /// One catalogue entry.
    #[derive(Clone, Copy, Debug)]
    pub struct ModelRecord = "Model" of Model {
        /// The id of this model, for an agent's `llm_model`.
        id: &'static str,
        /// What it is called.
        name: &'static str,
        /// Who runs it.
        provider: &'static str,
        /// Whether it can be used; false while its provider is not configured.
        available: bool,
    }
}

body! {
    /// The query of `GET /models`.
    pub query ModelsQuery;
    default include_unavailable: bool, "Also list models whose provider is not configured.";
}
