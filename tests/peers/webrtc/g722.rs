//! Our G.722 against FFmpeg's, which aiortc brings along: the same bytes for the same sound, and the same
//! sound for the same bytes.

use std::io::Write as _;
use std::process::{Command, Stdio};

use media::audio::g722::{Decoder, Encoder};
use media::audio::tones::{brown_noise, gain, mix, noise, sine, sweep};

use crate::phone::python;

/// Whole frames of 20 ms at 16 kHz: quiet and loud, narrow and wide, and both extremes.
fn sound() -> Vec<i16> {
    let mut voice = sine(16_000, 140.0, -20.0, 32_000);
    for harmonic in 2..40 {
        let level = -20.0 - f64::from(harmonic);
        mix(
            &mut voice,
            &sine(16_000, 140.0 * f64::from(harmonic), level, 32_000),
        );
    }
    let mut loudest = noise(9, -3.0, 32_000);
    gain(&mut loudest, 12.0);
    [
        vec![0; 3_200],
        voice,
        sweep(16_000, 50.0, 7_900.0, -6.0, 64_000),
        noise(1, -20.0, 32_000),
        brown_noise(2, -30.0, 32_000),
        noise(3, -70.0, 32_000),
        loudest,
        [i16::MAX; 160]
            .into_iter()
            .chain([i16::MIN; 160])
            .cycle()
            .take(3_200)
            .collect(),
    ]
    .concat()
}

#[test]
fn ffmpeg_says_the_same() {
    let sound = sound();
    let mut process = Command::new(python())
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/peers/webrtc/g722.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python starts");
    let mut input = process.stdin.take().unwrap();
    let pcm: Vec<u8> = sound.iter().flat_map(|s| s.to_le_bytes()).collect();
    let writing = std::thread::spawn(move || input.write_all(&pcm));
    let output = process.wait_with_output().unwrap();
    writing.join().unwrap().unwrap();
    assert!(output.status.success());
    let (length, rest) = output.stdout.split_first_chunk().unwrap();
    let (coded, decoded) = rest.split_at(u32::from_le_bytes(*length) as usize);
    let decoded: Vec<i16> = decoded
        .as_chunks()
        .0
        .iter()
        .map(|s| i16::from_le_bytes(*s))
        .collect();
    assert_eq!(coded.len(), sound.len() / 2);

    let mut ours = Vec::new();
    Encoder::default().encode(&sound, &mut ours);
    let first = ours.iter().zip(coded).position(|(one, other)| one != other);
    assert_eq!(first, None, "the first byte that differs");
    let mut heard = Vec::new();
    Decoder::default().decode(coded, &mut heard);
    assert_eq!(heard.len(), decoded.len());
    let first = heard
        .iter()
        .zip(&decoded)
        .position(|(one, other)| one != other);
    assert_eq!(first, None, "the first sample that differs");
}
