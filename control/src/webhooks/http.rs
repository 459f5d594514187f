//! Routes of webhooks (document 1, Request shape).

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use http::StatusCode;

use super::service;
use super::wire::Rotated;
use crate::app::App;
use crate::http::{Access, ApiError, Caller, Endpoint, Scope};

/// The route table.
pub fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::post(
            "/usage/webhook-secret/rotate",
            Access::Scopes(&[Scope::UsageWrite]),
            rotate,
        )
        .returns(StatusCode::OK)
        .answers::<Rotated>()
        .summary("Make a new secret for the signatures of events; it holds at once"),
    ]
}

async fn rotate(State(app): State<App>, caller: Caller) -> Result<impl IntoResponse, ApiError> {
    let (secret, rotated_at) = service::rotate(&app, caller.account)
        .await
        .map_err(ApiError::internal)?;
    Ok(Json(Rotated {
        secret: secret.expose().clone(),
        rotated_at,
    }))
}
