//! Messages cut out of a stream by their Content-Length (RFC 3261 18.3), with CRLF keep-alives
//! (RFC 5626 3.5.1) told apart.

use super::parse::{About, Fault, Framing, MOST_BYTES, MOST_LINE, Malformed, parse};
use super::{Message, Name, scan};

/// The largest head: a peer that sends no empty line within this is cut off.
const MOST_HEAD: usize = 4 * MOST_LINE;

/// What a stream brought next.
#[derive(Debug)]
pub enum Framed {
    Message(Message),
    /// Double CRLFs, one or many in a row, which want a single one back.
    Ping,
    /// Framed well but not well formed; the stream goes on.
    Malformed(Malformed),
    /// Where the next message begins is not known any more: answer if one can, then close.
    Lost(Malformed),
}

/// The bytes of one connection that are no message yet. Holds at most one message.
#[derive(Debug, Default)]
pub struct Framer {
    buffer: Vec<u8>,
    /// How much of it was used. It is dropped at once when nothing more is whole, so that many small messages
    /// in one read do not each move all that follow.
    used: usize,
    /// How far behind that the end of the head was looked for already.
    searched: usize,
}

impl Framer {
    /// Adds what was read. Call [`Framer::next_message`] until it gives nothing before adding more than
    /// another 64 KiB.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next message, if it is whole.
    pub fn next_message(&mut self) -> Option<Framed> {
        let framed = self.next_whole();
        if framed.is_none() {
            self.buffer.drain(..self.used);
            self.used = 0;
        }
        framed
    }

    fn next_whole(&mut self) -> Option<Framed> {
        loop {
            if self.searched == 0
                && let Some(pinged) = self.skip_line_ends()
            {
                return pinged.then_some(Framed::Ping);
            }
            let rest = &self.buffer[self.used..];
            let from = self.searched.saturating_sub(3);
            let Some(end) = memchr::memmem::find(&rest[from..], b"\r\n\r\n") else {
                self.searched = rest.len();
                return (rest.len() > MOST_HEAD).then(|| self.lose(Fault::TooLarge));
            };
            let head = from + end + 4;
            self.searched = head.max(1) - 1;
            let Some(length) = content_length(&rest[..head]) else {
                return Some(self.lose(Fault::Bad("Bad Content-Length")));
            };
            let Some(total) = head
                .checked_add(length)
                .filter(|total| *total <= MOST_BYTES)
            else {
                return Some(self.lose(Fault::TooLarge));
            };
            if rest.len() < total {
                return None;
            }
            let parsed = parse(&rest[..total], Framing::Stream);
            self.used += total;
            self.searched = 0;
            match parsed {
                Ok(Some(message)) => return Some(Framed::Message(message)),
                Ok(None) => {}
                Err(malformed) => return Some(Framed::Malformed(malformed)),
            }
        }
    }

    /// Uses up the line ends before a message. `None` when one begins; else whether they were a ping.
    fn skip_line_ends(&mut self) -> Option<bool> {
        const PING: &[u8] = b"\r\n\r\n";
        let rest = &self.buffer[self.used..];
        let mut pings = 0;
        while rest[pings..].starts_with(PING) {
            pings += PING.len();
        }
        if pings > 0 {
            self.used += pings;
            return Some(true);
        }
        let is_end = |byte: &&u8| matches!(byte, b'\r' | b'\n');
        let blank = rest.iter().take_while(is_end).count();
        if blank < rest.len() {
            self.used += blank;
            return None;
        }
        // What may be the beginning of a ping waits for its rest; anything else is noise.
        if !PING.starts_with(rest) {
            self.used = self.buffer.len();
        }
        Some(false)
    }

    /// Nothing of this stream can be used any more.
    fn lose(&mut self, fault: Fault) -> Framed {
        let taken = std::mem::take(&mut self.buffer);
        let rest = &taken[self.used..];
        (self.used, self.searched) = (0, 0);
        let (answerable, about) =
            match parse(&rest[..rest.len().min(MOST_BYTES)], Framing::Datagram) {
                Err(malformed) => (malformed.answerable, malformed.about),
                Ok(Some(message)) => {
                    let about = Some(Box::new(About::of_message(&message)));
                    let answerable = match message {
                        Message::Request(request) if request.method != super::Method::Ack => {
                            Some(Box::new((request.method, request.headers)))
                        }
                        _ => None,
                    };
                    (answerable, about)
                }
                Ok(None) => (None, None),
            };
        Framed::Lost(Malformed {
            fault,
            answerable,
            about,
        })
    }
}

/// The one Content-Length of a head. `None` when it is missing, no number, or there are two that differ.
fn content_length(head: &[u8]) -> Option<usize> {
    let mut found = None;
    for line in head.split(|byte| *byte == b'\n') {
        let Some(colon) = memchr::memchr(b':', line) else {
            continue;
        };
        let Ok(name) = std::str::from_utf8(&line[..colon]) else {
            continue;
        };
        if line.starts_with(b" ") || line.starts_with(b"\t") {
            continue;
        }
        if Name::parse(name.trim_end_matches(scan::is_space)) != Name::ContentLength {
            continue;
        }
        let value = std::str::from_utf8(&line[colon + 1..]).ok()?;
        let number = usize::try_from(scan::number(value.trim())?).ok()?;
        if found.is_some_and(|before| before != number) {
            return None;
        }
        found = Some(number);
    }
    found
}
