//! One call of a load run, as a telephony vendor would make it: what is sent when, and what is measured
//! on what comes back. Pure: time comes in as μs since the run's start.

use super::frames::{self, Opcode};
use super::listener::{FRAME_US, Figures, Listener};
use super::stimulus::Stimulus;

/// One call.
pub(super) struct SocketCaller {
    stream: String,
    sequence: u64,
    chunk: u64,
    timestamp_ms: u64,
    /// The next frame of the stimulus.
    at: usize,
    mask: u32,
    incoming: Vec<u8>,
    /// Bytes for the socket.
    pub outgoing: Vec<u8>,
    /// Reused for every message.
    text: String,
    ear: Listener,
}

impl SocketCaller {
    /// A call that starts its stimulus at that frame.
    pub(super) fn new(session: &str, at: usize, mask: u32) -> Self {
        let stream = format!("MZ{}", session.replace('-', ""));
        let mut line = Self {
            sequence: 1,
            chunk: 0,
            timestamp_ms: 0,
            at,
            mask,
            incoming: Vec::with_capacity(4096),
            outgoing: Vec::with_capacity(4096),
            text: String::with_capacity(512),
            ear: Listener::default(),
            stream,
        };
        line.say(format_args!(
            r#"{{"event":"connected","protocol":"Call","version":"1.0.0"}}"#
        ));
        let stream = line.stream.clone();
        line.say(format_args!(
            concat!(
                r#"{{"event":"start","sequenceNumber":"1","streamSid":"{stream}","start":{{"streamSid":"{stream}","#,
                r#""accountSid":"AC0","callSid":"CA0","tracks":["inbound"],"mediaFormat":{{"encoding":"audio/x-mulaw","#,
                r#""sampleRate":8000,"channels":1}},"customParameters":{{}}}}}}"#
            ),
            stream = stream
        ));
        line
    }

    /// Puts the echoes of marks whose audio was played by now. The server takes them for the truth about
    /// what was heard, so they may not come late.
    pub(super) fn echo_played(&mut self, now: u64) {
        while let Some(name) = self.ear.played_mark(now) {
            self.echo(&name);
        }
    }

    /// Puts the next frame of caller audio.
    pub(super) fn tick(&mut self, now: u64, stimulus: &Stimulus, figures: &mut Figures) {
        let frame = self.at % stimulus.frames.len();
        self.at = frame + 1;
        self.ear.caller(now, stimulus.events[frame], figures);
        self.sequence += 1;
        self.chunk += 1;
        let (sequence, chunk, timestamp) = (self.sequence, self.chunk, self.timestamp_ms);
        self.timestamp_ms += FRAME_US / 1000;
        let stream = std::mem::take(&mut self.stream);
        self.say(format_args!(
            concat!(
                r#"{{"event":"media","sequenceNumber":"{}","media":{{"track":"inbound","chunk":"{}","timestamp":"{}","#,
                r#""payload":"{}"}},"streamSid":"{}"}}"#
            ),
            sequence, chunk, timestamp, stimulus.frames[frame], stream
        ));
        self.stream = stream;
        figures.frames_out += 1;
    }

    /// Takes bytes of the server. An error means that the line is lost.
    pub(super) fn receive(
        &mut self,
        now: u64,
        bytes: &[u8],
        figures: &mut Figures,
    ) -> Result<(), String> {
        // The usual case, whole frames, is read where it lies.
        if self.incoming.is_empty() {
            let used = self.read(now, bytes, figures)?;
            self.incoming.extend_from_slice(&bytes[used..]);
        } else {
            let mut joined = std::mem::take(&mut self.incoming);
            joined.extend_from_slice(bytes);
            let used = self.read(now, &joined, figures)?;
            joined.drain(..used);
            self.incoming = joined;
        }
        Ok(())
    }

    /// Says goodbye as the vendor does.
    pub(super) fn stop(&mut self) {
        self.sequence += 1;
        let (sequence, stream) = (self.sequence, std::mem::take(&mut self.stream));
        self.say(format_args!(
            r#"{{"event":"stop","sequenceNumber":"{sequence}","streamSid":"{stream}"}}"#
        ));
        self.stream = stream;
    }

    fn read(&mut self, now: u64, buffer: &[u8], figures: &mut Figures) -> Result<usize, String> {
        let mut used = 0;
        while let Some(frame) = frames::first(&buffer[used..])? {
            used += frame.length;
            match frame.opcode {
                Opcode::Text => self.message(now, frame.payload, figures),
                Opcode::Ping => {
                    let mask = self.next_mask();
                    frames::put(&mut self.outgoing, Opcode::Pong, mask, frame.payload);
                }
                Opcode::Close => {
                    let code = frame
                        .payload
                        .get(..2)
                        .map_or(1005, |code| u16::from_be_bytes([code[0], code[1]]));
                    let reason =
                        String::from_utf8_lossy(frame.payload.get(2..).unwrap_or_default());
                    return Err(format!("the server closed a line: {code} {reason}"));
                }
                Opcode::Pong | Opcode::Other => {}
            }
        }
        Ok(used)
    }

    fn message(&mut self, now: u64, payload: &[u8], figures: &mut Figures) {
        let Ok(text) = std::str::from_utf8(payload) else {
            return;
        };
        match field(text, "event") {
            Some("media") => {
                let base64 = field(text, "payload").unwrap_or_default();
                let bytes = base64.trim_end_matches('=').len() * 3 / 4;
                self.ear.frame(now, bytes as u64 * 125, figures);
            }
            Some("mark") => {
                let name = field(text, "name").unwrap_or_default().to_owned();
                self.ear.mark(name);
            }
            Some("clear") => {
                self.ear.clear(now, figures);
                for name in self.ear.take_marks() {
                    self.echo(&name);
                }
            }
            _ => {}
        }
    }

    fn echo(&mut self, name: &str) {
        self.sequence += 1;
        let (sequence, stream) = (self.sequence, std::mem::take(&mut self.stream));
        self.say(format_args!(
            r#"{{"event":"mark","sequenceNumber":"{sequence}","streamSid":"{stream}","mark":{{"name":"{name}"}}}}"#
        ));
        self.stream = stream;
    }

    fn say(&mut self, message: std::fmt::Arguments<'_>) {
        self.text.clear();
        // Writing into a String cannot fail.
        let _ = std::fmt::write(&mut self.text, message);
        let mask = self.next_mask();
        frames::put(&mut self.outgoing, Opcode::Text, mask, self.text.as_bytes());
    }

    /// Any changing number will do here: the mask protects old proxies (RFC 6455 section 10.3), and there
    /// is none between.
    fn next_mask(&mut self) -> [u8; 4] {
        self.mask = self
            .mask
            .wrapping_mul(1_664_525)
            .wrapping_add(1_013_904_223);
        self.mask.to_be_bytes()
    }
}

/// The text of a string field, wherever it stands. The messages of this protocol name each key once, and
/// their values need no escapes.
fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let mut rest = text;
    loop {
        let at = rest.find(key)?;
        let quoted = rest[..at].ends_with('"') && rest[at + key.len()..].starts_with('"');
        rest = &rest[at + key.len()..];
        if quoted && let Some(value) = rest[1..].trim_start().strip_prefix(':') {
            return value.trim_start().strip_prefix('"')?.split('"').next();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_in_any_order_and_spacing() {
        let text = r#"{ "streamSid" : "MZ", "media":{"payload": "AAA="}, "event" :"media" }"#;
        assert_eq!(field(text, "event"), Some("media"));
        assert_eq!(field(text, "payload"), Some("AAA="));
        assert_eq!(field(text, "name"), None);
        assert_eq!(field(r#"{"event":7}"#, "event"), None);
    }
}
