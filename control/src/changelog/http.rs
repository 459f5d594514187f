//! The route of the change log (document 1, Versioning).

use axum::response::IntoResponse;

use super::rules::{Day, parse};
use crate::http::page::Items;
use crate::http::{Access, Endpoint};

/// The log itself.
pub const CHANGES: &str = include_str!("../../CHANGES.md");

/// The route. What changed is no secret.
pub fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/changelog", Access::None, list)
            .summary("Changes that clients can see, newest first")
            .answers::<Items<Day>>(),
    ]
}

async fn list() -> impl IntoResponse {
    Items {
        items: parse(CHANGES),
    }
}
