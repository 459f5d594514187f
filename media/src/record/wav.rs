//! The stereo WAV of a call, made from the two sides' raw samples. Pure: the files themselves are
//! opened by the shell's disk thread.
//!
//! A spool holds one side as 16-bit little-endian PCM at 16 kHz, each sample at twice its position;
//! what was never written reads as zeros and is silence. The WAV has the caller on the left and the
//! agent on the right, and is as long as the longer side.

use std::io::{self, Read, Seek, Write};

use crate::time::RATE;

/// Samples a side that fit into one WAV: its sizes are 32-bit (RIFF), a stereo sample takes 4 bytes,
/// and 1 KiB is left for the header. About 18 hours.
pub const MAX_SAMPLES: u64 = (u32::MAX as u64 - 1024) / 4;

/// Writes the WAV and returns its length in samples a side.
///
/// The sides may differ in length, and an odd last byte (a spool cut by a crash) is ignored. No more
/// than `most` samples a side are written.
pub fn write_stereo(
    caller: impl Read,
    agent: impl Read,
    out: impl Write + Seek,
    most: u64,
) -> io::Result<u64> {
    let spec = hound::WavSpec {
        channels: 2,
        sample_rate: RATE,
        bits_per_sample: 16,
        sample_format: hound::SampleFormat::Int,
    };
    let mut wav = hound::WavWriter::new(out, spec).map_err(io_error)?;
    let mut caller = Side::new(caller);
    let mut agent = Side::new(agent);
    let mut samples = 0;
    let most = most.min(MAX_SAMPLES);
    while samples < most {
        let ready = caller.fill()?.max(agent.fill()?);
        let ready = ready.min(usize::try_from(most - samples).unwrap_or(usize::MAX));
        if ready == 0 {
            break;
        }
        let count = u32::try_from(ready * 2).map_err(io::Error::other)?;
        let mut block = wav.get_i16_writer(count);
        for (left, right) in caller.take(ready).zip(agent.take(ready)) {
            block.write_sample(left);
            block.write_sample(right);
        }
        block.flush().map_err(io_error)?;
        samples += ready as u64;
    }
    wav.finalize().map_err(io_error)?;
    Ok(samples)
}

/// Samples that are read in one go: 0.5 s of one side.
const BLOCK: usize = 8192;

struct Side<R> {
    source: R,
    bytes: Vec<u8>,
    filled: usize,
}

impl<R: Read> Side<R> {
    fn new(source: R) -> Self {
        Self {
            source,
            bytes: vec![0; BLOCK * 2],
            filled: 0,
        }
    }

    /// Reads the next block, short only at the end; returns its whole samples.
    fn fill(&mut self) -> io::Result<usize> {
        self.filled = 0;
        while self.filled < self.bytes.len() {
            match self.source.read(&mut self.bytes[self.filled..]) {
                Ok(0) => break,
                Ok(n) => self.filled += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.filled / 2)
    }

    /// `count` samples of the block, silence after its end.
    fn take(&self, count: usize) -> impl Iterator<Item = i16> + '_ {
        self.bytes[..self.filled]
            .chunks_exact(2)
            .map(|pair| i16::from_le_bytes([pair[0], pair[1]]))
            .chain(std::iter::repeat(0))
            .take(count)
    }
}

fn io_error(error: hound::Error) -> io::Error {
    match error {
        hound::Error::IoError(error) => error,
        other => io::Error::other(other),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed step is a failed test")]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn pcm(samples: impl IntoIterator<Item = i16>) -> Vec<u8> {
        samples.into_iter().flat_map(i16::to_le_bytes).collect()
    }

    #[test]
    fn the_shorter_side_is_followed_by_silence_and_an_odd_byte_is_dropped() {
        let caller = pcm((0..20_000).map(|n| (n % 1000) as i16));
        let mut agent = pcm([7, 8, 9]);
        agent.push(1);
        let mut out = Cursor::new(Vec::new());
        assert_eq!(
            write_stereo(&caller[..], &agent[..], &mut out, MAX_SAMPLES).unwrap(),
            20_000
        );
        out.set_position(0);
        let mut wav = hound::WavReader::new(out).unwrap();
        assert_eq!(
            (wav.spec().channels, wav.spec().sample_rate, wav.duration()),
            (2, 16_000, 20_000)
        );
        let samples: Vec<i16> = wav.samples().map(|s| s.unwrap()).collect();
        assert_eq!(samples[..8], [0, 7, 1, 8, 2, 9, 3, 0]);
        assert!(
            samples
                .chunks(2)
                .enumerate()
                .all(|(n, s)| s[0] == (n % 1000) as i16)
        );
    }

    #[test]
    fn nothing_recorded_is_a_valid_empty_file() {
        let mut out = Cursor::new(Vec::new());
        assert_eq!(
            write_stereo(&[][..], &[][..], &mut out, MAX_SAMPLES).unwrap(),
            0
        );
        out.set_position(0);
        assert_eq!(hound::WavReader::new(out).unwrap().duration(), 0);
    }
}
