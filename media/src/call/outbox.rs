//! What the call wants done, in order, in buffers that are used again.

use std::collections::VecDeque;
use std::ops::Range;

use super::output::{CallEvent, LlmCommand, Output, RecogniserCommand, Side, SynthesiserCommand};
use crate::leg::RtpPacket;
use crate::speech::{ReplyId, ToolCall, UtteranceId};
use crate::time::{Samples, Time};

/// Outputs that wait to be polled. Bounded by the contract: the shell polls all of them after each
/// input.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    waiting: Waiting,
    /// The socket takes no more messages.
    closed: bool,
    characters: u64,
    /// Samples at 16 kHz.
    heard: u64,
}

/// The outputs, and what they are about.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    queue: VecDeque<Item>,
    text: String,
    audio: Vec<i16>,
    /// Payloads of packets.
    bytes: Vec<u8>,
}

impl Waiting {
    pub(super) fn with_room() -> Self {
        Self {
            queue: VecDeque::with_capacity(24),
            text: String::with_capacity(4 * 1024),
            // The pre-roll of a voice, and a frame of each side.
            audio: Vec::with_capacity(6 * 1024),
            bytes: Vec::with_capacity(2 * 1024),
        }
    }

    fn keep(&mut self, samples: &[i16]) -> Range<usize> {
        let start = self.audio.len();
        self.audio.extend_from_slice(samples);
        start..self.audio.len()
    }
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
    RecogniserBegin(UtteranceId),
    RecogniserAudio(UtteranceId, Range<usize>),
    RecogniserFinish(UtteranceId),
    RecogniserCancel(UtteranceId),
    Llm(LlmCommand),
    Synthesiser(SynthesiserCommand),
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
    /// Takes other buffers. None of those given away holds an output: all were taken.
    pub(super) fn exchange(&mut self, waiting: &mut Waiting) {
        std::mem::swap(&mut self.waiting, waiting);
    }

    /// Starts anew with the buffers when all was taken.
    pub(super) fn recycle(&mut self) {
        if self.waiting.queue.is_empty() {
            self.waiting.text.clear();
            self.waiting.audio.clear();
            self.waiting.bytes.clear();
        }
    }

    /// Lets `write` append one message; `false` from it: there is none.
    pub(super) fn message(&mut self, write: impl FnOnce(&mut String) -> bool) {
        let start = self.waiting.text.len();
        if write(&mut self.waiting.text) && !self.closed {
            self.waiting
                .queue
                .push_back(Item::Text(start..self.waiting.text.len()));
        } else {
            self.waiting.text.truncate(start);
        }
    }

    /// Lets `write` append one packet's payload and tell its timestamp and marker; `None` from it:
    /// nothing is sent.
    pub(super) fn packet(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Option<(u32, bool)>) {
        let start = self.waiting.bytes.len();
        match write(&mut self.waiting.bytes) {
            Some((timestamp, marker)) if !self.closed => {
                let bytes = start..self.waiting.bytes.len();
                self.waiting.queue.push_back(Item::Packet {
                    timestamp,
                    marker,
                    bytes,
                });
            }
            _ => self.waiting.bytes.truncate(start),
        }
    }

    /// Appends a whole packet.
    pub(super) fn rtp(&mut self, packet: &RtpPacket<'_>) {
        if self.closed {
            return;
        }
        let start = self.waiting.bytes.len();
        self.waiting.bytes.extend_from_slice(packet.payload);
        let head = RtpPacket {
            payload: &[],
            ..*packet
        };
        self.waiting
            .queue
            .push_back(Item::Rtp(head, start..self.waiting.bytes.len()));
    }

    pub(super) fn close(&mut self, code: u16, reason: &'static str) {
        if !self.closed {
            self.closed = true;
            self.waiting.queue.push_back(Item::Close { code, reason });
        }
    }

    /// The socket is gone: nothing more can be sent.
    pub(super) fn socket_gone(&mut self) {
        self.closed = true;
    }

    pub(super) fn stt_begin(&mut self, utterance: UtteranceId) {
        self.waiting
            .queue
            .push_back(Item::RecogniserBegin(utterance));
    }

    pub(super) fn stt_audio(&mut self, utterance: UtteranceId, samples: &[i16]) {
        self.heard += samples.len() as u64;
        let range = self.waiting.keep(samples);
        self.waiting
            .queue
            .push_back(Item::RecogniserAudio(utterance, range));
    }

    pub(super) fn stt_finish(&mut self, utterance: UtteranceId) {
        self.waiting
            .queue
            .push_back(Item::RecogniserFinish(utterance));
    }

    pub(super) fn stt_cancel(&mut self, utterance: UtteranceId) {
        self.waiting
            .queue
            .push_back(Item::RecogniserCancel(utterance));
    }

    pub(super) fn llm(&mut self, command: LlmCommand) {
        self.waiting.queue.push_back(Item::Llm(command));
    }

    pub(super) fn tts(&mut self, command: SynthesiserCommand) {
        if let SynthesiserCommand::Speak { text, .. } = &command {
            self.characters += text.chars().count() as u64;
        }
        self.waiting.queue.push_back(Item::Synthesiser(command));
    }

    pub(super) fn tool(&mut self, reply: ReplyId, call: ToolCall) {
        self.waiting.queue.push_back(Item::Tool(reply, call));
    }

    pub(super) fn cancel_tool(&mut self, id: String) {
        self.waiting.queue.push_back(Item::CancelTool(id));
    }

    pub(super) fn record(&mut self, side: Side, at: u64, samples: &[i16]) {
        let audio = self.waiting.keep(samples);
        self.waiting
            .queue
            .push_back(Item::Record { side, at, audio });
    }

    pub(super) fn event(&mut self, event: CallEvent) {
        self.waiting.queue.push_back(Item::Event(event));
    }

    pub(super) fn done(&mut self) {
        self.waiting.queue.push_back(Item::Done);
    }

    /// Characters given to the voice, and caller audio given to the recogniser, since the beginning.
    pub(super) const fn used(&self) -> (u64, Samples) {
        (self.characters, Samples(self.heard))
    }

    /// The oldest output; when there is none, `Wait` until `deadline`.
    pub(super) fn take(&mut self, deadline: Time) -> Output<'_> {
        let Some(item) = self.waiting.queue.pop_front() else {
            return Output::Wait(deadline);
        };
        match item {
            Item::Text(range) => Output::Text(&self.waiting.text[range]),
            Item::Packet {
                timestamp,
                marker,
                bytes,
            } => Output::Packet {
                timestamp,
                marker,
                payload: &self.waiting.bytes[bytes],
            },
            Item::Rtp(head, range) => Output::Rtp(RtpPacket {
                payload: &self.waiting.bytes[range],
                ..head
            }),
            Item::Close { code, reason } => Output::Close { code, reason },
            Item::RecogniserBegin(utterance) => {
                Output::Recogniser(RecogniserCommand::Begin(utterance))
            }
            Item::RecogniserAudio(utterance, range) => Output::Recogniser(
                RecogniserCommand::Audio(utterance, &self.waiting.audio[range]),
            ),
            Item::RecogniserFinish(utterance) => {
                Output::Recogniser(RecogniserCommand::Finish(utterance))
            }
            Item::RecogniserCancel(utterance) => {
                Output::Recogniser(RecogniserCommand::Cancel(utterance))
            }
            Item::Llm(command) => Output::Llm(command),
            Item::Synthesiser(command) => Output::Synthesiser(command),
            Item::Tool(reply, call) => Output::Tool { reply, call },
            Item::CancelTool(id) => Output::CancelTool { id },
            Item::Record { side, at, audio } => Output::Record {
                side,
                at,
                samples: &self.waiting.audio[audio],
            },
            Item::Event(event) => Output::Event(event),
            Item::Done => Output::Done,
        }
    }
}
