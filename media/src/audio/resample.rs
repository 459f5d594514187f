//! Sample-rate conversion of a stream, both ways of every leg and of every voice.
//!
//! 8 ↔ 16 kHz, the telephone's way and most of the work, is a half-band filter of our own
//! ([`half_band`]): 2.6 ms of delay, flat to 3.4 kHz, and 95 dB down from 4.6 kHz, which neither of
//! `rubato`'s kinds reaches within that delay. Every other pair of rates goes through `rubato`'s FFT
//! in blocks of about 5 ms ([`blocks`]). The samples that come out do not depend on how the stream
//! was cut into calls.

mod blocks;
mod half_band;

use std::time::Duration;

use self::blocks::Blocks;
use self::half_band::{Down, Up};

/// The rates that are converted, Hz: those of narrow-band telephony to full-band speech.
pub const RATES: std::ops::RangeInclusive<u32> = 8_000..=48_000;

/// A stream's conversion from one sample rate to another. One for each direction of each stream.
pub struct Resampler {
    from_hz: u32,
    kind: Kind,
}

enum Kind {
    Same,
    Up(Box<Up>),
    Down(Box<Down>),
    Other(Box<Blocks>),
}

/// A pair of rates that [`Resampler`] does not convert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnsupportedRate {
    pub from_hz: u32,
    pub to_hz: u32,
}

impl Resampler {
    /// Rates in Hz, both in [`RATES`]. Refused are also two rates so nearly coprime that the shortest
    /// whole block of both lasts over 50 ms (8,001 and 16,000 Hz: a second).
    pub fn new(from_hz: u32, to_hz: u32) -> Result<Self, UnsupportedRate> {
        let unsupported = UnsupportedRate { from_hz, to_hz };
        if !RATES.contains(&from_hz) || !RATES.contains(&to_hz) {
            return Err(unsupported);
        }
        let kind = match (from_hz, to_hz) {
            (8_000, 16_000) => Kind::Up(Box::default()),
            (16_000, 8_000) => Kind::Down(Box::default()),
            (from, to) if from == to => Kind::Same,
            (from, to) => Kind::Other(Box::new(Blocks::new(from, to).ok_or(unsupported)?)),
        };
        Ok(Self { from_hz, kind })
    }

    /// Converts the next `input` of the stream, of any length, and appends what is ready to `out`.
    /// Allocates nothing while `out` has room.
    pub fn process(&mut self, input: &[i16], out: &mut Vec<i16>) {
        match &mut self.kind {
            Kind::Same => out.extend_from_slice(input),
            Kind::Up(filter) => filter.process(input, out),
            Kind::Down(filter) => filter.process(input, out),
            Kind::Other(blocks) => blocks.process(input, out),
        }
    }

    /// The stream is at its end: appends the sound still inside, by feeding silence of
    /// [`delay`](Self::delay) and whatever completes a block, and starts anew.
    pub fn finish(&mut self, out: &mut Vec<i16>) {
        let mut left = match &self.kind {
            Kind::Same => 0,
            Kind::Up(_) | Kind::Down(_) => half_band::CENTRE,
            Kind::Other(blocks) => blocks.tail(),
        };
        while left > 0 {
            let step = left.min(SILENCE.len());
            self.process(&SILENCE[..step], out);
            left -= step;
        }
        self.reset();
    }

    /// Forgets the stream: the next input starts a new one, as after `new`.
    pub fn reset(&mut self) {
        match &mut self.kind {
            Kind::Same => {}
            Kind::Up(filter) => **filter = Up::default(),
            Kind::Down(filter) => **filter = Down::default(),
            Kind::Other(blocks) => blocks.reset(),
        }
    }

    /// How much later a sound stands in the output than in the input. Where `rubato` works, up to a
    /// block of 5 ms (of 10 or 20 at 44.1 and 22.05 kHz) waits inside besides, when inputs are not
    /// whole blocks.
    pub fn delay(&self) -> Duration {
        match &self.kind {
            Kind::Same => Duration::ZERO,
            Kind::Up(_) | Kind::Down(_) => half_band::DELAY,
            Kind::Other(blocks) => blocks.delay(),
        }
    }

    /// The rate that this conversion takes, Hz.
    pub const fn from_hz(&self) -> u32 {
        self.from_hz
    }
}

impl std::fmt::Display for UnsupportedRate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { from_hz, to_hz } = self;
        write!(f, "no conversion from {from_hz} to {to_hz} Hz")
    }
}

impl std::error::Error for UnsupportedRate {}

/// What [`Resampler::finish`] feeds, a piece at a time.
static SILENCE: [i16; 256] = [0; 256];

/// Rounds to the nearest sample, with saturation. Adding 1.5 · 2^23 leaves no bits behind the point,
/// so the processor's rounding (to even, on every machine) does the work in all lanes at once.
#[inline(always)]
fn to_pcm(value: f32) -> i16 {
    const NO_FRACTION: f32 = 12_582_912.0;
    let rounded = value.clamp(-32_768.0, 32_767.0) + NO_FRACTION;
    (rounded.to_bits() as i32 - NO_FRACTION.to_bits() as i32) as i16
}

#[cfg(test)]
mod tests;
