//! The speech of a call: which recogniser, model and voice serve it, and how they are made.
//!
//! Everything here runs on this machine and needs no account elsewhere: programs and a library of
//! the distribution, and models of our own. `voice` speaks, `pocketsphinx` listens, `faq` and `echo`
//! answer, `scripted` stands in for ears and mouth in tests and load runs. None of them works on a
//! media thread for longer than a queue push (the models: well under a millisecond).

pub mod echo;
pub mod faq;
pub mod pocketsphinx;
pub mod queue;
pub mod scripted;
pub mod tools;
pub mod voice;
pub mod words;

use std::io;
use std::path::Path;
use std::sync::Arc;

use media::config::{AgentConfig, Language};
use media::speech::{LanguageModel, Providers, Recogniser, SpeechSink, Synthesiser};

use self::pocketsphinx::pool::{NoSeat, Pool};
use crate::voices::{Engine, Voice};

/// Makes the providers of one call on its media thread, given where their answers go.
pub type ProviderFactory = Box<dyn FnOnce(Arc<dyn SpeechSink>) -> Providers + Send>;

/// What the operator chose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpeechSettings {
    pub recogniser: RecogniserKind,
    /// Decoders of the offline recogniser, each on a thread of its own: 94 MiB and a fifth of a core
    /// while somebody speaks.
    pub recogniser_threads: usize,
    /// Threads that run the voices' programs for calls.
    pub voice_threads: usize,
    /// The same for requests (`POST /tts`).
    pub request_threads: usize,
}

impl Default for SpeechSettings {
    fn default() -> Self {
        Self {
            recogniser: RecogniserKind::Offline,
            recogniser_threads: 2,
            voice_threads: 4,
            request_threads: 2,
        }
    }
}

/// Who turns the caller's voice into words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecogniserKind {
    /// pocketsphinx, English only.
    Offline,
    /// The lines of a script, whatever was said.
    Scripted,
}

/// Why a call cannot be served. Known before the call begins, so `connect` can say it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpeechUnavailable {
    pub what: Part,
    /// One sentence for the client.
    pub why: String,
    /// True: the same request may succeed later (503). False: it has to change first (422).
    pub may_pass: bool,
}

/// A part of the speech chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Recogniser,
    Model,
    Voice,
}

impl std::fmt::Display for SpeechUnavailable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for SpeechUnavailable {}

/// The speech of this process: its worker threads and what they share.
pub struct Speech {
    ears: Ears,
    voices: Arc<voice::VoicePool>,
    /// Speaks for requests, so that no call waits behind them.
    desk: Arc<voice::VoicePool>,
}

impl Speech {
    /// Starts the worker threads. `data_dir` gets a folder `speech` for what they keep.
    pub fn start(settings: SpeechSettings, data_dir: &Path) -> io::Result<Arc<Self>> {
        let folder = data_dir.join("speech");
        std::fs::create_dir_all(&folder)?;
        let voices = voice::VoicePool::start(settings.voice_threads, &folder)?;
        let apart = folder.join("requests");
        std::fs::create_dir_all(&apart)?;
        let desk = voice::VoicePool::start(settings.request_threads, &apart)?;
        let ears = match settings.recogniser {
            RecogniserKind::Scripted => Ears::Scripted,
            RecogniserKind::Offline => {
                let threads = settings.recogniser_threads.max(1);
                match Pool::start(threads, threads * CALLS_PER_DECODER, &folder) {
                    Ok(pool) => Ears::Offline(pool),
                    // Everything but a call still works, so the server starts.
                    Err(why) => {
                        tracing::warn!(%why, "no call can be heard");
                        Ears::Missing(why)
                    }
                }
            }
        };
        Ok(Arc::new(Self { ears, voices, desk }))
    }

    /// The providers of a call with this voice and model id (a stored `llm_model`, alias or sentinel
    /// included), or why there are none.
    pub fn providers(
        &self,
        voice: &Voice,
        model: &str,
        agent: &AgentConfig,
    ) -> Result<ProviderFactory, SpeechUnavailable> {
        let model = ModelKind::resolve(model)?;
        let language = agent.language;
        let ears = self.ears(agent)?;
        let mouth = mouth(&self.voices, voice.engine)?;
        Ok(Box::new(move |sink: Arc<dyn SpeechSink>| Providers {
            stt: ears(Arc::clone(&sink)),
            llm: model.make(language, Arc::clone(&sink)),
            tts: mouth(sink),
        }))
    }

    /// A voice for one text of a request, or why there is none.
    pub fn speaker(&self, engine: Engine) -> Result<Make<dyn Synthesiser>, SpeechUnavailable> {
        mouth(&self.desk, engine)
    }

    fn ears(&self, agent: &AgentConfig) -> Result<Make<dyn Recogniser>, SpeechUnavailable> {
        let unavailable = |why: String, may_pass| SpeechUnavailable {
            what: Part::Recogniser,
            why,
            may_pass,
        };
        let pool = match &self.ears {
            Ears::Scripted => {
                return Ok(Box::new(|sink| {
                    Box::new(scripted::ScriptedRecogniser::new(sink))
                }));
            }
            Ears::Missing(why) => {
                return Err(unavailable(format!("No caller can be heard: {why}."), true));
            }
            Ears::Offline(pool) => pool,
        };
        if agent.language != Language::English {
            return Err(unavailable(
                "The offline recogniser knows English only, and the agent's language is French."
                    .into(),
                false,
            ));
        }
        let seat = pool.seat(&said_by(agent)).map_err(|none| match none {
            NoSeat::Full { calls } => unavailable(
                format!("The offline recogniser serves {calls} calls at a time and is full."),
                true,
            ),
            NoSeat::Broken(why) => {
                unavailable(format!("The offline recogniser stopped: {why}."), true)
            }
        })?;
        Ok(Box::new(move |sink| Box::new(seat.recogniser(sink))))
    }
}

fn mouth(
    pool: &Arc<voice::VoicePool>,
    engine: Engine,
) -> Result<Make<dyn Synthesiser>, SpeechUnavailable> {
    match engine {
        Engine::Scripted { hz } => Ok(Box::new(move |sink| {
            Box::new(scripted::ScriptedVoice::new(hz, sink))
        })),
        Engine::Espeak { .. } | Engine::Flite { .. } => {
            voice::installed(engine)?;
            let pool = Arc::clone(pool);
            Ok(Box::new(move |sink| {
                Box::new(pool.synthesiser(engine, sink))
            }))
        }
    }
}

impl Drop for Speech {
    fn drop(&mut self) {
        if let Ears::Offline(pool) = &self.ears {
            pool.stop();
        }
        self.voices.stop();
        self.desk.stop();
    }
}

/// Calls that share a decoder: people speak less than half of the time, not all at once, and a
/// decoder catches up at five times real time.
const CALLS_PER_DECODER: usize = 4;

/// Who listens.
enum Ears {
    Scripted,
    Offline(Arc<Pool>),
    /// The recogniser is not installed: why.
    Missing(String),
}

/// The agent's words that its callers may take up.
fn said_by(agent: &AgentConfig) -> String {
    let mut text = agent.system_prompt.clone();
    for more in agent.first_message.iter().chain(&agent.end_call_phrases) {
        text.push('\n');
        text.push_str(more);
    }
    for tool in &agent.tools {
        text.push('\n');
        text.push_str(&tool.name.replace(['_', '-'], " "));
    }
    text
}

/// Makes one provider for one call.
pub type Make<P> = Box<dyn FnOnce(Arc<dyn SpeechSink>) -> Box<P> + Send>;

#[derive(Clone, Copy)]
enum ModelKind {
    Faq,
    Echo,
}

impl ModelKind {
    fn resolve(id: &str) -> Result<Self, SpeechUnavailable> {
        match crate::models::catalogue::resolve(id) {
            Some("faq") => Ok(Self::Faq),
            Some("echo") => Ok(Self::Echo),
            _ => Err(SpeechUnavailable {
                what: Part::Model,
                why: format!("No provider is configured for the model {id:?}."),
                may_pass: false,
            }),
        }
    }

    fn make(self, language: Language, sink: Arc<dyn SpeechSink>) -> Box<dyn LanguageModel> {
        match self {
            Self::Faq => Box::new(faq::FaqModel::new(language, sink)),
            Self::Echo => Box::new(echo::EchoModel::new(language, sink)),
        }
    }
}
