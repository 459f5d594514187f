//! Any pair of rates through `rubato`'s FFT: the stream is cut into the blocks that it wants.

use std::time::Duration;

use audioadapter_buffers::direct::SequentialSlice;
use rubato::{Fft, FixedSync, Resampler as _, WindowFunction};

use super::to_pcm;

/// The block that is asked for, as a part of a second: 5 ms, so 2.5 ms of delay. Rates with a small
/// common divisor get the shortest block that is whole in both.
const BLOCKS_A_SECOND: u32 = 200;

/// The longest block that is accepted, as a part of a second: 50 ms. 11,025 to 16,000 Hz takes 40.
const LONGEST: usize = 20;

pub(super) struct Blocks {
    fft: Fft<f32>,
    /// The block that is being gathered, and how much of it is.
    input: Vec<f32>,
    filled: usize,
    output: Vec<f32>,
    to_hz: u32,
}

impl Blocks {
    /// `None` if no short block is whole at both rates.
    pub(super) fn new(from_hz: u32, to_hz: u32) -> Option<Self> {
        let (from, to) = (from_hz as usize, to_hz as usize);
        if from / gcd(from, to) > from / LONGEST {
            return None;
        }
        // Hann: the library's default window costs 45 dB at 3.4 kHz in blocks this short.
        let fft = Fft::new_custom(
            from,
            to,
            (from_hz / BLOCKS_A_SECOND) as usize,
            1,
            1,
            WindowFunction::Hann,
            FixedSync::Both,
        )
        .ok()?;
        let input = vec![0.0; fft.input_frames_next()];
        let output = vec![0.0; fft.output_frames_next()];
        Some(Self {
            fft,
            input,
            filled: 0,
            output,
            to_hz,
        })
    }

    pub(super) fn process(&mut self, mut input: &[i16], out: &mut Vec<i16>) {
        while !input.is_empty() {
            let room = &mut self.input[self.filled..];
            let (now, later) = input.split_at(input.len().min(room.len()));
            for (slot, sample) in room.iter_mut().zip(now) {
                *slot = f32::from(*sample);
            }
            self.filled += now.len();
            input = later;
            if self.filled == self.input.len() {
                self.filled = 0;
                self.convert(out);
            }
        }
    }

    fn convert(&mut self, out: &mut Vec<i16>) {
        let (inputs, outputs) = (self.input.len(), self.output.len());
        let from = SequentialSlice::new(&self.input[..], 1, inputs);
        let to = SequentialSlice::new_mut(&mut self.output[..], 1, outputs);
        let (Ok(from), Ok(mut to)) = (from, to) else {
            unreachable!("both slices are exactly as long as they are said to be");
        };
        let Ok((_, written)) = self.fft.process_into_buffer(&from, &mut to, None) else {
            unreachable!("both buffers have the lengths that the resampler itself asked for");
        };
        out.extend(self.output[..written].iter().map(|value| to_pcm(*value)));
    }

    pub(super) fn reset(&mut self) {
        self.fft.reset();
        self.filled = 0;
    }

    /// Input samples that push the last sound out: the delay, and the rest of a block.
    pub(super) fn tail(&self) -> usize {
        // The delay is half a block.
        let needed = self.filled + self.input.len().div_ceil(2);
        needed.next_multiple_of(self.input.len()) - self.filled
    }

    pub(super) fn delay(&self) -> Duration {
        Duration::from_secs(self.fft.output_delay() as u64) / self.to_hz
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
