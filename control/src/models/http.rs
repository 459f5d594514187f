//! Routes of models (document 2, Models).

use axum::{Json, response::IntoResponse};
use serde_json::json;

use super::{
    catalogue::all,
    wire::{ModelRecord, ModelsQuery},
};
use crate::http::{Access, Endpoint, Query, Scope};

/// The routes.
pub fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/models", Access::Scopes(&[Scope::ModelsRead]), list)
            .summary("Models that an agent may use")
            .query::<ModelsQuery>(),
    ]
}

async fn list(Query(query): Query<ModelsQuery>) -> impl IntoResponse {
    let items: Vec<ModelRecord> = all()
        .filter(|model| model.available || query.include_unavailable)
        .map(ModelRecord::from)
        .collect();
    Json(json!({ "items": items }))
}
