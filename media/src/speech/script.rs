//! Scripted providers.
