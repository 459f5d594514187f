//! Bodies of the voices' routes.

use std::borrow::Cow;

use schemars::{JsonSchema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{
    catalogue::Voice,
    rules::{Filter, TAGS},
};
use crate::{
    http::{
        validate::Kind,
        wire::{answer, body},
    },
    time::Timestamp,
};

answer! {
    /// One voice.
    #[derive(Clone, Debug)]
    pub struct VoiceRecord = "Voice" of Voice as voice
        first(has_styles = voice.supports_dialect_style(), styles = voice.dialect_styles())
        (preview_url: String) uses(key, created_at) hides(engine) {
        /// The id of this voice, for an agent's `voice_id`.
        id: Uuid,
        /// A legacy slug, still taken where an id is.
        voice_key: &'static str = key,
        /// What it is called.
        name: &'static str,
        /// What it sounds like, in a sentence.
        description: &'static str,
        #[schemars(extend("enum" = ["english", "french"]))]
        language: &'static str,
        /// The country that it sounds like, by its code (ISO 3166-1 alpha-2).
        #[schemars(extend("pattern" = "^[A-Z]{2}$"))]
        country: &'static str,
        /// Whose voice it sounds like.
        gender: &'static str,
        /// What describes it: tags that `listVoiceTags` lists.
        tags: &'static [&'static str],
        /// Whether it has dialect styles.
        supports_dialect_style: bool = has_styles,
        /// Values for an agent's `dialect_style`.
        dialect_styles: &'static [&'static str] = styles,
        /// Whether it is the account's own, not one of the catalogue.
        is_private: bool = false,
        /// Where it stands, always `active`.
        status: &'static str = "active",
        /// A sample sentence as a WAV; the URL itself is the credential, and runs out.
        preview_url: Option<String> = Some(preview_url),
        created_at: Timestamp = Timestamp(created_at),
        updated_at: Timestamp = Timestamp(created_at),
    }
}

/// A country that a voice can be of.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct Country {
    /// The code of the country (ISO 3166-1 alpha-2).
    #[schemars(extend("pattern" = "^[A-Z]{2}$"))]
    pub code: &'static str,
    /// Its name in English.
    pub name: &'static str,
}

/// The tags by category.
#[derive(Clone, Copy, Debug)]
pub struct TagVocabulary;

impl Serialize for TagVocabulary {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(TAGS.iter().copied())
    }
}

impl JsonSchema for TagVocabulary {
    fn schema_name() -> Cow<'static, str> {
        "TagVocabulary".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> schemars::Schema {
        let properties: Map<String, Value> = TAGS
            .iter()
            .map(|(category, tokens)| {
                let items = json!({"type": "string", "enum": tokens});
                let about = format!("The tags of the category {}.", category.replace('_', " "));
                let list = json!({"type": "array", "items": items, "description": about});
                ((*category).to_owned(), list)
            })
            .collect();
        let required: Vec<&str> = TAGS.iter().map(|(category, _)| *category).collect();
        json_schema!({
            "type": "object", "properties": properties, "required": required,
            "description": "The tags of voices by category; each is a valid `tag` of `GET /voices`."
        })
    }
}

const TEXT: Kind = Kind::Str { min: 0, max: 255 };

body! {
    /// The query of `GET /voices` beside its page.
    pub query VoicesQuery;
    optional language: String = TEXT, "english or french; another value selects nothing.";
    optional supports_dialect_style: bool, "Only voices with (or without) dialect styles.";
    optional tag: String = TEXT, "A token of the tag vocabulary, case-sensitive; blank is no filter.";
    optional country: String = TEXT, "ISO 3166-1 alpha-2, any case; blank is no filter.";
}

impl VoicesQuery {
    pub fn into_filter(self) -> Filter {
        let Self {
            language,
            supports_dialect_style,
            tag,
            country,
        } = self;
        Filter {
            language,
            supports_dialect_style,
            tag,
            country,
        }
    }
}

body! {
    /// The query of `GET /voices/{id}/preview.wav`.
    pub query PreviewQuery;
    // Whatever is no token is no credential.
    optional token: String = Kind::Any, "What signs the URL.";
}
