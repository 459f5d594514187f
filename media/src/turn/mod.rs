//! Whose turn it is.
