//! What the handlers of every resource say in the same words.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::Serialize;

use super::auth::Caller;
use super::error::ApiError;
use super::extract::{Id, PathId};
use super::page::{Limits, List, Page};
use crate::app::App;
use crate::db::Record;

/// What most handlers give back.
pub type Reply<T> = Result<Json<T>, ApiError>;

/// 201, with what was made.
#[derive(Debug)]
pub struct Created<T>(pub T);

impl<T: Serialize> IntoResponse for Created<T> {
    fn into_response(self) -> Response {
        (StatusCode::CREATED, Json(self.0)).into_response()
    }
}

/// What a row is to a client that asked for it: 404 where there is none.
pub trait Found {
    type It;

    fn found(self) -> Result<Self::It, ApiError>;
}

impl<T> Found for Option<T> {
    type It = T;

    fn found(self) -> Result<T, ApiError> {
        self.ok_or(ApiError::NotFound)
    }
}

/// Whether a write found its row.
impl Found for bool {
    type It = ();

    fn found(self) -> Result<(), ApiError> {
        if self {
            Ok(())
        } else {
            Err(ApiError::NotFound)
        }
    }
}

/// `GET` of one row of the account, by the id of the path.
pub(super) async fn one<R, O>(State(app): State<App>, caller: Caller, Id(id): Id<R::Id>) -> Reply<O>
where
    R: Record + Send,
    R::Id: PathId,
    O: From<R>,
{
    let row: R = app.db.of(caller.account).get(id).await?.found()?;
    Ok(Json(row.into()))
}

/// `GET` of a page of the account's rows, newest first.
pub(super) async fn list<R, O, L>(
    State(app): State<App>,
    caller: Caller,
    page: Page<L>,
) -> Result<List<O>, ApiError>
where
    R: Record + Send,
    O: From<R>,
    L: Limits,
{
    let found = app.db.of::<R>(caller.account).page(page).await?;
    Ok(List::of(found, page))
}
