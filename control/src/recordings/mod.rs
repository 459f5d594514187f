//! Recordings: one stereo WAV a call, caller left, agent right.
//!
//! `uploading` from the call's end, `ready` once the file is in the object store, `failed` when none
//! could be made or only the beginning could (the disk ran full; what there is is kept, but not served). A deleted recording is neither listed nor heard, and its objects are removed, the
//! tape beside it included. To other resources this is [`keep`] and [`give_up`] (a call's writer),
//! [`run_sweeper`] and [`spool`] (housekeeping) and [`audio`] (how a WAV is served).

pub mod audio;
pub mod http;
pub mod service;
pub mod spool;
pub mod store;
pub mod token;
pub mod wire;

pub use service::{begin_late, give_up, keep, keep_tape_alone, run_sweeper, sweep};
