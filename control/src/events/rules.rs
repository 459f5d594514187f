//! What kinds of event there are and how each is delivered. Pure.

/// The events of this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    CallEnded,
    RecordingReady,
}

impl EventType {
    /// The word in the event header.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CallEnded => "call.ended",
            Self::RecordingReady => "recording.ready",
        }
    }

    /// How hard delivery tries: `durable` goes on for days, `short` makes three attempts.
    pub const fn class(self) -> &'static str {
        match self {
            Self::CallEnded => "durable",
            Self::RecordingReady => "short",
        }
    }
}

/// The state an event starts in: without an address there is nothing to deliver.
pub const fn first_status(has_address: bool) -> &'static str {
    if has_address { "pending" } else { "skipped" }
}
