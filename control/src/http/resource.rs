//! What the handlers of every resource say in the same words.

use std::ops::Deref;

use axum::Json;
use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, NoContent, Response};
use bytes::Bytes;
use http::request::Parts;
use http::{StatusCode, header};
use serde::Serialize;

use super::auth::Caller;
use super::error::ApiError;
use super::extract::{Id, PathId};
use super::page::{Limits, List, Page};
use crate::db::{Db, Record, Rows};
use crate::ids::AccountId;

/// What a handler of a resource starts with: the parts of the application that it works on, and who asks.
pub struct Context<S> {
    state: S,
    pub caller: Caller,
    pub account: AccountId,
}

impl<S: AsRef<Db>> Context<S> {
    /// The rows of the account that asks.
    pub fn rows<R: Record>(&self) -> Rows<'_, R> {
        self.state.as_ref().of(self.account)
    }
}

impl<S> Deref for Context<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.state
    }
}

impl<S: Clone + Send + Sync> FromRequestParts<S> for Context<S> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let caller = <Caller as FromRequestParts<S>>::from_request_parts(parts, state).await?;
        Ok(Self {
            state: state.clone(),
            caller,
            account: caller.account,
        })
    }
}

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

/// What a handler gives back that has made something.
pub type Made<T> = Result<Created<T>, ApiError>;

/// What a handler gives back that has nothing to say.
pub type Done = Result<NoContent, ApiError>;

/// A body that is JSON already.
pub fn json(text: Bytes) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
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
pub(super) async fn one<S, R, O>(cx: Context<S>, Id(id): Id<R::Id>) -> Reply<O>
where
    S: AsRef<Db>,
    R: Record + Send,
    R::Id: PathId,
    O: From<R>,
{
    let row: R = cx.rows().get(id).await?.found()?;
    Ok(Json(row.into()))
}

/// `GET` of a page of the account's rows, newest first.
pub(super) async fn list<S, R, O, L>(cx: Context<S>, page: Page<L>) -> Result<List<O>, ApiError>
where
    S: AsRef<Db>,
    R: Record + Send,
    O: From<R>,
    L: Limits,
{
    Ok(List::of(cx.rows::<R>().page(page).await?, page))
}
