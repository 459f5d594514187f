//! The native protocol: flat JSON messages.
