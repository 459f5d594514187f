//! What the fuzz targets do with an input. The bodies are a library of the workspace, so that lints and tests see them;
//! a target (`fuzz/targets`) hands libFuzzer's bytes to one of them.

#![allow(clippy::panic, reason = "a panic is a finding")]

pub mod dtmf;
pub mod rtcp;
pub mod rtp;
pub mod sdp;
pub mod sip_endpoint;
pub mod sip_message;
pub mod sip_transactions;

use arbitrary::{Arbitrary, Unstructured};

/// A value as libFuzzer would make it of `bytes`; none where they spell none.
fn spelled<'a, T: Arbitrary<'a>>(bytes: &'a [u8]) -> Option<T> {
    T::arbitrary_take_rest(Unstructured::new(bytes)).ok()
}
