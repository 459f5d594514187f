//! How samples are written, and the 16 bits that are made of them. Pure.

use media::audio::g711;

/// How one sample is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    /// 16 to 32 bits, the low byte first; what is shorter than its bytes stands at their upper end.
    Integer,
    /// 16 bits, the high byte first.
    Swapped,
    /// 8 bits, silence at 128.
    Unsigned8,
    /// IEEE 754 of 32 or 64 bits, full scale at 1.
    Float,
    Ulaw,
    Alaw,
}

/// How frames of samples are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    pub(super) encoding: Encoding,
    /// Bytes of one sample.
    pub(super) bytes: usize,
    pub(super) channels: usize,
}

impl Form {
    /// Samples of 16 bits.
    pub(super) const fn pcm(channels: usize) -> Self {
        Self {
            encoding: Encoding::Integer,
            bytes: 2,
            channels,
        }
    }

    /// Bytes of a frame.
    pub(super) const fn width(&self) -> usize {
        self.bytes * self.channels
    }

    /// Appends whole frames, mono.
    pub(super) fn decode(&self, frames: &[u8], out: &mut Vec<i16>) {
        out.reserve(frames.len() / self.width());
        for frame in frames.chunks_exact(self.width()) {
            let sum: i32 = frame
                .chunks_exact(self.bytes)
                .map(|sample| i32::from(self.sample(sample)))
                .sum();
            // The mean of 16-bit values is one.
            out.push((sum / self.channels as i32) as i16);
        }
    }

    fn sample(&self, bytes: &[u8]) -> i16 {
        let upper = || [bytes[bytes.len() - 2], bytes[bytes.len() - 1]];
        match self.encoding {
            Encoding::Integer => i16::from_le_bytes(upper()),
            Encoding::Swapped => i16::from_be_bytes(upper()),
            Encoding::Unsigned8 => (i16::from(bytes[0]) - 128) << 8,
            Encoding::Float => match (bytes.first_chunk::<4>(), bytes.first_chunk::<8>()) {
                (_, Some(eight)) => full_scale(f64::from_le_bytes(*eight)),
                (Some(four), None) => full_scale(f32::from_le_bytes(*four).into()),
                (None, None) => 0,
            },
            Encoding::Ulaw => companded(bytes[0], g711::ulaw_decode),
            Encoding::Alaw => companded(bytes[0], g711::alaw_decode),
        }
    }
}

/// What is too loud is cut, and what is no number is silence: a cast does both.
fn full_scale(value: f64) -> i16 {
    (value * 32_767.0).round() as i16
}

fn companded(byte: u8, decode: impl Fn(&[u8], &mut [i16])) -> i16 {
    let mut sample = [0];
    decode(&[byte], &mut sample);
    sample[0]
}
