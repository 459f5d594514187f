//! What one message of the caller held: owned, so that the leg is free again when it is acted upon.

use std::time::Duration;

use crate::leg::LegEvent;

/// What one message held, kept until the leg is free again.
#[derive(Debug)]
pub(super) enum Found {
    Held(Duration),
    Audio {
        from: usize,
        to: usize,
    },
    Lost(u64),
    SilenceFollows,
    Reconnected,
    Unplaced,
    Digit(char),
    Context(String),
    Typed(String),
    ToolResult {
        id: String,
        result: String,
        is_error: bool,
    },
    Pong,
    Played {
        event_id: u64,
        played_ms: u64,
    },
    Marked(u64),
    Started,
    Silent,
    End,
    Invalid {
        close: Option<u16>,
        code: &'static str,
        message: String,
    },
}

impl Found {
    /// Audio is put behind what `incoming` holds; the event tells where.
    pub(super) fn of(event: LegEvent<'_>, incoming: &mut Vec<i16>) -> Self {
        match event {
            LegEvent::Held(held) => Self::Held(held),
            LegEvent::Audio(samples) => {
                let from = incoming.len();
                incoming.extend_from_slice(samples);
                Self::Audio {
                    from,
                    to: incoming.len(),
                }
            }
            LegEvent::Lost { samples } => Self::Lost(samples),
            LegEvent::SilenceFollows => Self::SilenceFollows,
            LegEvent::Reconnected => Self::Reconnected,
            LegEvent::Unplaced => Self::Unplaced,
            LegEvent::Digit(digit) => Self::Digit(digit),
            LegEvent::ContextualUpdate(text) => Self::Context(text.to_owned()),
            LegEvent::UserMessage(text) => Self::Typed(text.to_owned()),
            LegEvent::ToolResult {
                tool_call_id,
                result,
                is_error,
            } => Self::ToolResult {
                id: tool_call_id.to_owned(),
                result: result.to_owned(),
                is_error,
            },
            LegEvent::Pong { .. } => Self::Pong,
            LegEvent::Played {
                event_id,
                played_ms,
            } => Self::Played {
                event_id,
                played_ms,
            },
            LegEvent::Marked { sent } => Self::Marked(sent),
            LegEvent::Started { .. } => Self::Started,
            LegEvent::Silent => Self::Silent,
            LegEvent::End => Self::End,
            LegEvent::Invalid { code, message } => Self::Invalid {
                close: None,
                code,
                message: message.to_owned(),
            },
            LegEvent::Violation {
                close,
                code,
                message,
            } => Self::Invalid {
                close: Some(close),
                code,
                message: message.to_owned(),
            },
        }
    }
}
