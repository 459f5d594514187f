//! What the operator said about providers: where they are, what they offer, which of it is used.

use reqwest::Url;

use crate::secret::Secret;

/// In place of a parameter: the system role, which some templates refuse. What it would say stands in the first message
/// of the user then.
pub const SYSTEM: &str = "system";

/// The parameters without which a model can be asked, too.
pub const OPTIONAL: &[&str] = &[
    "stream_options",
    "temperature",
    "frequency_penalty",
    "presence_penalty",
    "max_tokens",
    "max_completion_tokens",
    SYSTEM,
];

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct RemoteSettings {
    /// In the order of their names.
    pub providers: Vec<ProviderSettings>,
    /// The model behind the empty `llm_model`. `None`: the first that is configured, else `faq`.
    pub default_model: Option<String>,
    /// The model that answers when an agent's own fails before its first word.
    pub model_fallback: Option<String>,
    /// The key of the voice that speaks on when an agent's own fails.
    pub voice_fallback: Option<String>,
}

/// Who turns the caller's voice into words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecogniserKind {
    /// pocketsphinx, English only.
    Offline,
    /// The lines of a script, whatever was said.
    Scripted,
    /// The configured provider of this name.
    Provider(String),
}

/// One provider.
#[derive(Clone, Debug)]
pub struct ProviderSettings {
    /// The operator's own word for it; what the API shows as a model's provider.
    pub name: String,
    pub kind: ProviderKind,
    /// Without a slash at its end; `http`, `https`, `ws` or `wss`.
    pub base_url: Url,
    pub key: Option<Secret<String>>,
    pub models: Vec<ModelSettings>,
    /// Parameters that its models are never asked with.
    pub omit_parameters: Vec<&'static str>,
    /// The model that recognises speech; `None`: it is not asked to.
    pub stt_model: Option<String>,
    /// Whether its transcripts carry sentence marks.
    pub punctuates: bool,
    /// The model that speaks; may be empty where the voice says enough.
    pub tts_model: String,
    pub voices: Vec<VoiceSettings>,
    /// The rate of raw samples whose rate no header tells, Hz.
    pub sample_rate: u32,
    pub format: SoundFormat,
}

/// The protocol that a provider speaks: that of the service which made it known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderKind {
    /// `/chat/completions`, `/audio/transcriptions`, `/audio/speech`.
    OpenAi,
    /// The live socket `/v1/listen`.
    Deepgram,
    /// The socket `/v1/text-to-speech/{voice}/multi-stream-input`.
    ElevenLabs,
    /// The socket `/tts/websocket`.
    Cartesia,
}

impl ProviderKind {
    /// Where the service of that name is.
    pub const fn home(self) -> &'static str {
        match self {
            Self::OpenAi => "https://api.openai.com/v1",
            Self::Deepgram => "wss://api.deepgram.com",
            Self::ElevenLabs => "wss://api.elevenlabs.io",
            Self::Cartesia => "wss://api.cartesia.ai",
        }
    }

    /// The model that speaks when none is named.
    pub const fn voice_model(self) -> &'static str {
        match self {
            Self::OpenAi => "gpt-4o-mini-tts",
            Self::Deepgram => "",
            Self::ElevenLabs => "eleven_flash_v2_5",
            Self::Cartesia => "sonic-2",
        }
    }

    /// The rate of raw samples, Hz: what the service sends, or what it is asked for where it lets choose.
    pub const fn sample_rate(self) -> u32 {
        match self {
            Self::OpenAi => 24_000,
            Self::Deepgram | Self::ElevenLabs | Self::Cartesia => 16_000,
        }
    }
}

impl ProviderSettings {
    /// Whether it can be asked at all: the services themselves want a key, a server of one's own may
    /// not.
    pub fn is_available(&self) -> bool {
        self.key.is_some() || !self.is_at_home()
    }

    /// Whether its address is the service's own, by whatever scheme and path.
    fn is_at_home(&self) -> bool {
        let home = Url::parse(self.kind.home()).ok();
        home.is_some_and(|home| home.host() == self.base_url.host())
    }

    /// What to tell the operator of a provider that cannot be asked.
    pub fn lacks_key(&self) -> Option<String> {
        let name = &self.name;
        let variable = name.to_uppercase();
        (!self.is_available()).then(|| {
            format!(
                "the provider {name} has no key, and nothing is asked of it: set providers.{name}.api_key or \
                 providers.{name}.api_key_file (SIDETONE_PROVIDERS__{variable}__API_KEY)"
            )
        })
    }
}

/// How sound is asked for. What comes is looked at all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SoundFormat {
    Pcm,
    Wav,
}

/// A language model of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelSettings {
    /// Its public id in the catalogue.
    pub id: String,
    /// What the provider calls it.
    pub model: String,
}

/// A voice of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VoiceSettings {
    /// Its key in the catalogue: the provider's name, a hyphen, the voice's own name.
    pub key: String,
    pub name: String,
    /// What the provider calls it.
    pub voice: String,
    /// `english` or `french`.
    pub language: &'static str,
    /// ISO 3166-1 alpha-2.
    pub country: &'static str,
    /// `female`, `male` or `neutral`.
    pub gender: &'static str,
}

impl ModelSettings {
    /// `model`, or `id=model`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (id, model) = text.split_once('=').unwrap_or((text, text));
        let (id, model) = (id.trim(), model.trim());
        let visible = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic());
        if !visible(id) || !visible(model) || id.len() > 100 {
            return Err(format!(
                "{text:?} is no model: write its name, or id=name, without spaces"
            ));
        }
        Ok(Self {
            id: id.to_owned(),
            model: model.to_owned(),
        })
    }
}

impl VoiceSettings {
    /// `voice`, or `name=voice`, then any of a language, a country and a gender with spaces between:
    /// `rachel=21m00Tcm4TlvDq8ikWAM english US female`.
    pub fn parse(provider: &str, text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let first = words.next().unwrap_or_default();
        let (name, voice) = first.split_once('=').unwrap_or((first, first));
        let slug = slug(name);
        if slug.is_empty() || voice.is_empty() {
            return Err(format!(
                "{text:?} is no voice: write its name, or name=voice"
            ));
        }
        let mut parsed = Self {
            key: format!("{}-{slug}", self::slug(provider)),
            name: capital(name),
            voice: voice.to_owned(),
            language: "english",
            country: "US",
            gender: "neutral",
        };
        for word in words {
            match word {
                "english" => parsed.language = "english",
                "french" => {
                    parsed.language = "french";
                    if parsed.country == "US" {
                        parsed.country = "FR";
                    }
                }
                "female" => parsed.gender = "female",
                "male" => parsed.gender = "male",
                "neutral" => parsed.gender = "neutral",
                other => {
                    let country = super::countries::COUNTRIES
                        .iter()
                        .find(|(code, _)| *code == other);
                    parsed.country = country
                        .ok_or_else(|| {
                            format!("{other:?} in {text:?} is no language, country or gender")
                        })?
                        .0;
                }
            }
        }
        Ok(parsed)
    }
}

/// Lower case, digits and hyphens.
fn slug(text: &str) -> String {
    let dashed: String = text
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_lowercase()
            } else {
                '-'
            }
        })
        .collect();
    dashed
        .split('-')
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("-")
}

fn capital(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    #[test]
    fn a_model_may_have_a_public_name_of_its_own() {
        let model = |text| ModelSettings::parse(text).map(|model| (model.id, model.model));
        let pair = |id: &str, model: &str| Ok((id.to_owned(), model.to_owned()));
        assert_eq!(model("gpt-4.1-mini"), pair("gpt-4.1-mini", "gpt-4.1-mini"));
        assert_eq!(model(" fast = qwen2.5:3b"), pair("fast", "qwen2.5:3b"));
        for wrong in ["", "=x", "x=", "two words", "a=b c"] {
            assert!(model(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_voice_is_a_line_of_words() {
        let voice = VoiceSettings::parse("eleven_labs", "rachel=21m00Tcm4TlvDq8ikWAM female GB");
        let voice = voice.unwrap();
        assert_eq!(
            (voice.key.as_str(), voice.name.as_str()),
            ("eleven-labs-rachel", "Rachel")
        );
        assert_eq!(voice.voice, "21m00Tcm4TlvDq8ikWAM");
        assert_eq!(
            (voice.language, voice.country, voice.gender),
            ("english", "GB", "female")
        );
        let voice = VoiceSettings::parse("kokoro", "ff_siwis french female").unwrap();
        assert_eq!(
            (voice.key.as_str(), voice.country),
            ("kokoro-ff-siwis", "FR")
        );
        assert!(VoiceSettings::parse("x", "a klingon").is_err());
        assert!(VoiceSettings::parse("x", "").is_err());
    }
}
