//! Tapes: round trip, replay, redaction, and junk.

