//! What one source of a caller over WebRTC says: packets in their order to audio, and what stands in the place of lost ones.

use std::time::Duration;

use crate::audio::jitter::{Arrival, JitterBuffer, Next};
use crate::audio::opus::{CLOCK, Decoder, Head, LONGEST, OpusError, UNITS};
use crate::leg::{Coding, LegEvent, RtpPacket, sources};
use crate::peer::MediaTotals;
use crate::rtp::sdp::Format;
use crate::time::{Samples, Time};

/// Sound made up in a row, at most, samples (120 ms): a decoder's guess has faded by then.
const MOST_CONCEALED: u64 = 1_920;

/// A packet of so few bytes holds no sound: it is sent once, before a silence in which nothing is sent (discontinuous
/// transmission, RFC 6716 section 2.1.9).
const LAST_BEFORE_SILENCE: usize = 2;

pub(super) struct Ear {
    pub(super) jitter: JitterBuffer,
    sound: Sound,
    /// Units of the clock that did not make a whole sample.
    residue: u64,
    /// Numbers and timestamps have begun anew.
    restarted: bool,
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

impl Ear {
    /// An error when the codec's memory cannot be had.
    pub(super) fn new() -> Result<Self, OpusError> {
        Ok(Self {
            jitter: JitterBuffer::new(CLOCK),
            sound: Sound {
                decoder: Decoder::new()?,
                pcm: Vec::new(),
                run: 0,
                filled: Filled::default(),
                held: Duration::ZERO,
            },
            residue: 0,
            restarted: false,
        })
    }

    pub(super) fn exchange(&mut self, coding: &mut Coding) {
        std::mem::swap(&mut self.sound.pcm, &mut coding.wide);
    }

    pub(super) fn jitter(&self) -> Duration {
        self.jitter.jitter()
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
                    self.restarted = true;
                    sink(LegEvent::Reconnected);
                }
            }
        }
    }
}

impl sources::Ear for Ear {
    fn packet(
        &mut self,
        now: Time,
        packet: &RtpPacket<'_>,
        format: Format,
        sink: &mut dyn FnMut(LegEvent<'_>),
    ) -> bool {
        let duration = match format {
            Format::Audio(_) => match Head::of(packet.payload) {
                Some(head) => head.duration,
                None => return false,
            },
            Format::Event | Format::Noise => 0,
        };
        let arrival = Arrival {
            sequence: packet.sequence,
            timestamp: packet.timestamp,
            duration,
            payload: packet.payload,
        };
        if self.jitter.pass(now, &arrival) {
            self.sound
                .packet(packet.payload, duration, Duration::ZERO, sink);
        } else {
            self.jitter.insert(now, &arrival);
            self.hand_out(now, sink);
        }
        duration > 0
    }

    fn deadline(&self) -> Time {
        self.jitter.deadline()
    }

    fn timeout(&mut self, now: Time, sink: &mut dyn FnMut(LegEvent<'_>)) {
        if now >= self.jitter.deadline() {
            self.hand_out(now, sink);
        }
    }

    fn skip(&mut self) {
        self.jitter.skip();
    }

    fn begin_anew(&mut self) {
        self.jitter.reset();
        (self.sound.run, self.residue) = (0, 0);
        self.restarted = false;
    }

    fn take_restarted(&mut self) -> bool {
        std::mem::take(&mut self.restarted)
    }

    fn totals(&self) -> MediaTotals {
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

    fn another(&self) -> Result<Self, OpusError> {
        Self::new()
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
