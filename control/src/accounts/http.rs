//! Routes of accounts; the administrator's.

use axum::extract::State;
use axum::response::IntoResponse;
use http::StatusCode;

use super::store;
use super::wire::{AccountOut, CreateAccount};
use crate::app::App;
use crate::http::page::{ApiKeysPage, List, Page};
use crate::http::{Access, ApiError, Body, Class, Endpoint};

/// The route table.
pub fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::post("/admin/accounts", Access::Admin, create)
            .body::<CreateAccount>()
            .class(Class::Exempt)
            .summary("Make an account"),
        Endpoint::get("/admin/accounts", Access::Admin, list)
            .page::<ApiKeysPage>()
            .class(Class::Exempt)
            .summary("List accounts"),
    ]
}

async fn create(
    State(app): State<App>,
    Body(body): Body<CreateAccount>,
) -> Result<impl IntoResponse, ApiError> {
    let account = store::create(&app.db, &app.clock, &body.name)
        .await?
        .ok_or_else(|| ApiError::conflict("name_taken", "An account of this name exists"))?;
    Ok((StatusCode::CREATED, axum::Json(AccountOut::from(account))))
}

async fn list(
    State(app): State<App>,
    page: Page<ApiKeysPage>,
) -> Result<impl IntoResponse, ApiError> {
    let (accounts, total) = store::list(&app.db, page.limit, page.offset).await?;
    Ok(List::new(
        accounts.into_iter().map(AccountOut::from).collect(),
        total,
        page,
    ))
}
