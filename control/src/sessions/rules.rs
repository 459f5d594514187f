//! What a connect may ask for, and what a session's status is. Pure.

use media::config::{AudioFormat, Direction, OptionalEvents, Protocol};

use super::store::SessionRow;
use super::wire::Connect;
use crate::calls;
pub use crate::calls::rules::Transport;
use crate::calls::rules::{CallStatus, Channel, audio_format, protocol};
use crate::http::auth::Grant;
use crate::http::validate::{FieldError, origin_address};
use crate::ids::{AgentId, SessionId};
use crate::numbers::is_e164;
use crate::words::words;

words! {
    /// Where a session stands.
    pub enum Status {
        /// Not yet to be joined.
        Created = "created",
        Open = "open",
        Live = "live",
        Ended = "ended",
        Failed = "failed",
    }
}

/// A session as it was asked for, with the defaults of the API applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    Browser,
    Socket(Socket),
}

/// What a WebSocket is to speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Socket {
    pub direction: Direction,
    pub protocol: Protocol,
    pub audio_format: AudioFormat,
}

/// Reads the wishes of a connect whose fields are right one by one. What is about WebSockets means
/// nothing for a browser.
pub fn plan(body: &Connect) -> Result<Plan, Vec<FieldError>> {
    if body.transport != Some(Transport::WebSocket) {
        return Ok(Plan::Browser);
    }
    let mut errors = Vec::new();
    let direction = match body.direction {
        Some(calls::rules::Direction::Outbound) => Direction::Outbound,
        Some(calls::rules::Direction::Inbound) | None => Direction::Inbound,
    };
    let protocol = protocol(body.protocol.as_deref().unwrap_or("native"));
    let audio_format = audio_format(body.audio_format.as_deref().unwrap_or("pcm_16000"));
    if protocol == Protocol::Telco && audio_format != AudioFormat::Ulaw8000 {
        errors.push(FieldError::body(
            "audio_format",
            "enum",
            "Input should be 'ulaw_8000' with the protocol telco (the default is pcm_16000)",
        ));
    }
    if body
        .caller_phone
        .as_deref()
        .is_some_and(|phone| !is_e164(phone))
    {
        errors.push(FieldError::body(
            "caller_phone",
            "string_pattern_mismatch",
            r"String should match pattern '^\+[1-9]\d{1,14}$'",
        ));
    }
    if errors.is_empty() {
        Ok(Plan::Socket(Socket {
            direction,
            protocol,
            audio_format,
        }))
    } else {
        Err(errors)
    }
}

/// Whether a browser on this origin may speak with an agent that is open to these hosts; none: to all.
/// A program that is no browser sends no origin.
pub fn origin_may(allowed: &[String], origin: Option<&str>) -> bool {
    let Some(origin) = origin.filter(|_| !allowed.is_empty()) else {
        return true;
    };
    // `<scheme>://<host>[:<port>]` (RFC 6454 section 6.1), or `null`.
    let authority = origin.split_once("://").map_or("", |(_, rest)| rest);
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    let address = origin_address(host);
    let is_it = |name: &String| {
        name.eq_ignore_ascii_case(host) || (address.is_some() && origin_address(name) == address)
    };
    !host.is_empty() && allowed.iter().any(is_it)
}

/// How long a call token lasts, s: as long as asked for, or as a call of the agent may and a minute to
/// begin it; never outside the bounds of the API.
pub fn token_lifetime(asked: Option<i64>, longest_call: u32) -> u32 {
    const MARGIN: i64 = 60;
    let wanted = asked.unwrap_or(i64::from(longest_call) + MARGIN);
    wanted.clamp(60, 4320) as u32
}

/// Whether a call token opens a session with this agent: one that the token opened itself, or that an
/// API key of the account opened for whom it hands the token to. The token of a keyless session opens
/// that session only.
pub fn opens(grant: &Grant, session: &SessionRow, agent: AgentId) -> bool {
    grant.agent == agent
        && grant.session.is_none_or(|only| only == session.id)
        && session
            .opened_by
            .map_or(grant.session.is_none(), |id| id == grant.id)
}

/// Where a session is joined. The telephony vendor drops query strings, so its token stands in the
/// path. `public_url` has no slash at its end.
pub fn ws_url(public_url: &str, protocol: Protocol, session: SessionId, token: &str) -> String {
    let base = match public_url.strip_prefix("https://") {
        Some(rest) => format!("wss://{rest}"),
        None => format!(
            "ws://{}",
            public_url.strip_prefix("http://").unwrap_or(public_url)
        ),
    };
    match protocol {
        Protocol::Native | Protocol::WebRtc | Protocol::Rtp(_) => {
            format!("{base}/ws/v1/conversation/{session}?token={token}")
        }
        Protocol::Telco => format!("{base}/ws/v1/conversation/{session}/{token}"),
    }
}

/// The API's word.
pub const fn protocol_name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Native => "native",
        Protocol::Telco => "telco",
        Protocol::WebRtc => "webrtc",
        Protocol::Rtp(_) => "rtp",
    }
}

/// The engine's direction as the record of the call has it.
pub const fn direction(direction: Direction) -> calls::rules::Direction {
    match direction {
        Direction::Inbound => calls::rules::Direction::Inbound,
        Direction::Outbound => calls::rules::Direction::Outbound,
    }
}

impl From<Transport> for Channel {
    fn from(transport: Transport) -> Self {
        match transport {
            Transport::WebRtc => Self::WebRtc,
            Transport::WebSocket => Self::WebSocket,
        }
    }
}

/// `?events=a,b`: which opt-in server events a client wants; words it does not know are ignored.
pub fn optional_events(list: &str) -> OptionalEvents {
    let mut events = OptionalEvents::default();
    for word in list.split(',').map(str::trim) {
        match word {
            "agent_response_correction" => events.agent_response_correction = true,
            "tool_call" => events.tool_call = true,
            "turn_metrics" => events.turn_metrics = true,
            "vad" => events.vad = true,
            _ => {}
        }
    }
    events
}

/// A session's status, from its call's.
pub const fn status(call: CallStatus, joined: bool, ended: bool) -> Status {
    match (ended, call, joined) {
        (true, CallStatus::Failed, _) => Status::Failed,
        (true, ..) => Status::Ended,
        (false, _, true) => Status::Live,
        (false, _, false) => Status::Open,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that fails should stop at once")]

    use serde_json::{Value, json};
    use uuid::Uuid;

    use super::*;
    use crate::ids::AccountId;
    use crate::time::Timestamp;

    fn planned(more: Value) -> Result<Plan, Vec<String>> {
        let mut body = json!({"agent_id": "0190a000-0000-7000-8000-000000000000"});
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        plan(&serde_json::from_value(body).unwrap())
            .map_err(|errors| errors.iter().map(FieldError::path).collect())
    }

    #[test]
    fn defaults_are_those_of_the_api() {
        let expected = Plan::Socket(Socket {
            direction: Direction::Inbound,
            protocol: Protocol::Native,
            audio_format: AudioFormat::Pcm16000,
        });
        assert_eq!(planned(json!({"transport": "websocket"})), Ok(expected));
        assert_eq!(
            planned(
                json!({"transport": "websocket", "protocol": null, "audio_format": null, "direction": null})
            ),
            Ok(expected)
        );
    }

    #[test]
    fn every_choice_is_taken() {
        let body = json!({"transport": "websocket", "direction": "outbound", "protocol": "telco", "audio_format": "ulaw_8000"});
        let telco = Socket {
            direction: Direction::Outbound,
            protocol: Protocol::Telco,
            audio_format: AudioFormat::Ulaw8000,
        };
        assert_eq!(planned(body), Ok(Plan::Socket(telco)));
        let body = json!({"transport": "websocket", "audio_format": "ulaw_8000"});
        let native = Socket {
            direction: Direction::Inbound,
            protocol: Protocol::Native,
            ..telco
        };
        assert_eq!(planned(body), Ok(Plan::Socket(native)));
    }

    #[test]
    fn a_browser_is_the_default_and_what_is_for_sockets_means_nothing_to_it() {
        for body in [
            json!({}),
            json!({"transport": null}),
            json!({"transport": "webrtc", "direction": "outbound"}),
            json!({"protocol": "telco", "audio_format": "pcm_16000", "caller_phone": "12"}),
        ] {
            assert_eq!(planned(body), Ok(Plan::Browser));
        }
    }

    #[test]
    fn origins_are_hosts_and_no_list_is_open_to_all() {
        let allowed = ["shop.example.com".to_owned(), "localhost".to_owned()];
        for (origin, may) in [
            ("https://shop.example.com", true),
            ("https://SHOP.example.com:8443", true),
            ("http://localhost:3000", true),
            ("https://example.com", false),
            ("https://evil.shop.example.com", false),
            ("https://shop.example.com.evil.example", false),
            ("https://shop.example.com@evil.example", false),
            ("null", false),
            ("", false),
            ("shop.example.com", false),
            ("https://[2001:db8::7]:80", false),
        ] {
            assert_eq!(origin_may(&allowed, Some(origin)), may, "{origin}");
            assert!(origin_may(&[], Some(origin)));
        }
        assert!(origin_may(&allowed, None));
        let addresses = ["192.168.1.5".to_owned(), "2001:DB8::0:7".to_owned()];
        for (origin, may) in [
            ("http://192.168.1.5:3000", true),
            ("https://[2001:db8::7]:80", true),
            ("https://[2001:db8::7]", true),
            ("https://[2001:db8::8]", false),
            ("https://192.168.1.50", false),
        ] {
            assert_eq!(origin_may(&addresses, Some(origin)), may, "{origin}");
        }
    }

    #[test]
    fn a_token_s_lifetime_stays_within_the_bounds() {
        for (asked, longest_call, lifetime) in [
            (None, 1800, 1860),
            (None, 3600, 3660),
            (None, 86_400, 4320),
            (Some(90), 1800, 90),
            (Some(0), 1800, 60),
            (Some(-5), 1800, 60),
            (Some(i64::MAX), 1800, 4320),
            (Some(i64::MIN), 1800, 60),
        ] {
            assert_eq!(token_lifetime(asked, longest_call), lifetime, "{asked:?}");
        }
    }

    #[test]
    fn a_token_opens_what_it_opened_and_what_keys_opened_for_it() {
        let id = Uuid::from_u128;
        let (mine, other, agent) = (id(1), id(2), AgentId(id(3)));
        let session = |opened_by| SessionRow {
            id: SessionId::NIL,
            account: AccountId(id(9)),
            transport: Transport::WebRtc,
            protocol: "webrtc".to_owned(),
            audio_format: "opus_48000".to_owned(),
            keyless: false,
            opened_by,
            expires_at: Timestamp(0),
            spent_at: None,
            traceparent: None,
        };
        let grant = |session| Grant {
            id: mine,
            agent,
            session,
        };
        let (free, bound) = (grant(None), grant(Some(SessionId::NIL)));
        assert!(opens(&free, &session(None), agent));
        assert!(opens(&free, &session(Some(mine)), agent));
        assert!(!opens(&free, &session(Some(other)), agent));
        assert!(!opens(&free, &session(Some(mine)), AgentId(other)));
        assert!(opens(&bound, &session(Some(mine)), agent));
        assert!(!opens(&bound, &session(None), agent));
        assert!(!opens(&bound, &session(Some(other)), agent));
        let elsewhere = grant(Some(crate::ids::CallId(id(7))));
        assert!(!opens(&elsewhere, &session(Some(mine)), agent));
    }

    #[test]
    fn telco_takes_mu_law_only() {
        for body in [
            json!({"transport": "websocket", "protocol": "telco"}),
            json!({"transport": "websocket", "protocol": "telco", "audio_format": "pcm_16000"}),
        ] {
            assert_eq!(planned(body), Err(vec!["audio_format".to_owned()]));
        }
        let body = json!({"transport": "websocket", "protocol": "telco", "caller_phone": "12"});
        let both = vec!["audio_format".to_owned(), "caller_phone".to_owned()];
        assert_eq!(planned(body), Err(both));
    }

    #[test]
    fn a_ws_url_follows_the_public_url() {
        let id = SessionId::NIL;
        let path = "/ws/v1/conversation/00000000-0000-0000-0000-000000000000";
        assert_eq!(
            ws_url("http://a:8080", Protocol::Native, id, "t"),
            format!("ws://a:8080{path}?token=t")
        );
        assert_eq!(
            ws_url("https://a", Protocol::Telco, id, "t"),
            format!("wss://a{path}/t")
        );
    }

    #[test]
    fn opt_in_events_are_read_from_a_list() {
        let events = optional_events("vad, turn_metrics,unheard_of,");
        assert_eq!(
            events,
            OptionalEvents {
                vad: true,
                turn_metrics: true,
                ..OptionalEvents::default()
            }
        );
        assert_eq!(optional_events(""), OptionalEvents::default());
    }

    #[test]
    fn a_session_is_open_live_and_then_over() {
        assert_eq!(status(CallStatus::Queued, false, false), Status::Open);
        assert_eq!(status(CallStatus::InProgress, true, false), Status::Live);
        assert_eq!(status(CallStatus::Completed, true, true), Status::Ended);
        assert_eq!(status(CallStatus::Canceled, false, true), Status::Ended);
        assert_eq!(status(CallStatus::Failed, true, true), Status::Failed);
    }
}
