//! The power of a frame against the noise floor.
//!
//! The floor is the least power, averaged over 60 ms, of the last 1.6 to 1.8 s: speech has gaps within
//! that time, steady noise has not, so a noise that sets in becomes the floor by itself.

use crate::frame::FRAME;

/// Power above about 200 Hz of one frame, as mean square of the samples: 2^30 is 0 dBFS.
pub(super) type Power = u32;

/// 10^(dBFS/10) · 2^30.
pub(super) const DBFS_MINUS_45: Power = 33_954;
const DBFS_MINUS_50: Power = 10_737;
const DBFS_MINUS_60: Power = 1_074;

/// Frames that are averaged before the least is looked for: one quiet frame is not a floor.
const SMOOTH: usize = 3;

/// Frames in a part, and parts that are remembered: 8 · 200 ms and the one that is being filled.
const PART_FRAMES: u32 = 10;
const PARTS: usize = 8;

/// A tracked noise floor.
pub(super) struct Gate {
    recent: [Power; SMOOTH],
    least: [Power; PARTS],
    part_least: Power,
    part_frames: u32,
    at: usize,
    floor: Power,
}

impl Default for Gate {
    /// Until a call is known, its floor is taken to be -50 dBFS, or less as soon as less is heard.
    fn default() -> Self {
        Self {
            recent: [DBFS_MINUS_50; SMOOTH],
            least: [DBFS_MINUS_50; PARTS],
            part_least: Power::MAX,
            part_frames: 0,
            at: 0,
            floor: DBFS_MINUS_50,
        }
    }
}

/// A frame's power, and the floor that it is measured against.
#[derive(Clone, Copy)]
pub(super) struct Measure {
    pub(super) power: Power,
    pub(super) floor: Power,
}

impl Measure {
    /// Whether the frame has more than `ratio` times the power of the floor, and more than `least`.
    pub(super) fn over(self, ratio: u32, least: Power) -> bool {
        self.power > least && u64::from(self.power) > u64::from(self.floor) * u64::from(ratio)
    }
}

impl Gate {
    /// Measures a frame, and lets the floor learn from it.
    pub(super) fn frame(&mut self, frame: &[i16; FRAME]) -> Measure {
        let power = power(frame);
        let [_, before, last] = self.recent;
        self.recent = [before, last, power];
        let smooth = self.recent.iter().sum::<Power>() / SMOOTH as Power;
        self.part_least = self.part_least.min(smooth);
        self.part_frames += 1;
        if self.part_frames == PART_FRAMES {
            self.least[self.at] = self.part_least;
            self.at = (self.at + 1) % PARTS;
            (self.part_least, self.part_frames) = (Power::MAX, 0);
        }
        let least = self
            .least
            .iter()
            .fold(self.part_least, |least, part| least.min(*part));
        // Digital silence would make any sound infinitely loud.
        self.floor = least.max(DBFS_MINUS_60);
        Measure {
            power,
            floor: self.floor,
        }
    }
}

/// Mean square of a frame less the means of its 2 ms blocks, which takes hum, rumble and a constant
/// offset away (15 dB at 50 Hz, 3 dB at 220 Hz) without a pass of filtering.
fn power(frame: &[i16; FRAME]) -> Power {
    const BLOCK: usize = 32;
    let (blocks, _) = frame.as_chunks::<BLOCK>();
    let energy: u64 = blocks
        .iter()
        .map(|block| {
            let (mut sum, mut squares) = (0_i32, 0_u64);
            for pair in block.as_chunks::<2>().0 {
                let (a, b) = (i32::from(pair[0]), i32::from(pair[1]));
                sum += a + b;
                squares += u64::from((a * a) as u32 + (b * b) as u32);
            }
            let mean = (i64::from(sum) * i64::from(sum)) as u64 / BLOCK as u64;
            squares.saturating_sub(mean)
        })
        .sum();
    (energy / FRAME as u64) as Power
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::tones::{noise, sine};

    fn of(samples: &[i16]) -> f64 {
        let (frames, _) = samples.as_chunks::<FRAME>();
        let mean = frames.iter().map(|f| f64::from(power(f))).sum::<f64>() / frames.len() as f64;
        10.0 * (mean.max(1.0) / f64::from(1 << 30)).log10()
    }

    #[test]
    fn power_is_that_of_the_speech_band() {
        assert!((of(&noise(1, -20.0, 16_000)) + 20.0).abs() < 0.3);
        assert!((of(&sine(16_000, 1_000.0, -20.0, 16_000)) + 20.0).abs() < 0.5);
        assert!(of(&sine(16_000, 50.0, -20.0, 16_000)) < -34.0);
        assert!(of(&[12_000; 3_200]) < -90.0);
    }

    #[test]
    fn the_loudest_frame_does_not_overflow() {
        let mut frame = [i16::MIN; FRAME];
        frame.iter_mut().step_by(2).for_each(|s| *s = i16::MAX);
        assert!(power(&frame) > (1 << 30) - (1 << 17));
        let mut gate = Gate::default();
        for _ in 0..200 {
            gate.frame(&frame);
        }
        assert!(gate.floor > 1 << 29);
    }

    #[test]
    fn the_floor_falls_at_once_and_rises_within_two_seconds() {
        let mut gate = Gate::default();
        let mut run = |samples: &[i16]| {
            for frame in samples.as_chunks::<FRAME>().0 {
                gate.frame(frame);
            }
            10.0 * (f64::from(gate.floor) / f64::from(1 << 30)).log10()
        };
        assert!((run(&noise(1, -58.0, 2_560)) + 58.0).abs() < 1.0);
        assert!(run(&noise(2, -30.0, 16_000)) < -57.0);
        assert!((run(&noise(3, -30.0, 16_000)) + 30.0).abs() < 1.0);
    }
}
