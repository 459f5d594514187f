//! Whether a recogniser that finds no words is right, or mute. Pure.
//!
//! A recogniser may have no words for a cough, and the agent then listens on. One that has none for what a caller
//! really said has failed, though its connection stands: the caller would be taken for silent. What tells them apart
//! is how much voice there was since its last words, within a minute. An answer without words weighs less than none at
//! all: it may be right, for a radio in the background is a voice, too.

use std::collections::VecDeque;
use std::time::Duration;

use media::time::Samples;
use tokio::time::Instant;

/// An utterance holds so much beside its voice, at most: 300 ms before it is noticed, and 300 ms of silence that end it.
/// (Longer pauses within it end it, too.)
const AROUND: Samples = Samples::from_ms(600);

/// Voice without any answer that shows a mute recogniser: a sentence, or two or three short words.
const UNANSWERED: Duration = Duration::from_millis(800);

/// How many times as much voice has to be answered without words, before that is a fault: 2.4 s, which no cough
/// lasts.
const ANSWERED: u32 = 3;

/// Where another recogniser can be asked, no answer to this much voice is enough to ask it. A fault that is not yet: some
/// servers have no answer to a cough.
const SHORT: Duration = Duration::from_millis(200);

/// Voice without words counts for so long. A caller whom nobody hears says the same again, two or three times with the
/// agent's question between: that is within a minute. Noises of a whole call, each rightly found to have no words, would
/// add up to a fault without an end.
const WINDOW: Duration = Duration::from_secs(60);

/// Voice comes in frames of 20 ms, and what is shorter does not count. So no more than 120 utterances are kept: with
/// more, there would be enough voice for a fault.
const SHORTEST: Duration = Duration::from_millis(20);

/// What an answer, or none, means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The recogniser is believed: there were none.
    Believed,
    /// There may have been some: another recogniser is asked, if there is one.
    Doubtful,
    /// The recogniser is mute: a fault of the provider.
    Mute,
}

/// One call's recogniser, by its utterances without words.
#[derive(Clone, Debug)]
pub(super) struct Muteness {
    /// Another recogniser can be asked.
    fallback: bool,
    /// Voice since the last words, that without any answer weighted, and when it was judged. Oldest first.
    unheard: VecDeque<(Instant, Duration)>,
    /// There was enough of it within the window, and there have been no words since.
    mute: bool,
}

impl Muteness {
    pub(super) const fn new(fallback: bool) -> Self {
        Self {
            fallback,
            unheard: VecDeque::new(),
            mute: false,
        }
    }

    /// The recogniser had words: it is well.
    pub(super) fn words(&mut self) {
        self.unheard.clear();
        self.mute = false;
    }

    /// The recogniser had no words for so many samples of an utterance. `answered`: it said so itself.
    pub(super) fn no_words(&mut self, now: Instant, samples: u64, answered: bool) -> Verdict {
        let voice = Samples(samples).minus(AROUND).duration();
        self.add(now, if answered { voice } else { voice * ANSWERED });
        let enough = if answered { UNANSWERED } else { SHORT };
        if self.is_mute() && !voice.is_zero() {
            Verdict::Mute
        } else if self.fallback && voice >= enough {
            Verdict::Doubtful
        } else {
            Verdict::Believed
        }
    }

    fn add(&mut self, now: Instant, voice: Duration) {
        let is_old = |at: Instant| now.saturating_duration_since(at) >= WINDOW;
        while self.unheard.front().is_some_and(|(at, _)| is_old(*at)) {
            self.unheard.pop_front();
        }
        if voice >= SHORTEST && !self.mute {
            self.unheard.push_back((now, voice));
            let all: Duration = self.unheard.iter().map(|(_, voice)| *voice).sum();
            self.mute = all >= UNANSWERED * ANSWERED;
        }
    }

    /// Whether it has been found mute, and had no words since. However long ago: it has not shown that it is well.
    pub(super) const fn is_mute(&self) -> bool {
        self.mute
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The samples of an utterance with so much voice.
    const fn voice(ms: u64) -> u64 {
        Samples::from_ms(ms + 600).0
    }

    #[test]
    fn a_sentence_without_an_answer_is_a_fault_and_a_cough_is_none() {
        let now = Instant::now();
        let mut alone = Muteness::new(false);
        assert_eq!(alone.no_words(now, voice(350), false), Verdict::Believed);
        alone.words();
        assert_eq!(alone.no_words(now, voice(350), true), Verdict::Believed);
        alone.words();
        assert_eq!(alone.no_words(now, voice(800), false), Verdict::Mute);
        // Until it has words again, it stays so.
        assert_eq!(alone.no_words(now, voice(100), false), Verdict::Mute);
        alone.words();
        assert_eq!(alone.no_words(now, voice(100), false), Verdict::Believed);
    }

    #[test]
    fn short_words_that_nobody_answers_add_up() {
        let now = Instant::now();
        let mut alone = Muteness::new(false);
        let verdicts = [300; 3].map(|ms| alone.no_words(now, voice(ms), false));
        assert_eq!(
            verdicts,
            [Verdict::Believed, Verdict::Believed, Verdict::Mute]
        );
    }

    #[test]
    fn empty_answers_are_believed_until_there_is_much_voice() {
        let now = Instant::now();
        let mut alone = Muteness::new(false);
        let verdicts = [900; 3].map(|ms| alone.no_words(now, voice(ms), true));
        assert_eq!(
            verdicts,
            [Verdict::Believed, Verdict::Believed, Verdict::Mute]
        );
        let mut alone = Muteness::new(false);
        assert_eq!(alone.no_words(now, voice(2_400), true), Verdict::Mute);
    }

    #[test]
    fn where_another_can_be_asked_it_is_asked_sooner() {
        let now = Instant::now();
        let mut backed = Muteness::new(true);
        assert_eq!(backed.no_words(now, voice(100), false), Verdict::Believed);
        assert_eq!(backed.no_words(now, voice(300), false), Verdict::Doubtful);
        backed.words();
        assert_eq!(backed.no_words(now, voice(800), false), Verdict::Mute);
        backed.words();
        assert_eq!(backed.no_words(now, voice(500), true), Verdict::Believed);
        assert_eq!(backed.no_words(now, voice(1_000), true), Verdict::Doubtful);
        assert_eq!(backed.no_words(now, voice(1_000), true), Verdict::Mute);
    }

    #[test]
    fn voice_of_long_ago_does_not_add_up_with_voice_of_now() {
        let began = Instant::now();
        let mut alone = Muteness::new(false);
        for minutes in 0..20 {
            let now = began + WINDOW * minutes;
            assert_eq!(alone.no_words(now, voice(500), false), Verdict::Believed);
        }
        // Answered ones neither: the radio beside a caller who listens.
        let mut alone = Muteness::new(false);
        for minutes in 0..20 {
            let now = began + WINDOW * minutes;
            assert_eq!(alone.no_words(now, voice(2_300), true), Verdict::Believed);
        }
        // Within the window it does, though none of it is near the other.
        let mut alone = Muteness::new(false);
        let verdicts = [0, 29, 59].map(|seconds| {
            let now = began + Duration::from_secs(seconds);
            alone.no_words(now, voice(300), false)
        });
        let found = [Verdict::Believed, Verdict::Believed, Verdict::Mute];
        assert_eq!(verdicts, found);
    }

    #[test]
    fn who_was_found_mute_stays_so_until_there_are_words() {
        let began = Instant::now();
        let mut alone = Muteness::new(false);
        assert_eq!(alone.no_words(began, voice(900), false), Verdict::Mute);
        let later = began + WINDOW * 10;
        assert_eq!(alone.no_words(later, voice(0), false), Verdict::Believed);
        assert_eq!(alone.no_words(later, voice(200), false), Verdict::Mute);
        alone.words();
        assert_eq!(alone.no_words(later, voice(200), false), Verdict::Believed);
    }

    #[test]
    fn no_more_is_kept_than_makes_a_fault() {
        let (now, mut alone) = (Instant::now(), Muteness::new(true));
        for _ in 0..10_000 {
            alone.no_words(now, voice(0) + 100, true);
            alone.no_words(now, voice(20), true);
        }
        assert!(alone.is_mute() && alone.unheard.len() == 120);
    }
}
