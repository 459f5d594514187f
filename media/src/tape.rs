//! The tape of a call: every input with its time, and its replay.
//!
//! A [`Call`](crate::call::Call) is a pure machine: the same inputs at the same times give the same
//! outputs. So a tape holds only the inputs, and a call that went wrong becomes a file that can be
//! looked at again.
//!
//! # The format, version 1
//!
//! The first line is the [`Header`] as JSON, ended by a line feed. After it come binary records:
//!
//! ```text
//! record  = input | check | stop | done
//! input   = kind(1) delta payload     delta: microseconds since the input before (varint)
//! check   = 0x40 u16                  digest of all outputs so far (little endian)
//! stop    = 0x41                      the tape was stopped here: full, or its bytes were lost
//! done    = 0x42 u64                  the call is over; digest of all its outputs
//! payload = nothing, one byte, or length(varint) bytes; see `Kind`
//! ```
//!
//! The shell polls a call after each input until it waits, at the time of that input, so a tape
//! needs no records of polls: an input stands for its polls. The `check` after an input tells
//! whether its outputs are those of the recording, which names the first record that differs.
//!
//! A call whose sound must not be kept has a redacted tape: the shape and length of everything, but
//! neither audio nor words (see [`redact`]). Its replay goes its own way, so it holds no checks.

mod digest;
mod reader;
mod redact;
mod replay;
mod writer;

use serde::{Deserialize, Serialize};

pub use self::reader::{Item, Reader, Record};
pub use self::redact::redact;
pub use self::replay::{Difference, Replay, first_difference, replay, replay_with};
pub use self::writer::TapeWriter;
use crate::config::CallConfig;
use crate::time::Time;

/// What the header's `format` says.
pub const FORMAT: &str = "sidetone-tape";

/// The version that this module writes and reads.
pub const VERSION: u32 = 1;

/// A tape is stopped at this size: 90 minutes of the heaviest format (PCM in base64), three times
/// the usual longest call, so that a call without end cannot fill the disk.
pub const MAX_BYTES: u64 = 256 << 20;

/// Bytes of a packet's record before its payload.
const PACKET_HEAD: usize = 11;

/// The first line of a tape.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    pub format: String,
    pub version: u32,
    /// The engine's time when the call was made; the first input's delta counts from here.
    pub start: Time,
    /// What [`Recogniser::punctuates`](crate::speech::Recogniser::punctuates) said.
    pub punctuates: bool,
    pub redacted: bool,
    pub config: CallConfig,
}

/// The first byte of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Connected = 1,
    /// UTF-8.
    Text = 2,
    Binary = 3,
    /// One byte: 0 closed, 1 stalled.
    Gone = 4,
    /// A [`SpeechEvent`](crate::speech::SpeechEvent) as JSON.
    Speech = 5,
    /// A voice's audio: varints reply, segment, rate, then PCM16 little endian. Apart from `Speech`
    /// because it is nearly all of a tape that is not from the socket.
    Audio = 6,
    /// A [`ToolOutcome`](crate::call::input::ToolOutcome) as JSON.
    Tool = 7,
    /// An [`EndRequest`](crate::call::input::EndRequest) as JSON.
    End = 8,
    Timeout = 9,
    /// An RTP packet: payload type with the marker as the highest bit, sequence number (2 bytes),
    /// timestamp (4), SSRC (4), all little endian, then its payload.
    Packet = 10,
    /// A [`PeerState`](crate::peer::PeerState) as JSON.
    Peer = 11,
    /// One byte: 0 resumed, 1 on hold.
    Hold = 12,
    /// A [`Report`](crate::call::input::Report) as JSON.
    Report = 13,
    /// An [`RtpPlan`](crate::leg::rtp::RtpPlan) as JSON.
    Media = 14,
    /// One byte: the key.
    Press = 15,
    /// One byte: the key.
    Key = 16,
    /// The most bits a second as JSON, or null.
    Limit = 17,
    /// One byte: 1 when the caller's description says that they send.
    Sends = 18,
    Check = 0x40,
    Stop = 0x41,
    Done = 0x42,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        [
            Self::Connected,
            Self::Text,
            Self::Binary,
            Self::Gone,
            Self::Speech,
            Self::Audio,
            Self::Tool,
            Self::End,
            Self::Timeout,
            Self::Packet,
            Self::Peer,
            Self::Hold,
            Self::Report,
            Self::Media,
            Self::Press,
            Self::Key,
            Self::Limit,
            Self::Sends,
            Self::Check,
            Self::Stop,
            Self::Done,
        ]
        .into_iter()
        .find(|kind| *kind as u8 == byte)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed step is a failed test")]
mod tests;
