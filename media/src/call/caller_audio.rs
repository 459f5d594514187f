//! The caller's side of a call: audio of any length in, 20 ms frames with a place and a verdict out,
//! and the 300 ms before a voice kept, so that no first syllable is lost.

use crate::frame::FRAME;
use crate::vad::Vad;

/// Frames kept before the voice is noticed: 300 ms.
const PRE_ROLL: usize = 15;

/// Samples of these, and of the one in which it is noticed.
const KEPT: usize = (PRE_ROLL + 1) * FRAME;

/// Samples of the blocks in which an onset is looked for (5 ms).
const BLOCK: usize = 80;

/// Blocks at the end of a voice that may turn out to be quiet (60 ms): what a detector needs to be
/// sure.
const MAX_TAIL: usize = 12;

/// Blocks of quiet inside a word that do not end the search for its onset (40 ms).
const MAX_QUIET: usize = 8;

/// Frames, verdicts and pre-roll of one caller.
pub(super) struct CallerAudio {
    vad: Vad,
    pending: [i16; FRAME],
    fill: usize,
    /// Position of the pending frame's first sample.
    at: u64,
    /// The newest frame and the 300 ms before it, going round: each takes the place of the oldest, and only who
    /// asks for them in their order has them moved.
    kept: Vec<i16>,
    /// Where the oldest stands.
    oldest: usize,
    /// Position after the last sample kept.
    kept_end: u64,
    voiced: bool,
}

/// What one frame of the caller was; [`CallerAudio::newest`] has its sound.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallerFrame {
    /// Position of the first sample in the recording.
    pub(super) at: u64,
    pub(super) voiced: bool,
    /// On the first frame after a voice: how much of the voiced frames before it was already quiet,
    /// samples.
    pub(super) quiet: u64,
}

impl CallerAudio {
    pub(super) fn new(vad: Vad) -> Self {
        Self {
            vad,
            pending: [0; FRAME],
            fill: 0,
            at: 0,
            kept: Vec::with_capacity(KEPT),
            oldest: 0,
            kept_end: 0,
            voiced: false,
        }
    }

    /// Takes from the front of `samples` what completes a frame. `position`: the place of the first
    /// of them.
    pub(super) fn take(&mut self, samples: &mut &[i16], position: u64) -> Option<CallerFrame> {
        if self.fill == 0 {
            self.at = position;
            // A whole frame, as most come: it need not be put together.
            if let Some((frame, rest)) = samples.split_first_chunk() {
                *samples = rest;
                return Some(self.complete(frame));
            }
        }
        let length = samples.len().min(FRAME - self.fill);
        let (now, rest) = samples.split_at(length);
        self.pending[self.fill..self.fill + length].copy_from_slice(now);
        self.fill += length;
        *samples = rest;
        (self.fill == FRAME).then(|| self.complete_pending())
    }

    /// Completes a begun frame with silence: what comes next is not contiguous with it.
    pub(super) fn pad(&mut self) -> Option<CallerFrame> {
        (self.fill > 0).then(|| {
            self.pending[self.fill..].fill(0);
            self.complete_pending()
        })
    }

    /// The sound of the newest frame; nothing before the first.
    pub(super) fn newest(&self) -> &[i16] {
        let end = match self.oldest {
            0 => self.kept.len(),
            next => next,
        };
        &self.kept[end.saturating_sub(FRAME)..end]
    }

    /// The newest frame and the 300 ms before it, in their order.
    fn pre_roll(&mut self) -> &[i16] {
        self.kept.rotate_left(std::mem::take(&mut self.oldest));
        &self.kept
    }

    /// As much of it as lies at `position` or later.
    pub(super) fn pre_roll_from(&mut self, position: u64) -> &[i16] {
        let end = self.kept_end;
        let kept = self.pre_roll();
        let begins = end.saturating_sub(kept.len() as u64);
        let before = position.saturating_sub(begins).min(kept.len() as u64);
        &kept[before as usize..]
    }

    /// The position after the newest frame.
    pub(super) fn end(&self) -> u64 {
        self.kept_end
    }

    /// Where in the newest frame and the 300 ms before it the voice that was just noticed really began: a position in the
    /// recording, exact to 5 ms.
    pub(super) fn onset(&mut self) -> u64 {
        let end = self.kept_end;
        let kept = self.pre_roll();
        let blocks: Vec<i64> = kept.chunks_exact(BLOCK).map(level).collect();
        let threshold = threshold(kept.chunks_exact(BLOCK));
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
        let back = (kept.len() - (onset * BLOCK).min(kept.len())) as u64;
        end.saturating_sub(back)
    }

    /// The quiet at the end of the frames before the newest one: a detector judges whole frames, and
    /// the voice ends where it ends.
    fn quiet(&mut self) -> u64 {
        let kept = self.pre_roll();
        let Some(end) = kept.len().checked_sub(FRAME) else {
            return 0;
        };
        let before = &kept[..end];
        let threshold = threshold(before.chunks_exact(BLOCK));
        let blocks = before.rchunks_exact(BLOCK).take(MAX_TAIL);
        let quiet = blocks.take_while(|block| level(block) <= threshold).count();
        (quiet * BLOCK) as u64
    }

    fn complete_pending(&mut self) -> CallerFrame {
        self.fill = 0;
        let frame = self.pending;
        self.complete(&frame)
    }

    fn complete(&mut self, frame: &[i16; FRAME]) -> CallerFrame {
        let at = self.at;
        if self.kept_end != at {
            self.kept.clear();
            self.oldest = 0;
        }
        if self.kept.len() < KEPT {
            self.kept.extend_from_slice(frame);
        } else {
            self.kept[self.oldest..self.oldest + FRAME].copy_from_slice(frame);
            self.oldest = (self.oldest + FRAME) % KEPT;
        }
        self.kept_end = at + FRAME as u64;
        // The detector holds on over short stops; whoever counts silence wants the sound itself.
        let voiced = self.vad.frame(frame) && self.vad.trailing() == 0;
        let ended = std::mem::replace(&mut self.voiced, voiced) && !voiced;
        CallerFrame {
            at,
            voiced,
            quiet: if ended { self.quiet() } else { 0 },
        }
    }
}

/// The power of a block.
fn level(block: &[i16]) -> i64 {
    let energy: i64 = block.iter().map(|&s| i64::from(s) * i64::from(s)).sum();
    energy / BLOCK as i64
}

/// What is quiet beside these: 26 dB below the loudest 5 ms, and never below about -66 dBFS.
fn threshold<'a>(blocks: impl Iterator<Item = &'a [i16]>) -> i64 {
    (blocks.map(level).max().unwrap_or(0) / 400).max(256)
}
