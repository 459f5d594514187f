//! Pages of lists.

use std::marker::PhantomData;

use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use schemars::JsonSchema;
use serde::Serialize;

use super::error::ApiError;
use super::extract::query_pairs;
use super::validate::{FieldError, Loc};
use crate::db::Window;

/// The bounds of `limit` on one list.
pub trait Limits: Send + Sync + 'static {
    const DEFAULT: u32;
    const MAX: u32;
    /// The smallest limit.
    const MIN: u32 = 1;
}

/// At most so many, and so many where nothing is asked for.
#[derive(Clone, Copy, Debug)]
pub struct UpTo<const MAX: u32, const DEFAULT: u32 = 50>;

impl<const MAX: u32, const DEFAULT: u32> Limits for UpTo<MAX, DEFAULT> {
    const DEFAULT: u32 = DEFAULT;
    const MAX: u32 = MAX;
}

macro_rules! limits {
    ($($(#[$doc:meta])* $name:ident $min:literal $default:literal $max:literal),+ $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name;

        impl Limits for $name {
            const DEFAULT: u32 = $default;
            const MAX: u32 = $max;
            const MIN: u32 = $min;
        }
    )+};
}

limits! {
    AgentsPage 1 50 100,
    ConversationsPage 1 50 100,
    CallsPage 1 50 100,
    RecordingsPage 1 50 1000,
    VoicesPage 0 100 500,
}

/// Where a page begins and how long it is, within the bounds of `L`.
#[derive(Debug)]
pub struct Page<L> {
    pub limit: u32,
    pub offset: u32,
    bounds: PhantomData<L>,
}

impl<L> Page<L> {
    pub const fn new(limit: u32, offset: u32) -> Self {
        Self {
            limit,
            offset,
            bounds: PhantomData,
        }
    }
}

impl<L> Clone for Page<L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L> Copy for Page<L> {}

impl<L> From<Page<L>> for Window {
    fn from(page: Page<L>) -> Self {
        Self {
            limit: page.limit,
            offset: page.offset,
        }
    }
}

impl<S: Sync, L: Limits> FromRequestParts<S> for Page<L> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let mut page = Self::new(L::DEFAULT, 0);
        let mut errors = Vec::new();
        for (key, value) in query_pairs(parts) {
            match key.as_str() {
                "limit" => read(&key, &value, L::MIN, L::MAX, &mut page.limit, &mut errors),
                "offset" => read(
                    &key,
                    &value,
                    0,
                    i32::MAX as u32,
                    &mut page.offset,
                    &mut errors,
                ),
                _ => {}
            }
        }
        if errors.is_empty() {
            Ok(page)
        } else {
            Err(ApiError::Fields(errors))
        }
    }
}

fn read(key: &str, value: &str, min: u32, max: u32, into: &mut u32, errors: &mut Vec<FieldError>) {
    let mut wrong = |kind, msg: String| {
        errors.push(FieldError {
            loc: vec![Loc::from("query"), Loc::from(key)],
            msg,
            kind,
        });
    };
    match value.parse::<i64>() {
        Err(_) => wrong("int_parsing", "Input should be a valid integer".to_owned()),
        Ok(number) if number < i64::from(min) => {
            wrong(
                "greater_than_equal",
                format!("Input should be greater than or equal to {min}"),
            );
        }
        Ok(number) if number > i64::from(max) => {
            wrong(
                "less_than_equal",
                format!("Input should be less than or equal to {max}"),
            );
        }
        Ok(number) => *into = u32::try_from(number).unwrap_or(max),
    }
}

/// One page of a list.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "{T}List")]
pub struct List<T> {
    pub items: Vec<T>,
    /// How many there are on all pages.
    pub total: u64,
    /// The most items of a page: as asked for, or the default.
    pub limit: u32,
    pub offset: u32,
    /// Whether a further page holds something: ask for it with `offset` plus the number of `items`.
    pub has_more: bool,
}

impl<T> List<T> {
    /// What a page of rows is answered with.
    pub fn of<R, L>(found: (Vec<R>, u64), page: Page<L>) -> Self
    where
        T: From<R>,
    {
        Self::each(found, page, T::from)
    }

    /// The same, where a row alone does not tell its answer.
    pub fn each<R, L>(
        (rows, total): (Vec<R>, u64),
        page: Page<L>,
        answer: impl FnMut(R) -> T,
    ) -> Self {
        Self::new(rows.into_iter().map(answer).collect(), total, page)
    }

    pub fn new<L>(items: Vec<T>, total: u64, page: Page<L>) -> Self {
        let has_more = u64::from(page.offset) + (items.len() as u64) < total;
        Self {
            items,
            total,
            limit: page.limit,
            offset: page.offset,
            has_more,
        }
    }
}

impl<T: Serialize> IntoResponse for List<T> {
    fn into_response(self) -> Response {
        axum::Json(self).into_response()
    }
}

/// A closed set. It has no pages.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "{T}Set")]
pub struct Items<T> {
    pub items: Vec<T>,
}

impl<T: Serialize> IntoResponse for Items<T> {
    fn into_response(self) -> Response {
        axum::Json(self).into_response()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at a surprise")]

    use super::*;

    async fn page(query: &str) -> Result<(u32, u32), String> {
        let (mut parts, ()) = http::Request::builder()
            .uri(format!("/x?{query}"))
            .body(())
            .unwrap()
            .into_parts();
        match Page::<AgentsPage>::from_request_parts(&mut parts, &()).await {
            Ok(page) => Ok((page.limit, page.offset)),
            Err(error) => Err(error.body("").to_string()),
        }
    }

    #[tokio::test]
    async fn out_of_range_is_refused_with_both_names() {
        assert_eq!(page("").await.unwrap(), (50, 0));
        assert_eq!(page("limit=100&offset=7&x=y").await.unwrap(), (100, 7));
        let wrong = page("limit=101&offset=-1").await.unwrap_err();
        assert!(
            wrong.contains("less_than_equal") && wrong.contains("greater_than_equal"),
            "{wrong}"
        );
        assert!(page("limit=ten").await.unwrap_err().contains("int_parsing"));
    }
}
