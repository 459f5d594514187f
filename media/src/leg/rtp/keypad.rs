//! Keys as tones in what is sent (ITU-T Q.23), for a side that takes no events.

use std::collections::VecDeque;
use std::f32::consts::TAU;

use crate::audio::keypad::frequencies;
use crate::frame::FRAME;
use crate::rtp::dtmf::MOST_WAITING;
use crate::time::RATE;

/// Frames of a tone, and of the pause after it: 100 and 60 ms, where every receiver takes 40 and 40
/// (ITU-T Q.24).
const PRESSED: usize = 5;
const PAUSE: usize = 3;

/// The amplitudes of row and column: −10 and −8 dBm0. Lines take more from the higher one.
const LEVELS: [f32; 2] = [7_350.0, 9_250.0];

#[derive(Default)]
pub(super) struct Keypad {
    /// Row and column of each key, Hz.
    waiting: VecDeque<[f32; 2]>,
    /// Frames sent of the first.
    sent: usize,
}

impl Keypad {
    /// Queues a key. `false`: no key, or too many wait.
    pub(super) fn press(&mut self, key: char) -> bool {
        let tones = frequencies(key).filter(|_| self.waiting.len() < MOST_WAITING);
        self.waiting.extend(tones);
        tones.is_some()
    }

    /// Whether keys are under way: no other audio is sent meanwhile.
    pub(super) fn is_busy(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The next 20 ms.
    pub(super) fn frame(&mut self) -> [i16; FRAME] {
        let mut frame = [0; FRAME];
        let Some(tones) = self.waiting.front() else {
            return frame;
        };
        if self.sent < PRESSED {
            for (at, sample) in frame.iter_mut().enumerate() {
                let seconds = (self.sent * FRAME + at) as f32 / RATE as f32;
                let both = tones.iter().zip(LEVELS);
                let value: f32 = both
                    .map(|(hz, level)| level * (TAU * hz * seconds).sin())
                    .sum();
                *sample = value as i16;
            }
        }
        self.sent += 1;
        if self.sent == PRESSED + PAUSE {
            self.sent = 0;
            self.waiting.pop_front();
        }
        frame
    }
}
