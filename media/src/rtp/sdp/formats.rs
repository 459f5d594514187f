//! Which payload types stand for what. Each side sends in the numbers of the other side's description (RFC 3264
//! section 5.1), so what is heard has numbers of its own, and a stream may go from one of them to another at any
//! packet.

use serde::{Deserialize, Serialize};

use super::{COMFORT_NOISE, Codec};

/// What a packet holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Audio(Codec),
    /// Keypad events (RFC 4733).
    Event,
    /// Comfort noise (RFC 3389).
    Noise,
}

/// The payload types of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Formats {
    /// In the order of [`Codec::ALL`].
    codecs: [Option<u8>; Codec::ALL.len()],
    /// One for each clock that events may have.
    events: [Option<u8>; 2],
    comfort_noise: Option<u8>,
}

impl Formats {
    /// One codec, and what may stand beside it.
    pub fn of(codec: (Codec, u8), events: Option<u8>, comfort_noise: Option<u8>) -> Self {
        Self::listed(&[codec], &[events, None], comfort_noise)
    }

    /// What a description lists; of the events the first two.
    pub(crate) fn listed(
        codecs: &[(Codec, u8)],
        events: &[Option<u8>],
        comfort_noise: Option<u8>,
    ) -> Self {
        let number = |codec| codecs.iter().find(|(c, _)| *c == codec).map(|(_, n)| *n);
        let mut events = events.iter().copied();
        Self {
            codecs: Codec::ALL.map(number),
            events: [(); 2].map(|()| events.next().flatten()),
            comfort_noise,
        }
    }

    /// The number of a codec.
    pub(super) fn codec(&self, codec: Codec) -> Option<u8> {
        let at = Codec::ALL.iter().position(|own| *own == codec)?;
        self.codecs.get(at).copied().flatten()
    }

    pub(super) fn events(&self) -> impl Iterator<Item = u8> {
        self.events.iter().copied().flatten()
    }

    pub(super) fn comfort_noise(&self) -> Option<u8> {
        self.comfort_noise
    }

    /// What a packet of this type holds. `None`: it was not agreed.
    pub fn meaning(&self, number: u8) -> Option<Format> {
        let number = Some(number);
        let codec = self.codecs.iter().position(|codec| *codec == number);
        if let Some(codec) = codec.and_then(|at| Codec::ALL.get(at)) {
            return Some(Format::Audio(*codec));
        }
        if self.events.contains(&number) {
            return Some(Format::Event);
        }
        (self.comfort_noise == number).then_some(Format::Noise)
    }
}

/// What a packet that was received holds: by the numbers of our description, else by those of theirs, which some
/// send in, else by its static type, for many send comfort noise without asking.
pub fn received(heard: Option<&Formats>, sent: &Formats, number: u8) -> Option<Format> {
    heard
        .and_then(|heard| heard.meaning(number))
        .or_else(|| sent.meaning(number))
        .or((number == COMFORT_NOISE).then_some(Format::Noise))
}
