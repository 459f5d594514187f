//! Payloads to samples and back: one codec a leg, with its filters' memory and buffers that are reused.

use crate::audio::g711;
use crate::audio::resample::Resampler;
use crate::frame::FRAME;
use crate::rtp::sdp::Codec;
use crate::time::RATE;

/// The codecs that are spoken, the preferred ones first.
pub(super) const SPOKEN: &[Codec] = &[Codec::Pcmu, Codec::Pcma];

/// The most audio that one packet is taken for, ms: no packet of a telephone has more.
const LONGEST_MS: u32 = 200;

/// Payloads of the caller to samples.
pub(super) struct Decoder {
    codec: Codec,
    up: Resampler,
    /// At the codec's rate.
    narrow: Vec<i16>,
    wide: Vec<i16>,
}

/// Agent audio to payloads.
pub(super) struct Encoder {
    codec: Codec,
    down: Resampler,
    narrow: Vec<i16>,
}

impl Decoder {
    pub(super) fn new(codec: Codec) -> Self {
        let samples = (RATE * LONGEST_MS / 1000) as usize;
        Self {
            codec,
            up: resampler(codec.clock(), RATE),
            narrow: Vec::with_capacity(samples / 2),
            wide: Vec::with_capacity(samples),
        }
    }

    pub(super) const fn codec(&self) -> Codec {
        self.codec
    }

    /// How much audio a payload holds, in units of the codec's clock. `None`: none, or too much.
    pub(super) fn duration(&self, payload: &[u8]) -> Option<u32> {
        let duration = u32::try_from(payload.len()).ok()?;
        (1..=self.codec.clock() * LONGEST_MS / 1000)
            .contains(&duration)
            .then_some(duration)
    }

    /// Samples of a payload: narrow ones, and the same at the engine's rate.
    pub(super) fn decode(&mut self, payload: &[u8]) -> (&[i16], &[i16]) {
        self.narrow.resize(payload.len(), 0);
        match self.codec {
            Codec::Pcma => g711::alaw_decode(payload, &mut self.narrow),
            _ => g711::ulaw_decode(payload, &mut self.narrow),
        }
        self.wide.clear();
        self.up.process(&self.narrow, &mut self.wide);
        (&self.narrow, &self.wide)
    }

    /// Samples in the place of a packet that is lost.
    pub(super) fn conceal(&mut self, duration: u32) -> &[i16] {
        self.narrow.clear();
        self.narrow.resize(duration as usize, 0);
        self.wide.clear();
        self.up.process(&self.narrow, &mut self.wide);
        &self.wide
    }
}

impl Encoder {
    pub(super) fn new(codec: Codec) -> Self {
        Self {
            codec,
            down: resampler(RATE, codec.clock()),
            narrow: Vec::with_capacity(FRAME),
        }
    }

    pub(super) const fn codec(&self) -> Codec {
        self.codec
    }

    /// Appends the payload of 20 ms.
    pub(super) fn encode(&mut self, frame: &[i16; FRAME], out: &mut Vec<u8>) {
        self.narrow.clear();
        self.down.process(frame, &mut self.narrow);
        // While the filter still fills it gives less than a frame.
        self.narrow.resize(self.frame(), 0);
        let from = out.len();
        out.resize(from + self.narrow.len(), 0);
        match self.codec {
            Codec::Pcma => g711::alaw_encode(&self.narrow, &mut out[from..]),
            _ => g711::ulaw_encode(&self.narrow, &mut out[from..]),
        }
    }

    /// Appends the payload of 20 ms of silence, which is always the same.
    pub(super) fn silence(&self, out: &mut Vec<u8>) {
        let silence = if self.codec == Codec::Pcma {
            0xd5
        } else {
            0xff
        };
        out.resize(out.len() + self.frame(), silence);
    }

    /// What was encoded is dropped: nothing of it may ring on in the filter.
    pub(super) fn cut(&mut self) {
        self.down.reset();
    }

    /// Units of the codec's clock in 20 ms.
    pub(super) const fn frame(&self) -> usize {
        self.codec.clock() as usize / 50
    }
}

#[expect(
    clippy::expect_used,
    reason = "all rates are constants that the resampler has"
)]
fn resampler(from: u32, to: u32) -> Resampler {
    Resampler::new(from, to).expect("the codecs' rates convert to the engine's")
}
