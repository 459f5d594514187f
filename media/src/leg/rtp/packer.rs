//! Encoded audio cut into packets of the length that the other side asked for.

/// Bytes, and units of the timestamp, in a millisecond of the codecs that are cut: G.711 and G.722 have 8 of
/// both (RFC 3551 section 4.5).
const A_MS: usize = 8;

/// Audio that does not fill a packet yet.
#[derive(Default)]
pub(super) struct Packer {
    bytes: Vec<u8>,
    /// Of the first byte.
    timestamp: u32,
    marker: bool,
}

/// A packet's marker, timestamp and payload.
pub(super) type Packed<'s> = &'s mut dyn FnMut(bool, u32, &[u8]);

impl Packer {
    /// Takes audio that begins at a timestamp, and hands on the packets of `ms` that are full. What does not
    /// follow on the audio before has that go first.
    pub(super) fn push(
        &mut self,
        audio: &[u8],
        (marker, timestamp): (bool, u32),
        ms: u8,
        out: Packed<'_>,
    ) {
        let next = self.timestamp.wrapping_add(self.bytes.len() as u32);
        if marker || next != timestamp {
            self.flush(out);
        }
        let size = A_MS * usize::from(ms.max(1));
        let mut audio = audio;
        if self.bytes.is_empty() {
            (self.timestamp, self.marker) = (timestamp, marker);
            // Whole packets, as most come, need not be put together.
            let (whole, rest) = audio.split_at(audio.len() / size * size);
            self.hand_on(whole, size, out);
            audio = rest;
        }
        self.bytes.extend_from_slice(audio);
        if self.bytes.len() >= size {
            let mut bytes = std::mem::take(&mut self.bytes);
            let full = bytes.len() / size * size;
            self.hand_on(&bytes[..full], size, out);
            bytes.drain(..full);
            self.bytes = bytes;
        }
    }

    /// Hands on packets of `size` bytes each.
    fn hand_on(&mut self, audio: &[u8], size: usize, out: Packed<'_>) {
        for payload in audio.chunks_exact(size) {
            out(std::mem::take(&mut self.marker), self.timestamp, payload);
            self.timestamp = self.timestamp.wrapping_add(size as u32);
        }
    }

    /// Hands on what there is, in a shorter packet.
    pub(super) fn flush(&mut self, out: Packed<'_>) {
        if !self.bytes.is_empty() {
            out(
                std::mem::take(&mut self.marker),
                self.timestamp,
                &self.bytes,
            );
            self.bytes.clear();
        }
    }

    /// Drops what there is.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
    }
}
