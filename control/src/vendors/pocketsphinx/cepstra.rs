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

/// How many frames of 10 ms the usual mean counts for: a first word alone must not pass for the
/// channel.
const PRIOR_FRAMES: f32 = 60.0;

/// Frames this far (in the first coefficient, which follows loudness) below the loudest are pauses.
const PAUSE: f32 = 22.0;

/// The usual means of wide-band and of telephone speech (as `sidetone wer --make-transform` prints
/// them).
const USUAL: [Mean; 2] = [WIDE, TELEPHONE];
const WIDE: Mean = [
    65.4, 10.4, 5.1, 24.5, -6.0, -3.3, 4.5, -12.0, -3.2, -3.3, 8.0, 4.0, 0.2,
];
const TELEPHONE: Mean = [
    59.6, 35.0, -26.7, 57.1, -30.2, 12.0, 2.1, -19.5, 9.2, -16.7, 18.0, -1.3, 1.7,
];

/// What is known of a channel's mean: the sum of its speech frames and how many there were.
#[derive(Clone, Copy)]
pub(super) struct Level {
    sum: Mean,
    count: f32,
}

/// Frames that are remembered: later ones count more, as callers move and turn.
const REMEMBERED: f32 = 3000.0;

impl Level {
    pub(super) fn mean(&self) -> Mean {
        self.sum.map(|sum| sum / self.count)
    }

    /// Adds `frames` more frames, given the running mean that started from [`Self::mean`], counted
    /// for `weight` frames, and has seen them.
    pub(super) fn add(&mut self, running: &Mean, frames: f32, weight: f32) {
        let before = self.mean();
        let keep = ((REMEMBERED - frames) / self.count).clamp(0.1, 1.0);
        for (i, sum) in self.sum.iter_mut().enumerate() {
            *sum = *sum * keep + running[i] * (weight + frames) - before[i] * weight;
        }
        self.count = self.count * keep + frames;
    }
}

/// The level of the speech in `pcm`, drawn towards the usual one of its band when there is little of
/// it; but not in the first coefficient, which only says how loud somebody speaks.
pub(super) fn level(front_end: &FrontEnd, pcm: &[i16], narrow: bool) -> Level {
    let frames = front_end.cepstra(pcm);
    let (own, count) = mean_of(&frames);
    let usual = USUAL[usize::from(narrow)];
    let mut mean: Mean = std::array::from_fn(|i| {
        (own[i] * count + usual[i] * PRIOR_FRAMES) / (count + PRIOR_FRAMES)
    });
    if count > 0.0 {
        mean[0] = own[0];
    }
    let count = count + PRIOR_FRAMES;
    Level {
        sum: mean.map(|mean| mean * count),
        count,
    }
}

/// Which frames are speech and no pause.
pub(super) fn speech(frames: &[Mean]) -> Vec<bool> {
    let loudest = frames.iter().map(|frame| frame[0]).fold(f32::MIN, f32::max);
    frames
        .iter()
        .map(|frame| frame[0] > loudest - PAUSE)
        .collect()
}

/// The mean of the frames that are speech, and how many these are.
pub(super) fn mean_of(frames: &[Mean]) -> (Mean, f32) {
    let mut sum = [0.0; CEPSTRA];
    let mut count = 0.0;
    for (frame, _) in frames
        .iter()
        .zip(speech(frames))
        .filter(|(_, voiced)| *voiced)
    {
        for (sum, value) in sum.iter_mut().zip(frame) {
            *sum += value;
        }
        count += 1.0;
    }
    (sum.map(|sum| sum / f32::max(count, 1.0)), count)
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
