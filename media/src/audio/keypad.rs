//! Which of a keypad's tones are in 20 ms of sound (ITU-T Q.23): for the voice detector, which must not
//! take them for a voice, and for digits that come as tones.

use crate::frame::FRAME;

/// 2 cos(2π f / 16,000) of 697, 770, 852 and 941 Hz, and of 1,209, 1,336, 1,477 and 1,633 Hz.
const TWICE_COS: [f32; 8] = [
    1.925_548_7,
    1.909_262,
    1.889_096_9,
    1.864_994_5,
    1.778_792_9,
    1.731_002_7,
    1.672_907_2,
    1.602_664_3,
];

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

/// Of a frame, as a sum of squares.
pub(crate) fn energy(frame: &[i16; FRAME]) -> f32 {
    frame.iter().map(|s| f32::from(*s) * f32::from(*s)).sum()
}

/// The energy that a sine of each frequency has in the frame (Goertzel), all eight side by side.
fn powers(frame: &[i16; FRAME]) -> [f32; 8] {
    let (mut last, mut before) = ([0.0_f32; 8], [0.0_f32; 8]);
    for sample in frame {
        let sample = f32::from(*sample);
        for tone in 0..8 {
            let next = sample + TWICE_COS[tone] * last[tone] - before[tone];
            before[tone] = last[tone];
            last[tone] = next;
        }
    }
    std::array::from_fn(|tone| {
        let (last, before) = (last[tone], before[tone]);
        (last * last + before * before - TWICE_COS[tone] * last * before) * 2.0 / FRAME as f32
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::audio::tones::{mix, sine};
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
