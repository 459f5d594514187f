//! Keypad tones (ITU-T Q.23), which the network takes for a voice: two sines that hold nearly all of a
//! frame's energy. Asked only when a frame is about to begin speech.

use crate::frame::FRAME;

/// 2 cos(2π f / 16,000) of 697, 770, 852 and 941 Hz, and of 1,209, 1,336, 1,477 and 1,633 Hz.
const ROWS: [f32; 4] = [1.9255487, 1.909262, 1.8890969, 1.8649945];
const COLUMNS: [f32; 4] = [1.7787929, 1.7310027, 1.6729072, 1.6026643];

/// Parts of a frame's energy that both tones have together, and each at least: a vowel may have one
/// strong harmonic on a tone's place, but hardly two and nothing else.
const TOGETHER: f32 = 0.7;
const EACH: f32 = 0.15;

/// Whether a frame is a keypad tone.
pub(super) fn is_tone(frame: &[i16; FRAME]) -> bool {
    let energy: f32 = frame.iter().map(|s| f32::from(*s) * f32::from(*s)).sum();
    let strongest = |group: [f32; 4]| {
        group
            .into_iter()
            .map(|tone| power(frame, tone))
            .fold(0.0, f32::max)
    };
    let (row, column) = (strongest(ROWS), strongest(COLUMNS));
    row.min(column) > EACH * energy && row + column > TOGETHER * energy
}

/// The energy that a sine of that frequency has in the frame (Goertzel).
fn power(frame: &[i16; FRAME], twice_cos: f32) -> f32 {
    let (mut last, mut before) = (0.0, 0.0);
    for sample in frame {
        (last, before) = (f32::from(*sample) + twice_cos * last - before, last);
    }
    (last * last + before * before - twice_cos * last * before) * 2.0 / FRAME as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::tones::{mix, noise, sine};

    #[test]
    fn every_key_is_known_and_other_sounds_are_not() {
        for row in [697.0, 770.0, 852.0, 941.0] {
            for column in [1_209.0, 1_336.0, 1_477.0, 1_633.0] {
                // The column stands 2 dB over the row, as telephones send it.
                let mut tone = sine(16_000, row, -16.0, FRAME);
                assert!(!is_tone(tone.first_chunk().expect("a frame")));
                mix(&mut tone, &sine(16_000, column, -14.0, FRAME));
                mix(&mut tone, &noise(1, -35.0, FRAME));
                assert!(
                    is_tone(tone.first_chunk().expect("a frame")),
                    "{row} and {column} Hz"
                );
            }
        }
        assert!(!is_tone(
            noise(2, -20.0, FRAME).first_chunk().expect("a frame")
        ));
        assert!(!is_tone(&[0; FRAME]));
    }
}
