//! Sound for the measurement: rates, telephones, and a little noise.

use std::f64::consts::{PI, TAU};
use std::path::Path;

use media::audio::g711;
use media::audio::resample::Resampler;
use media::time::RATE;

/// A telephone's rate, Hz.
const TELCO: u32 = 8000;

/// Quiet noise before and after an utterance, samples: what a voice detector leaves around speech.
const BEFORE: usize = RATE as usize * 3 / 10;
const AFTER: usize = RATE as usize / 5;

/// The sound as the recogniser would get it: with quiet around it, and through a telephone if so asked.
pub(super) fn through(pcm: &[i16], telco: bool, narrow: bool) -> Result<Vec<i16>, String> {
    if !telco {
        return Ok(pcm.to_vec());
    }
    let cut = if narrow {
        band_passed(pcm)
    } else {
        pcm.to_vec()
    };
    let (low, low_delay) = convert(&cut, RATE, TELCO)?;
    let mut wire = vec![0; low.len()];
    g711::ulaw_encode(&low, &mut wire);
    let mut decoded = vec![0; wire.len()];
    g711::ulaw_decode(&wire, &mut decoded);
    let (mut back, back_delay) = convert(&decoded, TELCO, RATE)?;
    // Both conversions delay; pairs for the transform need the same samples at the same place.
    let delay = low_delay + back_delay;
    back.drain(..delay.min(back.len()));
    Ok(back)
}

/// Any rate to the engine's.
pub(super) fn at_engine_rate(pcm: &[i16], rate: u32) -> Result<Vec<i16>, String> {
    if rate == RATE {
        return Ok(pcm.to_vec());
    }
    convert(pcm, rate, RATE).map(|(pcm, _)| pcm)
}

/// The utterance with quiet noise before, behind and under it, as a quiet line has; always the same.
pub(super) fn with_noise(pcm: &[i16]) -> Vec<i16> {
    let mut seed = 1_u32;
    let around = std::iter::repeat_n(0, BEFORE)
        .chain(pcm.iter().copied())
        .chain(std::iter::repeat_n(0, AFTER));
    around
        .map(|sample: i16| {
            // Numerical Recipes' generator; its upper bits are random enough for a hiss.
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            sample.saturating_add((seed >> 24) as i16 / 32 - 4)
        })
        .collect()
}

/// A mono PCM16 WAV, or with the extension `raw` the same without header at 16 kHz, at the engine's
/// rate.
pub(super) fn read(path: &Path) -> Result<Vec<i16>, String> {
    let fault = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    if path.extension().is_some_and(|extension| extension == "raw") {
        let bytes = std::fs::read(path).map_err(|error| fault(&error))?;
        return Ok(bytes
            .chunks_exact(2)
            .map(|pair| i16::from_le_bytes([pair[0], pair[1]]))
            .collect());
    }
    let reader = hound::WavReader::open(path).map_err(|error| fault(&error))?;
    let rate = reader.spec().sample_rate;
    let samples: Result<Vec<i16>, _> = reader.into_samples().collect();
    at_engine_rate(&samples.map_err(|error| fault(&error))?, rate)
}

fn convert(pcm: &[i16], from: u32, to: u32) -> Result<(Vec<i16>, usize), String> {
    let mut resampler = Resampler::new(from, to).map_err(|error| format!("{error:?}"))?;
    let mut out = Vec::new();
    resampler.process(pcm, &mut out);
    resampler.finish(&mut out);
    let delay = resampler.delay().as_secs_f64() * f64::from(RATE);
    Ok((out, delay.round() as usize))
}

/// 300 to 3400 Hz: a windowed sinc of 511 taps, without delay.
fn band_passed(pcm: &[i16]) -> Vec<i16> {
    const HALF: usize = 255;
    let (low, high) = (300.0 / f64::from(RATE), 3400.0 / f64::from(RATE));
    let taps: Vec<f64> = (0..=2 * HALF)
        .map(|i| {
            let at = i as f64 - HALF as f64;
            let sinc = |cut: f64| {
                if at == 0.0 {
                    2.0 * cut
                } else {
                    (TAU * cut * at).sin() / (PI * at)
                }
            };
            (sinc(high) - sinc(low)) * (0.54 - 0.46 * (TAU * i as f64 / (2 * HALF) as f64).cos())
        })
        .collect();
    let padded: Vec<f64> = std::iter::repeat_n(0.0, HALF)
        .chain(pcm.iter().map(|sample| f64::from(*sample)))
        .chain(std::iter::repeat_n(0.0, HALF))
        .collect();
    padded
        .windows(taps.len())
        .map(|window| {
            window
                .iter()
                .zip(&taps)
                .map(|(sample, tap)| sample * tap)
                .sum::<f64>() as i16
        })
        .collect()
}
