//! Routes of models (document 2, Models).

use axum::response::IntoResponse;

use super::{
    catalogue::all,
    wire::{ModelRecord, ModelsQuery},
};
use crate::http::page::Items;
use crate::http::{Access, Endpoint, Query, Scope};
use crate::node::Node;

/// The routes.
pub fn endpoints() -> Vec<Endpoint<Node>> {
    vec![
        Endpoint::get("/models", Access::Scopes(&[Scope::ModelsRead]), list)
            .summary("Models that an agent may use")
            .operation(
                "listModels",
                "Lists the language models that an agent's `llm_model` can name. Without \
                 `include_unavailable` only those are listed whose provider is set up on this \
                 server.",
            )
            .query::<ModelsQuery>()
            .answers::<Items<ModelRecord>>(),
    ]
}

async fn list(Query(query): Query<ModelsQuery>) -> impl IntoResponse {
    let items: Vec<ModelRecord> = all()
        .filter(|model| model.available || query.include_unavailable)
        .map(|model| ModelRecord::from(*model))
        .collect();
    Items { items }
}
