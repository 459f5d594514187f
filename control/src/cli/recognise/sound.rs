//! Sound for the measurement: rates, telephones, and a little noise.

use std::f64::consts::{PI, TAU};
use std::path::Path;
use std::time::Duration;

use media::audio::g711;
use media::audio::resample::Resampler;
use media::audio::tones::Random;
use media::frame::FRAME;
use media::leg::LegEvent;
use media::leg::rtp::{RtpLeg, RtpPlan};
use media::rtp::sdp::{Codec, Flow};
use media::time::{RATE, Time};

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

/// A telephone line over a network that loses packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct LossyPath {
    pub(super) codec: Codec,
    /// Per cent of the packets, and how many go in a row.
    pub(super) loss: u32,
    pub(super) burst: u32,
    pub(super) seed: u64,
}

/// What came over a line.
pub(super) struct Transmission {
    pub(super) pcm: Vec<i16>,
    /// How many packets were sent, and how many of them were lost.
    pub(super) packets: usize,
    pub(super) lost: usize,
}

/// The sound as a call's leg hands it on after such a line, losses concealed. The same seed loses the same
/// packets.
pub(super) fn over(pcm: &[i16], line: LossyPath) -> Result<Transmission, String> {
    let plan = RtpPlan {
        codec: line.codec,
        payload_type: 0,
        events: Some(101),
        events_clock: line.codec.clock(),
        comfort_noise: None,
        heard: None,
        packet_ms: 20,
        most_bits: None,
        flow: Flow::SendRecv,
        ssrc: 1,
        sequence: 1,
        timestamp: 1,
    };
    let leg = || RtpLeg::new(plan).map_err(|error| format!("{error:?}"));
    let (mut near, mut far) = (leg()?, leg()?);
    let start = Time::from_millis(1_000);
    near.start(start);
    far.start(start);
    // The loss begins anew with each piece; a generator gives each piece its own.
    let mut random = Random::new(line.seed.wrapping_mul(1_000_003) ^ pcm.len() as u64);
    let (mut left, mut packets, mut lost) = (0, 0, 0);
    let mut heard = Vec::new();
    let mut hear = |event: LegEvent<'_>| match event {
        LegEvent::Audio(samples) => heard.extend_from_slice(samples),
        LegEvent::Lost { samples } => heard.resize(heard.len() + samples as usize, 0),
        _ => {}
    };
    for (count, piece) in (0..).zip(pcm.chunks(FRAME)) {
        let now = start + Duration::from_millis(20 * count);
        let mut frame = [0; FRAME];
        frame[..piece.len()].copy_from_slice(piece);
        far.timeout(now, &mut hear);
        near.audio(now, &frame, false, &mut |packet| {
            if left == 0 && random.below(100 * u64::from(line.burst)) < u64::from(line.loss) {
                left = line.burst;
            }
            packets += 1;
            if left > 0 {
                left -= 1;
                lost += 1;
            } else {
                far.packet(now, &packet, &mut hear);
            }
        });
    }
    // What is missing at the end is concealed like the rest.
    let after = start + Duration::from_millis(20 * (pcm.len() / FRAME) as u64 + 1_000);
    far.timeout(after, &mut hear);
    Ok(Transmission {
        pcm: heard,
        packets,
        lost,
    })
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
