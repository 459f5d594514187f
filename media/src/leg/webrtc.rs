//! A WebRTC leg behind its encryption: RTP packets with Opus and keypad events to caller audio and digits,
//! agent audio to packets, and the native protocol's events on the data channel.
//!
//! What is lost on the way is filled here: from the copy in the following packet (in-band FEC), made up
//! by the decoder, and, when too much is missing in a row, left as a gap of known length. Timestamps tell
//! the place of everything, so the recording stays aligned.

mod ear;

use std::time::Duration;

use self::ear::Ear;
use super::sources::Sources;
use super::ws::WsLeg;
use super::{Coding, LegEvent, RtpPacket};
use crate::audio::opus::{Encoder, OpusError, UNITS};
use crate::config::{AudioFormat, Protocol};
use crate::frame::FRAME;
use crate::peer::MediaTotals;
use crate::rtp::sdp::{Codec, Format};
use crate::time::Time;

/// The payload type of Opus inside the engine, whatever was negotiated for the wire.
pub const OPUS: u8 = 111;

/// The payload type of keypad events (RFC 4733) inside the engine.
pub const DIGITS: u8 = 126;

/// The agent's loudness as it is, and under a caller's voice (−12 dB), in 256ths.
const WHOLE: i32 = 256;
const DUCKED: i32 = 64;

/// One caller over WebRTC.
pub struct WebRtcLeg {
    /// The events, as text on the data channel.
    pub(super) events: WsLeg,
    sources: Sources<Ear>,
    encoder: Encoder,
    /// The timestamp after the last packet sent.
    sent_to: Option<u64>,
    /// The agent speaks under the caller's voice: its loudness, 256 being all of it.
    gain: i32,
}

impl WebRtcLeg {
    /// `complexity` of the encoder: 0 to 10.
    pub fn new(complexity: u8) -> Result<Self, OpusError> {
        Ok(Self {
            events: WsLeg::new(Protocol::WebRtc, AudioFormat::Opus48000),
            sources: Sources::new(Ear::new()?),
            encoder: Encoder::new(complexity)?,
            sent_to: None,
            gain: WHOLE,
        })
    }

    pub(super) fn exchange(&mut self, coding: &mut Coding) {
        self.sources.heard_mut().exchange(coding);
    }

    /// Takes a packet, and tells what can be heard because of it.
    pub fn packet(
        &mut self,
        now: Time,
        packet: &RtpPacket<'_>,
        sink: &mut dyn FnMut(LegEvent<'_>),
    ) {
        let format = match packet.payload_type {
            OPUS => Format::Audio(Codec::Opus),
            DIGITS => Format::Event,
            _ => return,
        };
        self.sources.packet(now, packet, format, sink);
    }

    /// What the caller sent until now was not given here: they held the call.
    pub fn skip(&mut self) {
        self.sources.skip();
    }

    /// When [`timeout`](Self::timeout) has something to do.
    pub fn deadline(&self) -> Time {
        self.sources.deadline()
    }

    /// Gives up what is missing by now.
    pub fn timeout(&mut self, now: Time, sink: &mut dyn FnMut(LegEvent<'_>)) {
        self.sources.timeout(now, sink);
    }

    /// What came of the caller's packets.
    pub fn totals(&self) -> MediaTotals {
        self.sources.totals()
    }

    /// Of the caller's packets.
    pub fn jitter(&self) -> Duration {
        self.sources.heard().jitter()
    }

    /// The caller wants no more than so many bits a second; `None`: it does not say.
    pub fn limit(&mut self, most_bits: Option<u32>) -> Result<(), OpusError> {
        self.encoder.limit(most_bits)
    }

    /// The caller's reports say that so many per cent of our packets are lost.
    pub fn expect_loss(&mut self, per_cent: u8) {
        self.encoder.expect_loss(per_cent);
    }

    /// Encodes a frame that is played from `position` of the sample clock on into the end of `out`,
    /// 12 dB softer when `ducked`. Returns the timestamp, and whether it begins a talkspurt (the RTP marker); `None`: nothing is to
    /// be sent for it.
    pub fn audio(
        &mut self,
        out: &mut Vec<u8>,
        frame: &[i16; FRAME],
        position: u64,
        ducked: bool,
    ) -> Option<(u32, bool)> {
        let gain = if ducked { DUCKED } else { WHOLE };
        let softer = (gain != WHOLE || self.gain != WHOLE).then(|| self.change(frame, gain));
        let frame = softer.as_ref().unwrap_or(frame);
        let units = FRAME as u64 * u64::from(UNITS);
        let natural = position * u64::from(UNITS);
        // Frames follow one another however late the call is served; after a silence the clock says
        // where they are.
        let follows = self
            .sent_to
            .filter(|next| natural.abs_diff(*next) < 2 * units);
        let timestamp = follows.unwrap_or(natural);
        self.sent_to = Some(timestamp + units);
        let start = out.len();
        match self.encoder.encode(frame, out) {
            Ok(true) => Some((timestamp as u32, follows.is_none())),
            Ok(false) => {
                // The marker belongs to the first packet that is sent.
                if follows.is_none() {
                    self.sent_to = None;
                }
                None
            }
            Err(OpusError) => {
                out.truncate(start);
                None
            }
        }
    }

    /// Nothing is to follow what was sent.
    pub fn cut(&mut self) {
        self.sent_to = None;
    }

    /// The frame at another loudness, reached within its first half.
    fn change(&mut self, frame: &[i16; FRAME], gain: i32) -> [i16; FRAME] {
        const SLOPE: i32 = FRAME as i32 / 2;
        let from = std::mem::replace(&mut self.gain, gain);
        std::array::from_fn(|at| {
            let at_gain = from + (gain - from) * (at as i32).min(SLOPE) / SLOPE;
            (i32::from(frame[at]) * at_gain / WHOLE) as i16
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed step is a failed test")]
mod tests;
