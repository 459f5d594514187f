//! The OpenAPI document of this server.

use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;

use crate::app::App;
use crate::http::document::Written;
use crate::http::openapi;

/// `GET /openapi.json`.
pub(super) async fn get(State(app): State<App>, asked: HeaderMap) -> Response {
    written(&app).answer(&asked)
}

/// The document, as it is written when it is first asked for.
fn written(app: &App) -> &Written {
    app.openapi.get_or_init(|| {
        let base = &app.config.server.public_url;
        let document = openapi::document(&super::endpoints(), super::EVENTS, base);
        Written::of(document.to_string().into_bytes())
    })
}

#[cfg(test)]
#[path = "document_tests.rs"]
mod tests;
