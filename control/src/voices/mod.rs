//! voices
