//! Sound as voices send it.

use media::audio::tones;

/// A tone, PCM16 in little endian.
pub fn pcm(rate: u32, ms: u32) -> Vec<u8> {
    bytes(&tones::sine(
        rate,
        440.0,
        -12.0,
        (rate / 1000 * ms) as usize,
    ))
}

/// Digital silence.
pub fn silence(rate: u32, ms: u32) -> Vec<u8> {
    vec![0; (2 * (rate / 1000) * ms) as usize]
}

/// A WAV of these samples as a server writes it that does not know the length yet.
pub fn streamed_wav(rate: u32, pcm: &[u8]) -> Vec<u8> {
    let mut file = b"RIFF\xff\xff\xff\xffWAVEfmt ".to_vec();
    file.extend(16_u32.to_le_bytes());
    file.extend(1_u16.to_le_bytes());
    file.extend(1_u16.to_le_bytes());
    file.extend(rate.to_le_bytes());
    file.extend((2 * rate).to_le_bytes());
    file.extend(2_u16.to_le_bytes());
    file.extend(16_u16.to_le_bytes());
    file.extend(b"data\xff\xff\xff\xff");
    file.extend(pcm);
    file
}

/// Frames of MPEG 2 layer III, 64 kbit/s at 24 kHz: without a file around them, as voices send them.
pub fn mp3(frames: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    let frame = |_| {
        let mut frame = vec![0xff, 0xf3, 0x84, 0xc4];
        frame.resize_with(192, &mut random);
        frame
    };
    (0..frames).flat_map(frame).collect()
}

pub fn bytes(samples: &[i16]) -> Vec<u8> {
    samples.iter().flat_map(|s| s.to_le_bytes()).collect()
}
