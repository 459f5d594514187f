//! What the call wants done, in order, in buffers that are used again.

use std::collections::VecDeque;
use std::ops::Range;

use super::output::{CallEvent, LlmCommand, Output, Side, SttCommand, TtsCommand};
use crate::leg::RtpPacket;
use crate::speech::{ReplyId, ToolCall, UtteranceId};
use crate::time::{Samples, Time};

/// Outputs that wait to be polled. Bounded by the contract: the shell polls all of them after each
/// input.
#[derive(Debug)]
pub(super) struct Outbox {
    queue: VecDeque<Item>,
    text: String,
    audio: Vec<i16>,
    /// Payloads of packets.
    bytes: Vec<u8>,
    /// The socket takes no more messages.
    closed: bool,
    characters: u64,
    /// Samples at 16 kHz.
    heard: u64,
}

#[derive(Debug)]
enum Item {
    Text(Range<usize>),
    Packet {
        timestamp: u32,
        marker: bool,
        bytes: Range<usize>,
    },
    /// A packet; its payload stands here.
    Rtp(RtpPacket<'static>, Range<usize>),
    Close {
        code: u16,
        reason: &'static str,
    },
    SttBegin(UtteranceId),
    SttAudio(UtteranceId, Range<usize>),
    SttFinish(UtteranceId),
    SttCancel(UtteranceId),
    Llm(LlmCommand),
    Tts(TtsCommand),
    Tool(ReplyId, ToolCall),
    CancelTool(String),
    Record {
        side: Side,
        at: u64,
        audio: Range<usize>,
    },
    Event(CallEvent),
    Done,
}

impl Outbox {
    pub(super) fn new() -> Self {
        Self {
            queue: VecDeque::with_capacity(24),
            text: String::with_capacity(4 * 1024),
            // The pre-roll of a voice, and a frame of each side.
            audio: Vec::with_capacity(6 * 1024),
            bytes: Vec::new(),
            closed: false,
            characters: 0,
            heard: 0,
        }
    }

    /// Starts anew with the buffers when all was taken.
    pub(super) fn recycle(&mut self) {
        if self.queue.is_empty() {
            self.text.clear();
            self.audio.clear();
            self.bytes.clear();
        }
    }

    /// Lets `write` append one message; `false` from it: there is none.
    pub(super) fn message(&mut self, write: impl FnOnce(&mut String) -> bool) {
        let start = self.text.len();
        if write(&mut self.text) && !self.closed {
            self.queue.push_back(Item::Text(start..self.text.len()));
        } else {
            self.text.truncate(start);
        }
    }

    /// Lets `write` append one packet's payload and tell its timestamp and marker; `None` from it:
    /// nothing is sent.
    pub(super) fn packet(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Option<(u32, bool)>) {
        let start = self.bytes.len();
        match write(&mut self.bytes) {
            Some((timestamp, marker)) if !self.closed => {
                let bytes = start..self.bytes.len();
                self.queue.push_back(Item::Packet {
                    timestamp,
                    marker,
                    bytes,
                });
            }
            _ => self.bytes.truncate(start),
        }
    }

    /// Appends a whole packet.
    pub(super) fn rtp(&mut self, packet: &RtpPacket<'_>) {
        if self.closed {
            return;
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(packet.payload);
        let head = RtpPacket {
            payload: &[],
            ..*packet
        };
        self.queue
            .push_back(Item::Rtp(head, start..self.bytes.len()));
    }

    pub(super) fn close(&mut self, code: u16, reason: &'static str) {
        if !self.closed {
            self.closed = true;
            self.queue.push_back(Item::Close { code, reason });
        }
    }

    /// The socket is gone: nothing more can be sent.
    pub(super) fn socket_gone(&mut self) {
        self.closed = true;
    }

    pub(super) fn stt_begin(&mut self, utterance: UtteranceId) {
        self.queue.push_back(Item::SttBegin(utterance));
    }

    pub(super) fn stt_audio(&mut self, utterance: UtteranceId, samples: &[i16]) {
        self.heard += samples.len() as u64;
        let range = self.keep(samples);
        self.queue.push_back(Item::SttAudio(utterance, range));
    }

    pub(super) fn stt_finish(&mut self, utterance: UtteranceId) {
        self.queue.push_back(Item::SttFinish(utterance));
    }

    pub(super) fn stt_cancel(&mut self, utterance: UtteranceId) {
        self.queue.push_back(Item::SttCancel(utterance));
    }

    pub(super) fn llm(&mut self, command: LlmCommand) {
        self.queue.push_back(Item::Llm(command));
    }

    pub(super) fn tts(&mut self, command: TtsCommand) {
        if let TtsCommand::Speak { text, .. } = &command {
            self.characters += text.chars().count() as u64;
        }
        self.queue.push_back(Item::Tts(command));
    }

    pub(super) fn tool(&mut self, reply: ReplyId, call: ToolCall) {
        self.queue.push_back(Item::Tool(reply, call));
    }

    pub(super) fn cancel_tool(&mut self, id: String) {
        self.queue.push_back(Item::CancelTool(id));
    }

    pub(super) fn record(&mut self, side: Side, at: u64, samples: &[i16]) {
        let audio = self.keep(samples);
        self.queue.push_back(Item::Record { side, at, audio });
    }

    pub(super) fn event(&mut self, event: CallEvent) {
        self.queue.push_back(Item::Event(event));
    }

    pub(super) fn done(&mut self) {
        self.queue.push_back(Item::Done);
    }

    /// Characters given to the voice, and caller audio given to the recogniser, since the beginning.
    pub(super) const fn used(&self) -> (u64, Samples) {
        (self.characters, Samples(self.heard))
    }

    /// The oldest output; when there is none, `Wait` until `deadline`.
    pub(super) fn take(&mut self, deadline: Time) -> Output<'_> {
        let Some(item) = self.queue.pop_front() else {
            return Output::Wait(deadline);
        };
        match item {
            Item::Text(range) => Output::Text(&self.text[range]),
            Item::Packet {
                timestamp,
                marker,
                bytes,
            } => Output::Packet {
                timestamp,
                marker,
                payload: &self.bytes[bytes],
            },
            Item::Rtp(head, range) => Output::Rtp(RtpPacket {
                payload: &self.bytes[range],
                ..head
            }),
            Item::Close { code, reason } => Output::Close { code, reason },
            Item::SttBegin(utterance) => Output::Stt(SttCommand::Begin(utterance)),
            Item::SttAudio(utterance, range) => {
                Output::Stt(SttCommand::Audio(utterance, &self.audio[range]))
            }
            Item::SttFinish(utterance) => Output::Stt(SttCommand::Finish(utterance)),
            Item::SttCancel(utterance) => Output::Stt(SttCommand::Cancel(utterance)),
            Item::Llm(command) => Output::Llm(command),
            Item::Tts(command) => Output::Tts(command),
            Item::Tool(reply, call) => Output::Tool { reply, call },
            Item::CancelTool(id) => Output::CancelTool { id },
            Item::Record { side, at, audio } => Output::Record {
                side,
                at,
                samples: &self.audio[audio],
            },
            Item::Event(event) => Output::Event(event),
            Item::Done => Output::Done,
        }
    }

    fn keep(&mut self, samples: &[i16]) -> Range<usize> {
        let start = self.audio.len();
        self.audio.extend_from_slice(samples);
        start..self.audio.len()
    }
}
