//! recordings
