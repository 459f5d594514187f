//! Server-sent events as model servers send them (HTML standard, section 9.2): a byte-order mark in front,
//! any line ends, an event of one `data` line or several. Some send no blank line between events: what is
//! whole by itself is an event. Pure.

use serde::de::IgnoredAny;

/// The longest event, bytes: a second of sound in base64 is a tenth of it.
const LONGEST: usize = 1 << 20;

/// What some servers put in front of a body.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The last value of a stream of completions.
const DONE: &str = "[DONE]";

/// Cuts a body into the values of its events.
#[derive(Debug, Default)]
pub(super) struct Events {
    line: Vec<u8>,
    /// The `data` lines of an event that is not whole, with their line ends.
    data: String,
    /// The first line was read.
    begun: bool,
    /// The last line ended with a carriage return: a line feed may belong to it.
    after_return: bool,
}

/// A line is longer than any event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLong;

impl Events {
    /// Takes the next bytes of the body, of any length, and calls `event` with each value.
    pub(super) fn push(
        &mut self,
        bytes: &[u8],
        mut event: impl FnMut(&str),
    ) -> Result<(), TooLong> {
        for &byte in bytes {
            if byte == b'\n' || byte == b'\r' {
                self.end_line(byte == b'\n', &mut event);
            } else if self.line.len() + self.data.len() >= LONGEST {
                return Err(TooLong);
            } else {
                self.line.push(byte);
            }
        }
        Ok(())
    }

    /// The body is at its end; its last line may have no end of its own.
    pub(super) fn finish(&mut self, mut event: impl FnMut(&str)) {
        self.end_line(false, &mut event);
        self.end_event(&mut event);
    }

    /// `feed`: the line ended with a line feed.
    fn end_line(&mut self, feed: bool, event: &mut impl FnMut(&str)) {
        let line = std::mem::take(&mut self.line);
        let mut line = line.as_slice();
        if !std::mem::replace(&mut self.begun, true) {
            line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        }
        if let Some(value) = line.strip_prefix(b"data:") {
            let value = String::from_utf8_lossy(value);
            let value = value.trim();
            if value == DONE {
                self.end_event(event);
            }
            if !self.data.is_empty() {
                self.data.push('\n');
            }
            self.data.push_str(value);
            if is_whole(&self.data) {
                self.end_event(event);
            }
            self.after_return = !feed;
        } else if line.is_empty() {
            // The other half of a CRLF is no empty line.
            if !(std::mem::take(&mut self.after_return) && feed) {
                self.end_event(event);
            }
        } else {
            self.after_return = !feed;
        }
    }

    fn end_event(&mut self, event: &mut impl FnMut(&str)) {
        let data = std::mem::take(&mut self.data);
        if !data.is_empty() {
            event(&data);
        }
    }
}

/// Whether a value needs no further line.
fn is_whole(value: &str) -> bool {
    value == DONE
        || (value.ends_with(['}', ']', '"']) && serde_json::from_str::<IgnoredAny>(value).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(parts: &[&str]) -> Vec<String> {
        let mut found = Vec::new();
        let mut events = Events::default();
        for part in parts {
            assert_eq!(
                events.push(part.as_bytes(), |value| found.push(value.to_owned())),
                Ok(())
            );
        }
        events.finish(|value| found.push(value.to_owned()));
        found
    }

    #[test]
    fn lines_end_and_are_cut_in_all_ways() {
        let expect = vec!["{\"a\":\"é\"}".to_owned(), "[DONE]".to_owned()];
        assert_eq!(read(&["data: {\"a\":\"é\"}\n\ndata: [DONE]\n\n"]), expect);
        assert_eq!(
            read(&[": hello\r\nevent: x\r\ndata:{\"a\":\"é\"}\r\n\r\ndata: [DONE]"]),
            expect
        );
        let whole = "data: {\"a\":\"é\"}\ndata: [DONE]\n";
        let mut found = Vec::new();
        let mut events = Events::default();
        for byte in whole.bytes() {
            assert!(events.push(&[byte], |v| found.push(v.to_owned())).is_ok());
        }
        assert_eq!(found, expect);
    }

    #[test]
    fn an_event_may_have_several_lines_and_the_body_a_mark_in_front() {
        let expect = vec!["{\"a\":\n1}".to_owned(), "[DONE]".to_owned()];
        for end in ["\n", "\r\n", "\r"] {
            let body =
                format!("\u{feff}data: {{\"a\":{end}data: 1}}{end}{end}data: [DONE]{end}{end}");
            assert_eq!(read(&[&body]), expect, "{end:?}");
            let bytes: Vec<String> = body.chars().map(String::from).collect();
            let bytes: Vec<&str> = bytes.iter().map(String::as_str).collect();
            assert_eq!(read(&bytes), expect, "{end:?}");
        }
        assert_eq!(
            read(&["\u{feff}: hi\n\ndata: {\n\ndata: {}\n"]),
            ["{", "{}"],
            "an event that is cut off ends at the blank line"
        );
        assert_eq!(
            read(&["event: x\nid: 1\ndata:\ndata: []\nretry: 3"]),
            ["[]"]
        );
    }

    #[test]
    fn a_line_of_an_event_may_be_json_by_itself() {
        let body = "data: [\ndata: \"a\",\ndata: {}\ndata: ]\n\ndata: {\ndata: [DONE]\n";
        assert_eq!(read(&[body]), ["[\n\"a\",\n{}\n]", "{", "[DONE]"]);
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let mut events = Events::default();
        let mut result = Ok(());
        for _ in 0..=LONGEST / 1024 {
            result = result.and(events.push(&[b'x'; 1024], |_| {}));
        }
        assert_eq!(result, Err(TooLong));
    }
}
