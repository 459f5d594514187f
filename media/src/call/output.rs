//! All that a call can ask for.

use serde::Serialize;

use super::record::{Summary, Turn};
use crate::leg::RtpPacket;
use crate::peer::PeerState;
use crate::speech::{ModelRequest, ReplyId, ToolCall, UtteranceId};
use crate::time::Time;

/// One thing to be done by the shell. Borrowed data lives until the next `poll` or `handle`.
#[derive(Debug, PartialEq)]
pub enum Output<'a> {
    /// Send this text message to the caller's socket.
    Text(&'a str),
    /// Send this payload to the caller as one RTP packet.
    Packet {
        /// In units of the codec's clock.
        timestamp: u32,
        /// The first of a talkspurt.
        marker: bool,
        payload: &'a [u8],
    },
    /// Send this packet on a telephone call's line.
    Rtp(RtpPacket<'a>),
    /// Close the caller's socket with this code (RFC 6455 section 7.4). Nothing is sent after it.
    Close {
        code: u16,
        reason: &'static str,
    },
    Recogniser(RecogniserCommand<'a>),
    Llm(LlmCommand),
    Synthesiser(SynthesiserCommand),
    /// Run this tool outside the engine and answer with `Input::Tool`.
    Tool {
        reply: ReplyId,
        call: ToolCall,
    },
    /// The reply that wanted the tool is gone: its answer is not waited for.
    CancelTool {
        id: String,
    },
    /// Put sound into the recording: `samples` of one side at position `at` (samples at 16 kHz since
    /// the recording's first). Positions of one side never overlap; what is not written is silence.
    Record {
        side: Side,
        at: u64,
        samples: &'a [i16],
    },
    /// Something the control plane wants to know.
    Event(CallEvent),
    /// Nothing more to do until this time, or until the next input.
    Wait(Time),
    /// The call is over: all its outputs have been given. Further inputs are ignored.
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum Side {
    Caller,
    Agent,
}

#[derive(Debug, PartialEq)]
pub enum RecogniserCommand<'a> {
    Begin(UtteranceId),
    Audio(UtteranceId, &'a [i16]),
    Finish(UtteranceId),
    Cancel(UtteranceId),
}

#[derive(Debug, PartialEq)]
pub enum LlmCommand {
    Start(ReplyId, Box<ModelRequest>),
    Cancel(ReplyId),
}

#[derive(Debug, PartialEq)]
pub enum SynthesiserCommand {
    Speak {
        reply: ReplyId,
        segment: u32,
        text: String,
    },
    Cancel(ReplyId),
}

/// News of a call, in order. [`CallEvent::Ended`] is the last one, once.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum CallEvent {
    /// The first and only connection was made.
    Started,
    /// What the agent is doing, for `/status`.
    Agent(AgentState),
    /// Where the WebRTC connection of the call stands.
    Peer(PeerState),
    /// A tool call's life, for `/tool-result`.
    Tool { id: String, stage: ToolStage },
    /// A turn is finished and will not change.
    Turn(Box<Turn>),
    /// The call is over.
    Ended(Box<Summary>),
}

/// Where a tool call stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolStage {
    /// Its answer is awaited.
    Running,
    Answered,
    /// Its answer is no longer wanted.
    Expired,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentState {
    Listening,
    Thinking,
    Speaking,
    Tool,
    OnHold,
}
