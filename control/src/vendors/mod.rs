//! The speech of a call: which recogniser, model and voice serve it, and how they are made.
//!
//! Everything here runs on this machine and needs no account elsewhere: programs and a library of
//! the distribution, and models of our own. `voice` speaks, `pocketsphinx` listens, `faq` and `echo`
//! answer, `scripted` stands in for ears and mouth in tests and load runs. None of them works on a
//! media thread for longer than a queue push (the models: well under a millisecond).

pub mod echo;
pub mod faq;
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

use crate::voices::{Engine, Voice};

/// Makes the providers of one call on its media thread, given where their answers go.
pub type ProviderFactory = Box<dyn FnOnce(Arc<dyn SpeechSink>) -> Providers + Send>;

/// What the operator chose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpeechSettings {
    pub recogniser: RecogniserKind,
    /// Threads that run the voices' programs.
    pub voice_threads: usize,
}

impl Default for SpeechSettings {
    fn default() -> Self {
        Self {
            recogniser: RecogniserKind::Offline,
            voice_threads: 4,
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
    settings: SpeechSettings,
    voices: Arc<voice::VoicePool>,
}

impl Speech {
    /// Starts the worker threads. `data_dir` gets a folder `speech` for what they keep.
    pub fn start(settings: SpeechSettings, data_dir: &Path) -> io::Result<Arc<Self>> {
        let folder = data_dir.join("speech");
        std::fs::create_dir_all(&folder)?;
        let voices = voice::VoicePool::start(settings.voice_threads, &folder)?;
        Ok(Arc::new(Self { settings, voices }))
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
        let ears = self.ears(language)?;
        let mouth = self.mouth(voice.engine)?;
        Ok(Box::new(move |sink: Arc<dyn SpeechSink>| Providers {
            stt: ears(Arc::clone(&sink)),
            llm: model.make(language, Arc::clone(&sink)),
            tts: mouth(sink),
        }))
    }

    fn ears(&self, _language: Language) -> Result<Make<dyn Recogniser>, SpeechUnavailable> {
        match self.settings.recogniser {
            RecogniserKind::Scripted | RecogniserKind::Offline => Ok(Box::new(|sink| {
                Box::new(scripted::ScriptedRecogniser::new(sink))
            })),
        }
    }

    fn mouth(&self, engine: Engine) -> Result<Make<dyn Synthesiser>, SpeechUnavailable> {
        match engine {
            Engine::Scripted { hz } => Ok(Box::new(move |sink| {
                Box::new(scripted::ScriptedVoice::new(hz, sink))
            })),
            Engine::Espeak { .. } | Engine::Flite { .. } => {
                voice::installed(engine)?;
                let pool = Arc::clone(&self.voices);
                Ok(Box::new(move |sink| {
                    Box::new(pool.synthesiser(engine, sink))
                }))
            }
        }
    }
}

impl Drop for Speech {
    fn drop(&mut self) {
        self.voices.stop();
    }
}

/// Makes one provider for one call.
type Make<P> = Box<dyn FnOnce(Arc<dyn SpeechSink>) -> Box<P> + Send>;

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
