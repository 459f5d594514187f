//! The caller's side of a call: audio of any length in, 20 ms frames with a place and a verdict out,
//! and the last 300 ms kept, so that no first syllable is lost.

use crate::frame::FRAME;
use crate::vad::Vad;

/// Frames kept before the voice is noticed: 300 ms.
const PRE_ROLL: usize = 15;

/// Samples of the blocks in which an onset is looked for (5 ms).
const BLOCK: usize = 80;

/// Blocks of quiet inside a word that do not end the search for its onset (40 ms).
const MAX_QUIET: usize = 8;

/// Frames, verdicts and pre-roll of one caller.
pub(super) struct Ear {
    vad: Vad,
    pending: [i16; FRAME],
    fill: usize,
    /// Position of the pending frame's first sample.
    at: u64,
    kept: Vec<i16>,
    /// Position after the last sample kept.
    kept_end: u64,
}

/// One frame of the caller.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard {
    /// Position of the first sample in the recording.
    pub(super) at: u64,
    pub(super) voiced: bool,
    pub(super) samples: [i16; FRAME],
}

impl Ear {
    pub(super) fn new(vad: Vad) -> Self {
        Self {
            vad,
            pending: [0; FRAME],
            fill: 0,
            at: 0,
            kept: Vec::with_capacity(PRE_ROLL * FRAME),
            kept_end: 0,
        }
    }

    /// Takes from the front of `samples` what completes a frame. `position`: the place of the first
    /// of them.
    pub(super) fn take(&mut self, samples: &mut &[i16], position: u64) -> Option<Heard> {
        if self.fill == 0 {
            self.at = position;
        }
        let length = samples.len().min(FRAME - self.fill);
        let (now, rest) = samples.split_at(length);
        self.pending[self.fill..self.fill + length].copy_from_slice(now);
        self.fill += length;
        *samples = rest;
        (self.fill == FRAME).then(|| self.complete())
    }

    /// Completes a begun frame with silence: what comes next is not contiguous with it.
    pub(super) fn pad(&mut self) -> Option<Heard> {
        (self.fill > 0).then(|| {
            self.pending[self.fill..].fill(0);
            self.complete()
        })
    }

    /// The sound of the last 300 ms.
    pub(super) fn pre_roll(&self) -> &[i16] {
        &self.kept
    }

    /// Where in the last 300 ms the voice that was just noticed really began: a position in the
    /// recording, exact to 5 ms.
    pub(super) fn onset(&self) -> u64 {
        let level =
            |block: &[i16]| block.iter().map(|&s| i64::from(s).pow(2)).sum::<i64>() / BLOCK as i64;
        let blocks: Vec<i64> = self.kept.chunks_exact(BLOCK).map(level).collect();
        // 26 dB below the loudest 5 ms, and never below about -66 dBFS.
        let loudest = blocks.iter().copied().max().unwrap_or(0);
        let threshold = (loudest / 400).max(256);
        let mut onset = blocks.len();
        let mut quiet = 0;
        for (at, &level) in blocks.iter().enumerate().rev() {
            if level > threshold {
                onset = at;
                quiet = 0;
            } else {
                quiet += 1;
                // Silence after the newest sound is not between sounds.
                if quiet > MAX_QUIET && onset < blocks.len() {
                    break;
                }
            }
        }
        let back = (self.kept.len() - (onset * BLOCK).min(self.kept.len())) as u64;
        self.kept_end.saturating_sub(back)
    }

    fn complete(&mut self) -> Heard {
        self.fill = 0;
        let samples = self.pending;
        let at = self.at;
        if self.kept_end != at {
            self.kept.clear();
        }
        if self.kept.len() + FRAME > PRE_ROLL * FRAME {
            self.kept.drain(..FRAME);
        }
        self.kept.extend_from_slice(&samples);
        self.kept_end = at + FRAME as u64;
        // The detector holds on over short stops; whoever counts silence wants the sound itself.
        let voiced = self.vad.frame(&samples) && self.vad.trailing() == 0;
        Heard {
            at,
            voiced,
            samples,
        }
    }
}
