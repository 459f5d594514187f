//! What one source of the caller says: packets in their order to audio, their gaps to the right length, keys that are tones.

use std::time::Duration;

use super::codec::{Decoder, Filled};
use super::{RtpPlan, Sink};
use crate::audio::jitter::{Arrival, JitterBuffer, Next};
use crate::audio::opus::OpusError;
use crate::leg::{Coding, LegEvent, RtpPacket, sources};
use crate::peer::MediaTotals;
use crate::rtp::dtmf::Detector;
use crate::rtp::sdp::{Codec, Format};
use crate::time::{RATE, Samples, Time};

/// A pause shorter than this is filled with silence; a longer one is told as a gap (in samples, 100 ms).
const SHORT_PAUSE: u64 = 1_600;

/// A packet so little behind the newest was overtaken; one farther behind begins a new count.
const OVERTAKEN: u16 = 128;

pub(super) struct RtpReceiver {
    jitter: JitterBuffer,
    sound: Sound,
    /// The newest number of the stream.
    newest: Option<u16>,
    /// Its numbers and timestamps have begun anew.
    restarted: bool,
}

/// Packets in their turn to audio, and what stands in the place of those that are missing.
struct Sound {
    /// Of the codec that the stream speaks now.
    decoder: Decoder,
    /// Present when digits come as tones, for no events were agreed.
    detector: Option<Detector>,
    /// A packet was heard.
    began: bool,
    /// The timestamps of the next packet have nothing to do with those before.
    unplaced: bool,
    /// Samples in the place of lost packets: from the copies in others, made up, and in gaps too long
    /// for that.
    recovered: u64,
    concealed: u64,
    gap: u64,
    /// How long the packet heard last had waited, as was told.
    held: Duration,
}

impl RtpReceiver {
    pub(super) fn delay(&self) -> Duration {
        self.sound.decoder.delay()
    }

    pub(super) fn new(plan: &RtpPlan) -> Result<Self, OpusError> {
        Self::of(plan.codec, detector(plan))
    }

    fn of(codec: Codec, detector: Option<Detector>) -> Result<Self, OpusError> {
        Ok(Self {
            jitter: JitterBuffer::new(codec.clock()),
            sound: Sound {
                decoder: Decoder::new(codec)?,
                detector,
                began: false,
                unplaced: false,
                recovered: 0,
                concealed: 0,
                gap: 0,
                held: Duration::ZERO,
            },
            newest: None,
            restarted: false,
        })
    }

    pub(super) fn exchange(&mut self, coding: &mut Coding) {
        self.sound.decoder.exchange(coding);
    }

    /// Another agreement. The codec follows the packets.
    pub(super) fn renew(&mut self, plan: &RtpPlan) {
        self.newest = None;
        if plan.events.is_some() != self.sound.detector.is_none() {
            self.sound.detector = detector(plan);
        }
    }

    /// The stream goes on in another codec. An error when that cannot be set up: nothing has changed then.
    fn change(&mut self, codec: Codec) -> Result<(), OpusError> {
        let (clock, before) = (codec.clock(), self.sound.decoder.codec().clock());
        self.sound.decoder = Decoder::new(codec)?;
        self.jitter.reset();
        if clock != before {
            self.jitter.count_in(clock);
            self.restarted = true;
        }
        self.sound.unplaced = self.sound.began;
        Ok(())
    }

    pub(super) fn jitter(&self) -> Duration {
        self.jitter.jitter()
    }

    /// Hands on all that is in its turn.
    fn drain(&mut self, now: Time, sink: Sink<'_>) {
        while let Some(next) = self.jitter.next(now) {
            match next {
                Next::Packet {
                    payload,
                    duration,
                    held,
                } => self.sound.packet((payload, duration, held), sink),
                Next::Missing {
                    duration,
                    following,
                    held,
                } => self.sound.missing((duration, following, held), sink),
                Next::Pause { duration } => self.sound.pause(duration, sink),
                Next::Restart => {
                    self.newest = None;
                    self.sound.unplaced = true;
                    self.restarted = true;
                }
            }
        }
    }
}

impl sources::Ear for RtpReceiver {
    fn packet(
        &mut self,
        now: Time,
        packet: &RtpPacket<'_>,
        format: Format,
        sink: Sink<'_>,
    ) -> bool {
        let codec = match format {
            Format::Audio(codec) => Some(codec),
            Format::Event | Format::Noise => None,
        };
        let behind = self
            .newest
            .map_or(0, |newest| newest.wrapping_sub(packet.sequence));
        let overtaken = (1..=OVERTAKEN).contains(&behind);
        if let Some(codec) = codec
            && codec != self.sound.decoder.codec()
            // Of a codec that the stream has left, or of one that cannot be had: it is a packet lost.
            && (overtaken || self.change(codec).is_err())
        {
            return false;
        }
        let duration = match codec.map(|_| self.sound.decoder.duration(packet.payload)) {
            Some(Some(duration)) => duration,
            Some(None) => return false,
            None => 0,
        };
        if !overtaken {
            self.newest = Some(packet.sequence);
        }
        let arrival = Arrival {
            sequence: packet.sequence,
            timestamp: packet.timestamp,
            duration,
            payload: packet.payload,
        };
        if self.jitter.pass(now, &arrival) {
            let packet = (packet.payload, duration, Duration::ZERO);
            self.sound.packet(packet, sink);
        } else {
            self.jitter.insert(now, &arrival);
            self.drain(now, sink);
        }
        duration > 0
    }

    fn deadline(&self) -> Time {
        self.jitter.deadline()
    }

    fn timeout(&mut self, now: Time, sink: Sink<'_>) {
        if now >= self.jitter.deadline() {
            self.drain(now, sink);
        }
    }

    fn skip(&mut self) {
        self.jitter.skip();
    }

    fn begin_anew(&mut self) {
        self.newest = None;
        self.jitter.reset();
        (self.sound.began, self.sound.unplaced) = (false, false);
        self.restarted = false;
    }

    fn take_restarted(&mut self) -> bool {
        std::mem::take(&mut self.restarted)
    }

    fn totals(&self) -> MediaTotals {
        let counts = self.jitter.counts();
        MediaTotals {
            packets: counts.packets,
            lost: counts.lost,
            late: counts.late,
            duplicates: counts.duplicates,
            recovered_ms: Samples(self.sound.recovered).ms(),
            concealed_ms: Samples(self.sound.concealed).ms(),
            gap_ms: Samples(self.sound.gap).ms(),
        }
    }

    fn another(&self) -> Result<Self, OpusError> {
        let detector = self.sound.detector.as_ref().map(|_| Detector::default());
        Self::of(self.sound.decoder.codec(), detector)
    }
}

impl Sound {
    /// A packet in its turn: its payload, its length in units of the codec's clock, and how long it had waited.
    fn packet(&mut self, (payload, duration, held): (&[u8], u32, Duration), sink: Sink<'_>) {
        let length = self.samples(duration.into());
        self.began = true;
        if std::mem::take(&mut self.unplaced) {
            sink(LegEvent::Reconnected);
        }
        tell_held(&mut self.held, held, sink);
        let Some(audio) = self.decoder.decode(payload) else {
            // A packet that came and cannot be decoded leaves its time.
            self.gap += length;
            return sink(LegEvent::Lost { samples: length });
        };
        if let Some(detector) = &mut self.detector {
            detector.hear(audio, |key| sink(LegEvent::Digit(key)));
        }
        if !audio.is_empty() {
            sink(LegEvent::Audio(audio));
        }
    }

    /// A packet that is given up: its length, the packet behind it, and how long that had waited.
    fn missing(
        &mut self,
        (duration, following, held): (u32, Option<&[u8]>, Duration),
        sink: Sink<'_>,
    ) {
        let length = self.samples(duration.into());
        tell_held(&mut self.held, held, sink);
        match self.decoder.conceal(duration, following) {
            Filled::Recovered(audio) => {
                self.recovered += length;
                sink(LegEvent::Audio(audio));
            }
            Filled::Concealed(audio) => {
                self.concealed += length;
                sink(LegEvent::Audio(audio));
            }
            Filled::Nothing => {
                self.gap += length;
                sink(LegEvent::Lost { samples: length });
            }
        }
    }

    fn pause(&mut self, duration: u64, sink: Sink<'_>) {
        let length = self.samples(duration);
        if length < SHORT_PAUSE {
            sink(LegEvent::Audio(self.decoder.pause(duration as u32)));
        } else {
            sink(LegEvent::Lost { samples: length });
            self.gap += length;
        }
    }

    /// Units of the codec's clock as samples.
    fn samples(&self, duration: u64) -> u64 {
        duration * u64::from(RATE) / u64::from(self.decoder.codec().clock())
    }
}

/// Before audio: how long it has waited, when that is news.
fn tell_held(told: &mut Duration, held: Duration, sink: Sink<'_>) {
    if std::mem::replace(told, held) != held {
        sink(LegEvent::Held(held));
    }
}

fn detector(plan: &RtpPlan) -> Option<Detector> {
    plan.events.is_none().then(Detector::default)
}
