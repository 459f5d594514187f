//! SIP for sidetone (RFC 3261), sans-IO outside `shell/`.
//!
//! This crate knows messages, transactions and dialogs. A body is bytes with a content type: what
//! SDP says belongs to `media`. It names neither `media` nor `control`, reads no clock and opens no
//! socket; time and randomness come in as arguments.
//!
//! | Module | What it holds |
//! |---|---|
//! | [`message`] | Bytes to messages and back; header values |
//! | [`transaction`] | The four machines of RFC 3261 17 |
//! | [`dialog`] | What both sides of a call remember |
//! | [`auth`] | Digest, both sides |
//! | [`locate`] | Where requests go, given what DNS said |

#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::panic,
        reason = "a failed step is a failed test"
    )
)]

pub mod auth;
mod call;
pub mod dialog;
pub mod endpoint;
pub mod event;
pub mod ids;
pub mod locate;
pub mod message;
mod register;
mod seam;
pub mod time;
pub mod transaction;
pub mod trunk;
