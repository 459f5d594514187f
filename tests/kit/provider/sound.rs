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

pub fn bytes(samples: &[i16]) -> Vec<u8> {
    samples.iter().flat_map(|s| s.to_le_bytes()).collect()
}
