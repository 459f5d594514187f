//! Keypad digits in an INFO: `application/dtmf-relay` (`Signal=5`, `Duration=160`), its sibling of Nortel's (`d=5`)
//! and `application/dtmf` (the digit alone). None has an RFC; RFC 6086 calls them legacy use.

use crate::message::Body;

/// When the sender does not say.
const USUAL_MS: u32 = 160;

/// The digit and how long it was pressed, ms.
pub(crate) fn digit_of(body: &Body) -> Option<(char, u32)> {
    const TYPES: [&str; 3] = [
        "application/dtmf-relay",
        "application/dtmf",
        "application/vnd.nortelnetworks.digits",
    ];
    if !TYPES.iter().any(|kind| body.is(kind)) {
        return None;
    }
    let text = String::from_utf8_lossy(&body.bytes);
    let mut found = None;
    let mut duration = USUAL_MS;
    for line in text.lines() {
        // Some say `Signal: 5`.
        let Some((name, value)) = line.split_once(['=', ':']) else {
            continue;
        };
        let (name, value) = (name.trim(), value.trim());
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        if is("signal") || is("d") {
            found = digit(value);
        } else if is("duration") {
            duration = milliseconds(value).unwrap_or(USUAL_MS);
        }
    }
    if found.is_none() && !text.contains('=') {
        found = digit(text.trim());
    }
    Some((found?, duration.min(10_000)))
}

/// `160`, `160ms`, `160 ms`; a length that is not readable takes no digit away.
fn milliseconds(text: &str) -> Option<u32> {
    let digits = text.find(|c: char| !c.is_ascii_digit());
    let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
    let unit = unit.trim();
    if !unit.is_empty() && !unit.eq_ignore_ascii_case("ms") {
        return None;
    }
    number.parse().ok().filter(|length| *length > 0)
}

/// 0 to 9, `*`, `#`, A to D; 10 to 15 are the event codes of the last six (RFC 4733 section 3.2).
fn digit(text: &str) -> Option<char> {
    let text = text.trim_matches('"').trim();
    if let Ok(code @ 10..=15) = text.parse::<usize>() {
        return "*#ABCD".chars().nth(code - 10);
    }
    let mut chars = text.chars();
    let digit = chars.next()?.to_ascii_uppercase();
    let known = digit.is_ascii_digit() || "*#ABCD".contains(digit);
    (known && chars.next().is_none()).then_some(digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits() {
        let relay = |text: &str| digit_of(&Body::new("application/dtmf-relay", text));
        assert_eq!(relay("Signal=5\r\nDuration=250\r\n"), Some(('5', 250)));
        assert_eq!(relay("Signal= * \n"), Some(('*', 160)));
        assert_eq!(relay("signal=11\nduration=99999"), Some(('#', 10_000)));
        assert_eq!(relay("Signal=a"), Some(('A', 160)));
        // Event codes, and lengths that say nothing or name their unit.
        for (signal, digit) in [
            ("10", '*'),
            ("11", '#'),
            ("12", 'A'),
            ("13", 'B'),
            ("14", 'C'),
            ("15", 'D'),
        ] {
            assert_eq!(relay(&format!("Signal={signal}")), Some((digit, 160)));
        }
        for (duration, ms) in [
            ("", 160),
            (" ", 160),
            ("160ms", 160),
            ("200 MS", 200),
            ("x", 160),
            ("0", 160),
            ("2s", 160),
        ] {
            let text = format!("Signal=1\r\nDuration={duration}\r\n");
            assert_eq!(relay(&text), Some(('1', ms)), "{duration}");
        }
        assert_eq!(relay("d=8"), Some(('8', 160)));
        assert_eq!(relay("SIGNAL: #\r\nDURATION: 90"), Some(('#', 90)));
        let nortel = "p=Digit-Collection\r\ny=Digits\r\ns=success\r\nu=12345678\r\nd=4\r\n";
        let nortel = Body::new("application/vnd.nortelnetworks.digits", nortel);
        assert_eq!(digit_of(&nortel), Some(('4', 160)));
        for bad in [
            "",
            "Signal=",
            "Signal=55",
            "Signal=16",
            "Signal=x",
            "Duration=100",
        ] {
            assert_eq!(relay(bad), None, "{bad:?}");
        }
        let plain = |text: &str| digit_of(&Body::new("application/dtmf; q=1", text));
        assert_eq!(plain("7\r\n"), Some(('7', 160)));
        assert_eq!(plain("d=8"), Some(('8', 160)));
        assert_eq!(digit_of(&Body::new("text/plain", "7")), None);
        assert_eq!(digit_of(&Body::new("application/dtmf", vec![0xff])), None);
    }
}
