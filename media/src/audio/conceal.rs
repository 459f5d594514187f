//! Sound in the place of lost packets, for codecs that make none up themselves (G.711, G.722): the last
//! two or three periods of the voice again, softer and softer, as ITU-T G.711 Appendix I does it.
//!
//! Other than there nothing is held back for it: what came was handed on already, so the first made-up
//! sample is bent to the last one that was heard, and the packet after the loss is faded into.

/// Lengths in samples at 8 kHz; at 16 kHz all are twice as long.
///
/// Periods that are looked for: voices of 200 down to 66 Hz, and of higher ones a multiple.
const SHORTEST: usize = 40;
const LONGEST: usize = 120;
/// How much of the end is compared with what was before it: 20 ms.
const COMPARED: usize = 160;
/// What is repeated is at least 10 ms long: a single short period sounds like a buzzer.
const REPEATED: usize = 80;
/// What must be remembered: twice the longest piece that is repeated, whose beginning grows out of what was
/// before it.
const REMEMBERED: usize = 2 * 160;
/// As loud as before for 10 ms, then softer, and still after 60 ms: a guess does not hold longer.
const FULL: usize = 80;
const STILL: usize = 480;
/// Within 2.5 ms the step to the first made-up sample is gone.
const BENT: usize = 20;
/// The fade into what comes after a loss: a quarter of a period, 4 ms more for each 10 ms lost, and 10 ms
/// at most.
const LONGEST_FADE: usize = 80;

/// Of the ends' likeness, 0 to 1 squared: from here on it is a voice with a period.
const VOICED: f64 = 0.25;

/// Listens to one stream and fills its holes.
#[derive(Clone, Debug)]
pub struct Concealer {
    /// Samples in an 8,000th of a second.
    unit: usize,
    /// The latest sound, made up or not; the oldest of it at `oldest`.
    history: Vec<i16>,
    oldest: usize,
    /// What is repeated, and its period.
    cycle: Vec<i16>,
    period: usize,
    /// From the first made-up sample to the last that was heard.
    step: f32,
    /// Samples made up in a row.
    made: usize,
}

impl Concealer {
    /// For sound of this rate, a multiple of 8,000 Hz.
    pub fn new(rate: u32) -> Self {
        let unit = (rate as usize / 8_000).max(1);
        Self {
            unit,
            history: vec![0; REMEMBERED * unit],
            oldest: 0,
            cycle: Vec::with_capacity(2 * REPEATED * unit),
            period: LONGEST * unit,
            step: 0.0,
            made: 0,
        }
    }

    /// Sound that came. Its beginning is changed if it comes after a loss.
    pub fn heard(&mut self, samples: &mut [i16]) {
        if self.made > 0 {
            let fade = (self.period / 4 + self.made * 2 / 5)
                .min(LONGEST_FADE * self.unit)
                .min(samples.len());
            for (at, sample) in samples[..fade].iter_mut().enumerate() {
                let weight = (at + 1) as f32 / (fade + 1) as f32;
                let made = f32::from(self.next());
                *sample = (made + (f32::from(*sample) - made) * weight) as i16;
            }
            self.made = 0;
        }
        self.remember(samples);
    }

    /// Sound for a hole of this length, which follows on what was heard last.
    pub fn conceal(&mut self, out: &mut [i16]) {
        if self.made == 0 {
            self.choose();
        }
        for sample in &mut *out {
            *sample = self.next();
        }
        self.remember(out);
    }

    /// The stream goes on after a pause of silence.
    pub fn paused(&mut self) {
        self.history.fill(0);
        self.made = 0;
    }

    /// The next made-up sample.
    fn next(&mut self) -> i16 {
        let (at, unit) = (self.made, self.unit);
        self.made += 1;
        if at >= STILL * unit {
            return 0;
        }
        let mut sample = f32::from(self.cycle[at % self.cycle.len()]);
        if at < BENT * unit {
            sample += self.step * (1.0 - at as f32 / (BENT * unit) as f32);
        }
        let over = at.saturating_sub(FULL * unit) as f32;
        sample *= 1.0 - over / ((STILL - FULL) * unit) as f32;
        // A cast saturates.
        sample as i16
    }

    /// Decides what is repeated.
    fn choose(&mut self) {
        let unit = self.unit;
        self.history.rotate_left(self.oldest);
        self.oldest = 0;
        self.period = self.find_period().unwrap_or(LONGEST * unit);
        let length = self.period * (REPEATED * unit).div_ceil(self.period);
        let end = self.history.len();
        let (from, before) = (end - length, end - 2 * length);
        self.cycle.clear();
        self.cycle.extend_from_slice(&self.history[from..]);
        // The end of the piece goes over into what was before its beginning.
        let joint = self.period / 4;
        for at in length - joint..length {
            let weight = (at + joint - length + 1) as f32 / (joint + 1) as f32;
            let own = f32::from(self.history[from + at]);
            let other = f32::from(self.history[before + at]);
            self.cycle[at] = (own + (other - own) * weight) as i16;
        }
        self.step = f32::from(self.history[end - 1]) - f32::from(self.history[from - 1]);
    }

    /// The lag at which the end is most like what was before it; `None`: it is like nothing.
    fn find_period(&self) -> Option<usize> {
        let unit = self.unit;
        let coarse = (SHORTEST * unit..=LONGEST * unit).step_by(2 * unit);
        let (near, _) = self.best(coarse, 2 * unit)?;
        let fine = (near.saturating_sub(2 * unit - 1)).max(SHORTEST * unit)
            ..=(near + 2 * unit - 1).min(LONGEST * unit);
        let (lag, likeness) = self.best(fine, 1)?;
        (likeness >= VOICED).then_some(lag)
    }

    /// Of these lags the one with the highest correlation, and its square, taking each `stride`th sample.
    fn best(&self, lags: impl Iterator<Item = usize>, stride: usize) -> Option<(usize, f64)> {
        let compared = COMPARED * self.unit;
        let end = &self.history[self.history.len() - compared..];
        let energy: i64 = end.iter().step_by(stride).map(|s| square(*s)).sum();
        let mut best: Option<(usize, f64)> = None;
        for lag in lags {
            let from = self.history.len() - compared - lag;
            let before = &self.history[from..from + compared];
            let (mut product, mut power) = (0_i64, 0_i64);
            for (one, other) in end.iter().zip(before).step_by(stride) {
                product += i64::from(i32::from(*one) * i32::from(*other));
                power += square(*other);
            }
            if product <= 0 || power == 0 {
                continue;
            }
            let product = product as f64;
            let likeness = product * product / (power as f64 * energy as f64);
            if best.is_none_or(|(_, most)| likeness > most) {
                best = Some((lag, likeness));
            }
        }
        best
    }

    fn remember(&mut self, samples: &[i16]) {
        let room = self.history.len();
        let samples = &samples[samples.len().saturating_sub(room)..];
        let (now, rest) = samples.split_at(samples.len().min(room - self.oldest));
        self.history[self.oldest..][..now.len()].copy_from_slice(now);
        self.history[..rest.len()].copy_from_slice(rest);
        self.oldest = (self.oldest + samples.len()) % room;
    }
}

fn square(sample: i16) -> i64 {
    i64::from(i32::from(sample) * i32::from(sample))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::audio::level::rms_dbfs;
    use crate::audio::tones::{db, mix, noise, sine};

    /// A voice of this pitch, 1 s.
    fn voice(rate: u32, hz: f64) -> Vec<i16> {
        let samples = rate as usize;
        let mut voice = sine(rate, hz, -16.0, samples);
        for harmonic in 2..8 {
            let level = -16.0 - 2.0 * f64::from(harmonic);
            mix(
                &mut voice,
                &sine(rate, hz * f64::from(harmonic), level, samples),
            );
        }
        voice
    }

    /// The stream with the packets of 20 ms replaced that `lost` names.
    fn heard(rate: u32, sound: &[i16], lost: impl Fn(usize) -> bool) -> Vec<i16> {
        let mut concealer = Concealer::new(rate);
        let mut out = sound.to_vec();
        for (at, packet) in out.chunks_mut(rate as usize / 50).enumerate() {
            if lost(at) {
                concealer.conceal(packet);
            } else {
                concealer.heard(packet);
            }
        }
        out
    }

    /// Of the lost packets alone, signal against the error in their place.
    fn ratio(rate: u32, sound: &[i16], heard: &[i16], lost: impl Fn(usize) -> bool) -> f64 {
        let packet = rate as usize / 50;
        let (mut signal, mut error) = (0.0, 0.0);
        for (at, (said, made)) in sound.iter().zip(heard).enumerate() {
            if lost(at / packet) {
                signal += f64::from(*said).powi(2);
                error += (f64::from(*said) - f64::from(*made)).powi(2);
            }
        }
        db(signal / error)
    }

    #[test]
    fn a_lost_packet_of_a_steady_voice_is_hardly_missed() {
        for rate in [8_000, 16_000] {
            for hz in [80.0, 123.0, 190.0, 260.0] {
                let sound = voice(rate, hz);
                let lost = |at: usize| at % 10 == 7;
                let made = heard(rate, &sound, lost);
                let ratio = ratio(rate, &sound, &made, lost);
                // Silence in its place would be 0 dB.
                assert!(ratio > 8.0, "{rate} {hz}: {ratio} dB");
            }
        }
    }

    #[test]
    fn what_came_is_changed_only_right_after_a_loss() {
        let sound = voice(8_000, 150.0);
        let made = heard(8_000, &sound, |at| at == 20);
        assert_eq!(made[..20 * 160], sound[..20 * 160]);
        assert_eq!(made[21 * 160 + 80..], sound[21 * 160 + 80..]);
    }

    /// Neither the beginning of a hole nor its end clicks: no step is larger than those of the voice.
    #[test]
    fn the_joints_are_smooth() {
        for rate in [8_000, 16_000] {
            let sound = voice(rate, 137.0);
            let made = heard(rate, &sound, |at| at % 7 == 3);
            let steps = |s: &[i16]| s.windows(2).map(|w| w[0].abs_diff(w[1])).max();
            assert!(steps(&made) <= steps(&sound).map(|step| step + step / 3));
        }
    }

    #[test]
    fn a_long_loss_fades_to_silence_and_noise_stays_noise() {
        let sound = noise(5, -20.0, 8_000);
        let made = heard(8_000, &sound, |at| (20..30).contains(&at));
        let level = |packet: usize| rms_dbfs(&made[160 * packet..160 * (packet + 1)]);
        assert!((level(20) + 20.0).abs() < 3.0, "{}", level(20));
        assert!(level(21) < level(20) && level(22) < level(21) - 3.0);
        assert!(made[160 * 23..160 * 30].iter().all(|s| *s == 0));
        assert!((level(31) + 20.0).abs() < 2.0, "{}", level(31));
    }

    #[test]
    fn after_a_pause_nothing_old_is_repeated() {
        let mut concealer = Concealer::new(8_000);
        concealer.heard(&mut voice(8_000, 150.0));
        concealer.paused();
        let mut out = [1; 160];
        concealer.conceal(&mut out);
        assert_eq!(out, [0; 160]);
    }

    proptest! {
        #[test]
        fn any_sound_and_any_losses_are_filled(
            rate in prop_oneof![Just(8_000), Just(16_000)],
            packets in proptest::collection::vec((any::<bool>(), proptest::collection::vec(any::<i16>(), 0..500)), 0..30),
        ) {
            let mut concealer = Concealer::new(rate);
            for (lost, mut samples) in packets {
                if lost {
                    concealer.conceal(&mut samples);
                } else {
                    concealer.heard(&mut samples);
                }
            }
        }
    }
}
