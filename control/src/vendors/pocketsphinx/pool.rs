//! Warm decoders on threads of their own, serving the utterances of many calls.
//!
//! A thread takes one utterance at a time and decodes while the caller speaks, so that the words are
//! there 30 to 50 ms after the end. When all threads are busy, an utterance waits with its sound kept and
//! is caught up with at about five times real time. What belongs to a call and not to a decoder, its
//! words and its channel's level, is set at the start of each utterance.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use media::speech::{Recogniser, RecogniserEvent, SpeechEvent, SpeechSink, UtteranceId};
use media::time::RATE;

use super::super::queue::lock;
use super::cepstra;
use super::decoder::{Decoder, FrontEnd, MEAN_WEIGHT, ModelFiles};
use super::models::{ModelFolder, Words};
use super::utterance::{Channel, End, Utterance};
use crate::supervisor::Supervisor;

/// Sound of a call's first utterance that is heard before decoding starts, samples: enough to know
/// the channel's level and band.
const LISTEN_FIRST: usize = RATE as usize * 3 / 2;

/// New sound between two interim texts, samples.
const INTERIM_EVERY: usize = RATE as usize * 3 / 10;

/// Sound fed at once, samples: a cancelled utterance stops within it.
const FEED: usize = RATE as usize / 5;

/// The threads and what they share.
pub struct Pool {
    files: ModelFiles,
    models: ModelFolder,
    queue: Mutex<Waiting>,
    news: Condvar,
    calls: AtomicUsize,
    max_calls: usize,
    fault: Mutex<Option<String>>,
}

#[derive(Default)]
struct Waiting {
    utterances: VecDeque<Arc<Utterance>>,
    closed: bool,
}

/// Why a call gets no recogniser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoSeat {
    /// All of them are taken.
    Full { calls: usize },
    /// The decoders did not start.
    Broken(String),
}

/// What is written for an utterance in which nobody spoke: the name of a noise, which is no word.
const NOISE: &str = "[noise]";

impl Pool {
    /// Starts `threads` decoders for at most `max_calls` calls at a time. They open in the background;
    /// models that are not installed are an error at once.
    pub fn start(
        threads: usize,
        max_calls: usize,
        folder: &Path,
        watch: &Supervisor,
    ) -> Result<Arc<Self>, String> {
        let files = ModelFiles::packaged()?;
        let models = ModelFolder::prepare(folder, &files.dictionary)
            .map_err(|error| format!("{}: {error}", folder.display()))?;
        let pool = Arc::new(Self {
            files,
            models,
            queue: Mutex::default(),
            news: Condvar::new(),
            calls: AtomicUsize::new(0),
            max_calls,
            fault: Mutex::new(None),
        });
        for index in 0..threads.max(1) {
            let pool = Arc::clone(&pool);
            let work = move || {
                if let Err(fault) = pool.work() {
                    tracing::error!(%fault, "a decoder stopped");
                    *lock(&pool.fault) = Some(fault);
                }
            };
            watch
                .thread(format!("ears-{index}"), work)
                .map_err(|error| error.to_string())?;
        }
        Ok(pool)
    }

    /// A place for one call, with the text its words come from; free again when it is dropped.
    pub fn seat(self: &Arc<Self>, text: &str) -> Result<Slot, NoSeat> {
        if let Some(fault) = lock(&self.fault).clone() {
            return Err(NoSeat::Broken(fault));
        }
        let taken = self
            .calls
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |calls| {
                (calls < self.max_calls).then_some(calls + 1)
            });
        if taken.is_err() {
            return Err(NoSeat::Full {
                calls: self.max_calls,
            });
        }
        let words = Arc::new(Words::of(text));
        Ok(Slot {
            pool: Arc::clone(self),
            words,
        })
    }

    /// Sends the threads home after what they are at.
    pub fn stop(&self) {
        let mut queue = lock(&self.queue);
        queue.closed = true;
        for utterance in queue.utterances.drain(..) {
            utterance.set(End::Cancelled);
        }
        drop(queue);
        self.news.notify_all();
    }

    fn work(&self) -> Result<(), String> {
        let mut decoder = Decoder::open(&self.files)?;
        let front_end = FrontEnd::open(&self.files)?;
        while let Some(utterance) = self.take(&decoder) {
            let heard = self.decode(&mut decoder, &front_end, &utterance);
            let id = utterance.id;
            let event = match heard {
                Ok(None) => continue,
                Ok(Some(event)) => event,
                Err(message) => RecogniserEvent::Failed {
                    utterance: id,
                    message,
                },
            };
            utterance.sink.send(SpeechEvent::Recogniser(event));
        }
        Ok(())
    }

    /// The utterance that waits longest among those whose words this decoder has at hand, else the one
    /// that waits longest.
    fn take(&self, decoder: &Decoder) -> Option<Arc<Utterance>> {
        let mut queue = lock(&self.queue);
        loop {
            if queue.closed {
                return None;
            }
            let ready = queue
                .utterances
                .iter()
                .position(|utterance| decoder.has_language(&utterance.words.key));
            if let Some(utterance) = queue.utterances.remove(ready.unwrap_or(0)) {
                return Some(utterance);
            }
            queue = self
                .news
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Hears one utterance to its end; `None` when it was cancelled.
    fn decode(
        &self,
        decoder: &mut Decoder,
        front_end: &FrontEnd,
        utterance: &Utterance,
    ) -> Result<Option<RecogniserEvent>, String> {
        let known = *lock(&utterance.channel);
        let first = if known.is_some() { FEED } else { LISTEN_FIRST };
        let (sound, end) = utterance.wait_for(0, first);
        if end == Some(End::Cancelled) {
            return Ok(None);
        }
        let channel = known.unwrap_or_else(|| {
            let narrow = cepstra::is_narrow(&sound).unwrap_or(false);
            // A short first utterance has ended already: no more of it than of a long one.
            let heard_first = &sound[..sound.len().min(first)];
            Channel {
                level: cepstra::level(front_end, heard_first, narrow),
                narrow,
            }
        });
        decoder.use_transform(&self.models.transform(channel.narrow))?;
        self.models.use_words(decoder, &utterance.words)?;
        decoder.begin(&channel.level.mean())?;
        let wanted = follow(decoder, utterance, sound, end);
        // Ended in any case: the next utterance cannot begin before.
        let (heard, mean, frames) = decoder.end()?;
        if !wanted? {
            return Ok(None);
        }
        let mut channel = channel;
        channel.level.add(&mean, frames, MEAN_WEIGHT);
        *lock(&utterance.channel) = Some(channel);
        // With the whole utterance it knows better than it did on the way: an empty text would leave the words of then.
        let text = match heard.text.is_empty() {
            true => NOISE.to_owned(),
            false => heard.text,
        };
        Ok(Some(RecogniserEvent::Final {
            utterance: utterance.id,
            text,
            confidence: Some(heard.confidence),
        }))
    }
}

/// Feeds an utterance as it comes, until it has ended; `false` when nobody wants it any more.
fn follow(
    decoder: &mut Decoder,
    utterance: &Utterance,
    mut sound: Vec<i16>,
    mut end: Option<End>,
) -> Result<bool, String> {
    let (mut fed, mut shown_at, mut shown) = (0, 0, String::new());
    loop {
        for piece in sound.chunks(FEED) {
            decoder.feed(piece)?;
        }
        fed += sound.len();
        match end {
            Some(end) => return Ok(end == End::Finished),
            None if fed >= shown_at + INTERIM_EVERY => {
                let text = decoder.interim();
                if !text.is_empty() && text != shown {
                    let event = RecogniserEvent::Interim {
                        utterance: utterance.id,
                        text: text.clone(),
                    };
                    if !utterance.sink.send(SpeechEvent::Recogniser(event)) {
                        return Ok(false);
                    }
                }
                (shown_at, shown) = (fed, text);
            }
            None => {}
        }
        (sound, end) = utterance.wait_for(fed, 1);
    }
}

/// A call's right to be heard.
pub struct Slot {
    pool: Arc<Pool>,
    words: Arc<Words>,
}

impl Slot {
    /// The recogniser of the call.
    pub fn recogniser(self, sink: Arc<dyn SpeechSink>) -> PoolRecogniser {
        PoolRecogniser {
            seat: self,
            sink,
            channel: Arc::default(),
            current: None,
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.pool.calls.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The recogniser of one call.
pub struct PoolRecogniser {
    seat: Slot,
    sink: Arc<dyn SpeechSink>,
    channel: Arc<Mutex<Option<Channel>>>,
    current: Option<Arc<Utterance>>,
}

impl PoolRecogniser {
    fn current(&self, id: UtteranceId) -> Option<&Arc<Utterance>> {
        self.current.as_ref().filter(|utterance| utterance.id == id)
    }
}

impl Recogniser for PoolRecogniser {
    fn begin(&mut self, id: UtteranceId) {
        if let Some(before) = self.current.take() {
            before.set(End::Finished);
        }
        let (sink, words, channel) = (&self.sink, &self.seat.words, &self.channel);
        let utterance = Arc::new(Utterance::new(id, sink, words, channel));
        self.current = Some(Arc::clone(&utterance));
        let mut queue = lock(&self.seat.pool.queue);
        // Bounded by the seats: a call's waiting utterances are the open one and the few that have
        // just ended, and the engine ends none before it has begun the one after.
        if !queue.closed {
            queue.utterances.push_back(utterance);
        }
        drop(queue);
        // All are woken: each looks for words that it has at hand.
        self.seat.pool.news.notify_all();
    }

    fn audio(&mut self, id: UtteranceId, pcm: &[i16]) {
        if let Some(utterance) = self.current(id) {
            utterance.add(pcm);
        }
    }

    fn finish(&mut self, id: UtteranceId) {
        if let Some(utterance) = self.current(id) {
            utterance.set(End::Finished);
        }
    }

    fn cancel(&mut self, id: UtteranceId) {
        if let Some(utterance) = self.current(id) {
            utterance.set(End::Cancelled);
            self.current = None;
        }
    }

    /// The decoder's words come without marks.
    fn punctuates(&self) -> bool {
        false
    }
}

impl Drop for PoolRecogniser {
    fn drop(&mut self) {
        if let Some(utterance) = self.current.take() {
            utterance.set(End::Cancelled);
        }
    }
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
