//! The settings of browser audio.

use std::net::{IpAddr, SocketAddr};

use media::peer::WebRtcConfig;

use super::read::Settings;
use crate::secret::Secret;

/// Browser audio.
#[derive(Clone, Debug)]
pub struct WebRtc {
    /// Of the first media thread. `None`: the server's address and any free port.
    pub listen: Option<SocketAddr>,
    /// What browsers are told; port 0: the one that is listened on. Empty: the address listened on.
    pub public_addresses: Vec<SocketAddr>,
    pub stun_urls: Vec<String>,
    pub turn: Option<Turn>,
    /// Candidates of sessions that no API key opened are checked at private addresses, too.
    pub private_candidates: bool,
}

/// TURN servers that share a secret with this one.
#[derive(Clone, Debug)]
pub struct Turn {
    pub urls: Vec<String>,
    pub secret: Secret<String>,
    /// How long a password is good for.
    pub ttl_seconds: u32,
}

impl WebRtc {
    /// What the engine is told; `server` is where the API listens.
    pub fn to_engine(&self, server: SocketAddr) -> WebRtcConfig {
        WebRtcConfig {
            listen: self.listen.unwrap_or(SocketAddr::new(server.ip(), 0)),
            public_addresses: self.public_addresses.clone(),
        }
    }
}

/// Reads `[webrtc]`.
pub(super) fn read(settings: &mut Settings) -> WebRtc {
    let text = settings.text("webrtc.listen");
    let listen = text.parse().ok();
    if listen.is_none() && !text.is_empty() {
        settings.wrong("webrtc.listen", "must be an address and port");
    }
    let address = |text: &String| {
        let alone = || Some(SocketAddr::new(text.parse::<IpAddr>().ok()?, 0));
        text.parse::<SocketAddr>().ok().or_else(alone)
    };
    let public = settings.list("webrtc.public_addresses");
    let public_addresses: Option<Vec<SocketAddr>> = public.iter().map(address).collect();
    if public_addresses.is_none() {
        settings.wrong("webrtc.public_addresses", "must be addresses");
    }
    let mut urls = |key: &str, schemes: [&str; 2]| {
        let urls = settings.list(key);
        let right = |url: &String| {
            let rest = schemes.iter().find_map(|scheme| url.strip_prefix(scheme));
            rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'))
        };
        if !urls.iter().all(right) {
            let why = format!("must be URLs that begin with {}", schemes.join(" or "));
            settings.wrong(key, &why);
        }
        urls
    };
    let stun_urls = urls("webrtc.stun_urls", ["stun:", "stuns:"]);
    let turn_urls = urls("webrtc.turn_urls", ["turn:", "turns:"]);
    let secret = settings.text("webrtc.turn_secret");
    let ttl_seconds = settings.int("webrtc.turn_ttl_seconds", 60, 7 * 86_400);
    let turn = (!turn_urls.is_empty()).then(|| {
        if secret.is_empty() {
            let why = "must be the static-auth-secret of the servers in webrtc.turn_urls";
            settings.wrong("webrtc.turn_secret", why);
        }
        Turn {
            urls: turn_urls,
            secret: Secret::new(secret),
            ttl_seconds,
        }
    });
    WebRtc {
        listen,
        public_addresses: public_addresses.unwrap_or_default(),
        stun_urls,
        turn,
        private_candidates: settings.word(
            "webrtc.private_candidates",
            &[("with_key", false), ("all", true)],
        ),
    }
}
