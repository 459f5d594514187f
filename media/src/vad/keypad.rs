//! Keypad tones (ITU-T Q.23), which the network takes for a voice: two sines that hold nearly all of a
//! frame's energy. Asked only when a frame is about to begin speech.

use crate::audio::keypad::Tones;
use crate::frame::FRAME;

/// Parts of a frame's energy that both tones have together, and each at least: a vowel may have one
/// strong harmonic on a tone's place, but hardly two and nothing else.
const TOGETHER: f32 = 0.7;
const EACH: f32 = 0.15;

/// Whether a frame is a keypad tone.
pub(super) fn is_tone(frame: &[i16; FRAME]) -> bool {
    Tones::of(frame).hold(TOGETHER, EACH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::keypad::tests::pressed;
    use crate::audio::tones::{mix, noise, sine};
    use crate::time::RATE;

    #[test]
    fn every_key_is_known_and_other_sounds_are_not() {
        for key in "0123456789*#ABCD".chars() {
            let mut tone = pressed(key, FRAME);
            mix(&mut tone, &noise(1, -35.0, FRAME));
            assert!(is_tone(tone.first_chunk().expect("a frame")), "{key}");
        }
        for other in [
            sine(RATE, 770.0, -16.0, FRAME),
            noise(2, -20.0, FRAME),
            vec![0; FRAME],
        ] {
            assert!(!is_tone(other.first_chunk().expect("a frame")));
        }
    }
}
