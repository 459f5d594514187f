//! Warm decoders on threads of their own, serving the utterances of many calls.
//!
//! A thread takes one utterance at a time and decodes while the caller speaks, so that the words are
//! there 30 to 50 ms after the end. When all threads are busy, an utterance waits with its sound kept and
//! is caught up with at about five times real time. What belongs to a call and not to a decoder, its
//! words and its channel's level, is set at the start of each utterance.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use media::speech::{Recogniser, SpeechEvent, SpeechSink, SttEvent, UtteranceId};
use media::time::RATE;

use super::super::queue::lock;
use super::cepstra::{self, Mean};
use super::decoder::{Decoder, FrontEnd, ModelFiles};
use super::{lm, mllr};

/// Sound of a call's first utterance that is heard before decoding starts, samples: enough to know
/// the channel's level and band.
const LISTEN_FIRST: usize = RATE as usize * 3 / 2;

/// The longest utterance, samples: a minute. What is said beyond it is not decoded.
const LONGEST: usize = RATE as usize * 60;

/// New sound between two interim texts, samples.
const INTERIM_EVERY: usize = RATE as usize * 3 / 10;

/// Sound fed at once, samples: a cancelled utterance stops within it.
const FEED: usize = RATE as usize / 5;

/// Language model files kept on disk. A model is made in a tenth of a second, so few are enough.
const KEPT_FILES: usize = 64;

/// The transform for a telephone's band, made by `sidetone wer --make-transform`.
const TELEPHONE: &str = include_str!("telephone.mllr");

/// The threads and what they share.
pub struct Pool {
    files: ModelFiles,
    folder: PathBuf,
    queue: Mutex<Waiting>,
    news: Condvar,
    /// Held while a language model file is made or read, so that none is removed under a reader.
    models: Mutex<()>,
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

impl Pool {
    /// Starts `threads` decoders for at most `max_calls` calls at a time. They open in the background;
    /// models that are not installed are an error at once.
    pub fn start(threads: usize, max_calls: usize, folder: &Path) -> Result<Arc<Self>, String> {
        let files = ModelFiles::packaged()?;
        prepare(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let pool = Arc::new(Self {
            files,
            folder: folder.to_owned(),
            queue: Mutex::default(),
            news: Condvar::new(),
            models: Mutex::new(()),
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
            thread::Builder::new()
                .name(format!("ears-{index}"))
                .spawn(work)
                .map_err(|error| error.to_string())?;
        }
        Ok(pool)
    }

    /// A place for one call, with the text its words come from; free again when it is dropped.
    pub fn seat(self: &Arc<Self>, text: &str) -> Result<Seat, NoSeat> {
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
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let key = format!("{:016x}", hasher.finish());
        Ok(Seat {
            pool: Arc::clone(self),
            words: Arc::new(Words {
                key,
                text: text.to_owned(),
            }),
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
        let starting_mean = self.files.starting_mean();
        let mut last_call = usize::MAX;
        while let Some(utterance) = self.take(&decoder) {
            let call = Arc::as_ptr(&utterance.channel).addr();
            let heard = self.decode(
                &mut decoder,
                &front_end,
                &starting_mean,
                &utterance,
                call != last_call,
            );
            last_call = call;
            let id = utterance.id;
            let event = match heard {
                Ok(None) => continue,
                Ok(Some(event)) => event,
                Err(message) => SttEvent::Failed {
                    utterance: id,
                    message,
                },
            };
            utterance.sink.send(SpeechEvent::Stt(event));
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
        starting_mean: &Mean,
        utterance: &Utterance,
        fresh: bool,
    ) -> Result<Option<SttEvent>, String> {
        let known = *lock(&utterance.channel);
        let first = if known.is_some() { FEED } else { LISTEN_FIRST };
        let (mut sound, mut end) = utterance.wait_for(0, first);
        if end == Some(End::Cancelled) {
            return Ok(None);
        }
        let channel = known.unwrap_or_else(|| {
            let narrow = cepstra::is_narrow(&sound);
            Channel {
                mean: cepstra::mean(front_end, &sound, starting_mean),
                narrow: narrow.unwrap_or(false),
            }
        });
        decoder.use_transform(&self.transform(channel.narrow))?;
        self.use_words(decoder, &utterance.words)?;
        decoder.begin(&channel.mean, fresh)?;
        let mut fed = 0;
        let mut shown = (0, String::new());
        let cancelled = loop {
            for piece in sound.chunks(FEED) {
                decoder.feed(piece)?;
            }
            fed += sound.len();
            match end {
                Some(End::Cancelled) => break true,
                Some(End::Finished) => break false,
                None => {}
            }
            if fed >= shown.0 + INTERIM_EVERY {
                let text = decoder.interim();
                if !text.is_empty() && text != shown.1 {
                    let event = SttEvent::Interim {
                        utterance: utterance.id,
                        text: text.clone(),
                    };
                    if !utterance.sink.send(SpeechEvent::Stt(event)) {
                        break true;
                    }
                }
                shown = (fed, text);
            }
            (sound, end) = utterance.wait_for(fed, 1);
        };
        // The decoder must be ended in any case, to be ready for the next one.
        let (heard, mean) = decoder.end()?;
        if cancelled {
            return Ok(None);
        }
        *lock(&utterance.channel) = Some(Channel { mean, ..channel });
        let confidence = Some(heard.confidence);
        Ok(Some(SttEvent::Final {
            utterance: utterance.id,
            text: heard.text,
            confidence,
        }))
    }

    fn transform(&self, narrow: bool) -> PathBuf {
        self.folder
            .join(if narrow { TELEPHONE_FILE } else { WIDE_FILE })
    }

    fn use_words(&self, decoder: &mut Decoder, words: &Words) -> Result<(), String> {
        if decoder.has_language(&words.key) {
            return decoder.use_language(&words.key, None);
        }
        let _held = lock(&self.models);
        let path = self
            .folder
            .join(format!("{MODEL_PREFIX}{}.arpa", words.key));
        if !path.is_file() {
            self.make_model(words, &path)
                .map_err(|error| format!("{}: {error}", path.display()))?;
        }
        decoder.use_language(&words.key, Some(&path))
    }

    fn make_model(&self, words: &Words, path: &Path) -> io::Result<()> {
        let dictionary = std::fs::read_to_string(&self.files.dictionary)?;
        let known = lm::dictionary(&dictionary);
        let model = lm::build(&words.text, |word| known.contains(word));
        if !model.unknown.is_empty() {
            tracing::info!(words = ?model.unknown, "the recogniser cannot know these words of the agent");
        }
        make_room(&self.folder)?;
        let unfinished = path.with_extension("new");
        std::fs::write(&unfinished, model.arpa)?;
        std::fs::rename(unfinished, path)
    }
}

const MODEL_PREFIX: &str = "words-";
const TELEPHONE_FILE: &str = "telephone.mllr";
const WIDE_FILE: &str = "wide.mllr";

/// The transforms, and no language model of an earlier version.
fn prepare(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    for path in model_files(folder)? {
        std::fs::remove_file(path)?;
    }
    std::fs::write(folder.join(TELEPHONE_FILE), TELEPHONE)?;
    std::fs::write(folder.join(WIDE_FILE), mllr::Transform::identity().file())
}

fn model_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if name.starts_with(MODEL_PREFIX) {
            found.push(path);
        }
    }
    Ok(found)
}

/// Removes the oldest language model files, so that one more fits the bound.
fn make_room(folder: &Path) -> io::Result<()> {
    let mut files = Vec::new();
    for path in model_files(folder)? {
        files.push((path.metadata()?.modified()?, path));
    }
    files.sort();
    let surplus = (files.len() + 1).saturating_sub(KEPT_FILES);
    for (_, path) in &files[..surplus] {
        std::fs::remove_file(path)?;
    }
    Ok(())
}

/// What a call's callers may say.
struct Words {
    key: String,
    text: String,
}

/// What is known of a call's sound.
#[derive(Clone, Copy)]
struct Channel {
    mean: Mean,
    narrow: bool,
}

/// A call's right to be heard.
pub struct Seat {
    pool: Arc<Pool>,
    words: Arc<Words>,
}

impl Seat {
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

impl Drop for Seat {
    fn drop(&mut self) {
        self.pool.calls.fetch_sub(1, Ordering::AcqRel);
    }
}

/// One stretch of speech, filled by the call and emptied by a thread.
struct Utterance {
    id: UtteranceId,
    sink: Arc<dyn SpeechSink>,
    words: Arc<Words>,
    channel: Arc<Mutex<Option<Channel>>>,
    sound: Mutex<Sound>,
    more: Condvar,
}

#[derive(Default)]
struct Sound {
    samples: Vec<i16>,
    end: Option<End>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Finished,
    Cancelled,
}

impl Utterance {
    /// The sound from sample `from` on, once there are `count` samples or the end has come.
    fn wait_for(&self, from: usize, count: usize) -> (Vec<i16>, Option<End>) {
        let mut sound = lock(&self.sound);
        while sound.end.is_none() && sound.samples.len() < from + count {
            sound = self
                .more
                .wait(sound)
                .unwrap_or_else(PoisonError::into_inner);
        }
        (sound.samples[from..].to_vec(), sound.end)
    }

    fn set(&self, end: End) {
        let mut sound = lock(&self.sound);
        if sound.end != Some(End::Cancelled) {
            sound.end = Some(end);
        }
        drop(sound);
        self.more.notify_one();
    }
}

/// The recogniser of one call.
pub struct PoolRecogniser {
    seat: Seat,
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
        let utterance = Arc::new(Utterance {
            id,
            sink: Arc::clone(&self.sink),
            words: Arc::clone(&self.seat.words),
            channel: Arc::clone(&self.channel),
            sound: Mutex::default(),
            more: Condvar::new(),
        });
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
            let mut sound = lock(&utterance.sound);
            if sound.end.is_none() && sound.samples.len() + pcm.len() <= LONGEST {
                sound.samples.extend_from_slice(pcm);
            }
            drop(sound);
            utterance.more.notify_one();
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
