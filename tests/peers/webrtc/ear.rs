//! What is heard by a phone that neither encodes nor decodes: its packets to a voice that begins and ends.

use media::audio::opus::{CLOCK, Decoder, Encoder, LONGEST};
use media::frame::FRAME;
use media::time::RATE;
use serde_json::{Value, json};

use crate::stage;

/// Louder than this (of 32768) for a tenth of a second is a voice; quieter for six is silence: as in `phone.py`.
const VOICE: f64 = 600.0;
const BEGUN: usize = 100;
const ENDED: usize = 600;

pub(crate) struct Ear {
    decoder: Decoder,
    pcm: Vec<i16>,
    /// There is a voice.
    heard: bool,
    /// So long it has been loud, and quiet, ms.
    loud: usize,
    quiet: usize,
    /// From when to when there was a voice, on the stream's own clock, ms.
    pub(crate) parts: Vec<[f64; 2]>,
}

impl Ear {
    pub(crate) fn new() -> Self {
        Self {
            decoder: Decoder::new().unwrap(),
            pcm: vec![0; LONGEST],
            heard: false,
            loud: 0,
            quiet: 0,
            parts: Vec::new(),
        }
    }

    /// What the phone told, as one that decodes would have told it; of a packet mostly nothing.
    pub(crate) fn understand(&mut self, told: Value) -> Option<Value> {
        match told["event"].as_str() {
            Some("packet") => self.packet(&told),
            Some("pause") => {
                self.loud = 0;
                self.silence()
            }
            _ => Some(told),
        }
    }

    fn packet(&mut self, told: &Value) -> Option<Value> {
        let payload: Vec<u8> = serde_json::from_value(told["payload"].clone()).unwrap();
        let samples = self.decoder.decode(&payload, &mut self.pcm).unwrap();
        let start = told["timestamp"].as_f64().unwrap() * 1000.0 / f64::from(CLOCK);
        self.note(start, samples);
        let ms = samples * 1000 / RATE as usize;
        if power(&self.pcm[..samples]) > VOICE {
            self.loud += ms;
            self.quiet = 0;
        } else {
            self.loud = 0;
            self.quiet += ms;
        }
        if self.quiet >= ENDED {
            return self.silence();
        }
        let begins = !self.heard && self.loud >= BEGUN;
        self.heard |= begins;
        begins.then(|| json!({"event": "voice"}))
    }

    fn silence(&mut self) -> Option<Value> {
        let ends = std::mem::take(&mut self.heard);
        ends.then(|| json!({"event": "silence"}))
    }

    /// Adds a packet's loud quarters to the part that they belong to.
    fn note(&mut self, start: f64, samples: usize) {
        let size = samples / 4;
        let length = size as f64 * 1000.0 / f64::from(RATE);
        for (at, quarter) in self.pcm[..samples].chunks_exact(size).enumerate() {
            if power(quarter) <= VOICE {
                continue;
            }
            let begin = start + at as f64 * length;
            let last = self.parts.last_mut();
            match last.filter(|part| begin - part[1] <= ENDED as f64) {
                Some(part) => part[1] = begin + length,
                None => self.parts.push([begin, begin + length]),
            }
        }
    }
}

fn power(samples: &[i16]) -> f64 {
    let sum: f64 = samples.iter().map(|s| f64::from(*s).powi(2)).sum();
    (sum / samples.len() as f64).sqrt()
}

/// The caller's voice as packets of 20 ms.
pub(crate) fn spoken(ms: u32) -> Vec<Vec<u8>> {
    let mut encoder = Encoder::new(5).unwrap();
    let voice = stage::voice(ms as usize);
    let (frames, _) = voice.as_chunks::<FRAME>();
    let packet = |frame| {
        let mut packet = Vec::new();
        assert!(encoder.encode(frame, &mut packet).unwrap());
        packet
    };
    frames.iter().map(packet).collect()
}
