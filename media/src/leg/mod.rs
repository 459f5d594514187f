//! One audio leg: wire bytes to caller audio and back. Pure: no socket, no clock.

pub mod ws;

/// What a leg found in one message from the caller's side. Borrowed data lives in the leg or in the
/// message itself.
#[derive(Debug, PartialEq)]
pub enum LegEvent<'a> {
    /// The vendor's stream has begun, and agent audio can be sent. `token` is what its
    /// `customParameters` held. (A native client is ready from the start and has no such event.)
    Started { token: Option<&'a str> },
    /// Caller audio at 16 kHz, any length up to 1 s.
    Audio(&'a [i16]),
    /// Audio lost on the way, whose place is known: right before the next `Audio`. Samples at
    /// 16 kHz.
    Lost { samples: u64 },
    /// A keypad press, exactly as pressed: `0-9 * # A-D`.
    Digit(char),
    /// Background for the agent.
    ContextualUpdate(&'a str),
    /// Typed text of the caller.
    UserMessage(&'a str),
    /// A client tool's answer; `result` is JSON text.
    ToolResult {
        tool_call_id: &'a str,
        result: &'a str,
        is_error: bool,
    },
    /// The answer to a ping.
    Pong { event_id: u64 },
    /// The client says how much of the audio message `event_id` it has played, ms.
    Played { event_id: u64, played_ms: u64 },
    /// The vendor played everything up to our mark: `sent` samples (16 kHz) of agent audio since
    /// the call's start.
    Marked { sent: u64 },
    /// The other side ends the call.
    End,
    /// A message that cannot be used: tell the client `error{code, message}` and go on.
    Invalid {
        code: &'static str,
        message: &'a str,
    },
    /// Too many of them: tell the client and close with this code.
    Violation {
        close: u16,
        code: &'static str,
        message: &'a str,
    },
}
