//! 8 ↔ 16 kHz by a half-band low-pass of 83 taps at 16 kHz (Kaiser window, β = 9.6): 6 dB down at
//! 4 kHz, less than 0.001 dB at 3.4 kHz, 95 dB from 4.6 kHz on.
//!
//! Every second tap of such a filter is 0, but for the middle one, which is 1/2. So half of the
//! samples going up are the input itself, and the others (as the sum going down) take 42 taps, which
//! are 21 multiplications since the filter is symmetric. Outputs are computed in tiles, each tap for a
//! whole tile at a time: the compiler makes vectors of that, and each output is still the same sum
//! in the same order, on any machine and however the stream was cut.

use std::time::Duration;

use super::to_pcm;

/// The middle tap, in samples at 16 kHz: what the filter delays.
pub(super) const CENTRE: usize = 41;

/// 41 samples at 16 kHz.
pub(super) const DELAY: Duration = Duration::from_nanos(2_562_500);

/// The first half of the 42 taps that are not 0 (less the middle one), the other half being its mirror
/// image. They are scaled so that the 42 sum to 1: a constant passes both phases unchanged.
#[rustfmt::skip]
const TAPS: [f32; 21] = [
    8.0557672e-6,
    -4.0075825e-5,
    0.00011348489,
    -0.00025705547,
    0.00051078944,
    -0.00092776616,
    0.0015758418,
    -0.0025392997,
    0.003920774,
    -0.0058441283,
    0.008459599,
    -0.011953618,
    0.016567934,
    -0.022637324,
    0.030666288,
    -0.04149416,
    0.05668535,
    -0.07959298,
    0.11897793,
    -0.20710148,
    0.6349018,
];

/// Samples at 8 kHz that an output looks back on, besides the newest.
const PAST: usize = 41;

/// Which of them stands beside the middle tap.
const MIDDLE: usize = 20;

/// Samples at 8 kHz that are worked on at once: a frame of 20 ms.
const BLOCK: usize = 160;

/// Outputs computed together: four vectors of AVX2.
const TILE: usize = 32;

/// The recent past and the block that is being worked on, at 8 kHz.
#[derive(Clone)]
struct Line([f32; PAST + BLOCK]);

impl Line {
    /// Takes in up to [`BLOCK`] new samples.
    fn load(&mut self, new: impl ExactSizeIterator<Item = i16>) {
        for (slot, sample) in self.0[PAST..].iter_mut().zip(new) {
            *slot = f32::from(sample);
        }
    }

    /// Makes the newest of `used` new samples the past of what follows.
    fn advance(&mut self, used: usize) {
        self.0.copy_within(used..used + PAST, 0);
    }
}

/// 8 to 16 kHz.
pub(super) struct Up {
    line: Line,
    odd: [f32; BLOCK],
}

impl Default for Up {
    fn default() -> Self {
        Self {
            line: Line([0.0; PAST + BLOCK]),
            odd: [0.0; BLOCK],
        }
    }
}

impl Up {
    pub(super) fn process(&mut self, input: &[i16], out: &mut Vec<i16>) {
        for block in input.chunks(BLOCK) {
            self.line.load(block.iter().copied());
            filter(&self.line.0, block.len(), &mut self.odd);
            let between = &self.line.0[PAST - MIDDLE..];
            let start = out.len();
            out.resize(start + 2 * block.len(), 0);
            for ((pair, filtered), passed) in
                out[start..].chunks_exact_mut(2).zip(&self.odd).zip(between)
            {
                pair[0] = to_pcm(*filtered);
                pair[1] = *passed as i16;
            }
            self.line.advance(block.len());
        }
    }
}

/// 16 to 8 kHz.
pub(super) struct Down {
    /// Inputs of even position: those at which outputs stand.
    even: Line,
    /// Inputs of odd position: the sum's middle.
    odd: Line,
    sums: [f32; BLOCK],
    /// The first of a pair whose second has not come.
    half: Option<i16>,
}

impl Default for Down {
    fn default() -> Self {
        let line = Line([0.0; PAST + BLOCK]);
        Self {
            even: line.clone(),
            odd: line,
            sums: [0.0; BLOCK],
            half: None,
        }
    }
}

impl Down {
    pub(super) fn process(&mut self, input: &[i16], out: &mut Vec<i16>) {
        let mut input = input;
        if let Some(first) = self.half.take() {
            let Some((second, rest)) = input.split_first() else {
                self.half = Some(first);
                return;
            };
            self.pairs(&[first, *second], out);
            input = rest;
        }
        let whole = input.len() & !1;
        self.half = input.get(whole).copied();
        for block in input[..whole].chunks(2 * BLOCK) {
            self.pairs(block, out);
        }
    }

    fn pairs(&mut self, block: &[i16], out: &mut Vec<i16>) {
        let count = block.len() / 2;
        self.even.load(block.chunks_exact(2).map(|pair| pair[0]));
        self.odd.load(block.chunks_exact(2).map(|pair| pair[1]));
        filter(&self.even.0, count, &mut self.sums);
        // The middle tap stands 41 samples back from the even one: 21 pairs back, the odd one.
        let middle = &self.odd.0[PAST - MIDDLE - 1..];
        let start = out.len();
        out.resize(start + count, 0);
        for ((sample, sum), centre) in out[start..].iter_mut().zip(&self.sums).zip(middle) {
            *sample = to_pcm(0.5 * (sum + centre));
        }
        self.even.advance(count);
        self.odd.advance(count);
    }
}

/// The 42-tap sum for the first `count` new samples of `line`. (Those up to the end of the last tile are
/// computed too, from what is left of the block before, and not used.)
fn filter(line: &[f32; PAST + BLOCK], count: usize, sums: &mut [f32; BLOCK]) {
    #[inline(always)]
    fn portable(line: &[f32; PAST + BLOCK], count: usize, sums: &mut [f32; BLOCK]) {
        let (tiles, _) = sums.as_chunks_mut::<TILE>();
        for (index, tile) in tiles.iter_mut().take(count.div_ceil(TILE)).enumerate() {
            let span = &line[index * TILE..][..PAST + TILE];
            let mut sum = [0.0; TILE];
            for (tap, weight) in TAPS.iter().enumerate() {
                let old = &span[tap..][..TILE];
                let new = &span[PAST - tap..][..TILE];
                for lane in 0..TILE {
                    sum[lane] += weight * (old[lane] + new[lane]);
                }
            }
            *tile = sum;
        }
    }

    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2")]
        fn avx2(line: &[f32; PAST + BLOCK], count: usize, sums: &mut [f32; BLOCK]) {
            portable(line, count, sums);
        }

        if is_x86_feature_detected!("avx2") {
            #[expect(unsafe_code, reason = "calling a function compiled for AVX2")]
            // SAFETY: `avx2` is safe code whose only demand is a processor with AVX2, and that was
            // asked for on the line above.
            unsafe {
                avx2(line, count, sums);
            }
            return;
        }
    }
    portable(line, count, sums);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The taps are a Kaiser window of β = 9.6 over the ideal half-band filter.
    #[test]
    fn the_table_is_what_the_formula_says() {
        let bessel = |x: f64| {
            let (mut sum, mut term) = (1.0, 1.0);
            for k in 1..60 {
                term *= (x / 2.0 / f64::from(k)).powi(2);
                sum += term;
            }
            sum
        };
        let tap = |index: usize| {
            let from_centre = 2.0 * index as f64 - CENTRE as f64;
            let ideal = (std::f64::consts::FRAC_PI_2 * from_centre).sin()
                / (std::f64::consts::PI * from_centre);
            let ratio = from_centre / CENTRE as f64;
            ideal * bessel(9.6 * (1.0 - ratio * ratio).sqrt())
        };
        let total: f64 = (0..42).map(tap).sum();
        for (index, value) in TAPS.iter().enumerate() {
            assert!(
                (tap(index) / total - f64::from(*value)).abs() <= 5e-8,
                "tap {index}"
            );
        }
    }
}
