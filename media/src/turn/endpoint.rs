//! When a caller's turn is over: the delays of each eagerness, and what the words themselves say.

use std::time::Duration;

use crate::config::Eagerness;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The delays of one eagerness. All count from the last voiced sample and are never added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delays {
    /// Silence before the voice counts as stopped.
    pub voice_stop: Duration,
    /// The words end a sentence.
    pub sentence: Duration,
    /// The words leave something open.
    pub open: Duration,
    /// The words end in digits: more may follow.
    pub digits: Duration,
    /// The most that the floor learnt from the caller's own pauses may become.
    pub learnt_cap: Duration,
    /// Wait before resuming after an interruption without words.
    pub resume: Duration,
    /// Wait for any words at all.
    pub transcript: Duration,
    /// How many replies may be begun before the turn is committed.
    pub speculations: u32,
}

impl Delays {
    pub const fn of(eagerness: Eagerness) -> Self {
        match eagerness {
            Eagerness::Patient => Self {
                voice_stop: ms(300),
                sentence: ms(900),
                open: ms(2000),
                digits: ms(1800),
                learnt_cap: ms(1500),
                resume: ms(2500),
                transcript: ms(6000),
                speculations: 1,
            },
            Eagerness::Normal => Self {
                voice_stop: ms(200),
                sentence: ms(400),
                open: ms(1200),
                digits: ms(1000),
                learnt_cap: ms(1000),
                resume: ms(1500),
                transcript: ms(5000),
                speculations: 2,
            },
            Eagerness::Eager => Self {
                voice_stop: ms(160),
                sentence: ms(200),
                open: ms(700),
                digits: ms(700),
                learnt_cap: ms(500),
                resume: ms(1000),
                transcript: ms(4000),
                speculations: 4,
            },
        }
    }
}

/// What the words of a turn say about its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    /// No words.
    #[default]
    Empty,
    Sentence,
    Open,
    Digits,
}

impl Shape {
    /// Judges the words so far. `punctuates`: the recogniser writes sentence marks, so that their
    /// absence means something; without them a turn counts as a sentence unless its last word asks
    /// for more.
    pub fn of(text: &str, punctuates: bool) -> Self {
        let text = text.trim();
        let Some(last) = text.split_whitespace().next_back() else {
            return Self::Empty;
        };
        if text.ends_with(['.', '?', '!', '…', '。', '？', '！']) && !text.ends_with("...") {
            return Self::Sentence;
        }
        let word = last
            .trim_matches(|c: char| !c.is_alphanumeric())
            .to_lowercase();
        if word.is_empty() {
            return Self::Open;
        }
        // Keys of a telephone, too: two entries may stand in one turn.
        let key = |c: char| c.is_ascii_digit() || matches!(c, '*' | '#');
        if word.chars().all(key) || NUMBERS.contains(&word.as_str()) {
            return Self::Digits;
        }
        if punctuates
            || text.ends_with(',')
            || text.ends_with("...")
            || WANTS_MORE.contains(&word.as_str())
        {
            return Self::Open;
        }
        Self::Sentence
    }

    /// The silence that ends a turn of this shape.
    pub const fn delay(self, delays: &Delays) -> Duration {
        match self {
            Self::Sentence => delays.sentence,
            Self::Open | Self::Empty => delays.open,
            Self::Digits => delays.digits,
        }
    }
}

/// The caller's own pauses inside a turn raise the silence that ends it (an exponential mean that
/// keeps nine tenths of what it was), so a slow speaker is not cut off twice.
#[derive(Clone, Copy, Debug)]
pub struct Learnt {
    floor: Duration,
    cap: Duration,
}

impl Learnt {
    pub const fn new(delays: &Delays) -> Self {
        Self {
            floor: delays.sentence,
            cap: delays.learnt_cap,
        }
    }

    /// The caller paused for so long and then went on with the same turn. Only upwards.
    pub fn pause(&mut self, pause: Duration) {
        if pause > self.floor {
            self.floor = (self.floor * 9 / 10 + pause / 10).min(self.cap);
        }
    }

    pub const fn floor(&self) -> Duration {
        self.floor
    }
}

/// Words that never end a thought: articles, conjunctions, prepositions, fillers.
const WANTS_MORE: [&str; 62] = [
    "a", "an", "the", "and", "or", "but", "so", "because", "if", "that", "to", "of", "for", "with",
    "at", "from", "in", "on", "by", "about", "my", "your", "our", "their", "his", "her", "is",
    "are", "was", "i", "um", "uh", "like", "than", "then", "when", "while", "whether", "le", "la",
    "les", "un", "une", "des", "et", "ou", "mais", "donc", "parce", "si", "que", "de", "du",
    "pour", "avec", "chez", "dans", "sur", "mon", "ma", "mes", "euh",
];

const NUMBERS: [&str; 22] = [
    "zero", "oh", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "double", "triple", "zéro", "deux", "trois", "quatre", "cinq", "sept", "huit", "neuf",
];

/// Short words that keep a conversation going without taking the turn.
const ACKNOWLEDGEMENTS: [&str; 30] = [
    "mhm", "mm", "mmm", "hm", "hmm", "uh-huh", "aha", "yes", "yeah", "yep", "yup", "ok", "okay",
    "right", "sure", "fine", "good", "great", "cool", "i", "see", "got", "it", "oui", "ouais",
    "d'accord", "bien", "bon", "voilà", "alright",
];

/// Words that stop the agent at once.
const STOPS: [&str; 12] = [
    "stop", "wait", "no", "hold", "pause", "hang", "attends", "attendez", "arrête", "arrêtez",
    "non", "excuse",
];

/// Whether the text is a short acknowledgement ("mhm", "yes, yes"): it makes no turn while the
/// agent speaks.
pub fn is_acknowledgement(text: &str) -> bool {
    let mut words = 0;
    for word in words_of(text) {
        words += 1;
        if words > 4 || !ACKNOWLEDGEMENTS.contains(&word.as_str()) {
            return false;
        }
    }
    words > 0
}

/// Whether the text asks the agent to stop: it begins with such a word and is short.
pub fn is_stop(text: &str) -> bool {
    let mut words = words_of(text);
    let Some(first) = words.next() else {
        return false;
    };
    STOPS.contains(&first.as_str()) && words.count() < 4
}

fn words_of(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|c: char| !(c.is_alphanumeric() || c == '\'' || c == '-' || c == '’'))
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_of_words() {
        for (text, punctuates, shape) in [
            ("", true, Shape::Empty),
            ("  ", false, Shape::Empty),
            ("Where are you?", true, Shape::Sentence),
            ("where are you", true, Shape::Open),
            ("where are you", false, Shape::Sentence),
            ("i would like a", false, Shape::Open),
            ("my number is five five", false, Shape::Digits),
            ("it is 42", true, Shape::Digits),
            ("42#", true, Shape::Digits),
            ("42#7", true, Shape::Digits),
            ("7*42", false, Shape::Digits),
            ("well...", false, Shape::Open),
            ("je voudrais un", false, Shape::Open),
        ] {
            assert_eq!(Shape::of(text, punctuates), shape, "{text:?}");
        }
    }

    #[test]
    fn acknowledgements_and_stops() {
        for text in ["mhm", "Yes, yes.", "okay", "uh-huh", "I see"] {
            assert!(is_acknowledgement(text), "{text}");
        }
        for text in ["", "yes but I want another day", "no"] {
            assert!(!is_acknowledgement(text), "{text}");
        }
        for text in ["stop", "Wait a moment", "no, no"] {
            assert!(is_stop(text), "{text}");
        }
        for text in ["", "do not stop", "no I would like to come on another day"] {
            assert!(!is_stop(text), "{text}");
        }
    }

    #[test]
    fn the_learnt_floor_only_rises_and_is_capped() {
        let mut learnt = Learnt::new(&Delays::of(Eagerness::Normal));
        learnt.pause(ms(300));
        assert_eq!(learnt.floor(), ms(400));
        learnt.pause(ms(900));
        assert_eq!(learnt.floor(), ms(450));
        for _ in 0..200 {
            learnt.pause(ms(5000));
        }
        assert_eq!(learnt.floor(), ms(1000));
    }
}
