//! All that can happen to a call.

use serde::{Deserialize, Serialize};

use crate::leg::RtpPacket;
use crate::leg::rtp::RtpPlan;
use crate::peer::PeerState;
use crate::speech::SpeechEvent;

/// One thing that happened. The shell hands it to [`Call::handle`](super::Call::handle) with the
/// time at which it happened.
#[derive(Debug)]
pub enum Input<'a> {
    /// The socket is open and ours: the call starts.
    Connected,
    /// A text message from the caller's socket.
    Text(&'a str),
    /// A binary message from the caller's socket (no protocol here has any).
    Binary(&'a [u8]),
    /// An RTP packet of the caller.
    Packet(RtpPacket<'a>),
    /// The caller's WebRTC connection is in this state now. [`New`](PeerState::New) begins the wait for
    /// it; [`Connected`](PeerState::Connected) the first time begins the call.
    Peer(PeerState),
    /// The caller put us on hold, or took us off it.
    Hold(bool),
    /// Whether the description of a caller over WebRTC says that they send audio.
    Sends(bool),
    /// A caller over WebRTC wants no more than so many bits of Opus a second (RFC 7587 section 6.1); `None`: it does
    /// not say.
    Limit(Option<u32>),
    /// The caller's receiver report.
    Report(Report),
    /// Another agreement on a telephone call's media holds from now on.
    Media(RtpPlan),
    /// Send this key to the other side of a telephone call.
    Press(char),
    /// The caller pressed this key, and its signalling told it, not its media: `0-9 * # A-D`.
    Key(char),
    /// The caller's socket is gone.
    Gone(Gone),
    /// A provider answered.
    Speech(SpeechEvent),
    /// A tool answered: from the API or from the control plane that ran it. (Client tools answered
    /// on the socket come as text.)
    Tool(ToolOutcome),
    /// End the call.
    End(EndRequest),
    /// A deadline that `poll` named has come (or not: an early timeout changes nothing).
    Timeout,
}

/// What the caller reports of our packets (RFC 3550 section 6.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The round trip, ms; `None` when it cannot be told yet.
    pub round_trip_ms: Option<u32>,
    /// Lost since the report before, in 256ths.
    pub lost: u8,
}

/// How a socket went away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Gone {
    /// The peer closed it, or the connection broke.
    Closed,
    /// The peer stopped reading and our bounded queue is full, or a telephone answers its signalling no more.
    Stalled,
}

/// The answer to a tool call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolOutcome {
    pub id: String,
    /// JSON text.
    pub result: String,
    pub is_error: bool,
}

/// Why somebody outside the conversation ends the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EndRequest {
    /// An API client asked for it.
    Api,
    /// The node is shutting down.
    Drain,
    /// The account may not go on (billing).
    Blocked,
    /// The engine itself failed in this call.
    Fault,
    /// Others took this node for dead, or another process runs in its place: the call is over in the record.
    Lost,
}
