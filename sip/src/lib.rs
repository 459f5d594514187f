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
//! | `call` | One INVITE session: forks, CANCEL, reliable provisionals, offers, session timer, REFER |
//! | `register` | A registration with a carrier |
//! | [`auth`] | Digest, both sides |
//! | [`trunk`] | Trunks |
//! | [`gate`] | Who may speak to us |
//! | [`locate`] | Where requests go, given what DNS said |
//! | [`lookups`] | Which name is looked up next |
//! | [`event`] | All that can be asked for and heard |
//! | [`endpoint`] | All of it as one machine: bytes, commands, time in; bytes, events, a deadline out |
//!
//! The contract of each core: one `handle(now, …)`, then `poll()` until it says to wait; an early
//! timeout changes nothing, a late one does all that is due in order; the same inputs and seed give the
//! same outputs.

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
pub mod gate;
pub mod ids;
pub mod locate;
pub mod lookups;
pub mod message;
mod register;
mod seam;
pub mod shell;
pub mod time;
pub mod transaction;
pub mod trunk;
