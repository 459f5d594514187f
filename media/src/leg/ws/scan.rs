//! Reads the fixed shape of an audio message without building a tree.
//!
//! Nearly every message of a call is one of two shapes: an object of plain strings and whole
//! numbers, or the same with one such object inside. [`Scan`] walks that shape and says `None` at
//! anything else (escapes, other values, repeated keys, anything after the end), upon which the
//! message goes to the full parser. It accepts nothing that the full parser would refuse.

/// A position in one message.
pub(super) struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Scan<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            bytes: text.as_bytes(),
            at: 0,
        }
    }

    /// One object with at least one member. `member` is told each key and must consume its value.
    pub(super) fn object(
        &mut self,
        mut member: impl FnMut(&mut Self, &'a [u8]) -> Option<()>,
    ) -> Option<()> {
        self.expect(b'{')?;
        loop {
            let key = self.string()?;
            self.expect(b':')?;
            member(self, key)?;
            match self.next()? {
                b',' => {}
                b'}' => return Some(()),
                _ => return None,
            }
        }
    }

    /// A string without escapes: what stands between its quotes.
    pub(super) fn string(&mut self) -> Option<&'a [u8]> {
        self.expect(b'"')?;
        let rest = self.bytes.get(self.at..)?;
        let end = rest
            .iter()
            .position(|&byte| byte == b'"' || byte == b'\\' || byte < b' ')?;
        if rest[end] != b'"' {
            return None;
        }
        self.at += end + 1;
        Some(&rest[..end])
    }

    /// A long string up to the next quote. Its contents are not looked at: the caller decodes them
    /// with an alphabet that holds neither backslash nor control characters, and so finds out.
    pub(super) fn payload(&mut self) -> Option<&'a [u8]> {
        self.expect(b'"')?;
        let rest = self.bytes.get(self.at..)?;
        let end = memchr::memchr(b'"', rest)?;
        self.at += end + 1;
        Some(&rest[..end])
    }

    /// A string without escapes or a whole number: its text.
    pub(super) fn scalar(&mut self) -> Option<&'a [u8]> {
        self.space();
        let rest = self.bytes.get(self.at..)?;
        if rest.first() == Some(&b'"') {
            return self.string();
        }
        let end = rest
            .iter()
            .position(|byte| !byte.is_ascii_digit())
            .unwrap_or(rest.len());
        if end == 0 || (end > 1 && rest[0] == b'0') {
            return None;
        }
        self.at += end;
        Some(&rest[..end])
    }

    /// Nothing but white space is left.
    pub(super) fn end(&mut self) -> Option<()> {
        self.space();
        (self.at == self.bytes.len()).then_some(())
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then_some(())
    }

    /// The next byte that is not white space.
    fn next(&mut self) -> Option<u8> {
        self.space();
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.bytes.get(self.at) {
            self.at += 1;
        }
    }
}

/// Fills `place` once: a key that comes twice is not a shape to scan.
pub(super) fn once<T>(place: &mut Option<T>, value: T) -> Option<()> {
    place.replace(value).is_none().then_some(())
}

/// Decimal digits as a number; `None` for anything else and beyond `u64`.
pub(super) fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |sum, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        sum.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Member keys with the text of their scalar values.
    fn scan(text: &str) -> Option<Vec<(String, String)>> {
        let mut found = Vec::new();
        let mut scan = Scan::new(text);
        scan.object(|scan, key| {
            let value = scan.scalar()?;
            let owned = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            found.push((owned(key), owned(value)));
            Some(())
        })?;
        scan.end()?;
        Some(found)
    }

    #[test]
    fn plain_members_in_any_spacing() {
        let expected = vec![
            ("a".to_owned(), "x".to_owned()),
            ("b".to_owned(), "12".to_owned()),
        ];
        for text in [
            r#"{"a":"x","b":12}"#,
            " {\t\"a\" : \"x\"\r\n, \"b\" :12 } \n",
        ] {
            assert_eq!(scan(text).as_ref(), Some(&expected), "{text:?}");
        }
    }

    #[test]
    fn everything_else_is_left_to_the_parser() {
        for text in [
            "",
            " ",
            "{",
            "{}",
            "[]",
            "{\"a\"",
            "{\"a\":",
            "{\"a\":1",
            "{\"a\":1,}",
            "{\"a\":1}}",
            "{\"a\":01}",
            "{\"a\":-1}",
            "{\"a\":1.5}",
            "{\"a\":1e3}",
            "{\"a\":true}",
            "{\"a\":null}",
            "{\"a\":{}}",
            "{\"a\":[1]}",
            "{\"a\":\"\\n\"}",
            "{\"a\":\"\n\"}",
            "{\"\\u0061\":1}",
            "{a:1}",
            "{\"a\" 1}",
            "{\"a\":1 \"b\":2}",
            "{\"a\":1}x",
            "\u{feff}{\"a\":1}",
        ] {
            assert_eq!(scan(text), None, "{text:?}");
        }
    }

    #[test]
    fn numbers_are_digits_within_u64() {
        assert_eq!(number(b"0"), Some(0));
        assert_eq!(number(b"18446744073709551615"), Some(u64::MAX));
        for junk in [
            &b""[..],
            b"-1",
            b"+1",
            b"1.0",
            b" 1",
            b"1a",
            b"18446744073709551616",
        ] {
            assert_eq!(number(junk), None);
        }
    }
}
