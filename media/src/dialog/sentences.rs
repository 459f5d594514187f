//! Cuts a reply, as the model streams it, into segments to be spoken.
//!
//! The first segment may end at a clause, so that the voice can start early; later ones end with
//! their sentence. Whether a full stop ends one is decided in [`stops`](super::stops).

use super::stops::{self, Stop};

/// In the text that is pushed: an item of a list begins here. It is no part of what is said.
pub const ITEM: char = '\u{1}';

/// In the text that is pushed: the list is over. It is no part of what is said.
pub const LIST_OVER: char = '\u{2}';

/// A clause this long (in characters) may be spoken before its sentence is complete.
const FIRST_CLAUSE: usize = 24;

/// A sentence this long is cut at the next clause or word, so that no segment keeps the voice busy
/// for very long.
const LONGEST: usize = 300;

/// The cutter of one reply.
#[derive(Debug, Default)]
pub struct Sentences {
    text: String,
    /// Where the next segment begins, in bytes.
    next: usize,
    /// Complete sentences handed out, without those of the list under way.
    sentences: u32,
    segments: u32,
    complete: bool,
    /// Where the lists are whose items were told, in bytes; the newest may have no end yet.
    lists: Vec<(usize, Option<usize>)>,
    /// The sentence handed out last belongs to a list: all of it counts as one sentence.
    listing: bool,
    /// The number of the newest item of a list that is written as running text.
    number: Option<u32>,
}

/// One segment: bytes `start..end` of the reply's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub index: u32,
    pub start: usize,
    pub end: usize,
}

impl Sentences {
    /// All text so far.
    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn push(&mut self, text: &str) {
        for part in text.split_inclusive([ITEM, LIST_OVER]) {
            let said = part.trim_end_matches([ITEM, LIST_OVER]);
            if self.text.is_empty() {
                self.text.push_str(said.trim_start());
            } else {
                self.text.push_str(said);
            }
            let at = self.text.len();
            let open = self.lists.last_mut().filter(|(_, end)| end.is_none());
            match (part.ends_with(ITEM), part.ends_with(LIST_OVER), open) {
                (true, _, None) => self.lists.push((at, None)),
                (_, true, Some((_, end))) => *end = Some(at),
                _ => {}
            }
        }
    }

    /// No more text will come.
    pub fn finish(&mut self) {
        self.complete = true;
        self.text.truncate(self.text.trim_end().len());
    }

    /// Sentences handed out so far; a list is one.
    pub fn sentences(&self) -> u32 {
        self.sentences + u32::from(self.listing)
    }

    /// Whether so many sentences were handed out, and no list goes on.
    pub fn is_enough(&self, most: u32) -> bool {
        self.sentences() >= most && !self.list_goes_on()
    }

    fn list_goes_on(&self) -> bool {
        if !self.listing {
            return false;
        }
        let rest = self.text.get(self.next..).unwrap_or_default();
        let start = self.next + (rest.len() - rest.trim_start().len());
        let rest = rest.trim_start();
        if let Some((_, end)) = self.list_at(self.next.saturating_sub(1)) {
            return match end {
                None => !self.complete || !rest.is_empty(),
                Some(end) => start < end,
            };
        }
        let mut words = rest.split_inclusive(char::is_whitespace);
        match (self.number, words.next()) {
            (None, _) => false,
            (Some(_), None) => !self.complete,
            (Some(number), Some(word)) => {
                let whole = word.ends_with(char::is_whitespace) || self.complete;
                !whole || stops::list_number(word.trim()) == Some(number + 1)
            }
        }
    }

    /// The list that holds the byte at this place.
    fn list_at(&self, place: usize) -> Option<(usize, Option<usize>)> {
        let holds = |(start, end): &&(usize, Option<usize>)| {
            *start <= place && end.is_none_or(|end| place < end)
        };
        self.lists.iter().rev().find(holds).copied()
    }

    /// Drops what has not been handed out: the reply is long enough.
    pub fn cut_here(&mut self) {
        self.drop_rest();
        self.complete = true;
    }

    /// Drops what has not been handed out; more may come.
    pub fn drop_rest(&mut self) {
        self.text.truncate(self.next);
        self.text.truncate(self.text.trim_end().len());
        self.next = self.next.min(self.text.len());
        self.lists.retain(|(start, _)| *start < self.next);
    }

    /// What was pushed so far stands for itself, whatever comes next.
    pub fn end_line(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push('\n');
        }
    }

    /// The next segment that is ready to be spoken.
    pub fn take(&mut self) -> Option<Segment> {
        let rest = self.text.get(self.next..)?;
        let lead = rest.len() - rest.trim_start().len();
        let start = self.next + lead;
        let rest = &self.text[start..];
        if rest.is_empty() {
            return None;
        }
        let (length, whole) = match self.cut(rest) {
            Some(cut) => cut,
            None if self.complete => (rest.trim_end().len(), true),
            None => return None,
        };
        let end = start + length;
        self.next = end;
        self.count(start, end, whole);
        let index = self.segments;
        self.segments += 1;
        Some(Segment { index, start, end })
    }

    /// Counts a sentence. One that ends in a colon goes on with what it announces.
    fn count(&mut self, start: usize, end: usize, whole: bool) {
        let segment = &self.text[start..end];
        let number = stops::last_item(segment, self.number);
        let goes_on = number != self.number || !whole;
        self.number = number.filter(|_| goes_on);
        let lists = self.list_at(start).is_some() || self.number.is_some();
        if self.listing && !lists {
            self.sentences += 1;
        }
        self.listing = lists && (whole || self.listing);
        if !lists {
            let says = segment.contains(char::is_alphanumeric) && !segment.ends_with(':');
            self.sentences += u32::from(whole && says);
        }
    }

    /// Length of the segment at the beginning of `rest`, and whether it ends a sentence.
    fn cut(&self, rest: &str) -> Option<(usize, bool)> {
        let mut characters = 0;
        let mut clause = None;
        let mut word = None;
        for (at, c) in rest.char_indices() {
            let end = at + c.len_utf8();
            match stops::stop(rest, at, c, self.number, self.complete) {
                Stop::Ends(end) => return Some((end, true)),
                Stop::Unknown => return None,
                Stop::GoesOn => {}
            }
            if c == '\n' {
                return Some((rest[..at].trim_end().len(), true));
            }
            let next = rest[end..].chars().next();
            if matches!(c, ',' | ';' | ':' | '—') && next.is_some_and(char::is_whitespace) {
                clause = Some(end);
                if self.segments == 0 && characters >= FIRST_CLAUSE {
                    return Some((end, false));
                }
            }
            if c.is_whitespace() {
                word = Some(at);
            }
            characters += 1;
            if characters > LONGEST {
                return clause.or(word).map(|end| (end, false));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(pieces: &[&str]) -> Vec<String> {
        let mut sentences = Sentences::default();
        let mut out = Vec::new();
        let mut drain = |sentences: &mut Sentences| {
            while let Some(segment) = sentences.take() {
                out.push(sentences.text()[segment.start..segment.end].to_owned());
            }
        };
        for piece in pieces {
            sentences.push(piece);
            drain(&mut sentences);
        }
        sentences.finish();
        drain(&mut sentences);
        out
    }

    #[test]
    fn cuts_at_sentences_and_not_at_abbreviations_or_decimals() {
        assert_eq!(
            cut(&["Dr. Smith pays 3.50 euros. Is", " that all? Yes"]),
            ["Dr. Smith pays 3.50 euros.", "Is that all?", "Yes"]
        );
    }

    #[test]
    fn the_first_clause_goes_out_early() {
        assert_eq!(
            cut(&[
                "We are open on weekdays from eight, and on",
                " Saturday from nine, too."
            ]),
            [
                "We are open on weekdays from eight,",
                "and on Saturday from nine, too."
            ]
        );
    }

    #[test]
    fn any_chunking_gives_the_same_segments() {
        let text = "Well, hello there my dear friend, how are you? I am fine!  Thanks.\nBye";
        let whole = cut(&[text]);
        let pieces: Vec<String> = text.chars().map(String::from).collect();
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
        assert_eq!(cut(&pieces), whole);
        assert_eq!(whole.len(), 5);
    }

    #[test]
    fn a_sentence_without_an_end_is_cut_where_it_grows_too_long() {
        let text = "word ".repeat(200);
        let parts = cut(&[&text]);
        assert!(parts.len() > 2 && parts.iter().all(|part| part.chars().count() <= LONGEST + 1));
        assert_eq!(parts.join(" "), text.trim());
    }

    /// The segments that are spoken of a reply that is as long as an agent wants it, and how many sentences they count.
    fn limited(text: &str, most: u32, size: usize) -> (Vec<String>, u32) {
        let letters: Vec<char> = text.chars().collect();
        let mut sentences = Sentences::default();
        let mut out = Vec::new();
        let mut drain = |sentences: &mut Sentences| loop {
            if sentences.is_enough(most) {
                sentences.cut_here();
            }
            let Some(segment) = sentences.take() else {
                break;
            };
            out.push(sentences.text()[segment.start..segment.end].to_owned());
        };
        for piece in letters.chunks(size) {
            sentences.push(&piece.iter().collect::<String>());
            drain(&mut sentences);
            if sentences.complete {
                break;
            }
        }
        sentences.finish();
        drain(&mut sentences);
        (out, sentences.sentences())
    }

    #[test]
    fn the_limit_never_cuts_inside_a_list() {
        let items = format!(
            "We have these:\n{ITEM}A pool. It is warm.\n{ITEM}A bar\n{ITEM}A gym\n{LIST_OVER}Come in. Bye."
        );
        let running = "Do this: 1. Open the app. 2. Tap settings. 3. Log in. Then call. Bye.";
        let marks = "You need: 1. a passport, 2. a photo, 3. a form. Then call. Bye.";
        let open = format!("Rooms:\n{ITEM}One.\n{ITEM}Two.\n{ITEM}Three.");
        for size in [1, 2, 5, 1000] {
            for most in [1, 2] {
                let (said, count) = limited(&items, most, size);
                assert!(said.contains(&"A gym".to_owned()), "{most}: {said:?}");
                assert_eq!(said.contains(&"Come in.".to_owned()), most == 2);
                assert!(!said.contains(&"Bye.".to_owned()), "{said:?}");
                assert_eq!(count, most);
                let (said, _) = limited(running, most, size);
                assert!(said.contains(&"3. Log in.".to_owned()), "{said:?}");
                assert_eq!(said.contains(&"Then call.".to_owned()), most == 2);
                assert!(!said.contains(&"Bye.".to_owned()), "{said:?}");
            }
            let (said, count) = limited(marks, 1, size);
            assert_eq!((said.join(" ").as_str(), count), (&marks[..47], 1));
            let (said, count) = limited(&open, 1, size);
            assert_eq!((said.len(), count), (4, 1), "{said:?}");
            assert_eq!(limited("One. Two. Three.", 2, size).0, ["One.", "Two."]);
            let dots = limited("... One. Two.", 1, size).0;
            assert_eq!(dots, ["...", "One."], "dots are no sentence");
        }
    }

    #[test]
    fn what_was_not_handed_out_can_be_dropped_and_more_may_come() {
        let mut sentences = Sentences::default();
        sentences.push("The user asks. I should answer. ");
        assert!(sentences.take().is_some());
        sentences.drop_rest();
        sentences.end_line();
        sentences.push("We are open.");
        sentences.finish();
        let segment = sentences
            .take()
            .map(|s| sentences.text()[s.start..s.end].to_owned());
        assert_eq!(segment.as_deref(), Some("We are open."));
    }
}
