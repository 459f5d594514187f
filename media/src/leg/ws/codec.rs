//! Base64 audio of a message to samples of the engine, and back: one codec a leg, with its filters'
//! memory and buffers that are reused.

use std::time::Duration;

use super::watch::{Verdict, Watch};
use crate::audio::g711;
use crate::audio::resample::Resampler;
use crate::config::AudioFormat;
use crate::frame::FRAME;
use crate::leg::Coding;
use crate::time::{RATE, Time};

/// The longest audio in one message, seconds: bounds what one message may cost.
const LONGEST_SECONDS: usize = 1;

pub(super) struct Codec {
    /// Present when the wire has G.711 μ-law at 8 kHz; else it has PCM16 at the engine's rate.
    ulaw: Option<Ulaw>,
    /// Bytes of the message at hand, decoded or to be encoded.
    bytes: Vec<u8>,
    /// Its samples at [`RATE`].
    samples: Vec<i16>,
    watch: Watch,
}

struct Ulaw {
    up: Resampler,
    down: Resampler,
    /// Samples of the message at hand at 8 kHz.
    narrow: Vec<i16>,
}

impl Codec {
    pub(super) fn new(format: AudioFormat) -> Self {
        let ulaw = match format {
            // Opus comes in RTP, never in a message.
            AudioFormat::Pcm16000 | AudioFormat::Opus48000 => None,
            AudioFormat::Ulaw8000 => Some(Ulaw {
                up: resampler(format.sample_rate(), RATE),
                down: resampler(RATE, format.sample_rate()),
                narrow: Vec::new(),
            }),
        };
        Self {
            ulaw,
            bytes: Vec::new(),
            samples: Vec::new(),
            watch: Watch::new(format),
        }
    }

    pub(super) const fn tell_time(&mut self, now: Time) {
        self.watch.tell_time(now);
    }

    /// What the client is to be told of its audio, once: it is of another kind.
    pub(super) const fn take_words(&mut self) -> Option<String> {
        self.watch.take_words()
    }

    pub(super) fn exchange(&mut self, coding: &mut Coding) {
        std::mem::swap(&mut self.bytes, &mut coding.bytes);
        std::mem::swap(&mut self.samples, &mut coding.wide);
        if let Some(ulaw) = &mut self.ulaw {
            std::mem::swap(&mut ulaw.narrow, &mut coding.narrow);
        }
    }

    /// Decodes one message's audio, which [`samples`](Self::samples) then holds, and says how many
    /// samples it had on the wire. A refused message leaves no trace in the filters.
    pub(super) fn decode(&mut self, base64: &[u8]) -> Result<usize, &'static str> {
        let longest = LONGEST_SECONDS * self.bytes_a_second();
        if base64.len() > base64_simd::STANDARD.encoded_length(longest) {
            return Err("audio is longer than 1 s");
        }
        self.bytes.clear();
        base64_simd::STANDARD
            .decode_append(base64, &mut self.bytes)
            .map_err(|_| "audio is not base64 (RFC 4648 section 4, padded)")?;
        if self.bytes.is_empty() {
            return Err("audio is empty");
        }
        if self.bytes.len() > longest {
            return Err("audio is longer than 1 s");
        }
        let from = match self.watch.look(&self.bytes) {
            Verdict::Play(from) => from,
            Verdict::Drop => {
                self.samples.clear();
                return Ok(0);
            }
        };
        let bytes = &self.bytes[from..];
        match &mut self.ulaw {
            None => {
                // Behind a header the samples may begin anywhere.
                if from == 0 && !bytes.len().is_multiple_of(2) {
                    return Err("audio has an odd number of bytes; pcm_16000 has two a sample");
                }
                // Sized first and then written: so the compiler makes a plain copy of it.
                let (pairs, _) = bytes.as_chunks();
                self.samples.resize(pairs.len(), 0);
                for (sample, pair) in self.samples.iter_mut().zip(pairs) {
                    *sample = i16::from_le_bytes(*pair);
                }
                Ok(self.samples.len())
            }
            Some(ulaw) => {
                ulaw.narrow.resize(bytes.len(), 0);
                g711::ulaw_decode(bytes, &mut ulaw.narrow);
                self.samples.clear();
                ulaw.up.process(&ulaw.narrow, &mut self.samples);
                Ok(bytes.len())
            }
        }
    }

    /// How much later a sound comes out than it came in.
    pub(super) fn delay(&self) -> Duration {
        self.ulaw
            .as_ref()
            .map_or(Duration::ZERO, |ulaw| ulaw.up.delay())
    }

    /// What the last [`decode`](Self::decode) gave, at [`RATE`]. Empty while a filter still fills.
    pub(super) fn samples(&self) -> &[i16] {
        &self.samples
    }

    /// Appends `frame` (at [`RATE`], filled up with silence to 20 ms) in base64.
    pub(super) fn encode(&mut self, frame: &[i16], out: &mut String) {
        let mut padded = [0; FRAME];
        let frame = if frame.len() < FRAME {
            padded[..frame.len()].copy_from_slice(frame);
            &padded
        } else {
            frame
        };
        match &mut self.ulaw {
            None => {
                self.bytes.resize(frame.len() * 2, 0);
                let (pairs, _) = self.bytes.as_chunks_mut();
                for (pair, sample) in pairs.iter_mut().zip(frame) {
                    *pair = sample.to_le_bytes();
                }
            }
            Some(ulaw) => {
                ulaw.narrow.clear();
                ulaw.down.process(frame, &mut ulaw.narrow);
                self.bytes.resize(ulaw.narrow.len(), 0);
                g711::ulaw_encode(&ulaw.narrow, &mut self.bytes);
            }
        }
        base64_simd::STANDARD.encode_append(&self.bytes, out);
    }

    /// What was encoded is dropped: nothing of it may ring on in the filter.
    pub(super) fn cut(&mut self) {
        if let Some(ulaw) = &mut self.ulaw {
            ulaw.down.reset();
        }
    }

    fn bytes_a_second(&self) -> usize {
        match self.ulaw {
            None => 2 * RATE as usize,
            Some(_) => AudioFormat::Ulaw8000.sample_rate() as usize,
        }
    }
}

#[expect(
    clippy::expect_used,
    reason = "both rates are constants that the resampler has"
)]
fn resampler(from: u32, to: u32) -> Resampler {
    Resampler::new(from, to).expect("8 and 16 kHz convert into each other")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_leg_keeps_is_bounded_by_one_second() {
        for (format, bytes) in [
            (AudioFormat::Pcm16000, 32_000),
            (AudioFormat::Ulaw8000, 8000),
        ] {
            let mut codec = Codec::new(format);
            for size in [2, 640, bytes, bytes + 2, 10 * bytes, 1000 * bytes] {
                let payload = base64_simd::STANDARD.encode_to_string(vec![0x7f; size]);
                assert_eq!(
                    codec.decode(payload.as_bytes()).is_ok(),
                    size <= bytes,
                    "{size}"
                );
                assert!(codec.decode(&payload.as_bytes()[1..]).is_err(), "{size}");
            }
            assert!(codec.bytes.capacity() <= 2 * bytes);
            assert!(codec.samples.capacity() <= 2 * RATE as usize);
        }
    }

    #[test]
    fn a_refused_message_leaves_no_trace_in_the_filters() {
        let tone = base64_simd::STANDARD.encode_to_string([0x12; 160]);
        let (mut clean, mut tried) = (
            Codec::new(AudioFormat::Ulaw8000),
            Codec::new(AudioFormat::Ulaw8000),
        );
        assert!(
            tried
                .decode(tone.as_bytes().split_last().map_or(&[], |(_, rest)| rest))
                .is_err()
        );
        assert!(tried.decode(&tone.as_bytes().repeat(100)).is_err());
        assert_eq!(clean.decode(tone.as_bytes()), Ok(160));
        assert_eq!(tried.decode(tone.as_bytes()), Ok(160));
        assert_eq!(clean.samples(), tried.samples());
    }
}
