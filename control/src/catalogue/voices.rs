//! The voices, as data: what each is, and what the synthesiser has to be told to speak with it. The
//! offline ones stand below; those of configured providers come in at the start.

use std::sync::{LazyLock, OnceLock};

use uuid::Uuid;

use super::providers::RemoteSettings;

/// One voice. `engine` is for the synthesiser; everything else is what the API shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Voice {
    /// UUID v5 of `key`: stable over versions and installations.
    pub id: Uuid,
    /// The legacy slug, accepted wherever a voice id is expected.
    pub key: &'static str,
    pub name: &'static str,
    pub description: &'static str,
    /// `english` or `french`.
    pub language: &'static str,
    /// ISO 3166-1 alpha-2.
    pub country: &'static str,
    /// `female`, `male` or `neutral`.
    pub gender: &'static str,
    /// Tokens of the tag vocabulary (`rules::TAGS`).
    pub tags: &'static [&'static str],
    pub engine: Engine,
    /// When the voice came into the catalogue, microseconds since the epoch.
    pub created_at: i64,
}

/// What speaks, and under which name it knows the voice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Engine {
    /// espeak-ng: its voice name with an optional variant (`-v`), pitch 0 to 99 (`-p`) and words a
    /// minute (`-s`).
    Espeak {
        name: &'static str,
        pitch: u8,
        words_per_minute: u16,
    },
    /// flite: its built-in voice name (`-voice`).
    Flite { name: &'static str },
    /// A tone instead of speech, almost free of cost: load runs and tests.
    Scripted { hz: u32 },
    /// A voice of a configured provider, under the provider's own name for it.
    Provider {
        provider: &'static str,
        voice: &'static str,
    },
}

impl Engine {
    /// The program that has to be installed; `None`: nothing.
    pub const fn program(self) -> Option<&'static str> {
        match self {
            Self::Espeak { .. } => Some("espeak-ng"),
            Self::Flite { .. } => Some("flite"),
            Self::Scripted { .. } | Self::Provider { .. } => None,
        }
    }
}

static CONFIGURED: OnceLock<Vec<Voice>> = OnceLock::new();

/// Adds the voices of the providers that can be asked, once, before the server listens. Later calls
/// change nothing.
pub fn configure(settings: &RemoteSettings) {
    CONFIGURED.get_or_init(|| configured(settings));
}

fn configured(settings: &RemoteSettings) -> Vec<Voice> {
    // The catalogue lives as long as the process.
    let kept = |text: &str| -> &'static str { Box::leak(text.to_owned().into_boxed_str()) };
    let available = settings.providers.iter().filter(|p| p.is_available());
    let mut voices: Vec<Voice> = available
        .flat_map(|provider| provider.voices.iter().map(move |voice| (provider, voice)))
        .map(|(provider, voice)| Voice {
            id: id_of(&voice.key),
            key: kept(&voice.key),
            name: kept(&voice.name),
            description: "A voice of a configured provider",
            language: voice.language,
            country: voice.country,
            gender: voice.gender,
            tags: &[],
            engine: Engine::Provider {
                provider: kept(&provider.name),
                voice: kept(&voice.voice),
            },
            created_at: Generation::Configured as i64,
        })
        .collect();
    voices.sort_by(|a, b| a.key.cmp(b.key));
    voices
}

/// Every offline voice this version knows, newest first, ties by key: the stable order of `GET /voices`.
pub fn all() -> &'static [Voice] {
    static VOICES: LazyLock<Vec<Voice>> = LazyLock::new(|| {
        let mut voices: Vec<Voice> = ENTRIES.iter().map(Entry::voice).collect();
        voices.sort_by(|a, b| b.created_at.cmp(&a.created_at).then(a.key.cmp(b.key)));
        voices
    });
    &VOICES
}

/// The voices that can speak on this machine. Programs are looked for once, at the first call: they
/// are installed before the server starts.
pub fn offered() -> impl Iterator<Item = &'static Voice> {
    static INSTALLED: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
        ["espeak-ng", "flite"]
            .into_iter()
            .filter(|program| on_path(program))
            .collect()
    });
    let configured = CONFIGURED.get().map_or(&[][..], Vec::as_slice);
    configured.iter().chain(all()).filter(|voice| {
        voice
            .engine
            .program()
            .is_none_or(|program| INSTALLED.contains(&program))
    })
}

/// The voice of this id or key, whether or not it can speak on this machine.
pub fn known(id_or_key: &str) -> Option<&'static Voice> {
    match Uuid::try_parse(id_or_key) {
        Ok(id) => all().iter().find(|voice| voice.id == id),
        Err(_) => all().iter().find(|voice| voice.key == id_or_key),
    }
}

/// The offered voice of this id or key. The sentinel `default` is nobody's key.
pub fn find(id_or_key: &str) -> Option<&'static Voice> {
    match Uuid::try_parse(id_or_key) {
        Ok(id) => offered().find(|voice| voice.id == id),
        Err(_) => offered().find(|voice| voice.key == id_or_key),
    }
}

/// The voice that speaks where none is named, and the one of the demo agent.
pub fn default_voice() -> Option<&'static Voice> {
    find("flite-slt")
        .or_else(|| find("espeak-en-gb-female"))
        .or_else(|| offered().next())
}

/// The id of a voice key.
pub fn id_of(key: &str) -> Uuid {
    Uuid::new_v5(&NAMESPACE, key.as_bytes())
}

/// The namespace of voice ids. Never to be changed: ids are stored in agents and in clients.
const NAMESPACE: Uuid = Uuid::from_u128(0x5b0e_6a52_3f0d_4c9e_9a41_7f2d_8c61_b3e0);

fn on_path(program: &str) -> bool {
    let Some(path) = std::env::var_os("PATH") else {
        return false;
    };
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// A line of the table below.
struct Entry {
    key: &'static str,
    name: &'static str,
    description: &'static str,
    language: &'static str,
    country: &'static str,
    gender: &'static str,
    tags: &'static [&'static str],
    engine: Engine,
    /// Catalogue generation: later ones are listed first.
    generation: Generation,
}

/// The days on which voices came in, as microseconds since the epoch.
#[derive(Clone, Copy)]
#[repr(i64)]
enum Generation {
    /// 2026-01-05, voices for tests.
    Tests = 1_767_571_200_000_000,
    /// 2026-01-06, espeak-ng.
    Espeak = 1_767_657_600_000_000,
    /// 2026-01-07, flite: recorded units, the more natural ones.
    Flite = 1_767_744_000_000_000,
    /// 2026-01-08, voices of providers: listed first.
    Configured = 1_767_830_400_000_000,
}

impl Entry {
    fn voice(&self) -> Voice {
        let Self {
            key,
            name,
            description,
            language,
            country,
            gender,
            tags,
            engine,
            generation,
        } = *self;
        Voice {
            id: id_of(key),
            key,
            name,
            description,
            language,
            country,
            gender,
            tags,
            engine,
            created_at: generation as i64,
        }
    }
}

const fn espeak(name: &'static str, pitch: u8, words_per_minute: u16) -> Engine {
    Engine::Espeak {
        name,
        pitch,
        words_per_minute,
    }
}

const fn flite(name: &'static str) -> Engine {
    Engine::Flite { name }
}

const ENTRIES: &[Entry] = &[
    Entry {
        key: "flite-slt",
        name: "Flite SLT",
        description: "American woman, clear and even; recorded units (flite slt).",
        language: "english",
        country: "US",
        gender: "female",
        tags: &["friendly", "clear", "conversational", "receptionist"],
        engine: flite("slt"),
        generation: Generation::Flite,
    },
    Entry {
        key: "flite-rms",
        name: "Flite RMS",
        description: "American man, deep and measured; recorded units (flite rms).",
        language: "english",
        country: "US",
        gender: "male",
        tags: &["calm", "deep", "measured", "advisor"],
        engine: flite("rms"),
        generation: Generation::Flite,
    },
    Entry {
        key: "flite-awb",
        name: "Flite AWB",
        description: "Scottish man, warm; recorded units (flite awb).",
        language: "english",
        country: "GB",
        gender: "male",
        tags: &["warm", "husky", "conversational", "support_agent"],
        engine: flite("awb"),
        generation: Generation::Flite,
    },
    Entry {
        key: "flite-kal16",
        name: "Flite KAL16",
        description: "American man, plain and crisp; diphones (flite kal16).",
        language: "english",
        country: "US",
        gender: "male",
        tags: &["neutral", "crisp", "brisk", "dispatcher"],
        engine: flite("kal16"),
        generation: Generation::Flite,
    },
    Entry {
        key: "espeak-en-gb-female",
        name: "British, female",
        description: "British woman (espeak-ng).",
        language: "english",
        country: "GB",
        gender: "female",
        tags: &["friendly", "bright", "conversational", "receptionist"],
        engine: espeak("en-gb+f3", 55, 165),
        generation: Generation::Espeak,
    },
    Entry {
        key: "espeak-en-gb-male",
        name: "British, male",
        description: "British man (espeak-ng).",
        language: "english",
        country: "GB",
        gender: "male",
        tags: &["neutral", "crisp", "measured", "support_agent"],
        engine: espeak("en-gb", 45, 165),
        generation: Generation::Espeak,
    },
    Entry {
        key: "espeak-en-gb-rp-male",
        name: "British RP, male",
        description: "British man, Received Pronunciation (espeak-ng).",
        language: "english",
        country: "GB",
        gender: "male",
        tags: &["serious", "crisp", "formal", "advisor"],
        engine: espeak("en-gb-x-rp", 45, 160),
        generation: Generation::Espeak,
    },
    Entry {
        key: "espeak-en-gb-scotland-female",
        name: "Scottish, female",
        description: "Scottish woman (espeak-ng).",
        language: "english",
        country: "GB",
        gender: "female",
        tags: &["warm", "soft", "conversational", "concierge"],
        engine: espeak("en-gb-scotland+f2", 55, 165),
        generation: Generation::Espeak,
    },
    Entry {
        key: "espeak-en-gb-scotland-male",
        name: "Scottish, male",
        description: "Scottish man (espeak-ng).",
        language: "english",
        country: "GB",
        gender: "male",
        tags: &["warm", "deep", "conversational", "support_agent"],
        engine: espeak("en-gb-scotland", 40, 165),
        generation: Generation::Espeak,
    },
    Entry {
        key: "espeak-en-gb-lancaster-male",
        name: "Lancaster, male",
        description: "Man from Lancaster in the north of England (espeak-ng).",
        language: "english",
        country: "GB",
        gender: "male",
        tags: &["cheerful", "bright", "conversational", "sales"],
        engine: espeak("en-gb-x-gbclan", 48, 170),
        generation: Generation::Espeak,
    },
    Entry {
        key: "espeak-en-gb-west-midlands-male",
        name: "West Midlands, male",
        description: "Man from the West Midlands of England (espeak-ng).",
        language: "english",
        country: "GB",
        gender: "male",
        tags: &["friendly", "crisp", "measured", "support_agent"],
        engine: espeak("en-gb-x-gbcwmd", 45, 165),
        generation: Generation::Espeak,
    },
    Entry {
        key: "espeak-en-us-female",
        name: "American, female",
        description: "American woman (espeak-ng).",
        language: "english",
        country: "US",
        gender: "female",
        tags: &["cheerful", "bright", "conversational", "sales"],
        engine: espeak("en-us+f3", 55, 165),
        generation: Generation::Espeak,
    },
    Entry {
        key: "espeak-en-us-male",
        name: "American, male",
        description: "American man (espeak-ng).",
        language: "english",
        country: "US",
        gender: "male",
        tags: &["confident", "clear", "measured", "sales"],
        engine: espeak("en-us", 45, 165),
        generation: Generation::Espeak,
    },
    Entry {
        key: "espeak-en-us-nyc-male",
        name: "New York, male",
        description: "Man from New York City (espeak-ng).",
        language: "english",
        country: "US",
        gender: "male",
        tags: &["confident", "crisp", "brisk", "dispatcher"],
        engine: espeak("en-us-nyc", 48, 175),
        generation: Generation::Espeak,
    },
    Entry {
        key: "espeak-en-caribbean-female",
        name: "Caribbean, female",
        description: "Woman with a Caribbean accent (espeak-ng en-029, listed under Jamaica).",
        language: "english",
        country: "JM",
        gender: "female",
        tags: &["warm", "soft", "conversational", "concierge"],
        engine: espeak("en-029+f2", 55, 160),
        generation: Generation::Espeak,
    },
    Entry {
        key: "espeak-en-caribbean-male",
        name: "Caribbean, male",
        description: "Man with a Caribbean accent (espeak-ng en-029, listed under Jamaica).",
        language: "english",
        country: "JM",
        gender: "male",
        tags: &["friendly", "deep", "conversational", "receptionist"],
        engine: espeak("en-029", 42, 160),
        generation: Generation::Espeak,
    },
    Entry {
        key: "espeak-fr-fr-female",
        name: "France, female",
        description: "French woman (espeak-ng).",
        language: "french",
        country: "FR",
        gender: "female",
        tags: &["friendly", "bright", "conversational", "receptionist"],
        engine: espeak("fr-fr+f3", 55, 160),
        generation: Generation::Espeak,
    },
    Entry {
        key: "espeak-fr-fr-male",
        name: "France, male",
        description: "French man (espeak-ng).",
        language: "french",
        country: "FR",
        gender: "male",
        tags: &["neutral", "clear", "measured", "support_agent"],
        engine: espeak("fr-fr", 45, 160),
        generation: Generation::Espeak,
    },
    Entry {
        key: "espeak-fr-be-female",
        name: "Belgium, female",
        description: "Belgian woman who speaks French (espeak-ng).",
        language: "french",
        country: "BE",
        gender: "female",
        tags: &["warm", "soft", "conversational", "concierge"],
        engine: espeak("fr-be+f2", 55, 160),
        generation: Generation::Espeak,
    },
    Entry {
        key: "espeak-fr-be-male",
        name: "Belgium, male",
        description: "Belgian man who speaks French (espeak-ng).",
        language: "french",
        country: "BE",
        gender: "male",
        tags: &["calm", "deep", "measured", "advisor"],
        engine: espeak("fr-be", 42, 155),
        generation: Generation::Espeak,
    },
    Entry {
        key: "espeak-fr-ch-female",
        name: "Switzerland, female",
        description: "Swiss woman who speaks French (espeak-ng).",
        language: "french",
        country: "CH",
        gender: "female",
        tags: &["calm", "clear", "formal", "advisor"],
        engine: espeak("fr-ch+f3", 55, 155),
        generation: Generation::Espeak,
    },
    Entry {
        key: "espeak-fr-ch-male",
        name: "Switzerland, male",
        description: "Swiss man who speaks French (espeak-ng).",
        language: "french",
        country: "CH",
        gender: "male",
        tags: &["serious", "crisp", "measured", "support_agent"],
        engine: espeak("fr-ch", 45, 155),
        generation: Generation::Espeak,
    },
    Entry {
        key: "scripted-tone",
        name: "Tone",
        description: "A plain tone instead of speech, for load runs and tests. A text chooses another by its name: 600 Hz.",
        language: "english",
        country: "GB",
        gender: "neutral",
        tags: &["neutral", "clear"],
        engine: Engine::Scripted { hz: 440 },
        generation: Generation::Tests,
    },
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

    use std::collections::BTreeSet;

    use super::*;
    use crate::catalogue::countries::COUNTRIES;
    use crate::voices::rules::TAGS;

    #[test]
    fn ids_and_keys_are_unique_and_a_key_is_no_uuid_and_not_the_sentinel() {
        let ids: BTreeSet<Uuid> = all().iter().map(|voice| voice.id).collect();
        let keys: BTreeSet<&str> = all().iter().map(|voice| voice.key).collect();
        assert_eq!((ids.len(), keys.len()), (ENTRIES.len(), ENTRIES.len()));
        for key in keys {
            assert!(Uuid::try_parse(key).is_err() && key != "default", "{key}");
            assert!(
                key.bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            );
        }
    }

    #[test]
    fn an_id_never_changes() {
        assert_eq!(
            id_of("flite-slt").to_string(),
            "a6db3820-f623-5350-bbe3-6a5e44979b9f"
        );
    }

    #[test]
    fn every_word_of_an_entry_is_of_its_closed_list() {
        let tags: BTreeSet<&str> = TAGS
            .iter()
            .flat_map(|(_, tokens)| *tokens)
            .copied()
            .collect();
        for voice in all() {
            assert!(
                ["english", "french"].contains(&voice.language),
                "{}",
                voice.key
            );
            assert!(
                ["female", "male", "neutral"].contains(&voice.gender),
                "{}",
                voice.key
            );
            assert!(
                COUNTRIES.iter().any(|(code, _)| *code == voice.country),
                "{}",
                voice.key
            );
            assert!(
                voice.tags.iter().all(|tag| tags.contains(tag)),
                "{}",
                voice.key
            );
            assert_eq!(
                voice.engine.program(),
                voice.key.split('-').next().and_then(program_of),
                "{}",
                voice.key
            );
        }
    }

    fn program_of(prefix: &str) -> Option<&'static str> {
        match prefix {
            "espeak" => Some("espeak-ng"),
            "flite" => Some("flite"),
            _ => None,
        }
    }

    #[test]
    fn newest_first_and_the_order_is_total() {
        assert!(all().is_sorted_by(|a, b| (b.created_at, a.key) < (a.created_at, b.key)));
        assert_eq!(all().last().unwrap().key, "scripted-tone");
    }

    #[test]
    fn found_by_id_in_any_case_and_by_key_exactly() {
        let tone = find("scripted-tone").unwrap();
        assert_eq!(find(&tone.id.to_string()), Some(tone));
        assert_eq!(find(&tone.id.to_string().to_uppercase()), Some(tone));
        assert_eq!(find("Scripted-Tone"), None);
        assert_eq!(find("default"), None);
        assert_eq!(find(""), None);
    }
}
