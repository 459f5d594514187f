//! Placeholders `{{name}}` in an agent's texts: found, filled, and told when nothing fills them
//! (document 2, Agent). Pure.
//!
//! A text is cut into pieces once; printing the pieces gives the text back. Filling is one pass: a
//! value that itself holds braces is never read as a placeholder.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// Names and values that fill placeholders: strings, numbers and booleans.
pub type Variables = Map<String, Value>;

/// Names with this prefix belong to the built-ins; nobody may set them.
pub const RESERVED_PREFIX: &str = "system__";

/// The longest name, in bytes. A longer run between braces is ordinary text.
pub const MAX_NAME_BYTES: usize = 64;

/// What the call itself knows. An empty value is a value: a browser call has no caller id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Builtins {
    pub channel: String,
    pub caller_id: String,
    pub called_number: String,
    pub direction: String,
    pub conversation_id: String,
    pub agent_name: String,
    /// Time of day, UTC, `HH:MM`.
    pub time_utc: String,
    /// `YYYY-MM-DD`, UTC.
    pub date: String,
}

impl Builtins {
    /// Every built-in name.
    pub const NAMES: [&str; 8] = [
        "system__channel",
        "system__caller_id",
        "system__called_number",
        "system__direction",
        "system__conversation_id",
        "system__agent_name",
        "system__time_utc",
        "system__date",
    ];

    fn get(&self, name: &str) -> Option<&str> {
        let Self {
            channel,
            caller_id,
            called_number,
            direction,
            conversation_id,
            agent_name,
            time_utc,
            date,
        } = self;
        let values = [
            channel,
            caller_id,
            called_number,
            direction,
            conversation_id,
            agent_name,
            time_utc,
            date,
        ];
        let place = Self::NAMES.iter().position(|known| *known == name)?;
        values.get(place).map(|value| value.as_str())
    }
}

/// A text with its placeholders filled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rendered {
    pub text: String,
    /// Names that nothing filled, each once, in alphabetical order.
    pub unfilled: Vec<String>,
}

/// Fills a prompt. An unfilled placeholder becomes `[name: not provided]`, which a model can act on.
pub fn render(text: &str, variables: &Variables, builtins: &Builtins) -> Rendered {
    fill(text, variables, builtins, |name| {
        format!("[{name}: not provided]")
    })
}

/// Fills a text that is spoken as it stands: what is not known is left out, with the space before it.
pub fn render_spoken(text: &str, variables: &Variables, builtins: &Builtins) -> Rendered {
    let mut rendered = fill(text, variables, builtins, |_| String::new());
    if !rendered.unfilled.is_empty() {
        rendered.text = rendered
            .text
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        for mark in [",", ".", "!", "?"] {
            rendered.text = rendered.text.replace(&format!(" {mark}"), mark);
        }
    }
    rendered
}

/// The placeholders with neither a default nor a built-in; a blank default counts as none. Each once,
/// in alphabetical order.
pub fn unfilled<'a>(texts: impl IntoIterator<Item = &'a str>, defaults: &Variables) -> Vec<String> {
    let names: BTreeSet<&str> = texts.into_iter().flat_map(names).collect();
    names
        .into_iter()
        .filter(|name| !Builtins::NAMES.contains(name) && value_of(name, defaults).is_none())
        .map(str::to_owned)
        .collect()
}

/// The names in the text, in order, repeats included.
pub fn names(text: &str) -> impl Iterator<Item = &str> {
    Pieces { rest: text }.filter_map(|piece| match piece {
        Piece::Placeholder { name, .. } => Some(name),
        Piece::Text(_) => None,
    })
}

/// The session's variables over the agent's defaults.
pub fn merged(defaults: &Variables, session: &Variables) -> Variables {
    let mut all = defaults.clone();
    all.extend(
        session
            .iter()
            .map(|(name, value)| (name.clone(), value.clone())),
    );
    all
}

/// What the values of a text may bring it to, bytes: a short value in a text that names it ten thousand times is one
/// thing, a long one another. A value that would go beyond stands unfilled.
const MOST_FILLED: usize = 512 << 10;

fn fill(
    text: &str,
    variables: &Variables,
    builtins: &Builtins,
    missing: impl Fn(&str) -> String,
) -> Rendered {
    let mut out = String::with_capacity(text.len());
    let mut unfilled = BTreeSet::new();
    for piece in (Pieces { rest: text }) {
        match piece {
            Piece::Text(text) => out.push_str(text),
            Piece::Placeholder { name, .. } => {
                let value = builtins.get(name).map(Cow::Borrowed);
                let value = value.or_else(|| value_of(name, variables).map(Cow::Owned));
                if let Some(value) = value.filter(|value| out.len() + value.len() <= MOST_FILLED) {
                    out.push_str(&value);
                } else {
                    out.push_str(&missing(name));
                    unfilled.insert(name.to_owned());
                }
            }
        }
    }
    Rendered {
        text: out,
        unfilled: unfilled.into_iter().collect(),
    }
}

/// What a variable says; `None` if it is absent, blank, reserved or no scalar.
fn value_of(name: &str, variables: &Variables) -> Option<String> {
    if name.starts_with(RESERVED_PREFIX) {
        return None;
    }
    let text = match variables.get(name)? {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Bool(flag) => flag.to_string(),
        Value::Null | Value::Array(_) | Value::Object(_) => return None,
    };
    (!text.trim().is_empty()).then_some(text)
}

/// A stretch of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece<'a> {
    Text(&'a str),
    /// `whole` is what stands in the text, with braces and inner spaces.
    Placeholder {
        name: &'a str,
        whole: &'a str,
    },
}

/// Cuts a text into pieces, left to right, each byte once.
struct Pieces<'a> {
    rest: &'a str,
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        if let Some((name, length)) = placeholder_at_start(self.rest) {
            let (whole, rest) = self.rest.split_at(length);
            self.rest = rest;
            return Some(Piece::Placeholder { name, whole });
        }
        let end = self
            .rest
            .match_indices("{{")
            .map(|(place, _)| place)
            // `{{{name}}` holds a placeholder one brace further on.
            .flat_map(|place| [place, place + 1])
            .find(|&place| place > 0 && placeholder_at_start(&self.rest[place..]).is_some())
            .unwrap_or(self.rest.len());
        let (text, rest) = self.rest.split_at(end);
        self.rest = rest;
        Some(Piece::Text(text))
    }
}

/// The name and the whole length of the placeholder that the text begins with.
fn placeholder_at_start(text: &str) -> Option<(&str, usize)> {
    /// Spaces around a name: enough for a tidy author, few enough to keep the scan linear.
    const MAX_PADDING: usize = 16;
    let inner = text.strip_prefix("{{")?;
    let padding = inner
        .bytes()
        .take(MAX_PADDING)
        .take_while(|byte| *byte == b' ')
        .count();
    let name_on = &inner[padding..];
    let length = name_on
        .bytes()
        .take(MAX_NAME_BYTES + 1)
        .take_while(|byte| is_name_byte(*byte))
        .count();
    let name = &name_on[..length];
    let after = &name_on[length..];
    let closing = after
        .bytes()
        .take(MAX_PADDING)
        .take_while(|byte| *byte == b' ')
        .count();
    let closed = after[closing..].starts_with("}}");
    let first_is_letter =
        name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    (closed && first_is_letter && length <= MAX_NAME_BYTES)
        .then_some((name, 2 + padding + length + closing + 2))
}

const fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn variables(value: Value) -> Variables {
        value.as_object().cloned().unwrap_or_default()
    }

    fn builtins() -> Builtins {
        Builtins {
            channel: "websocket".into(),
            agent_name: "Reception".into(),
            ..Builtins::default()
        }
    }

    #[track_caller]
    fn check(text: &str, values: Value, expect: &str, unfilled: &[&str]) {
        let rendered = render(text, &variables(values), &builtins());
        assert_eq!(rendered.text, expect);
        assert_eq!(rendered.unfilled, unfilled);
    }

    #[test]
    fn fills_strings_numbers_and_booleans() {
        check(
            "{{a}} {{ b }} {{c}}",
            json!({"a": "x", "b": 2.5, "c": true}),
            "x 2.5 true",
            &[],
        );
    }

    #[test]
    fn names_what_nothing_fills_once() {
        check(
            "Hi {{who}}, {{who}}! {{day}}",
            json!({"day": " "}),
            "Hi [who: not provided], [who: not provided]! [day: not provided]",
            &["day", "who"],
        );
    }

    #[test]
    fn builtins_win_and_an_empty_one_is_filled() {
        check(
            "{{system__channel}}/{{system__caller_id}}.",
            json!({"system__channel": "forged"}),
            "websocket/.",
            &[],
        );
    }

    #[test]
    fn an_unsupported_system_name_is_unfilled_even_when_given() {
        check(
            "{{system__moon}}",
            json!({"system__moon": "full"}),
            "[system__moon: not provided]",
            &["system__moon"],
        );
    }

    #[test]
    fn values_fill_a_text_up_to_a_bound_and_are_told_of_beyond() {
        let variables = variables(json!({"a": "x".repeat(10_000), "b": "short"}));
        let text = format!("{}{{{{b}}}}", "{{a}}".repeat(20_000));
        let rendered = render_spoken(&text, &variables, &builtins());
        assert!(
            rendered.text.len() <= MOST_FILLED,
            "{}",
            rendered.text.len()
        );
        assert!(rendered.text.len() > MOST_FILLED - 10_000);
        assert!(rendered.text.ends_with("short"));
        assert_eq!(rendered.unfilled, ["a"]);
    }

    #[test]
    fn a_value_with_braces_is_not_read_again() {
        check("{{a}}", json!({"a": "{{b}}", "b": "never"}), "{{b}}", &[]);
    }

    #[test]
    fn what_is_no_placeholder_stays() {
        for text in [
            "{a}", "{{}}", "{{1a}}", "{{a b}}", "{{a", "a}}", "{{é}}", "{{ }}", "{ {a} }",
        ] {
            check(text, json!({"a": "x"}), text, &[]);
        }
        check("{{{a}}}", json!({"a": "x"}), "{x}", &[]);
        check(
            &format!("{{{{{}}}}}", "n".repeat(65)),
            json!({}),
            &format!("{{{{{}}}}}", "n".repeat(65)),
            &[],
        );
    }

    #[test]
    fn a_greeting_leaves_the_unknown_out() {
        let rendered = render_spoken(
            "Hello {{name}}, how may I help?",
            &Variables::new(),
            &builtins(),
        );
        assert_eq!(
            (rendered.text.as_str(), rendered.unfilled),
            ("Hello, how may I help?", vec!["name".to_owned()])
        );
        assert_eq!(
            render_spoken("A  b .", &Variables::new(), &builtins()).text,
            "A  b ."
        );
    }

    #[test]
    fn a_blank_default_counts_as_none() {
        let defaults = variables(json!({"a": "", "b": "x", "c": 0}));
        assert_eq!(
            unfilled(
                ["{{a}} {{b}} {{c}} {{d}} {{system__date}} {{system__x}}"],
                &defaults
            ),
            ["a", "d", "system__x"]
        );
    }

    #[test]
    fn a_long_run_of_braces_is_read_in_time() {
        let text = "{{ ".repeat(30_000);
        assert_eq!(names(&text).count(), 0);
        assert_eq!(render(&text, &Variables::new(), &builtins()).text, text);
    }

    /// Texts made of the characters that matter.
    fn text() -> impl Strategy<Value = String> {
        proptest::collection::vec(
            prop_oneof![
                "\\{{1,3}",
                "\\}{1,3}",
                "[a-c_1é ]{0,3}",
                Just("{{name}}".to_owned())
            ],
            0..20,
        )
        .prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn the_pieces_are_the_text(text in text()) {
            let printed: String = Pieces { rest: &text }
                .map(|piece| match piece { Piece::Text(text) => text, Piece::Placeholder { whole, .. } => whole })
                .collect();
            prop_assert_eq!(printed, text);
        }

        #[test]
        fn a_blank_template_reads_back_to_the_same_names(text in text()) {
            let blank: String = Pieces { rest: &text }
                .map(|piece| match piece {
                    Piece::Text(text) => text.replace(['{', '}'], ""),
                    Piece::Placeholder { name, .. } => format!("{{{{{name}}}}}"),
                })
                .collect();
            let found: Vec<&str> = names(&text).collect();
            prop_assert_eq!(names(&blank).collect::<Vec<_>>(), found);
        }

        #[test]
        fn filling_all_names_leaves_none(text in text()) {
            let all: Variables = names(&text).map(|name| (name.to_owned(), json!("v"))).collect();
            let rendered = render(&text, &all, &Builtins::default());
            prop_assert!(rendered.unfilled.is_empty());
        }
    }
}
