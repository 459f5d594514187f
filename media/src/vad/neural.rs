//! earshot's recurrent network, asked only while the energy gate is open.

use earshot::Detector;

use super::gate::Gate;
use super::{Sound, keypad};
use crate::frame::FRAME;

/// What the network takes: 16 ms, exactly.
const WINDOW: usize = 256;

/// Scores, of 1, that begin speech: in any frame, and where a few have stood [`CLEAR`] of the floor.
/// Over a telephone the network is slower to be sure than the energy is.
const BEGIN: f32 = 0.7;
const BEGIN_CLEAR: f32 = 0.55;

/// 10 dB over the floor.
const CLEAR: u32 = 10;

/// Frames in a row that stand clear: more than a keystroke of 15 ms can fill.
const CLEAR_FRAMES: u32 = 3;

/// The score that goes on with speech, in a frame that holds the gate open: alone, the network takes
/// another 130 ms to forget a word.
const GO_ON: f32 = 0.35;

/// The gate opens 3 dB over the floor: the network finds speech in noise as loud as itself.
const OPEN: u32 = 2;

/// And at -57 dBFS at least: what is softer has no words in it on any line.
const LEAST: u32 = 2_142;

/// Frames that the gate stays open for after the last loud one: the stops inside a sentence, after
/// which warming the network up again would cost as much as going on.
const HOLD_FRAMES: u32 = 10;

/// Windows that the network hears before the one it is asked about, when the gate opens: it looks at
/// three windows' spectra, each taken over three windows.
const WARM_UP: usize = 4;

/// Samples that are kept: with room for a few windows more, so that not each moves those before it.
const ROOM: usize = 2 * WARM_UP * WINDOW + WINDOW;

pub(super) struct Neural {
    gate: Gate,
    network: Box<Detector>,
    /// From `from` on: the newest [`WARM_UP`] whole windows, and then the samples that are short of one.
    past: [i16; ROOM],
    from: usize,
    /// How many are short of a window.
    rest: usize,
    /// Whole windows that the network has not heard: those at the end of `past`, or more.
    unheard: usize,
    /// Frames until the gate shuts.
    open: u32,
    /// Frames in a row that stood clear of the floor.
    clear: u32,
}

impl Default for Neural {
    fn default() -> Self {
        Self {
            gate: Gate::default(),
            network: Detector::default_boxed(),
            past: [0; ROOM],
            from: 0,
            rest: 0,
            unheard: 0,
            open: 0,
            clear: 0,
        }
    }
}

impl Neural {
    /// `voiced`: whether speech has begun already.
    pub(super) fn frame(&mut self, frame: &[i16; FRAME], voiced: bool) -> Sound {
        let measure = self.gate.frame(frame);
        let loud = measure.over(OPEN, LEAST);
        self.open = if loud {
            HOLD_FRAMES
        } else {
            self.open.saturating_sub(1)
        };
        let mut score = 0.0_f32;
        let mut rest = &frame[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(WINDOW - self.rest));
            let end = self.from + WARM_UP * WINDOW + self.rest;
            self.past[end..end + now.len()].copy_from_slice(now);
            self.rest += now.len();
            rest = later;
            if self.rest == WINDOW {
                self.rest = 0;
                self.from += WINDOW;
                if self.from == ROOM - WARM_UP * WINDOW {
                    self.past.copy_within(self.from.., 0);
                    self.from = 0;
                }
                self.unheard += 1;
                if self.open > 0 {
                    score = score.max(self.ask());
                }
            }
        }
        self.clear = if measure.over(CLEAR, LEAST) {
            self.clear + 1
        } else {
            0
        };
        let begin = if self.clear >= CLEAR_FRAMES {
            BEGIN_CLEAR
        } else {
            BEGIN
        };
        match score {
            _ if !loud => Sound::Other,
            score if score >= begin && (voiced || !keypad::is_tone(frame)) => Sound::Speech,
            score if score >= GO_ON => Sound::Perhaps,
            _ => Sound::Other,
        }
    }

    fn ask(&mut self) -> f32 {
        if self.unheard > WARM_UP {
            self.network.reset();
            self.unheard = WARM_UP;
        }
        let end = self.from + WARM_UP * WINDOW;
        let first = end - self.unheard * WINDOW;
        self.unheard = 0;
        let (windows, _) = self.past[first..end].as_chunks::<WINDOW>();
        windows
            .iter()
            .fold(0.0, |_, window| self.network.predict_i16(window))
    }

    pub(super) fn reset(&mut self) {
        self.gate = Gate::default();
        self.network.reset();
        self.past.fill(0);
        (self.from, self.rest, self.unheard, self.open, self.clear) = (0, 0, 0, 0, 0);
    }
}
