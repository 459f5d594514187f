//! Calls from a browser's side, by aiortc, against the real program: all over the documented routes.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

mod barge_in;
mod calls;
mod g722;
mod hostile;
mod phone;

use kit::stage;
