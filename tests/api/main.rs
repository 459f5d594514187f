//! The API over real HTTP: the grid of all routes, each resource, bad input.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod addresses;
mod audio;
mod bad_input;
mod billing;
mod browser_sessions;
mod calls;
mod claims;
mod commands;
mod conversations;
mod crash;
mod database;
mod document;
mod grid;
mod in_process;
mod isolation;
mod logs;
mod metrics;
mod outbound;
mod phone_numbers;
mod process;
mod providers;
mod sessions;
mod sip_bounds;
mod sip_trunks;
mod socket_limits;
mod table;
mod traces;
mod verify_webhook;
mod webhook_delivery;
mod webhook_readme;
mod webhooks;
