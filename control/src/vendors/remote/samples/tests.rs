//! Bodies of every kind, cut into parts of every length.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use media::audio::g711;
use media::audio::tones::{noise, sine};

use super::*;

/// Reads a body cut into parts of `step` bytes.
fn read(body: &[u8], step: usize) -> Result<(u32, Vec<i16>), Fault> {
    let mut samples = Samples::new(24_000);
    let mut out = Vec::new();
    for part in body.chunks(step) {
        samples.push(part, &mut out)?;
    }
    samples.finish(&mut out)?;
    Ok((samples.rate(), out))
}

fn pcm(samples: &[i16]) -> Vec<u8> {
    samples.iter().flat_map(|s| s.to_le_bytes()).collect()
}

/// The head of a WAV: format, channels, bits, and bytes of a frame.
fn head(tag: u16, channels: u16, bits: u16, align: u16, length: u32) -> Vec<u8> {
    let mut bytes = b"RIFF\xff\xff\xff\xffWAVEfmt ".to_vec();
    let extended = tag == 0xfffe;
    bytes.extend(if extended { 40_u32 } else { 16 }.to_le_bytes());
    for word in [tag, channels] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(16_000_u32.to_le_bytes());
    bytes.extend((16_000 * u32::from(align)).to_le_bytes());
    for word in [align, bits] {
        bytes.extend(word.to_le_bytes());
    }
    if extended {
        bytes.extend(b"\x16\0\x10\0\x04\0\0\0");
        // The identifier's first two bytes are the format, here floating point for 32 bits and integers else.
        bytes.extend(if bits == 32 { 3_u16 } else { 1 }.to_le_bytes());
        bytes.extend(b"\0\0\0\0\x10\0\x80\0\0\xaa\0\x38\x9b\x71");
    }
    bytes.extend(b"data");
    bytes.extend(length.to_le_bytes());
    bytes
}

fn wav(length: u32, samples: &[i16]) -> Vec<u8> {
    [head(1, 1, 16, 2, length), pcm(samples)].concat()
}

/// What each part of a test is cut into.
const STEPS: [usize; 5] = [1, 2, 7, 100, 100_000];

#[test]
fn a_length_that_is_a_lie_is_played_to_the_end_of_the_body_once() {
    let samples = sine(16_000, 440.0, -20.0, 1000);
    for length in [
        0,
        u32::MAX,
        0x7fff_f000,
        0x7fff_ffff,
        2_000_000_000,
        2000,
        4000,
        1999,
        2001,
        1001,
        500,
        36,
    ] {
        let body = wav(length, &samples);
        for step in STEPS {
            let read = read(&body, step).unwrap();
            assert_eq!(read, (16_000, samples.clone()), "{length} by {step}");
        }
    }
}

#[test]
fn a_header_before_each_part_is_no_sound() {
    let samples = sine(16_000, 440.0, -20.0, 500);
    let right = wav(1000, &samples);
    for length in [1000, 0, u32::MAX, 0x7fff_f000, 999, 2000] {
        let part = wav(length, &samples);
        for step in STEPS {
            let (_, read) = read(&part.repeat(3), step).unwrap();
            assert_eq!(read, samples.repeat(3), "{length} by {step}");
        }
    }
    // Behind something that is no sound, and behind half a sample.
    let between = [&right[..], b"LIST\x04\0\0\0abcd", &right].concat();
    let odd = [&wav(0, &samples)[..], b"x", &wav(0, &samples)].concat();
    // Bare samples, and only then a header.
    let late = [&pcm(&samples)[..], &right].concat();
    for body in [between, odd, late] {
        for step in STEPS {
            assert_eq!(read(&body, step).unwrap().1, samples.repeat(2), "{step}");
        }
    }
}

#[test]
fn samples_of_every_width_are_understood() {
    let samples = sine(16_000, 440.0, -12.0, 300);
    let widened = |low: &[u8]| -> Vec<u8> {
        let bytes = samples
            .iter()
            .flat_map(|s| [low, &s.to_le_bytes()].concat());
        bytes.collect()
    };
    let floats = |value: &dyn Fn(f64) -> Vec<u8>| -> Vec<u8> {
        let bytes = samples.iter().flat_map(|s| value(f64::from(*s) / 32_767.0));
        bytes.collect()
    };
    let single = floats(&|value| (value as f32).to_le_bytes().to_vec());
    for (what, head, body) in [
        ("24 bits", head(1, 1, 24, 3, 0), widened(&[9])),
        (
            "24 bits in four bytes",
            head(1, 1, 24, 4, 0),
            widened(&[0, 9]),
        ),
        ("32 bits", head(1, 1, 32, 4, 0), widened(&[1, 9])),
        ("float", head(3, 1, 32, 4, 0), single.clone()),
        (
            "double",
            head(3, 1, 64, 8, 0),
            floats(&|value| value.to_le_bytes().to_vec()),
        ),
        ("extensible", head(0xfffe, 1, 16, 2, 0), pcm(&samples)),
        ("extensible 24", head(0xfffe, 1, 24, 3, 0), widened(&[9])),
        ("extensible float", head(0xfffe, 1, 32, 4, 0), single),
        ("a wrong align", head(1, 1, 16, 4, 0), pcm(&samples)),
        (
            "two channels of 24 bits",
            head(1, 2, 24, 6, 0),
            samples
                .iter()
                .flat_map(|s| [&[9], &s.to_le_bytes()[..]].concat().repeat(2))
                .collect(),
        ),
    ] {
        for step in STEPS {
            let (_, read) = read(&[&head[..], &body].concat(), step).unwrap();
            assert_eq!(read, samples, "{what} by {step}");
        }
    }
    let near = |read: &[i16]| {
        let far = |(one, other): (&i16, &i16)| one.abs_diff(*other) > 1024;
        assert!(read.len() == samples.len() && !read.iter().zip(&samples).any(far));
    };
    let mut companded = vec![0; samples.len()];
    g711::ulaw_encode(&samples, &mut companded);
    near(
        &read(&[head(7, 1, 8, 1, 0), companded.clone()].concat(), 7)
            .unwrap()
            .1,
    );
    let mut told = Samples::described("audio/basic", 24_000);
    let mut out = Vec::new();
    told.push(&companded, &mut out).unwrap();
    assert_eq!(told.rate(), 8_000);
    near(&out);
    g711::alaw_encode(&samples, &mut companded);
    near(
        &read(&[head(6, 1, 8, 1, 0), companded].concat(), 7)
            .unwrap()
            .1,
    );
    let bytes = samples.iter().map(|s| ((s >> 8) + 128) as u8).collect();
    near(&read(&[head(1, 1, 8, 1, 0), bytes].concat(), 7).unwrap().1);
    // No number is silence, and what is too loud is cut.
    let odd: Vec<u8> = [f32::NAN, 2.0, -3.0, f32::INFINITY]
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    let (_, cut) = read(&[head(3, 1, 32, 4, 0), odd].concat(), 5).unwrap();
    assert_eq!(cut, [0, i16::MAX, i16::MIN, i16::MAX]);
}

/// Bytes as compression leaves them.
fn random(length: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252_u64;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    (0..length).map(next).collect()
}

#[test]
fn compressed_sound_is_a_fault_that_shows_how_it_begins() {
    let frames =
        |head: &[u8], length: usize| [head, &random(length - head.len())].concat().repeat(5);
    for (name, body) in [
        ("MP3", frames(&[0xff, 0xf3, 0x84, 0xc4], 192)),
        ("MP3", frames(&[0xff, 0xfb, 0x90, 0x64], 417)),
        ("MP3", [&b"ID3\x03\0\0\0\0\0\0"[..], &random(900)].concat()),
        (
            "AAC",
            frames(&[0xff, 0xf1, 0x58, 0x80, 0x2e, 0x7f, 0xfc], 371),
        ),
        ("Ogg", [&b"OggS\0\x02"[..], &random(900)].concat()),
        ("WebM", [&b"\x1aE\xdf\xa3"[..], &random(900)].concat()),
        ("MP4", [&b"\0\0\0\x18ftypM4A "[..], &random(900)].concat()),
        ("FLAC", [&b"fLaC"[..], &random(900)].concat()),
        ("compressed sound", random(3000)),
        ("WAV that has samples of format 85", head(85, 1, 0, 1, 0)),
        ("WAV that has samples of format 2", head(2, 1, 4, 256, 0)),
    ] {
        for step in STEPS {
            let Err(Fault::Wrong(why)) = read(&body, step) else {
                unreachable!("{name} by {step} is played");
            };
            let begins = format!("0x{:02x}{:02x}{:02x}", body[0], body[1], body[2]);
            assert!(why.contains(name), "{why}");
            // Within a WAV the length before may have been dropped; it begins all the same.
            assert!(why.contains(&begins), "{why}");
        }
    }
    assert!(read(b"RIFF\0\0\0\0AVI ", 3).is_err());
}

#[test]
fn bare_samples_are_played_however_they_begin() {
    for samples in [
        sine(24_000, 440.0, -3.0, 2000),
        noise(1, -10.0, 2000),
        vec![-1; 2000],
        vec![-1025; 3],
        vec![i16::MAX; 2000],
        vec![0; 2000],
        vec![9000, -9000, 9000],
    ] {
        for step in STEPS {
            let (_, read) = read(&pcm(&samples), step).unwrap();
            assert_eq!(read, samples, "{:?} by {step}", &samples[..3]);
        }
    }
    // The high byte first.
    let samples = sine(24_000, 300.0, -12.0, 2000);
    let swapped: Vec<u8> = samples.iter().flat_map(|s| s.to_be_bytes()).collect();
    for step in STEPS {
        assert_eq!(read(&swapped, step).unwrap().1, samples, "{step}");
    }
}

#[test]
fn a_text_in_place_of_sound_is_told_in_its_words() {
    let told = |body: &[u8]| read(body, 100_000).unwrap_err();
    assert_eq!(
        told(br#"{"error":{"message":"no credits","code":"quota_exceeded"}}"#),
        Fault::Told(complaint::Complaint {
            code: Some("quota_exceeded".into()),
            message: "no credits".into()
        })
    );
    for (body, page) in [
        (&b"<html><body>502 Bad Gateway</body></html>"[..], true),
        (br#"{"text":"what was said in the call"}"#, false),
    ] {
        let Fault::Garbage { what, page: shown } = told(body) else {
            unreachable!("played");
        };
        assert_eq!((what.contains("text"), shown.is_some()), (true, page));
    }
}
