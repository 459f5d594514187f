//! One call's way to the disk: sound and tape go into the thread's ring, never waiting.

use std::sync::Arc;

use rtrb::{Consumer, Producer};

use super::counters::{Tallies, count};
use super::mailbox::CallKey;
use crate::call::output::Side;
use crate::record::wav::MAX_SAMPLES;
use crate::tape::TapeWriter;
use crate::time::Samples;

/// Bytes in a media thread's ring to the disk. The disk thread empties it every tenth of a second and
/// whenever a quarter is used; what is left holds 45 ms of 1,000 calls.
const RING: usize = 4 << 20;

/// A media thread's ring, all of whose memory the system has given already: else it would give it page by page in the
/// midst of frames, until the ring has gone round once.
pub(super) fn ring() -> (Producer<u8>, Consumer<u8>) {
    let (mut producer, mut consumer) = rtrb::RingBuffer::new(RING);
    // They fail without room, of which a new ring has all.
    if let Ok(chunk) = producer.write_chunk(RING) {
        chunk.commit_all();
    }
    if let Ok(chunk) = consumer.read_chunk(RING) {
        chunk.commit_all();
    }
    (producer, consumer)
}

/// A side's sound goes to the ring in blocks that end at multiples of this position, samples (256 ms): few
/// messages, a killed node loses little, and the file is written in whole pages of 4 KiB, of which the kernel
/// has to fill up none.
const BLOCK: u64 = 4_096;

/// While the ring is full a side keeps two seconds (in samples); then that block is a gap.
const MAX_BLOCK: usize = 8 * BLOCK as usize;

/// The tape goes to the ring when there is this much of it, bytes.
const TAPE_PIECE: usize = 4 << 10;

/// While the ring is full a call keeps this much of its tape (16 s of PCM from a quick voice); then
/// the tape stops.
const MAX_TAPE: usize = 512 << 10;

/// The longest message in the ring, bytes, so that a long one need not wait for an empty ring.
const MAX_PIECE: usize = 64 << 10;

/// A message in the ring: this header, then `length` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) key: CallKey,
    pub(super) kind: Kind,
    /// Of sound: the position of the first sample. Of the tape: the position in the file, bytes. Of an
    /// end: what was lost, ms.
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
        if self.producer.is_abandoned() {
            // Without a disk thread nothing will ever make room.
            return true;
        }
        let free = self.producer.slots();
        if free < Header::SIZE + bytes.len() {
            self.disk.unpark();
            return false;
        }
        let pushed = self.producer.push_entire_slice(&header.to_bytes()).is_ok()
            && self.producer.push_entire_slice(bytes).is_ok();
        if free < RING / 4 * 3 || header.kind == Kind::End {
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
    /// Bytes of the tape that were handed on.
    tape_at: u64,
    /// Samples of both sides that found no room.
    lost: u64,
}

/// Sound that follows on without a hole: samples as 16-bit little-endian.
#[derive(Default)]
struct Block {
    at: u64,
    samples: Vec<[u8; 2]>,
}

impl Recorder {
    pub(super) fn new(key: CallKey, tape: TapeWriter, recording: bool) -> Self {
        Self {
            key,
            tape,
            sides: Default::default(),
            recording,
            tape_at: 0,
            lost: 0,
        }
    }

    pub(super) fn record(&mut self, ring: &mut Ring, side: Side, at: u64, samples: &[i16]) {
        if !self.recording || at + samples.len() as u64 > MAX_SAMPLES {
            return;
        }
        let (mut at, mut samples) = (at, samples);
        while !samples.is_empty() {
            let block = &self.sides[side as usize];
            let end = block.at + block.samples.len() as u64;
            let follows = end == at;
            if (!follows || end.is_multiple_of(BLOCK)) && !self.push_block(ring, side) {
                let waiting = self.sides[side as usize].samples.len();
                if !follows || waiting >= MAX_BLOCK {
                    self.lose_block(ring, side);
                }
            }
            let block = &mut self.sides[side as usize];
            if block.samples.is_empty() {
                block.at = at;
                block.samples.reserve_exact(BLOCK as usize);
            }
            let room = (BLOCK - at % BLOCK) as usize;
            let (now, later) = samples.split_at(samples.len().min(room));
            block
                .samples
                .extend(now.iter().map(|sample| sample.to_le_bytes()));
            at += now.len() as u64;
            samples = later;
        }
    }

    /// The call waits again: hands the tape on when there is a piece of it.
    pub(super) fn served(&mut self, ring: &mut Ring) {
        self.tape.served();
        let waiting = self.tape.pending().len();
        if waiting >= TAPE_PIECE
            && !self.push_tape(ring)
            && waiting >= MAX_TAPE
            && !self.tape.is_stopped()
        {
            self.tape.stop();
        }
    }

    /// What was lost of the sound so far, ms.
    pub(super) fn gap_ms(&self) -> u64 {
        Samples(self.lost).ms()
    }

    /// Hands on all that is collected and then tells the disk that the call is over. `false`: no room
    /// now, ask again; nothing is lost by waiting.
    pub(super) fn end(&mut self, ring: &mut Ring) -> bool {
        let end = Header {
            key: self.key,
            kind: Kind::End,
            at: self.gap_ms(),
            length: 0,
        };
        let ended = self.push_block(ring, Side::Caller)
            && self.push_block(ring, Side::Agent)
            && self.push_tape(ring)
            && ring.push(end, &[]);
        if ended && self.tape.is_stopped() {
            count(&ring.tallies.stopped_tapes, 1);
        }
        ended
    }

    /// `false`: no room, the block is kept.
    fn push_block(&mut self, ring: &mut Ring, side: Side) -> bool {
        let block = &mut self.sides[side as usize];
        if block.samples.is_empty() {
            return true;
        }
        let kind = match side {
            Side::Caller => Kind::Caller,
            Side::Agent => Kind::Agent,
        };
        let header = Header {
            key: self.key,
            kind,
            at: block.at,
            length: 2 * block.samples.len() as u32,
        };
        let pushed = ring.push(header, block.samples.as_flattened());
        if pushed {
            block.at += block.samples.len() as u64;
            block.samples.clear();
        }
        pushed
    }

    fn lose_block(&mut self, ring: &mut Ring, side: Side) {
        let block = &mut self.sides[side as usize];
        let before = Samples(self.lost).ms();
        self.lost += block.samples.len() as u64;
        block.samples.clear();
        count(
            &ring.tallies.record_gap_ms,
            Samples(self.lost).ms() - before,
        );
    }

    /// `false`: no room, the tape is kept.
    fn push_tape(&mut self, ring: &mut Ring) -> bool {
        let mut handed = 0;
        for piece in self.tape.pending().chunks(MAX_PIECE) {
            let header = Header {
                key: self.key,
                kind: Kind::Tape,
                at: self.tape_at + handed as u64,
                length: piece.len() as u32,
            };
            if !ring.push(header, piece) {
                break;
            }
            handed += piece.len();
        }
        self.tape_at += handed as u64;
        self.tape.take(handed);
        self.tape.pending().is_empty()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed step is a failed test")]
mod tests {
    use super::*;
    use crate::call::input::Input;
    use crate::config::CallConfig;
    use crate::time::Time;

    fn config() -> CallConfig {
        super::super::tests::config("recorder")
    }

    /// Pages that the system has given this thread so far (`proc_pid_stat(5)`, field 10).
    fn pages() -> u64 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let (_, fields) = stat.rsplit_once(')').unwrap();
        let given = fields.split_ascii_whitespace().nth(7).unwrap();
        given.parse().unwrap()
    }

    #[test]
    fn a_new_ring_is_empty_and_has_its_memory() {
        let (mut producer, mut consumer) = ring();
        assert_eq!((producer.slots(), consumer.slots()), (RING, 0));
        let before = pages();
        producer.write_chunk(RING).unwrap().commit_all();
        consumer.read_chunk(RING).unwrap().commit_all();
        let given = pages() - before;
        assert!(given < 64, "{given} pages");
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

    /// Empties the ring: kind, position and length of each message.
    fn messages(consumer: &mut Consumer<u8>) -> Vec<(Kind, u64, u32)> {
        let mut messages = Vec::new();
        while consumer.slots() > 0 {
            let mut header = [0; Header::SIZE];
            consumer.pop_entire_slice(&mut header).unwrap();
            let header = Header::from_bytes(header);
            let mut body = vec![0; header.length as usize];
            consumer.pop_entire_slice(&mut body).unwrap();
            messages.push((header.kind, header.at, header.length));
        }
        messages
    }

    fn recorder(room: usize) -> (Recorder, Ring, Consumer<u8>) {
        let (producer, consumer) = rtrb::RingBuffer::new(room);
        let ring = Ring::new(producer, std::thread::current(), Arc::default());
        let tape = TapeWriter::new(&config(), Time::from_millis(5), true);
        (Recorder::new(7, tape, true), ring, consumer)
    }

    #[test]
    fn a_full_ring_keeps_two_seconds_and_then_counts_a_gap() {
        let (mut recorder, mut ring, mut consumer) = recorder(12_000);
        for frame in 0..200 {
            recorder.record(&mut ring, Side::Caller, frame * 320, &[5; 320]);
        }
        // 256 ms fit, eight times as much was kept and given up, and the rest still waits.
        assert_eq!(
            (recorder.gap_ms(), ring.tallies.read().record_gap_ms),
            (2048, 2048)
        );
        assert_eq!(messages(&mut consumer), [(Kind::Caller, 0, 8192)]);
        let (mut large, more) = rtrb::RingBuffer::new(1 << 20);
        std::mem::swap(&mut ring.producer, &mut large);
        consumer = more;
        assert!(recorder.end(&mut ring), "now there is room");
        let rest = messages(&mut consumer);
        let from = 9 * BLOCK;
        assert_eq!(rest[0], (Kind::Caller, from, 2 * (200 * 320 - from) as u32));
        assert_eq!((rest[1].0, rest.last().unwrap().0), (Kind::Tape, Kind::End));
        assert_eq!(rest.last().unwrap().1, 2048);
    }

    #[test]
    fn a_tape_waits_for_room_and_stops_when_it_waits_too_long() {
        let (mut recorder, mut ring, mut consumer) = recorder(100_000);
        let text = "x".repeat(60_000);
        for ms in 0..3 {
            recorder
                .tape
                .input(Time::from_millis(10 + ms), &Input::Text(&text));
            recorder.served(&mut ring);
        }
        let first = messages(&mut consumer);
        recorder.tape.input(Time::from_millis(20), &Input::Timeout);
        recorder.served(&mut ring);
        let second = messages(&mut consumer);
        assert!(
            !second.is_empty() && second[0].1 == first.iter().map(|m| u64::from(m.2)).sum::<u64>()
        );
        for ms in 0..30 {
            recorder
                .tape
                .input(Time::from_millis(30 + ms), &Input::Text(&text));
            recorder.served(&mut ring);
        }
        assert!(recorder.tape.is_stopped());
        assert!(recorder.tape.pending().len() < MAX_TAPE + 2 * text.len());
    }

    #[test]
    fn blocks_end_where_pages_of_the_file_do() {
        let (mut recorder, mut ring, mut consumer) = recorder(1 << 16);
        // It does not begin at a page's beginning, and a frame lies across each page's end.
        for frame in 0..40 {
            recorder.record(&mut ring, Side::Caller, 4_000 + frame * 320, &[1; 320]);
        }
        assert!(recorder.end(&mut ring));
        let blocks = messages(&mut consumer);
        let sound = [
            (4_000, 192),
            (4_096, 8_192),
            (8_192, 8_192),
            (12_288, 8_192),
            (16_384, 832),
        ];
        let sound = sound.map(|(at, length)| (Kind::Caller, at, length));
        assert_eq!(blocks[..5], sound);
    }

    #[test]
    fn holes_start_a_new_block_at_their_end() {
        let (mut recorder, mut ring, mut consumer) = recorder(1 << 16);
        for at in [0, 320, 1600, 1920] {
            recorder.record(&mut ring, Side::Agent, at, &[1; 320]);
        }
        assert!(recorder.end(&mut ring));
        let blocks = messages(&mut consumer);
        assert_eq!(
            blocks[..2],
            [(Kind::Agent, 0, 1280), (Kind::Agent, 1600, 1280)]
        );
    }
}
