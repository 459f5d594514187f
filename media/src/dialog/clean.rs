//! The content guardrail's last word: obscene words are taken out of what the agent says, however the
//! model came by them. The rest of the guardrail is told to the model.

/// Words that an agent with the guardrail never says, in small letters, sorted.
const OBSCENE: &[&str] = &[
    "arsehole",
    "arseholes",
    "asshole",
    "assholes",
    "bastard",
    "bastards",
    "bitch",
    "bitches",
    "bollocks",
    "bullshit",
    "connard",
    "connards",
    "connasse",
    "connasses",
    "cunt",
    "cunts",
    "dickhead",
    "dickheads",
    "enculé",
    "enculés",
    "fuck",
    "fucked",
    "fucker",
    "fuckers",
    "fucking",
    "fucks",
    "merde",
    "merdes",
    "motherfucker",
    "motherfuckers",
    "motherfucking",
    "niquer",
    "putain",
    "pute",
    "putes",
    "salaud",
    "salauds",
    "salope",
    "salopes",
    "shit",
    "shits",
    "shitty",
    "slut",
    "sluts",
    "twat",
    "twats",
    "wanker",
    "wankers",
    "whore",
    "whores",
];

/// A word longer than this (bytes) is none of the list's and need not be held back.
const LONGEST: usize = 32;

/// Takes obscene words out of a text that comes in pieces. A word that a piece leaves open is held back
/// until its end is seen.
#[derive(Debug, Default)]
pub struct Cleaner {
    word: String,
    /// The word just seen was taken out between two spaces: one of them goes too.
    joins: bool,
    /// What was given out last was a space, or nothing was.
    spaced: Option<bool>,
}

impl Cleaner {
    /// The next piece of the text; what is clean so far.
    pub fn push(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(self.word.len() + text.len());
        for c in text.chars() {
            if c.is_alphanumeric() {
                self.word.push(c);
                if self.word.len() > LONGEST {
                    self.give(&mut out);
                }
                continue;
            }
            self.end_word(&mut out);
            if std::mem::take(&mut self.joins) && c.is_whitespace() {
                continue;
            }
            out.push(c);
            self.spaced = Some(c.is_whitespace());
        }
        out
    }

    /// The text is over: what was held back.
    pub fn finish(&mut self) -> String {
        let mut out = String::new();
        self.end_word(&mut out);
        out
    }

    fn end_word(&mut self, out: &mut String) {
        if self.word.is_empty() {
            return;
        }
        if OBSCENE
            .binary_search(&self.word.to_lowercase().as_str())
            .is_ok()
        {
            self.word.clear();
            self.joins = self.spaced.unwrap_or(true);
        } else {
            self.give(out);
        }
    }

    fn give(&mut self, out: &mut String) {
        out.push_str(&self.word);
        self.word.clear();
        self.spaced = Some(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clean(pieces: &[&str]) -> String {
        let mut cleaner = Cleaner::default();
        let mut text: String = pieces.iter().map(|piece| cleaner.push(piece)).collect();
        text.push_str(&cleaner.finish());
        text
    }

    #[test]
    fn the_list_is_sorted_for_its_search() {
        assert!(OBSCENE.is_sorted());
        assert!(OBSCENE.iter().all(|word| word.len() <= LONGEST));
    }

    #[test]
    fn obscene_words_go_with_one_of_their_spaces() {
        assert_eq!(clean(&["That is fucking great."]), "That is great.");
        assert_eq!(clean(&["Shit happens."]), "happens.");
        assert_eq!(clean(&["What a WHORE!"]), "What a !");
        assert_eq!(clean(&["C'est de la merde, oui."]), "C'est de la , oui.");
    }

    #[test]
    fn words_that_only_contain_one_stay() {
        for text in [
            "Scunthorpe, Shitake and Mr. Fuckett's bastardisation.",
            "Class, assess, pass.",
            "",
            " a  b ",
        ] {
            assert_eq!(clean(&[text]), text);
        }
    }

    #[test]
    fn any_chunking_gives_the_same_text() {
        let text = "Well, shit: that fucking thing, merde alors! Ok";
        let whole = clean(&[text]);
        let letters: Vec<String> = text.chars().map(String::from).collect();
        let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
        assert_eq!(clean(&letters), whole);
        assert_eq!(whole, "Well, : that thing, alors! Ok");
        let long = "x".repeat(100);
        assert_eq!(clean(&[&long[..40], &long[40..]]), long);
    }
}
