//! A client of the native protocol whose audio is of another kind, on speech: voices of espeak-ng and flite, rendered by
//! these tests. What is right is never told, loud, soft and under noise; what is wrong is told once, and the call goes on.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test says what is wrong by failing, and its voices are programs"
)]

use std::process::Command;

use media::audio::g711::{alaw_encode, ulaw_encode};
use media::audio::resample::Resampler;
use media::audio::tones::{brown_noise, gain, mix, noise};
use media::config::{AudioFormat, Protocol};
use media::leg::LegEvent;
use media::leg::ws::WsLeg;
use media::time::Time;

const TEXT: &str = "Hello, I would like to ask about your opening hours. Yes. Sixty six ships. Please book a table for \
    four people on Saturday evening. Thank you very much, goodbye.";

/// The voices, at 16 kHz.
fn voices() -> Vec<(&'static str, Vec<i16>)> {
    let commands: [(&str, &[&str]); 5] = [
        ("us", &["espeak-ng", "-ven-us", "--stdout"]),
        ("french", &["espeak-ng", "-vfr", "-p80", "--stdout"]),
        (
            "slow",
            &["espeak-ng", "-ven-gb", "-s90", "-p20", "--stdout"],
        ),
        (
            "slt",
            &["flite", "-voice", "slt", "-o", "/dev/stdout", "-t"],
        ),
        (
            "rms",
            &["flite", "-voice", "rms", "-o", "/dev/stdout", "-t"],
        ),
    ];
    let render = |(name, command): (&'static str, &[&str])| (name, render(command));
    commands.into_iter().map(render).collect()
}

fn render(command: &[&str]) -> Vec<i16> {
    let output = Command::new(command[0])
        .args(&command[1..])
        .arg(TEXT)
        .output();
    let output = output.unwrap_or_else(|error| panic!("{} cannot be run: {error}", command[0]));
    let wav = &output.stdout;
    assert!(wav.starts_with(b"RIFF") && &wav[36..40] == b"data");
    let rate = u32::from_le_bytes(*wav[24..].first_chunk().unwrap());
    let (pairs, _) = wav[44..].as_chunks();
    let samples: Vec<i16> = pairs.iter().map(|pair| i16::from_le_bytes(*pair)).collect();
    converted(&samples, rate, 16_000)
}

fn converted(samples: &[i16], from: u32, to: u32) -> Vec<i16> {
    let mut out = Vec::new();
    let mut resampler = Resampler::new(from, to).unwrap();
    resampler.process(samples, &mut out);
    resampler.finish(&mut out);
    out
}

fn bytes(samples: &[i16]) -> Vec<u8> {
    samples.iter().flat_map(|s| s.to_le_bytes()).collect()
}

/// Sends the bytes in messages of this length, one each 20 ms. What the client was told.
fn told(format: AudioFormat, sound: &[u8], length: usize) -> Vec<String> {
    let mut leg = WsLeg::new(Protocol::Native, format);
    let mut told = Vec::new();
    for (at, message) in (0..).zip(sound.chunks_exact(length)) {
        leg.tell_time(Time::from_millis(1000 + 20 * at));
        let audio = base64_simd::STANDARD.encode_to_string(message);
        let text = format!("{{\"type\":\"audio\",\"audio\":\"{audio}\"}}");
        leg.receive(&text, &mut |event| match event {
            LegEvent::Audio(_) => {}
            LegEvent::Invalid {
                code: "audio_format",
                message,
            } => told.push(message.to_owned()),
            other => panic!("{other:?}"),
        });
    }
    told
}

#[test]
fn speech_as_it_should_be_is_never_told() {
    for (name, voice) in voices() {
        let changed = |change: &dyn Fn(&mut [i16])| {
            let mut sound = voice.clone();
            change(&mut sound);
            sound
        };
        let mut variants: Vec<Vec<i16>> = [-40.0, -20.0, 6.0, 20.0]
            .iter()
            .map(|db| changed(&|sound| gain(sound, *db)))
            .collect();
        let length = voice.len();
        for other in [
            noise(3, -30.0, length),
            noise(4, -15.0, length),
            brown_noise(5, -20.0, length),
        ] {
            variants.push(changed(&|sound| mix(sound, &other)));
        }
        // Of a telephone, and of eight bits once.
        variants.push(converted(&converted(&voice, 16_000, 8_000), 8_000, 16_000));
        variants.push(voice.iter().map(|s| s & !255).collect());
        variants.push(voice);
        for (at, sound) in variants.iter().enumerate() {
            let pcm = told(AudioFormat::Pcm16000, &bytes(sound), 640);
            assert_eq!(pcm, Vec::<String>::new(), "{name}, variant {at}");
            let narrow = converted(sound, 16_000, 8_000);
            let mut companded = vec![0; narrow.len()];
            ulaw_encode(&narrow, &mut companded);
            let ulaw = told(AudioFormat::Ulaw8000, &companded, 160);
            assert_eq!(ulaw, Vec::<String>::new(), "{name}, variant {at} in μ-law");
        }
    }
}

#[test]
fn speech_in_another_format_is_told_once() {
    for (name, voice) in voices() {
        let narrow = converted(&voice, 16_000, 8_000);
        let mut ulaw = vec![0; narrow.len()];
        ulaw_encode(&narrow, &mut ulaw);
        let mut alaw = ulaw.clone();
        alaw_encode(&narrow, &mut alaw);
        let float = |s: &i16| (f32::from(*s) / 32_768.0).to_le_bytes();
        let pcm = AudioFormat::Pcm16000;
        for (format, sound, length, what) in [
            (
                pcm,
                voice.iter().flat_map(|s| s.to_be_bytes()).collect(),
                640,
                "high byte first",
            ),
            (pcm, ulaw, 640, "G.711"),
            (pcm, alaw, 640, "G.711"),
            (
                pcm,
                voice.iter().flat_map(float).collect(),
                1280,
                "floating-point",
            ),
            (
                pcm,
                voice.iter().flat_map(|s| bytes(&[*s, *s])).collect(),
                1280,
                "two channels",
            ),
            (pcm, bytes(&narrow), 320, "8000 Hz"),
            (
                pcm,
                bytes(&converted(&voice, 16_000, 48_000)),
                1920,
                "48000 Hz",
            ),
            (AudioFormat::Ulaw8000, bytes(&voice), 640, "16 bits"),
        ] {
            let told = told(format, &sound, length);
            assert!(
                matches!(told.as_slice(), [one] if one.contains(what)),
                "{name}, {what}: {told:?}"
            );
        }
    }
}
