//! The unit of audio inside the engine: 20 ms of mono PCM16 at [`RATE`](crate::time::RATE).

/// Samples in one frame: 20 ms at 16 kHz.
pub const FRAME: usize = 320;

/// Milliseconds in one frame.
pub const FRAME_MS: u64 = 20;

/// 20 ms of mono 16-bit audio at 16 kHz.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame(pub [i16; FRAME]);

impl Frame {
    pub const SILENCE: Self = Self([0; FRAME]);
}

impl Default for Frame {
    fn default() -> Self {
        Self::SILENCE
    }
}
