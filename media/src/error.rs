//! Errors of the engine.
