//! The small grammar that all headers share (RFC 3261 25.1): tokens, quoted strings, lists,
//! parameters. No function here allocates more than it is given.

/// A character of `token`.
pub(crate) fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-.!%*_+`'~".contains(&byte)
}

pub(crate) fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(is_token_byte)
}

/// Linear white space once folds are gone.
pub(crate) fn is_space(c: char) -> bool {
    c == ' ' || c == '\t'
}

pub(crate) fn trim(text: &str) -> &str {
    text.trim_matches(is_space)
}

/// A number of digits only, so that `+5` and `-1` are none. `None` beyond 2⁶⁴.
pub(crate) fn number(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// Where `separator` first stands outside quotes and angle brackets.
pub(crate) fn find_outside(text: &str, separator: u8) -> Option<usize> {
    let mut quoted = false;
    let mut angle = false;
    let mut bytes = text.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'\\' if quoted => _ = bytes.next(),
            b'"' if !angle => quoted = !quoted,
            b'<' if !quoted => angle = true,
            b'>' if !quoted => angle = false,
            _ if byte == separator && !quoted && !angle => return Some(at),
            _ => {}
        }
    }
    None
}

/// The parts between separators that stand outside quotes and angle brackets, trimmed.
pub(crate) fn split(text: &str, separator: u8) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let whole = rest?;
        let Some(at) = find_outside(whole, separator) else {
            rest = None;
            return Some(trim(whole));
        };
        rest = Some(&whole[at + 1..]);
        Some(trim(&whole[..at]))
    })
}

/// The end of the quoted string that `text` begins with: the index after its closing quote.
pub(crate) fn quoted_end(text: &str) -> Option<usize> {
    let mut bytes = text.bytes().enumerate().skip(1);
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'\\' => _ = bytes.next()?,
            b'"' => return Some(at + 1),
            _ => {}
        }
    }
    None
}

/// What stands in a quoted string, its escapes taken off; any other text as it is.
pub(crate) fn unquote(text: &str) -> String {
    let Some(inner) = text
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
    else {
        return text.to_owned();
    };
    let mut plain = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => plain.extend(chars.next()),
            c => plain.push(c),
        }
    }
    plain
}

/// `text` as a quoted string.
pub(crate) fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        if c == '"' || c == '\\' {
            quoted.push('\\');
        }
        quoted.push(c);
    }
    quoted.push('"');
    quoted
}

/// `text` with its `%xx` decoded. What is no escape stays as it is; so does what would be no UTF-8.
pub(crate) fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let escape = match after {
            [high, low, ..] if byte == b'%' => hex(*high).zip(hex(*low)),
            _ => None,
        };
        match escape {
            Some((high, low)) => {
                bytes.push(high << 4 | low);
                rest = &after[2..];
            }
            None => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

fn hex(byte: u8) -> Option<u8> {
    char::from(byte)
        .to_digit(16)
        .and_then(|digit| u8::try_from(digit).ok())
}

/// Whether each `%` begins an escape.
pub(crate) fn escapes_are_whole(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.iter().enumerate().all(|(at, byte)| {
        *byte != b'%'
            || bytes
                .get(at + 1..at + 3)
                .is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit))
    })
}

/// Parameters of one value; a wordy Contact has ten. More is no value, which keeps what a message of
/// `;a;a;a…` makes us hold within a small multiple of its length.
const MOST_PARAMS: usize = 128;

/// `;name=value` pairs in their order. A value is kept as it was written, quotes included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Params(Vec<(String, Option<String>)>);

impl Params {
    /// Parses what follows the first `;` of a header value; an empty text holds none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut params = Vec::new();
        if trim(text).is_empty() {
            return Some(Self(params));
        }
        for part in split(text, b';') {
            let (name, value) = match part.split_once('=') {
                Some((name, value)) => (trim(name), Some(trim(value))),
                None => (part, None),
            };
            if !is_token(name) || !value.is_none_or(is_value) || params.len() >= MOST_PARAMS {
                return None;
            }
            params.push((name.to_owned(), value.map(str::to_owned)));
        }
        Some(Self(params))
    }

    /// The value of a parameter, quotes taken off; `Some("")` for one without a value.
    pub fn get(&self, name: &str) -> Option<String> {
        self.raw(name)
            .map(|value| value.map(unquote).unwrap_or_default())
    }

    /// The value as it was written.
    pub fn raw(&self, name: &str) -> Option<Option<&str>> {
        self.0
            .iter()
            .find(|(own, _)| own.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_deref())
    }

    pub fn has(&self, name: &str) -> bool {
        self.raw(name).is_some()
    }

    /// Sets or replaces; `None` is a parameter without a value. A value that is no token is quoted.
    pub fn set(&mut self, name: &str, value: Option<&str>) {
        let value = value.map(|value| match is_value(value) {
            true => value.to_owned(),
            false => quote(value),
        });
        match self
            .0
            .iter_mut()
            .find(|(own, _)| own.eq_ignore_ascii_case(name))
        {
            Some(found) => found.1 = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    pub fn remove(&mut self, name: &str) {
        self.0.retain(|(own, _)| !own.eq_ignore_ascii_case(name));
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_deref()))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.0.len() >= MOST_PARAMS
    }

    /// For URIs, whose parameters are checked by another grammar.
    pub(crate) fn push(&mut self, name: &str, value: Option<&str>) {
        self.0.push((name.to_owned(), value.map(str::to_owned)));
    }
}

impl std::fmt::Display for Params {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (name, value) in &self.0 {
            match value {
                Some(value) => write!(f, ";{name}={value}")?,
                None => write!(f, ";{name}")?,
            }
        }
        Ok(())
    }
}

/// `gen-value`: a token, a host (brackets and colons of IPv6) or a quoted string.
fn is_value(text: &str) -> bool {
    if text.starts_with('"') {
        return quoted_end(text) == Some(text.len());
    }
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| is_token_byte(byte) || b"[]:/?@&$".contains(&byte))
}
