//! The offline recogniser: pocketsphinx with its packaged English models, made to hear one agent's
//! callers better.
//!
//! `lm.rs` builds a language model of the agent's own words, mixed half and half with the packaged
//! one; `mllr.rs` moves the acoustic model towards a telephone's band; `cepstra.rs` finds the level of
//! a channel, so that a decoder can serve many calls in turn; `decoder.rs` is the safe face of the C
//! library (`ffi.rs`); `pool.rs` keeps decoders warm on threads of their own and
//! hands them the utterances (`utterance.rs`) with the files to listen with (`models.rs`).

mod cepstra;
pub mod decoder;
#[expect(
    unsafe_code,
    reason = "the C functions of a library without a Rust face"
)]
mod ffi;
pub mod lm;
pub mod mllr;
mod models;
pub mod pool;
mod utterance;
