//! Bodies of the key routes.

use super::store::{ApiKey, Status};
use crate::http::scope::{Scope, Scopes};
use crate::http::validate::Kind;
use crate::http::wire::{answer, body};
use crate::ids::ApiKeyId;
use crate::time::Timestamp;

const NAME: Kind = Kind::Str { min: 1, max: 100 };
const GRACE: Kind = Kind::int(0, 86_400);
const SCOPES: Kind = Kind::list(&Kind::Enum(Scope::NAMES), 1, 64);

body! {
    /// `POST /api-keys`.
    #[derive(Debug)]
    pub struct CreateApiKey = "CreateApiKey";
    required name: String = NAME, "What the key is for";
    nullable scopes: Vec<Scope> = SCOPES,
        "What it may do; unset: the default bundle. Never more than the caller may";
    nullable expires_at: Timestamp, "When it stops working";
}

body! {
    /// `PATCH /api-keys/{id}`.
    #[derive(Debug)]
    pub struct PatchApiKey = "PatchApiKey";
    optional name: String = NAME, "What the key is for";
    optional scopes: Vec<Scope> = SCOPES, "What it may do";
    clearable expires_at: Timestamp, "When it stops working; null: never";
}

body! {
    /// `POST /api-keys/{id}/rotate`.
    #[derive(Debug)]
    pub struct RotateApiKey = "RotateApiKey";
    default grace_seconds: u32 = GRACE, "How long the old string goes on working (default 0)";
}

answer! {
    /// A key as it is answered.
    #[derive(Debug)]
    pub struct ApiKeyOut = "ApiKey" of ApiKey (now: Timestamp) uses(revoked_at) hides(account) {
        id: ApiKeyId,
        name: String,
        /// The whole string; only where it is made.
        #[serde(skip_serializing_if = "Option::is_none")]
        key: Option<String> = None,
        /// How the string begins: it tells keys apart.
        key_prefix: String,
        scopes: Scopes,
        status: Status = Status::at(now, revoked_at, expires_at),
        /// Null: never.
        expires_at: Option<Timestamp>,
        created_at: Timestamp,
        updated_at: Timestamp,
    }
}

impl ApiKeyOut {
    /// With the string, once.
    #[must_use]
    pub fn with_key(mut self, key: &crate::secret::Secret<String>) -> Self {
        self.key = Some(key.expose().clone());
        self
    }
}
