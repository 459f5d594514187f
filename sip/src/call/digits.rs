//! Keypad digits in an INFO: `application/dtmf-relay` (`Signal=5`, `Duration=160`) and
//! `application/dtmf` (the digit alone). Neither has an RFC; RFC 6086 calls them legacy use.

use crate::message::Body;

/// When the sender does not say.
const USUAL_MS: u32 = 160;

/// The digit and how long it was pressed, ms.
pub(crate) fn digit_of(body: &Body) -> Option<(char, u32)> {
    let text = std::str::from_utf8(&body.bytes).ok()?;
    if body.is("application/dtmf") {
        return Some((digit(text.trim())?, USUAL_MS));
    }
    if !body.is("application/dtmf-relay") {
        return None;
    }
    let mut found = None;
    let mut duration = USUAL_MS;
    for line in text.lines() {
        let Some((name, value)) = line.split_once('=') else {
            continue;
        };
        let value = value.trim();
        if name.trim().eq_ignore_ascii_case("signal") {
            found = digit(value);
        } else if name.trim().eq_ignore_ascii_case("duration") {
            duration = value.parse().ok()?;
        }
    }
    Some((found?, duration.min(10_000)))
}

/// 0 to 9, `*`, `#`, A to D; 10 and 11 are other names of the two signs.
fn digit(text: &str) -> Option<char> {
    match text {
        "10" => return Some('*'),
        "11" => return Some('#'),
        _ => {}
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
        for bad in [
            "",
            "Signal=",
            "Signal=55",
            "Signal=x",
            "Duration=100",
            "Signal=1\nDuration=x",
        ] {
            assert_eq!(relay(bad), None, "{bad:?}");
        }
        let plain = |text: &str| digit_of(&Body::new("application/dtmf; q=1", text));
        assert_eq!(plain("7\r\n"), Some(('7', 160)));
        assert_eq!(digit_of(&Body::new("text/plain", "7")), None);
        assert_eq!(digit_of(&Body::new("application/dtmf", vec![0xff])), None);
    }
}
