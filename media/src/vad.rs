//! Speech or not: one verdict for each 20 ms of the caller's sound, with hysteresis.
//!
//! Every frame passes an energy gate ([`gate`]): its power against a noise floor that is tracked all
//! the time. Below the gate nothing more is spent on it. Above, [`VadKind::Neural`] asks a small
//! recurrent network (earshot) that tells speech from noise of any loudness, and [`VadKind::Energy`]
//! asks for a few loud frames in a row, which is cheap but takes a sudden noise for speech.
//!
//! Only integers and a fixed order of operations decide in the gate, so it says the same on every
//! machine.

mod energy;
mod gate;
mod keypad;
mod neural;

use crate::config::VadKind;
use crate::frame::FRAME;

/// Frames that are still called voiced after the last one that sounded like speech: 80 ms, so that the
/// stops inside words do not cut them. Whoever waits for silence may subtract it.
pub const HANGOVER_FRAMES: u32 = 4;

/// A voice detector for one stream of frames.
pub struct Vad {
    detector: Detector,
    voiced: bool,
    /// Frames since the last that sounded like speech, while voiced.
    quiet: u32,
}

enum Detector {
    Scripted(Script),
    Energy(energy::Energy),
    Neural(Box<neural::Neural>),
}

/// What a detector says of a frame, before hysteresis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sound {
    /// Enough to begin an utterance.
    Speech,
    /// Enough to go on with one.
    Perhaps,
    Other,
}

impl Vad {
    pub fn new(kind: VadKind) -> Self {
        Self::with(match kind {
            VadKind::Neural => Detector::Neural(Box::default()),
            VadKind::Energy => Detector::Energy(energy::Energy::default()),
        })
    }

    /// A detector that hears nothing and says what it was told, exactly: a frame is voiced if it
    /// shares a sample with one of `spans` (first sample and the one past the last, at 16 kHz, counted
    /// from the first frame). For tests and simulations.
    pub fn scripted(mut spans: Vec<(u64, u64)>) -> Self {
        spans.sort_unstable();
        Self::with(Detector::Scripted(Script {
            spans,
            next: 0,
            at: 0,
        }))
    }

    fn with(detector: Detector) -> Self {
        Self {
            detector,
            voiced: false,
            quiet: 0,
        }
    }

    /// Whether the next 20 ms of the stream are voiced.
    pub fn frame(&mut self, frame: &[i16; FRAME]) -> bool {
        let sound = match &mut self.detector {
            Detector::Scripted(script) => return script.frame(),
            Detector::Energy(energy) => energy.frame(frame),
            Detector::Neural(neural) => neural.frame(frame, self.voiced),
        };
        match (sound, self.voiced) {
            (Sound::Speech, _) | (Sound::Perhaps, true) => {
                self.voiced = true;
                self.quiet = 0;
            }
            (Sound::Other, true) => {
                self.quiet += 1;
                self.voiced = self.quiet <= HANGOVER_FRAMES;
            }
            (Sound::Perhaps | Sound::Other, false) => {}
        }
        self.voiced
    }

    /// Frames called voiced since the last that sounded like speech: 0 while the voice itself sounds.
    pub const fn trailing(&self) -> u32 {
        self.quiet
    }

    /// Forgets the stream; a script begins anew.
    pub fn reset(&mut self) {
        match &mut self.detector {
            Detector::Scripted(script) => (script.next, script.at) = (0, 0),
            Detector::Energy(energy) => *energy = energy::Energy::default(),
            Detector::Neural(neural) => neural.reset(),
        }
        (self.voiced, self.quiet) = (false, 0);
    }
}

/// Spans in order of their starts, the first that may still matter, and where the stream is.
struct Script {
    spans: Vec<(u64, u64)>,
    next: usize,
    at: u64,
}

impl Script {
    fn frame(&mut self) -> bool {
        let start = self.at;
        self.at += FRAME as u64;
        while self
            .spans
            .get(self.next)
            .is_some_and(|span| span.1 <= start)
        {
            self.next += 1;
        }
        self.spans
            .get(self.next)
            .is_some_and(|span| span.0 < self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::tones::{mix, noise, sine};

    const KINDS: [VadKind; 2] = [VadKind::Energy, VadKind::Neural];

    fn verdicts(vad: &mut Vad, samples: &[i16]) -> Vec<bool> {
        samples
            .as_chunks::<FRAME>()
            .0
            .iter()
            .map(|frame| vad.frame(frame))
            .collect()
    }

    #[test]
    fn a_script_is_followed_to_the_frame() {
        let mut vad = Vad::scripted(vec![(1_280, 1_920), (320, 640), (2_000, 2_001)]);
        let expected = [false, true, false, false, true, true, true, false];
        assert_eq!(verdicts(&mut vad, &[0; 8 * FRAME]), expected);
        vad.reset();
        assert_eq!(verdicts(&mut vad, &[0; 8 * FRAME]), expected);
    }

    #[test]
    fn silence_and_a_noise_floor_are_not_speech() {
        for kind in KINDS {
            for floor in [
                vec![0; 160_000],
                noise(1, -50.0, 160_000),
                noise(2, -60.0, 160_000),
            ] {
                assert!(
                    !verdicts(&mut Vad::new(kind), &floor).contains(&true),
                    "{kind:?}"
                );
            }
        }
    }

    /// Noise that sets in after digital silence, as when a muted line is opened.
    #[test]
    fn a_noise_floor_after_digital_silence_is_not_speech() {
        for kind in KINDS {
            let mut sound = vec![0; 64_000];
            sound.extend(noise(3, -50.0, 64_000));
            assert!(
                !verdicts(&mut Vad::new(kind), &sound).contains(&true),
                "{kind:?}"
            );
        }
    }

    #[test]
    fn clicks_are_not_speech() {
        for kind in KINDS {
            for length in [1, 16, 80, 160] {
                let mut sound = noise(4, -60.0, 160_000);
                for at in (8_000..sound.len() - 400).step_by(4_137) {
                    mix(
                        &mut sound[at..at + length],
                        &noise(at as u64, -12.0, length),
                    );
                }
                assert!(
                    !verdicts(&mut Vad::new(kind), &sound).contains(&true),
                    "{kind:?} {length}"
                );
            }
        }
    }

    /// Loud noise that stays: the energy detector takes it for speech at first, but not for long.
    #[test]
    fn steady_noise_becomes_the_floor() {
        for kind in KINDS {
            let mut sound = noise(5, -60.0, 32_000);
            sound.extend(noise(6, -30.0, 160_000));
            let heard = verdicts(&mut Vad::new(kind), &sound);
            assert!(!heard[100 + 120..].contains(&true), "{kind:?}");
        }
    }

    #[test]
    fn hum_is_not_speech() {
        for kind in KINDS {
            let mut sound = noise(7, -60.0, 96_000);
            mix(&mut sound, &sine(16_000, 50.0, -36.0, 96_000));
            assert!(
                !verdicts(&mut Vad::new(kind), &sound).contains(&true),
                "{kind:?}"
            );
        }
    }

    #[test]
    fn a_reset_detector_is_a_new_one() {
        let sound = {
            let mut sound = noise(8, -50.0, 64_000);
            mix(&mut sound[16_000..32_000], &noise(9, -20.0, 16_000));
            sound
        };
        for kind in KINDS {
            let mut vad = Vad::new(kind);
            let first = verdicts(&mut vad, &sound);
            vad.reset();
            assert_eq!(verdicts(&mut vad, &sound), first);
        }
    }
}
