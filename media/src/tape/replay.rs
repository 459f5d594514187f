//! Running a tape again: a fresh call, the same inputs at the same times.

use super::digest::{Digest, line};
use super::{Header, Item, Reader};
use crate::call::Call;
use crate::call::input::Input;
use crate::call::output::Output;
use crate::error::TapeError;
use crate::time::Time;

/// Outputs that one input may have. A call waits after a few; one that never waits must not hang
/// the replay.
const MAX_OUTPUTS: usize = 100_000;

/// What a replay gave.
#[derive(Debug)]
pub struct Replay {
    pub header: Header,
    /// One line an output: seconds since the call was made, then what it is. Equal, byte for byte,
    /// for equal tapes on any machine.
    pub outputs: Vec<String>,
    /// Inputs that were handled.
    pub inputs: usize,
    /// The first input whose outputs are not those of the recording.
    pub difference: Option<Difference>,
    /// The call reached its end.
    pub ended: bool,
    /// The recorder stopped before the call ended: the tape was full, or bytes of it were lost.
    pub stopped: bool,
    /// Where the tape breaks off, if it does (a node that was killed leaves such).
    pub broken: Option<TapeError>,
}

/// An input whose outputs differ from the recorded ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Number of the input, from 0.
    pub record: usize,
    /// Where its record stands in the file, bytes.
    pub offset: usize,
    /// When it came.
    pub at: Time,
    /// What the replay gave for it.
    pub outputs: Vec<String>,
}

/// Runs the tape through a fresh call. An error only when the header cannot be read.
pub fn replay(tape: &[u8]) -> Result<Replay, TapeError> {
    replay_with(tape, |header| {
        Call::new(header.config.clone(), header.start, header.punctuates)
    })
}

/// The same with a call made otherwise: the tape of a simulation whose voice detector was scripted.
pub fn replay_with(tape: &[u8], make: impl FnOnce(&Header) -> Call) -> Result<Replay, TapeError> {
    let (header, reader) = Reader::open(tape)?;
    let mut machine = Machine {
        call: make(&header),
        start: header.start,
        digest: Digest::default(),
        outputs: Vec::new(),
        ended: false,
    };
    let mut replay = Replay {
        header,
        outputs: Vec::new(),
        inputs: 0,
        difference: None,
        ended: false,
        stopped: false,
        broken: None,
    };
    // The input that was handled last: where it stands, when it came, and its first output.
    let mut last = (0, machine.start, 0);
    for record in reader {
        let record = match record {
            Ok(record) => record,
            Err(error) => {
                replay.broken = Some(error);
                break;
            }
        };
        let same = match record.item {
            Item::Input { at, input } => {
                last = (record.offset, at, machine.outputs.len());
                replay.inputs += 1;
                machine.serve(at, input);
                continue;
            }
            Item::Check(digest) => digest == machine.digest.short(),
            Item::Done(digest) => digest == machine.digest.value(),
            Item::Stop => {
                replay.stopped = true;
                continue;
            }
        };
        if !same && replay.difference.is_none() {
            let (offset, at, first) = last;
            let outputs = machine.outputs[first..].to_vec();
            replay.difference = Some(Difference {
                record: record.index,
                offset,
                at,
                outputs,
            });
        }
    }
    replay.outputs = machine.outputs;
    replay.ended = machine.ended;
    Ok(replay)
}

/// The first input whose outputs are not those of the recording, or `None` when all are the same. A
/// redacted tape holds no checks, so it never differs.
pub fn first_difference(tape: &[u8]) -> Result<Option<Difference>, TapeError> {
    Ok(replay(tape)?.difference)
}

struct Machine {
    call: Call,
    start: Time,
    digest: Digest,
    outputs: Vec<String>,
    ended: bool,
}

impl Machine {
    /// As the shell does it: one input, then polls until the call waits.
    fn serve(&mut self, now: Time, input: Input<'_>) {
        self.call.handle(now, input);
        let since = now.since(self.start);
        for _ in 0..MAX_OUTPUTS {
            let output = self.call.poll(now);
            self.digest.add(&output);
            self.outputs.push(format!(
                "{:4}.{:06} {}",
                since.as_secs(),
                since.subsec_micros(),
                line(&output)
            ));
            match output {
                Output::Wait(_) => return,
                Output::Done => {
                    self.ended = true;
                    return;
                }
                _ => {}
            }
        }
    }
}
