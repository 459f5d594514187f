//! Turns what a model writes into what a person would say: without Markdown, tags, code and emoji, and with
//! addresses in words. Text comes in pieces; however it is cut, the same comes out.
//!
//! Words are looked at one by one, as each ends. A link, a tag, a row of a table and a block of code are held
//! back until their end, within bounds. Where a list's items begin, and where a list is over, is told to
//! [`Sentences`](super::sentences::Sentences) by [`ITEM`] and [`LIST_OVER`].

use super::address;
use super::sentences::{ITEM, LIST_OVER};
use crate::config::Language;

/// A label or a tag longer than this (bytes) is read as the words that it is made of; what is longer of an address is left out.
const LONGEST_HELD: usize = 300;

/// The marks behind an address that are kept though the address was too long, bytes.
const LONGEST_TAIL: usize = 8;

/// A row of a table or a line of code is cut here, bytes.
const LONGEST_LINE: usize = 2_000;

const BULLETS: &[&str] = &[
    "-", "*", "+", "•", "◦", "▪", "‣", "·", "–", "—", "●", "○", "►", "➤", "→",
];

/// Faces made of letters and marks.
const FACES: &[&str] = &[
    ":)", ":-)", ":(", ":-(", ";)", ";-)", ":D", ":-D", ":P", ":-P", "<3", "^^", "xD", "XD",
];

/// What may stand around a word without being a part of it.
const OPENING: &[char] = &['(', '[', '"', '\'', '“', '‘', '«'];
const CLOSING: &[char] = &[
    '.', ',', ';', ':', '!', '?', '…', ')', ']', '"', '\'', '”', '’', '»',
];

/// The pass of one reply.
#[derive(Debug)]
pub struct Plain {
    language: Language,
    /// What is not decided on: a word, perhaps with blanks in it; in a table or a block of code its line.
    held: String,
    /// An address is too long and left out from here on, until this; a blank: until its word ends.
    until: Option<char>,
    /// Something of what is held was left out.
    cut: bool,
    /// The marks with which the part that is left out ends so far.
    tail: String,
    place: Place,
    /// Nothing of this line was said yet; how many blanks it began with.
    begins: bool,
    indent: usize,
    /// The line is a list's item.
    item: bool,
    list: bool,
    /// The number of the newest item.
    number: u32,
    gap: Gap,
    last: Option<char>,
    /// A word was left out since the last one.
    left_out: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Text,
    /// The row of a table.
    Row,
    /// The rest of a line that nobody says; then this.
    Rest {
        prose: bool,
    },
    /// A block of code; `prose`: it may be a text.
    Code {
        prose: bool,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Gap {
    #[default]
    None,
    Blank,
    Line,
}

impl Plain {
    pub fn new(language: Language) -> Self {
        Self {
            language,
            held: String::new(),
            until: None,
            cut: false,
            tail: String::new(),
            place: Place::Text,
            begins: true,
            indent: 0,
            item: false,
            list: false,
            number: 0,
            gap: Gap::None,
            last: None,
            left_out: false,
        }
    }

    /// A whole text at once, as it is said.
    pub fn text(text: &str, language: Language) -> String {
        let mut plain = Self::new(language);
        let mut said = plain.push(text);
        said.push_str(&plain.finish());
        said.retain(|c| c != ITEM && c != LIST_OVER);
        said
    }

    /// The next piece of the text; what can be said of it now.
    pub fn push(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(self.held.len() + text.len());
        for c in text.chars() {
            self.take(c, &mut out);
        }
        out
    }

    /// The text is over, or something else comes between: what was held back. What follows stands on a line of its own.
    pub fn finish(&mut self) -> String {
        let mut out = String::new();
        self.end(&mut out);
        self.held.clear();
        self.place = Place::Text;
        (self.gap, self.last) = (Gap::None, None);
        (self.begins, self.indent, self.item) = (true, 0, false);
        out
    }

    fn take(&mut self, c: char, out: &mut String) {
        if c == '\n' {
            self.end(out);
            self.end_line(out);
            return;
        }
        if (c.is_control() && c != '\t') || is_invisible(c) {
            return;
        }
        if self.place != Place::Text {
            self.lengthen_line(c);
            return;
        }
        if c.is_whitespace() {
            if self.held.is_empty() {
                self.indent += usize::from(self.begins);
                self.widen(Gap::Blank, out);
            } else if self.until.is_none()
                && self.held.len() < LONGEST_HELD
                && unclosed(&self.held).is_some()
            {
                self.held.push(' ');
            } else {
                self.end(out);
                self.widen(Gap::Blank, out);
            }
            return;
        }
        if let Some(until) = self.until {
            if c == until {
                self.close(until);
            } else if !CLOSING.contains(&c) {
                self.tail.clear();
            } else if self.tail.len() < LONGEST_TAIL {
                self.tail.push(c);
            }
            return;
        }
        self.held.push(c);
        let most = if self.cut {
            2 * LONGEST_HELD
        } else {
            LONGEST_HELD
        };
        if self.begins && self.held == "|" {
            self.place = Place::Row;
        } else if self.held.len() >= most {
            self.until = long_address(&self.held);
            match self.until {
                Some(_) => self.begin_cut(),
                None => self.end(out),
            }
        }
    }

    /// What follows of an address is left out.
    fn begin_cut(&mut self) {
        self.cut = true;
        // Marks at its end may be within it, and are known for others only when it has ended.
        let kept = self.held.trim_end_matches(CLOSING).len();
        self.tail = self.held.split_off(kept);
    }

    /// The end of an address of which a part was left out.
    fn close(&mut self, until: char) {
        let tail = std::mem::take(&mut self.tail);
        if until == ' ' {
            self.held.push_str(&tail);
        } else {
            self.held.push(until);
        }
        self.until = None;
    }

    /// The next letter of a line that is looked at as a whole.
    fn lengthen_line(&mut self, c: char) {
        if self.held.len() < LONGEST_LINE {
            self.held.push(c);
        } else if matches!(self.place, Place::Rest { .. })
            && !self.held.ends_with("```")
            && !self.held.ends_with("~~~")
        {
            // Past the limit, only whether the three marks come that end the code.
            if !self.held.ends_with(c) {
                let kept = self.held.trim_end_matches(['`', '~']).len();
                self.held.truncate(kept);
            }
            if matches!(c, '`' | '~') {
                self.held.push(c);
            }
        }
    }

    /// Decides on what is held.
    fn end(&mut self, out: &mut String) {
        if let Some(until) = self.until {
            self.close(until);
        }
        self.cut = false;
        let held = std::mem::take(&mut self.held);
        match self.place {
            Place::Text if held.is_empty() => {}
            Place::Text => self.end_word(&held, out),
            Place::Row => self.say_row(&held, out),
            // What begins and ends on one line is no block of code.
            Place::Rest { .. } if has_fence(&held) => {
                self.place = Place::Text;
                let said = inline(&held.replace("~~~", ""), self.language);
                self.say(&said, out);
            }
            Place::Rest { .. } => {}
            Place::Code { prose } => {
                let line = held.trim();
                if line.starts_with("```") || line.starts_with("~~~") {
                    self.place = Place::Text;
                } else if prose && !line.contains(['{', '}', '=', ';', '<', '>', '(', '_']) {
                    self.say(line, out);
                }
            }
        }
    }

    fn end_line(&mut self, out: &mut String) {
        self.held.clear();
        self.place = match self.place {
            Place::Rest { prose } | Place::Code { prose } => Place::Code { prose },
            Place::Text | Place::Row => Place::Text,
        };
        self.widen(Gap::Line, out);
        self.begins = true;
        self.indent = 0;
        self.item = false;
    }

    fn end_word(&mut self, word: &str, out: &mut String) {
        if let Some(info) = fence(word) {
            let prose = ["", "text", "txt", "plaintext", "markdown", "md"];
            self.place = Place::Rest {
                prose: prose.contains(&info.to_lowercase().as_str()),
            };
            // In case that it ends on this line.
            if !info.is_empty() {
                self.held = format!("{info} ");
            }
            return;
        }
        let mut word = word;
        if self.begins {
            match self.without_mark(word, out) {
                Some(rest) => word = rest,
                None => return,
            }
        }
        let said = inline(word, self.language);
        self.say(&said, out);
    }

    /// What stands after the mark at the beginning of a line; `None`: the word is nothing but one.
    fn without_mark<'a>(&mut self, word: &'a str, out: &mut String) -> Option<&'a str> {
        let word = word.trim_start_matches('>');
        if word.is_empty() || is_rule(word) {
            return None;
        }
        let rest = word.trim_start_matches('#');
        if rest.is_empty() {
            return None;
        }
        let rest = if rest.starts_with(char::is_alphabetic) || word.starts_with("##") {
            rest
        } else {
            word
        };
        if BULLETS.contains(&rest) {
            self.begin_item(out);
            return None;
        }
        if let Some(number) = numbered(rest)
            && (number == 1 || number == self.number + 1)
        {
            self.number = number;
            self.begin_item(out);
            return None;
        }
        if self.item && matches!(rest, "[ ]" | "[x]" | "[X]") {
            return None;
        }
        match rest.strip_prefix('•') {
            Some(rest) => {
                self.begin_item(out);
                Some(rest)
            }
            None => Some(rest),
        }
    }

    fn begin_item(&mut self, out: &mut String) {
        self.flush(out);
        out.push(ITEM);
        (self.item, self.list) = (true, true);
    }

    /// Says words of the line under way.
    fn say(&mut self, text: &str, out: &mut String) {
        for word in text.split_whitespace() {
            let bar = word == "|";
            let kept: String = word.chars().filter(|c| !is_picture(*c)).collect();
            if kept.is_empty() || is_rule(word) || FACES.contains(&word) || bar {
                if bar && self.last.is_some_and(char::is_alphanumeric) {
                    out.push(',');
                    self.last = Some(',');
                }
                self.left_out = true;
                continue;
            }
            if std::mem::take(&mut self.begins) && self.list && !self.item && self.indent < 2 {
                self.flush(out);
                out.push(LIST_OVER);
                self.list = false;
                self.number = 0;
            }
            // "Great 😀." is "Great."
            let after_picture = std::mem::take(&mut self.left_out) || kept.len() != word.len();
            let joins = after_picture
                && self.gap == Gap::Blank
                && kept.chars().all(|c| CLOSING.contains(&c));
            if joins {
                self.gap = Gap::None;
            }
            self.flush(out);
            out.push_str(&kept);
            self.last = kept.chars().next_back();
            self.gap = Gap::Blank;
        }
    }

    /// Says the row of a table: its cells, with commas between. The line under the head is not said.
    fn say_row(&mut self, row: &str, out: &mut String) {
        if row
            .chars()
            .all(|c| matches!(c, '|' | '-' | ':' | ' ' | '\t'))
        {
            return;
        }
        let cells: Vec<String> = row
            .split('|')
            .map(|cell| inline(cell.trim(), self.language))
            .filter(|cell| !cell.trim().is_empty())
            .collect();
        self.say(&cells.join(", "), out);
    }

    /// There are blanks here. They are given out at once where a sentence or a clause may end, and else with the
    /// next word.
    fn widen(&mut self, gap: Gap, out: &mut String) {
        self.gap = self.gap.max(gap);
        if self.gap == Gap::Line || self.last.is_some_and(|last| !last.is_alphanumeric()) {
            self.flush(out);
        }
    }

    fn flush(&mut self, out: &mut String) {
        let c = match std::mem::take(&mut self.gap) {
            Gap::None => return,
            Gap::Blank => ' ',
            Gap::Line => '\n',
        };
        let wanted = match self.last {
            None | Some('\n') => false,
            Some(' ') => c == '\n',
            Some(_) => true,
        };
        if wanted {
            out.push(c);
            self.last = Some(c);
        }
    }
}

/// With what a link or a tag in it would end that has no end yet: a tag with `>`, a label with `]`, a target with `)`.
fn unclosed(held: &str) -> Option<char> {
    let mut rest = held;
    while let Some(at) = rest.find(['[', '<']) {
        let (mark, after) = (rest.as_bytes()[at], &rest[at + 1..]);
        if mark == b'<' {
            match (starts_tag(after), after.find('>')) {
                (true, None) => return Some('>'),
                (true, Some(end)) => rest = &after[end + 1..],
                (false, _) => rest = after,
            }
            continue;
        }
        let Some(end) = after.find(']') else {
            return Some(']');
        };
        rest = &after[end + 1..];
        if let Some(target) = rest.strip_prefix('(') {
            match target.find(')') {
                None => return Some(')'),
                Some(end) => rest = &target[end + 1..],
            }
        }
    }
    None
}

/// Where the end of what is held is an address: what ends it, a blank for one without marks around it.
fn long_address(held: &str) -> Option<char> {
    match unclosed(held) {
        Some(')') => Some(')'),
        Some('>') => {
            let (_, inside) = held.rsplit_once('<')?;
            (begins_address(inside) && !inside.contains(' ')).then_some('>')
        }
        Some(_) => None,
        None => {
            let word = held.rsplit(' ').next().unwrap_or_default();
            let word = word.trim_start_matches(|c| OPENING.contains(&c) || c == '*' || c == '_');
            begins_address(word).then_some(' ')
        }
    }
}

/// Whether it begins with a scheme, or as the names of web servers do.
fn begins_address(word: &str) -> bool {
    let is_scheme = |scheme: &str| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    };
    let www = word
        .get(..4)
        .is_some_and(|begins| begins.eq_ignore_ascii_case("www."));
    www || word
        .split_once("://")
        .is_some_and(|(scheme, _)| is_scheme(scheme))
}

/// Whether the three marks stand in it that end a block of code.
fn has_fence(line: &str) -> bool {
    line.contains("```") || line.contains("~~~")
}

fn starts_tag(after: &str) -> bool {
    after.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/' || c == '!')
}

/// The words that a piece of Markdown stands for.
fn inline(text: &str, language: Language) -> String {
    let mut bare = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        rest = match c {
            '[' => bracket(after, &mut bare),
            '<' => tag(after, &mut bare),
            '&' => entity(after, &mut bare),
            '`' => after,
            '~' if after.starts_with('~') => &after[1..],
            '\\' if after.starts_with(|c: char| c.is_ascii_punctuation()) => after,
            _ => {
                bare.push(c);
                after
            }
        };
    }
    let words: Vec<String> = bare
        .split_whitespace()
        .map(|word| without_emphasis(word, language))
        .collect();
    words.join(" ")
}

/// What follows `[`: a link is said as its text, a reference to a source not at all.
fn bracket<'a>(after: &'a str, out: &mut String) -> &'a str {
    let Some((label, rest)) = after.split_once(']') else {
        out.push('[');
        return after;
    };
    let target = match rest.as_bytes().first() {
        Some(b'(') => rest[1..].split_once(')'),
        Some(b'[') => rest[1..].split_once(']'),
        _ => None,
    };
    if let Some((target, rest)) = target {
        if out.ends_with('!') {
            out.pop();
        }
        let target = target.split_whitespace().next().unwrap_or_default();
        let shown = if label.trim().is_empty() {
            target
        } else {
            label
        };
        out.push_str(shown.trim());
        return rest;
    }
    let is_source = label.starts_with('^') || label.chars().all(|c| c.is_ascii_digit());
    if !is_source {
        out.push('[');
        out.push_str(label);
        out.push(']');
    }
    rest
}

/// What follows `<`: an address is said, a tag is not.
fn tag<'a>(after: &'a str, out: &mut String) -> &'a str {
    let Some((content, rest)) = after.split_once('>').filter(|_| starts_tag(after)) else {
        out.push('<');
        return after;
    };
    if content.contains("://") && !content.contains(' ') || content.contains('@') {
        out.push_str(content);
    } else {
        let name = content.trim_matches('/').split_whitespace().next();
        let breaks = ["br", "p", "div", "li", "ul", "ol", "tr", "td", "th"];
        if name.is_some_and(|name| breaks.contains(&name.to_lowercase().as_str())) {
            out.push(' ');
        }
    }
    rest
}

fn entity<'a>(after: &'a str, out: &mut String) -> &'a str {
    let known = [
        ("amp;", "&"),
        ("lt;", "<"),
        ("gt;", ">"),
        ("quot;", "\""),
        ("apos;", "'"),
        ("#39;", "'"),
        ("nbsp;", " "),
    ];
    for (name, text) in known {
        if let Some(rest) = after.strip_prefix(name) {
            out.push_str(text);
            return rest;
        }
    }
    out.push('&');
    after
}

/// One word without the marks of emphasis; an address in words.
fn without_emphasis(word: &str, language: Language) -> String {
    let strong = word.replace("**", "");
    let is_emphasis = |c: char| c == '*' || c == '_';
    let inner = strong.trim_start_matches(OPENING);
    let (before, inner) = strong.split_at(strong.len() - inner.len());
    let inner = inner.trim_start_matches(is_emphasis);
    let inner = inner.trim_start_matches(OPENING);
    let core = inner.trim_end_matches(|c| is_emphasis(c) || CLOSING.contains(&c));
    let after: String = inner[core.len()..]
        .chars()
        .filter(|c| !is_emphasis(*c))
        .collect();
    match address::said(core, language) {
        Some(said) => format!("{before}{said}{after}"),
        None => format!("{before}{}{after}", core.replace('_', " ")),
    }
}

/// The word after the three marks that begin or end a block of code.
fn fence(word: &str) -> Option<&str> {
    let info = word
        .strip_prefix("```")
        .or_else(|| word.strip_prefix("~~~"))?;
    let info = info.trim_start_matches(['`', '~']);
    info.chars()
        .all(|c| c.is_alphanumeric() || "+#-_.".contains(c))
        .then_some(info)
}

/// A line of its own between two parts, or under a table's head.
fn is_rule(word: &str) -> bool {
    let mut marks = word.chars().filter(|c| !matches!(c, '|' | ':'));
    let Some(first) = marks.next().filter(|c| matches!(c, '-' | '*' | '_' | '=')) else {
        return false;
    };
    word.len() >= 3 && marks.all(|c| c == first)
}

/// The number of `1.`, `1)`, `(1)`, `**1.**` or `a)`.
fn numbered(word: &str) -> Option<u32> {
    let word = word.trim_matches('*');
    let inner = word.strip_suffix(['.', ')'])?;
    let inner = inner.strip_suffix(['.', ')']).unwrap_or(inner);
    let inner = inner.strip_prefix('(').unwrap_or(inner);
    let letters = inner.as_bytes();
    if word.ends_with(')') && letters.len() == 1 && letters[0].is_ascii_lowercase() {
        return Some(u32::from(letters[0] - b'a') + 1);
    }
    let digits = (1..=2).contains(&inner.len()) && inner.bytes().all(|c| c.is_ascii_digit());
    digits.then(|| inner.parse().ok()).flatten()
}

/// Pictures and arrows, and what joins and colours them.
const fn is_picture(c: char) -> bool {
    matches!(c,
        '\u{1f000}'..='\u{1faff}'
        | '\u{2190}'..='\u{21ff}'
        | '\u{2300}'..='\u{23ff}'
        | '\u{25a0}'..='\u{27bf}'
        | '\u{2900}'..='\u{297f}'
        | '\u{2b00}'..='\u{2bff}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{e0020}'..='\u{e007f}'
        | '\u{20e3}' | '\u{3030}' | '\u{303d}' | '•' | '‣')
}

const fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}' | '\u{ad}' | '\u{202a}'..='\u{202e}'
    )
}

#[cfg(test)]
#[path = "plain_tests.rs"]
mod tests;
