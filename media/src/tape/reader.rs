//! Reading a tape. Total: any bytes give records, and then an end or an error that names its place.

use std::time::Duration;

use serde::de::DeserializeOwned;

use super::{FORMAT, Header, Kind, PACKET_HEAD, VERSION};
use crate::call::input::{Gone, Input};
use crate::error::TapeError;
use crate::leg::RtpPacket;
use crate::speech::{ReplyId, SpeechEvent, SynthesiserEvent};
use crate::time::Time;

/// Longest header line that is looked at, bytes: ten times the longest agent prompts.
const MAX_HEADER: usize = 4 << 20;

/// One record and where it stands.
#[derive(Debug)]
pub struct Record<'a> {
    /// Counts inputs, from 0; a `Check`, `Stop` or `Done` has the number of the input before it.
    pub index: usize,
    /// Where the record begins, bytes from the start of the file.
    pub offset: usize,
    pub item: Item<'a>,
}

/// What a record says.
#[derive(Debug)]
pub enum Item<'a> {
    Input {
        at: Time,
        input: Input<'a>,
    },
    /// The digest of all outputs so far.
    Check(u16),
    /// The tape was stopped while the call went on.
    Stop,
    /// The call was over, with this digest of all outputs.
    Done(u64),
}

/// The records of a tape, in order. After an error or the end there are none.
#[derive(Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    now: Time,
    inputs: usize,
}

impl<'a> Reader<'a> {
    /// Reads the header.
    pub fn open(bytes: &'a [u8]) -> Result<(Header, Self), TapeError> {
        let line = memchr::memchr(b'\n', &bytes[..bytes.len().min(MAX_HEADER)])
            .ok_or_else(|| TapeError::new(0, "no header line"))?;
        let header: Header = serde_json::from_slice(&bytes[..line])
            .map_err(|error| TapeError::new(0, error.to_string()))?;
        if header.format != FORMAT || header.version != VERSION {
            let found = format!(
                "{} version {}, not {FORMAT} version {VERSION}",
                header.format, header.version
            );
            return Err(TapeError::new(0, found));
        }
        let now = header.start;
        Ok((
            header,
            Self {
                bytes,
                at: line + 1,
                now,
                inputs: 0,
            },
        ))
    }

    fn record(&mut self) -> Result<Record<'a>, TapeError> {
        let offset = self.at;
        let item = self.item().map_err(|what| TapeError::new(offset, what))?;
        let index = match item {
            Item::Input { .. } => {
                self.inputs += 1;
                self.inputs - 1
            }
            _ => self.inputs.saturating_sub(1),
        };
        Ok(Record {
            index,
            offset,
            item,
        })
    }

    fn item(&mut self) -> Result<Item<'a>, String> {
        let byte = self.take(1)?[0];
        let kind =
            Kind::from_byte(byte).ok_or_else(|| format!("unknown kind of record {byte:#04x}"))?;
        match kind {
            Kind::Check => return Ok(Item::Check(u16::from_le_bytes(self.array()?))),
            Kind::Stop => return Ok(Item::Stop),
            Kind::Done => return Ok(Item::Done(u64::from_le_bytes(self.array()?))),
            _ => {}
        }
        let delta = self.varint()?;
        let input = self.input(kind)?;
        self.now = self.now + Duration::from_micros(delta);
        Ok(Item::Input {
            at: self.now,
            input,
        })
    }

    fn input(&mut self, kind: Kind) -> Result<Input<'a>, String> {
        Ok(match kind {
            Kind::Connected => Input::Connected,
            Kind::Timeout => Input::Timeout,
            Kind::Text => Input::Text(
                std::str::from_utf8(self.payload()?).map_err(|error| error.to_string())?,
            ),
            Kind::Binary => Input::Binary(self.payload()?),
            Kind::Gone => Input::Gone(match self.take(1)?[0] {
                0 => Gone::Closed,
                1 => Gone::Stalled,
                other => return Err(format!("unknown way to go: {other}")),
            }),
            Kind::Speech => Input::Speech(self.json()?),
            Kind::Audio => {
                let (reply, segment, rate) = (self.number()?, self.number()?, self.number()?);
                let pcm = self.payload()?;
                if pcm.len() % 2 != 0 {
                    return Err("half a sample".to_owned());
                }
                let samples = pcm
                    .chunks_exact(2)
                    .map(|pair| i16::from_le_bytes([pair[0], pair[1]]))
                    .collect();
                let event = SynthesiserEvent::Audio { rate, samples };
                Input::Speech(SpeechEvent::Synthesiser {
                    reply: ReplyId(reply),
                    segment,
                    event,
                })
            }
            Kind::Packet => {
                let payload = self.payload()?;
                let (head, payload) = payload
                    .split_first_chunk::<PACKET_HEAD>()
                    .ok_or("a packet is shorter than its head")?;
                let [kind, s0, s1, t0, t1, t2, t3, c0, c1, c2, c3] = *head;
                Input::Packet(RtpPacket {
                    payload_type: kind & 0x7f,
                    marker: kind & 0x80 != 0,
                    sequence: u16::from_le_bytes([s0, s1]),
                    timestamp: u32::from_le_bytes([t0, t1, t2, t3]),
                    ssrc: u32::from_le_bytes([c0, c1, c2, c3]),
                    payload,
                })
            }
            Kind::Peer => Input::Peer(self.json()?),
            Kind::Hold => Input::Hold(self.take(1)?[0] != 0),
            Kind::Limit => Input::Limit(self.json()?),
            Kind::Sends => Input::Sends(self.take(1)?[0] != 0),
            Kind::Report => Input::Report(self.json()?),
            Kind::Media => Input::Media(self.json()?),
            Kind::Press => Input::Press(char::from(self.take(1)?[0])),
            Kind::Key => Input::Key(char::from(self.take(1)?[0])),
            Kind::Tool => Input::Tool(self.json()?),
            Kind::End => Input::End(self.json()?),
            Kind::Check | Kind::Stop | Kind::Done => return Err("not an input".to_owned()),
        })
    }

    fn json<T: DeserializeOwned>(&mut self) -> Result<T, String> {
        serde_json::from_slice(self.payload()?).map_err(|error| error.to_string())
    }

    fn payload(&mut self) -> Result<&'a [u8], String> {
        let length = usize::try_from(self.varint()?).map_err(|error| error.to_string())?;
        self.take(length)
    }

    fn number(&mut self) -> Result<u32, String> {
        u32::try_from(self.varint()?).map_err(|error| error.to_string())
    }

    fn varint(&mut self) -> Result<u64, String> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            if shift == 63 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err("a number of more than 64 bits".to_owned())
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], String> {
        let rest = &self.bytes[self.at..];
        if length > rest.len() {
            return Err(format!(
                "the tape ends {} bytes too early",
                length - rest.len()
            ));
        }
        self.at += length;
        Ok(&rest[..length])
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<Record<'a>, TapeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let record = self.record();
        if record.is_err() {
            self.at = self.bytes.len();
        }
        Some(record)
    }
}
