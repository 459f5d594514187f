//! Bodies of the voices' routes.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{catalogue::Voice, rules::Filter};
use crate::{
    http::{
        Wire,
        validate::{Field, Kind, Schema, Unknown},
    },
    time::Timestamp,
};

/// One voice.
#[derive(Clone, Debug, Serialize)]
pub struct VoiceRecord {
    pub id: Uuid,
    pub voice_key: &'static str,
    pub name: &'static str,
    pub description: &'static str,
    pub language: &'static str,
    pub country: &'static str,
    pub gender: &'static str,
    pub tags: &'static [&'static str],
    pub supports_dialect_style: bool,
    pub dialect_styles: &'static [&'static str],
    pub is_private: bool,
    pub status: &'static str,
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
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Country {
    pub code: &'static str,
    pub name: &'static str,
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
            Kind::Str { min: 0, max: 500 },
            "What signs the URL.",
        )],
        unknown: Unknown::Ignore,
    };
}
