//! The pool with real decoders and synthetic callers.

#![expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]

use std::sync::mpsc;
use std::time::Duration;

use media::audio::g711;
use media::audio::resample::Resampler;

use super::super::super::voice::render;
use std::path::{Path, PathBuf};

use super::*;
use crate::voices::Engine;

struct EventSink(mpsc::Sender<SpeechEvent>);

impl SpeechSink for EventSink {
    fn send(&self, event: SpeechEvent) -> bool {
        self.0.send(event).is_ok()
    }
}

const PROMPT: &str = "The swimming pool opens at eight. Parking costs ten dollars a night.";

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("sidetone-ears-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn spoken(folder: &Path, text: &str) -> Vec<i16> {
    let (rate, pcm) = render(
        Engine::Flite { name: "rms" },
        text,
        &folder.join("caller.wav"),
    )
    .unwrap();
    assert_eq!(rate, RATE);
    // The quiet that a voice detector leaves around speech, and a line is never quite silent.
    let quiet = (0..RATE as usize / 4).map(|i| (i * 7919 % 9) as i16 - 4);
    quiet.clone().chain(pcm).chain(quiet).collect()
}

fn telephone(pcm: &[i16]) -> Vec<i16> {
    let (mut low, mut back) = (Vec::new(), Vec::new());
    Resampler::new(RATE, 8000).unwrap().process(pcm, &mut low);
    let mut wire = vec![0; low.len()];
    g711::ulaw_encode(&low, &mut wire);
    g711::ulaw_decode(&wire, &mut low);
    Resampler::new(8000, RATE).unwrap().process(&low, &mut back);
    back
}

/// The final text of an utterance, skipping interims.
fn hear(
    recogniser: &mut PoolRecogniser,
    heard: &mpsc::Receiver<SpeechEvent>,
    id: u32,
    pcm: &[i16],
) -> String {
    let id = UtteranceId(id);
    recogniser.begin(id);
    for frame in pcm.chunks(320) {
        recogniser.audio(id, frame);
    }
    recogniser.finish(id);
    loop {
        match heard.recv_timeout(Duration::from_secs(60)).unwrap() {
            SpeechEvent::Recogniser(RecogniserEvent::Final {
                utterance, text, ..
            }) if utterance == id => return text,
            SpeechEvent::Recogniser(RecogniserEvent::Interim { .. }) => {}
            other => unreachable!("{other:?}"),
        }
    }
}

#[test]
fn two_calls_share_a_decoder_in_both_bands_and_a_third_is_refused() {
    let folder = folder("bands");
    let pool = Pool::start(1, 2, &folder, &Supervisor::default()).unwrap();
    let pcm = spoken(&folder, "when does the swimming pool open");
    let seats = [pool.seat(PROMPT).unwrap(), pool.seat(PROMPT).unwrap()];
    assert_eq!(pool.seat(PROMPT).err(), Some(NoSeat::Full { calls: 2 }));
    let mut lines = seats.map(|seat| {
        let (events, heard) = mpsc::channel();
        (seat.recogniser(Arc::new(EventSink(events))), heard)
    });
    for id in 0..2 {
        for ((recogniser, heard), sound) in lines.iter_mut().zip([pcm.clone(), telephone(&pcm)]) {
            let text = hear(recogniser, heard, id, &sound);
            assert!(text.contains("swimming pool"), "{text}");
        }
    }
    drop(lines);
    assert!(
        pool.seat(PROMPT).is_ok(),
        "a call that ended has left its seat"
    );
    pool.stop();
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_cancelled_utterance_is_never_heard_of() {
    let folder = folder("cancel");
    let pool = Pool::start(1, 1, &folder, &Supervisor::default()).unwrap();
    let pcm = spoken(&folder, "parking");
    let (events, heard) = mpsc::channel();
    let mut recogniser = pool
        .seat(PROMPT)
        .unwrap()
        .recogniser(Arc::new(EventSink(events)));
    recogniser.begin(UtteranceId(1));
    recogniser.audio(UtteranceId(1), &pcm);
    recogniser.cancel(UtteranceId(1));
    let text = hear(
        &mut recogniser,
        &heard,
        2,
        &spoken(&folder, "how much does parking cost"),
    );
    assert!(text.contains("parking"), "{text}");
    pool.stop();
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_telephone_is_known_by_its_band() {
    let folder = folder("narrow");
    let pcm = spoken(&folder, "is there somewhere to park our car");
    assert_eq!(cepstra::is_narrow(&pcm), Some(false));
    assert_eq!(cepstra::is_narrow(&telephone(&pcm)), Some(true));
    assert_eq!(cepstra::is_narrow(&[0; 16_000]), None);
    std::fs::remove_dir_all(folder).unwrap();
}
