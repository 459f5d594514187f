//! A WebRTC leg behind its encryption: RTP packets with Opus and keypad events to caller audio and digits,
//! agent audio to packets, and the native protocol's events on the data channel.
//!
//! What is lost on the way is filled here: from the copy in the following packet (in-band FEC), made up
//! by the decoder, and, when too much is missing in a row, left as a gap of known length. Timestamps tell
//! the place of everything, so the recording stays aligned.

use std::time::Duration;

use super::ws::WsLeg;
use super::{Coding, LegEvent, RtpPacket};
use crate::audio::jitter::{Arrival, JitterBuffer, Next};
use crate::audio::opus::{CLOCK, Decoder, Encoder, Head, LONGEST, OpusError, UNITS};
use crate::config::{AudioFormat, Protocol};
use crate::frame::FRAME;
use crate::peer::MediaTotals;
use crate::time::{Samples, Time};

/// The payload type of Opus inside the engine, whatever was negotiated for the wire.
pub const OPUS: u8 = 111;

/// The payload type of keypad events (RFC 4733) inside the engine.
pub const DIGITS: u8 = 126;

/// Sound made up in a row, at most, samples (120 ms): a decoder's guess has faded by then.
const MOST_CONCEALED: u64 = 1_920;

/// A packet of so few bytes holds no sound: it is sent once, before a silence in which nothing is sent (discontinuous
/// transmission, RFC 6716 section 2.1.9).
const LAST_BEFORE_SILENCE: usize = 2;

/// The agent's loudness as it is, and under a caller's voice (−12 dB), in 256ths.
const WHOLE: i32 = 256;
const DUCKED: i32 = 64;

/// The keys of RFC 4733 section 3.2, by their event.
const KEYS: &[u8; 16] = b"0123456789*#ABCD";

/// One caller over WebRTC.
pub struct WebRtcLeg {
    /// The events, as text on the data channel.
    pub(super) events: WsLeg,
    jitter: JitterBuffer,
    sound: Sound,
    encoder: Encoder,
    ssrc: Option<u32>,
    /// The timestamp of the key heard last: its packets are repeated.
    key: Option<u32>,
    /// Units of the clock that did not make a whole sample.
    residue: u64,
    /// The timestamp after the last packet sent.
    sent_to: Option<u64>,
    /// The agent speaks under the caller's voice: its loudness, 256 being all of it.
    gain: i32,
}

/// Packets to samples, and what stands in the place of lost ones.
struct Sound {
    decoder: Decoder,
    pcm: Vec<i16>,
    /// Samples concealed in a row.
    run: u64,
    filled: Filled,
    /// How long the packet heard last had waited, as was told.
    held: Duration,
}

/// Samples that were lost, by what stands in their place.
#[derive(Clone, Copy, Debug, Default)]
struct Filled {
    recovered: u64,
    concealed: u64,
    gap: u64,
}

impl WebRtcLeg {
    /// `complexity` of the encoder: 0 to 10.
    pub fn new(complexity: u8) -> Result<Self, OpusError> {
        Ok(Self {
            events: WsLeg::new(Protocol::WebRtc, AudioFormat::Opus48000),
            jitter: JitterBuffer::new(CLOCK),
            sound: Sound {
                decoder: Decoder::new()?,
                pcm: Vec::new(),
                run: 0,
                filled: Filled::default(),
                held: Duration::ZERO,
            },
            encoder: Encoder::new(complexity)?,
            ssrc: None,
            key: None,
            residue: 0,
            sent_to: None,
            gain: WHOLE,
        })
    }

    pub(super) fn exchange(&mut self, coding: &mut Coding) {
        std::mem::swap(&mut self.sound.pcm, &mut coding.wide);
    }

    /// Takes a packet, and tells what can be heard because of it.
    pub fn packet(
        &mut self,
        now: Time,
        packet: &RtpPacket<'_>,
        sink: &mut dyn FnMut(LegEvent<'_>),
    ) {
        if self.ssrc != Some(packet.ssrc) {
            if self.ssrc.replace(packet.ssrc).is_some() {
                self.jitter.reset();
                sink(LegEvent::Reconnected);
            }
            self.sound.run = 0;
            self.residue = 0;
            self.key = None;
        }
        let duration = match packet.payload_type {
            OPUS => match Head::of(packet.payload) {
                Some(head) => head.duration,
                None => return,
            },
            DIGITS => {
                self.digit(packet, sink);
                0
            }
            _ => return,
        };
        let arrival = Arrival {
            sequence: packet.sequence,
            timestamp: packet.timestamp,
            duration,
            payload: packet.payload,
        };
        if self.jitter.pass(now, &arrival) {
            return self
                .sound
                .packet(packet.payload, duration, Duration::ZERO, sink);
        }
        self.jitter.insert(now, &arrival);
        self.hand_out(now, sink);
    }

    /// What the caller sent until now was not given here: they held the call.
    pub fn skip(&mut self) {
        self.jitter.skip();
    }

    /// When [`timeout`](Self::timeout) has something to do.
    pub fn deadline(&self) -> Time {
        self.jitter.deadline()
    }

    /// Gives up what is missing by now.
    pub fn timeout(&mut self, now: Time, sink: &mut dyn FnMut(LegEvent<'_>)) {
        if now >= self.jitter.deadline() {
            self.hand_out(now, sink);
        }
    }

    /// What the caller's packets came to.
    pub fn totals(&self) -> MediaTotals {
        let counts = self.jitter.counts();
        let Filled {
            recovered,
            concealed,
            gap,
        } = self.sound.filled;
        MediaTotals {
            packets: counts.packets,
            lost: counts.lost,
            late: counts.late,
            duplicates: counts.duplicates,
            recovered_ms: Samples(recovered).ms(),
            concealed_ms: Samples(concealed).ms(),
            gap_ms: Samples(gap).ms(),
        }
    }

    /// Of the caller's packets.
    pub fn jitter(&self) -> Duration {
        self.jitter.jitter()
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

    fn hand_out(&mut self, now: Time, sink: &mut dyn FnMut(LegEvent<'_>)) {
        while let Some(next) = self.jitter.next(now) {
            match next {
                Next::Packet {
                    payload,
                    duration,
                    held,
                } => self.sound.packet(payload, duration, held, sink),
                Next::Missing {
                    duration,
                    following,
                    held,
                } => self.sound.missing(duration, following, held, sink),
                Next::Pause { duration } => {
                    let units = duration + self.residue;
                    self.residue = units % u64::from(UNITS);
                    let samples = units / u64::from(UNITS);
                    if samples > 0 {
                        sink(LegEvent::Lost { samples });
                    }
                }
                Next::Restart => {
                    self.residue = 0;
                    self.key = None;
                    sink(LegEvent::Reconnected);
                }
            }
        }
    }

    /// A keypad event (RFC 4733 section 2.3): told at its first packet.
    fn digit(&mut self, packet: &RtpPacket<'_>, sink: &mut dyn FnMut(LegEvent<'_>)) {
        let Some(&event) = packet.payload.first() else {
            return;
        };
        let newer = self
            .key
            .is_none_or(|last| (packet.timestamp.wrapping_sub(last) as i32) > 0);
        if newer
            && packet.payload.len() >= 4
            && let Some(&key) = KEYS.get(usize::from(event))
        {
            self.key = Some(packet.timestamp);
            sink(LegEvent::Digit(char::from(key)));
        }
    }
}

impl Sound {
    /// A packet in its turn, which had waited so long.
    fn packet(
        &mut self,
        payload: &[u8],
        duration: u32,
        held: Duration,
        sink: &mut dyn FnMut(LegEvent<'_>),
    ) {
        self.run = 0;
        self.pcm.resize(LONGEST, 0);
        match self.decoder.decode(payload, &mut self.pcm) {
            Ok(samples) => {
                self.tell_held(held, sink);
                sink(LegEvent::Audio(&self.pcm[..samples]));
                if payload.len() <= LAST_BEFORE_SILENCE {
                    sink(LegEvent::SilenceFollows);
                }
            }
            // A packet that came and cannot be decoded leaves its time.
            Err(OpusError) => self.lost(u64::from(duration / UNITS), sink),
        }
    }

    /// A packet that is given up. `following`: the one behind it, which had waited so long.
    fn missing(
        &mut self,
        duration: u32,
        following: Option<&[u8]>,
        held: Duration,
        sink: &mut dyn FnMut(LegEvent<'_>),
    ) {
        let samples = (duration / UNITS) as usize;
        self.pcm.resize(LONGEST, 0);
        let room = &mut self.pcm[..samples.min(LONGEST)];
        let copy = following.filter(|next| Head::of(next).is_some_and(|head| head.copy));
        let made = match copy {
            Some(following) => {
                self.filled.recovered += samples as u64;
                self.decoder.recover(following, room)
            }
            None if self.run < MOST_CONCEALED => {
                self.run += samples as u64;
                self.filled.concealed += samples as u64;
                self.decoder.conceal(room)
            }
            None => Err(OpusError),
        };
        match made {
            Ok(samples) => {
                self.tell_held(held, sink);
                sink(LegEvent::Audio(&self.pcm[..samples]));
            }
            Err(OpusError) => self.lost(samples as u64, sink),
        }
    }

    fn lost(&mut self, samples: u64, sink: &mut dyn FnMut(LegEvent<'_>)) {
        self.filled.gap += samples;
        sink(LegEvent::Lost { samples });
    }

    /// Before audio: how long it has waited, when that is news.
    fn tell_held(&mut self, held: Duration, sink: &mut dyn FnMut(LegEvent<'_>)) {
        if std::mem::replace(&mut self.held, held) != held {
            sink(LegEvent::Held(held));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed step is a failed test")]
mod tests;
