//! A text spoken by a voice, sentence by sentence, at one rate.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use media::audio::resample::Resampler;
use media::speech::{ReplyId, SpeechSink, Synthesiser, SynthesiserEvent};
use tokio::sync::{mpsc, oneshot};

use super::Tts;
use super::budget::{Active, Room, Share, held};
use super::collector::{Meter, SpeechCollector};
use super::rules::{self, RATE, Unspeakable};
use crate::catalogue::voices::{self, Voice};
use crate::http::ApiError;
use crate::http::validate::FieldError;
use crate::ids::AccountId;
use crate::node::Node;
use crate::supervisor;
use crate::usage::{self, Resource};
use crate::vendors::SpeechUnavailable;

/// Pieces of one sentence that may wait to be sent: a voice that makes them as small as 20 ms fills
/// it after 80 s, which is longer than any sentence. A voice that fills it is stopped.
const PIECES: usize = 4096;

/// How long a voice may take to its next piece: the requests that came before have to be spoken first.
const STALL: Duration = Duration::from_secs(60);

/// How long a request waits for room before it is told to come back. Most sentences take a tenth of a
/// second to synthesise.
const PATIENCE: Duration = Duration::from_secs(10);

/// The only reply of a synthesis.
const REPLY: ReplyId = ReplyId(1);

/// The voice that is asked for: by id or legacy key, the sentinel `default` or nothing for the
/// deployment's own, of the language that is asked for.
pub fn find_voice(
    app: &Node,
    voice: Option<&str>,
    language: Option<&str>,
) -> Result<&'static Voice, ApiError> {
    let Some(named) = voice.filter(|voice| !["", "default"].contains(voice)) else {
        return default_voice(app, language.unwrap_or("english")).ok_or_else(unlinked);
    };
    let Some(voice) = voices::find(named) else {
        let known = voices::known(named).is_some();
        return Err(if known {
            unlinked()
        } else {
            ApiError::NotFound
        });
    };
    match language {
        Some(language) if language != voice.language => {
            let message = format!("This voice speaks {}", voice.language);
            Err(ApiError::field("language", "value_error", message))
        }
        _ => Ok(voice),
    }
}

fn default_voice(app: &Node, language: &str) -> Option<&'static Voice> {
    [
        voices::find(&app.config.speech.default_voice),
        voices::default_voice(),
    ]
    .into_iter()
    .flatten()
    .find(|voice| voice.language == language)
    .or_else(|| voices::offered().find(|voice| voice.language == language))
}

/// The voice is in the catalogue, and nothing here can speak with it.
fn unlinked() -> ApiError {
    let message = "Voice not linked to an active TTS model";
    ApiError::unprocessable("voice_unavailable", message)
}

/// The answer to a text that cannot be spoken; `most` characters are allowed.
pub fn refused(why: Unspeakable, most: usize) -> ApiError {
    match why {
        Unspeakable::TooLong { characters } => ApiError::TooLong {
            code: "text_too_long",
            message: format!("The text has {characters} characters; at most {most} are spoken"),
        },
        Unspeakable::Empty => ApiError::Fields(vec![FieldError::body(
            "text",
            "string_too_short",
            "String should hold something that can be spoken".to_owned(),
        )]),
        Unspeakable::WordTooLong { beginning } => ApiError::unprocessable(
            "word_too_long",
            format!(
                "text: the word that begins with {beginning:?} is too long to speak: at most {} characters without a space",
                rules::MAX_WORD
            ),
        ),
    }
}

/// A voice in the middle of a text. Dropped: the synthesis is cancelled.
pub struct Speaking {
    voice: Box<dyn Synthesiser>,
    events: mpsc::Receiver<(u32, SynthesiserEvent)>,
    meter: Arc<Meter>,
    sentences: VecDeque<String>,
    segment: u32,
    /// A sentence is with the voice.
    busy: bool,
    resampler: Option<(u32, Resampler)>,
    pcm: Vec<i16>,
    share: Share,
    pace: Pace,
    /// The longest silence of the voice.
    stall: Duration,
    /// Room for the sentence that is with the voice, or for all of the text.
    room: Option<Room>,
    _active: Active,
}

/// When room for sound is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Sentence by sentence; what goes out takes its room along.
    Stream,
    /// Once for all of it.
    Whole,
}

/// Why no (more) sound comes, in words for the log.
#[derive(Debug)]
pub struct Broken(String);

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Broken {}

fn endless() -> Broken {
    Broken("the voice does not end".to_owned())
}

impl Speaking {
    /// Begins a text; the first sound comes with [`next`](Self::next). `room` is for its first
    /// sentence, or for all of it.
    pub fn begin(
        text: &str,
        share: &Share,
        pace: Pace,
        room: Room,
        make: impl FnOnce(Arc<dyn SpeechSink>) -> Box<dyn Synthesiser>,
    ) -> Self {
        let (pieces, events) = mpsc::channel(PIECES);
        let meter = Arc::new(Meter::default());
        let ear = SpeechCollector {
            pieces,
            meter: Arc::clone(&meter),
        };
        let mut speaking = Self {
            voice: make(Arc::new(ear)),
            events,
            meter,
            sentences: rules::sentences(text).into(),
            segment: 0,
            busy: false,
            resampler: None,
            pcm: Vec::new(),
            share: share.clone(),
            pace,
            stall: STALL,
            room: Some(room),
            _active: share.begin(),
        };
        speaking.next_sentence();
        speaking
    }

    /// The next piece of sound, little-endian PCM16 at [`RATE`]; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Broken> {
        loop {
            if !self.busy {
                let Some(sentence) = self.sentences.front() else {
                    return Ok(self.tail());
                };
                if self.pace == Pace::Stream {
                    self.room = None;
                    let bytes = rules::bytes_of(rules::estimate(sentence));
                    self.room = Some(self.share.room(bytes).await);
                }
                self.next_sentence();
            }
            let event = tokio::select! {
                biased;
                event = self.events.recv() => event,
                // A voice that is stopped may say nothing more, not even that it is done.
                () = self.meter.is_over() => return Err(endless()),
                () = tokio::time::sleep(self.stall) => {
                    return Err(Broken(format!("no sound for {} s", self.stall.as_secs())));
                }
            };
            match event {
                Some((segment, _)) if segment != self.segment => {}
                Some((_, SynthesiserEvent::Audio { rate, samples })) => {
                    if let Some(bytes) = self.converted(rate, &samples)? {
                        return Ok(Some(bytes));
                    }
                }
                Some((_, SynthesiserEvent::Done)) if self.meter.was_over() => return Err(endless()),
                Some((_, SynthesiserEvent::Done)) => {
                    self.busy = false;
                    self.segment += 1;
                }
                // Whoever failed has said why in the log. A provider's words may repeat the text.
                Some((_, SynthesiserEvent::Failed { .. })) => {
                    return Err(Broken("the voice failed".to_owned()));
                }
                None => return Err(Broken("the voice is gone".to_owned())),
            }
        }
    }

    fn next_sentence(&mut self) {
        if let Some(sentence) = self.sentences.pop_front() {
            self.meter.reset(rules::longest(&sentence));
            self.busy = true;
            self.voice.speak(REPLY, self.segment, &sentence);
        }
    }

    fn converted(&mut self, rate: u32, samples: &[i16]) -> Result<Option<Bytes>, Broken> {
        if self
            .resampler
            .as_ref()
            .is_none_or(|(from, _)| *from != rate)
        {
            let fresh = Resampler::new(rate, RATE).map_err(|error| Broken(error.to_string()))?;
            self.resampler = Some((rate, fresh));
        }
        self.pcm.clear();
        if let Some((_, resampler)) = &mut self.resampler {
            resampler.process(samples, &mut self.pcm);
        }
        Ok(self.bytes())
    }

    /// What the resampler still holds at the very end.
    fn tail(&mut self) -> Option<Bytes> {
        let (_, mut resampler) = self.resampler.take()?;
        self.pcm.clear();
        resampler.finish(&mut self.pcm);
        self.bytes()
    }

    fn bytes(&mut self) -> Option<Bytes> {
        if self.pcm.is_empty() {
            return None;
        }
        let bytes: Vec<u8> = self.pcm.iter().flat_map(|s| s.to_le_bytes()).collect();
        let room = match self.pace {
            Pace::Stream => self.room.as_mut().and_then(|room| room.part(bytes.len())),
            Pace::Whole => None,
        };
        Some(held(bytes, room))
    }
}

impl Drop for Speaking {
    fn drop(&mut self) {
        self.voice.cancel(REPLY);
    }
}

/// Begins a text with a voice and waits for its first sound, so that what goes wrong is still an
/// answer.
pub async fn begin(
    app: &Node,
    share: &Share,
    voice: &Voice,
    text: &str,
    pace: Pace,
) -> Result<(Speaking, Bytes), ApiError> {
    let make = app.speech.speaker(voice).map_err(unavailable)?;
    start(share, PATIENCE, text, pace, make).await
}

async fn start(
    share: &Share,
    patience: Duration,
    text: &str,
    pace: Pace,
    make: impl FnOnce(Arc<dyn SpeechSink>) -> Box<dyn Synthesiser>,
) -> Result<(Speaking, Bytes), ApiError> {
    let first = match pace {
        Pace::Stream => rules::sentences(text).into_iter().next(),
        Pace::Whole => None,
    };
    let bytes = rules::bytes_of(rules::estimate(first.as_deref().unwrap_or(text)));
    let room = share.first_room(bytes, patience).await;
    let room = room.ok_or_else(|| ApiError::Unavailable {
        code: "service_unavailable",
        message: "The voices are busy: try again in a moment".to_owned(),
        retry_after: 2,
    })?;
    let mut speaking = Speaking::begin(text, share, pace, room, make);
    match speaking.next().await {
        Ok(Some(first)) => Ok((speaking, first)),
        Ok(None) => Err(failed(&Broken("the voice made no sound".to_owned()))),
        Err(broken) => Err(failed(&broken)),
    }
}

/// The whole text, of so many characters, as a WAV for an account that uses them. What was begun is
/// used, also when the client leaves in its middle, which ends the synthesis. What the voice cannot speak
/// is not.
pub async fn whole_for(
    app: &Tts,
    account: AccountId,
    voice: &Voice,
    text: &str,
    characters: usize,
) -> Result<Bytes, ApiError> {
    let share = app.desk.share(account);
    let begun = begin(app, &share, voice, text, Pace::Whole).await?;
    metered(app, account, characters, begun).await
}

async fn metered(
    app: &Node,
    account: AccountId,
    characters: usize,
    (speaking, first): (Speaking, Bytes),
) -> Result<Bytes, ApiError> {
    let (mut client, answer) = oneshot::channel();
    let app = app.clone();
    // A request whose client leaves is dropped. This is not.
    let speak = async move {
        let made = tokio::select! {
            biased;
            wav = to_wav(speaking, first) => wav,
            () = client.closed() => Ok(Bytes::new()),
        };
        let (resource, request) = (Resource::TtsCharacters, uuid::Uuid::new_v4());
        let made = match made {
            Ok(wav) => usage::record_request(&app, account, resource, characters, request)
                .await
                .map(|()| wav)
                .map_err(ApiError::from),
            Err(error) => Err(error),
        };
        if let Err(Err(error)) = client.send(made) {
            let why = error.message();
            tracing::error!(why, "a synthesis that its client left was not metered");
        }
    };
    supervisor::detached("a synthesis", speak);
    answer.await.map_err(ApiError::internal)?
}

async fn to_wav(mut speaking: Speaking, first: Bytes) -> Result<Bytes, ApiError> {
    let mut wav = vec![0; rules::WAV_HEADER];
    wav.extend_from_slice(&first);
    while let Some(piece) = speaking.next().await.map_err(|broken| failed(&broken))? {
        wav.extend_from_slice(&piece);
    }
    let header = rules::wav_header(wav.len() - rules::WAV_HEADER);
    wav[..rules::WAV_HEADER].copy_from_slice(&header);
    Ok(held(wav, speaking.room.take()))
}

/// The WAV of a voice's sample sentence, made once.
pub async fn previews(app: &Tts, voice: &Voice) -> Result<Bytes, ApiError> {
    let place = app.desk.preview(voice.id);
    let made = async {
        let text = rules::sample_sentence(voice.language);
        let (speaking, first) = begin(app, &app.desk.whole(), voice, text, Pace::Whole).await?;
        let wav = to_wav(speaking, first).await?;
        // A copy: it stays, and must not keep the room of requests.
        Ok(Bytes::copy_from_slice(&wav))
    };
    place.get_or_try_init(|| made).await.cloned()
}

fn unavailable(why: SpeechUnavailable) -> ApiError {
    if why.may_pass {
        ApiError::Unavailable {
            code: "service_unavailable",
            message: why.why,
            retry_after: 5,
        }
    } else {
        unlinked()
    }
}

fn failed(broken: &Broken) -> ApiError {
    tracing::warn!(%broken, "a synthesis failed");
    ApiError::Upstream {
        code: "provider_failed",
        message: "The voice could not speak this text".to_owned(),
    }
}

#[cfg(test)]
#[path = "service_tests.rs"]
mod tests;
