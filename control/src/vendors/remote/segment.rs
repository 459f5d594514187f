//! What the caller has of a segment, so that another try goes on where the one before broke off; and
//! whether there is anything to hear in it. Pure, but for the voice that takes over.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use media::speech::{NotTaken, ReplyId, SpeechEvent, SpeechSink, Synthesiser, SynthesiserEvent};

use super::plan::Fault;
use crate::vendors::queue::lock;

/// Louder than this is sound: −50 dBFS.
const AUDIBLE: u16 = 104;

/// A voice that begins with more silence than this says nothing. (Some begin with a second of it.)
const SILENCE_US: u64 = 2_500_000;

/// Of the silence before a segment, the caller hears at most this: a pause between sentences.
const PAUSE_US: u64 = 250_000;

/// Two tries that end within this of each other end at the same place.
const ALIKE_US: u64 = 50_000;

/// The longest segment, microseconds of sound: a sentence of 650 characters takes 45 s.
const LONGEST_US: u64 = 120_000_000;

/// A segment that is being spoken.
pub(super) struct SpokenSegment {
    /// Whether there is anything in the text to say.
    sayable: bool,
    /// Of the text.
    characters: u64,
    /// The text has a number in it, which takes far longer to say than its characters tell.
    numbers: bool,
    /// Sound handed to the call over all tries, microseconds.
    given: u64,
    /// Sound of this try, whether handed on or skipped.
    reached: u64,
    /// The same of the try before, if it had any.
    reached_before: Option<u64>,
    /// The silence at this try's beginning, held back until there is a sound.
    held: Vec<i16>,
    audible: bool,
}

impl SpokenSegment {
    pub(super) fn new(text: &str) -> Self {
        Self {
            sayable: text.chars().any(char::is_alphanumeric),
            characters: text.trim().chars().count() as u64,
            numbers: text.chars().any(char::is_numeric),
            given: 0,
            reached: 0,
            reached_before: None,
            held: Vec::new(),
            audible: false,
        }
    }

    /// Another try begins.
    pub(super) fn again(&mut self) {
        self.reached_before = Some(self.reached).filter(|reached| *reached > 0);
        self.reached = 0;
        self.held.clear();
        self.audible = false;
    }

    /// Whether the caller has any of it.
    pub(super) const fn any(&self) -> bool {
        self.given > 0
    }

    /// How much of it the caller has, microseconds.
    pub(super) const fn micros(&self) -> u64 {
        self.given
    }

    /// Whether this try has said the whole text, though nobody said so: nine tenths of what this voice (`pace`,
    /// microseconds a character) has needed at least. Nobody knows it of a voice that was not heard to an end yet, nor of a
    /// number.
    pub(super) fn is_whole(&self, pace: Option<u64>) -> bool {
        let enough = pace.filter(|_| self.audible && !self.numbers);
        enough.is_some_and(|pace| self.reached >= self.given.max(self.characters * pace / 10 * 9))
    }

    /// Whether two tries ended at the same place: there is no more of it.
    pub(super) fn ended_alike(&self) -> bool {
        let before = self.reached_before;
        self.audible && before.is_some_and(|before| self.reached.abs_diff(before) <= ALIKE_US)
    }

    /// Sound for each character of a segment that is complete, microseconds; `None`: too short to tell.
    pub(super) fn pace(&self) -> Option<u64> {
        /// A number or an abbreviation weighs little in so many.
        const ENOUGH: u64 = 20;
        let tells = self.characters >= ENOUGH && self.reached > 0 && !self.numbers;
        tells.then(|| self.reached / self.characters)
    }

    /// The next samples of this try. What of them is to be handed on.
    pub(super) fn take(
        &mut self,
        rate: u32,
        mut samples: Vec<i16>,
    ) -> Result<Option<Vec<i16>>, Fault> {
        if samples.is_empty() {
            return Ok(None);
        }
        if !self.audible {
            self.audible = samples.iter().any(|s| s.unsigned_abs() > AUDIBLE);
            self.held.append(&mut samples);
            if !self.audible {
                if micros(rate, self.held.len()) > SILENCE_US && self.sayable {
                    return Err(Fault::Wrong("the voice sent silence".to_owned()));
                }
                return Ok(None);
            }
            samples = std::mem::take(&mut self.held);
            let silence = samples.iter().take_while(|s| s.unsigned_abs() <= AUDIBLE);
            let kept = usize::try_from(PAUSE_US * u64::from(rate) / 1_000_000).unwrap_or(0);
            samples.drain(..silence.count().saturating_sub(kept));
        }
        let from = self.reached;
        self.reached += micros(rate, samples.len());
        if self.reached > LONGEST_US {
            return Err(Fault::Wrong("the voice does not come to an end".to_owned()));
        }
        // What an earlier try gave is not said again.
        let known = self.given.saturating_sub(from);
        let skip = usize::try_from(known * u64::from(rate) / 1_000_000).unwrap_or(usize::MAX);
        if skip >= samples.len() {
            return Ok(None);
        }
        self.given = self.given.max(self.reached);
        Ok(Some(samples.split_off(skip)))
    }

    /// This try's sound is over.
    pub(super) fn finish(&self) -> Result<(), Fault> {
        if self.audible || !self.sayable {
            Ok(())
        } else {
            Err(Fault::Wrong("the voice sent no sound".to_owned()))
        }
    }
}

fn micros(rate: u32, samples: usize) -> u64 {
    samples as u64 * 1_000_000 / u64::from(rate.max(1))
}

/// A second voice that speaks on where the first one failed.
pub(super) struct Other {
    voice: Box<dyn Synthesiser>,
    skip: Arc<Skip>,
}

impl Other {
    /// `make` is given where the voice's sound goes.
    pub(super) fn new(
        sink: Arc<dyn SpeechSink>,
        make: impl FnOnce(Arc<dyn SpeechSink>) -> Box<dyn Synthesiser>,
    ) -> Self {
        let skip = Arc::new(Skip {
            sink,
            segment: Mutex::new(None),
            left: AtomicU64::new(0),
        });
        Self {
            voice: make(Arc::clone(&skip) as Arc<dyn SpeechSink>),
            skip,
        }
    }

    /// Speaks the segment without its first `known` microseconds.
    pub(super) fn take_over(&mut self, reply: ReplyId, segment: u32, text: &str, known: u64) {
        *lock(&self.skip.segment) = Some((reply, segment));
        self.skip.left.store(known, Ordering::Release);
        self.voice.speak(reply, segment, text);
    }

    pub(super) fn cancel(&mut self, reply: ReplyId) {
        self.voice.cancel(reply);
    }
}

/// Drops the beginning of one segment.
struct Skip {
    sink: Arc<dyn SpeechSink>,
    segment: Mutex<Option<(ReplyId, u32)>>,
    /// Microseconds still to be dropped.
    left: AtomicU64,
}

impl Skip {
    /// The event without what the caller already has; `None`: nothing is left of it.
    fn cut(&self, event: SpeechEvent) -> Option<SpeechEvent> {
        let left = self.left.load(Ordering::Acquire);
        match event {
            SpeechEvent::Synthesiser {
                reply,
                segment,
                event: SynthesiserEvent::Audio { rate, mut samples },
            } if left > 0 && *lock(&self.segment) == Some((reply, segment)) => {
                let skip =
                    usize::try_from(left * u64::from(rate) / 1_000_000).unwrap_or(usize::MAX);
                if skip >= samples.len() {
                    let rest = left.saturating_sub(micros(rate, samples.len()));
                    self.left.store(rest, Ordering::Release);
                    return None;
                }
                self.left.store(0, Ordering::Release);
                let samples = samples.split_off(skip);
                let event = SynthesiserEvent::Audio { rate, samples };
                Some(SpeechEvent::Synthesiser {
                    reply,
                    segment,
                    event,
                })
            }
            other => Some(other),
        }
    }
}

impl SpeechSink for Skip {
    fn send(&self, event: SpeechEvent) -> bool {
        self.cut(event).is_none_or(|event| self.sink.send(event))
    }

    fn offer(&self, event: SpeechEvent) -> Result<(), NotTaken> {
        // An event that comes back has been cut already, and nothing is left to cut then.
        self.cut(event)
            .map_or(Ok(()), |event| self.sink.offer(event))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_second_try_goes_on_where_the_first_broke_off() {
        let mut heard = SpokenSegment::new("Hello.");
        assert_eq!(
            heard.take(1000, vec![500; 300]).unwrap().unwrap().len(),
            300
        );
        assert_eq!(
            heard.take(1000, vec![500; 100]).unwrap().unwrap().len(),
            100
        );
        heard.again();
        // Another rate, as of another voice.
        assert_eq!(heard.take(2000, vec![500; 700]).unwrap(), None);
        assert_eq!(
            heard.take(2000, vec![500; 200]).unwrap().unwrap().len(),
            100
        );
        assert_eq!(heard.micros(), 450_000);
        assert_eq!(heard.finish(), Ok(()));
    }

    #[test]
    fn silence_is_held_back_and_too_much_of_it_is_a_fault() {
        let mut heard = SpokenSegment::new("Hello.");
        assert_eq!(heard.take(1000, vec![0; 600]).unwrap(), None);
        assert!(heard.finish().is_err());
        assert_eq!(heard.take(1000, vec![0, 500]).unwrap().unwrap().len(), 251);
        assert_eq!(
            heard.take(1000, vec![0; 2000]).unwrap().unwrap().len(),
            2000
        );
        heard.again();
        assert_eq!(heard.take(1000, vec![3; 2500]).unwrap(), None);
        assert!(heard.take(1000, vec![3; 1]).is_err());
        assert_eq!(SpokenSegment::new(" …").finish(), Ok(()), "nothing to say");
    }

    #[test]
    fn more_than_a_second_of_silence_is_trimmed_and_every_try_counts_alike() {
        let mut heard = SpokenSegment::new("Hello.");
        assert_eq!(heard.take(1000, vec![0; 1200]).unwrap(), None);
        let first = heard.take(1000, vec![500; 100]).unwrap().unwrap();
        assert_eq!((first.len(), heard.micros()), (350, 350_000));
        heard.again();
        let silent = [vec![0; 2200], vec![500; 100]].concat();
        assert_eq!(heard.take(1000, silent).unwrap(), None);
        assert_eq!(heard.take(1000, vec![7; 40]).unwrap().unwrap().len(), 40);
        // A short silence stays as it is.
        let mut heard = SpokenSegment::new("Hello.");
        let short = [vec![0; 200], vec![500; 10]].concat();
        assert_eq!(heard.take(1000, short).unwrap().unwrap().len(), 210);
    }

    #[test]
    fn as_much_sound_as_a_text_needs_is_the_whole_of_it() {
        let text = "Good day to you all.";
        let mut heard = SpokenSegment::new(text);
        let pace = Some(50_000);
        assert!(!heard.is_whole(pace) && !heard.ended_alike());
        heard.take(1000, vec![500; 500]).unwrap();
        assert!(!heard.is_whole(pace), "half of it");
        heard.take(1000, vec![500; 400]).unwrap();
        assert!(heard.is_whole(pace));
        assert!(!heard.is_whole(None), "nobody knows this voice");
        assert_eq!(heard.pace(), Some(45_000));
        assert!(!heard.is_whole(Some(60_000)), "this voice speaks slowly");
        heard.take(1000, vec![500; 180]).unwrap();
        assert!(heard.is_whole(Some(60_000)));
        // A second try is whole only when it has come as far.
        heard.again();
        assert!(!heard.is_whole(pace));
        heard.take(1000, vec![500; 1000]).unwrap();
        assert!(!heard.is_whole(pace) && !heard.ended_alike());
        heard.take(1000, vec![500; 80]).unwrap();
        assert!(heard.is_whole(pace) && heard.ended_alike());
        assert_eq!(SpokenSegment::new("No.").pace(), None);
    }

    #[test]
    fn a_number_takes_longer_than_its_characters_tell() {
        let mut heard = SpokenSegment::new("Your number is 514-555-0199.");
        heard.take(1000, vec![500; 1_960]).unwrap();
        assert!(!heard.is_whole(Some(69_000)));
        heard.take(1000, vec![500; 3_000]).unwrap();
        assert!(!heard.is_whole(Some(69_000)) && heard.pace().is_none());
    }

    #[test]
    fn a_sound_without_end_is_cut() {
        let mut heard = SpokenSegment::new("Hello.");
        let mut minutes = 0;
        while heard.take(1000, vec![500; 60_000]).is_ok() {
            minutes += 1;
            assert!(minutes < 10);
        }
        assert_eq!(minutes, 2);
    }

    struct EventSink(mpsc::Sender<SpeechEvent>);

    impl SpeechSink for EventSink {
        fn send(&self, event: SpeechEvent) -> bool {
            self.0.send(event).is_ok()
        }
    }

    /// Says every segment as a second at 1 kHz, at once.
    struct Tone(Arc<dyn SpeechSink>);

    impl Synthesiser for Tone {
        fn speak(&mut self, reply: ReplyId, segment: u32, _text: &str) {
            for _ in 0..10 {
                let event = SynthesiserEvent::Audio {
                    rate: 1000,
                    samples: vec![1; 100],
                };
                assert!(self.0.send(SpeechEvent::Synthesiser {
                    reply,
                    segment,
                    event
                }));
            }
        }

        fn cancel(&mut self, _reply: ReplyId) {}
    }

    #[test]
    fn the_other_voice_does_not_repeat_what_was_heard() {
        let (events, heard) = mpsc::channel();
        let mut other = Other::new(Arc::new(EventSink(events)), |sink| Box::new(Tone(sink)));
        other.take_over(ReplyId(1), 0, "Hello.", 450_000);
        other.take_over(ReplyId(1), 1, "Hello.", 0);
        let lengths: Vec<usize> = heard
            .try_iter()
            .map(|event| match event {
                SpeechEvent::Synthesiser {
                    event: SynthesiserEvent::Audio { samples, .. },
                    ..
                } => samples.len(),
                other => unreachable!("{other:?}"),
            })
            .collect();
        assert_eq!(lengths[0], 50);
        assert_eq!(lengths.iter().sum::<usize>(), 550 + 1000);
    }
}
