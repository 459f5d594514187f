//! Samples out of the bytes that a voice sends: bare, or as WAV. What a provider says that it sends and what it sends
//! are two things, so the first bytes are looked at, and no length is believed. What is not understood is a fault: played,
//! it would be noise at full scale. Pure.

mod form;
#[cfg(test)]
mod tests;
mod wav;

use std::fmt::Write;

use media::audio::kind::{self, Kind, Look};
use serde_json::Value;

use self::form::{Encoding, Form};
use self::wav::Start;
use super::complaint;
use super::plan::Fault;

/// Bytes by which bare samples are told from noise, where they do not begin softly.
const LISTENED: usize = 1024;

/// So many bytes that are soft are the beginning of a voice.
const BEGINNING: usize = 16;

/// A voice begins no louder than this where it begins softly: -24 dBFS.
const SOFT: u16 = 2048;

/// Of bytes that are not understood, so many are shown.
const SHOWN: usize = 8;

/// A chunk of a file that follows the sound has a name of four bytes, and a length of less than this.
const LONGEST_CHUNK: u32 = 1 << 24;

/// Reads one body, or one context.
pub(super) struct Samples {
    state: State,
    /// What could not be used yet.
    pending: Vec<u8>,
    /// Hz.
    rate: u32,
    form: Form,
    /// It has given samples.
    any: bool,
}

#[derive(Clone, Copy)]
enum State {
    /// The kind is not known yet.
    Sniffing,
    Header,
    /// Samples; how many bytes of them are left, if the header says so.
    Body(Option<u64>),
    /// As many samples came as the header said. What follows is no sound, or the header lied.
    Behind,
    /// No sound, unless another header comes.
    Trailer,
}

impl Samples {
    /// Bare samples of 16 bits at `rate` Hz, unless their first bytes say otherwise.
    pub(super) const fn new(rate: u32) -> Self {
        Self {
            state: State::Sniffing,
            pending: Vec::new(),
            rate,
            form: Form::pcm(1),
            any: false,
        }
    }

    /// The same as a `Content-Type` describes them.
    pub(super) fn described(content_type: &str, rate: u32) -> Self {
        let mut samples = Self::new(rate);
        let mut parts = content_type.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
        let companded = match kind.as_str() {
            "audio/basic" | "audio/pcmu" | "audio/mulaw" | "audio/x-mulaw" => Some(Encoding::Ulaw),
            "audio/pcma" | "audio/alaw" | "audio/x-alaw" => Some(Encoding::Alaw),
            _ => None,
        };
        if let Some(encoding) = companded {
            samples.rate = 8_000;
            samples.form.encoding = encoding;
            samples.form.bytes = 1;
        }
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            let value = value.trim_matches('"');
            if name.eq_ignore_ascii_case("rate") {
                samples.rate = value.parse().unwrap_or(samples.rate);
            } else if name.eq_ignore_ascii_case("channels") {
                samples.form.channels = value.parse().unwrap_or(1).clamp(1, 8);
            }
        }
        samples
    }

    /// Samples a second of what [`push`](Self::push) gives. Known once it gave any.
    pub(super) const fn rate(&self) -> u32 {
        self.rate
    }

    /// Takes the next bytes and appends their samples, mono.
    pub(super) fn push(&mut self, bytes: &[u8], out: &mut Vec<i16>) -> Result<(), Fault> {
        self.pending.extend_from_slice(bytes);
        self.read(out, false)
    }

    /// No more bytes come.
    pub(super) fn finish(&mut self, out: &mut Vec<i16>) -> Result<(), Fault> {
        self.read(out, true)?;
        match self.state {
            State::Header if !self.any => {
                let why = "the sound ended within its header";
                Err(Fault::Wrong(why.to_owned()))
            }
            _ => Ok(()),
        }
    }

    fn read(&mut self, out: &mut Vec<i16>, over: bool) -> Result<(), Fault> {
        let before = out.len();
        loop {
            let went_on = match self.state {
                State::Sniffing => self.sniff(over)?,
                State::Header => self.header()?,
                State::Body(left) => self.body(left, out, over),
                State::Behind => self.behind(over),
                State::Trailer => self.trailer(),
            };
            if !went_on {
                self.any |= out.len() > before;
                return Ok(());
            }
        }
    }

    /// Looks at the first bytes. `false`: more are needed.
    fn sniff(&mut self, over: bool) -> Result<bool, Fault> {
        match kind::look(&self.pending, over) {
            Look::Short => return Ok(false),
            Look::Is(Kind::Wav) => {
                self.state = State::Header;
                return Ok(true);
            }
            Look::Is(kind) => return Err(self.unknown(kind.name())),
            Look::Bare => {}
        }
        if self.form.bytes == 2 && !self.begins_softly() {
            if self.pending.len() < LISTENED && !over {
                return Ok(false);
            }
            if is_text(&self.pending) {
                return Err(text(&self.pending));
            }
            if kind::is_noise(&self.pending) {
                if kind::is_noise_swapped(&self.pending) {
                    return Err(self.unknown("compressed sound"));
                }
                self.form.encoding = Encoding::Swapped;
            }
        }
        self.state = State::Body(None);
        Ok(true)
    }

    /// Whether there is enough to see that it begins as voices do.
    fn begins_softly(&self) -> bool {
        let beginning = self.pending.get(..BEGINNING);
        beginning.is_some_and(|bytes| {
            let (samples, _) = bytes.as_chunks::<2>();
            samples
                .iter()
                .all(|pair| i16::from_le_bytes(*pair).unsigned_abs() < SOFT)
        })
    }

    /// A fault that names what came, and shows how it begins.
    fn unknown(&self, what: &str) -> Fault {
        let mut shown = String::from("0x");
        for byte in self.pending.iter().take(SHOWN) {
            // Writing to a text does not fail.
            let _ = write!(shown, "{byte:02x}");
        }
        Fault::Wrong(format!(
            "the voice sent {what}, and only pcm and wav are understood; it begins with {shown}"
        ))
    }

    /// Reads a WAV header. `false`: it is not all there yet.
    fn header(&mut self) -> Result<bool, Fault> {
        let read = wav::header(&self.pending);
        let header = read.map_err(|why| self.unknown(&format!("WAV that {why}")))?;
        let Some(header) = header else {
            return Ok(false);
        };
        self.pending.drain(..header.data_at);
        self.rate = header.rate;
        self.form = header.form;
        self.state = State::Body(header.length);
        Ok(true)
    }

    /// Gives samples, up to the next header. `false`: more bytes are needed.
    fn body(&mut self, mut left: Option<u64>, out: &mut Vec<i16>, over: bool) -> bool {
        let start = wav::start(&self.pending);
        let limit = match start {
            Start::At(at) => at,
            Start::Perhaps(at) if !over => at,
            Start::Perhaps(_) | Start::Nowhere => self.pending.len(),
        };
        let mut usable = left.map_or(limit, |left| {
            limit.min(usize::try_from(left).unwrap_or(usize::MAX))
        });
        usable -= usable % self.form.width();
        self.form.decode(&self.pending[..usable], out);
        self.pending.drain(..usable);
        if let Some(left) = &mut left {
            *left -= usable as u64;
        }
        let rest = limit - usable;
        if left == Some(0) {
            self.state = State::Behind;
            true
        } else if let Start::At(_) = start
            && rest < self.form.width()
        {
            // Half a sample before a header is none.
            self.pending.drain(..rest);
            self.state = State::Header;
            true
        } else {
            self.state = State::Body(left);
            false
        }
    }

    /// Judges what comes after as much sound as the header said. `false`: more bytes are needed.
    fn behind(&mut self, over: bool) -> bool {
        // Up to a frame that was cut, and a byte that makes the length even.
        let most = self.form.width();
        if self.pending.len() < most + 8 && !over {
            return false;
        }
        let is_file = |at: usize| self.pending.get(at..at + 8).is_some_and(is_chunk);
        self.state = if (0..=most).any(is_file) {
            State::Trailer
        } else {
            // Another header, or more sound than was told.
            State::Body(None)
        };
        true
    }

    /// Drops what is no sound. `false`: there is nothing left of it.
    fn trailer(&mut self) -> bool {
        match wav::start(&self.pending) {
            Start::At(at) => {
                self.pending.drain(..at);
                self.state = State::Header;
                true
            }
            Start::Perhaps(at) => {
                self.pending.drain(..at);
                false
            }
            Start::Nowhere => {
                self.pending.clear();
                false
            }
        }
    }
}

/// Whether a part of a file begins here that is neither its sound nor another file.
fn is_chunk(head: &[u8]) -> bool {
    let (name, length) = head.split_at(4);
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b' ';
    let is_header = name == b"RIFF" || name == b"RF64";
    let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]);
    !is_header && name.iter().all(is_name) && length < LONGEST_CHUNK
}

/// Whether bytes are a text, or the beginning of one: JSON or a page, such as an error's.
fn is_text(bytes: &[u8]) -> bool {
    let beginning = &bytes[..bytes.len().min(64)];
    let opens = beginning.trim_ascii_start().first();
    let is_of_text = |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
    beginning.len() >= 8
        && opens.is_some_and(|byte| b"{[<".contains(byte))
        && beginning.iter().all(is_of_text)
}

/// What a text says that came in place of sound.
fn text(bytes: &[u8]) -> Fault {
    let text = String::from_utf8_lossy(bytes);
    match serde_json::from_str::<Value>(&text) {
        Ok(value) if complaint::is_error(&value) => Fault::Told(complaint::read(&text)),
        _ => Fault::Garbage {
            what: "the voice sent text, not sound".to_owned(),
            page: complaint::page(bytes),
        },
    }
}
