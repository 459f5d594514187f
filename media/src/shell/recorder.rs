//! One call's way to the disk: its sound and its tape are handed over as they lie, in buffers that come back.

use std::sync::Arc;

use rtrb::{Consumer, Producer};

use super::counters::{Tallies, count};
use super::mailbox::CallKey;
use crate::call::output::Side;
use crate::record::wav::MAX_SAMPLES;
use crate::tape::TapeWriter;
use crate::time::Samples;

/// Messages that a media thread's ring to the disk holds, each of 8 KiB at most as a rule.
const RING: usize = 1_024;

/// The disk thread empties the ring every tenth of a second and whenever this many messages wait; the room that is
/// left then holds what 1,000 calls say in 85 ms.
const WAITING: usize = 128;

/// Empty buffers of a kind that are kept: what waits as a rule, and some for the time that the disk thread takes.
const EMPTY: usize = 2 * WAITING;

/// A side's sound goes to the ring in blocks that end at multiples of this position, samples (256 ms): few
/// messages, a killed node loses little, and the file is written in whole pages of 4 KiB, of which the kernel
/// has to fill up none.
const BLOCK: usize = 4_096;

/// While the ring is full a side keeps two seconds (in samples); then that block is a gap.
const MAX_BLOCK: usize = 8 * BLOCK;

/// The tape goes to the ring when there is this much of it, bytes.
const TAPE_PIECE: usize = 4 << 10;

/// While the ring is full a call keeps this much of its tape (16 s of PCM from a quick voice); then
/// the tape stops.
const MAX_TAPE: usize = 512 << 10;

/// Sound as it is written: samples as 16-bit little-endian.
type Sound = Vec<[u8; 2]>;

/// What a call has for the disk.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) key: CallKey,
    pub(super) body: Body,
}

#[derive(Debug)]
pub(super) enum Body {
    /// One side's sound from this position on, samples.
    Sound { side: Side, at: u64, sound: Sound },
    /// A piece of the tape from this position in the file on, bytes.
    Tape { at: u64, piece: Vec<u8> },
    /// The call is over, nothing of it follows; what was lost of its sound, ms.
    End { gap_ms: u64 },
}

/// A media thread's end of its ring, before it is [one of the thread's own](Ring::new).
pub(super) struct Near {
    messages: Producer<Message>,
    sounds: Consumer<Sound>,
    pieces: Consumer<Vec<u8>>,
}

/// The disk thread's end of a media thread's ring.
pub(super) struct Far {
    messages: Consumer<Message>,
    sounds: Producer<Sound>,
    pieces: Producer<Vec<u8>>,
}

/// Both ends of a media thread's ring.
pub(super) fn ring() -> (Near, Far) {
    with_room(RING)
}

/// The same for so many messages.
fn with_room(room: usize) -> (Near, Far) {
    let (to_disk, messages) = rtrb::RingBuffer::new(room);
    let (empty_sounds, sounds) = rtrb::RingBuffer::new(EMPTY);
    let (empty_pieces, pieces) = rtrb::RingBuffer::new(EMPTY);
    let near = Near {
        messages: to_disk,
        sounds,
        pieces,
    };
    let far = Far {
        messages,
        sounds: empty_sounds,
        pieces: empty_pieces,
    };
    (near, far)
}

impl Far {
    /// The next message, if there is one.
    pub(super) fn pop(&mut self) -> Option<Message> {
        self.messages.pop().ok()
    }

    /// Whether the media thread is gone, and nothing more will come.
    pub(super) fn is_abandoned(&self) -> bool {
        self.messages.is_abandoned()
    }

    /// Gives a message's buffer back, unless it grew while the ring was full, or enough of them are kept.
    pub(super) fn give_back(&mut self, body: Body) {
        match body {
            Body::Sound { mut sound, .. } if sound.capacity() <= BLOCK => {
                sound.clear();
                drop(self.sounds.push(sound));
            }
            Body::Tape { mut piece, .. } if piece.capacity() <= 2 * TAPE_PIECE => {
                piece.clear();
                drop(self.pieces.push(piece));
            }
            Body::Sound { .. } | Body::Tape { .. } | Body::End { .. } => {}
        }
    }
}

/// A media thread's end of its ring, shared by its calls.
pub(super) struct Ring {
    near: Near,
    disk: std::thread::Thread,
    tallies: Arc<Tallies>,
}

impl Ring {
    pub(super) fn new(near: Near, disk: std::thread::Thread, tallies: Arc<Tallies>) -> Self {
        Self {
            near,
            disk,
            tallies,
        }
    }

    /// `false`: no room, the message was not made.
    fn push(&mut self, message: impl FnOnce(&mut Near) -> Message) -> bool {
        let free = self.near.messages.slots();
        // Without a disk thread nothing will ever make room.
        if free == 0 && !self.near.messages.is_abandoned() {
            self.disk.unpark();
            return false;
        }
        let message = message(&mut self.near);
        let ends = matches!(message.body, Body::End { .. });
        // Refused is only what nobody would take.
        drop(self.near.messages.push(message));
        if ends || self.near.messages.buffer().capacity() - free >= WAITING {
            self.disk.unpark();
        }
        true
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

/// Sound that follows on without a hole.
#[derive(Default)]
struct Block {
    at: u64,
    sound: Sound,
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
            let end = block.at + block.sound.len() as u64;
            let follows = end == at;
            if (!follows || end.is_multiple_of(BLOCK as u64)) && !self.push_block(ring, side) {
                let waiting = self.sides[side as usize].sound.len();
                if !follows || waiting >= MAX_BLOCK {
                    self.lose_block(ring, side);
                }
            }
            let block = &mut self.sides[side as usize];
            if block.sound.is_empty() {
                block.at = at;
                if block.sound.capacity() == 0 {
                    let empty = ring.near.sounds.pop();
                    block.sound = empty.unwrap_or_else(|_| Vec::with_capacity(BLOCK));
                }
            }
            let room = BLOCK - (at % BLOCK as u64) as usize;
            let (now, later) = samples.split_at(samples.len().min(room));
            block
                .sound
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
        let (key, gap_ms) = (self.key, self.gap_ms());
        let ended = self.push_block(ring, Side::Caller)
            && self.push_block(ring, Side::Agent)
            && self.push_tape(ring)
            && ring.push(|_| Message {
                key,
                body: Body::End { gap_ms },
            });
        if ended && self.tape.is_stopped() {
            count(&ring.tallies.stopped_tapes, 1);
        }
        ended
    }

    /// `false`: no room, the block is kept.
    fn push_block(&mut self, ring: &mut Ring, side: Side) -> bool {
        let (key, block) = (self.key, &mut self.sides[side as usize]);
        if block.sound.is_empty() {
            return true;
        }
        let at = block.at;
        let sound = &mut block.sound;
        let next = at + sound.len() as u64;
        let pushed = ring.push(|_| Message {
            key,
            body: Body::Sound {
                side,
                at,
                sound: std::mem::take(sound),
            },
        });
        if pushed {
            block.at = next;
        }
        pushed
    }

    fn lose_block(&mut self, ring: &mut Ring, side: Side) {
        let block = &mut self.sides[side as usize];
        let before = Samples(self.lost).ms();
        self.lost += block.sound.len() as u64;
        block.sound.clear();
        count(
            &ring.tallies.record_gap_ms,
            Samples(self.lost).ms() - before,
        );
    }

    /// `false`: no room, the tape is kept.
    fn push_tape(&mut self, ring: &mut Ring) -> bool {
        let length = self.tape.pending().len();
        if length == 0 {
            return true;
        }
        let (key, at) = (self.key, self.tape_at);
        let tape = &mut self.tape;
        let pushed = ring.push(|near| Message {
            key,
            body: Body::Tape {
                at,
                piece: tape.take(near.pieces.pop().unwrap_or_default()),
            },
        });
        if pushed {
            self.tape_at += length as u64;
        }
        pushed
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

    /// Empties the ring: kind, position and length of each message, samples of sound and bytes of a tape.
    fn messages(far: &mut Far) -> Vec<(&'static str, u64, usize)> {
        let told = |body: &Body| match body {
            Body::Sound { side, at, sound } => match side {
                Side::Caller => ("caller", *at, sound.len()),
                Side::Agent => ("agent", *at, sound.len()),
            },
            Body::Tape { at, piece } => ("tape", *at, piece.len()),
            Body::End { gap_ms } => ("end", *gap_ms, 0),
        };
        let mut messages = Vec::new();
        while let Some(message) = far.pop() {
            messages.push(told(&message.body));
            far.give_back(message.body);
        }
        messages
    }

    fn recorder(room: usize) -> (Recorder, Ring, Far) {
        let (near, far) = with_room(room);
        let ring = Ring::new(near, std::thread::current(), Arc::default());
        let tape = TapeWriter::new(&config(), Time::from_millis(5), true);
        (Recorder::new(7, tape, true), ring, far)
    }

    #[test]
    fn a_full_ring_keeps_two_seconds_and_then_counts_a_gap() {
        let (mut recorder, mut ring, mut far) = recorder(1);
        for frame in 0..200 {
            recorder.record(&mut ring, Side::Caller, frame * 320, &[5; 320]);
        }
        // 256 ms fit, eight times as much was kept and given up, and the rest still waits.
        assert_eq!(
            (recorder.gap_ms(), ring.tallies.read().record_gap_ms),
            (2048, 2048)
        );
        assert_eq!(messages(&mut far), [("caller", 0, BLOCK)]);
        assert!(!recorder.end(&mut ring), "there is room for one");
        let from = 9 * BLOCK;
        let rest = ("caller", from as u64, 200 * 320 - from);
        assert_eq!(messages(&mut far), [rest]);
        assert!(!recorder.end(&mut ring), "there is room for the tape");
        assert_eq!(messages(&mut far)[0].0, "tape");
        assert!(recorder.end(&mut ring));
        assert_eq!(messages(&mut far), [("end", 2048, 0)]);
    }

    #[test]
    fn a_tape_waits_for_room_and_stops_when_it_waits_too_long() {
        let (mut recorder, mut ring, mut far) = recorder(1);
        let text = "x".repeat(60_000);
        for ms in 0..3 {
            recorder
                .tape
                .input(Time::from_millis(10 + ms), &Input::Text(&text));
            recorder.served(&mut ring);
        }
        let first = messages(&mut far);
        assert_eq!((first.len(), first[0].1), (1, 0));
        recorder.tape.input(Time::from_millis(20), &Input::Timeout);
        recorder.served(&mut ring);
        let second = messages(&mut far);
        assert_eq!((second.len(), second[0].1), (1, first[0].2 as u64));
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
        let (mut recorder, mut ring, mut far) = recorder(16);
        // It does not begin at a page's beginning, and a frame lies across each page's end.
        for frame in 0..40 {
            recorder.record(&mut ring, Side::Caller, 4_000 + frame * 320, &[1; 320]);
        }
        assert!(recorder.end(&mut ring));
        let blocks = messages(&mut far);
        let sound = [
            (4_000, 96),
            (4_096, 4_096),
            (8_192, 4_096),
            (12_288, 4_096),
            (16_384, 416),
        ];
        let sound = sound.map(|(at, length)| ("caller", at, length));
        assert_eq!(blocks[..5], sound);
    }

    #[test]
    fn holes_start_a_new_block_at_their_end() {
        let (mut recorder, mut ring, mut far) = recorder(16);
        for at in [0, 320, 1600, 1920] {
            recorder.record(&mut ring, Side::Agent, at, &[1; 320]);
        }
        assert!(recorder.end(&mut ring));
        let blocks = messages(&mut far);
        assert_eq!(blocks[..2], [("agent", 0, 640), ("agent", 1600, 640)]);
    }

    #[test]
    fn buffers_come_back_but_for_those_that_grew() {
        let (mut recorder, mut ring, mut far) = recorder(2);
        let pending = |ring: &Ring| (ring.near.sounds.slots(), ring.near.pieces.slots());
        let blocks = |recorder: &mut Recorder, ring: &mut Ring, from: u64, count: u64| {
            for at in (from..from + count).map(|block| block * BLOCK as u64) {
                recorder.record(ring, Side::Caller, at, &[1; BLOCK]);
            }
        };
        blocks(&mut recorder, &mut ring, 0, 2);
        assert_eq!(messages(&mut far).len(), 1);
        assert_eq!(pending(&ring), (1, 0));
        // The next block is kept in it.
        blocks(&mut recorder, &mut ring, 2, 1);
        assert_eq!(pending(&ring), (0, 0));
        assert_eq!(messages(&mut far).len(), 1);
        assert_eq!(pending(&ring), (1, 0));
        // Two go, and while there is no room one grows.
        blocks(&mut recorder, &mut ring, 3, 4);
        assert_eq!(messages(&mut far).len(), 2);
        assert_eq!(pending(&ring), (2, 0));
        blocks(&mut recorder, &mut ring, 7, 1);
        assert_eq!(
            messages(&mut far),
            [("caller", 4 * BLOCK as u64, 3 * BLOCK)]
        );
        assert_eq!(pending(&ring), (1, 0), "one is in use, and one was freed");
        let short = "x".repeat(TAPE_PIECE);
        recorder
            .tape
            .input(Time::from_millis(10), &Input::Text(&short));
        recorder.served(&mut ring);
        assert_eq!(messages(&mut far).len(), 1);
        assert_eq!(pending(&ring), (1, 1));
    }

    #[test]
    fn a_ring_that_nobody_empties_takes_all_and_keeps_nothing() {
        let (mut recorder, mut ring, far) = recorder(1);
        drop(far);
        for frame in 0..200 {
            recorder.record(&mut ring, Side::Caller, frame * 320, &[5; 320]);
        }
        assert!(recorder.end(&mut ring));
        assert_eq!(recorder.gap_ms(), 0);
    }
}
