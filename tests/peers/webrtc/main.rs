//! Calls from a browser's side, by aiortc and webrtc-rs, against the real program: all over the documented routes.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

mod barge_in;
mod calls;
mod ear;
mod g722;
mod hostile;
mod phone;
mod webrtc_rs;

use kit::stage;
