//! Providers outside this process: recognisers, language models and voices behind HTTP or a WebSocket,
//! each by the protocol of the service that made it known, at an address that the operator gives.
//!
//! Everything runs on the control runtime. A media thread only hands over: a model's request and a
//! segment's text as a task, the caller's audio through a bounded line ([`ears`]). What a try may take,
//! and what follows a fault, is decided in [`plan`]; a provider that fails is a fault of that turn, and
//! the call goes on.

mod blame;
mod complaint;
mod completions;
mod contexts;
mod deliver;
mod http;
mod live;
mod mute;
mod plan;
mod recogniser;
mod samples;
mod segment;
mod socket;
mod speech;
mod sse;
mod transcriptions;

use std::io;
use std::sync::Arc;

use media::config::Language;
use media::speech::{LanguageModel, Recogniser, Synthesiser};
use tokio::runtime::Handle;

use self::blame::{Blame, Ration};
use self::completions::habits::Habits;
use self::completions::{Model, RemoteModel};
use self::contexts::SocketVoice;
use self::http::Endpoint;
use self::segment::Other;
pub use crate::catalogue::providers as settings;

use self::settings::{ProviderKind, ProviderSettings, RemoteSettings};
use self::speech::{RemoteVoice, Speaker};
use self::transcriptions::Transcriber;
use super::fallback::{Fallback, MakeBacked};
use super::usage::SpeechUsage;
use crate::metrics::providers::{ProviderMetrics, Stage};

/// The configured providers of this process.
pub(super) struct Remote {
    runtime: Handle,
    metrics: Arc<ProviderMetrics>,
    ration: Arc<Ration>,
    providers: Vec<Provider>,
    /// Those that are asked nothing, for they have no key.
    keyless: Vec<ProviderSettings>,
    pub(super) model_fallback: Option<String>,
    pub(super) voice_fallback: Option<String>,
}

struct Provider {
    settings: ProviderSettings,
    endpoint: Arc<Endpoint>,
    /// What was learned of its models, in their order.
    habits: Vec<Arc<Habits>>,
}

impl Remote {
    /// `None`: no provider is configured. Called within the runtime that will do the work.
    pub(super) fn start(
        settings: RemoteSettings,
        metrics: &Arc<ProviderMetrics>,
    ) -> io::Result<Option<Self>> {
        let RemoteSettings {
            providers,
            default_model: _,
            model_fallback,
            voice_fallback,
        } = settings;
        if providers.is_empty() {
            return Ok(None);
        }
        let runtime = Handle::try_current().map_err(io::Error::other)?;
        let client = http::client().map_err(io::Error::other)?;
        for warning in providers.iter().filter_map(ProviderSettings::lacks_key) {
            tracing::warn!("{warning}");
        }
        let (available, keyless): (Vec<_>, Vec<_>) = providers
            .into_iter()
            .partition(ProviderSettings::is_available);
        let providers = available.into_iter().map(|settings| Provider {
            endpoint: Arc::new(Endpoint::new(client.clone(), &settings)),
            habits: settings
                .models
                .iter()
                .map(|_| Arc::new(Habits::new(&settings.omit_parameters)))
                .collect(),
            settings,
        });
        Ok(Some(Self {
            runtime,
            metrics: Arc::clone(metrics),
            ration: Arc::default(),
            providers: providers.collect(),
            keyless,
            model_fallback,
            voice_fallback,
        }))
    }

    /// Why nobody is asked for a model of this public id, or as a recogniser by this name, that is configured.
    pub(super) fn why_not(&self, id: &str) -> Option<String> {
        let has = |one: &&ProviderSettings| one.name == id || one.models.iter().any(|m| m.id == id);
        let provider = self.keyless.iter().find(has)?;
        Some(format!("The provider {:?} has no key.", provider.name))
    }

    /// Whether a provider has a model of this public id.
    pub(super) fn offers(&self, id: &str) -> bool {
        let mut models = self.providers.iter().flat_map(|p| &p.settings.models);
        models.any(|model| model.id == id)
    }

    /// Makes a call's model, by its public id; `None`: nobody offers it.
    pub(super) fn model(
        &self,
        id: &str,
        usage: &Arc<SpeechUsage>,
    ) -> Option<MakeBacked<dyn LanguageModel>> {
        let (provider, model, habits) = self.providers.iter().find_map(|provider| {
            let mut models = provider.settings.models.iter().zip(&provider.habits);
            let (model, habits) = models.find(|(model, _)| model.id == id)?;
            Some((provider, model, habits))
        })?;
        let model = Arc::new(Model {
            endpoint: Arc::clone(&provider.endpoint),
            provider: self.blame(&provider.settings, Stage::Llm, usage),
            name: model.model.clone(),
            habits: Arc::clone(habits),
        });
        let (runtime, usage) = (self.runtime.clone(), Arc::clone(usage));
        Some(Box::new(move |fallback, sink| {
            let fallback = Fallback::made(fallback, &sink);
            Box::new(RemoteModel::new(model, fallback, usage, runtime, sink))
        }))
    }

    /// Makes a call's voice; `None`: nobody offers it.
    pub(super) fn synthesiser(
        &self,
        provider: &str,
        voice: &str,
        language: Language,
        usage: &Arc<SpeechUsage>,
    ) -> Option<MakeBacked<dyn Synthesiser>> {
        let provider = self.provider(provider)?;
        let settings = &provider.settings;
        let offered = settings.voices.iter().find(|one| one.voice == voice)?;
        let runtime = self.runtime.clone();
        match settings.kind {
            ProviderKind::OpenAi => {
                let speaker = Arc::new(Speaker {
                    endpoint: Arc::clone(&provider.endpoint),
                    provider: self.blame(settings, Stage::Tts, usage),
                    model: settings.tts_model.clone(),
                    voice: offered.voice.clone(),
                    format: settings.format,
                    sample_rate: settings.sample_rate,
                });
                Some(Box::new(move |fallback, sink| {
                    let other =
                        Fallback::new(fallback.map(|make| Other::new(Arc::clone(&sink), make)));
                    Box::new(RemoteVoice::new(speaker, other, runtime, sink))
                }))
            }
            ProviderKind::ElevenLabs | ProviderKind::Cartesia => {
                let speaker = contexts::Speaker {
                    base_url: settings.base_url.clone(),
                    key: settings.key.clone(),
                    provider: self.blame(settings, Stage::Tts, usage),
                    kind: settings.kind,
                    model: settings.tts_model.clone(),
                    voice: offered.voice.clone(),
                    sample_rate: settings.sample_rate,
                    language,
                };
                Some(Box::new(move |fallback, sink| {
                    let other =
                        Fallback::new(fallback.map(|make| Other::new(Arc::clone(&sink), make)));
                    Box::new(SocketVoice::new(speaker, other, &runtime, sink))
                }))
            }
            ProviderKind::Deepgram => None,
        }
    }

    /// Makes a call's recogniser; `None`: this provider does not listen.
    pub(super) fn recogniser(
        &self,
        provider: &str,
        language: Language,
        usage: &Arc<SpeechUsage>,
    ) -> Option<MakeBacked<dyn Recogniser>> {
        let provider = self.provider(provider)?;
        let settings = &provider.settings;
        let model = settings.stt_model.clone()?;
        let runtime = self.runtime.clone();
        let language = match language {
            Language::English => "en",
            Language::French => "fr",
        };
        match settings.kind {
            ProviderKind::OpenAi => {
                let transcriber = Arc::new(Transcriber {
                    endpoint: Arc::clone(&provider.endpoint),
                    provider: self.blame(settings, Stage::Stt, usage),
                    model,
                    punctuates: settings.punctuates,
                });
                Some(Box::new(move |fallback, sink| {
                    let fallback = Fallback::made(fallback, &sink);
                    Box::new(transcriptions::ears(
                        transcriber,
                        language,
                        fallback,
                        &runtime,
                        sink,
                    ))
                }))
            }
            ProviderKind::Deepgram => {
                let listener = live::Listener {
                    base_url: settings.base_url.clone(),
                    key: settings.key.clone(),
                    provider: self.blame(settings, Stage::Stt, usage),
                    model,
                    punctuates: settings.punctuates,
                };
                Some(Box::new(move |fallback, sink| {
                    let fallback = Fallback::made(fallback, &sink);
                    Box::new(live::ears(&listener, language, fallback, &runtime, sink))
                }))
            }
            ProviderKind::ElevenLabs | ProviderKind::Cartesia => None,
        }
    }

    fn blame(&self, settings: &ProviderSettings, stage: Stage, usage: &Arc<SpeechUsage>) -> Blame {
        Blame::new(settings, stage, &self.metrics, &self.ration, usage)
    }

    /// The provider that has a model of this public id, by its name in the settings.
    pub(super) fn model_provider(&self, id: &str) -> Option<&str> {
        let has = |provider: &&Provider| provider.settings.models.iter().any(|m| m.id == id);
        let provider = self.providers.iter().find(has)?;
        Some(&provider.settings.name)
    }

    fn provider(&self, name: &str) -> Option<&Provider> {
        self.providers
            .iter()
            .find(|provider| provider.settings.name == name)
    }
}
