//! The speech of a call: which recogniser, model and voice serve it, and how they are made.
//!
//! What is built in runs on this machine and needs no account elsewhere: programs and a library of
//! the distribution, and models of our own. `voice` speaks, `pocketsphinx` listens, `faq` and `echo`
//! answer, `scripted` stands in for recogniser and voice in tests and load runs. `remote` holds the
//! providers that the operator configured; `fallback` tells who takes over where one of them fails. None
//! of them works on a media thread for longer than a queue push (the built-in models: well under a
//! millisecond).

mod announcer;
pub mod echo;
mod fallback;
pub mod faq;
pub mod faults;
mod meter;
pub mod pocketsphinx;
pub mod queue;
pub mod remote;
pub mod scripted;
pub mod tools;
pub mod usage;
pub mod voice;
pub mod words;

use std::io;
use std::path::Path;
use std::sync::Arc;

use media::config::{AgentConfig, Language};
use media::speech::{LanguageModel, Providers, Recogniser, SpeechSink, Synthesiser};

use self::fallback::Candidate;
use self::pocketsphinx::pool::{NoSeat, Pool};
use self::remote::Remote;
pub use crate::catalogue::providers::RecogniserKind;

use self::usage::SpeechUsage;
use crate::catalogue::models;
use crate::catalogue::providers::RemoteSettings;
use crate::catalogue::voices::{self, Engine, Voice};
use crate::metrics::providers::ProviderMetrics;
use crate::supervisor::Supervisor;

/// Makes the providers of one call as it is placed on the engine, given where their answers go.
pub type ProviderFactory = Box<dyn FnOnce(Arc<dyn SpeechSink>) -> Providers + Send>;

/// What the operator chose.
#[derive(Clone, Debug)]
pub struct SpeechSettings {
    pub recogniser: RecogniserKind,
    /// Who listens when the recogniser's provider fails.
    pub recogniser_fallback: Option<RecogniserKind>,
    pub remote: RemoteSettings,
    /// Decoders of the offline recogniser, each on a thread of its own: 94 MiB and a fifth of a core
    /// while somebody speaks.
    pub recogniser_threads: usize,
    /// Threads that run the voices' programs for calls.
    pub voice_threads: usize,
    /// The same for requests (`POST /tts`).
    pub request_threads: usize,
    /// Who notices that one of the threads dies.
    pub supervisor: Supervisor,
}

impl Default for SpeechSettings {
    fn default() -> Self {
        Self {
            recogniser: RecogniserKind::Offline,
            recogniser_fallback: None,
            remote: RemoteSettings::default(),
            recogniser_threads: 2,
            voice_threads: 4,
            request_threads: 2,
            supervisor: Supervisor::default(),
        }
    }
}

/// The speech of one call.
pub struct CallSpeech {
    pub providers: ProviderFactory,
    /// What its providers use, counted as they work.
    pub usage: Arc<SpeechUsage>,
}

/// Why a call cannot be served. Known before the call begins, so `connect` can say it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpeechUnavailable {
    pub what: ProviderRole,
    /// One sentence for the client.
    pub why: String,
    /// True: the same request may succeed later (503). False: it has to change first (422).
    pub may_pass: bool,
}

/// A part of the speech chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderRole {
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
    recogniser: RecogniserKind,
    recogniser_fallback: Option<RecogniserKind>,
    /// The offline decoders, where somebody may want them, or why there are none.
    decoders: Option<Result<Arc<Pool>, String>>,
    voices: Arc<voice::VoicePool>,
    /// Speaks for requests, so that no call waits behind them.
    desk: Arc<voice::VoicePool>,
    remote: Option<Remote>,
    metrics: Arc<ProviderMetrics>,
}

impl Speech {
    /// Starts the worker threads. `data_dir` gets a folder `speech` for what they keep. Configured
    /// providers are asked on the runtime that this is called in.
    pub fn start(settings: SpeechSettings, data_dir: &Path) -> io::Result<Arc<Self>> {
        let watch = &settings.supervisor;
        let folder = data_dir.join("speech");
        std::fs::create_dir_all(&folder)?;
        let voices = voice::VoicePool::start(settings.voice_threads, &folder, watch)?;
        let apart = folder.join("requests");
        std::fs::create_dir_all(&apart)?;
        let desk = voice::VoicePool::start(settings.request_threads, &apart, watch)?;
        let offline = settings.recogniser == RecogniserKind::Offline
            || settings.recogniser_fallback == Some(RecogniserKind::Offline);
        let decoders = offline.then(|| {
            let threads = settings.recogniser_threads.max(1);
            let pool = Pool::start(threads, threads * CALLS_PER_DECODER, &folder, watch);
            // Everything but a call still works, so the server starts.
            pool.inspect_err(|why| tracing::warn!(%why, "no call can be heard offline"))
        });
        let metrics = Arc::new(ProviderMetrics::default());
        Ok(Arc::new(Self {
            recogniser: settings.recogniser,
            recogniser_fallback: settings.recogniser_fallback,
            decoders,
            voices,
            desk,
            remote: Remote::start(settings.remote, &metrics)?,
            metrics,
        }))
    }

    /// The providers of a call with this voice and model id (a stored `llm_model`, alias or sentinel
    /// included), or why there are none.
    pub fn providers(
        &self,
        voice: &Voice,
        model: &str,
        agent: &AgentConfig,
    ) -> Result<CallSpeech, SpeechUnavailable> {
        let usage = Arc::new(SpeechUsage::default());
        let llm = self.model(model, agent.language, &usage)?;
        let stt = self.recogniser(agent, &usage)?;
        let tts = self.synthesiser(&self.voices, voice.engine, agent.language, &usage)?;
        let providers: ProviderFactory = Box::new(move |sink: Arc<dyn SpeechSink>| Providers {
            stt: stt(Arc::clone(&sink)),
            llm: llm(Arc::clone(&sink)),
            tts: tts(sink),
        });
        Ok(CallSpeech { providers, usage })
    }

    /// The providers of a call that only takes a message: this voice announces it, where it can be had.
    pub fn announcer(&self, voice: Option<&Voice>, language: Language) -> CallSpeech {
        let usage = Arc::new(SpeechUsage::default());
        let tts = voice.and_then(|voice| {
            self.synthesiser(&self.voices, voice.engine, language, &usage)
                .inspect_err(|error| tracing::warn!(%error, "a message is not announced"))
                .ok()
        });
        let providers: ProviderFactory = Box::new(move |sink| announcer::providers(tts, &sink));
        CallSpeech { providers, usage }
    }

    /// A voice for one text of a request, or why there is none.
    pub fn speaker(&self, voice: &Voice) -> Result<Make<dyn Synthesiser>, SpeechUnavailable> {
        let language = match voice.language {
            "french" => Language::French,
            _ => Language::English,
        };
        // A request's own answer tells its id; there is no call to keep the provider's for.
        self.synthesiser(&self.desk, voice.engine, language, &Arc::default())
    }

    /// What all providers are counted by.
    pub fn metrics(&self) -> &ProviderMetrics {
        &self.metrics
    }

    /// The model of a public id, with the one that takes over where its provider fails.
    fn model(
        &self,
        id: &str,
        language: Language,
        usage: &Arc<SpeechUsage>,
    ) -> Result<Make<dyn LanguageModel>, SpeechUnavailable> {
        let remote = self.remote.as_ref();
        let id = if remote.is_some_and(|remote| remote.offers(id)) {
            id
        } else {
            models::resolve(id).ok_or_else(|| self.no_model(id))?
        };
        let first = self.one_model(id, language, usage)?;
        first.backed(&self.metrics, || {
            let fallback = remote.and_then(|remote| remote.model_fallback.as_deref());
            let other = fallback.filter(|other| *other != id);
            other
                .map(|other| self.one_model(other, language, usage))
                .transpose()
        })
    }

    fn one_model(
        &self,
        id: &str,
        language: Language,
        usage: &Arc<SpeechUsage>,
    ) -> Result<Candidate<dyn LanguageModel>, SpeechUnavailable> {
        let remote = self.remote.as_ref();
        let provider = remote.and_then(|remote| remote.model_provider(id));
        let name = provider.unwrap_or(id);
        Ok(match id {
            "faq" => {
                let elsewhere = tokio::runtime::Handle::try_current().ok();
                let make = move |sink| -> Box<dyn LanguageModel> {
                    Box::new(faq::FaqModel::new(language, sink, elsewhere))
                };
                Candidate::built_in(name, Box::new(make))
            }
            "echo" => {
                let make = move |sink| -> Box<dyn LanguageModel> {
                    Box::new(echo::EchoModel::new(language, sink))
                };
                Candidate::built_in(name, Box::new(make))
            }
            _ => {
                let make = remote.and_then(|remote| remote.model(id, usage));
                Candidate::remote(name, make.ok_or_else(|| self.no_model(id))?)
            }
        })
    }

    /// The recogniser, with the one that takes over where its provider fails.
    fn recogniser(
        &self,
        agent: &AgentConfig,
        usage: &Arc<SpeechUsage>,
    ) -> Result<Make<dyn Recogniser>, SpeechUnavailable> {
        let first = self.one_recogniser(&self.recogniser, agent, usage)?;
        first.backed(&self.metrics, || {
            let fallback = self.recogniser_fallback.as_ref();
            let other = fallback.filter(|other| **other != self.recogniser);
            // A fallback that cannot listen to this agent's callers is none.
            Ok(other.and_then(|other| self.one_recogniser(other, agent, usage).ok()))
        })
    }

    fn one_recogniser(
        &self,
        kind: &RecogniserKind,
        agent: &AgentConfig,
        usage: &Arc<SpeechUsage>,
    ) -> Result<Candidate<dyn Recogniser>, SpeechUnavailable> {
        Ok(match kind {
            RecogniserKind::Scripted => Candidate::built_in(
                "scripted",
                Box::new(|sink| Box::new(scripted::ScriptedRecogniser::new(sink))),
            ),
            RecogniserKind::Offline => {
                Candidate::built_in("offline", self.offline_recogniser(agent)?)
            }
            RecogniserKind::Provider(name) => {
                let remote = self.remote.as_ref();
                let make = remote.and_then(|r| r.recogniser(name, agent.language, usage));
                Candidate::remote(name, make.ok_or_else(|| self.deaf(name))?)
            }
        })
    }

    /// Why there is no model of this id.
    fn no_model(&self, id: &str) -> SpeechUnavailable {
        let why = self.remote.as_ref().and_then(|remote| remote.why_not(id));
        SpeechUnavailable {
            what: ProviderRole::Model,
            why: why.unwrap_or_else(|| format!("No provider is configured for the model {id:?}.")),
            may_pass: false,
        }
    }

    /// Why this provider is no recogniser.
    fn deaf(&self, name: &str) -> SpeechUnavailable {
        let why = self.remote.as_ref().and_then(|remote| remote.why_not(name));
        cannot_listen(why.unwrap_or_else(|| format!("The provider {name:?} does not listen.")))
    }

    fn offline_recogniser(
        &self,
        agent: &AgentConfig,
    ) -> Result<Make<dyn Recogniser>, SpeechUnavailable> {
        // First: whatever else is wrong with it may pass.
        if agent.language != Language::English {
            return Err(cannot_listen(
                "The offline recogniser knows English only, and the agent's language is French."
                    .into(),
            ));
        }
        let unavailable = |why: String| SpeechUnavailable {
            what: ProviderRole::Recogniser,
            why,
            may_pass: true,
        };
        let pool = match &self.decoders {
            None => return Err(unavailable("The offline recogniser is not in use.".into())),
            Some(Err(why)) => {
                return Err(unavailable(format!("No caller can be heard: {why}.")));
            }
            Some(Ok(pool)) => pool,
        };
        let seat = pool.seat(&said_by(agent)).map_err(|none| match none {
            NoSeat::Full { calls } => unavailable(format!(
                "The offline recogniser serves {calls} calls at a time and is full."
            )),
            NoSeat::Broken(why) => unavailable(format!("The offline recogniser stopped: {why}.")),
        })?;
        Ok(Box::new(move |sink| Box::new(seat.recogniser(sink))))
    }

    /// The voice, with the one that takes over where its provider fails.
    fn synthesiser(
        &self,
        pool: &Arc<voice::VoicePool>,
        engine: Engine,
        language: Language,
        usage: &Arc<SpeechUsage>,
    ) -> Result<Make<dyn Synthesiser>, SpeechUnavailable> {
        let first = self.one_synthesiser(pool, engine, language, usage)?;
        first.backed(&self.metrics, || {
            let remote = self.remote.as_ref();
            let fallback = remote.and_then(|remote| remote.voice_fallback.as_deref());
            let other = fallback
                .and_then(voices::find)
                .filter(|other| other.engine != engine);
            // A fallback whose program is not installed is none.
            Ok(other.and_then(|other| {
                self.one_synthesiser(pool, other.engine, language, usage)
                    .ok()
            }))
        })
    }

    fn one_synthesiser(
        &self,
        pool: &Arc<voice::VoicePool>,
        engine: Engine,
        language: Language,
        usage: &Arc<SpeechUsage>,
    ) -> Result<Candidate<dyn Synthesiser>, SpeechUnavailable> {
        let program = |name| {
            voice::installed(engine)?;
            let pool = Arc::clone(pool);
            let make =
                move |sink| -> Box<dyn Synthesiser> { Box::new(pool.synthesiser(engine, sink)) };
            Ok(Candidate::built_in(name, Box::new(make)))
        };
        match engine {
            Engine::Scripted { hz } => Ok(Candidate::built_in(
                "scripted",
                Box::new(move |sink| Box::new(scripted::ScriptedVoice::new(hz, sink))),
            )),
            Engine::Espeak { .. } => program("espeak"),
            Engine::Flite { .. } => program("flite"),
            Engine::Provider { provider, voice } => {
                let remote = self.remote.as_ref();
                let make = remote.and_then(|r| r.synthesiser(provider, voice, language, usage));
                let make = make.ok_or_else(no_such_voice)?;
                Ok(Candidate::remote(provider, make))
            }
        }
    }
}

fn cannot_listen(why: String) -> SpeechUnavailable {
    SpeechUnavailable {
        what: ProviderRole::Recogniser,
        why,
        may_pass: false,
    }
}

fn no_such_voice() -> SpeechUnavailable {
    SpeechUnavailable {
        what: ProviderRole::Voice,
        why: "The provider of this voice is not configured.".to_owned(),
        may_pass: false,
    }
}

impl Drop for Speech {
    fn drop(&mut self) {
        if let Some(Ok(pool)) = &self.decoders {
            pool.stop();
        }
        self.voices.stop();
        self.desk.stop();
    }
}

/// Calls that share a decoder: people speak less than half of the time, not all at once, and a
/// decoder catches up at five times real time.
const CALLS_PER_DECODER: usize = 4;

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
