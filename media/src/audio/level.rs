//! Loudness. 0 dBFS is the power of a full-scale square wave, so a full-scale sine reads -3.01 dBFS.

/// What [`rms_dbfs`] says of digital silence, and of nothing at all: below any sound that 16 bits
/// can hold (one sample of ±1 in a second at 16 kHz is -132 dBFS).
pub const SILENCE_DBFS: f32 = -140.0;

/// Root mean square of `samples` in dBFS, [`SILENCE_DBFS`] to 0.
pub fn rms_dbfs(samples: &[i16]) -> f32 {
    let energy: u64 = samples.iter().map(|&s| square(s)).sum();
    if energy == 0 {
        return SILENCE_DBFS;
    }
    let mean = energy as f64 / samples.len() as f64;
    let full_scale = f64::from(i16::MIN) * f64::from(i16::MIN);
    ((10.0 * (mean / full_scale).log10()) as f32).max(SILENCE_DBFS)
}

/// The largest magnitude in `samples`, 0 to 32,767 (-32,768 counts as 32,767).
pub fn peak(samples: &[i16]) -> i16 {
    samples
        .iter()
        .map(|s| s.saturating_abs())
        .max()
        .unwrap_or(0)
}

fn square(sample: i16) -> u64 {
    let wide = i32::from(sample);
    u64::from((wide * wide).unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_scale_square_wave_is_0_dbfs_and_a_tenth_of_it_20_less() {
        let square: Vec<i16> = (0..320)
            .map(|i| if i % 8 < 4 { -32_768 } else { 32_767 })
            .collect();
        assert!(rms_dbfs(&square).abs() < 0.001);
        let tenth: Vec<i16> = square.iter().map(|s| s / 10).collect();
        assert!((rms_dbfs(&tenth) + 20.0).abs() < 0.01);
    }

    #[test]
    fn silence_and_nothing_have_a_finite_level() {
        assert_eq!(rms_dbfs(&[0; 320]), SILENCE_DBFS);
        assert_eq!(rms_dbfs(&[]), SILENCE_DBFS);
        assert_eq!(peak(&[]), 0);
    }

    #[test]
    fn the_peak_of_the_most_negative_sample_does_not_overflow() {
        assert_eq!(peak(&[3, i16::MIN, 7]), i16::MAX);
        assert_eq!(peak(&[3, -5, 4]), 5);
    }
}
