//! Errors of the engine that its users see.

use std::fmt;

/// Why the engine did not take a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// As many calls as this node may hold are live, or its threads are behind with taking calls.
    Full,
    /// The engine is shutting down.
    Stopping,
    /// No media thread is left that could run the call: they have ended by faults.
    NoThread,
    /// The socket cannot be used: it is gone already, or it is not a socket that can be polled.
    Socket,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "no free call slot on this node",
            Self::Stopping => "the node is shutting down",
            Self::NoThread => "no media thread of this node is left to run the call",
            Self::Socket => "the connection was lost before the call began",
        })
    }
}

impl std::error::Error for Refused {}

/// What is wrong with the bytes of a tape, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapeError {
    /// Offset of the record (or of the header: 0) in the file, bytes.
    pub offset: usize,
    pub what: String,
}

impl TapeError {
    pub(crate) fn new(offset: usize, what: impl Into<String>) -> Self {
        Self {
            offset,
            what: what.into(),
        }
    }
}

impl fmt::Display for TapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tape, at byte {}: {}", self.offset, self.what)
    }
}

impl std::error::Error for TapeError {}
