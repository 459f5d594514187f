//! What every route shares, done once: who calls, what they may, how much, what a body must look
//! like, how an error reads. A resource brings a table of [`endpoint::Endpoint`]s and its handlers.

pub mod abandoned;
pub mod answers;
pub mod auth;
pub mod document;
pub mod endpoint;
pub mod envelope;
pub mod error;
pub mod extract;
mod ids;
pub mod limits;
pub mod openapi;
pub mod page;
pub mod patch;
pub mod range;
pub mod resource;
pub mod scope;
pub mod serve;
pub mod tls;
pub mod upgrade;
pub mod validate;
pub mod wire;

pub use auth::Caller;
pub use axum::response::NoContent;
pub use endpoint::{Access, Class, Endpoint, Operation};
pub use error::ApiError;
pub use extract::{Body, Id, Query, Wire};
pub use page::{List, Page};
pub use patch::Patch;
pub use resource::{Context, Created, Done, Found, Made, Reply};
pub use scope::Scope;
