//! A WebSocket leg: text messages to caller audio and events, agent audio and events to text messages.
//!
//! A call owns one [`WsLeg`]. Messages of the usual shape are scanned, everything else is parsed, and
//! nothing that a stranger can send makes a panic, an unbounded buffer or a wrong reading: what cannot
//! be used is one [`LegEvent::Invalid`], and five such messages in a row are a
//! [`LegEvent::Violation`]. After warm-up neither direction of audio allocates.

mod codec;
mod fields;
pub mod native;
mod scan;
mod strange;
pub mod telco;
mod watch;
mod write;

use std::time::Duration;

use self::fields::{INVALID_FRAME, Refusal};
pub(crate) use self::watch::AUDIO_FORMAT;
use super::{Coding, LegEvent};
use crate::audio::kind::{self, Look};
use crate::call::record::Latency;
use crate::config::{AudioFormat, Direction, Protocol};
use crate::time::Time;

/// Messages in a row that cannot be used before the connection is closed: a client that makes so
/// many speaks something else.
const MOST_INVALID: u8 = 5;

/// Close code for data that is not what the protocol says (RFC 6455 section 7.4.1).
const INVALID_DATA: u16 = 1007;

/// Whom the leg tells what it found.
type Sink<'s> = &'s mut dyn FnMut(LegEvent<'_>);

/// The caller's side of a call that came over a WebSocket.
pub struct WsLeg {
    peer: Dialect,
    /// Messages in a row that could not be used.
    invalid: u8,
}

enum Dialect {
    Native(native::Native),
    Telco(telco::Telco),
}

/// What every server message of the native protocol carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerHeader {
    /// Increases with each message of the session.
    pub event_id: u64,
    /// The session's clock, ms.
    pub ts_ms: u64,
}

/// An interruption of the agent, as the client is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interruption<'a> {
    /// Audio messages up to this `event_id` that were not played yet are to be dropped.
    pub up_to_event_id: u64,
    pub turn_id: &'a str,
    /// How much of the turn was heard, ms.
    pub spoken_ms: u64,
    /// The text that was probably heard.
    pub estimated_text_spoken: &'a str,
}

/// The server's messages of the native protocol, audio and interruptions apart. Names are those of
/// the messages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ServerEvent<'a> {
    SessionStarted {
        session_id: &'a str,
        conversation_id: &'a str,
        agent_id: &'a str,
        direction: Direction,
        protocol: Protocol,
        audio_format: AudioFormat,
        /// Of the audio on the wire, Hz.
        sample_rate: u32,
        frame_ms: u64,
        ping_interval_ms: u64,
    },
    UserTranscript {
        text: &'a str,
        is_final: bool,
        turn_id: &'a str,
        /// On the recording's sample clock, as `end_ms`; `None` when it was not measured.
        start_ms: Option<u64>,
        end_ms: Option<u64>,
        /// 0 to 1.
        confidence: Option<f32>,
    },
    AgentResponse {
        text: &'a str,
        turn_id: &'a str,
        is_final: bool,
    },
    Ping {
        /// How long until the next ping, ms: three without a pong end the call.
        ping_ms: u64,
    },
    CallEnded {
        reason: &'a str,
        status: &'a str,
        duration_seconds: f64,
    },
    Error {
        code: &'a str,
        message: &'a str,
        /// Seconds.
        retry_after: Option<u32>,
        request_id: Option<&'a str>,
    },
    AgentResponseCorrection {
        original: &'a str,
        corrected: &'a str,
        turn_id: &'a str,
    },
    ToolCall {
        tool_call_id: &'a str,
        name: &'a str,
        /// JSON text, sent as the JSON it is.
        arguments: &'a str,
        turn_id: &'a str,
    },
    TurnMetrics {
        turn_id: &'a str,
        latency: &'a Latency,
    },
    Vad {
        speaking: bool,
        /// On the recording's sample clock.
        at_ms: u64,
    },
}

impl WsLeg {
    /// A leg before its first message. The telephony protocol has one audio format, whatever
    /// `format` says.
    pub fn new(protocol: Protocol, format: AudioFormat) -> Self {
        let peer = match protocol {
            Protocol::Native => Dialect::Native(native::Native::new(format)),
            Protocol::WebRtc | Protocol::Rtp(_) => Dialect::Native(native::Native::without_audio()),
            Protocol::Telco => Dialect::Telco(telco::Telco::new()),
        };
        Self { peer, invalid: 0 }
    }

    pub(super) fn exchange(&mut self, coding: &mut Coding) {
        match &mut self.peer {
            Dialect::Native(native) => native.exchange(coding),
            Dialect::Telco(telco) => telco.exchange(coding),
        }
    }

    /// Whether agent audio can be sent. A telephony vendor must say `start` first
    /// ([`LegEvent::Started`]); until then [`audio`](Self::audio), [`mark`](Self::mark) and
    /// [`clear`](Self::clear) write nothing.
    pub const fn ready(&self) -> bool {
        match &self.peer {
            Dialect::Native(_) => true,
            Dialect::Telco(telco) => telco.ready(),
        }
    }

    /// Whether timestamps tell the place of the caller's audio.
    pub const fn is_stamped(&self) -> bool {
        match &self.peer {
            Dialect::Native(_) => false,
            Dialect::Telco(telco) => telco.is_stamped(),
        }
    }

    /// How much later a sound of the caller comes out than it came in.
    pub fn delay(&self) -> Duration {
        match &self.peer {
            Dialect::Native(native) => native.delay(),
            Dialect::Telco(telco) => telco.delay(),
        }
    }

    /// The time of the messages that are read next: how fast audio comes tells what it is.
    pub fn tell_time(&mut self, now: Time) {
        match &mut self.peer {
            Dialect::Native(native) => native.tell_time(now),
            Dialect::Telco(telco) => telco.tell_time(now),
        }
    }

    /// Reads one text message and calls `sink` for each thing found, in order.
    pub fn receive(&mut self, text: &str, sink: &mut dyn FnMut(LegEvent<'_>)) {
        let read = match &mut self.peer {
            Dialect::Native(native) => native.receive(text, sink),
            Dialect::Telco(telco) => telco.receive(text, sink),
        };
        match read {
            Ok(()) => self.invalid = 0,
            Err(refusal) => self.refuse(&refusal, sink),
        }
    }

    /// Reads one binary message, of which neither protocol has any.
    pub fn receive_binary(&mut self, bytes: &[u8], sink: &mut dyn FnMut(LegEvent<'_>)) {
        let looks_like = match kind::look(bytes, false) {
            Look::Is(kind) => format!(", which looks like {}", kind.name()),
            Look::Bare | Look::Short => String::new(),
        };
        let message = format!(
            "a binary message of {} bytes{looks_like}; messages are JSON text",
            bytes.len()
        );
        self.refuse(&Refusal::invalid(message), sink);
    }

    /// Appends the message for one 20 ms frame of agent audio: 320 samples at 16 kHz, fewer at the end
    /// of a turn, which are filled up with silence. `offset_ms` is the frame's place in its turn.
    pub fn audio(
        &mut self,
        out: &mut String,
        header: &ServerHeader,
        frame: &[i16],
        turn_id: &str,
        offset_ms: u64,
    ) {
        match &mut self.peer {
            Dialect::Native(native) => native.audio(out, header, frame, turn_id, offset_ms),
            Dialect::Telco(telco) => telco.audio(out, frame),
        }
    }

    /// Appends a server message. `false`: this protocol has no such message, and nothing was written.
    pub fn event(
        &mut self,
        out: &mut String,
        header: &ServerHeader,
        event: &ServerEvent<'_>,
    ) -> bool {
        match &self.peer {
            Dialect::Native(_) => {
                native::event(out, header, event);
                true
            }
            Dialect::Telco(_) => false,
        }
    }

    /// Appends a mark after `sent` samples (16 kHz, since the call's start) of agent audio; its echo
    /// comes back as [`LegEvent::Marked`]. `false`: nothing was written, for this protocol has no marks
    /// or its stream has not started.
    pub fn mark(&mut self, out: &mut String, sent: u64) -> bool {
        match &mut self.peer {
            Dialect::Native(_) => false,
            Dialect::Telco(telco) => telco.mark(out, sent),
        }
    }

    /// Appends the message that makes the other side drop what was sent and not yet played. Echoes of
    /// earlier marks prove nothing from here on.
    pub fn clear(
        &mut self,
        out: &mut String,
        header: &ServerHeader,
        interruption: &Interruption<'_>,
    ) {
        match &mut self.peer {
            Dialect::Native(native) => native.clear(out, header, interruption),
            Dialect::Telco(telco) => telco.clear(out),
        }
    }

    /// A message of an unknown type is still a good message: only invalid ones make a row.
    fn refuse(&mut self, refusal: &Refusal, sink: Sink<'_>) {
        let Refusal { code, message } = refusal;
        self.invalid = if *code == INVALID_FRAME {
            self.invalid.saturating_add(1)
        } else {
            0
        };
        if self.invalid < MOST_INVALID {
            sink(LegEvent::Invalid { code, message });
        } else {
            sink(LegEvent::Violation {
                close: INVALID_DATA,
                code,
                message,
            });
        }
    }
}

#[cfg(test)]
mod tests;
