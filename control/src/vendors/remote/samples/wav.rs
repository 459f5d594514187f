//! The header of a WAV file, as voices write it who do not know yet how long they will speak. Pure.

use super::form::{Encoding, Form};

/// The longest WAV header, bytes: some writers put a picture before the sound.
const LONGEST: usize = 64 << 10;

/// What is known after the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Hz.
    pub(super) rate: u32,
    pub(super) form: Form,
    /// Where the samples begin, bytes.
    pub(super) data_at: usize,
    /// How many bytes of samples there are, as the header says: whole frames, and often a lie. `None`: it does not say.
    pub(super) length: Option<u64>,
}

/// Reads the header. `None`: it is not all there yet. `Err`: why it is none.
pub(super) fn header(bytes: &[u8]) -> Result<Option<Header>, String> {
    if bytes.len() < 12 {
        return Ok(None);
    }
    if &bytes[8..12] != b"WAVE" {
        return Err("is no WAVE".to_owned());
    }
    let mut at = 12;
    let mut known = None;
    loop {
        let Some(chunk) = bytes.get(at..at + 8) else {
            if bytes.len() > LONGEST {
                return Err("has no data".to_owned());
            }
            return Ok(None);
        };
        let length = le32(&chunk[4..]);
        let body = at + 8;
        match (&chunk[..4], known) {
            (b"fmt ", _) => {
                let wanted = if length >= 26 { 26 } else { 16 };
                let Some(format) = bytes.get(body..body + wanted) else {
                    return Ok(None);
                };
                known = Some((le32(&format[4..]), form(format)?));
            }
            (b"data", Some((rate, form))) => {
                let width = form.width() as u64;
                let length = u64::from(length);
                return Ok(Some(Header {
                    rate,
                    form,
                    data_at: body,
                    length: Some(length - length % width).filter(|length| *length > 0),
                }));
            }
            (b"data", None) => return Err("has no format".to_owned()),
            _ => {}
        }
        if length as usize > LONGEST {
            return Err("has too long a header".to_owned());
        }
        at = body + length as usize + length as usize % 2;
    }
}

/// How the samples are written, by the `fmt ` chunk (RFC 2361 has the numbers).
fn form(format: &[u8]) -> Result<Form, String> {
    /// The extensible form: the number stands at the beginning of an identifier.
    const EXTENSIBLE: u16 = 0xfffe;
    let mut tag = le16(format);
    if tag == EXTENSIBLE {
        // Without the identifier it is integers.
        tag = format.get(24..26).map_or(1, le16);
    }
    let (channels, align) = (
        usize::from(le16(&format[2..])),
        usize::from(le16(&format[12..])),
    );
    let bits = le16(&format[14..]);
    if !(1..=8).contains(&channels) {
        return Err(format!("has {channels} channels"));
    }
    let least = usize::from(bits).div_ceil(8);
    // 24 bits may stand in four bytes.
    let bytes = match bits {
        17..=31 if align == 4 * channels => 4,
        _ => least,
    };
    let encoding = match (tag, bits, bytes) {
        (1, 1..=8, 1) => Encoding::Unsigned8,
        (1, 9..=32, 2..=4) => Encoding::Integer,
        (3, 32, 4) | (3, 64, 8) => Encoding::Float,
        (6, 8, 1) => Encoding::Alaw,
        (7, 8, 1) => Encoding::Ulaw,
        _ => return Err(format!("has samples of format {tag} with {bits} bits")),
    };
    Ok(Form {
        encoding,
        bytes,
        channels,
    })
}

/// Where a header begins within bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    Nowhere,
    At(usize),
    /// From here on it may be one; more bytes tell.
    Perhaps(usize),
}

/// The first header in bytes of sound: some servers write one before each part.
pub(super) fn start(bytes: &[u8]) -> Start {
    /// The mark, the length that is anything, and the name.
    const LENGTH: usize = 12;
    let is_first = |byte: &u8| *byte == b'R';
    let mut from = 0;
    while let Some(found) = bytes
        .get(from..)
        .and_then(|rest| rest.iter().position(is_first))
    {
        let at = from + found;
        let rest = &bytes[at..];
        let mark = &rest[..rest.len().min(4)];
        let name = rest.get(8..rest.len().min(LENGTH)).unwrap_or_default();
        if (b"RIFF".starts_with(mark) || b"RF64".starts_with(mark)) && b"WAVE".starts_with(name) {
            return if rest.len() >= LENGTH {
                Start::At(at)
            } else {
                Start::Perhaps(at)
            };
        }
        from = at + 1;
    }
    Start::Nowhere
}

fn le16(bytes: &[u8]) -> u16 {
    u16::from_le_bytes([bytes[0], bytes[1]])
}

fn le32(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}
