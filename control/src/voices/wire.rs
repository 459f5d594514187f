//! Bodies of the voices' routes.

use std::borrow::Cow;

use schemars::{JsonSchema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{
    catalogue::Voice,
    rules::{Filter, TAGS},
};
use crate::{
    http::{
        Wire,
        validate::{Field, Kind, Schema, Unknown},
    },
    time::Timestamp,
};

/// One voice.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Voice")]
pub struct VoiceRecord {
    /// The id of this voice, for an agent's `voice_id`.
    pub id: Uuid,
    /// A legacy slug, still taken where an id is.
    pub voice_key: &'static str,
    /// What it is called.
    pub name: &'static str,
    /// What it sounds like, in a sentence.
    pub description: &'static str,
    #[schemars(extend("enum" = ["english", "french"]))]
    pub language: &'static str,
    /// The country that it sounds like, by its code (ISO 3166-1 alpha-2).
    #[schemars(extend("pattern" = "^[A-Z]{2}$"))]
    pub country: &'static str,
    /// Whose voice it sounds like.
    pub gender: &'static str,
    /// What describes it: tags that `listVoiceTags` lists.
    pub tags: &'static [&'static str],
    /// Whether it has dialect styles.
    pub supports_dialect_style: bool,
    /// Values for an agent's `dialect_style`.
    pub dialect_styles: &'static [&'static str],
    /// Whether it is the account's own, not one of the catalogue.
    pub is_private: bool,
    /// Where it stands, always `active`.
    pub status: &'static str,
    /// A sample sentence as a WAV; the URL itself is the credential, and runs out.
    pub preview_url: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl VoiceRecord {
    /// The record; `preview_url` is where the voice can be heard.
    pub fn of(voice: &Voice, preview_url: String) -> Self {
        let Voice {
            id,
            key,
            name,
            description,
            language,
            country,
            gender,
            tags,
            engine: _,
            created_at,
        } = *voice;
        Self {
            id,
            voice_key: key,
            name,
            description,
            language,
            country,
            gender,
            tags,
            supports_dialect_style: voice.supports_dialect_style(),
            dialect_styles: voice.dialect_styles(),
            is_private: false,
            status: "active",
            preview_url: Some(preview_url),
            created_at: Timestamp(created_at),
            updated_at: Timestamp(created_at),
        }
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

/// The query of `GET /voices` beside its page.
#[derive(Clone, Debug, Deserialize)]
pub struct VoicesQuery {
    pub language: Option<String>,
    pub supports_dialect_style: Option<bool>,
    pub tag: Option<String>,
    pub country: Option<String>,
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

impl Wire for VoicesQuery {
    const SCHEMA: &'static Schema = &Schema {
        name: "VoicesQuery",
        fields: &[
            Field::opt(
                "language",
                TEXT,
                "english or french; another value selects nothing.",
            ),
            Field::opt(
                "supports_dialect_style",
                Kind::Bool,
                "Only voices with (or without) dialect styles.",
            ),
            Field::opt(
                "tag",
                TEXT,
                "A token of the tag vocabulary, case-sensitive; blank is no filter.",
            ),
            Field::opt(
                "country",
                TEXT,
                "ISO 3166-1 alpha-2, any case; blank is no filter.",
            ),
        ],
        unknown: Unknown::Ignore,
    };
}

const TEXT: Kind = Kind::Str { min: 0, max: 255 };

/// The query of `GET /voices/{id}/preview.wav`.
#[derive(Debug, Deserialize)]
pub struct PreviewQuery {
    pub token: Option<String>,
}

impl Wire for PreviewQuery {
    const SCHEMA: &'static Schema = &Schema {
        name: "PreviewQuery",
        fields: &[Field::opt(
            "token",
            // Whatever is no token is no credential.
            Kind::Any,
            "What signs the URL.",
        )],
        unknown: Unknown::Ignore,
    };
}
