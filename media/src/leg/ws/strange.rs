//! What the bytes of a message would be in another reading than the session's. Pure, and without a heap.

use crate::audio::g711;

/// Bytes of the longest window.
const MOST: usize = 640;

/// What is softer says nothing: -41 dBFS.
const QUIET: u64 = 300 * 300;

/// A reading of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    Swapped,
    Ulaw,
    Alaw,
    Float,
    Doubled,
    Pcm,
}

impl Reading {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Swapped => "samples of 16 bits with the high byte first",
            Self::Ulaw => "G.711 μ-law",
            Self::Alaw => "G.711 A-law",
            Self::Float => "floating-point samples of 32 bits",
            Self::Doubled => "two channels, one beside the other",
            Self::Pcm => "samples of 16 bits",
        }
    }
}

/// What a window is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    Quiet,
    /// Smooth as the session takes it.
    Natural,
    /// Neither.
    Unclear,
    Other(Reading),
}

/// The windows of one client.
pub(super) struct Counts {
    /// By [`Reading`].
    others: [u16; 6],
    natural: u16,
    judged: u16,
}

impl Counts {
    pub(super) const fn new() -> Self {
        Self {
            others: [0; 6],
            natural: 0,
            judged: 0,
        }
    }

    pub(super) fn add(&mut self, judgement: Judgement) {
        match judgement {
            Judgement::Quiet => return,
            Judgement::Natural => self.natural += 1,
            Judgement::Unclear => {}
            Judgement::Other(reading) => self.others[reading as usize] += 1,
        }
        self.judged += 1;
    }

    /// Whether enough was heard: ten seconds of sound.
    pub(super) const fn is_over(&self) -> bool {
        self.judged >= 500
    }

    /// The reading that half a second of sound speaks for, and little against.
    pub(super) fn found(&self) -> Option<Reading> {
        const ENOUGH: u16 = 25;
        let of = |reading: Reading| self.others[reading as usize];
        let (ulaw, alaw) = (of(Reading::Ulaw), of(Reading::Alaw));
        let companded = if alaw > ulaw {
            Reading::Alaw
        } else {
            Reading::Ulaw
        };
        [
            (Reading::Swapped, of(Reading::Swapped)),
            // One is smooth in the other's reading, too.
            (companded, ulaw + alaw),
            (Reading::Float, of(Reading::Float)),
            (Reading::Doubled, of(Reading::Doubled)),
            (Reading::Pcm, of(Reading::Pcm)),
        ]
        .into_iter()
        .find(|(_, windows)| *windows >= ENOUGH && *windows >= 2 * self.natural)
        .map(|(reading, _)| reading)
    }
}

/// Judges a window. `pcm`: the session takes samples of 16 bits; else μ-law.
pub(super) fn judge(window: &[u8], pcm: bool) -> Judgement {
    let window = &window[..window.len().min(MOST)];
    if pcm {
        judge_pcm(window)
    } else {
        judge_ulaw(window)
    }
}

/// The power of some samples, and of the steps between them.
#[derive(Clone, Copy, Debug, Default)]
struct Sound {
    power: u64,
    steps: u64,
}

impl Sound {
    fn of(samples: impl ExactSizeIterator<Item = i16>) -> Self {
        let count = samples.len().max(1) as u64;
        let (mut power, mut steps) = (0_u64, 0_u64);
        let mut before = None;
        for sample in samples {
            let step = i64::from(sample) - i64::from(before.unwrap_or(sample));
            power += u64::from(sample.unsigned_abs()).pow(2);
            steps += step.unsigned_abs().pow(2);
            before = Some(sample);
        }
        Self {
            power: power / count,
            steps: steps / count,
        }
    }

    /// Whether its steps are less than so many percent of it. Those of noise are 200.
    const fn is_smooth(self, percent: u64) -> bool {
        self.steps * 100 < self.power * percent
    }

    /// Whether it is a voice, where the other, of the same bytes, is none: softer, smooth, and smoother by half.
    const fn makes_sense_of(self, other: Self) -> bool {
        const SOFTEST: u64 = 30 * 30;
        self.power > SOFTEST
            && self.power < other.power
            && self.is_smooth(50)
            && 2 * self.steps as u128 * (other.power as u128)
                < other.steps as u128 * self.power as u128
    }
}

fn judge_pcm(window: &[u8]) -> Judgement {
    let (pairs, _) = window.as_chunks::<2>();
    let own = Sound::of(pairs.iter().map(|pair| i16::from_le_bytes(*pair)));
    if own.power < QUIET {
        return Judgement::Quiet;
    }
    if is_float(window) {
        return Judgement::Other(Reading::Float);
    }
    if is_doubled(pairs) {
        return Judgement::Other(Reading::Doubled);
    }
    if !own.is_smooth(100) {
        let swapped = Sound::of(pairs.iter().map(|pair| i16::from_be_bytes(*pair)));
        if swapped.power * 4 < own.power && swapped.is_smooth(60) {
            return Judgement::Other(Reading::Swapped);
        }
    }
    let mut expanded = [0; MOST];
    let expanded = &mut expanded[..window.len()];
    g711::ulaw_decode(window, expanded);
    if Sound::of(expanded.iter().copied()).makes_sense_of(own) {
        return Judgement::Other(Reading::Ulaw);
    }
    g711::alaw_decode(window, expanded);
    if Sound::of(expanded.iter().copied()).makes_sense_of(own) {
        return Judgement::Other(Reading::Alaw);
    }
    if own.is_smooth(50) {
        Judgement::Natural
    } else {
        Judgement::Unclear
    }
}

/// Samples of 16 bits have a high byte that moves little in every second place, and any byte in the others. Bytes of
/// μ-law are alike in both.
fn judge_ulaw(window: &[u8]) -> Judgement {
    let mut expanded = [0; MOST];
    let expanded = &mut expanded[..window.len()];
    g711::ulaw_decode(window, expanded);
    let own = Sound::of(expanded.iter().copied());
    if own.power < QUIET {
        return Judgement::Quiet;
    }
    if own.is_smooth(50) {
        return Judgement::Natural;
    }
    let (pairs, _) = window.as_chunks::<2>();
    let pcm = Sound::of(pairs.iter().map(|pair| i16::from_le_bytes(*pair)));
    if pcm.power > QUIET && pcm.makes_sense_of(own) {
        return Judgement::Other(Reading::Pcm);
    }
    Judgement::Unclear
}

/// Whether these are floating-point numbers as sound has them: within 1, not tiny, and not two equal halves.
fn is_float(window: &[u8]) -> bool {
    let (fours, _) = window.as_chunks::<4>();
    let (mut fits, mut sounds, mut equal) = (0, 0, 0);
    let mut power = 0.0_f64;
    for four in fours {
        let value = f32::from_le_bytes(*four);
        let size = value.abs();
        let is_sound = (1e-7..=1.0).contains(&size);
        fits += usize::from(is_sound || size == 0.0);
        sounds += usize::from(is_sound);
        equal += usize::from(four[..2] == four[2..]);
        if is_sound {
            power += f64::from(value) * f64::from(value);
        }
    }
    let count = fours.len();
    fits * 20 >= count * 19
        && sounds * 2 > count
        && equal * 2 < count
        && power > 1e-8 * count as f64
}

/// Whether every sample comes twice.
fn is_doubled(pairs: &[[u8; 2]]) -> bool {
    let (twos, _) = pairs.as_chunks::<2>();
    let equal = twos.iter().filter(|two| two[0] == two[1]).count();
    let across = twos.windows(2).filter(|two| two[0][1] == two[1][0]);
    equal * 20 >= twos.len() * 19 && across.count() * 10 < twos.len() * 6
}
