//! The API over real HTTP: the grid of all routes, each resource, bad input.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod bad_input;
mod grid;
mod table;
