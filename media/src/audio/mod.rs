//! Signal processing on PCM16: companding, sample rates, loudness, test tones, and the agent's
//! sound that waits to be played. Nothing here allocates once it is warm, and nothing depends on
//! the machine it runs on: where vector instructions are used, they do the same operations in the
//! same order as the portable code, so a tape replays to the same samples anywhere.

pub mod conceal;
pub(crate) mod fetch;
pub mod g711;
pub mod g722;
pub mod jitter;
pub(crate) mod keypad;
pub mod kind;
pub mod level;
pub mod opus;
pub mod pacing;
pub mod playout;
pub mod resample;
mod simd;
pub mod tones;
