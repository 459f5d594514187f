//! Who calls. A key comes in `X-API-Key` or as a bearer; it is looked up at every request, so a
//! revoked key is refused from that moment on. Routes that say so take a call token as well, as a bearer.

use std::net::{IpAddr, Ipv4Addr};

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use http::HeaderMap;
use http::request::Parts;

use super::error::ApiError;
use super::scope::{Scope, Scopes};
use crate::ids::{AccountId, AgentId, ApiKeyId, SessionId};

/// The account and key behind a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    pub account: AccountId,
    /// Of a call token: the key that minted it; nil where there was none.
    pub key: ApiKeyId,
    pub scopes: Scopes,
    /// What a call token opens; `None`: the caller has a key.
    pub token: Option<Grant>,
}

/// What of an account a call token opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Tells tokens apart.
    pub id: uuid::Uuid,
    pub agent: AgentId,
    /// The one session, of a token that came with a keyless connect.
    pub session: Option<SessionId>,
}

impl Caller {
    /// Whose budget of requests this one uses. A token has one of its own: who holds it cannot use up
    /// that of the key.
    pub fn budget(&self) -> ApiKeyId {
        self.token.map_or(self.key, |grant| ApiKeyId(grant.id))
    }

    /// 403 unless the key has this scope.
    pub fn require(&self, scope: Scope) -> Result<(), ApiError> {
        if self.scopes.has(scope) {
            Ok(())
        } else {
            Err(ApiError::Scope(scope))
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        parts
            .extensions
            .get::<Self>()
            .copied()
            .ok_or(ApiError::Unauthorized)
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, ApiError> {
        Ok(parts.extensions.get::<Self>().copied())
    }
}

/// The address that a request comes from and counts for: behind a proxy that is believed, of the client. Set by
/// the accept loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientAddress(pub IpAddr);

impl ClientAddress {
    /// Of a request; the unspecified address when it did not come over a connection (tests).
    pub fn ip(extensions: &http::Extensions) -> IpAddr {
        extensions
            .get::<Self>()
            .map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.0)
    }
}

/// The credential of a request: `X-API-Key` before `Authorization: Bearer`.
pub fn credential(headers: &HeaderMap) -> Option<&str> {
    if let Some(key) = headers.get("x-api-key") {
        return key
            .to_str()
            .ok()
            .map(str::trim)
            .filter(|key| !key.is_empty());
    }
    let (scheme, token) = headers
        .get(http::header::AUTHORIZATION)?
        .to_str()
        .ok()?
        .split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| token.trim())
        .filter(|token| !token.is_empty())
}

/// Whether a request says anything at all about who sends it.
pub fn has_credential(headers: &HeaderMap) -> bool {
    headers.contains_key("x-api-key") || headers.contains_key(http::header::AUTHORIZATION)
}
