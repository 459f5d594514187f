//! Server-sent events as model servers send them (HTML standard, section 9.2): each event is one `data`
//! line. Pure.

/// The longest line, bytes: a second of sound in base64 is a tenth of it.
const LONGEST: usize = 1 << 20;

/// Cuts a body into the values of its `data` lines.
#[derive(Debug, Default)]
pub(super) struct Events {
    line: Vec<u8>,
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
                self.end_line(&mut event);
            } else if self.line.len() >= LONGEST {
                return Err(TooLong);
            } else {
                self.line.push(byte);
            }
        }
        Ok(())
    }

    /// The body is at its end; its last line may have no end of its own.
    pub(super) fn finish(&mut self, mut event: impl FnMut(&str)) {
        self.end_line(&mut event);
    }

    fn end_line(&mut self, event: &mut impl FnMut(&str)) {
        if let Some(value) = self.line.strip_prefix(b"data:") {
            let value = String::from_utf8_lossy(value);
            let value = value.trim();
            if !value.is_empty() {
                event(value);
            }
        }
        self.line.clear();
    }
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
    fn a_line_without_end_is_refused() {
        let mut events = Events::default();
        let mut result = Ok(());
        for _ in 0..=LONGEST / 1024 {
            result = result.and(events.push(&[b'x'; 1024], |_| {}));
        }
        assert_eq!(result, Err(TooLong));
    }
}
