//! G.722 at 64 kbit/s (ITU-T G.722, mode 1): wideband speech at 16 kHz, two samples to a byte.
//!
//! Two filters part the sound into its halves below and above 4 kHz, each at 8 kHz; the lower is coded
//! with six bits a sample, the upper with two, both by adaptive differences (ADPCM) from what a
//! predictor with two poles and six zeros expects. The blocks have the names of the Recommendation
//! (section 6.2). All of it is whole numbers, so decoders everywhere say the same.

use std::time::Duration;

/// Samples in a byte.
pub const SAMPLES_A_BYTE: usize = 2;

/// Taps of the filters that part the bands and join them again (Table 11), every second one; the rest are the
/// same in reverse.
const TAPS: usize = 12;

/// How much later a sound comes out of a decoder than it went into the encoder: 23 samples at 16 kHz, of both filters.
pub const DELAY: Duration = Duration::from_nanos(23 * 1_000_000_000 / 16_000);

const FILTER: [i32; TAPS] = [3, -11, 12, 32, -210, 951, 3876, -805, 362, -156, 53, -11];

/// Sound to bytes.
#[derive(Clone, Debug, Default)]
pub struct Encoder {
    history: History,
    low: Band<LOW>,
    high: Band<HIGH>,
}

/// Bytes to sound.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    history: History,
    low: Band<LOW>,
    high: Band<HIGH>,
}

impl Encoder {
    /// Appends a byte for each two samples; one that is left over is dropped.
    pub fn encode(&mut self, samples: &[i16], out: &mut Vec<u8>) {
        for [first, second] in samples.as_chunks::<SAMPLES_A_BYTE>().0 {
            let (odd, even) = self.history.filter(i32::from(*first), i32::from(*second));
            let low = self.low.encode((even + odd) >> 14);
            let high = self.high.encode((even - odd) >> 14);
            out.push(high << 6 | low);
        }
    }
}

impl Decoder {
    /// Appends two samples for each byte.
    pub fn decode(&mut self, bytes: &[u8], out: &mut Vec<i16>) {
        for byte in bytes {
            let low = self.low.decode(byte & 0x3f);
            let high = self.high.decode(byte >> 6);
            let (odd, even) = self.history.filter(low + high, low - high);
            out.extend_from_slice(&[saturated(even >> 11), saturated(odd >> 11)]);
        }
    }
}

/// What the filters remember: the latest samples, twice, so that they lie in a row wherever the newest
/// one is.
#[derive(Clone, Debug)]
struct History {
    pairs: [[i32; 2]; 2 * TAPS],
    at: usize,
}

impl Default for History {
    fn default() -> Self {
        Self {
            pairs: [[0; 2]; 2 * TAPS],
            at: 0,
        }
    }
}

impl History {
    /// Takes two samples; the sums over all first ones and over all second ones.
    fn filter(&mut self, first: i32, second: i32) -> (i32, i32) {
        self.pairs[self.at] = [first, second];
        self.pairs[self.at + TAPS] = [first, second];
        self.at = (self.at + 1) % TAPS;
        let pairs = &self.pairs[self.at..self.at + TAPS];
        let mut sums = (0, 0);
        for (at, [first, second]) in pairs.iter().enumerate() {
            sums.0 += first * FILTER[at];
            sums.1 += second * FILTER[TAPS - 1 - at];
        }
        sums
    }
}

const LOW: bool = false;
const HIGH: bool = true;

/// One band's coder: what it expects next, and how far its steps go.
#[derive(Clone, Debug)]
struct Band<const HIGH: bool> {
    predictor: Predictor,
    /// The logarithm of the scale factor (NABLA), in 1/2048.
    log_scale: i32,
    /// The scale factor (DETL, DETH).
    scale: i32,
}

impl Default for Band<LOW> {
    fn default() -> Self {
        Self {
            predictor: Predictor::default(),
            log_scale: 0,
            scale: 32,
        }
    }
}

impl Default for Band<HIGH> {
    fn default() -> Self {
        Self {
            predictor: Predictor::default(),
            log_scale: 0,
            scale: 8,
        }
    }
}

/// Decision levels of the lower band's quantizer (Q6).
const LEVELS: [i32; 29] = [
    35, 72, 110, 150, 190, 233, 276, 323, 370, 422, 473, 530, 587, 650, 714, 786, 858, 940, 1023,
    1121, 1219, 1339, 1458, 1612, 1765, 1980, 2195, 2557, 2919,
];
/// The inverse quantizers of the lower band, of six bits for what is heard (QQ6), of four for what is
/// adapted by (QQ4), and of two bits for the upper (QQ2).
const HEARD: [i32; 64] = [
    -136, -136, -136, -136, -24808, -21904, -19008, -16704, -14984, -13512, -12280, -11192, -10232,
    -9360, -8576, -7856, -7192, -6576, -6000, -5456, -4944, -4464, -4008, -3576, -3168, -2776,
    -2400, -2032, -1688, -1360, -1040, -728, 24808, 21904, 19008, 16704, 14984, 13512, 12280,
    11192, 10232, 9360, 8576, 7856, 7192, 6576, 6000, 5456, 4944, 4464, 4008, 3576, 3168, 2776,
    2400, 2032, 1688, 1360, 1040, 728, 432, 136, -432, -136,
];
const ADAPTED: [i32; 16] = [
    0, -20456, -12896, -8968, -6288, -4240, -2584, -1200, 20456, 12896, 8968, 6288, 4240, 2584,
    1200, 0,
];
const UPPER: [i32; 4] = [-7408, -1616, 7408, 1616];
/// How a code changes the logarithm of the scale factor (WL by RL42, WH by RH2).
const LOW_STEPS: [i32; 16] = [
    -60, 3042, 1198, 538, 334, 172, 58, -30, 3042, 1198, 538, 334, 172, 58, -30, -60,
];
const HIGH_STEPS: [i32; 4] = [798, -214, 798, -214];
/// Powers of two by 32nds (ILB).
const POWERS: [i32; 32] = [
    2048, 2093, 2139, 2186, 2233, 2282, 2332, 2383, 2435, 2489, 2543, 2599, 2656, 2714, 2774, 2834,
    2896, 2960, 3025, 3091, 3158, 3228, 3298, 3371, 3444, 3520, 3597, 3676, 3756, 3838, 3922, 4008,
];

impl Band<LOW> {
    /// A sample's six bits (QUANTL).
    fn encode(&mut self, sample: i32) -> u8 {
        let error = wide(sample - self.predictor.expected);
        let size = magnitude(error);
        let level = LEVELS.partition_point(|level| size >= (level * self.scale) >> 12) as u8;
        // The codes fall as the magnitude grows; the two smallest negative ones lie above the positive.
        let code = match (error < 0, level) {
            (false, level) => 61 - level,
            (true, 0) => 63,
            (true, 1) => 62,
            (true, level) => 33 - level,
        };
        self.adapt(code);
        code
    }

    /// The sample of six bits.
    fn decode(&mut self, code: u8) -> i32 {
        let difference = (self.scale * HEARD[usize::from(code & 0x3f)]) >> 15;
        let sample = (self.predictor.expected + difference).clamp(-16_384, 16_383);
        self.adapt(code);
        sample
    }

    /// Learns from the four upper bits, which a line may leave of the six.
    fn adapt(&mut self, code: u8) {
        let code = usize::from(code >> 2 & 0x0f);
        let difference = (self.scale * ADAPTED[code]) >> 15;
        self.log_scale = ((self.log_scale * 127) >> 7) + LOW_STEPS[code];
        self.log_scale = self.log_scale.clamp(0, 18_432);
        self.scale = scale(self.log_scale, 8);
        self.predictor.learn(difference);
    }
}

impl Band<HIGH> {
    /// A sample's two bits (QUANTH).
    fn encode(&mut self, sample: i32) -> u8 {
        let error = wide(sample - self.predictor.expected);
        let large = magnitude(error) >= (564 * self.scale) >> 12;
        let code = match (error < 0, large) {
            (true, true) => 0,
            (true, false) => 1,
            (false, true) => 2,
            (false, false) => 3,
        };
        self.adapt(code);
        code
    }

    fn decode(&mut self, code: u8) -> i32 {
        let difference = (self.scale * UPPER[usize::from(code & 3)]) >> 15;
        let sample = (self.predictor.expected + difference).clamp(-16_384, 16_383);
        self.adapt(code);
        sample
    }

    fn adapt(&mut self, code: u8) {
        let code = usize::from(code & 3);
        let difference = (self.scale * UPPER[code]) >> 15;
        self.log_scale = ((self.log_scale * 127) >> 7) + HIGH_STEPS[code];
        self.log_scale = self.log_scale.clamp(0, 22_528);
        self.scale = scale(self.log_scale, 10);
        self.predictor.learn(difference);
    }
}

/// The magnitude in ones' complement, as the Recommendation counts it.
const fn magnitude(error: i32) -> i32 {
    if error < 0 { -(error + 1) } else { error }
}

/// The scale factor of its logarithm (SCALEL, SCALEH).
const fn scale(log: i32, offset: i32) -> i32 {
    let power = POWERS[(log >> 6 & 31) as usize];
    let shift = offset - (log >> 11);
    let linear = if shift < 0 {
        power << -shift
    } else {
        power >> shift
    };
    linear << 2
}

/// Two poles and six zeros that follow the signal (block 4).
#[derive(Clone, Debug, Default)]
struct Predictor {
    /// The next sample (S).
    expected: i32,
    /// What the zeros give of it (SZ).
    zeros_give: i32,
    /// The latest two samples as the decoder has them (RLT), and their parts without the poles (PLT).
    rebuilt: [i32; 2],
    partial: [i32; 2],
    /// The latest six differences (DLT).
    differences: [i32; 6],
    /// Coefficients of the poles (AL) and of the zeros (BL).
    poles: [i32; 2],
    zeros: [i32; 6],
}

impl Predictor {
    fn learn(&mut self, difference: i32) {
        // RECONS, PARREC
        let rebuilt = wide(self.expected + difference);
        let partial = wide(self.zeros_give + difference);
        let [before, earlier] = self.partial;
        let same = |one: i32, other: i32| one >> 31 == other >> 31;
        // UPPOL2
        let first = wide(self.poles[0] << 2);
        let push = if same(partial, before) {
            (-first).min(32_767)
        } else {
            first
        };
        let lean = if same(partial, earlier) { 128 } else { -128 };
        let second = (lean + (push >> 7) + ((self.poles[1] * 32_512) >> 15)).clamp(-12_288, 12_288);
        // UPPOL1
        let lean = if same(partial, before) { 192 } else { -192 };
        let most = wide(15_360 - second);
        let first = wide(lean + ((self.poles[0] * 32_640) >> 15)).clamp(-most, most);
        self.poles = [first, second];
        // UPZERO
        let lean = if difference == 0 { 0 } else { 128 };
        for (zero, past) in self.zeros.iter_mut().zip(self.differences) {
            let lean = if same(past, difference) { lean } else { -lean };
            *zero = wide(lean + ((*zero * 32_640) >> 15));
        }
        // DELAYA
        self.differences.copy_within(..5, 1);
        self.differences[0] = difference;
        self.rebuilt = [rebuilt, self.rebuilt[0]];
        self.partial = [partial, before];
        // FILTEP, FILTEZ, PREDIC
        let part = |coefficient: i32, value: i32| (coefficient * wide(2 * value)) >> 15;
        let poles_give =
            wide(part(self.poles[0], self.rebuilt[0]) + part(self.poles[1], self.rebuilt[1]));
        let zeros = self.zeros.iter().zip(self.differences);
        self.zeros_give = wide(zeros.map(|(zero, past)| part(*zero, past)).sum());
        self.expected = wide(poles_give + self.zeros_give);
    }
}

/// Saturated to 16 bits.
fn saturated(value: i32) -> i16 {
    value.clamp(i16::MIN.into(), i16::MAX.into()) as i16
}

/// The same, in the width that goes on being reckoned with.
fn wide(value: i32) -> i32 {
    saturated(value).into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::audio::tones::{db, goertzel, mix, noise, sine};
    use crate::time::RATE;

    fn through(samples: &[i16]) -> Vec<i16> {
        let (mut bytes, mut out) = (Vec::new(), Vec::new());
        Encoder::default().encode(samples, &mut bytes);
        assert_eq!(bytes.len(), samples.len() / SAMPLES_A_BYTE);
        Decoder::default().decode(&bytes, &mut out);
        assert_eq!(out.len(), samples.len());
        out
    }

    #[test]
    fn tones_of_both_bands_come_back_as_loud_as_they_were() {
        for hz in [200.0, 1_000.0, 3_000.0, 5_000.0, 6_500.0] {
            let heard = through(&sine(RATE, hz, -15.0, 16_000));
            let level = db(goertzel(&heard[3_200..16_000], RATE, hz));
            assert!((level + 15.0).abs() < 1.0, "{hz} Hz: {level} dB");
        }
    }

    /// The delay of both filters together; noise of the quantizers stays well below a voice.
    #[test]
    fn a_voice_comes_back_23_samples_later() {
        let mut voice = sine(RATE, 160.0, -18.0, 32_000);
        for harmonic in 2..20 {
            let hz = 160.0 * f64::from(harmonic);
            mix(
                &mut voice,
                &sine(RATE, hz, -18.0 - 1.5 * f64::from(harmonic), 32_000),
            );
        }
        let heard = through(&voice);
        let (mut signal, mut error) = (0.0, 0.0);
        for (said, heard) in voice.iter().zip(&heard[23..]).skip(1_600) {
            signal += f64::from(*said).powi(2);
            error += (f64::from(*said) - f64::from(*heard)).powi(2);
        }
        let ratio = db(signal / error);
        assert!(ratio > 15.0, "{ratio} dB");
    }

    #[test]
    fn silence_stays_silence_and_the_loudest_does_not_wrap() {
        assert!(through(&[0; 3_200]).iter().all(|s| s.unsigned_abs() < 16));
        let loud = through(&sine(RATE, 1_000.0, -3.02, 16_000));
        let level = db(goertzel(&loud[3_200..16_000], RATE, 1_000.0));
        assert!((level + 3.0).abs() < 1.0, "{level}");
        let square: Vec<i16> = (0..16_000)
            .map(|at| if at / 40 % 2 == 0 { i16::MAX } else { i16::MIN })
            .collect();
        let heard = through(&square);
        let turned = |at: usize| heard[at + 23].signum() != square[at].signum();
        // In the middle of each half wave the sign is the one that was said.
        assert!((1_620..15_900).step_by(40).all(|at| !turned(at)));
    }

    #[test]
    fn cutting_the_stream_changes_nothing() {
        let sound = noise(3, -20.0, 4_800);
        let mut whole = Vec::new();
        Encoder::default().encode(&sound, &mut whole);
        let (mut encoder, mut pieces) = (Encoder::default(), Vec::new());
        for piece in sound.chunks(160) {
            encoder.encode(piece, &mut pieces);
        }
        assert_eq!(whole, pieces);
    }

    proptest! {
        /// No code leads out of the numbers' bounds: arithmetic would panic here.
        #[test]
        fn any_bytes_are_sound(bytes in proptest::collection::vec(any::<u8>(), 0..2_000)) {
            let mut out = Vec::new();
            Decoder::default().decode(&bytes, &mut out);
            prop_assert_eq!(out.len(), 2 * bytes.len());
        }

        #[test]
        fn any_sound_is_encoded(samples in proptest::collection::vec(any::<i16>(), 0..4_000)) {
            let mut out = Vec::new();
            Encoder::default().encode(&samples, &mut out);
            prop_assert_eq!(out.len(), samples.len() / 2);
        }
    }
}
