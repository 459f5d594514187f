//! Turn taking on virtual time: the rows of the turn table, each a test of its name; properties over
//! random conversations; and a much simpler model that has to agree.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod aligned;
mod bounds;
mod browser;
mod eagerness;
mod fillers;
mod heard;
mod interruptions;
mod lines;
mod model;
mod properties;
mod replays;
mod rows;
mod talks;
mod telephone;
mod tools;
mod transcripts;
mod unheard;
