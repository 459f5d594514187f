//! Calls from a browser's side, by aiortc, against the real program: all over the documented routes.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

mod calls;
mod hostile;
mod phone;
#[path = "../calls/stage.rs"]
#[allow(dead_code, reason = "what is shared is more than this needs")]
mod stage;
