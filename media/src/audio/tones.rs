//! Test tones.
