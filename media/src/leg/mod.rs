//! One audio leg: wire bytes to caller audio and back. Pure: no socket, no clock.

pub mod rtp;
mod sources;
pub mod webrtc;
pub mod ws;

use std::time::Duration;

use self::rtp::RtpLeg;
use self::webrtc::WebRtcLeg;
use self::ws::{Interruption, ServerEvent, ServerHeader, WsLeg};
use crate::audio::opus;
use crate::config::{AudioFormat, CallConfig, Protocol};
use crate::time::Time;

/// An RTP packet, decrypted.
pub use crate::rtp::packet::Packet as RtpPacket;

/// What a leg found in one message from the caller's side. Borrowed data lives in the leg or in the
/// message itself.
#[derive(Debug, PartialEq)]
pub enum LegEvent<'a> {
    /// The vendor's stream has begun, and agent audio can be sent. `token` is what its
    /// `customParameters` held. (A native client is ready from the start and has no such event.)
    Started { token: Option<&'a str> },
    /// The `Audio` that follows has waited so long for packets before it; told when that changes. It is none
    /// at first.
    Held(Duration),
    /// Caller audio at 16 kHz, any length up to 1 s.
    Audio(&'a [i16]),
    /// The sender has said that silence follows the `Audio` before, and sends nothing until it is over.
    SilenceFollows,
    /// The timestamps from here on have nothing to do with those before: the media was connected anew, and the clock
    /// tells where the next `Audio` belongs.
    Reconnected,
    /// The sender's timestamps begin anew on the same connection: the clock tells where the next `Audio` belongs.
    Unplaced,
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
    /// Nothing has come for so long that the caller is not there any more.
    Silent,
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

/// Buffers in which a leg decodes and encodes; nothing in them outlives an input.
#[derive(Debug, Default)]
pub(crate) struct Coding {
    /// Payloads, and samples at the wire's rate and at the engine's.
    bytes: Vec<u8>,
    narrow: Vec<i16>,
    wide: Vec<i16>,
    /// What is sent, where it has a buffer of its own.
    narrow_out: Vec<i16>,
}

/// The caller's side of a call.
#[allow(
    clippy::large_enum_variant,
    reason = "a call has one, in a box of its own"
)]
pub enum Leg {
    Socket(WsLeg),
    WebRtc(Box<WebRtcLeg>),
    Rtp(Box<RtpLeg>),
}

impl Leg {
    /// The leg that the call's protocol asks for. An error when the codec cannot be set up.
    pub fn new(config: &CallConfig) -> Result<Self, &'static str> {
        Ok(match config.protocol {
            Protocol::Native | Protocol::Telco => {
                Self::Socket(WsLeg::new(config.protocol, config.audio_format))
            }
            Protocol::WebRtc => {
                let leg =
                    WebRtcLeg::new(COMPLEXITY).map_err(|_| "the Opus codec cannot be set up")?;
                Self::WebRtc(Box::new(leg))
            }
            Protocol::Rtp(plan) => {
                let leg = RtpLeg::new(plan).map_err(|_| "the codec cannot be set up")?;
                Self::Rtp(Box::new(leg))
            }
        })
    }

    /// A leg without audio, for a call that ends before it begins.
    pub fn mute() -> Self {
        Self::Socket(WsLeg::new(Protocol::WebRtc, AudioFormat::Opus48000))
    }

    /// Takes other buffers, between two inputs.
    pub(crate) fn exchange(&mut self, coding: &mut Coding) {
        match self {
            Self::Socket(leg) => leg.exchange(coding),
            Self::WebRtc(leg) => leg.exchange(coding),
            Self::Rtp(leg) => leg.exchange(coding),
        }
    }

    /// The part that speaks the protocol's messages; `None`: a telephone has none.
    pub fn messages(&mut self) -> Option<&mut WsLeg> {
        match self {
            Self::Socket(leg) => Some(leg),
            Self::WebRtc(leg) => Some(&mut leg.events),
            Self::Rtp(_) => None,
        }
    }

    /// Takes an RTP packet; see [`WebRtcLeg::packet`] and [`RtpLeg::packet`].
    pub fn packet(
        &mut self,
        now: Time,
        packet: &RtpPacket<'_>,
        sink: &mut dyn FnMut(LegEvent<'_>),
    ) {
        match self {
            Self::Socket(_) => {}
            Self::WebRtc(leg) => leg.packet(now, packet, sink),
            Self::Rtp(leg) => leg.packet(now, packet, sink),
        }
    }

    /// How much later a sound of the caller comes out of the leg than it went into their codec, beside the network:
    /// what filters and codecs hold back.
    pub fn delay(&self) -> Duration {
        match self {
            Self::Socket(leg) => leg.delay(),
            Self::WebRtc(_) => opus::DELAY,
            Self::Rtp(leg) => leg.delay(),
        }
    }

    /// Whether timestamps tell the place of the caller's audio: each piece follows the one before, and what is missing
    /// between them is told as [`LegEvent::Lost`].
    pub const fn is_stamped(&self) -> bool {
        match self {
            Self::Socket(leg) => leg.is_stamped(),
            Self::WebRtc(_) | Self::Rtp(_) => true,
        }
    }

    /// When [`timeout`](Self::timeout) has something to do.
    pub fn deadline(&self) -> Time {
        match self {
            Self::Socket(_) => Time::NEVER,
            Self::WebRtc(leg) => leg.deadline(),
            Self::Rtp(leg) => leg.deadline(),
        }
    }

    pub fn timeout(&mut self, now: Time, sink: &mut dyn FnMut(LegEvent<'_>)) {
        match self {
            Self::Socket(_) => {}
            Self::WebRtc(leg) => leg.timeout(now, sink),
            Self::Rtp(leg) => leg.timeout(now, sink),
        }
    }

    /// Appends a server message; see [`WsLeg::event`].
    pub fn event(
        &mut self,
        out: &mut String,
        header: &ServerHeader,
        event: &ServerEvent<'_>,
    ) -> bool {
        self.messages()
            .is_some_and(|messages| messages.event(out, header, event))
    }

    /// The agent stops here; see [`WsLeg::clear`]. `false`: the other side is told nothing of it, and
    /// nothing was written.
    pub fn clear(
        &mut self,
        out: &mut String,
        header: &ServerHeader,
        interruption: &Interruption<'_>,
    ) -> bool {
        match self {
            Self::WebRtc(leg) => leg.cut(),
            Self::Rtp(leg) => leg.cut(),
            Self::Socket(_) => {}
        }
        let Some(messages) = self.messages() else {
            return false;
        };
        messages.clear(out, header, interruption);
        true
    }
}

/// How hard the encoder works, 0 to 10: at 48 kbit/s 1 sounds as 5 does at 28, in less than half of the time
/// (`scripts/opus_quality.sh` compares).
const COMPLEXITY: u8 = 1;
