//! A voice as clients send it by mistake, and sounds that are right.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::f64::consts::TAU;
use std::time::Duration;

use super::*;
use crate::audio::g711;
use crate::audio::tones::{brown_noise, noise, sine};

/// A voice that sings one word after the other, at this rate: harmonics, pauses, and a hiss now and then.
fn voice(rate: u32, seconds: u32) -> Vec<i16> {
    let hiss = noise(7, -24.0, (rate * seconds) as usize);
    let sample = |at: u32| {
        let time = f64::from(at) / f64::from(rate);
        let syllable = (time * 4.0) as u32;
        if syllable % 5 == 4 {
            return 0;
        }
        if syllable % 7 == 3 {
            return hiss[at as usize];
        }
        let pitch = 110.0 + 12.0 * f64::from(syllable % 6);
        let swell = (TAU * 2.0 * time).sin().abs();
        let harmonics = (1..12).map(|n| {
            let hz = pitch * f64::from(n);
            (TAU * hz * time).sin() / (1.0 + (f64::from(n) - 4.0).abs())
        });
        (4000.0 * swell * harmonics.sum::<f64>()) as i16
    };
    (0..rate * seconds).map(sample).collect()
}

fn bytes(samples: &[i16]) -> Vec<u8> {
    samples.iter().flat_map(|s| s.to_le_bytes()).collect()
}

/// Messages of this length, one each 20 ms. What the client is told of them, and the bytes that are played.
fn watched(format: AudioFormat, sound: &[u8], length: usize) -> (Vec<String>, usize) {
    let mut watch = Watch::new(format);
    let (mut told, mut played) = (Vec::new(), 0);
    for (at, message) in (0..).zip(sound.chunks(length)) {
        watch.tell_time(Time::from_millis(5000 + 20 * at));
        if let Verdict::Play(from) = watch.look(message) {
            played += message.len() - from;
        }
        told.extend(watch.take_words());
    }
    (told, played)
}

#[track_caller]
fn is_told(format: AudioFormat, sound: &[u8], length: usize, what: &str) {
    let (told, _) = watched(format, sound, length);
    assert!(
        matches!(told.as_slice(), [one] if one.contains(what)),
        "{what}: {told:?}"
    );
}

#[test]
fn a_voice_in_another_format_is_told_once_and_what_it_is() {
    let wide = voice(16_000, 8);
    let narrow = voice(8_000, 8);
    let pcm = AudioFormat::Pcm16000;
    let swapped: Vec<u8> = wide.iter().flat_map(|s| s.to_be_bytes()).collect();
    is_told(pcm, &swapped, 640, "high byte first");
    let floats: Vec<u8> = wide
        .iter()
        .flat_map(|s| (f32::from(*s) / 32_768.0).to_le_bytes())
        .collect();
    is_told(pcm, &floats, 1280, "floating-point");
    let stereo: Vec<i16> = wide.iter().flat_map(|s| [*s, *s]).collect();
    is_told(pcm, &bytes(&stereo), 1280, "two channels");
    let mut companded = vec![0; narrow.len()];
    g711::ulaw_encode(&narrow, &mut companded);
    is_told(pcm, &companded, 640, "G.711");
    is_told(pcm, &companded, 320, "G.711");
    g711::alaw_encode(&narrow, &mut companded);
    is_told(pcm, &companded, 640, "G.711");
    is_told(pcm, &bytes(&narrow), 320, "8000 Hz");
    for (rate, length) in [(24_000, 960), (44_100, 1764), (48_000, 1920)] {
        let sound = voice(rate, 4);
        is_told(pcm, &bytes(&sound), length, &format!("{rate} Hz"));
    }
    is_told(AudioFormat::Ulaw8000, &bytes(&wide), 640, "16 bits");
    is_told(AudioFormat::Ulaw8000, &bytes(&narrow), 320, "16 bits");
}

#[test]
fn what_is_right_is_never_told() {
    let long = 40_000;
    let mut sounds = vec![
        voice(16_000, 12),
        vec![0; long],
        vec![-1; long],
        vec![257; long],
        sine(16_000, 440.0, -6.0, long),
        sine(16_000, 7_000.0, -6.0, long),
        brown_noise(3, -20.0, long),
    ];
    for dbfs in [-60.0, -40.0, -20.0, -6.0] {
        sounds.push(noise(5, dbfs, long));
    }
    // Loud, soft, and of eight bits once; clipped; square.
    let scaled = |by: f64| -> Vec<i16> {
        let loud = |s: &i16| (f64::from(*s) * by) as i16;
        voice(16_000, 6).iter().map(loud).collect()
    };
    sounds.extend([scaled(0.05), scaled(0.3), scaled(12.0)]);
    sounds.push(scaled(1.0).iter().map(|s| s & !255).collect());
    for level in [3_000, 16_000, 32_767] {
        let square = (0..long).map(|at| if at / 16 % 2 == 0 { level } else { -level });
        sounds.push(square.collect());
    }
    // 8 kHz of which somebody made 16 kHz by saying each sample twice: it can be heard.
    sounds.push(voice(8_000, 6).iter().flat_map(|s| [*s, *s]).collect());
    // Full-scale noise of every value.
    let mut state = 1_u64;
    let mut random = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 40) as i16
    };
    sounds.push((0..long).map(|_| random()).collect());
    for (at, sound) in sounds.iter().enumerate() {
        let all = bytes(sound);
        let (told, played) = watched(AudioFormat::Pcm16000, &all, 640);
        assert_eq!((told, played), (Vec::new(), all.len()), "sound {at}");
        let mut companded = vec![0; sound.len()];
        g711::ulaw_encode(sound, &mut companded);
        let (told, _) = watched(AudioFormat::Ulaw8000, &companded, 160);
        assert_eq!(told, Vec::<String>::new(), "sound {at} in μ-law");
    }
    // Who sends only while somebody speaks, and who sends in bursts.
    let mut watch = Watch::new(AudioFormat::Pcm16000);
    let message = bytes(&voice(16_000, 1)[..320]);
    for at in 0..3_000_u64 {
        watch.tell_time(Time::from_millis(20 * at));
        if at / 37 % 2 == 0 {
            watch.look(&message);
        }
        if at % 250 == 0 {
            (0..100).for_each(|_| {
                watch.look(&message);
            });
        }
        assert_eq!(watch.take_words(), None);
    }
}

/// Bytes as compression leaves them.
fn random(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let next = |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as u8
    };
    (0..length).map(next).collect()
}

#[test]
fn compressed_sound_is_told_and_not_played_and_samples_after_it_are() {
    let marked = |mark: &[u8]| [mark, &random(1500, 3)].concat();
    let frames: Vec<u8> = [&[0xff, 0xf3, 0x84, 0xc4], &random(188, 5)[..]]
        .concat()
        .repeat(6);
    for (what, first) in [
        ("WebM", marked(b"\x1aE\xdf\xa3")),
        ("Ogg", marked(b"OggS\0\x02")),
        ("MP3", frames.clone()),
        ("MP3", frames[..192].to_vec()),
        ("MP3", marked(b"ID3\x04\0")),
        ("MP4", marked(b"\0\0\0\x20ftypiso5")),
        ("FLAC", marked(b"fLaC")),
    ] {
        for format in [AudioFormat::Pcm16000, AudioFormat::Ulaw8000] {
            let mut watch = Watch::new(format);
            assert_eq!(watch.look(&first), Verdict::Drop, "{what}");
            let told = watch.take_words().unwrap();
            assert!(
                told.contains(what) && told.contains(format.name()),
                "{told}"
            );
            for seed in 0..50 {
                let length = 601 + 30 * seed as usize;
                assert_eq!(watch.look(&random(length, seed)), Verdict::Drop);
            }
            let voice = bytes(&voice(16_000, 1)[..320]);
            let verdicts: Vec<Verdict> = (0..20).map(|_| watch.look(&voice)).collect();
            assert!(
                verdicts[CLEAN as usize..]
                    .iter()
                    .all(|v| *v == Verdict::Play(0))
            );
            assert_eq!(watch.take_words(), None, "it was told");
        }
    }
}

#[test]
fn the_header_of_a_wav_is_told_and_what_follows_it_is_played() {
    let mut header = b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0\x01\0\x02\0".to_vec();
    header.extend(44_100_u32.to_le_bytes());
    header.extend(176_400_u32.to_le_bytes());
    header.extend(b"\x04\0\x10\0data\xff\xff\xff\xff");
    let voice = bytes(&voice(16_000, 1));
    let sound = [&header[..], &voice].concat();
    let (told, played) = watched(AudioFormat::Pcm16000, &sound, 684);
    assert_eq!(played, voice.len());
    assert!(
        matches!(told.as_slice(), [one] if one.contains("44100 Hz, 2 channels")),
        "{told:?}"
    );
    let (told, played) = watched(AudioFormat::Pcm16000, b"RIFF\0\0\0\0WAVE", 684);
    assert_eq!((told.len(), played), (1, 0));
}

#[test]
fn the_pace_is_judged_anew_after_a_gap() {
    let mut watch = Watch::new(AudioFormat::Pcm16000);
    let message = bytes(&voice(16_000, 1)[8_000..8_160]);
    let mut now = Time::from_millis(1);
    for second in 0..40 {
        for _ in 0..50 {
            now = now + Duration::from_millis(20);
            watch.tell_time(now);
            watch.look(&message);
        }
        // Never five seconds on end.
        if second % 4 == 3 {
            now = now + Duration::from_secs(2);
        }
        assert_eq!(watch.take_words(), None);
    }
}
