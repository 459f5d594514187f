//! Payloads to samples and back: one codec a leg, with its filters' memory and buffers that are reused.

use std::time::Duration;

use crate::audio::conceal::Concealer;
use crate::audio::opus::{self, Head, OpusError, UNITS};
use crate::audio::resample::Resampler;
use crate::audio::{g711, g722};
use crate::frame::FRAME;
use crate::leg::{COMPLEXITY, Coding};
use crate::rtp::sdp::Codec;
use crate::time::RATE;

/// The codecs that are spoken, the preferred ones first: better sound before cheaper.
pub(super) const SPOKEN: &[Codec] = &Codec::ALL;

/// The most audio that one packet is taken for, ms: no packet of a telephone has more.
const LONGEST_MS: u32 = 200;

/// Sound of an Opus stream made up in a row, at most, samples (120 ms): a guess has faded by then.
const MOST_CONCEALED: usize = 1_920;

/// 20 ms of silence in Opus.
const OPUS_SILENCE: [u8; 3] = [0xf8, 0xff, 0xfe];

/// Payloads of the caller to samples.
pub(super) struct Decoder {
    codec: Codec,
    kind: Decoding,
    /// At the codec's rate, where it is not the engine's.
    narrow: Vec<i16>,
    wide: Vec<i16>,
}

enum Decoding {
    G711 {
        up: Resampler,
        concealer: Concealer,
    },
    G722(Box<(g722::Decoder, Concealer)>),
    /// The decoder, and the samples that it made up in a row.
    Opus(opus::Decoder, usize),
}

/// Agent audio to payloads.
pub(super) struct Encoder {
    codec: Codec,
    kind: Encoding,
    narrow: Vec<i16>,
}

enum Encoding {
    G711(Resampler),
    G722(Box<g722::Encoder>),
    Opus(opus::Encoder),
}

/// What stands in the place of a lost packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filled<'a> {
    /// The copy that another packet held of it.
    Recovered(&'a [i16]),
    Concealed(&'a [i16]),
    /// Too much is missing in a row.
    Nothing,
}

impl Decoder {
    /// An error when the codec's memory cannot be had.
    pub(super) fn new(codec: Codec) -> Result<Self, OpusError> {
        let narrow = RATE / 2;
        Ok(Self {
            codec,
            kind: match codec {
                Codec::Pcmu | Codec::Pcma => Decoding::G711 {
                    up: resampler(narrow, RATE),
                    concealer: Concealer::new(narrow),
                },
                Codec::G722 => {
                    Decoding::G722(Box::new((g722::Decoder::default(), Concealer::new(RATE))))
                }
                Codec::Opus => Decoding::Opus(opus::Decoder::new()?, 0),
            },
            narrow: Vec::new(),
            wide: Vec::new(),
        })
    }

    pub(super) fn exchange(&mut self, coding: &mut Coding) {
        std::mem::swap(&mut self.narrow, &mut coding.narrow);
        std::mem::swap(&mut self.wide, &mut coding.wide);
    }

    pub(super) const fn codec(&self) -> Codec {
        self.codec
    }

    /// How much later a sound comes out than it went into the encoder.
    pub(super) fn delay(&self) -> Duration {
        match &self.kind {
            Decoding::G711 { up, .. } => up.delay(),
            Decoding::G722(_) => g722::DELAY,
            Decoding::Opus(..) => opus::DELAY,
        }
    }

    /// How much audio a payload holds, in units of the codec's clock. `None`: none, or too much.
    pub(super) fn duration(&self, payload: &[u8]) -> Option<u32> {
        if self.codec == Codec::Opus {
            return Head::of(payload).map(|head| head.duration);
        }
        // A byte is a sample, or two in half the time.
        let duration = u32::try_from(payload.len()).ok()?;
        (1..=self.codec.clock() * LONGEST_MS / 1000)
            .contains(&duration)
            .then_some(duration)
    }

    /// Samples of a payload. `None`: it cannot be decoded.
    pub(super) fn decode(&mut self, payload: &[u8]) -> Option<&[i16]> {
        self.wide.clear();
        match &mut self.kind {
            Decoding::G711 { up, concealer } => {
                self.narrow.resize(payload.len(), 0);
                if self.codec == Codec::Pcma {
                    g711::alaw_decode(payload, &mut self.narrow);
                } else {
                    g711::ulaw_decode(payload, &mut self.narrow);
                }
                concealer.heard(&mut self.narrow);
                up.process(&self.narrow, &mut self.wide);
            }
            Decoding::G722(kind) => {
                let (decoder, concealer) = &mut **kind;
                decoder.decode(payload, &mut self.wide);
                concealer.heard(&mut self.wide);
            }
            Decoding::Opus(decoder, run) => {
                *run = 0;
                self.wide.resize(opus::LONGEST, 0);
                let samples = decoder.decode(payload, &mut self.wide).ok()?;
                self.wide.truncate(samples);
            }
        }
        Some(&self.wide)
    }

    /// Samples in the place of a packet that is lost. `following`: the packet after it, which may hold
    /// a copy.
    pub(super) fn conceal(&mut self, duration: u32, following: Option<&[u8]>) -> Filled<'_> {
        self.wide.clear();
        match &mut self.kind {
            Decoding::G711 { up, concealer } => {
                self.narrow.clear();
                self.narrow.resize(duration as usize, 0);
                concealer.conceal(&mut self.narrow);
                up.process(&self.narrow, &mut self.wide);
            }
            Decoding::G722(kind) => {
                self.wide.resize(2 * duration as usize, 0);
                kind.1.conceal(&mut self.wide);
            }
            Decoding::Opus(decoder, run) => {
                let samples = ((duration / UNITS) as usize).min(opus::LONGEST);
                self.wide.resize(samples, 0);
                let copy = following.filter(|next| Head::of(next).is_some_and(|head| head.copy));
                if let Some(copy) = copy
                    && decoder.recover(copy, &mut self.wide).is_ok()
                {
                    *run = 0;
                    return Filled::Recovered(&self.wide);
                }
                *run += samples;
                if *run > MOST_CONCEALED || decoder.conceal(&mut self.wide).is_err() {
                    return Filled::Nothing;
                }
            }
        }
        Filled::Concealed(&self.wide)
    }

    /// Samples of a pause in which nothing was sent: silence.
    pub(super) fn pause(&mut self, duration: u32) -> &[i16] {
        self.wide.clear();
        match &mut self.kind {
            Decoding::G711 { up, concealer } => {
                concealer.paused();
                self.narrow.clear();
                self.narrow.resize(duration as usize, 0);
                up.process(&self.narrow, &mut self.wide);
            }
            Decoding::G722(kind) => {
                kind.1.paused();
                self.wide.resize(2 * duration as usize, 0);
            }
            Decoding::Opus(..) => self.wide.resize((duration / UNITS) as usize, 0),
        }
        &self.wide
    }
}

impl Encoder {
    /// An error when the codec's memory cannot be had.
    pub(super) fn new(codec: Codec) -> Result<Self, OpusError> {
        Ok(Self {
            codec,
            kind: match codec {
                Codec::Pcmu | Codec::Pcma => Encoding::G711(resampler(RATE, RATE / 2)),
                Codec::G722 => Encoding::G722(Box::default()),
                Codec::Opus => Encoding::Opus(opus::Encoder::new(COMPLEXITY)?),
            },
            narrow: Vec::new(),
        })
    }

    pub(super) fn exchange(&mut self, coding: &mut Coding) {
        std::mem::swap(&mut self.narrow, &mut coding.narrow_out);
    }

    pub(super) const fn codec(&self) -> Codec {
        self.codec
    }

    /// Whether silence need not be sent all the time (discontinuous transmission): only Opus says in its
    /// packets how a pause is to be filled.
    pub(super) fn is_discontinuous(&self) -> bool {
        self.codec == Codec::Opus
    }

    /// Whether a keypad's tones come out as they went in: Opus is made for voices, and promises nothing of them.
    pub(super) fn carries_tones(&self) -> bool {
        self.codec != Codec::Opus
    }

    /// Appends the payload of 20 ms. `false`: it is silence that need not be sent, and nothing was
    /// appended.
    pub(super) fn encode(&mut self, frame: &[i16; FRAME], out: &mut Vec<u8>) -> bool {
        let from = out.len();
        match &mut self.kind {
            Encoding::G711(down) => {
                self.narrow.clear();
                down.process(frame, &mut self.narrow);
                // While the filter still fills it gives less than a frame.
                self.narrow.resize(FRAME / 2, 0);
                out.resize(from + self.narrow.len(), 0);
                if self.codec == Codec::Pcma {
                    g711::alaw_encode(&self.narrow, &mut out[from..]);
                } else {
                    g711::ulaw_encode(&self.narrow, &mut out[from..]);
                }
                true
            }
            Encoding::G722(encoder) => {
                encoder.encode(frame, out);
                true
            }
            Encoding::Opus(encoder) => match encoder.encode(frame, out) {
                Ok(sent) => sent,
                Err(OpusError) => {
                    out.truncate(from);
                    false
                }
            },
        }
    }

    /// Appends the payload of 20 ms of silence.
    pub(super) fn silence(&mut self, out: &mut Vec<u8>) {
        match &mut self.kind {
            Encoding::G711(_) => {
                let silence = if self.codec == Codec::Pcma {
                    g711::ALAW_SILENCE
                } else {
                    g711::ULAW_SILENCE
                };
                out.resize(out.len() + FRAME / 2, silence);
            }
            // What silence is depends on what was before.
            Encoding::G722(encoder) => encoder.encode(&[0; FRAME], out),
            Encoding::Opus(_) => out.extend_from_slice(&OPUS_SILENCE),
        }
    }

    /// What was encoded is dropped: nothing of it may ring on in the filter.
    pub(super) fn cut(&mut self) {
        if let Encoding::G711(down) = &mut self.kind {
            down.reset();
        }
    }

    /// The other side wants no more than so many bits a second; `None`: it does not say.
    pub(super) fn limit(&mut self, most_bits: Option<u32>) -> Result<(), OpusError> {
        match &mut self.kind {
            Encoding::Opus(encoder) => encoder.limit(most_bits),
            Encoding::G711(_) | Encoding::G722(_) => Ok(()),
        }
    }

    /// The other side's reports say that so many per cent are lost.
    pub(super) fn expect_loss(&mut self, per_cent: u8) {
        if let Encoding::Opus(encoder) = &mut self.kind {
            encoder.expect_loss(per_cent);
        }
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
