//! What the callers of a load run say: short sentences of a synthetic voice, 40 % of the time, over
//! a noise floor of −50 dBFS. Never digital silence, which would spare the server its voice detector.

use std::path::Path;
use std::process::{Command, Stdio};

use base64_simd::STANDARD;
use media::audio::opus::Encoder;
use media::audio::resample::Resampler;
use media::audio::{g711, level, tones};

/// Samples of a frame on the telephony wire: 20 ms at 8 kHz.
pub(super) const FRAME: usize = 160;
const RATE: u32 = 8000;
const NOISE_DBFS: f64 = -50.0;
const SPEECH_DBFS: f64 = -22.0;
/// A 10 ms window above this is voice; the noise is 12 dB below.
const VOICE_DBFS: f32 = -38.0;
/// Of the callers' Opus encoder.
const COMPLEXITY: u8 = 5;
/// Bits a second of the callers' Opus: what Chromium's encoder aims at where an answer asks for a voice's bandwidth
/// (`maxplaybackrate=16000`), as ours does.
pub const CALLER_BITS: u32 = 20_000;
/// Share of speech in the whole.
const SPEECH_SHARE: f64 = 0.4;
/// How the silence is shared among the pauses: after the first sentence the answer is heard to its
/// end, after the second the caller speaks into it, the third lies between.
const PAUSES: [f64; 3] = [0.46, 0.24, 0.30];
/// One clause each: a pause inside would end the turn early.
const SENTENCES: [&str; 3] = [
    "please tell me when you open on monday",
    "can I bring my dog along",
    "how much does the room cost",
];

/// A loop of frames, ready to be sent, and where in it speech begins and ends.
pub(super) struct Stimulus {
    /// Base64 of the μ-law frames.
    pub frames: Vec<String>,
    /// The same frames as Opus, for calls over WebRTC, once [`Stimulus::encode`] has made them; `None`: a
    /// frame that is not sent.
    pub opus: Vec<Option<Vec<u8>>>,
    /// What is heard in the frames, 8 kHz.
    sound: Vec<i16>,
    pub events: Vec<Option<Event>>,
    /// Share of samples with voice.
    pub speech_share: f64,
}

/// Something that a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The first voiced sample is this many μs before the frame's end.
    Onset { before_end: u64 },
    /// The last voiced sample is this many μs before the frame's end.
    Offset { before_end: u64 },
}

/// Renders the loop with flite, or with espeak-ng where flite is missing.
pub(super) fn render() -> Result<Stimulus, String> {
    let folder = std::env::temp_dir().join(format!("sidetone-load-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let spoken: Result<Vec<Vec<i16>>, String> = SENTENCES
        .iter()
        .map(|sentence| speak(sentence, &folder.join("sentence.wav")))
        .collect();
    std::fs::remove_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(compose(&spoken?))
}

/// The loop of those sentences (each without silence at its ends) and the pauses between.
fn compose(sentences: &[Vec<i16>]) -> Stimulus {
    let speech: usize = sentences.iter().map(Vec::len).sum();
    let silence = speech as f64 * (1.0 - SPEECH_SHARE) / SPEECH_SHARE;
    let mut sound: Vec<i16> = Vec::new();
    let mut marks = Vec::new();
    for (sentence, share) in sentences.iter().zip(PAUSES) {
        marks.push((sound.len(), true));
        sound.extend_from_slice(sentence);
        marks.push((sound.len() - 1, false));
        sound.resize(sound.len() + (silence * share) as usize, 0);
    }
    sound.resize(sound.len().next_multiple_of(FRAME), 0);
    let noise = tones::noise(1, NOISE_DBFS, sound.len());
    tones::mix(&mut sound, &noise);

    let mut events = vec![None; sound.len() / FRAME];
    for (at, is_onset) in marks {
        let before_end = ((FRAME - 1 - at % FRAME) as u64) * 1_000_000 / u64::from(RATE);
        let event = if is_onset {
            Event::Onset { before_end }
        } else {
            Event::Offset { before_end }
        };
        events[at / FRAME] = Some(event);
    }
    let frames = sound
        .chunks(FRAME)
        .map(|frame| {
            let mut bytes = [0; FRAME];
            g711::ulaw_encode(frame, &mut bytes);
            STANDARD.encode_to_string(bytes)
        })
        .collect();
    Stimulus {
        frames,
        opus: Vec::new(),
        events,
        speech_share: speech as f64 / sound.len() as f64,
        sound,
    }
}

impl Stimulus {
    /// Makes the frames as a browser sends them, but for the noise of the pauses: most of that a browser leaves out
    /// (discontinuous transmission), and here all of it is sent.
    pub(super) fn encode(&mut self) -> Result<(), String> {
        let mut resampler = Resampler::new(RATE, 2 * RATE).map_err(|error| error.to_string())?;
        let mut wide = Vec::new();
        resampler.process(&self.sound, &mut wide);
        resampler.finish(&mut wide);
        wide.resize(self.frames.len() * media::frame::FRAME, 0);
        let failed = |_| "libopus fails".to_owned();
        let mut encoder = Encoder::new(COMPLEXITY).map_err(failed)?;
        encoder.limit(Some(CALLER_BITS)).map_err(failed)?;
        // No copies, as long as nothing is lost.
        encoder.expect_loss(0);
        let (frames, _) = wide.as_chunks::<{ media::frame::FRAME }>();
        for frame in frames {
            let mut payload = Vec::new();
            let is_sent = encoder.encode(frame, &mut payload).map_err(failed)?;
            self.opus.push(is_sent.then_some(payload));
        }
        Ok(())
    }
}

/// One sentence at 8 kHz, at a fixed level, from its first voiced window to its last.
fn speak(sentence: &str, file: &Path) -> Result<Vec<i16>, String> {
    let mut flite = Command::new("flite");
    flite
        .args(["-voice", "slt", "-t", sentence, "-o"])
        .arg(file);
    let mut espeak = Command::new("espeak-ng");
    espeak.arg("-w").arg(file).arg(sentence);
    let renders = |command: &mut Command| {
        command
            .stdout(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    if !renders(&mut flite) && !renders(&mut espeak) {
        return Err(
            "neither flite nor espeak-ng renders the callers' voice: install one of them"
                .to_owned(),
        );
    }
    let mut reader = hound::WavReader::open(file).map_err(|error| error.to_string())?;
    let rate = reader.spec().sample_rate;
    let samples: Vec<i16> = reader
        .samples::<i16>()
        .collect::<Result<_, _>>()
        .map_err(|error| error.to_string())?;
    let mut resampler = Resampler::new(rate, RATE).map_err(|error| error.to_string())?;
    let mut sound = Vec::new();
    resampler.process(&samples, &mut sound);
    resampler.finish(&mut sound);
    let loudness = f64::from(level::rms_dbfs(&sound));
    tones::gain(&mut sound, SPEECH_DBFS - loudness);
    let voiced = trim(&sound);
    if voiced.is_empty() {
        return Err(format!("“{sentence}” was rendered as silence"));
    }
    Ok(voiced.to_vec())
}

/// Cuts what is below the voice's threshold at both ends, in windows of 10 ms.
fn trim(sound: &[i16]) -> &[i16] {
    const WINDOW: usize = 80;
    let voiced: Vec<usize> = sound
        .chunks(WINDOW)
        .enumerate()
        .filter(|(_, window)| level::rms_dbfs(window) > VOICE_DBFS)
        .map(|(index, _)| index)
        .collect();
    match (voiced.first(), voiced.last()) {
        (Some(first), Some(last)) => &sound[first * WINDOW..((last + 1) * WINDOW).min(sound.len())],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    fn sentences() -> [Vec<i16>; 3] {
        [16_003, 9000, 12_000].map(|length| tones::sine(8000, 300.0, -22.0, length))
    }

    fn decoded(stimulus: &Stimulus) -> Vec<i16> {
        let mut sound = Vec::new();
        for frame in &stimulus.frames {
            let mut samples = [0; FRAME];
            g711::ulaw_decode(&STANDARD.decode_to_vec(frame).unwrap(), &mut samples);
            sound.extend(samples);
        }
        sound
    }

    #[test]
    fn four_tenths_are_speech_and_nothing_is_silence() {
        let stimulus = compose(&sentences());
        assert!(
            (0.395..0.405).contains(&stimulus.speech_share),
            "{}",
            stimulus.speech_share
        );
        for window in decoded(&stimulus).chunks(800) {
            assert!(level::rms_dbfs(window) > -53.0);
        }
    }

    #[test]
    fn onset_and_offset_are_where_the_energy_is() {
        let stimulus = compose(&sentences());
        let sound = decoded(&stimulus);
        let place = |frame: usize, before_end: u64| {
            (frame + 1) * FRAME - 1 - usize::try_from(before_end * 8 / 1000).unwrap()
        };
        let mut onsets = Vec::new();
        let mut offsets = Vec::new();
        for (frame, event) in stimulus.events.iter().enumerate() {
            match event {
                Some(Event::Onset { before_end }) => onsets.push(place(frame, *before_end)),
                Some(Event::Offset { before_end }) => offsets.push(place(frame, *before_end)),
                None => {}
            }
        }
        assert_eq!((onsets.len(), offsets.len()), (3, 3));
        assert_eq!((onsets[0], offsets[0]), (0, 16_002));
        for (onset, offset) in onsets.into_iter().zip(offsets) {
            assert!(level::rms_dbfs(&sound[onset..onset + 200]) > -26.0);
            assert!(level::rms_dbfs(&sound[offset - 200..offset]) > -26.0);
            assert!(level::rms_dbfs(&sound[offset + 2..offset + 400]) < -45.0);
        }
    }

    #[test]
    fn the_ends_of_a_sentence_are_cut() {
        let mut sound = vec![0; 800];
        sound.extend(tones::sine(8000, 300.0, -20.0, 1600));
        sound.resize(4000, 0);
        assert_eq!(trim(&sound).len(), 1600);
        assert!(trim(&[0; 500]).is_empty());
    }
}
