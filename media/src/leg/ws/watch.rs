//! Whether a client's audio is of the kind that the session takes. What is not is heard as noise, too fast or too slow, and
//! nothing else tells the author of a client why. So it is looked at: each message for the mark of a file or of compressed
//! sound, and the first ten seconds of voice for what other readings of the same bytes would be. A reading is believed
//! where it is smooth, as voices are, and the session's own is not. Real speech, music and noise are smooth in the
//! session's own reading, or in none.
//!
//! After those ten seconds a message costs a look at its first bytes.

use super::strange::{Counts, Reading, judge};
use crate::audio::kind::{self, Kind, Look};
use crate::config::AudioFormat;
use crate::time::Time;

/// The code of audio that is not of the session's kind.
pub(crate) const AUDIO_FORMAT: &str = "audio_format";

/// Bytes that are judged at once: 20 ms of the session's format as samples.
const WINDOW: usize = 640;

/// The last part of a message that is long enough to judge.
const LEAST: usize = 320;

/// Messages of compressed sound are dropped until so many in a row are none.
const CLEAN: u8 = 5;

/// A message that is one frame of compressed sound is believed to be one only among the first.
const FIRST: u8 = 8;

/// What is to be done with a message's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Play them, from this byte on.
    Play(usize),
    /// They are no samples.
    Drop,
}

/// One client's audio.
pub(super) struct Watch {
    format: AudioFormat,
    now: Time,
    pace: Pace,
    counts: Counts,
    /// Messages so far, up to [`FIRST`].
    messages: u8,
    /// Compressed sound has come, and so many messages since were none.
    foreign: Option<u8>,
    told: bool,
    /// What the client is to be told.
    words: Option<String>,
}

impl Watch {
    pub(super) const fn new(format: AudioFormat) -> Self {
        Self {
            format,
            now: Time::from_micros(0),
            pace: Pace::new(),
            counts: Counts::new(),
            messages: 0,
            foreign: None,
            told: false,
            words: None,
        }
    }

    /// The time of the messages that follow.
    pub(super) const fn tell_time(&mut self, now: Time) {
        self.now = now;
    }

    /// What the client is to be told, once.
    pub(super) const fn take_words(&mut self) -> Option<String> {
        self.words.take()
    }

    /// Looks at the bytes of one message.
    pub(super) fn look(&mut self, bytes: &[u8]) -> Verdict {
        let first = self.messages < FIRST;
        self.messages = self.messages.saturating_add(1).min(FIRST);
        match known(bytes, first) {
            Some(Kind::Wav) => {
                self.tell(&wav(bytes));
                return Verdict::Play(samples_at(bytes).min(bytes.len()));
            }
            Some(kind) => {
                self.foreign = Some(0);
                self.tell(kind.name());
                return Verdict::Drop;
            }
            None => {}
        }
        if let Some(clean) = self.foreign {
            let is_sound = bytes.len() >= LEAST && bytes.len().is_multiple_of(2);
            let clean = if is_sound && !kind::is_noise(bytes) {
                clean + 1
            } else {
                0
            };
            self.foreign = Some(clean).filter(|clean| *clean < CLEAN);
            return Verdict::Drop;
        }
        if !self.told {
            self.compare(bytes);
        }
        Verdict::Play(0)
    }

    /// Compares the readings of these bytes, and their pace with the session's.
    fn compare(&mut self, bytes: &[u8]) {
        let pcm = self.format == AudioFormat::Pcm16000;
        if !self.counts.is_over() {
            for window in bytes.chunks(WINDOW).filter(|window| window.len() >= LEAST) {
                self.counts.add(judge(window, pcm));
            }
        }
        let samples = if pcm { bytes.len() / 2 } else { bytes.len() };
        let pace = self
            .pace
            .add(self.now, samples as u64, self.format.sample_rate());
        match self.counts.found() {
            // Voices that are sent so twice as fast are two channels; else somebody made 16 kHz of 8 kHz, which can be heard.
            Some(Reading::Doubled) if !self.pace.is_double(self.format.sample_rate()) => {}
            Some(reading) => return self.tell(reading.name()),
            None => {}
        }
        if let Some(hz) = pace {
            let or = if hz == 2 * self.format.sample_rate() {
                ", or two channels"
            } else {
                ""
            };
            self.tell(&format!("sound at {hz} Hz{or}"));
        }
    }

    fn tell(&mut self, what: &str) {
        if self.told {
            return;
        }
        self.told = true;
        let takes = match self.format {
            AudioFormat::Ulaw8000 => "ulaw_8000: G.711 μ-law, one byte a sample, mono, 8 kHz",
            AudioFormat::Pcm16000 | AudioFormat::Opus48000 => {
                "pcm_16000: samples of 16 bits, the low byte first, mono, 16 kHz"
            }
        };
        let words =
            format!("The audio looks like {what}. This session takes {takes}, without a header");
        self.words = Some(words);
    }
}

/// The kind of file or compressed sound that a message is, or begins.
fn known(bytes: &[u8], first: bool) -> Option<Kind> {
    match kind::look(bytes, false) {
        Look::Is(kind) => Some(kind),
        Look::Bare => None,
        // More would tell. A message that ends as its only frame does needs no more.
        Look::Short => kind::one_frame(bytes).filter(|_| first),
    }
}

/// What a WAV header says, in words.
fn wav(bytes: &[u8]) -> String {
    let format = find(bytes, b"fmt ").and_then(|at| bytes.get(at + 8..at + 24));
    let Some(format) = format else {
        return Kind::Wav.name().to_owned();
    };
    let word = |at: usize| u16::from_le_bytes([format[at], format[at + 1]]);
    let hz = u32::from_le_bytes([format[4], format[5], format[6], format[7]]);
    format!(
        "WAV (its header says {hz} Hz, {} channels, {} bits)",
        word(2),
        word(14)
    )
}

/// Where the samples of a WAV begin; behind all of it, where its header does not end.
fn samples_at(bytes: &[u8]) -> usize {
    find(bytes, b"data").map_or(bytes.len(), |at| at + 8)
}

fn find(bytes: &[u8], name: &[u8; 4]) -> Option<usize> {
    bytes.windows(4).position(|four| four == name)
}

/// How fast samples come.
struct Pace {
    /// Since when this second is counted, and what came within it.
    since: Option<Time>,
    samples: u64,
    /// Samples a second of the last seconds, the newest last, and how many there are.
    rates: [u64; SECONDS],
    filled: usize,
}

/// Seconds that a slow sender is watched for. One who sends only while somebody speaks has no even pace.
const SECONDS: usize = 5;

/// Seconds of a fast one, which is too fast soon.
const FAST_SECONDS: usize = 2;

/// A second, and the longest that is counted as one: after a gap the pace is judged anew.
const SECOND_US: u64 = 1_000_000;
const LONGEST_US: u64 = 1_300_000;

impl Pace {
    const fn new() -> Self {
        Self {
            since: None,
            samples: 0,
            rates: [0; SECONDS],
            filled: 0,
        }
    }

    /// Samples came. The rate that their pace is of, where it is another than is taken.
    fn add(&mut self, now: Time, samples: u64, taken: u32) -> Option<u32> {
        let Some(since) = self.since else {
            (self.since, self.samples) = (Some(now), samples);
            return None;
        };
        let passed = (now - since).as_micros() as u64;
        if passed < SECOND_US {
            self.samples += samples;
            return None;
        }
        let rate = self.samples * SECOND_US / passed;
        (self.since, self.samples) = (Some(now), samples);
        if passed > LONGEST_US {
            self.filled = 0;
            return None;
        }
        self.rates.rotate_left(1);
        self.rates[SECONDS - 1] = rate;
        self.filled = (self.filled + 1).min(SECONDS);
        [8_000, 24_000, 32_000, 44_100, 48_000, 16_000]
            .into_iter()
            .filter(|hz| *hz != taken)
            .find(|hz| self.is_of(*hz, taken))
    }

    /// Whether the last seconds are all of this rate, and together nearly exactly.
    fn is_of(&self, hz: u32, taken: u32) -> bool {
        let seconds = if hz < taken { SECONDS } else { FAST_SECONDS };
        if self.filled < seconds {
            return false;
        }
        let rates = &self.rates[SECONDS - seconds..];
        let hz = u64::from(hz);
        let sum: u64 = rates.iter().sum();
        let wanted = hz * seconds as u64;
        rates.iter().all(|rate| rate.abs_diff(hz) * 8 <= hz) && sum.abs_diff(wanted) * 50 <= wanted
    }

    /// Whether samples come about twice as fast as they are taken.
    fn is_double(&self, taken: u32) -> bool {
        self.filled > 0 && self.rates[SECONDS - 1] * 10 >= u64::from(taken) * 17
    }
}

#[cfg(test)]
mod tests;
