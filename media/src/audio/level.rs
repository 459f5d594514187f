//! Loudness in dBFS.
