//! What a telephone call's media is made of, pure: packets, reports, keys, digits, and the words in
//! which two sides agree on them.
//!
//! | Module | What it holds |
//! |---|---|
//! | [`packet`] | RTP headers (RFC 3550 section 5.1) |
//! | [`rtcp`] | Reports of loss, jitter and round trip (RFC 3550 section 6) |
//! | [`srtp`] | Encryption of both (RFC 3711) |
//! | [`dtmf`] | Keypad digits as events (RFC 4733) and as tones |
//! | [`sdp`] | Offer and answer (RFC 8866, RFC 3264), keys in them (RFC 4568) |
//! | [`presses`] | Keys that come as events and in signalling, too |
//! | [`peer`] | From where packets are taken |

pub mod dtmf;
pub mod packet;
pub mod presses;
pub mod remote;
pub mod rtcp;
pub mod sdp;
pub mod srtp;
