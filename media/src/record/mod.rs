//! The recording of a call.

pub mod timeline;
pub mod wav;
