//! Bodies of the models' routes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::catalogue::Model;
use crate::http::{
    Wire,
    validate::{Field, Kind, Schema, Unknown},
};

/// One catalogue entry.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Model")]
pub struct ModelRecord {
    /// The id of this model, for an agent's `llm_model`.
    pub id: &'static str,
    /// What it is called.
    pub name: &'static str,
    /// Who runs it.
    pub provider: &'static str,
    /// Whether it can be used; false while its provider is not configured.
    pub available: bool,
}

impl From<&Model> for ModelRecord {
    fn from(model: &Model) -> Self {
        let Model {
            id,
            name,
            provider,
            available,
        } = *model;
        Self {
            id,
            name,
            provider,
            available,
        }
    }
}

/// The query of `GET /models`.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct ModelsQuery {
    #[serde(default)]
    pub include_unavailable: bool,
}

impl Wire for ModelsQuery {
    const SCHEMA: &'static Schema = &Schema {
        name: "ModelsQuery",
        fields: &[Field::opt(
            "include_unavailable",
            Kind::Bool,
            "Also list models whose provider is not configured.",
        )],
        unknown: Unknown::Ignore,
    };
}
