//! What a model thinks aloud, and the marks of its template, are not for the caller. Servers put thoughts in front of
//! an answer or into it, between tags of many names, in channels (gpt-oss), or with the opening tag left in the
//! prompt, so that only the closing one comes. Pure.

use media::speech::TAKEN_BACK;

/// Names of tags with thoughts between them, in small letters.
const THOUGHTS: &[&str] = &[
    "analysis",
    "antthinking",
    "begin_of_thought",
    "chain_of_thought",
    "cot",
    "internal",
    "internal_monologue",
    "monologue",
    "reason",
    "reasoning",
    "reflection",
    "scratchpad",
    "seed:think",
    "think",
    "thinking",
    "thought",
    "thoughts",
];

/// Names of tags with tool calls or their answers between them.
const CALLS: &[&str] = &[
    "function",
    "function_call",
    "function_calls",
    "tool_call",
    "tool_calls",
    "tool_response",
    "tools",
];

/// Tags of templates with nothing between them.
const MARKS: &[&str] = &[
    "answer",
    "bos",
    "end_of_turn",
    "eos",
    "final",
    "final_answer",
    "output",
    "pad",
    "response",
    "s",
    "start_of_turn",
    "unk",
];

/// The longest mark, characters: `<|begin_of_thought|>` has twenty.
const LONGEST_MARK: usize = 40;

/// How answers begin that are thoughts whose opening tag stands in the prompt: nobody says so to a caller.
const BEGINNINGS: &[&str] = &[
    "alright, the ",
    "alright, so ",
    "alright, let",
    "analysis",
    "d'accord, l'utilisateur",
    "first, i need",
    "first, i should",
    "hmm",
    "i need to ",
    "i should ",
    "il faut que je ",
    "je dois ",
    "l'appelant ",
    "l'utilisateur ",
    "l’utilisateur ",
    "let me think",
    "let's think",
    "ok, so ",
    "ok, the user",
    "okay, i need",
    "okay, let",
    "okay, so ",
    "okay, the ",
    "réfléchissons",
    "so the user",
    "so, the user",
    "the caller ",
    "the question ",
    "the user",
    "thinking",
    "thought",
    "user ",
    "we are asked",
    "we have to ",
    "we need to ",
    "we should ",
];

/// Text that is known for an answer's, and text that may still be a mark.
#[derive(Debug, Default)]
pub(super) struct Spoken {
    place: Place,
    /// The beginning of a mark, perhaps.
    mark: String,
    /// What is said if no closing tag says that it was thought.
    waiting: String,
    begins: Begins,
    /// This model's answers are known to begin with thoughts.
    thinks: bool,
    /// Something was given out.
    given: bool,
    /// A closing tag came without its opening one.
    pub(super) closed_alone: bool,
    thought: bool,
    /// The role or the channel in a header.
    header: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Answer,
    /// Until the closing tag of a kind.
    Thought,
    Call,
    /// Between `<|channel|>` and `<|message|>`, or behind `<|start|>`.
    Header,
    /// Behind `<|im_start|>`, until the line ends.
    Role,
}

/// Whether the answer begins as thoughts do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Begins {
    #[default]
    Unknown,
    /// All of it waits for its end.
    AsThoughts,
    Plainly,
}

impl Spoken {
    /// `thinks`: this model's answers are known to begin with thoughts, or never to; `None`: they may.
    pub(super) fn new(thinks: Option<bool>) -> Self {
        Self {
            begins: match thinks {
                Some(true) => Begins::AsThoughts,
                Some(false) => Begins::Plainly,
                None => Begins::Unknown,
            },
            thinks: thinks == Some(true),
            ..Self::default()
        }
    }

    /// Whether text waits that is an answer as likely as thoughts.
    pub(super) fn waits(&self) -> bool {
        self.begins == Begins::AsThoughts && !self.thinks && !self.waiting.trim().is_empty()
    }

    /// Whether there were thoughts.
    pub(super) const fn thought(&self) -> bool {
        self.thought
    }

    /// The part of the text so far that is now known to be the answer's. With [`TAKEN_BACK`] in it where what was given
    /// out before turned out to be thoughts.
    pub(super) fn push(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for c in text.chars().filter(|c| *c != TAKEN_BACK) {
            self.take(c, &mut out);
        }
        out
    }

    /// What was held back and is no thought, at the end of the stream.
    pub(super) fn finish(&mut self) -> String {
        let mut out = String::new();
        let mark = std::mem::take(&mut self.mark);
        self.give(&mark, &mut out);
        if matches!(self.begins, Begins::Unknown | Begins::AsThoughts) {
            self.begins = Begins::Plainly;
            let waiting = std::mem::take(&mut self.waiting);
            // gpt-oss without its marks: "analysis…assistantfinal…".
            let (thoughts, answer) = waiting
                .split_once("assistantfinal")
                .filter(|(thoughts, _)| thoughts.trim_start().starts_with("analysis"))
                .unwrap_or(("", &waiting));
            self.thought |= !thoughts.is_empty();
            self.give_out(answer, &mut out);
        }
        out
    }

    fn take(&mut self, c: char, out: &mut String) {
        if self.mark.is_empty() {
            if matches!(c, '<' | '[' | '◁') {
                self.mark.push(c);
            } else {
                self.give(c.encode_utf8(&mut [0; 4]), out);
            }
            return;
        }
        if matches!(c, '<' | '[' | '◁') {
            let text = std::mem::take(&mut self.mark);
            self.give(&text, out);
            self.mark.push(c);
            return;
        }
        self.mark.push(c);
        let closes = matches!(
            (self.mark.chars().next(), c),
            (Some('<'), '>') | (Some('['), ']') | (Some('◁'), '▷')
        );
        if closes {
            let mark = std::mem::take(&mut self.mark);
            if !self.obey(&mark, out) {
                self.give(&mark, out);
            }
        } else if self.mark.chars().count() > LONGEST_MARK || !may_be_mark(&self.mark) {
            let text = std::mem::take(&mut self.mark);
            self.give(&text, out);
        }
    }

    /// Does what a whole mark says. `false`: it is none.
    fn obey(&mut self, mark: &str, out: &mut String) -> bool {
        let token = mark.starts_with("<|") || mark.starts_with("<｜");
        let inner = mark.trim_matches(['<', '>', '[', ']', '◁', '▷', '|', '｜']);
        let inner = inner.trim().to_lowercase();
        let (closing, inner) = match inner.strip_prefix('/') {
            Some(rest) => (true, rest.trim()),
            None => (false, inner.trim_end_matches('/')),
        };
        let name = inner.split_whitespace().next().unwrap_or_default();
        let (closing, name) = match ["end_of_", "end_", "start_", "begin_of_", "begin_"]
            .iter()
            .find_map(|prefix| Some((prefix, name.strip_prefix(prefix)?)))
            .filter(|_| token)
        {
            Some((prefix, rest)) => (prefix.starts_with("end"), rest),
            None => (closing, name),
        };
        if THOUGHTS.contains(&name) {
            match (closing, self.place) {
                (false, _) => self.open(Place::Thought),
                (true, Place::Answer) => self.close_alone(out),
                (true, _) => self.place = Place::Answer,
            }
            return true;
        }
        if CALLS.contains(&name) || name.starts_with("function=") {
            match closing {
                true if self.place == Place::Call => self.place = Place::Answer,
                true => {}
                false => self.open(Place::Call),
            }
            return true;
        }
        if !token {
            return mark.starts_with('<') && MARKS.contains(&name);
        }
        match name {
            "channel" | "start" => {
                self.header.clear();
                self.place = Place::Header;
            }
            "message" => {
                let channel = std::mem::take(&mut self.header).to_lowercase();
                let channel = channel.trim();
                let silent = ["analysis", "commentary"];
                match silent.iter().any(|word| channel.starts_with(word)) {
                    true => self.open(Place::Thought),
                    false => self.place = Place::Answer,
                }
            }
            "constrain" => {}
            "im_start" | "start_header_id" | "header_id" => self.place = Place::Role,
            // What follows the end of a message is the next one's header, or an answer after all.
            _ => self.place = Place::Answer,
        }
        true
    }

    fn open(&mut self, place: Place) {
        self.place = place;
        self.thought |= place == Place::Thought;
        if place == Place::Thought && self.waiting.trim().is_empty() && !self.given {
            // Its thoughts have tags on both sides: what follows is the answer.
            self.waiting.clear();
            self.begins = Begins::Plainly;
        }
    }

    /// All that came before was thought.
    fn close_alone(&mut self, out: &mut String) {
        self.thought = true;
        self.closed_alone = true;
        self.waiting.clear();
        self.begins = Begins::Plainly;
        out.clear();
        if std::mem::take(&mut self.given) {
            out.push(TAKEN_BACK);
        }
    }

    /// Text that is no mark.
    fn give(&mut self, text: &str, out: &mut String) {
        match self.place {
            Place::Answer => {}
            Place::Thought | Place::Call => return,
            Place::Header => {
                if self.header.len() < LONGEST_MARK {
                    self.header.push_str(text);
                }
                return;
            }
            Place::Role => {
                if text.contains('\n') {
                    self.place = Place::Answer;
                }
                return;
            }
        }
        match self.begins {
            Begins::Plainly => self.give_out(text, out),
            Begins::AsThoughts => self.waiting.push_str(text),
            Begins::Unknown => {
                self.waiting.push_str(text);
                let begun = self.waiting.trim_start().to_lowercase();
                if BEGINNINGS.iter().any(|words| begun.starts_with(words)) {
                    self.begins = Begins::AsThoughts;
                } else if !BEGINNINGS.iter().any(|words| words.starts_with(&begun)) {
                    self.begins = Begins::Plainly;
                    let waiting = std::mem::take(&mut self.waiting);
                    self.give_out(&waiting, out);
                }
            }
        }
    }

    /// The blanks between thoughts and answer belong to neither.
    fn give_out(&mut self, text: &str, out: &mut String) {
        let text = match self.given || !self.thought {
            true => text,
            false => text.trim_start(),
        };
        self.given |= !text.is_empty();
        out.push_str(text);
    }
}

/// Whether a text may go on to a mark that is known.
fn may_be_mark(text: &str) -> bool {
    let mut letters = text.chars();
    match letters.next() {
        Some('[') => {
            let text = text.to_lowercase();
            ["[think]", "[/think]", "[tool_calls]"]
                .iter()
                .any(|mark| mark.starts_with(&text))
        }
        Some('◁') => true,
        _ => {
            let inner = letters.as_str().trim_start_matches(['/', '|', '｜', ' ']);
            let name: String = inner
                .chars()
                .take_while(|c| !c.is_whitespace())
                .collect::<String>()
                .to_lowercase();
            let token = text.starts_with("<|") || text.starts_with("<｜");
            let plain = name.trim_end_matches('/');
            let whole = name.len() < inner.len();
            token
                || name.starts_with("function=")
                || THOUGHTS
                    .iter()
                    .chain(CALLS)
                    .chain(MARKS)
                    .chain(&["function="])
                    .any(|known| known.starts_with(plain) && (!whole || *known == plain))
        }
    }
}

#[cfg(test)]
#[path = "thoughts_tests.rs"]
mod tests;
