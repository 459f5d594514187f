//! What a browser is told of STUN and TURN servers. Passwords of TURN last for a while only: the name is
//! a time and the password an HMAC of it, which a coturn with the same `static-auth-secret` accepts
//! (`use-auth-secret`; draft-uberti-behave-turn-rest-00).

use ring::hmac;
use schemars::JsonSchema;
use serde::Serialize;

use crate::config::WebRtc;
use crate::ids::SessionId;
use crate::time::Timestamp;

/// `ice_config` of the connect answer.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct IceConfig {
    /// To be passed to `RTCPeerConnection` as it is.
    #[serde(rename = "iceServers")]
    pub ice_servers: Vec<IceServer>,
}

/// `RTCIceServer` of the browsers' API.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct IceServer {
    /// The addresses of the server (RFC 7064, RFC 7065).
    pub urls: Vec<String>,
    /// The user name for TURN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// The password for TURN; it lasts for a while only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
}

/// The servers of the settings, with a password for this session.
pub fn ice_config(settings: &WebRtc, session: SessionId, now: Timestamp) -> IceConfig {
    let mut ice_servers = Vec::new();
    if !settings.stun_urls.is_empty() {
        ice_servers.push(IceServer {
            urls: settings.stun_urls.clone(),
            username: None,
            credential: None,
        });
    }
    if let Some(turn) = &settings.turn {
        let expires = now.seconds().saturating_add(turn.ttl_seconds.into());
        // What follows the colon is for coturn's log.
        let username = format!("{expires}:{session}");
        let credential = password(turn.secret.expose(), &username);
        ice_servers.push(IceServer {
            urls: turn.urls.clone(),
            username: Some(username),
            credential: Some(credential),
        });
    }
    IceConfig { ice_servers }
}

/// SHA-1 is what coturn takes; nothing else here uses it.
fn password(secret: &str, username: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret.as_bytes());
    let tag = hmac::sign(&key, username.as_bytes());
    base64_simd::STANDARD.encode_to_string(tag.as_ref())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::Turn;
    use crate::secret::Secret;

    #[test]
    fn a_password_is_what_coturn_computes() {
        // printf '1767323105:3f2a' | openssl dgst -sha1 -hmac north -binary | base64
        assert_eq!(
            password("north", "1767323105:3f2a"),
            "yFGuqAlTcAUIWQS+Y23ItdfY3K0="
        );
    }

    #[test]
    fn servers_are_told_as_browsers_take_them() {
        let mut settings = WebRtc {
            listen: None,
            public_addresses: Vec::new(),
            stun_urls: vec!["stun:stun.example.com:3478".to_owned()],
            turn: None,
            private_candidates: false,
        };
        let now = Timestamp(1_767_323_045_000_006);
        let shown = |settings: &WebRtc| {
            serde_json::to_value(ice_config(settings, SessionId::NIL, now)).unwrap_or_default()
        };
        assert_eq!(
            shown(&settings),
            json!({"iceServers": [{"urls": ["stun:stun.example.com:3478"]}]})
        );
        settings.stun_urls.clear();
        assert_eq!(shown(&settings), json!({"iceServers": []}));
        settings.turn = Some(Turn {
            urls: vec!["turn:turn.example.com:3478?transport=udp".to_owned()],
            secret: Secret::new("north".to_owned()),
            ttl_seconds: 60,
        });
        let server = &shown(&settings)["iceServers"][0];
        let username = "1767323105:00000000-0000-0000-0000-000000000000";
        assert_eq!(server["username"], username);
        assert_eq!(server["credential"], password("north", username));
    }
}
