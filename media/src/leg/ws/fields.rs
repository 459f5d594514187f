//! Takes a message apart that is not of the usual shape: the full parser, then one field at a time,
//! forgiving about strings for numbers and the like, exact in what it says is wrong.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::scan;

/// Why a message cannot be used.
#[derive(Debug, PartialEq)]
pub(super) struct Refusal {
    pub(super) code: &'static str,
    pub(super) message: Cow<'static, str>,
}

/// The code of a message that is not what the protocol says.
pub(super) const INVALID_FRAME: &str = "invalid_frame";

/// The code of a message whose type nobody knows.
const UNKNOWN_TYPE: &str = "unknown_type";

impl Refusal {
    pub(super) fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code: INVALID_FRAME,
            message: message.into(),
        }
    }

    pub(super) fn unknown_type(kind: &str) -> Self {
        // Enough to find the mistake by; a stranger's text is not echoed at any length.
        const SHOWN: usize = 40;
        let shown: String = kind.chars().take(SHOWN).collect();
        let message = format!("messages of type {shown:?} are not known");
        Self {
            code: UNKNOWN_TYPE,
            message: message.into(),
        }
    }
}

/// The members of a message or of an object in it. Of a repeated key the last one counts, as with
/// most parsers.
#[derive(Debug)]
pub(super) struct Fields(Map<String, Value>);

impl Fields {
    pub(super) fn parse(text: &str) -> Result<Self, Refusal> {
        match serde_json::from_str(text) {
            Ok(map) => Ok(Self(map)),
            Err(error) => Err(Refusal::invalid(format!("not a JSON object: {error}"))),
        }
    }

    /// The object in field `name`, taken out.
    pub(super) fn object(&mut self, name: &str) -> Result<Self, Refusal> {
        match self.0.get_mut(name) {
            Some(Value::Object(map)) => Ok(Self(std::mem::take(map))),
            Some(_) => Err(Refusal::invalid(format!("{name} must be an object"))),
            None => Err(missing(name)),
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// A string of any length.
    pub(super) fn text(&self, name: &str) -> Result<&str, Refusal> {
        match self.0.get(name) {
            Some(Value::String(text)) => Ok(text),
            Some(_) => Err(Refusal::invalid(format!("{name} must be a string"))),
            None => Err(missing(name)),
        }
    }

    /// A string of 1 to `longest` characters.
    pub(super) fn short_text(&self, name: &str, longest: usize) -> Result<&str, Refusal> {
        let text = self.text(name)?;
        if text.is_empty() {
            return Err(Refusal::invalid(format!("{name} is empty")));
        }
        // No character has more than four bytes: most texts need no count.
        if text.len() > longest && text.chars().nth(longest).is_some() {
            return Err(Refusal::invalid(format!(
                "{name} has more than {longest} characters"
            )));
        }
        Ok(text)
    }

    /// A number from 0 on, rounded down; as a number or as a string of digits.
    pub(super) fn number(&self, name: &str) -> Result<u64, Refusal> {
        let value = self.0.get(name).ok_or_else(|| missing(name))?;
        whole(value).ok_or_else(|| Refusal::invalid(format!("{name} must be a number from 0 on")))
    }

    pub(super) fn flag(&self, name: &str) -> Result<bool, Refusal> {
        match self.0.get(name) {
            Some(Value::Bool(flag)) => Ok(*flag),
            None | Some(Value::Null) => Ok(false),
            Some(_) => Err(Refusal::invalid(format!("{name} must be true or false"))),
        }
    }
}

/// The keypad presses in a `digit` or `digits` value: 1 to `most` of `0-9 * # A-D`. A number is taken
/// for its digits.
pub(super) fn keys(value: &Value, most: usize) -> Result<String, Refusal> {
    let text = match value {
        Value::String(text) => Cow::Borrowed(text.as_str()),
        Value::Number(number) => Cow::Owned(number.to_string()),
        _ => return Err(Refusal::invalid("a keypad press must be a string")),
    };
    if text.is_empty() || text.len() > most {
        return Err(Refusal::invalid(format!(
            "dtmf has 1 to {most} keypad presses here"
        )));
    }
    let key = |key: char| {
        let key = key.to_ascii_uppercase();
        matches!(key, '0'..='9' | '*' | '#' | 'A'..='D').then_some(key)
    };
    let pressed: Option<String> = text.chars().map(key).collect();
    pressed.ok_or_else(|| Refusal::invalid("keypad presses are 0-9, *, #, A-D"))
}

/// See [`Fields::number`].
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rounding down is meant, negatives are refused, and `as` saturates"
)]
pub(super) fn whole(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64().or_else(|| {
            number
                .as_f64()
                .filter(|float| *float >= 0.0)
                .map(|float| float as u64)
        }),
        Value::String(digits) => scan::number(digits.as_bytes()),
        _ => None,
    }
}

fn missing(name: &str) -> Refusal {
    Refusal::invalid(format!("{name} is missing"))
}
