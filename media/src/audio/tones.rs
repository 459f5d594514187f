//! Sounds made from numbers, and the ear for them: for tests, benches and load. All are the same for
//! the same arguments. Levels are in dBFS as [`level`](super::level) measures them.

use std::f64::consts::TAU;

/// A sine of `hz` at `dbfs` (-3.01 is full scale), `samples` long at `rate` Hz, starting at phase 0.
pub fn sine(rate: u32, hz: f64, dbfs: f64, samples: usize) -> Vec<i16> {
    let amplitude = full_scale(dbfs) * std::f64::consts::SQRT_2;
    (0..samples)
        .map(|i| to_pcm(amplitude * (TAU * hz * i as f64 / f64::from(rate)).sin()))
        .collect()
}

/// A sine whose frequency rises evenly from `from_hz` to `to_hz` over `samples` at `rate` Hz.
pub fn sweep(rate: u32, from_hz: f64, to_hz: f64, dbfs: f64, samples: usize) -> Vec<i16> {
    let amplitude = full_scale(dbfs) * std::f64::consts::SQRT_2;
    let seconds = samples as f64 / f64::from(rate);
    (0..samples)
        .map(|i| {
            let t = i as f64 / f64::from(rate);
            let cycles = from_hz * t + (to_hz - from_hz) * t * t / (2.0 * seconds);
            to_pcm(amplitude * (TAU * cycles).sin())
        })
        .collect()
}

/// White noise at `dbfs`, nearly normal in its amplitudes (the sum of four even ones).
pub fn noise(seed: u64, dbfs: f64, samples: usize) -> Vec<i16> {
    // Four even deviates in -1..1 add up to a variance of 4/3.
    let scale = full_scale(dbfs) / (4.0_f64 / 3.0).sqrt();
    let mut random = Random::new(seed);
    (0..samples)
        .map(|_| to_pcm(scale * (0..4).map(|_| random.even()).sum::<f64>()))
        .collect()
}

/// Brown noise (its power falls 6 dB an octave, as of traffic or wind) at `dbfs`.
pub fn brown_noise(seed: u64, dbfs: f64, samples: usize) -> Vec<i16> {
    // A leak keeps the walk near zero: a corner of about 13 Hz at 16 kHz.
    const LEAK: f64 = 0.995;
    let step = full_scale(dbfs) * ((1.0 - LEAK * LEAK) * 3.0).sqrt();
    let mut random = Random::new(seed);
    let mut value = 0.0;
    (0..samples)
        .map(|_| {
            value = LEAK * value + step * random.even();
            to_pcm(value)
        })
        .collect()
}

/// Adds `other` onto `samples` with saturation, as far as both go.
pub fn mix(samples: &mut [i16], other: &[i16]) {
    for (sample, add) in samples.iter_mut().zip(other) {
        *sample = sample.saturating_add(*add);
    }
}

/// Multiplies `samples` by `db` decibels, with saturation.
pub fn gain(samples: &mut [i16], db: f64) {
    let factor = 10_f64.powf(db / 20.0);
    for sample in samples {
        *sample = to_pcm(f64::from(*sample) * factor);
    }
}

/// Power of `samples` at exactly `hz`, relative to full scale: a sine of that frequency reads what
/// [`sine`] was given, as a ratio (10^(dBFS/10)). Over a whole number of its periods it is exact.
pub fn goertzel(samples: &[i16], rate: u32, hz: f64) -> f64 {
    if samples.is_empty() {
        return 0.0;
    }
    let turn = TAU * hz / f64::from(rate);
    let twice_cos = 2.0 * turn.cos();
    let (mut last, mut before) = (0.0, 0.0);
    for sample in samples {
        (last, before) = (f64::from(*sample) + twice_cos * last - before, last);
    }
    let power = last * last + before * before - twice_cos * last * before;
    let half = samples.len() as f64 / 2.0;
    // A sine of amplitude A gives (A n / 2)^2, and has the mean square A^2 / 2.
    power / (half * half) / 2.0 / (32_768.0 * 32_768.0)
}

/// A ratio of powers in decibels.
pub fn db(power: f64) -> f64 {
    10.0 * power.max(1e-20).log10()
}

/// A small generator of random numbers for tests and load (`SplitMix64`): same seed, same numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 even bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number of 0 to below `end`; 0 for an `end` of 0.
    pub const fn below(&mut self, end: u64) -> u64 {
        ((self.bits() as u128 * end as u128) >> 64) as u64
    }

    /// An even deviate in -1..1.
    pub const fn even(&mut self) -> f64 {
        ((self.bits() >> 11) as f64) / (1_u64 << 52) as f64 - 1.0
    }
}

fn full_scale(dbfs: f64) -> f64 {
    32_768.0 * 10_f64.powf(dbfs / 20.0)
}

fn to_pcm(value: f64) -> i16 {
    value.round() as i16
}

#[cfg(test)]
mod tests {
    use super::super::level::rms_dbfs;
    use super::*;

    #[test]
    fn sounds_have_the_level_that_was_asked_for() {
        for samples in [
            sine(16_000, 1_000.0, -20.0, 16_000),
            sweep(16_000, 100.0, 7_000.0, -20.0, 16_000),
            noise(7, -20.0, 16_000),
        ] {
            assert!(
                (rms_dbfs(&samples) + 20.0).abs() < 0.2,
                "{}",
                rms_dbfs(&samples)
            );
        }
        // A slow sound wanders: its level is that of the long run.
        assert!((rms_dbfs(&brown_noise(7, -20.0, 160_000)) + 20.0).abs() < 1.0);
    }

    #[test]
    fn goertzel_hears_a_sine_and_nothing_beside_it() {
        let tone = sine(8_000, 440.0, -20.0, 8_000);
        assert!((db(goertzel(&tone, 8_000, 440.0)) + 20.0).abs() < 0.01);
        assert!(db(goertzel(&tone, 8_000, 600.0)) < -90.0);
        assert_eq!(goertzel(&[], 8_000, 440.0), 0.0);
    }

    #[test]
    fn the_same_seed_gives_the_same_noise() {
        assert_eq!(noise(3, -30.0, 500), noise(3, -30.0, 500));
        assert_ne!(noise(3, -30.0, 500), noise(4, -30.0, 500));
        let mut random = Random::new(1);
        assert!((0..1_000).all(|_| random.below(10) < 10));
        assert_eq!(random.below(0), 0);
    }
}
