//! The providers of speech and language: a table each, `[providers.<name>]`, and what `[speech]` chooses
//! among them.

use reqwest::Url;
use toml::Value;

use super::read::Settings;
use crate::catalogue::providers::{
    ModelSettings, OPTIONAL, ProviderKind, ProviderSettings, RecogniserKind, RemoteSettings,
    SoundFormat, VoiceSettings,
};
use crate::catalogue::{models, voices};
use crate::secret::Secret;

/// What a provider's table may hold.
pub(super) const KEYS: &[&str] = &[
    "kind",
    "base_url",
    "api_key",
    "api_key_file",
    "models",
    "omit_parameters",
    "stt_model",
    "punctuates",
    "tts_model",
    "voices",
    "sample_rate",
    "format",
];

/// The provider and the key that a setting's full name holds: `providers.<name>.<key>`.
pub(super) fn parts(full: &str) -> Option<(&str, &str)> {
    let (name, key) = full.strip_prefix("providers.")?.split_once('.')?;
    let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
    let named = name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(letters);
    (named && name.len() <= 32 && KEYS.contains(&key)).then_some((name, key))
}

/// The choices of `[speech]`.
pub(super) struct Chosen {
    pub(super) recogniser: RecogniserKind,
    pub(super) recogniser_fallback: Option<RecogniserKind>,
    pub(super) remote: RemoteSettings,
}

/// Reads all of it, and checks that what is chosen is there.
pub(super) fn read(settings: &mut Settings) -> Chosen {
    let providers: Vec<ProviderSettings> = settings
        .providers()
        .iter()
        .filter_map(|name| provider(settings, name))
        .collect();
    no_name_twice(settings, &providers);
    let listens = |name: &str| {
        providers
            .iter()
            .any(|p| p.name == name && p.stt_model.is_some())
    };
    let mut recogniser = |key: &str| {
        let word = settings.text(key);
        match word.as_str() {
            "" => None,
            "offline" => Some(RecogniserKind::Offline),
            "scripted" => Some(RecogniserKind::Scripted),
            name if listens(name) => Some(RecogniserKind::Provider(word)),
            _ => {
                settings.wrong(
                    key,
                    "must be offline, scripted, or a provider that has a stt_model",
                );
                None
            }
        }
    };
    let chosen = recogniser("speech.recogniser");
    let recogniser_fallback = recogniser("speech.recogniser_fallback");
    let first = providers
        .iter()
        .find(|p| p.stt_model.is_some() && p.is_available());
    let recogniser = chosen.unwrap_or_else(|| {
        first.map_or(RecogniserKind::Offline, |p| {
            RecogniserKind::Provider(p.name.clone())
        })
    });
    let default_model = model(settings, "speech.model", &providers);
    let model_fallback = model(settings, "speech.model_fallback", &providers);
    let voice_fallback = given(settings.text("speech.voice_fallback"));
    if let Some(key) = &voice_fallback
        && !voices::all().iter().any(|v| v.key == key)
        && !providers
            .iter()
            .flat_map(|p| &p.voices)
            .any(|v| v.key == *key)
    {
        settings.wrong("speech.voice_fallback", "must be the key of a voice");
    }
    Chosen {
        recogniser,
        recogniser_fallback,
        remote: RemoteSettings {
            providers,
            default_model,
            model_fallback,
            voice_fallback,
        },
    }
}

/// A public id of a model, ours or a provider's.
fn model(settings: &mut Settings, key: &str, providers: &[ProviderSettings]) -> Option<String> {
    let id = given(settings.text(key))?;
    let known = models::BUILT_IN.iter().any(|m| m.id == id)
        || providers.iter().flat_map(|p| &p.models).any(|m| m.id == id);
    if !known || id == models::DEFAULT_ALIAS {
        settings.wrong(key, "must be the id of a model");
    }
    Some(id)
}

fn given(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

fn provider(settings: &mut Settings, name: &str) -> Option<ProviderSettings> {
    let key = |part: &str| format!("providers.{name}.{part}");
    let kind = settings.word_of(
        &key("kind"),
        &[
            ("openai", ProviderKind::OpenAi),
            ("deepgram", ProviderKind::Deepgram),
            ("elevenlabs", ProviderKind::ElevenLabs),
            ("cartesia", ProviderKind::Cartesia),
        ],
    )?;
    let base_url = match settings.optional(&key("base_url")) {
        Some(text) => base_url(settings, &key("base_url"), &text)?,
        None => Url::parse(kind.home()).ok()?,
    };
    let secret = secret(settings, &key("api_key"), &key("api_key_file"));
    let mut models = Vec::new();
    for text in settings.optional_list(&key("models")) {
        match ModelSettings::parse(&text) {
            Ok(model) => models.push(model),
            Err(why) => settings.wrong(&key("models"), &why),
        }
    }
    let mut omit_parameters = Vec::new();
    for text in settings.optional_list(&key("omit_parameters")) {
        match OPTIONAL.iter().find(|name| **name == text.trim()) {
            Some(name) => omit_parameters.push(*name),
            None => {
                let why = format!("may name {}, but not {text:?}", OPTIONAL.join(", "));
                settings.wrong(&key("omit_parameters"), &why);
            }
        }
    }
    let mut voices = Vec::new();
    for text in settings.optional_list(&key("voices")) {
        match VoiceSettings::parse(name, &text) {
            Ok(voice) => voices.push(voice),
            Err(why) => settings.wrong(&key("voices"), &why),
        }
    }
    let stt_model = settings.optional(&key("stt_model"));
    let cannot: &[(&str, bool)] = match kind {
        ProviderKind::OpenAi => &[],
        ProviderKind::Deepgram => &[
            ("models", !models.is_empty()),
            ("voices", !voices.is_empty()),
        ],
        ProviderKind::ElevenLabs | ProviderKind::Cartesia => &[
            ("models", !models.is_empty()),
            ("stt_model", stt_model.is_some()),
        ],
    };
    for (part, _) in cannot.iter().filter(|(_, given)| *given) {
        settings.wrong(&key(part), "a provider of this kind does not offer it");
    }
    Some(ProviderSettings {
        name: name.to_owned(),
        kind,
        base_url,
        key: secret,
        models,
        omit_parameters,
        stt_model,
        punctuates: settings.optional_bool(&key("punctuates"), true),
        tts_model: settings
            .optional(&key("tts_model"))
            .unwrap_or_else(|| kind.voice_model().to_owned()),
        voices,
        sample_rate: settings.optional_int(&key("sample_rate"), 8_000, 48_000, kind.sample_rate()),
        format: settings
            .optional(&key("format"))
            .and_then(|_| {
                settings.word_of(
                    &key("format"),
                    &[("pcm", SoundFormat::Pcm), ("wav", SoundFormat::Wav)],
                )
            })
            .unwrap_or(SoundFormat::Pcm),
    })
}

fn base_url(settings: &mut Settings, key: &str, text: &str) -> Option<Url> {
    let url = Url::parse(text.trim().trim_end_matches('/')).ok();
    let url = url.filter(|url| {
        matches!(url.scheme(), "http" | "https" | "ws" | "wss")
            && url.has_host()
            && url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none()
    });
    if url.is_none() {
        settings.wrong(
            key,
            "must be an address such as https://host/v1, without a user name or a query",
        );
    }
    url
}

/// A key by itself, or in a file of its own.
fn secret(settings: &mut Settings, direct: &str, file: &str) -> Option<Secret<String>> {
    let in_file = settings.optional(file);
    let key = match (settings.optional(direct), in_file) {
        (Some(_), Some(_)) => {
            settings.wrong(file, "and api_key are both set");
            None
        }
        (Some(key), None) => Some(key),
        (None, Some(path)) => match std::fs::read_to_string(&path) {
            Ok(text) => Some(text),
            Err(error) => {
                settings.wrong(file, &format!("{path} cannot be read: {error}"));
                None
            }
        },
        (None, None) => None,
    }?;
    let key = key.trim().to_owned();
    if !key.chars().all(|c| c.is_ascii_graphic()) {
        settings.wrong(direct, "must be one line of visible characters");
        return None;
    }
    (!key.is_empty()).then(|| Secret::new(key))
}

/// Public ids and keys are unique, and none is that of a built-in model or voice.
fn no_name_twice(settings: &mut Settings, providers: &[ProviderSettings]) {
    let mut ids: Vec<&str> = models::BUILT_IN.iter().map(|m| m.id).collect();
    let mut keys: Vec<&str> = voices::all().iter().map(|v| v.key).collect();
    for provider in providers {
        for model in &provider.models {
            if ids.contains(&model.id.as_str()) {
                settings.wrong(
                    &format!("providers.{}.models", provider.name),
                    &format!(
                        "{:?} is taken: give it a name of its own, name={}",
                        model.id, model.model
                    ),
                );
            }
            ids.push(&model.id);
        }
        for voice in &provider.voices {
            if keys.contains(&voice.key.as_str()) {
                settings.wrong(
                    &format!("providers.{}.voices", provider.name),
                    &format!("there is a voice {:?} already", voice.key),
                );
            }
            keys.push(&voice.key);
        }
    }
}

impl Settings {
    /// The names of the providers, in order.
    fn providers(&self) -> Vec<String> {
        let mut names: Vec<String> = self
            .keys()
            .filter_map(|key| Some(parts(key)?.0.to_owned()))
            .collect();
        names.sort();
        names.dedup();
        names
    }

    /// A text that may be missing; empty counts as missing.
    fn optional(&mut self, key: &str) -> Option<String> {
        if !self.has(key) {
            return None;
        }
        given(self.text(key).trim().to_owned())
    }

    fn optional_list(&mut self, key: &str) -> Vec<String> {
        if self.has(key) {
            self.list(key)
        } else {
            Vec::new()
        }
    }

    fn optional_int(&mut self, key: &str, min: u32, max: u32, otherwise: u32) -> u32 {
        if self.has(key) {
            self.int(key, min, max)
        } else {
            otherwise
        }
    }

    fn optional_bool(&mut self, key: &str, otherwise: bool) -> bool {
        match self.value(key) {
            None => otherwise,
            Some(Value::Boolean(value)) => *value,
            Some(Value::String(text)) if text == "true" => true,
            Some(Value::String(text)) if text == "false" => false,
            Some(_) => {
                self.wrong(key, "must be true or false");
                otherwise
            }
        }
    }

    /// One of these words; `None` (and told) when it is none of them.
    fn word_of<T: Copy>(&mut self, key: &str, words: &[(&str, T)]) -> Option<T> {
        if !self.has(key) {
            let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.wrong(key, &format!("must be one of {}", names.join(", ")));
            return None;
        }
        Some(self.word(key, words))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use std::collections::BTreeMap;

    use crate::catalogue::providers::RecogniserKind;
    use crate::config::Config;
    use crate::vendors::remote::settings::{ProviderKind, SoundFormat};

    fn load(file: &str, env: &[(&str, &str)]) -> Result<Config, String> {
        let env: BTreeMap<String, String> = env
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        Config::load(Some(file), &env).map_err(|error| error.to_string())
    }

    const FILE: &str = r#"
        [speech]
        model = "fast"
        model_fallback = "faq"
        voice_fallback = "kokoro-af-heart"
        recogniser_fallback = "offline"
        [providers.cloud]
        kind = "openai"
        models = ["gpt-4.1-mini", "fast=gpt-4.1-nano"]
        omit_parameters = ["stream_options", "system"]
        voices = ["alloy", "nova female"]
        stt_model = "gpt-4o-transcribe"
        [providers.kokoro]
        kind = "openai"
        base_url = "http://127.0.0.1:8880/v1/"
        voices = ["af_heart female"]
        format = "wav"
        sample_rate = 24000
        punctuates = false
    "#;

    #[test]
    fn several_providers_are_read_from_the_file_and_the_environment() {
        let config = load(
            FILE,
            &[
                ("SIDETONE_PROVIDERS__CLOUD__API_KEY", "sk-canary"),
                ("SIDETONE_PROVIDERS__EARS__KIND", "deepgram"),
                ("SIDETONE_PROVIDERS__EARS__STT_MODEL", "nova-3"),
                ("SIDETONE_PROVIDERS__KOKORO__TTS_MODEL", "kokoro"),
            ],
        )
        .unwrap();
        let speech = &config.speech;
        let names: Vec<&str> = speech
            .remote
            .providers
            .iter()
            .map(|p| p.name.as_str())
            .collect();
        assert_eq!(names, ["cloud", "ears", "kokoro"]);
        let [cloud, ears, kokoro] = speech.remote.providers.as_slice() else {
            unreachable!("three providers")
        };
        assert_eq!(cloud.base_url.as_str(), "https://api.openai.com/v1");
        assert_eq!(cloud.models[1].id, "fast");
        assert_eq!(cloud.omit_parameters, ["stream_options", "system"]);
        assert_eq!(cloud.voices[1].key, "cloud-nova");
        assert!(cloud.is_available() && kokoro.is_available() && !ears.is_available());
        assert_eq!(ears.kind, ProviderKind::Deepgram);
        assert_eq!(kokoro.base_url.as_str(), "http://127.0.0.1:8880/v1");
        assert_eq!(
            (kokoro.format, kokoro.punctuates),
            (SoundFormat::Wav, false)
        );
        assert_eq!(kokoro.tts_model, "kokoro");
        assert_eq!(speech.recogniser, RecogniserKind::Provider("cloud".into()));
        assert_eq!(speech.recogniser_fallback, Some(RecogniserKind::Offline));
        assert_eq!(speech.remote.default_model.as_deref(), Some("fast"));
        assert!(!format!("{config:?}").contains("canary"));
    }

    #[test]
    fn nothing_configured_is_the_offline_speech() {
        let config = load("", &[]).unwrap();
        assert!(config.speech.remote.providers.is_empty());
        assert_eq!(config.speech.recogniser, RecogniserKind::Offline);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let wrong = |file: &str, key: &str| {
            let error = load(file, &[]).unwrap_err();
            assert!(error.contains(key), "{key} in {error}");
        };
        wrong("[providers.x]\nkind = \"fax\"", "providers.x.kind");
        wrong("[providers.x]\nmodels = [\"a\"]", "providers.x.kind");
        wrong(
            "[providers.x]\nkind = \"openai\"\ncolour = 1",
            "providers.x.colour",
        );
        wrong("[providers.X]\nkind = \"openai\"", "providers.X.kind");
        for url in ["nowhere", "ftp://x/", "https://u:p@x/", "https://x/?key=1"] {
            let file = format!("[providers.x]\nkind = \"openai\"\nbase_url = \"{url}\"");
            wrong(&file, "providers.x.base_url");
        }
        let with = |line: &str| format!("[providers.x]\nkind = \"openai\"\n{line}");
        wrong(&with("models = [\"faq\"]"), "providers.x.models");
        wrong(&with("models = [\"a\", \"a\"]"), "providers.x.models");
        wrong(
            &with("omit_parameters = [\"model\"]"),
            "providers.x.omit_parameters",
        );
        wrong(&with("voices = [\"a klingon\"]"), "providers.x.voices");
        wrong(&with("voices = [\"a\", \"A\"]"), "providers.x.voices");
        wrong(&with("sample_rate = 96000"), "providers.x.sample_rate");
        wrong(&with("punctuates = 3"), "providers.x.punctuates");
        wrong(
            &with("api_key_file = \"/nowhere/at/all\""),
            "providers.x.api_key_file",
        );
        wrong(
            "[providers.x]\nkind = \"cartesia\"\nstt_model = \"a\"",
            "providers.x.stt_model",
        );
        wrong("[speech]\nmodel = \"gpt\"", "speech.model");
        wrong("[speech]\nrecogniser = \"x\"", "speech.recogniser");
        wrong(
            "[speech]\nvoice_fallback = \"nobody\"",
            "speech.voice_fallback",
        );
    }

    #[test]
    fn a_service_without_its_key_is_told_and_a_server_of_ones_own_needs_none() {
        let lacks = |kind: &str, base_url: &str, more: &str| {
            let file = format!("[providers.x]\nkind = \"{kind}\"\n{base_url}{more}");
            let config = load(&file, &[]).unwrap();
            config.speech.remote.providers[0].lacks_key()
        };
        for (kind, address) in [
            ("openai", ""),
            ("openai", "base_url = \"https://api.openai.com\"\n"),
            ("deepgram", "base_url = \"https://api.deepgram.com/\"\n"),
            ("elevenlabs", ""),
            ("cartesia", "base_url = \"wss://api.cartesia.ai/v2\"\n"),
        ] {
            let told = lacks(kind, address, "").unwrap();
            assert!(told.contains("providers.x.api_key") && told.contains("PROVIDERS__X__API_KEY"));
            assert!(
                lacks(kind, address, "api_key = \" \"\n").is_some(),
                "a blank is no key"
            );
            assert_eq!(lacks(kind, address, "api_key = \"k\"\n"), None);
        }
        let own = "base_url = \"http://127.0.0.1:11434/v1\"\n";
        assert_eq!(lacks("openai", own, ""), None);
    }

    #[test]
    fn a_key_may_stand_in_a_file() {
        let folder = crate::testing::TempDir::new().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, "sk-from-file\n").unwrap();
        let file = format!("[providers.x]\nkind = \"openai\"\napi_key_file = {path:?}");
        let config = load(&file, &[]).unwrap();
        let key = config.speech.remote.providers[0].key.as_ref().unwrap();
        assert_eq!(key.expose(), "sk-from-file");
        let both = format!("{file}\napi_key = \"x\"");
        assert!(load(&both, &[]).unwrap_err().contains("api_key_file"));
    }
}
