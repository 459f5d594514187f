//! Moves the acoustic model from wide-band speech, which it was trained on, to a telephone's band.
//!
//! The same sentence, once at 16 kHz and once through a telephone, gives pairs of feature frames; an
//! affine map from the one to the other, by least squares, is fitted for each of the model's three
//! streams (cepstra, their first and second differences) and applied to its means (maximum likelihood
//! linear regression, Leggetter and Woodland, 1995; the file is pocketsphinx's `-mllr` format). It
//! lowered the word error rate of telephone speech from 26 to 8 per cent.

use super::cepstra::{self, CEPSTRA, Mean};
use super::decoder::FrontEnd;

/// The model's streams: cepstra, differences, differences of differences.
const STREAMS: usize = 3;

/// Affine: one more input than outputs.
const INPUTS: usize = CEPSTRA + 1;

/// Sums from which the maps are solved.
#[derive(Clone)]
pub struct Fit {
    streams: [Sums; STREAMS],
    frames: usize,
    means: [Mean; 2],
    sentences: f32,
}

#[derive(Clone)]
struct Sums {
    inputs: [[f64; INPUTS]; INPUTS],
    outputs: [[f64; INPUTS]; CEPSTRA],
}

/// Three affine maps.
pub struct Transform([[[f64; INPUTS]; CEPSTRA]; STREAMS]);

impl Default for Fit {
    fn default() -> Self {
        let sums = Sums {
            inputs: [[0.0; INPUTS]; INPUTS],
            outputs: [[0.0; INPUTS]; CEPSTRA],
        };
        Self {
            streams: [sums.clone(), sums.clone(), sums],
            frames: 0,
            means: [[0.0; CEPSTRA]; 2],
            sentences: 0.0,
        }
    }
}

impl Fit {
    /// Adds a sentence: the same samples, wide and through a telephone, both at 16 kHz and aligned.
    pub fn add(&mut self, front_end: &FrontEnd, wide: &[i16], narrow: &[i16]) {
        let from = front_end.cepstra(wide);
        let to = front_end.cepstra(narrow);
        let count = from.len().min(to.len());
        let speech = cepstra::speech(&from[..count]);
        self.sentences += 1.0;
        for (mean, frames) in self.means.iter_mut().zip([&from, &to]) {
            for (sum, value) in mean.iter_mut().zip(cepstra::mean_of(frames).0) {
                *sum += value;
            }
        }
        let (from, to) = (
            centred(&from[..count], &speech),
            centred(&to[..count], &speech),
        );
        for at in 3..count.saturating_sub(3) {
            if !speech[at - 3..=at + 3].iter().all(|voiced| *voiced) {
                continue;
            }
            let (inputs, outputs) = (features(&from, at), features(&to, at));
            for (sums, (x, y)) in self.streams.iter_mut().zip(inputs.iter().zip(&outputs)) {
                sums.add(x, y);
            }
            self.frames += 1;
        }
    }

    /// The usual means of both bands, wide first: `cepstra.rs` starts from them.
    pub fn usual_means(&self) -> [Mean; 2] {
        self.means
            .map(|mean| mean.map(|sum| sum / self.sentences.max(1.0)))
    }

    /// Frames that were added.
    pub fn frames(&self) -> usize {
        self.frames
    }

    /// The best maps for what was added; `None` when it was too little.
    pub fn solve(&self) -> Option<Transform> {
        if self.frames < 1000 {
            return None;
        }
        let mut maps = [[[0.0; INPUTS]; CEPSTRA]; STREAMS];
        for (map, sums) in maps.iter_mut().zip(&self.streams) {
            for (row, target) in map.iter_mut().zip(&sums.outputs) {
                *row = solve(sums.inputs, *target)?;
            }
        }
        Some(Transform(maps))
    }
}

impl Transform {
    /// Leaves the model as it is.
    pub fn identity() -> Self {
        let mut map = [[0.0; INPUTS]; CEPSTRA];
        for (at, row) in map.iter_mut().enumerate() {
            row[at] = 1.0;
        }
        Self([map; STREAMS])
    }

    /// The text of a transform file: one class; for each stream the matrix, the bias, and the factors
    /// of the variances (all one).
    pub fn file(&self) -> String {
        let mut text = format!("1\n{STREAMS}\n");
        for map in &self.0 {
            text.push_str(&format!("{CEPSTRA}\n"));
            for row in map {
                push_row(&mut text, &row[..CEPSTRA]);
            }
            push_row(&mut text, &map.map(|row| row[CEPSTRA]));
            push_row(&mut text, &[1.0; CEPSTRA]);
        }
        text
    }
}

impl Sums {
    fn add(&mut self, x: &Mean, y: &Mean) {
        let mut inputs = [1.0; INPUTS];
        for (input, value) in inputs.iter_mut().zip(x) {
            *input = f64::from(*value);
        }
        for (row, a) in self.inputs.iter_mut().zip(inputs) {
            for (sum, b) in row.iter_mut().zip(inputs) {
                *sum += a * b;
            }
        }
        for (row, target) in self.outputs.iter_mut().zip(y) {
            for (sum, input) in row.iter_mut().zip(inputs) {
                *sum += input * f64::from(*target);
            }
        }
    }
}

fn push_row(text: &mut String, values: &[f64]) {
    let row: Vec<String> = values.iter().map(|value| format!("{value:.5}")).collect();
    text.push_str(&row.join(" "));
    text.push('\n');
}

/// The frames less their mean over the speech.
fn centred(frames: &[Mean], speech: &[bool]) -> Vec<Mean> {
    let mut mean = [0.0_f64; CEPSTRA];
    let mut count = 0.0_f64;
    for (frame, _) in frames.iter().zip(speech).filter(|(_, voiced)| **voiced) {
        for (sum, value) in mean.iter_mut().zip(frame) {
            *sum += f64::from(*value);
        }
        count += 1.0;
    }
    let mean = mean.map(|sum| (sum / count.max(1.0)) as f32);
    frames
        .iter()
        .map(|frame| std::array::from_fn(|i| frame[i] - mean[i]))
        .collect()
}

/// The three streams of the frame at `at` (`1s_c_d_dd`: differences over ±2 frames, and those over ±1).
fn features(frames: &[Mean], at: usize) -> [Mean; STREAMS] {
    let difference = |at: usize, i: usize| frames[at + 2][i] - frames[at - 2][i];
    [
        frames[at],
        std::array::from_fn(|i| difference(at, i)),
        std::array::from_fn(|i| difference(at + 1, i) - difference(at - 1, i)),
    ]
}

/// Gaussian elimination with pivoting.
fn solve(mut matrix: [[f64; INPUTS]; INPUTS], mut target: [f64; INPUTS]) -> Option<[f64; INPUTS]> {
    for column in 0..INPUTS {
        let pivot = (column..INPUTS).max_by(|a, b| {
            matrix[*a][column]
                .abs()
                .total_cmp(&matrix[*b][column].abs())
        })?;
        if matrix[pivot][column].abs() < 1e-9 {
            return None;
        }
        matrix.swap(column, pivot);
        target.swap(column, pivot);
        for row in column + 1..INPUTS {
            let factor = matrix[row][column] / matrix[column][column];
            let pivot_row = matrix[column];
            for (value, pivot) in matrix[row].iter_mut().zip(pivot_row).skip(column) {
                *value -= factor * pivot;
            }
            target[row] -= factor * target[column];
        }
    }
    let mut found = [0.0; INPUTS];
    for row in (0..INPUTS).rev() {
        let known: f64 = (row + 1..INPUTS).map(|i| matrix[row][i] * found[i]).sum();
        found[row] = (target[row] - known) / matrix[row][row];
    }
    Some(found)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]
mod tests {
    use super::*;

    #[test]
    fn least_squares_finds_the_map() {
        let mut fit = Fit::default();
        for n in 0..2000_u32 {
            let x: Mean =
                std::array::from_fn(|i| ((n * 7 + 13) as f32 * (i as f32 + 1.3)).sin() * 5.0);
            let y: Mean = std::array::from_fn(|i| 0.5 * x[i] - 0.25 * x[(i + 1) % CEPSTRA] + 2.0);
            for sums in &mut fit.streams {
                sums.add(&x, &y);
            }
            fit.frames += 1;
        }
        let map = fit.solve().unwrap();
        assert!((map.0[0][0][0] - 0.5).abs() < 1e-4);
        assert!((map.0[2][0][1] + 0.25).abs() < 1e-4);
        assert!((map.0[1][12][CEPSTRA] - 2.0).abs() < 1e-3);
    }

    #[test]
    fn the_file_has_three_streams_of_thirteen() {
        let text = Transform::identity().file();
        assert_eq!(text.lines().count(), 2 + STREAMS * (1 + CEPSTRA + 2));
        assert!(text.starts_with("1\n3\n13\n1.00000 0.00000"));
    }

    #[test]
    fn too_little_gives_no_transform() {
        assert!(Fit::default().solve().is_none());
    }
}
