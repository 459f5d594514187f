//! The telephony vendor's media-stream protocol.
