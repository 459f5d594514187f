//! Writes JSON messages by appending to a text that is reused: no tree, no allocation once it has
//! grown to its size.

use super::ServerHeader;

/// One flat JSON message under way; [`close`](Self::close) completes it.
pub(super) struct Message<'o> {
    out: &'o mut String,
}

impl<'o> Message<'o> {
    /// Begins a message of the native protocol: its type, number and time.
    pub(super) fn open(out: &'o mut String, kind: &str, header: &ServerHeader) -> Self {
        out.push_str("{\"type\":\"");
        out.push_str(kind);
        out.push_str("\",\"event_id\":");
        number(out, header.event_id);
        out.push_str(",\"ts_ms\":");
        number(out, header.ts_ms);
        Self { out }
    }

    pub(super) fn text(self, name: &str, value: &str) -> Self {
        let this = self.name(name);
        string(this.out, value);
        this
    }

    pub(super) fn number(self, name: &str, value: u64) -> Self {
        let this = self.name(name);
        number(this.out, value);
        this
    }

    pub(super) fn number_or_null(self, name: &str, value: Option<u64>) -> Self {
        match value {
            Some(value) => self.number(name, value),
            None => self.json(name, "null"),
        }
    }

    /// A number with a fraction; what JSON cannot hold (infinite, not a number) becomes null.
    pub(super) fn fraction(self, name: &str, value: Option<f64>) -> Self {
        match value {
            Some(value) if value.is_finite() => self.json(name, &value.to_string()),
            _ => self.json(name, "null"),
        }
    }

    pub(super) fn flag(self, name: &str, value: bool) -> Self {
        self.json(name, if value { "true" } else { "false" })
    }

    /// A value that is JSON already.
    pub(super) fn json(self, name: &str, value: &str) -> Self {
        let this = self.name(name);
        this.out.push_str(value);
        this
    }

    pub(super) fn close(self) {
        self.out.push('}');
    }

    fn name(self, name: &str) -> Self {
        self.out.push_str(",\"");
        self.out.push_str(name);
        self.out.push_str("\":");
        self
    }
}

/// Appends a JSON string (RFC 8259 section 7).
pub(super) fn string(out: &mut String, value: &str) {
    out.push('"');
    let mut plain = 0;
    for (at, byte) in value.bytes().enumerate() {
        if byte >= b' ' && byte != b'"' && byte != b'\\' {
            continue;
        }
        // The bytes escaped are ASCII, so both cuts are between characters.
        out.push_str(&value[plain..at]);
        plain = at + 1;
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            control => {
                const HEX: &[u8; 16] = b"0123456789abcdef";
                out.push_str("\\u00");
                out.push(char::from(HEX[usize::from(control >> 4)]));
                out.push(char::from(HEX[usize::from(control & 15)]));
            }
        }
    }
    out.push_str(&value[plain..]);
    out.push('"');
}

/// Appends a whole number.
pub(super) fn number(out: &mut String, value: u64) {
    out.push_str(itoa::Buffer::new().format(value));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    proptest! {
        #[test]
        fn any_text_reads_back_as_it_was(text in any::<String>()) {
            let mut out = String::new();
            string(&mut out, &text);
            prop_assert_eq!(serde_json::from_str::<String>(&out).unwrap(), text);
        }
    }

    #[test]
    fn control_characters_quotes_and_wide_characters_are_escaped() {
        let mut out = String::new();
        string(&mut out, "a\"b\\c\nd\re\tf\u{0}g\u{1f}h é 🙂 \u{7f}");
        assert_eq!(
            out,
            "\"a\\\"b\\\\c\\nd\\re\\tf\\u0000g\\u001fh é 🙂 \u{7f}\""
        );
    }

    #[test]
    fn fractions_that_json_cannot_hold_are_null() {
        let mut out = String::new();
        Message::open(
            &mut out,
            "x",
            &ServerHeader {
                event_id: u64::MAX,
                ts_ms: 0,
            },
        )
        .fraction("nan", Some(f64::NAN))
        .fraction("infinite", Some(f64::INFINITY))
        .fraction("none", None)
        .fraction("small", Some(1e-300))
        .fraction("large", Some(1e300))
        .close();
        let value: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(
            value,
            json!({"type": "x", "event_id": u64::MAX, "ts_ms": 0, "nan": null, "infinite": null,
                "none": null, "small": 1e-300, "large": 1e300})
        );
    }
}
