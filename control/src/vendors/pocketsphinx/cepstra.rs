//! The level and the band of a caller's channel, from the sound itself.
//!
//! pocketsphinx takes a running mean from its cepstra to be independent of the channel. A decoder that
//! serves many calls in turn must not carry one caller's mean to the next, and the first words of a
//! call must not wait for a mean to settle: so each call has its own, first found from the sound of its
//! first utterance by the decoder's own front end.

use std::f64::consts::{PI, TAU};
use std::sync::LazyLock;

use super::decoder::FrontEnd;

/// Cepstral coefficients of a frame (the packaged model's).
pub(super) const CEPSTRA: usize = 13;

/// The mean of a channel's cepstra.
pub(super) type Mean = [f32; CEPSTRA];

/// What is added for a mean that rests on little sound: the packaged model's own starting point
/// counts as this many frames of 10 ms.
const PRIOR_FRAMES: f32 = 20.0;

/// Frames this far (in the first coefficient, which follows loudness) below the loudest are pauses.
const PAUSE: f32 = 12.0;

/// The mean of the speech in `pcm`, drawn towards `prior` when there is little of it.
pub(super) fn mean(front_end: &FrontEnd, pcm: &[i16], prior: &Mean) -> Mean {
    let frames = front_end.cepstra(pcm);
    let loudest = frames.iter().map(|frame| frame[0]).fold(f32::MIN, f32::max);
    let mut sum = prior.map(|value| value * PRIOR_FRAMES);
    let mut count = PRIOR_FRAMES;
    for frame in frames.iter().filter(|frame| frame[0] > loudest - PAUSE) {
        for (sum, value) in sum.iter_mut().zip(frame) {
            *sum += value;
        }
        count += 1.0;
    }
    sum.map(|value| value / count)
}

/// Whether the sound has nothing above 4 kHz: a telephone's band. `None` when it is too quiet to tell.
pub(super) fn is_narrow(pcm: &[i16]) -> Option<bool> {
    let (mut high, mut all) = (0.0_f64, 0.0_f64);
    for window in pcm.windows(TAPS) {
        let passed: f64 = window
            .iter()
            .zip(HIGH_PASS.iter())
            .map(|(sample, tap)| f64::from(*sample) * tap)
            .sum();
        high += passed * passed;
        let middle = f64::from(window[TAPS / 2]);
        all += middle * middle;
    }
    let mean = all / pcm.len().max(1) as f64;
    (mean > QUIET).then(|| high / all < NARROW)
}

/// Mean square below which there is no voice to judge: an amplitude of 30.
const QUIET: f64 = 900.0;

/// Of wide-band speech a thousandth and more of the energy lies above 4.8 kHz (its fricatives); of
/// what came through 8 kHz sampling only the resampler's floor does.
const NARROW: f64 = 3e-5;

const TAPS: usize = 63;

/// A high-pass for 16 kHz that stops at 4.2 kHz and passes from 5.4 kHz: windowed sinc, Blackman.
static HIGH_PASS: LazyLock<[f64; TAPS]> = LazyLock::new(|| {
    let cut = 4800.0 / 16_000.0;
    std::array::from_fn(|i| {
        let at = i as f64 - (TAPS / 2) as f64;
        let low = if at == 0.0 {
            2.0 * cut
        } else {
            (TAU * cut * at).sin() / (PI * at)
        };
        let phase = TAU * i as f64 / (TAPS - 1) as f64;
        let window = 0.42 - 0.5 * phase.cos() + 0.08 * (2.0 * phase).cos();
        let all = if at == 0.0 { 1.0 } else { 0.0 };
        all - low * window
    })
});
