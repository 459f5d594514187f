//! Bodies of the synthesis routes.

use serde::Deserialize;

use super::rules;
use crate::http::Wire;
use crate::http::extract::MAX_BODY;
use crate::http::validate::{Field, Kind, Schema, Unknown};

/// The body of `POST /tts`.
#[derive(Debug, Deserialize)]
pub struct Speak {
    pub text: String,
    pub language: Option<String>,
    pub voice_id: Option<String>,
    #[serde(default)]
    pub streaming: bool,
}

impl Wire for Speak {
    const SCHEMA: &'static Schema = &Schema {
        name: "Speak",
        unknown: Unknown::Refuse,
        fields: &[
            Field::req(
                "text",
                // Beyond 650 characters the answer is a 413 of its own, and the body has its bound.
                Kind::Str {
                    min: 1,
                    max: MAX_BODY,
                },
                "What to say, 1 to 650 characters; each counts.",
            ),
            Field::opt(
                "language",
                Kind::Enum(&["english", "french"]),
                "english, or that of the voice, when left out.",
            ),
            Field::opt(
                "voice_id",
                Kind::Str { min: 0, max: 255 },
                "A voice id or legacy voice_key; left out or \"default\": the deployment's own.",
            )
            .nullable(),
            Field::opt(
                "streaming",
                Kind::Bool,
                "true: raw samples as they are made; false: a WAV.",
            ),
        ],
    };
}

/// The body of `POST /voices/preview`.
#[derive(Debug, Deserialize)]
pub struct Preview {
    pub voice_id: String,
    pub text: Option<String>,
}

impl Wire for Preview {
    const SCHEMA: &'static Schema = &Schema {
        name: "PreviewVoice",
        unknown: Unknown::Refuse,
        fields: &[
            Field::req(
                "voice_id",
                Kind::Str { min: 1, max: 255 },
                "A voice id or legacy voice_key; \"default\" is not taken.",
            ),
            Field::opt(
                "text",
                Kind::Str {
                    min: 1,
                    max: rules::MAX_PREVIEW,
                },
                "What to say, 1 to 300 characters; a sample sentence when left out.",
            ),
        ],
    };
}
