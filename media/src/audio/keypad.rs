//! Which of a keypad's tones are in 20 ms of sound (ITU-T Q.23): for the voice detector, which must not
//! take them for a voice, and for digits that come as tones.

use super::simd::compiled_twice;
use crate::frame::FRAME;

/// A frame is taken in so many parts side by side: within one each step waits for the step before.
const PARTS: usize = 4;

/// Samples of a part.
const PART: usize = FRAME / PARTS;

/// Cosines and sines of 2π f / 16,000 for 697, 770, 852 and 941 Hz, and for 1,209, 1,336, 1,477 and 1,633 Hz: what a
/// sine turns by in a sample.
const STEP: ([f32; 8], [f32; 8]) = (
    [
        0.962_774_34,
        0.954_631,
        0.944_548_4,
        0.932_497_26,
        0.889_396_4,
        0.865_501_34,
        0.836_453_56,
        0.801_332_1,
    ],
    [
        0.270_306_4,
        0.297_791_45,
        0.328_372_12,
        0.361_177_06,
        0.457_136_72,
        0.500_906_65,
        0.548_037_77,
        0.598_219_7,
    ],
);

/// The same of a part.
const TURN: ([f32; 8], [f32; 8]) = (
    [
        -0.995_561_96,
        0.587_785_24,
        -0.062_790_52,
        -0.278_991_1,
        0.960_293_7,
        -0.425_779_28,
        -0.750_111_04,
        0.509_041_4,
    ],
    [
        0.094_108_31,
        -0.809_017,
        0.998_026_7,
        -0.960_293_7,
        0.278_991_1,
        -0.904_827_06,
        0.661_311_86,
        0.860_742_03,
    ],
);

/// Of rows and columns, Hz.
const ROWS: [f32; 4] = [697.0, 770.0, 852.0, 941.0];
const COLUMNS: [f32; 4] = [1_209.0, 1_336.0, 1_477.0, 1_633.0];

/// Keys by row and column.
const PAD: [[char; 4]; 4] = [
    ['1', '2', '3', 'A'],
    ['4', '5', '6', 'B'],
    ['7', '8', '9', 'C'],
    ['*', '0', '#', 'D'],
];

/// The tones of a key, Hz: row and column. `None`: it is no key.
pub(crate) fn frequencies(key: char) -> Option<[f32; 2]> {
    let key = key.to_ascii_uppercase();
    ROWS.iter().zip(PAD).find_map(|(row, keys)| {
        let mut columns = COLUMNS.iter().zip(keys);
        columns.find_map(|(column, other)| (other == key).then_some([*row, *column]))
    })
}

/// The strongest row and the strongest column in a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tones {
    row: usize,
    column: usize,
    row_power: f32,
    column_power: f32,
    /// Of the whole frame, as a sum of squares.
    pub(crate) energy: f32,
}

impl Tones {
    pub(crate) fn of(frame: &[i16; FRAME]) -> Self {
        let powers = powers(frame);
        let strongest = |group: &[f32]| {
            let mut best = (0, 0.0);
            for (at, power) in group.iter().enumerate() {
                if *power > best.1 {
                    best = (at, *power);
                }
            }
            best
        };
        let (rows, columns) = powers.split_at(4);
        let ((row, row_power), (column, column_power)) = (strongest(rows), strongest(columns));
        Self {
            row,
            column,
            row_power,
            column_power,
            energy: energy(frame),
        }
    }

    /// Whether the two hold so much of the frame's energy together, and each of them so much at least.
    pub(crate) fn hold(&self, together: f32, each: f32) -> bool {
        self.row_power.min(self.column_power) > each * self.energy
            && self.row_power + self.column_power > together * self.energy
    }

    /// The key that makes them.
    pub(crate) const fn key(&self) -> char {
        PAD[self.row][self.column]
    }
}

compiled_twice! {
    /// Of a frame, as a sum of squares.
    pub(crate) fn energy(frame: &[i16; FRAME]) -> f32 {
        let squares = frame.iter().map(|s| i64::from(i32::from(*s) * i32::from(*s)));
        squares.sum::<i64>() as f32
    }
}

compiled_twice! {
    /// The energy that a sine of each frequency has in the frame (Goertzel), all eight side by side.
    fn powers(frame: &[i16; FRAME]) -> [f32; 8] {
        let (mut last, mut before) = ([[0.0_f32; 8]; PARTS], [[0.0_f32; 8]; PARTS]);
        for at in 0..PART {
            for part in 0..PARTS {
                let sample = f32::from(frame[part * PART + at]);
                for tone in 0..8 {
                    let next = sample + 2.0 * STEP.0[tone] * last[part][tone] - before[part][tone];
                    before[part][tone] = last[part][tone];
                    last[part][tone] = next;
                }
            }
        }
        std::array::from_fn(|tone| {
            // Each part is turned to where the part before it ended.
            let (mut real, mut imaginary) = (0.0, 0.0);
            for part in (0..PARTS).rev() {
                let (last, before) = (last[part][tone], before[part][tone]);
                (real, imaginary) = (
                    last - before * STEP.0[tone] + TURN.0[tone] * real + TURN.1[tone] * imaginary,
                    before * STEP.1[tone] + TURN.0[tone] * imaginary - TURN.1[tone] * real,
                );
            }
            (real * real + imaginary * imaginary) * 2.0 / FRAME as f32
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::audio::tones::{mix, noise, sine};
    use crate::time::RATE;

    /// A key's tones as telephones send them: the column stands 2 dB over the row.
    pub(crate) fn pressed(key: char, samples: usize) -> Vec<i16> {
        let rows = [697.0, 770.0, 852.0, 941.0];
        let columns = [1_209.0, 1_336.0, 1_477.0, 1_633.0];
        for (row, keys) in rows.iter().zip(PAD) {
            for (column, other) in columns.iter().zip(keys) {
                if other == key {
                    let mut tone = sine(RATE, *row, -16.0, samples);
                    mix(&mut tone, &sine(RATE, *column, -14.0, samples));
                    return tone;
                }
            }
        }
        Vec::new()
    }

    #[test]
    fn the_powers_are_those_of_the_transform() {
        let mut frame = noise(7, -20.0, FRAME);
        mix(&mut frame, &pressed('8', FRAME));
        let frame = frame.first_chunk().expect("a frame");
        for (power, hz) in powers(frame)
            .into_iter()
            .zip(ROWS.into_iter().chain(COLUMNS))
        {
            let step = std::f64::consts::TAU * f64::from(hz) / f64::from(RATE);
            let (mut real, mut imaginary) = (0.0, 0.0);
            for (at, sample) in frame.iter().enumerate() {
                let (sin, cos) = (step * at as f64).sin_cos();
                real += f64::from(*sample) * cos;
                imaginary += f64::from(*sample) * sin;
            }
            let exact = (real * real + imaginary * imaginary) * 2.0 / FRAME as f64;
            let off = (f64::from(power) - exact).abs();
            assert!(off <= 1e-4 * exact + 1.0, "{hz} Hz: {power}, not {exact}");
        }
        assert_eq!(
            energy(&[i16::MIN; FRAME]),
            FRAME as f32 * 32_768.0 * 32_768.0
        );
    }

    #[test]
    fn every_key_is_told_by_its_tones() {
        for key in PAD.concat() {
            let tone = pressed(key, FRAME);
            let tones = Tones::of(tone.first_chunk().expect("a frame"));
            assert_eq!(tones.key(), key);
            assert!(tones.hold(0.9, 0.3), "{tones:?}");
        }
        let silence = Tones::of(&[0; FRAME]);
        assert!(!silence.hold(0.7, 0.15));
    }
}
