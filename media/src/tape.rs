//! The tape of a call: every input with its time, and its replay.
