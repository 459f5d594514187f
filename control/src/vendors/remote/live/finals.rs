//! The final words of an utterance, each piece at its place, so that what a server says twice counts once. Pure.

use media::speech::words::has_words;
use media::time::RATE;

use super::session::joined;

/// Places of one piece, told twice, differ by no more than this (50 ms).
const SLACK: u64 = RATE as u64 / 20;

/// The most pieces whose places are kept: a server makes one every few seconds. Later ones are taken as they come.
const MOST: usize = 64;

/// Where words lie in the audio of the call, samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from: u64,
    pub(super) until: u64,
}

impl Span {
    /// Whether the other lies within this one.
    fn holds(self, other: Self) -> bool {
        other.from + SLACK >= self.from
            && other.until <= self.until + SLACK
            // What follows closely on it is not within.
            && (other.from + other.until) / 2 < self.until
    }

    const fn is_empty(self) -> bool {
        self.until <= self.from
    }
}

/// The pieces, in the order in which they came.
#[derive(Clone, Debug, Default)]
pub(super) struct Finals {
    pieces: Vec<(Option<Span>, String)>,
    /// What came after as many as are kept.
    rest: String,
}

impl Finals {
    pub(super) fn text(&self) -> String {
        let pieces = self.pieces.iter().map(|(_, text)| text.as_str());
        let all = pieces.chain([self.rest.as_str()]);
        all.fold(String::new(), |text, piece| joined(&text, piece))
    }

    /// Whether these words were said before: they lie within a piece that is there. Other words of the very same place take
    /// its place.
    pub(super) fn repeats(&mut self, span: Option<Span>, text: &str) -> bool {
        let Some(span) = span.filter(|span| !span.is_empty()) else {
            return false;
        };
        let mut places = self.pieces.iter_mut();
        let Some((place, words)) =
            places.find(|(place, _)| place.is_some_and(|place| place.holds(span)))
        else {
            return false;
        };
        if has_words(text) && place.is_some_and(|place| span.holds(place)) {
            text.trim().clone_into(words);
        }
        true
    }

    /// Adds a piece, in place of those that lie within it.
    pub(super) fn push(&mut self, span: Option<Span>, text: String) {
        if let Some(span) = span.filter(|span| !span.is_empty()) {
            self.pieces.retain(|(place, _)| {
                place.is_none_or(|place| place.is_empty() || !span.holds(place))
            });
        }
        if self.pieces.len() < MOST {
            self.pieces.push((span, text));
        } else {
            self.rest = joined(&self.rest, &text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(from_ms: u64, until_ms: u64) -> Option<Span> {
        Some(Span {
            from: from_ms * 16,
            until: until_ms * 16,
        })
    }

    fn said(pieces: &[(Option<Span>, &str)]) -> String {
        let mut finals = Finals::default();
        for (span, text) in pieces {
            if !finals.repeats(*span, text) {
                finals.push(*span, (*text).to_owned());
            }
        }
        finals.text()
    }

    #[test]
    fn what_is_said_twice_of_one_place_counts_once() {
        let first = (span(0, 1500), "two rooms");
        for (second, text) in [
            (first, "two rooms"),
            ((span(2, 1490), "two rooms"), "two rooms"),
            ((span(0, 1500), "two brooms"), "two brooms"),
            ((span(500, 1500), "rooms"), "two rooms"),
            ((span(0, 1500), ""), "two rooms"),
            ((span(0, 2500), "two rooms please"), "two rooms please"),
            ((span(1500, 2500), "please"), "two rooms please"),
            ((span(1500, 1520), "please"), "two rooms please"),
            ((span(1480, 1560), "please"), "two rooms please"),
            // Places that say nothing.
            ((span(0, 0), "please"), "two rooms please"),
            ((None, "please"), "two rooms please"),
        ] {
            assert_eq!(said(&[first, second]), text, "{second:?}");
        }
        let no = (span(0, 0), "no");
        assert_eq!(said(&[no, no]), "no no", "a server that knows no places");
        assert_eq!(said(&[(None, "no"), (None, "no")]), "no no");
    }

    #[test]
    fn words_without_an_end_are_kept_in_their_order() {
        let pieces: Vec<_> = (0..200)
            .map(|at| (span(at * 100, at * 100 + 100), format!("w{at}")))
            .collect();
        let pieces: Vec<_> = pieces
            .iter()
            .map(|(at, text)| (*at, text.as_str()))
            .collect();
        let wanted: Vec<&str> = pieces.iter().map(|(_, text)| *text).collect();
        assert_eq!(said(&pieces), wanted.join(" "));
    }
}
