//! Bodies of the suppression routes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rules::Source;
use super::store::Suppression;
use crate::http::Wire;
use crate::http::validate::{Field, Kind, Schema, Unknown};
use crate::ids::SuppressionId;
use crate::time::Timestamp;

/// The query of `GET /suppressions`.
#[derive(Deserialize)]
pub struct SuppressionsQuery {
    pub phone_number: Option<String>,
    pub status: Option<String>,
}

impl Wire for SuppressionsQuery {
    const SCHEMA: &'static Schema = &Schema {
        name: "SuppressionsQuery",
        unknown: Unknown::Ignore,
        fields: &[
            Field::opt("phone_number", Kind::E164, "Only entries of this number."),
            Field::opt(
                "status",
                Kind::Enum(&["active", "released"]),
                "Only entries in this state.",
            ),
        ],
    };
}

/// `POST /suppressions`.
#[derive(Deserialize)]
pub struct CreateSuppression {
    pub phone_number: String,
    pub source: Option<String>,
    pub reason: Option<String>,
}

impl Wire for CreateSuppression {
    const SCHEMA: &'static Schema = &Schema {
        name: "CreateSuppression",
        unknown: Unknown::Refuse,
        fields: &[
            Field::req("phone_number", Kind::Callee, "The number not to call"),
            Field::opt(
                "source",
                Kind::Enum(Source::WRITABLE),
                "Who wanted it (default manual); a person's own request cannot be released",
            ),
            Field::opt("reason", Kind::Str { min: 0, max: 500 }, "Why").nullable(),
        ],
    };
}

/// An entry as it is answered.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Suppression")]
pub struct SuppressionRecord {
    pub id: SuppressionId,
    pub phone_number: String,
    /// Who wanted it. A person's own request cannot be released.
    #[schemars(extend("enum" = ["manual", "person_request", "sms_stop"]))]
    pub source: &'static str,
    pub reason: Option<String>,
    #[schemars(extend("enum" = ["active", "released"]))]
    pub status: &'static str,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub released_at: Option<Timestamp>,
}

impl From<Suppression> for SuppressionRecord {
    fn from(entry: Suppression) -> Self {
        let Suppression {
            id,
            phone_number,
            source,
            reason,
            released_at,
            created_at,
            updated_at,
        } = entry;
        Self {
            id,
            phone_number,
            source: source.name(),
            reason,
            status: if released_at.is_some() {
                "released"
            } else {
                "active"
            },
            created_at,
            updated_at,
            released_at,
        }
    }
}
