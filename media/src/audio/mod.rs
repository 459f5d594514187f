//! Signal processing on PCM16.

pub mod g711;
pub mod level;
pub mod playout;
pub mod resample;
pub mod tones;
