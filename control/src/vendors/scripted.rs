//! Ears and a mouth for tests and load runs: right at once, and almost free of cost.

use std::f64::consts::TAU;
use std::sync::{Arc, LazyLock, Mutex};

use media::speech::{
    Recogniser, RecogniserEvent, ReplyId, SpeechEvent, SpeechSink, Synthesiser, SynthesiserEvent,
    UtteranceId,
};

use super::queue::lock;

/// What the caller says, whatever it sounded like; again from the start after the last.
pub const SCRIPT: &[&str] = &[
    "hello there",
    "what time is breakfast",
    "how much is parking",
    "is there a swimming pool",
    "thank you very much",
];

/// A recogniser that hears the lines of [`SCRIPT`] in turn, one an utterance.
pub struct ScriptedRecogniser {
    sink: Arc<dyn SpeechSink>,
    next: usize,
}

impl ScriptedRecogniser {
    pub fn new(sink: Arc<dyn SpeechSink>) -> Self {
        Self { sink, next: 0 }
    }
}

impl Recogniser for ScriptedRecogniser {
    fn begin(&mut self, _utterance: UtteranceId) {}

    fn audio(&mut self, _utterance: UtteranceId, _pcm: &[i16]) {}

    fn finish(&mut self, utterance: UtteranceId) {
        let text = SCRIPT[self.next % SCRIPT.len()].to_owned();
        self.next += 1;
        let event = RecogniserEvent::Final {
            utterance,
            text,
            confidence: Some(1.0),
        };
        self.sink.send(SpeechEvent::Recogniser(event));
    }

    fn cancel(&mut self, _utterance: UtteranceId) {}

    fn punctuates(&self) -> bool {
        false
    }
}

/// Samples a second of the tone, Hz: the engine's own rate, so nothing is resampled.
const RATE: u32 = media::time::RATE;

/// How long a character sounds, ms: a talker's pace.
const MS_PER_CHAR: u32 = 65;

/// No sentence is longer, ms.
const LONGEST_MS: u32 = 30_000;

/// One piece of sound, ms.
const PIECE_MS: u32 = 200;

/// Whoever has to say this panics, as a fault within a call does.
#[cfg(test)]
pub const PANIC: &str = "scripted panic";

/// A voice that is a tone of `hz`, as long as the text would be; another where the text names one: `600 Hz`
/// ([`named`]).
pub struct ScriptedVoice {
    tone: Arc<[i16]>,
    sink: Arc<dyn SpeechSink>,
}

impl ScriptedVoice {
    pub fn new(hz: u32, sink: Arc<dyn SpeechSink>) -> Self {
        Self {
            tone: tone(hz),
            sink,
        }
    }

    fn send(&self, reply: ReplyId, segment: u32, event: SynthesiserEvent) -> bool {
        self.sink.send(SpeechEvent::Synthesiser {
            reply,
            segment,
            event,
        })
    }
}

impl Synthesiser for ScriptedVoice {
    fn speak(&mut self, reply: ReplyId, segment: u32, text: &str) {
        #[cfg(test)]
        assert!(!text.contains(PANIC), "{PANIC}");
        let tone = named(text).map_or_else(|| Arc::clone(&self.tone), tone);
        let chars = u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
        let length = chars.saturating_mul(MS_PER_CHAR).min(LONGEST_MS);
        let mut left = (RATE / 1000 * length) as usize;
        while left > 0 {
            let count = left.min(tone.len());
            let samples = tone[..count].to_vec();
            if !self.send(
                reply,
                segment,
                SynthesiserEvent::Audio {
                    rate: RATE,
                    samples,
                },
            ) {
                return;
            }
            left -= count;
        }
        self.send(reply, segment, SynthesiserEvent::Done);
    }

    fn cancel(&mut self, _reply: ReplyId) {}
}

/// The first tone that a text names, Hz: those of a telephone, in steps of five, so that a piece holds whole periods.
fn named(text: &str) -> Option<u32> {
    let mut before = None;
    for word in text.split_whitespace() {
        if word.trim_end_matches(['.', ',']) == "Hz"
            && let Some(hz) = before
        {
            return Some(hz);
        }
        before = word
            .parse()
            .ok()
            .filter(|hz| (300..=3_400).contains(hz) && hz % 5 == 0);
    }
    None
}

/// A piece of the tone; whole periods, so pieces join without a step. Kept for all calls.
fn tone(hz: u32) -> Arc<[i16]> {
    type Kept = Mutex<Vec<(u32, Arc<[i16]>)>>;
    static TONES: LazyLock<Kept> = LazyLock::new(Kept::default);
    let mut tones = lock(&TONES);
    if let Some((_, tone)) = tones.iter().find(|(kept, _)| *kept == hz) {
        return Arc::clone(tone);
    }
    let step = TAU * f64::from(hz) / f64::from(RATE);
    let samples =
        (0..RATE / 1000 * PIECE_MS).map(|i| (6000.0 * (step * f64::from(i)).sin()) as i16);
    let tone: Arc<[i16]> = samples.collect();
    // The catalogue's and those that texts may name: a few hundred.
    tones.push((hz, Arc::clone(&tone)));
    tone
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_names_its_tone() {
        for (text, hz) in [
            ("600 Hz", Some(600)),
            ("Now 1250 Hz, and 600 Hz.", Some(1_250)),
            ("It is 440.", None),
            ("Hz 600", None),
            ("601 Hz", None),
            ("295 Hz", None),
            ("3405 Hz", None),
            ("99999999999 Hz", None),
        ] {
            assert_eq!(named(text), hz, "{text}");
        }
        for hz in (300..=3_400).step_by(5) {
            assert_eq!(hz * PIECE_MS % 1_000, 0, "whole periods of {hz} Hz");
        }
    }
}
