//! What a reasoning model thinks aloud is not for the caller: local servers put it in front of the
//! answer, between `<think>` and `</think>`. Pure.

/// Keeps thoughts out of a stream of text.
#[derive(Debug, Default)]
pub(super) enum Thoughts {
    /// Nothing but the beginning of a mark, perhaps, has come.
    #[default]
    Undecided,
    Thinking,
    Speaking,
}

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// The stream with the text that is not decided on yet.
#[derive(Debug, Default)]
pub(super) struct Spoken {
    state: Thoughts,
    held: String,
}

impl Spoken {
    /// The part of the text so far that is now known to be the answer's.
    pub(super) fn push(&mut self, text: &str) -> String {
        if matches!(self.state, Thoughts::Speaking) {
            return text.to_owned();
        }
        self.held.push_str(text);
        if matches!(self.state, Thoughts::Undecided) {
            let start = self.held.trim_start();
            if start.starts_with(OPEN) {
                self.state = Thoughts::Thinking;
            } else if OPEN.starts_with(start) {
                return String::new();
            } else {
                self.state = Thoughts::Speaking;
                return std::mem::take(&mut self.held);
            }
        }
        match self.held.find(CLOSE) {
            Some(at) => {
                self.state = Thoughts::Speaking;
                let rest = self.held.split_off(at + CLOSE.len());
                self.held.clear();
                rest.trim_start().to_owned()
            }
            None => {
                // Only the mark's beginning can still matter.
                let keep = self.held.len().saturating_sub(CLOSE.len());
                let cut = (0..=keep).rev().find(|&at| self.held.is_char_boundary(at));
                self.held.drain(..cut.unwrap_or(0));
                String::new()
            }
        }
    }

    /// What was held back and is no thought, at the end of the stream.
    pub(super) fn finish(&mut self) -> String {
        match self.state {
            Thoughts::Undecided => std::mem::take(&mut self.held),
            Thoughts::Thinking | Thoughts::Speaking => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spoken(parts: &[&str]) -> String {
        let mut stream = Spoken::default();
        let mut out: String = parts.iter().map(|part| stream.push(part)).collect();
        out.push_str(&stream.finish());
        out
    }

    #[test]
    fn thoughts_are_kept_in() {
        assert_eq!(spoken(&["Hello", " there"]), "Hello there");
        assert_eq!(
            spoken(&["<th", "ink>I wonder é", "</thi", "nk>\n\nYes.", " Sure."]),
            "Yes. Sure."
        );
        assert_eq!(spoken(&["<think>without end"]), "");
        assert_eq!(spoken(&["<", "3 hearts"]), "<3 hearts");
        assert_eq!(spoken(&["<thi"]), "<thi");
        let letters: Vec<String> = "<think>a</think>b <think>"
            .chars()
            .map(String::from)
            .collect();
        let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
        assert_eq!(spoken(&letters), "b <think>");
    }
}
