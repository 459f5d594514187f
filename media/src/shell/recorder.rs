//! One call's way to the disk: sound and tape go into the thread's ring, never waiting.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rtrb::Producer;

use super::counters::{Tallies, count};
use super::mailbox::CallKey;
use crate::call::output::Side;
use crate::record::wav::MAX_SAMPLES;
use crate::tape::TapeWriter;
use crate::time::{RATE, Samples};

/// Bytes in a media thread's ring to the disk. The disk thread empties it every tenth of a second or
/// when it is half full; this is three seconds of 20 calls or a stall of 60 ms with 1,000.
pub(super) const RING: usize = 4 << 20;

/// A side's sound goes to the ring in blocks of 200 ms: few messages, and a killed node loses little.
const BLOCK: usize = RATE as usize / 5;

/// The tape goes to the ring in pieces of about this size, bytes.
const TAPE_PIECE: usize = 4 << 10;

/// A message in the ring: this header, then `length` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) key: CallKey,
    pub(super) kind: Kind,
    /// Of sound: the position of the first sample. Of an end: what was lost, ms.
    pub(super) at: u64,
    pub(super) length: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Caller,
    Agent,
    Tape,
    /// The call is over; nothing of it follows.
    End,
}

impl Header {
    pub(super) const SIZE: usize = 21;

    fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..8].copy_from_slice(&self.key.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.at.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.length.to_le_bytes());
        bytes[20] = self.kind as u8;
        bytes
    }

    pub(super) fn from_bytes(bytes: [u8; Self::SIZE]) -> Self {
        let eight = |from: usize| {
            let mut eight = [0; 8];
            eight.copy_from_slice(&bytes[from..from + 8]);
            u64::from_le_bytes(eight)
        };
        let kind = match bytes[20] {
            0 => Kind::Caller,
            1 => Kind::Agent,
            2 => Kind::Tape,
            _ => Kind::End,
        };
        let length = u32::from_le_bytes([bytes[16], bytes[17], bytes[18], bytes[19]]);
        Self {
            key: eight(0),
            kind,
            at: eight(8),
            length,
        }
    }
}

/// A media thread's end of its ring, shared by its calls.
pub(super) struct Ring {
    producer: Producer<u8>,
    disk: std::thread::Thread,
    tallies: Arc<Tallies>,
}

impl Ring {
    pub(super) fn new(
        producer: Producer<u8>,
        disk: std::thread::Thread,
        tallies: Arc<Tallies>,
    ) -> Self {
        Self {
            producer,
            disk,
            tallies,
        }
    }

    /// `false`: no room, nothing was written.
    fn push(&mut self, header: Header, bytes: &[u8]) -> bool {
        let free = self.producer.slots();
        if free < Header::SIZE + bytes.len() {
            self.disk.unpark();
            return false;
        }
        let pushed = self.producer.push_entire_slice(&header.to_bytes()).is_ok()
            && self.producer.push_entire_slice(bytes).is_ok();
        if free < RING / 2 || header.kind == Kind::End {
            self.disk.unpark();
        }
        pushed
    }
}

/// Collects one call's sound and tape.
pub(super) struct Recorder {
    key: CallKey,
    pub(super) tape: TapeWriter,
    sides: [Block; 2],
    recording: bool,
    lost: u64,
}

/// Sound that follows on without a hole.
#[derive(Default)]
struct Block {
    at: u64,
    bytes: Vec<u8>,
}

impl Recorder {
    pub(super) fn new(key: CallKey, tape: TapeWriter, recording: bool) -> Self {
        Self {
            key,
            tape,
            sides: Default::default(),
            recording,
            lost: 0,
        }
    }

    pub(super) fn record(&mut self, ring: &mut Ring, side: Side, at: u64, samples: &[i16]) {
        if !self.recording || at + samples.len() as u64 > MAX_SAMPLES {
            return;
        }
        let block = &self.sides[side as usize];
        let full = block.bytes.len() >= BLOCK * 2;
        if full || block.at + block.bytes.len() as u64 / 2 != at {
            self.push_block(ring, side);
            self.sides[side as usize].at = at;
        }
        let block = &mut self.sides[side as usize].bytes;
        block.extend(samples.iter().flat_map(|sample| sample.to_le_bytes()));
    }

    /// Hands the tape on when there is a piece of it.
    pub(super) fn served(&mut self, ring: &mut Ring) {
        self.tape.served();
        if self.tape.pending().len() >= TAPE_PIECE {
            self.push_tape(ring);
        }
    }

    /// What was lost of the sound so far, ms.
    pub(super) fn gap_ms(&self) -> u64 {
        Samples(self.lost).ms()
    }

    /// Hands on all that is collected.
    pub(super) fn flush(&mut self, ring: &mut Ring) {
        self.push_block(ring, Side::Caller);
        self.push_block(ring, Side::Agent);
        self.push_tape(ring);
    }

    /// Tells the disk that the call is over. `false`: no room now, ask again.
    pub(super) fn end(&self, ring: &mut Ring) -> bool {
        ring.push(
            Header {
                key: self.key,
                kind: Kind::End,
                at: self.gap_ms(),
                length: 0,
            },
            &[],
        )
    }

    fn push_block(&mut self, ring: &mut Ring, side: Side) {
        let block = &mut self.sides[side as usize];
        if block.bytes.is_empty() {
            return;
        }
        let kind = match side {
            Side::Caller => Kind::Caller,
            Side::Agent => Kind::Agent,
        };
        let header = Header {
            key: self.key,
            kind,
            at: block.at,
            length: block.bytes.len() as u32,
        };
        if !ring.push(header, &block.bytes) {
            let samples = block.bytes.len() as u64 / 2;
            let before = Samples(self.lost).ms();
            self.lost += samples;
            count(
                &ring.tallies.record_gap_ms,
                Samples(self.lost).ms() - before,
            );
        }
        block.at += block.bytes.len() as u64 / 2;
        block.bytes.clear();
    }

    fn push_tape(&mut self, ring: &mut Ring) {
        let pending = self.tape.pending();
        if pending.is_empty() {
            return;
        }
        let header = Header {
            key: self.key,
            kind: Kind::Tape,
            at: 0,
            length: pending.len() as u32,
        };
        let pushed = ring.push(header, pending);
        self.tape.clear();
        if !pushed {
            // A tape with a hole cannot be replayed beyond it.
            self.tape.stop();
            ring.tallies.stopped_tapes.fetch_add(1, Relaxed);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed step is a failed test")]
mod tests {
    use super::*;
    use crate::config::*;
    use crate::time::Time;

    fn config() -> CallConfig {
        super::super::tests::config("recorder")
    }

    #[test]
    fn headers_survive_the_ring() {
        for kind in [Kind::Caller, Kind::Agent, Kind::Tape, Kind::End] {
            let header = Header {
                key: 0x1234_5678_9abc,
                kind,
                at: u64::MAX - 5,
                length: 77,
            };
            assert_eq!(Header::from_bytes(header.to_bytes()), header);
        }
    }

    #[test]
    fn a_full_ring_is_a_counted_gap_and_stops_the_tape() {
        let tallies = Arc::new(Tallies::default());
        let (producer, mut consumer) = rtrb::RingBuffer::new(8000);
        let mut ring = Ring::new(producer, std::thread::current(), tallies.clone());
        let tape = TapeWriter::new(&config(), Time::from_millis(5), true);
        let mut recorder = Recorder::new(7, tape, true);
        for frame in 0..30 {
            recorder.record(&mut ring, Side::Caller, frame * 320, &[5; 320]);
        }
        recorder.flush(&mut ring);
        // 200 ms fit (6,421 bytes), the other 400 do not.
        assert_eq!(recorder.gap_ms(), 400);
        assert_eq!(tallies.read().record_gap_ms, 400);
        assert_eq!(recorder.end(&mut ring), true);
        let mut header = [0; Header::SIZE];
        consumer.pop_entire_slice(&mut header).unwrap();
        assert_eq!(
            Header::from_bytes(header),
            Header {
                key: 7,
                kind: Kind::Caller,
                at: 0,
                length: 6400
            }
        );
    }

    #[test]
    fn holes_start_a_new_block_at_their_end() {
        let (producer, mut consumer) = rtrb::RingBuffer::new(1 << 16);
        let mut ring = Ring::new(producer, std::thread::current(), Arc::default());
        let tape = TapeWriter::new(&config(), Time::from_millis(5), true);
        let mut recorder = Recorder::new(7, tape, true);
        for at in [0, 320, 1600, 1920] {
            recorder.record(&mut ring, Side::Agent, at, &[1; 320]);
        }
        recorder.flush(&mut ring);
        let mut blocks = Vec::new();
        while consumer.slots() > 0 {
            let mut header = [0; Header::SIZE];
            consumer.pop_entire_slice(&mut header).unwrap();
            let header = Header::from_bytes(header);
            let mut body = vec![0; header.length as usize];
            consumer.pop_entire_slice(&mut body).unwrap();
            if header.kind != Kind::Tape {
                blocks.push((header.kind, header.at, header.length));
            }
        }
        assert_eq!(blocks, [(Kind::Agent, 0, 1280), (Kind::Agent, 1600, 1280)]);
    }
}
