//! The voice detector on speech: voices of espeak-ng and flite, rendered by these tests, alone and
//! under noise, at 16 kHz and through a telephone (8 kHz, μ-law).
//!
//! What is speech is read off the clean rendering: a frame within 30 dB of the loudest. The detector's
//! hang-over ([`HANGOVER_FRAMES`]) is not held against it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test says what is wrong by failing, and its voices are programs"
)]

use std::process::Command;
use std::sync::OnceLock;

use media::audio::g711::{ulaw_decode, ulaw_encode};
use media::audio::level::rms_dbfs;
use media::audio::resample::Resampler;
use media::audio::tones::{brown_noise, gain, mix, noise, sine};
use media::config::VadKind;
use media::frame::FRAME;
use media::vad::{HANGOVER_FRAMES, Vad};

/// Loudness of the caller's words, dBFS: telephone speech stands near -26 (ITU-T P.56).
const SPEECH_DBFS: f64 = -26.0;

/// Sentences between which the caller pauses for a second.
const SENTENCES: [&str; 4] = [
    "Hello, I would like to ask about your opening hours.",
    "Yes.",
    "Please book a table for four people on Saturday evening.",
    "Thank you very much, goodbye.",
];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Line {
    Wide,
    Telephone,
}

#[derive(Clone, Copy, Debug)]
enum Noise {
    White,
    Brown,
}

/// One caller: sound at 16 kHz, and which frames of it hold speech.
struct Caller {
    name: &'static str,
    sound: Vec<i16>,
    speech: Vec<bool>,
    /// First frame of each sentence.
    onsets: Vec<usize>,
}

/// Of all callers together, in percent.
#[derive(Debug)]
struct Score {
    hits: f64,
    false_alarms: f64,
    /// From the first frame of speech of a sentence to the first voiced verdict, frames.
    worst_onset: usize,
    mean_onset: f64,
    missed: usize,
}

#[test]
fn clean_speech_is_heard_and_pauses_are_not() {
    for kind in [VadKind::Neural, VadKind::Energy] {
        for line in [Line::Wide, Line::Telephone] {
            let score = score(kind, line, |samples| vec![0; samples]);
            println!("{kind:?} {line:?} clean: {score:?}");
            assert!(score.hits >= 90.0, "{kind:?} {line:?}: {score:?}");
            assert!(score.false_alarms <= 2.0, "{kind:?} {line:?}: {score:?}");
            assert_eq!(score.missed, 0, "{kind:?} {line:?}: {score:?}");
        }
    }
}

/// An utterance is noticed within five frames of its first, and mostly sooner: the caller who breaks in
/// is to be heard at once.
#[test]
fn the_beginning_of_an_utterance_is_noticed_soon() {
    for kind in [VadKind::Neural, VadKind::Energy] {
        for line in [Line::Wide, Line::Telephone] {
            // A line is never silent: its own noise at -60 dBFS.
            let score = score(kind, line, |samples| noise(1, -60.0, samples));
            println!("{kind:?} {line:?} -60 dBFS: {score:?}");
            assert!(score.mean_onset <= 3.0, "{kind:?} {line:?}: {score:?}");
            assert!(score.worst_onset <= 7, "{kind:?} {line:?}: {score:?}");
        }
    }
}

#[test]
fn noise_does_not_hide_speech_from_the_network_nor_pass_for_it() {
    for (colour, snr, hits, false_alarms) in [
        (Noise::White, 20.0, 85.0, 3.0),
        (Noise::White, 10.0, 80.0, 4.0),
        (Noise::White, 5.0, 70.0, 5.0),
        (Noise::Brown, 10.0, 85.0, 3.0),
        (Noise::Brown, 0.0, 80.0, 5.0),
    ] {
        for line in [Line::Wide, Line::Telephone] {
            let score = score(VadKind::Neural, line, |samples| of(colour, snr, samples));
            println!("Neural {line:?} {colour:?} {snr} dB: {score:?}");
            assert!(
                score.hits >= hits,
                "{line:?} {colour:?} {snr} dB: {score:?}"
            );
            assert!(
                score.false_alarms <= false_alarms,
                "{line:?} {colour:?} {snr} dB: {score:?}"
            );
        }
    }
}

#[test]
fn energy_serves_in_moderate_noise() {
    for (colour, snr, hits, false_alarms) in [
        (Noise::White, 20.0, 70.0, 3.0),
        (Noise::Brown, 20.0, 80.0, 5.0),
    ] {
        for line in [Line::Wide, Line::Telephone] {
            let score = score(VadKind::Energy, line, |samples| of(colour, snr, samples));
            println!("Energy {line:?} {colour:?} {snr} dB: {score:?}");
            assert!(
                score.hits >= hits,
                "{line:?} {colour:?} {snr} dB: {score:?}"
            );
            assert!(
                score.false_alarms <= false_alarms,
                "{line:?} {colour:?} {snr} dB: {score:?}"
            );
        }
    }
}

/// The network behind the gate takes fewer noises for speech than the network alone at 0.7.
#[test]
fn the_gate_adds_no_false_triggers() {
    for line in [Line::Wide, Line::Telephone] {
        let (mut ours, mut alone) = (0, 0);
        for (name, mut sound) in noises() {
            if line == Line::Telephone {
                sound = telephone(&sound);
            }
            let mut vad = Vad::new(VadKind::Neural);
            let gated = triggers(
                sound
                    .as_chunks::<FRAME>()
                    .0
                    .iter()
                    .map(|frame| vad.frame(frame)),
                0,
            );
            let mut network = earshot::Detector::default();
            let windows = sound.as_chunks::<256>().0.iter();
            // The same hang-over: 80 ms are 5 windows.
            let raw = triggers(windows.map(|window| network.predict_i16(window) >= 0.7), 5);
            println!("{line:?} {name}: {gated}, alone {raw}");
            ours += gated;
            alone += raw;
        }
        assert!(
            ours <= alone,
            "{line:?}: {ours} false triggers, the network alone {alone}"
        );
    }
}

/// How often speech begins, pauses of up to `bridged` verdicts not counted.
fn triggers(verdicts: impl Iterator<Item = bool>, bridged: usize) -> usize {
    let (mut count, mut quiet) = (0, usize::MAX);
    for voiced in verdicts {
        if voiced {
            count += usize::from(quiet > bridged);
            quiet = 0;
        } else {
            quiet = quiet.saturating_add(1);
        }
    }
    count
}

/// Sounds that nobody speaks in, or nobody near: 20 s each over a floor of -60 dBFS.
fn noises() -> Vec<(&'static str, Vec<i16>)> {
    const LENGTH: usize = 320_000;
    let bursts = |every: usize, length: usize, level: f64| {
        let mut sound = vec![0; LENGTH];
        for (index, at) in (16_000..LENGTH - length).step_by(every).enumerate() {
            sound[at..at + length].copy_from_slice(&noise(index as u64, level, length));
        }
        sound
    };
    let tones = |pair: [f64; 2], on: usize, off: usize| {
        let mut sound = sine(16_000, pair[0], -23.0, LENGTH);
        mix(&mut sound, &sine(16_000, pair[1], -23.0, LENGTH));
        for (at, sample) in sound.iter_mut().enumerate() {
            *sample *= i16::from(at % (on + off) >= off);
        }
        sound
    };
    let mut babble = vec![0; LENGTH];
    for (index, caller) in callers().iter().cycle().take(24).enumerate() {
        let from = 32_000 + index * 1_999;
        let mut voice: Vec<i16> = caller
            .sound
            .iter()
            .copied()
            .cycle()
            .skip(from)
            .take(LENGTH)
            .collect();
        gain(&mut voice, -28.0);
        mix(&mut babble, &voice);
    }
    let mut all = vec![
        ("white -35", noise(1, -35.0, LENGTH)),
        ("white -20", noise(2, -20.0, LENGTH)),
        ("brown -30", brown_noise(3, -30.0, LENGTH)),
        ("brown -15", brown_noise(4, -15.0, LENGTH)),
        ("bursts of 50 ms", bursts(15_000, 800, -25.0)),
        ("bursts of 300 ms", bursts(25_000, 4_800, -30.0)),
        ("keystrokes", bursts(3_700, 240, -20.0)),
        ("keypad tones", tones([770.0, 1_336.0], 1_600, 8_000)),
        ("ringing", tones([440.0, 480.0], 32_000, 64_000)),
        ("babble", babble),
    ];
    for (_, sound) in &mut all {
        mix(sound, &noise(99, -60.0, LENGTH));
    }
    all
}

fn of(colour: Noise, snr: f64, samples: usize) -> Vec<i16> {
    match colour {
        Noise::White => noise(11, SPEECH_DBFS - snr, samples),
        Noise::Brown => brown_noise(12, SPEECH_DBFS - snr, samples),
    }
}

/// Runs a detector over every caller, with that many samples of `background` behind.
fn score(kind: VadKind, line: Line, background: impl Fn(usize) -> Vec<i16>) -> Score {
    let (mut speech, mut hit, mut pause, mut alarm) = (0, 0, 0, 0);
    let mut delays = Vec::new();
    let mut missed = 0;
    for caller in callers() {
        let mut sound = caller.sound.clone();
        let behind = background(sound.len());
        mix(&mut sound, &behind);
        if line == Line::Telephone {
            sound = telephone(&sound);
        }
        let mut vad = Vad::new(kind);
        let heard: Vec<bool> = sound
            .as_chunks::<FRAME>()
            .0
            .iter()
            .map(|frame| vad.frame(frame))
            .collect();
        let mut since_speech = usize::MAX;
        for (at, (voiced, spoken)) in heard.iter().zip(&caller.speech).enumerate() {
            // The first two seconds are for learning the floor.
            since_speech = if *spoken {
                0
            } else {
                since_speech.saturating_add(1)
            };
            if at < 100 {
                continue;
            }
            if *spoken {
                speech += 1;
                hit += usize::from(*voiced);
            } else if since_speech > HANGOVER_FRAMES as usize + 3 {
                pause += 1;
                alarm += usize::from(*voiced);
            }
        }
        for onset in &caller.onsets {
            match heard[*onset..].iter().take(50).position(|voiced| *voiced) {
                Some(frames) => delays.push(frames),
                None => {
                    println!(
                        "{kind:?} {line:?}: {} not heard at frame {onset}",
                        caller.name
                    );
                    missed += 1;
                }
            }
        }
    }
    Score {
        hits: 100.0 * hit as f64 / speech as f64,
        false_alarms: 100.0 * alarm as f64 / pause as f64,
        worst_onset: delays.iter().copied().max().unwrap_or(usize::MAX),
        mean_onset: delays.iter().sum::<usize>() as f64 / delays.len() as f64,
        missed,
    }
}

/// To the telephone and back: 8 kHz, μ-law, 16 kHz. Shifted back by what the two filters delay.
fn telephone(sound: &[i16]) -> Vec<i16> {
    let (mut narrow, mut wide) = (Vec::new(), Vec::new());
    Resampler::new(16_000, 8_000)
        .unwrap()
        .process(sound, &mut narrow);
    let mut bytes = vec![0; narrow.len()];
    ulaw_encode(&narrow, &mut bytes);
    ulaw_decode(&bytes, &mut narrow);
    let mut up = Resampler::new(8_000, 16_000).unwrap();
    up.process(&narrow, &mut wide);
    up.finish(&mut wide);
    wide.drain(..82);
    wide
}

fn callers() -> &'static [Caller] {
    static CALLERS: OnceLock<Vec<Caller>> = OnceLock::new();
    CALLERS.get_or_init(|| {
        let espeak = ["en-gb", "en-us", "en-us+f3", "fr-fr"];
        let flite = ["rms", "slt", "kal16", "awb"];
        let espeak = espeak.map(|voice| (voice, ["espeak-ng", "--stdout", "-v", voice]));
        let flite = flite.map(|voice| (voice, ["flite", "-o", "/dev/stdout", "-voice"]));
        let mut all: Vec<Caller> = Vec::new();
        for (voice, command) in espeak {
            all.push(caller(voice, |text| render(&command, &[text])));
        }
        for (voice, command) in flite {
            all.push(caller(voice, |text| render(&command, &[voice, "-t", text])));
        }
        all
    })
}

/// Two seconds of nothing, then the sentences with a second after each.
fn caller(name: &'static str, say: impl Fn(&str) -> Vec<i16>) -> Caller {
    let mut sound = vec![0; 32_000];
    for sentence in SENTENCES {
        sound.extend(say(sentence));
        let whole = sound.len().next_multiple_of(FRAME) + 16_000;
        sound.resize(whole, 0);
    }
    let levels: Vec<f32> = sound
        .as_chunks::<FRAME>()
        .0
        .iter()
        .map(|frame| rms_dbfs(frame))
        .collect();
    let loudest = levels.iter().copied().fold(f32::MIN, f32::max);
    let speech: Vec<bool> = levels.iter().map(|level| *level > loudest - 30.0).collect();
    // The level of the words alone, as a speech voltmeter gives it.
    let words: Vec<i16> = sound
        .as_chunks::<FRAME>()
        .0
        .iter()
        .zip(&speech)
        .filter(|(_, spoken)| **spoken)
        .flat_map(|(frame, _)| frame.iter().copied())
        .collect();
    gain(&mut sound, SPEECH_DBFS - f64::from(rms_dbfs(&words)));
    let onsets = (0..speech.len())
        .filter(|at| speech[*at] && !speech[at.saturating_sub(25)..*at].contains(&true))
        .collect();
    Caller {
        name,
        sound,
        speech,
        onsets,
    }
}

/// What a speech program says on its standard output, at 16 kHz.
fn render(command: &[&str], rest: &[&str]) -> Vec<i16> {
    let output = Command::new(command[0])
        .args(&command[1..])
        .args(rest)
        .output()
        .unwrap_or_else(|error| {
            panic!(
                "{} cannot be run ({error}): install espeak-ng and flite",
                command[0]
            )
        });
    assert!(
        output.status.success(),
        "{} {rest:?} failed: is the voice installed?",
        command[0]
    );
    // The lengths in the header of a stream are not to be trusted; both programs write 44 bytes of it.
    let wav = &output.stdout;
    assert!(
        wav.starts_with(b"RIFF") && &wav[36..40] == b"data",
        "{} gave no WAV",
        command[0]
    );
    let rate = u32::from_le_bytes(*wav[24..].first_chunk().unwrap());
    let samples: Vec<i16> = wav[44..]
        .as_chunks()
        .0
        .iter()
        .map(|bytes| i16::from_le_bytes(*bytes))
        .collect();
    let mut out = Vec::new();
    let mut resampler = Resampler::new(rate, 16_000).unwrap();
    resampler.process(&samples, &mut out);
    resampler.finish(&mut out);
    out
}
