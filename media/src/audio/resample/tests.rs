//! Resampling: band, delay, length, and the same sound however the input is cut.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test says what is wrong by failing"
)]

use proptest::prelude::*;

use super::super::level::rms_dbfs;
use super::super::tones::{db, goertzel, noise, sine};
use super::*;

fn convert(from: u32, to: u32, input: &[i16]) -> Vec<i16> {
    let mut out = Vec::new();
    Resampler::new(from, to).unwrap().process(input, &mut out);
    out
}

/// Half a second of the middle of a converted tone at -1 dB below full scale: no start, no end.
fn steady(from: u32, to: u32, hz: f64) -> Vec<i16> {
    let out = convert(from, to, &sine(from, hz, -4.01, from as usize));
    out[to as usize / 4..to as usize * 3 / 4].to_vec()
}

const PAIRS: [(u32, u32); 16] = [
    (24_000, 16_000),
    (22_050, 16_000),
    (48_000, 16_000),
    (44_100, 16_000),
    (32_000, 16_000),
    (12_000, 16_000),
    (11_025, 16_000),
    (16_000, 48_000),
    (16_000, 24_000),
    (16_000, 44_100),
    (16_000, 22_050),
    (24_000, 8_000),
    (48_000, 8_000),
    (8_000, 48_000),
    (22_050, 8_000),
    (44_100, 48_000),
];

#[test]
fn telephone_band_is_flat_both_ways() {
    for (from, to) in [(8_000, 16_000), (16_000, 8_000)] {
        for hz in (100..=3_400).step_by(50) {
            let level = db(goertzel(
                &steady(from, to, f64::from(hz)),
                to,
                f64::from(hz),
            ));
            assert!(
                (level + 4.01).abs() < 0.01,
                "{hz} Hz from {from} to {to}: {level} dB"
            );
        }
    }
}

/// A tone below 3.4 kHz has its image mirrored at 4 kHz: from 4.6 kHz on.
#[test]
fn images_of_the_telephone_band_are_90_db_down() {
    for hz in (100..=3_400).step_by(50) {
        let image = db(goertzel(
            &steady(8_000, 16_000, f64::from(hz)),
            16_000,
            f64::from(8_000 - hz),
        ));
        assert!(image < -90.0 - 4.01, "{hz} Hz: {image} dB");
    }
}

/// What lies from 4.6 kHz on at 16 kHz would fall into the band below 3.4 kHz at 8 kHz.
#[test]
fn aliases_into_the_telephone_band_are_90_db_down() {
    for hz in (4_600..=7_900).step_by(50) {
        let alias = db(goertzel(
            &steady(16_000, 8_000, f64::from(hz)),
            8_000,
            f64::from(8_000 - hz),
        ));
        assert!(alias < -90.0 - 4.01, "{hz} Hz: {alias} dB");
    }
}

/// The rates of legs and of most voices, each way.
const USUAL: [(u32, u32); 6] = [
    (8_000, 16_000),
    (16_000, 8_000),
    (24_000, 16_000),
    (16_000, 24_000),
    (48_000, 16_000),
    (16_000, 48_000),
];

/// Every conversion from or to the engine's rate. A call makes no other; those to 8 kHz in blocks fall from below
/// 3.4 kHz on.
fn engine_pairs() -> impl Iterator<Item = (u32, u32)> {
    let others = PAIRS.into_iter().filter(|pair| !USUAL.contains(pair));
    let at_the_engine = |pair: &(u32, u32)| pair.0 == 16_000 || pair.1 == 16_000;
    USUAL.into_iter().chain(others.filter(at_the_engine))
}

#[test]
fn the_usual_rates_cost_three_and_a_half_milliseconds_at_most() {
    for (from, to) in USUAL {
        let delay = Resampler::new(from, to).unwrap().delay();
        assert!(
            delay <= Duration::from_micros(3_500),
            "{from} to {to}: {delay:?}"
        );
    }
}

/// A tone of `from` has images around each multiple of that rate; where they come to lie at `to`.
fn images(hz: u32, from: u32, to: u32) -> impl Iterator<Item = u32> {
    let around = (1..=6).flat_map(move |n| [n * from - hz, n * from + hz]);
    let folded = around.map(move |image| (image % to).min(to - image % to));
    folded.filter(move |image| *image != hz)
}

#[test]
fn a_tone_of_the_telephone_band_has_no_images_at_the_usual_rates() {
    for (from, to) in USUAL {
        for hz in (100..=3_400).step_by(110) {
            let out = steady(from, to, f64::from(hz));
            for image in images(hz, from, to) {
                let image_level = db(goertzel(&out, to, f64::from(image))) + 4.01;
                assert!(
                    image_level <= -90.0,
                    "{hz} Hz from {from} to {to}: {image_level} dB at {image} Hz"
                );
            }
        }
    }
}

#[test]
fn a_tone_of_the_telephone_band_keeps_its_level_at_the_engines_rate() {
    for (from, to) in engine_pairs() {
        for hz in (100..=3_400).step_by(110) {
            let out = steady(from, to, f64::from(hz));
            let level = db(goertzel(&out, to, f64::from(hz)));
            assert!(
                (level + 4.01).abs() <= 0.1,
                "{hz} Hz from {from} to {to}: {level} dB"
            );
        }
    }
}

/// What lies above the band of the slower rate, and would fall below 3.4 kHz there.
#[test]
fn aliases_at_the_engines_rate_are_90_db_down() {
    let mut tried = 0;
    for (from, to) in engine_pairs().filter(|(from, to)| from > to) {
        for hz in (to - 3_400..from / 2).step_by(110) {
            let folded = (hz % to).min(to - hz % to);
            if (100..=3_400).contains(&folded) {
                tried += 1;
                let out = steady(from, to, f64::from(hz));
                let alias = db(goertzel(&out, to, f64::from(folded))) + 4.01;
                assert!(alias <= -90.0, "{hz} Hz from {from} to {to}: {alias} dB");
            }
        }
    }
    assert!(tried > 100, "{tried}");
}

#[test]
fn an_impulse_comes_out_where_the_delay_says() {
    for (from, to) in PAIRS.into_iter().chain([(8_000, 16_000), (16_000, 8_000)]) {
        let delay = Resampler::new(from, to).unwrap().delay();
        // A soft bump rather than one sample, so that its place can be told between samples.
        let at = from as usize / 2;
        let bump: Vec<i16> = (0..from as usize)
            .map(|i| {
                let seconds = (i as f64 - at as f64) / f64::from(from);
                (20_000.0 * (-(seconds / 0.0004).powi(2)).exp()) as i16
            })
            .collect();
        let out = convert(from, to, &bump);
        let (weight, moment) = out
            .iter()
            .enumerate()
            .map(|(i, s)| (f64::from(*s), f64::from(*s) * i as f64))
            .fold((0.0, 0.0), |sum, next| (sum.0 + next.0, sum.1 + next.1));
        let found = moment / weight / f64::from(to) - at as f64 / f64::from(from);
        assert!(
            (found - delay.as_secs_f64()).abs() < 0.000_1,
            "{from} to {to}: {found} s, said {delay:?}"
        );
    }
}

#[test]
fn a_tone_keeps_its_frequency_and_level_at_every_pair_of_rates() {
    for (from, to) in PAIRS {
        for hz in [300.0, 1_000.0, 3_000.0] {
            let out = steady(from, to, hz);
            let tone = db(goertzel(&out, to, hz));
            assert!(
                (tone + 4.01).abs() < 0.1,
                "{hz} Hz from {from} to {to}: {tone} dB"
            );
            assert!(
                (rms_dbfs(&out) + 4.01).abs() < 0.1,
                "{hz} Hz from {from} to {to}: more than the tone"
            );
        }
    }
}

#[test]
fn a_second_stays_a_second() {
    for (from, to) in PAIRS
        .into_iter()
        .chain([(8_000, 16_000), (16_000, 8_000), (16_000, 16_000)])
    {
        let mut resampler = Resampler::new(from, to).unwrap();
        let (mut out, second) = (Vec::new(), noise(1, -20.0, from as usize));
        for _ in 0..10 {
            for frame in second.chunks(from as usize / 50) {
                resampler.process(frame, &mut out);
            }
        }
        let missing = (10 * to as usize).abs_diff(out.len());
        assert!(
            missing <= 10,
            "{from} to {to}: {missing} samples in ten seconds"
        );
    }
}

#[test]
fn the_end_of_a_stream_is_not_lost_and_the_next_one_starts_clean() {
    for (from, to) in PAIRS.into_iter().chain([(8_000, 16_000), (16_000, 8_000)]) {
        let mut resampler = Resampler::new(from, to).unwrap();
        let voice = sine(from, 500.0, -10.0, from as usize / 10 + 7);
        let (mut first, mut second) = (Vec::new(), Vec::new());
        resampler.process(&voice, &mut first);
        resampler.finish(&mut first);
        resampler.process(&voice, &mut second);
        resampler.finish(&mut second);
        assert_eq!(first, second);
        let length = (voice.len() as f64 + resampler.delay().as_secs_f64() * f64::from(from))
            * f64::from(to)
            / f64::from(from);
        assert!(
            first.len() as f64 >= length - 1.0,
            "{from} to {to}: {} of {length}",
            first.len()
        );
    }
}

#[test]
fn a_constant_stays_itself() {
    for (from, to) in [(8_000, 16_000), (16_000, 8_000)] {
        let out = convert(from, to, &[1_234; 4_000]);
        assert!(out[200..].iter().all(|s| *s == 1_234));
    }
}

#[test]
fn full_scale_saturates_and_does_not_wrap() {
    let square: Vec<i16> = (0..8_000)
        .map(|i| if i % 20 < 10 { i16::MIN } else { i16::MAX })
        .collect();
    for (from, to) in [(8_000, 16_000), (16_000, 8_000), (24_000, 16_000)] {
        let out = convert(from, to, &square);
        // The overshoot beside each edge stays on the edge's side: a wrapped sample would jump.
        let jumps = out
            .windows(2)
            .filter(|w| (i32::from(w[0]) - i32::from(w[1])).abs() > 60_000)
            .count();
        assert!(
            jumps * 5 <= out.len(),
            "{from} to {to}: {jumps} of {}",
            out.len()
        );
        assert!(out.contains(&i16::MAX) && out.contains(&i16::MIN));
    }
}

#[test]
fn rates_out_of_range_or_without_a_common_block_are_refused() {
    for (from, to) in [
        (7_999, 16_000),
        (16_000, 0),
        (96_000, 48_000),
        (8_001, 16_000),
    ] {
        let Err(refused) = Resampler::new(from, to) else {
            panic!("{from} to {to} was accepted");
        };
        assert_eq!(
            refused,
            UnsupportedRate {
                from_hz: from,
                to_hz: to
            }
        );
    }
}

#[test]
fn equal_rates_pass_through() {
    let input = noise(5, -20.0, 333);
    assert_eq!(convert(24_000, 24_000, &input), input);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// However a stream is cut, the same samples come out.
    #[test]
    fn cutting_the_stream_changes_nothing(
        pair in prop::sample::select(vec![(8_000_u32, 16_000_u32), (16_000, 8_000), (24_000, 16_000), (22_050, 16_000), (16_000, 48_000)]),
        cuts in prop::collection::vec(0_usize..700, 1..30),
        seed: u64,
    ) {
        let input = noise(seed, -12.0, 6_000);
        let whole = convert(pair.0, pair.1, &input);
        let (mut resampler, mut out, mut rest) = (Resampler::new(pair.0, pair.1).unwrap(), Vec::new(), &input[..]);
        for cut in cuts {
            let (now, later) = rest.split_at(cut.min(rest.len()));
            resampler.process(now, &mut out);
            rest = later;
        }
        resampler.process(rest, &mut out);
        prop_assert_eq!(out, whole);
    }
}
