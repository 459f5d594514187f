//! Cuts a reply, as the model streams it, into segments to be spoken.
//!
//! The first segment may end at a clause, so that the voice can start early; later ones end with
//! their sentence.

/// A clause this long (in characters) may be spoken before its sentence is complete.
const FIRST_CLAUSE: usize = 24;

/// A sentence this long is cut at the next clause or word, so that no segment keeps the voice busy
/// for very long.
const LONGEST: usize = 300;

/// Words that end in a full stop and no sentence.
const ABBREVIATIONS: [&str; 24] = [
    "mr.", "mrs.", "ms.", "dr.", "st.", "prof.", "no.", "vs.", "etc.", "e.g.", "i.e.", "a.m.",
    "p.m.", "approx.", "dept.", "ext.", "inc.", "ltd.", "jr.", "sr.", "m.", "mme.", "mlle.",
    "p.ex.",
];

/// The cutter of one reply.
#[derive(Debug, Default)]
pub struct Sentences {
    text: String,
    /// Where the next segment begins, in bytes.
    next: usize,
    /// Complete sentences handed out.
    sentences: u32,
    segments: u32,
    complete: bool,
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
        if self.text.is_empty() {
            self.text.push_str(text.trim_start());
        } else {
            self.text.push_str(text);
        }
    }

    /// No more text will come.
    pub fn finish(&mut self) {
        self.complete = true;
        self.text.truncate(self.text.trim_end().len());
    }

    /// Sentences handed out so far.
    pub fn sentences(&self) -> u32 {
        self.sentences
    }

    /// Drops what has not been handed out: the reply is long enough.
    pub fn cut_here(&mut self) {
        self.text.truncate(self.next);
        self.text.truncate(self.text.trim_end().len());
        self.next = self.next.min(self.text.len());
        self.complete = true;
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
        self.sentences += u32::from(whole);
        let index = self.segments;
        self.segments += 1;
        Some(Segment { index, start, end })
    }

    /// Length of the segment at the beginning of `rest`, and whether it ends a sentence.
    fn cut(&self, rest: &str) -> Option<(usize, bool)> {
        let mut characters = 0;
        let mut clause = None;
        let mut word = None;
        let mut previous = ' ';
        for (at, c) in rest.char_indices() {
            let end = at + c.len_utf8();
            let next = rest[end..].chars().next();
            let last = next.is_none();
            if matches!(c, '.' | '?' | '!' | '…' | '。' | '？' | '！') {
                let closed = next.is_some_and(char::is_whitespace) || (last && self.complete);
                if closed && !(c == '.' && is_abbreviation(&rest[..end])) {
                    return Some((end, true));
                }
            }
            if c == '\n' && !previous.is_whitespace() {
                return Some((at, true));
            }
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
            previous = c;
        }
        None
    }
}

fn is_abbreviation(text: &str) -> bool {
    let word = text
        .rsplit(char::is_whitespace)
        .next()
        .unwrap_or_default()
        .to_lowercase();
    let initial =
        word.chars().count() == 2 && word.starts_with(|c: char| c.is_alphabetic()) && word != "i.";
    initial || ABBREVIATIONS.contains(&word.as_str())
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
}
