//! What the caller says: packets in their order to audio, their gaps to the right length, digits.

use std::time::Duration;

use super::codec::{Decoder, Filled};
use super::{RtpPlan, Sink};
use crate::audio::jitter::{Arrival, JitterBuffer, Next};
use crate::audio::opus::OpusError;
use crate::frame::FRAME;
use crate::leg::{LegEvent, RtpPacket};
use crate::peer::MediaTotals;
use crate::rtp::dtmf::{Detector, Listener};
use crate::rtp::sdp::Codec;
use crate::time::{RATE, Samples, Time};

/// A pause shorter than this is filled with silence; a longer one is told as a gap (in samples, 100 ms).
const SHORT_PAUSE: u64 = 1_600;

/// The clock and the timestamps may differ by so much before a new stream's place is corrected, samples
/// (10 ms).
const CLOSE: u64 = 160;

/// A packet so little behind the newest was overtaken; one farther behind begins a new count.
const OVERTAKEN: u16 = 128;

pub(super) struct Ear {
    /// Of the codec that the stream speaks now.
    decoder: Decoder,
    jitter: JitterBuffer,
    /// The newest number of the stream.
    newest: Option<u16>,
    listener: Listener,
    /// Present when digits come as tones, for no events were agreed.
    detector: Option<Detector>,
    /// When the first sample came, and how many were told since, gaps included.
    origin: Option<Time>,
    told: u64,
    /// The next audio's place is what the clock says.
    unplaced: bool,
    /// Samples in the place of lost packets: from the copies in others, made up, and in gaps too long
    /// for that.
    recovered: u64,
    concealed: u64,
    gap: u64,
    /// How long the packet heard last had waited, as was told.
    held: Duration,
}

impl Ear {
    pub(super) fn new(plan: &RtpPlan) -> Result<Self, OpusError> {
        Ok(Self {
            decoder: Decoder::new(plan.codec)?,
            jitter: JitterBuffer::new(plan.codec.clock()),
            newest: None,
            listener: Listener::default(),
            detector: detector(plan),
            origin: None,
            told: 0,
            unplaced: false,
            recovered: 0,
            concealed: 0,
            gap: 0,
            held: Duration::ZERO,
        })
    }

    /// Another agreement. The codec follows the packets.
    pub(super) fn renew(&mut self, plan: &RtpPlan) {
        self.newest = None;
        if plan.events.is_some() != self.detector.is_none() {
            self.detector = detector(plan);
        }
    }

    /// The stream goes on in another codec. An error when that cannot be set up: nothing has changed then.
    fn change(&mut self, codec: Codec) -> Result<(), OpusError> {
        let (clock, before) = (codec.clock(), self.decoder.codec().clock());
        self.decoder = Decoder::new(codec)?;
        self.jitter.reset();
        if clock != before {
            self.jitter.count_in(clock);
            self.listener.reset();
        }
        self.unplaced = self.origin.is_some();
        Ok(())
    }

    /// What comes next has nothing to do with what came: another stream, or a pause nobody counted.
    pub(super) fn interrupted(&mut self) {
        self.newest = None;
        self.jitter.reset();
        self.listener.reset();
        self.unplaced = true;
    }

    /// A packet in the order of its stream; those without audio have a number in it too.
    pub(super) fn packet(
        &mut self,
        now: Time,
        packet: &RtpPacket<'_>,
        codec: Option<Codec>,
        sink: Sink<'_>,
    ) {
        let behind = self
            .newest
            .map_or(0, |newest| newest.wrapping_sub(packet.sequence));
        let overtaken = (1..=OVERTAKEN).contains(&behind);
        if let Some(codec) = codec
            && codec != self.decoder.codec()
            // Of a codec that the stream has left, or of one that cannot be had: it is a packet lost.
            && (overtaken || self.change(codec).is_err())
        {
            return;
        }
        let duration = match codec.map(|_| self.decoder.duration(packet.payload)) {
            Some(Some(duration)) => duration,
            Some(None) => return,
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
        self.jitter.insert(now, &arrival);
        self.drain(now, sink);
    }

    /// An event packet.
    pub(super) fn event(&mut self, packet: &RtpPacket<'_>, sink: Sink<'_>) {
        if let Some(key) = self.listener.hear(packet.timestamp, packet.payload) {
            sink(LegEvent::Digit(key));
        }
    }

    pub(super) fn deadline(&self) -> Time {
        self.jitter.deadline()
    }

    pub(super) fn timeout(&mut self, now: Time, sink: Sink<'_>) {
        if now >= self.jitter.deadline() {
            self.drain(now, sink);
        }
    }

    pub(super) fn totals(&self) -> MediaTotals {
        let counts = self.jitter.counts();
        MediaTotals {
            packets: counts.packets,
            lost: counts.lost,
            late: counts.late,
            duplicates: counts.duplicates,
            recovered_ms: Samples(self.recovered).ms(),
            concealed_ms: Samples(self.concealed).ms(),
            gap_ms: Samples(self.gap).ms(),
        }
    }

    pub(super) fn jitter(&self) -> Duration {
        self.jitter.jitter()
    }

    /// Hands on all that is in its turn.
    fn drain(&mut self, now: Time, sink: Sink<'_>) {
        let clock = u64::from(self.decoder.codec().clock());
        let samples = |duration: u64| duration * u64::from(RATE) / clock;
        let mut held = self.held;
        while let Some(next) = self.jitter.next(now) {
            match next {
                Next::Packet { payload, duration } => {
                    let length = samples(duration.into());
                    self.told += place(
                        (&mut self.origin, &mut self.unplaced),
                        (now, self.told, length),
                        sink,
                    );
                    self.told += length;
                    let audio = self.decoder.decode(payload);
                    tell_held(&mut held, self.jitter.held(), sink);
                    let Some(audio) = audio else {
                        // A packet that came and cannot be decoded leaves its time.
                        self.gap += length;
                        sink(LegEvent::Lost { samples: length });
                        continue;
                    };
                    if let Some(detector) = &mut self.detector {
                        detector.hear(audio, |key| sink(LegEvent::Digit(key)));
                    }
                    if !audio.is_empty() {
                        sink(LegEvent::Audio(audio));
                    }
                }
                Next::Missing {
                    duration,
                    following,
                } => {
                    let length = samples(duration.into());
                    let filled = self.decoder.conceal(duration, following);
                    tell_held(&mut held, self.jitter.held(), sink);
                    match filled {
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
                    self.told += length;
                }
                Next::Pause { duration } => {
                    let length = samples(duration);
                    if length < SHORT_PAUSE {
                        sink(LegEvent::Audio(self.decoder.pause(duration as u32)));
                    } else {
                        sink(LegEvent::Lost { samples: length });
                        self.gap += length;
                    }
                    self.told += length;
                }
                Next::Restart => {
                    self.unplaced = true;
                    self.listener.reset();
                }
            }
        }
        self.held = held;
    }
}

/// Before audio: how long it has waited, when that is news.
fn tell_held(told: &mut Duration, held: Duration, sink: Sink<'_>) {
    if std::mem::replace(told, held) != held {
        sink(LegEvent::Held(held));
    }
}

/// Where the timestamps cannot say it, the clock tells how much is missing before audio that ends now.
/// Returns what was told of it, samples.
fn place(
    (origin, unplaced): (&mut Option<Time>, &mut bool),
    (now, told, length): (Time, u64, u64),
    sink: Sink<'_>,
) -> u64 {
    let began = now.before(Samples(length).duration());
    let origin = *origin.get_or_insert(began);
    if !std::mem::take(unplaced) {
        return 0;
    }
    sink(LegEvent::Reconnected);
    let missing = Samples::in_duration(began.since(origin))
        .minus(Samples(told))
        .0;
    if missing <= CLOSE {
        return 0;
    }
    // A gap is a frame at least, so that what was begun before it can be completed.
    let missing = missing.max(FRAME as u64);
    sink(LegEvent::Lost { samples: missing });
    missing
}

fn detector(plan: &RtpPlan) -> Option<Detector> {
    plan.events.is_none().then(Detector::default)
}
