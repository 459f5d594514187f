//! Bodies of the key routes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::store::ApiKey;
use crate::http::scope::{Scope, Scopes};
use crate::http::validate::{Field, Kind, Schema, Unknown};
use crate::http::{Patch, Wire};
use crate::ids::ApiKeyId;
use crate::time::Timestamp;

const NAME: Kind = Kind::Str { min: 1, max: 100 };
const SCOPES: Kind = Kind::List {
    item: &Kind::Enum(Scope::NAMES),
    min: 1,
    max: 64,
};

/// `POST /api-keys`.
#[derive(Debug, Deserialize)]
pub struct CreateApiKey {
    pub name: String,
    pub scopes: Option<Vec<Scope>>,
    pub expires_at: Option<Timestamp>,
}

impl Wire for CreateApiKey {
    const SCHEMA: &'static Schema = &Schema {
        name: "CreateApiKey",
        unknown: Unknown::Refuse,
        fields: &[
            Field::req("name", NAME, "What the key is for"),
            Field::opt(
                "scopes",
                SCOPES,
                "What it may do; unset: the default bundle. Never more than the caller may",
            )
            .nullable(),
            Field::opt("expires_at", Kind::Timestamp, "When it stops working").nullable(),
        ],
    };
}

/// `PATCH /api-keys/{id}`.
#[derive(Debug, Deserialize)]
pub struct PatchApiKey {
    #[serde(default)]
    pub name: Patch<String>,
    #[serde(default)]
    pub scopes: Patch<Vec<Scope>>,
    #[serde(default)]
    pub expires_at: Patch<Timestamp>,
}

impl Wire for PatchApiKey {
    const SCHEMA: &'static Schema = &Schema {
        name: "PatchApiKey",
        unknown: Unknown::Refuse,
        fields: &[
            Field::opt("name", NAME, "What the key is for"),
            Field::opt("scopes", SCOPES, "What it may do"),
            Field::opt(
                "expires_at",
                Kind::Timestamp,
                "When it stops working; null: never",
            )
            .nullable(),
        ],
    };
}

/// `POST /api-keys/{id}/rotate`.
#[derive(Debug, Deserialize)]
pub struct RotateApiKey {
    #[serde(default)]
    pub grace_seconds: u32,
}

impl Wire for RotateApiKey {
    const SCHEMA: &'static Schema = &Schema {
        name: "RotateApiKey",
        unknown: Unknown::Refuse,
        fields: &[Field::opt(
            "grace_seconds",
            Kind::Int {
                min: 0,
                max: 86_400,
            },
            "How long the old string goes on working (default 0)",
        )],
    };
}

/// A key as it is answered.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ApiKey")]
pub struct ApiKeyOut {
    pub id: ApiKeyId,
    pub name: String,
    /// The whole string; only where it is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// How the string begins: it tells keys apart.
    pub key_prefix: String,
    pub scopes: Scopes,
    #[schemars(extend("enum" = ["active", "expired", "revoked"]))]
    pub status: &'static str,
    /// Null: never.
    pub expires_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl ApiKeyOut {
    pub fn new(record: ApiKey, now: Timestamp) -> Self {
        let status = record.status(now);
        let ApiKey {
            id,
            account: _,
            name,
            key_prefix,
            scopes,
            expires_at,
            revoked_at: _,
            created_at,
            updated_at,
        } = record;
        Self {
            id,
            name,
            key: None,
            key_prefix,
            scopes,
            status,
            expires_at,
            created_at,
            updated_at,
        }
    }

    /// With the string, once.
    #[must_use]
    pub fn with_key(mut self, key: &crate::secret::Secret<String>) -> Self {
        self.key = Some(key.expose().clone());
        self
    }
}
