//! Call tokens: what a browser holds in place of an API key (document 2, POST /conversation/token).
//!
//! A JWT (RFC 7519) with an Ed25519 signature (`EdDSA`, RFC 8037). Tokens are read by this program only,
//! so there is nothing to negotiate: one header, byte for byte, and a token that says anything else of
//! its algorithm, or names a key of its own, is none. The signing key follows from the master key; a
//! token of an older master key is good until that is retired.

use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use base64_simd::URL_SAFE_NO_PAD as BASE64;

use crate::api_keys::store::{ApiKey, Status};
use crate::http::auth::{Caller, Grant};
use crate::http::scope::Scope;
use crate::http::{ApiError, scope::Scopes};
use crate::ids::{AccountId, AgentId, ApiKeyId, SessionId};
use crate::node::Node;
use crate::secret::{MasterKey, Purpose};
use crate::time::Timestamp;

/// `{"alg":"EdDSA","typ":"JWT"}`.
const HEADER: &str = "eyJhbGciOiJFZERTQSIsInR5cCI6IkpXVCJ9";
const ISSUER: &str = "sidetone";
const AUDIENCE: &str = "conversation";
/// A longer token is refused unread; ours have about 600 characters.
const LONGEST: usize = 2048;

/// What a token says, by the names of RFC 7519 section 4.1 and our own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    iss: String,
    aud: String,
    pub sub: AgentId,
    pub account: AccountId,
    /// The API key that minted it; without one the token belongs to a keyless session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kid: Option<ApiKeyId>,
    /// The one session that it opens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sid: Option<SessionId>,
    pub scopes: Vec<Scope>,
    /// Seconds since 1970.
    pub iat: i64,
    pub exp: i64,
    pub jti: Uuid,
}

impl Claims {
    /// Of a token that this key mints for one agent: it has what of the key's scopes is about calls.
    pub fn minted_by(caller: &Caller, agent: AgentId, jti: Uuid, now: Timestamp, ttl: u32) -> Self {
        let calls = |scope: &Scope| matches!(scope, Scope::CallsRead | Scope::CallsWrite);
        Self {
            kid: Some(caller.key),
            scopes: caller.scopes.iter().filter(calls).collect(),
            ..Self::new(caller.account, agent, jti, now, ttl)
        }
    }

    /// Of the token that comes with a keyless session: good for this session.
    pub fn of_session(
        account: AccountId,
        agent: AgentId,
        session: SessionId,
        now: Timestamp,
        ttl: u32,
    ) -> Self {
        Self {
            sid: Some(session),
            scopes: vec![Scope::CallsRead, Scope::CallsWrite],
            ..Self::new(account, agent, session.0, now, ttl)
        }
    }

    fn new(account: AccountId, agent: AgentId, jti: Uuid, now: Timestamp, ttl: u32) -> Self {
        Self {
            iss: ISSUER.to_owned(),
            aud: AUDIENCE.to_owned(),
            sub: agent,
            account,
            kid: None,
            sid: None,
            scopes: Vec::new(),
            iat: now.seconds(),
            exp: now.seconds().saturating_add(ttl.into()),
            jti,
        }
    }
}

/// Signs a token. `None`: the signing key cannot be made, which no master key brings about.
pub fn mint(master: &MasterKey, claims: &Claims) -> Option<String> {
    let claims = serde_json::to_vec(claims).ok()?;
    let signed = format!("{HEADER}.{}", BASE64.encode_to_string(claims));
    let signature = key_pair(master)?.sign(signed.as_bytes());
    Some(format!("{signed}.{}", BASE64.encode_to_string(signature)))
}

/// What a token says that this installation signed and that has not expired; `None` for any other text.
pub fn read(master: &MasterKey, token: &str, now: Timestamp) -> Option<Claims> {
    if token.len() > LONGEST {
        return None;
    }
    let (signed, signature) = token.rsplit_once('.')?;
    let (header, claims) = signed.split_once('.')?;
    if header != HEADER {
        return None;
    }
    let signature = BASE64.decode_to_vec(signature).ok()?;
    let genuine = master.each().iter().filter_map(key_pair).any(|key| {
        UnparsedPublicKey::new(&ED25519, key.public_key().as_ref())
            .verify(signed.as_bytes(), &signature)
            .is_ok()
    });
    if !genuine {
        return None;
    }
    let claims: Claims = serde_json::from_slice(&BASE64.decode_to_vec(claims).ok()?).ok()?;
    let ours = claims.iss == ISSUER && claims.aud == AUDIENCE;
    (ours && now.seconds() < claims.exp).then_some(claims)
}

/// The caller behind a token; `None`: it opens nothing. It never opens more than the key that minted it
/// does now, and nothing once that key is revoked or has expired.
pub async fn caller(app: &Node, token: &str) -> Result<Option<Caller>, ApiError> {
    let now = app.clock.now();
    let Some(claims) = read(&app.master_key, token, now) else {
        return Ok(None);
    };
    let granted: Scopes = claims.scopes.iter().copied().collect();
    let (key, scopes) = match (claims.kid, claims.sid) {
        (Some(id), _) => match app.db.of::<ApiKey>(claims.account).get(id).await? {
            Some(key) if key.status(now) == Status::Active => {
                let both = granted.iter().filter(|scope| key.scopes.has(*scope));
                (id, both.collect())
            }
            _ => return Ok(None),
        },
        (None, Some(_)) => (ApiKeyId::NIL, granted),
        (None, None) => return Ok(None),
    };
    Ok(Some(Caller {
        account: claims.account,
        key,
        scopes,
        token: Some(Grant {
            id: claims.jti,
            agent: claims.sub,
            session: claims.sid,
        }),
    }))
}

fn key_pair(master: &MasterKey) -> Option<Ed25519KeyPair> {
    let seed = master.sign(Purpose::CallToken, b"ed25519 seed");
    Ed25519KeyPair::from_seed_unchecked(&seed).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that fails should stop at once")]

    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;

    const NOW: Timestamp = Timestamp(1_767_323_045_000_006);

    fn master(byte: u8) -> MasterKey {
        MasterKey::from_base64(&base64_simd::STANDARD.encode_to_string([byte; 32])).unwrap()
    }

    fn claims() -> Claims {
        let id = Uuid::from_u128;
        Claims::of_session(AccountId(id(1)), AgentId(id(2)), SessionId::NIL, NOW, 90)
    }

    /// A token with these parts, signed as the others are.
    fn signed(header: &Value, claims: &Value) -> String {
        let part = |value: &Value| BASE64.encode_to_string(value.to_string());
        let text = format!("{}.{}", part(header), part(claims));
        let signature = key_pair(&master(3)).unwrap().sign(text.as_bytes());
        format!("{text}.{}", BASE64.encode_to_string(signature))
    }

    #[test]
    fn a_token_says_what_it_was_made_of() {
        let token = mint(&master(3), &claims()).unwrap();
        assert_eq!(read(&master(3), &token, NOW), Some(claims()));
        let parts: Vec<&str> = token.split('.').collect();
        assert_eq!(parts.len(), 3);
        let header = BASE64.decode_to_vec(parts[0]).unwrap();
        assert_eq!(header, br#"{"alg":"EdDSA","typ":"JWT"}"#);
        let body: Value = serde_json::from_slice(&BASE64.decode_to_vec(parts[1]).unwrap()).unwrap();
        let (issued, expires) = (&body["iat"], &body["exp"]);
        assert_eq!(
            (issued, expires),
            (&json!(1_767_323_045), &json!(1_767_323_135))
        );
        assert_eq!(body["scopes"], json!(["calls:read", "calls:write"]));
        assert!(body.get("kid").is_none());
    }

    #[test]
    fn a_token_lasts_to_its_second() {
        let token = mint(&master(3), &claims()).unwrap();
        let after = |seconds| NOW.plus(Duration::from_secs(seconds));
        assert!(read(&master(3), &token, after(89)).is_some());
        assert!(read(&master(3), &token, after(90)).is_none());
    }

    #[test]
    fn no_altered_call_token_is_read() {
        let token = mint(&master(3), &claims()).unwrap();
        let last = token.len() - 1;
        for index in 0..token.len() {
            // The last character of the signature holds bits that stand for nothing.
            for other in ['A', '.', '-', '='].iter().filter(|_| index < last) {
                let mut altered: Vec<char> = token.chars().collect();
                if altered[index] == *other {
                    continue;
                }
                altered[index] = *other;
                let altered: String = altered.into_iter().collect();
                assert_eq!(read(&master(3), &altered, NOW), None, "{index}: {altered}");
            }
        }
        for cut in [0, 1, 36, 37, last] {
            assert_eq!(read(&master(3), &token[..cut], NOW), None);
        }
        assert_eq!(read(&master(4), &token, NOW), None);
    }

    #[test]
    fn a_token_of_another_algorithm_or_for_somebody_else_is_none() {
        let claims = serde_json::to_value(claims()).unwrap();
        let right = json!({"alg": "EdDSA", "typ": "JWT"});
        assert!(read(&master(3), &signed(&right, &claims), NOW).is_some());
        for header in [
            json!({"alg": "none", "typ": "JWT"}),
            json!({"alg": "None"}),
            json!({"alg": "HS256", "typ": "JWT"}),
            json!({"alg": "RS256", "typ": "JWT"}),
            json!({"alg": "ES256", "typ": "JWT"}),
            json!({"alg": "EdDSA", "kid": "../../dev/null", "typ": "JWT"}),
            json!({"alg": "EdDSA", "jwk": {"kty": "OKP", "crv": "Ed25519", "x": "AA"}}),
            json!({"typ": "JWT"}),
            json!([]),
        ] {
            let token = signed(&header, &claims);
            assert_eq!(read(&master(3), &token, NOW), None, "{header}");
            // Nor without a signature.
            let bare = token.rsplit_once('.').unwrap().0;
            for unsigned in [bare.to_owned(), format!("{bare}.")] {
                assert_eq!(read(&master(3), &unsigned, NOW), None, "{header}");
            }
        }
        for (name, value) in [
            ("iss", json!("somebody")),
            ("aud", json!("elsewhere")),
            ("exp", json!("never")),
            ("exp", json!(null)),
            ("scopes", json!(["calls:read", "calls:fly"])),
            ("sub", json!("x")),
        ] {
            let mut changed = claims.clone();
            changed[name] = value;
            let token = signed(&right, &changed);
            assert_eq!(read(&master(3), &token, NOW), None, "{changed}");
        }
        // A public key is no secret to sign with (an old trick).
        let public = key_pair(&master(3)).unwrap();
        let header = BASE64.encode_to_string(r#"{"alg":"HS256","typ":"JWT"}"#);
        let text = format!("{header}.{}", BASE64.encode_to_string(claims.to_string()));
        let forged = crate::secret::hmac(public.public_key().as_ref(), text.as_bytes());
        let token = format!("{text}.{}", BASE64.encode_to_string(forged));
        assert_eq!(read(&master(3), &token, NOW), None);
        assert_eq!(read(&master(3), &"A".repeat(LONGEST + 1), NOW), None);
    }
}
