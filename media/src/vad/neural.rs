//! earshot's recurrent network, asked only while the energy gate is open.

use earshot::Detector;

use super::Sound;
use super::gate::Gate;
use crate::frame::FRAME;

/// What the network takes: 16 ms, exactly.
const WINDOW: usize = 256;

/// Scores that begin speech and go on with it, of 1.
const BEGIN: f32 = 0.7;
const GO_ON: f32 = 0.4;

/// The gate opens 3 dB over the floor: the network finds speech in noise as loud as itself.
const OPEN: u32 = 2;

/// And at -57 dBFS at least: what is softer has no words in it on any line.
const LEAST: u32 = 2_142;

/// Frames that the gate stays open for after the last loud one. Shorter than the hang-over
/// of a word's end would cost more in re-warming the network than it saves.
const HOLD_FRAMES: u32 = 10;

/// Windows that the network hears before the one it is asked about, when the gate opens: it looks at
/// three windows' spectra, each taken over three windows.
const WARM_UP: usize = 4;

pub(super) struct Neural {
    gate: Gate,
    network: Box<Detector>,
    /// The newest samples: [`WARM_UP`] whole windows, and then those that are short of one.
    past: [i16; WARM_UP * WINDOW + WINDOW],
    /// How many are short of a window.
    rest: usize,
    /// Whole windows at the end of `past` that the network has not heard, counted up to one more than
    /// there are.
    unheard: usize,
    /// Frames until the gate shuts.
    open: u32,
}

impl Default for Neural {
    fn default() -> Self {
        Self {
            gate: Gate::default(),
            network: Detector::default_boxed(),
            past: [0; WARM_UP * WINDOW + WINDOW],
            rest: 0,
            unheard: 0,
            open: 0,
        }
    }
}

impl Neural {
    pub(super) fn frame(&mut self, frame: &[i16; FRAME]) -> Sound {
        let loud = self.gate.frame(frame).over(OPEN, LEAST);
        self.open = if loud {
            HOLD_FRAMES
        } else {
            self.open.saturating_sub(1)
        };
        let mut score = 0.0_f32;
        let mut rest = &frame[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(WINDOW - self.rest));
            let end = WARM_UP * WINDOW + self.rest;
            self.past[end..end + now.len()].copy_from_slice(now);
            self.rest += now.len();
            rest = later;
            if self.rest == WINDOW {
                self.past.copy_within(WINDOW.., 0);
                self.rest = 0;
                self.unheard += 1;
                if self.open > 0 {
                    score = score.max(self.ask());
                }
            }
        }
        match score {
            score if score >= BEGIN => Sound::Speech,
            score if score >= GO_ON => Sound::Perhaps,
            _ => Sound::Other,
        }
    }

    fn ask(&mut self) -> f32 {
        if self.unheard > WARM_UP {
            self.network.reset();
            self.unheard = WARM_UP;
        }
        let first = WARM_UP - self.unheard;
        self.unheard = 0;
        let (windows, _) = self.past[first * WINDOW..WARM_UP * WINDOW].as_chunks::<WINDOW>();
        windows
            .iter()
            .fold(0.0, |_, window| self.network.predict_i16(window))
    }

    pub(super) fn reset(&mut self) {
        self.gate = Gate::default();
        self.network.reset();
        self.past.fill(0);
        (self.rest, self.unheard, self.open) = (0, 0, 0);
    }
}
