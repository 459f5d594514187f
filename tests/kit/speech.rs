//! Callers with the voices of programs.

use std::path::Path;

use control::vendors::voice::render;
use control::voices::Engine;
use media::audio::resample::Resampler;

/// What a voice says at 16 kHz, with the faint noise that every line has, and for a telephone without what
/// 8 kHz cannot carry.
pub fn spoken(voice: Engine, text: &str, folder: &Path, narrow: bool) -> Vec<i16> {
    let (rate, pcm) = render(voice, text, &folder.join("caller.wav")).unwrap();
    let mut sound = resampled(&pcm, rate, 16_000);
    for (at, sample) in sound.iter_mut().enumerate() {
        *sample = sample.saturating_add((at * 7919 % 9) as i16 - 4);
    }
    if narrow {
        sound = resampled(&resampled(&sound, 16_000, 8000), 8000, 16_000);
    }
    sound
}

fn resampled(pcm: &[i16], from: u32, to: u32) -> Vec<i16> {
    let mut out = Vec::new();
    let mut resampler = Resampler::new(from, to).unwrap();
    resampler.process(pcm, &mut out);
    resampler.finish(&mut out);
    out
}
