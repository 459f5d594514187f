//! All that can happen to a call.

use serde::{Deserialize, Serialize};

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

/// How a socket went away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Gone {
    /// The peer closed it, or the connection broke.
    Closed,
    /// The peer stopped reading and our bounded queue is full.
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
}
