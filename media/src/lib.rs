//! The real-time engine.

pub mod audio;
mod bucket;
pub mod call;
pub mod config;
pub mod dialog;
pub mod error;
pub mod frame;
pub mod leg;
pub mod peer;
pub mod record;
pub mod relay;
pub mod rtp;
pub mod shell;
pub mod speech;
pub mod tape;
pub mod time;
pub mod turn;
pub mod vad;
