//! Energy over the noise floor.

use super::Sound;
use super::gate::{DBFS_MINUS_45, Gate};
use crate::frame::FRAME;

/// Speech begins 9 dB over the floor and goes on at 6.
const BEGIN: u32 = 8;
const GO_ON: u32 = 4;

/// Loud frames in a row that begin speech: 60 ms, which a click of 5 or 10 ms cannot fill.
const IN_A_ROW: u32 = 3;

#[derive(Default)]
pub(super) struct Energy {
    gate: Gate,
    loud: u32,
}

impl Energy {
    pub(super) fn frame(&mut self, frame: &[i16; FRAME]) -> Sound {
        let measure = self.gate.frame(frame);
        // A line's own noise may stand at -50 dBFS: nothing below -45 begins speech.
        self.loud = if measure.over(BEGIN, DBFS_MINUS_45) {
            self.loud + 1
        } else {
            0
        };
        if self.loud >= IN_A_ROW {
            Sound::Speech
        } else if measure.over(GO_ON, DBFS_MINUS_45 / 2) {
            Sound::Perhaps
        } else {
            Sound::Other
        }
    }
}
