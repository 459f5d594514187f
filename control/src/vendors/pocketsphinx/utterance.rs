//! A stretch of a caller's speech, between the call that says it and the thread that hears it.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use media::speech::{SpeechSink, UtteranceId};
use media::time::RATE;

use super::super::queue::lock;
use super::cepstra::Level;
use super::models::Words;

/// The longest utterance, samples: a minute. What is said beyond it is not decoded.
const LONGEST: usize = RATE as usize * 60;

/// What is known of a call's sound.
#[derive(Clone, Copy)]
pub(super) struct Channel {
    pub(super) level: Level,
    pub(super) narrow: bool,
}

/// One stretch of speech, filled by the call and emptied by a thread.
pub(super) struct Utterance {
    pub(super) id: UtteranceId,
    pub(super) sink: Arc<dyn SpeechSink>,
    pub(super) words: Arc<Words>,
    pub(super) channel: Arc<Mutex<Option<Channel>>>,
    sound: Mutex<Sound>,
    more: Condvar,
}

#[derive(Default)]
struct Sound {
    samples: Vec<i16>,
    end: Option<End>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Finished,
    Cancelled,
}

impl Utterance {
    pub(super) fn new(
        id: UtteranceId,
        sink: &Arc<dyn SpeechSink>,
        words: &Arc<Words>,
        channel: &Arc<Mutex<Option<Channel>>>,
    ) -> Self {
        Self {
            id,
            sink: Arc::clone(sink),
            words: Arc::clone(words),
            channel: Arc::clone(channel),
            sound: Mutex::default(),
            more: Condvar::new(),
        }
    }

    /// More sound; what would make it too long is left out.
    pub(super) fn add(&self, pcm: &[i16]) {
        let mut sound = lock(&self.sound);
        if sound.end.is_none() && sound.samples.len() + pcm.len() <= LONGEST {
            sound.samples.extend_from_slice(pcm);
        }
        drop(sound);
        self.more.notify_one();
    }

    /// The sound from sample `from` on, once there are `count` samples or the end has come.
    pub(super) fn wait_for(&self, from: usize, count: usize) -> (Vec<i16>, Option<End>) {
        let mut sound = lock(&self.sound);
        while sound.end.is_none() && sound.samples.len() < from + count {
            sound = self
                .more
                .wait(sound)
                .unwrap_or_else(PoisonError::into_inner);
        }
        (sound.samples[from..].to_vec(), sound.end)
    }

    /// The end, unless it was cancelled before.
    pub(super) fn set(&self, end: End) {
        let mut sound = lock(&self.sound);
        if sound.end != Some(End::Cancelled) {
            sound.end = Some(end);
        }
        drop(sound);
        self.more.notify_one();
    }
}
