//! Text that stands beside a tool call and only repeats it ("book_table {…}", "Calling book_table") is not for the caller.
//! What looks like it waits: for the end of the answer, when the calls are known, or for the end of its first sentence, where
//! that names no tool. Pure.

use media::config::ToolSpec;
use media::speech::TAKEN_BACK;
use serde_json::Value;

/// The word with which a sentence begins that announces a call to nobody but a machine.
const ANNOUNCEMENTS: &[&str] = &[
    "action:",
    "appel",
    "arguments:",
    "calling",
    "function",
    "invoking",
    "parameters:",
    "tool",
    "using",
];

/// The text of one answer.
#[derive(Debug, Default)]
pub(super) struct Beside {
    /// The tools that may be called, in small letters.
    names: Vec<String>,
    word: String,
    /// All from here on waits.
    held: Option<String>,
    /// A word was given out.
    begun: bool,
}

impl Beside {
    pub(super) fn new(tools: &[ToolSpec]) -> Self {
        Self {
            names: tools.iter().map(|tool| tool.name.to_lowercase()).collect(),
            ..Self::default()
        }
    }

    /// What of the text does not look like a call. Without tools that is all of it.
    pub(super) fn push(&mut self, text: &str) -> String {
        if self.names.is_empty() {
            return text.to_owned();
        }
        let mut out = String::new();
        for c in text.chars() {
            if c == TAKEN_BACK {
                // What was held back was thought, too.
                self.word.clear();
                (self.held, self.begun) = (None, false);
                out.push(c);
                continue;
            }
            if let Some(held) = &mut self.held {
                held.push(c);
                if c.is_whitespace() && ends_sentence(held) && !self.may_be_call() {
                    let held = self.held.take().unwrap_or_default();
                    self.begun |= held.contains(char::is_alphanumeric);
                    out.push_str(&held);
                }
                continue;
            }
            self.word.push(c);
            if c.is_whitespace() || self.word.starts_with('{') {
                self.end_word(&mut out);
            }
        }
        out
    }

    /// Whether text waits.
    pub(super) const fn holds(&self) -> bool {
        self.held.is_some()
    }

    /// Whether what is held names a tool, or has arguments in it.
    fn may_be_call(&self) -> bool {
        let held = self.held.as_deref().unwrap_or_default();
        let said = held.to_lowercase();
        held.contains('{') || self.names.iter().any(|name| said.contains(name.as_str()))
    }

    fn end_word(&mut self, out: &mut String) {
        let word = std::mem::take(&mut self.word);
        if self.looks_like_call(&word) {
            self.held = Some(word);
        } else {
            self.begun |= word.contains(char::is_alphanumeric);
            out.push_str(&word);
        }
    }

    fn looks_like_call(&self, word: &str) -> bool {
        let word = word.trim().to_lowercase();
        let bare = word.trim_matches(|c: char| !c.is_alphanumeric());
        let is_identifier = |name: &str| name.contains(|c: char| !c.is_alphabetic());
        let names = |name: &String| {
            word.contains(name.as_str()) && is_identifier(name)
                || word.contains(&format!("{name}("))
                || !self.begun && bare == name
        };
        word.starts_with(['{', '`'])
            || word.starts_with("[{")
            || self.names.iter().any(names)
            || !self.begun && announces(&word)
    }

    /// The rest of the text, once the calls are known. A call that stands in the text alone is added to them.
    pub(super) fn finish(&mut self, calls: &mut Vec<(String, String)>) -> String {
        let mut out = String::new();
        self.end_word(&mut out);
        let Some(held) = self.held.take() else {
            return out;
        };
        if calls.is_empty()
            && let Some(call) = self.written(&held)
        {
            calls.push(call);
            return out;
        }
        let said = held.to_lowercase();
        let repeats = |(name, arguments): &(String, String)| {
            said.contains(&name.to_lowercase())
                || said.trim_start().starts_with(['{', '[', '`'])
                || arguments.len() > 2 && held.contains(arguments.as_str())
        };
        if !calls.iter().any(repeats) {
            out.push_str(&held);
        }
        out
    }

    /// A call that a model wrote as text, for its server did not know the form.
    fn written(&self, text: &str) -> Option<(String, String)> {
        let bare = text.trim().trim_matches('`').trim();
        let bare = bare.strip_prefix("json").unwrap_or(bare);
        let value: Value = serde_json::from_str(bare).ok()?;
        let value = value.get(0).unwrap_or(&value);
        let value = value
            .get("function")
            .filter(|f| f.is_object())
            .unwrap_or(value);
        let name = value["name"].as_str()?;
        let arguments = ["arguments", "parameters"]
            .iter()
            .find_map(|key| value.get(key).filter(|given| given.is_object()))?;
        let known = self.names.contains(&name.to_lowercase());
        known.then(|| (name.to_owned(), arguments.to_string()))
    }
}

/// Whether a word in small letters is one with which calls are announced: `tool_call:` is, `appelez` is not.
fn announces(word: &str) -> bool {
    let word = word.trim_start_matches(|c: char| !c.is_alphanumeric());
    let end = word.find(|c: char| !c.is_alphanumeric());
    let (first, after) = word.split_at(end.unwrap_or(word.len()));
    ANNOUNCEMENTS
        .iter()
        .any(|known| match known.strip_suffix(':') {
            Some(known) => first == known && after.contains(':'),
            None => first == *known,
        })
}

/// Whether a sentence is at its end here.
fn ends_sentence(text: &str) -> bool {
    let text = text.trim_end();
    let text = text.trim_end_matches(['"', '\'', '”', '’', '»', ')', '*']);
    text.trim_end().ends_with(['.', '!', '?', '…'])
}

#[cfg(test)]
mod tests {
    use media::config::ToolKind;

    use super::*;

    fn said(text: &str, size: usize, calls: &[(&str, &str)]) -> (String, usize) {
        let tool = |name: &str| ToolSpec {
            name: name.to_owned(),
            description: String::new(),
            kind: ToolKind::Client,
            parameters: "{}".to_owned(),
            timeout_ms: 1000,
            filler_message: None,
        };
        let mut beside = Beside::new(&[tool("book_table"), tool("weather")]);
        let letters: Vec<char> = text.chars().collect();
        let mut out = String::new();
        for piece in letters.chunks(size) {
            out.push_str(&beside.push(&piece.iter().collect::<String>()));
        }
        let mut calls: Vec<(String, String)> = calls
            .iter()
            .map(|(name, arguments)| ((*name).to_owned(), (*arguments).to_owned()))
            .collect();
        out.push_str(&beside.finish(&mut calls));
        (out, calls.len())
    }

    #[test]
    fn what_was_thought_of_a_call_holds_nothing_back() {
        let text = format!("I call book_table now.{TAKEN_BACK}One moment.");
        let call = [("book_table", "{}")];
        let expect = format!("I call {TAKEN_BACK}One moment.");
        for size in [1, 1000] {
            assert_eq!(said(&text, size, &call), (expect.clone(), 1));
        }
    }

    #[test]
    fn what_only_begins_like_a_call_is_given_out_with_its_sentence() {
        let names = ["book_table"].map(str::to_owned).to_vec();
        let beside = || Beside {
            names: names.clone(),
            ..Beside::default()
        };
        for word in ["Appelez ", "Tooling ", "Functional ", "Useful ", "Action "] {
            let mut plain = beside();
            assert_eq!(plain.push(word), word);
            assert!(!plain.holds());
        }
        for (sentence, rest) in [
            ("Using the side door is best. ", "It is open. "),
            ("Appel reçu ! ", "Je vous écoute. "),
            ("**Calling** you back (soon.) ", "Bye. "),
        ] {
            let mut held = beside();
            let (before, last) = sentence.split_at(sentence.len() - 1);
            assert_eq!(held.push(before), "", "{sentence}");
            assert!(held.holds(), "{sentence}");
            assert_eq!(held.push(last), sentence);
            assert!(!held.holds(), "{sentence}");
            assert_eq!(held.push(rest), rest);
        }
        for call in ["Calling book_table. Now ", "Tool: {\"a\": 1}. Then "] {
            let mut held = beside();
            assert_eq!(held.push(call), "");
            assert!(held.holds());
        }
    }

    #[test]
    fn text_that_repeats_a_call_is_not_said() {
        let call = [("book_table", r#"{"day":"monday"}"#)];
        for (text, expect) in [
            ("One moment, please.", "One moment, please."),
            ("book_table", ""),
            ("book_table(day=\"monday\")", ""),
            ("Sure. book_table {\"day\":\"monday\"}", "Sure. "),
            (r#"{"day":"monday"}"#, ""),
            ("```json\n{\"day\": \"monday\"}\n```", ""),
            ("Calling book_table now.", ""),
            (
                "Using my calendar, one moment.",
                "Using my calendar, one moment.",
            ),
            ("I look at the weather.", "I look at the weather."),
            (
                "Using my calendar. book_table {\"day\":\"monday\"}",
                "Using my calendar. ",
            ),
        ] {
            for size in [1, 2, 1000] {
                assert_eq!(said(text, size, &call), (expect.to_owned(), 1), "{text:?}");
            }
        }
        for size in [1, 1000] {
            assert_eq!(said("weather", size, &[("weather", "{}")]).0, "");
            assert_eq!(
                said("The {place} is free.", size, &[]).0,
                "The {place} is free."
            );
            let written = r#"{"name": "weather", "arguments": {"day": 1}}"#;
            assert_eq!(said(written, size, &[]), (String::new(), 1));
        }
    }
}
