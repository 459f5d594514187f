//! Routes of voices (document 2, Voices).

use axum::{Json, response::IntoResponse};
use serde_json::{Map, Value, json};

use super::{
    catalogue::{find, offered},
    countries::COUNTRIES,
    rules::TAGS,
    wire::{Country, VoiceRecord, VoicesQuery},
};
use crate::http::{
    Access, ApiError, Endpoint, Id, List, Page, Query, Scope, extract::PathId, page::VoicesPage,
    validate::FieldError,
};

/// The routes, in the order of the document.
pub fn endpoints() -> Vec<Endpoint> {
    const READ: Access = Access::Scopes(&[Scope::VoicesRead]);
    vec![
        Endpoint::get("/voices", READ, list)
            .summary("Voices, newest first")
            .query::<VoicesQuery>()
            .page::<VoicesPage>(),
        Endpoint::get("/voices/countries", READ, countries)
            .summary("Countries that a voice can be of, by code"),
        Endpoint::get("/voices/tag-vocabulary", READ, tag_vocabulary).summary("Tags by category"),
        Endpoint::get("/voices/{voice_id}", READ, get)
            .summary("One voice, by id or legacy voice_key"),
    ]
}

async fn list(Query(query): Query<VoicesQuery>, page: Page<VoicesPage>) -> impl IntoResponse {
    let filter = query.into_filter();
    let found: Vec<_> = offered().filter(|voice| filter.admits(voice)).collect();
    let total = found.len() as u64;
    let items = found
        .into_iter()
        .skip(page.offset as usize)
        .take(page.limit as usize)
        .map(VoiceRecord::from)
        .collect();
    Json(List::new(items, total, page))
}

async fn countries() -> impl IntoResponse {
    let items = COUNTRIES.map(|(code, name)| Country { code, name });
    Json(json!({ "items": items.as_slice() }))
}

async fn tag_vocabulary() -> impl IntoResponse {
    let vocabulary: Map<String, Value> = TAGS
        .iter()
        .map(|(category, tokens)| ((*category).to_owned(), json!(tokens)))
        .collect();
    Json(Value::Object(vocabulary))
}

/// A voice in the path: an id or a legacy key, so nothing is wrong in form.
struct VoiceRef(String);

impl PathId for VoiceRef {
    const PARAMS: usize = 1;

    fn read(texts: &[(&str, &str)]) -> Result<Self, FieldError> {
        Ok(Self(
            texts
                .first()
                .map(|(_, text)| (*text).to_owned())
                .unwrap_or_default(),
        ))
    }
}

async fn get(Id(VoiceRef(voice)): Id<VoiceRef>) -> Result<impl IntoResponse, ApiError> {
    find(&voice)
        .map(|voice| Json(VoiceRecord::from(voice)))
        .ok_or(ApiError::NotFound)
}
