//! SIP for sidetone: messages, transactions, dialogs (RFC 3261), sans-IO outside `shell/`.
//!
//! This crate knows messages, transactions and dialogs. A body is bytes with a content type: what
//! SDP says belongs to `media`. It names neither `media` nor `control`, reads no clock and opens no
//! socket; time and randomness come in as arguments. Nothing of it is built yet beyond this
//! contract, which the workspace's lints and the tidy test already hold.
