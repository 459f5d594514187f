//! What a route answers, as data: the type of its success, and the refusals that do not follow from who may
//! call it and what it takes. The OpenAPI document reads it.

use http::StatusCode;
use schemars::{JsonSchema, Schema, SchemaGenerator};

/// The body of a success.
#[derive(Clone, Copy, Debug)]
pub enum Answer {
    /// The table does not tell; a test refuses it.
    Untold,
    /// There is none.
    Empty,
    /// JSON of a wire type.
    Json(fn(&mut SchemaGenerator) -> Schema),
    /// Something else than JSON, of one of these media types.
    Media(&'static [&'static str]),
}

impl Answer {
    /// JSON of this type.
    pub fn json<T: JsonSchema>() -> Self {
        Self::Json(SchemaGenerator::subschema_for::<T>)
    }
}

/// A way in which a route refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub status: StatusCode,
    /// The slug in `code`.
    pub code: &'static str,
    /// When it happens, in words.
    pub when: &'static str,
}

/// A header of a success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderDoc {
    pub name: &'static str,
    /// Its JSON type: `string` or `integer`.
    pub kind: &'static str,
    pub doc: &'static str,
}
