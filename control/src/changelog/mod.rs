//! The dated log of changes that clients can see, as it was when this program was built (document 1,
//! Versioning).

pub mod http;
pub mod rules;
