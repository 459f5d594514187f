//! What a connect may ask for, and what a session's status is. Pure.

use media::config::{AudioFormat, Direction, OptionalEvents, Protocol};

use super::wire::Connect;
use crate::http::validate::FieldError;
use crate::ids::SessionId;

/// A session as it was asked for, with the defaults of the API applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    pub direction: Direction,
    pub protocol: Protocol,
    pub audio_format: AudioFormat,
}

/// Reads the wishes of a connect whose fields are right one by one.
pub fn plan(body: &Connect) -> Result<Plan, Vec<FieldError>> {
    let mut errors = Vec::new();
    if body.transport.as_deref().unwrap_or("webrtc") != "websocket" {
        errors.push(FieldError::body(
            "transport",
            "enum",
            "Input should be 'websocket': this server does not offer webrtc (the default) yet",
        ));
    }
    let direction = match body.direction.as_deref() {
        Some("outbound") => Direction::Outbound,
        _ => Direction::Inbound,
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
    if errors.is_empty() {
        Ok(Plan {
            direction,
            protocol,
            audio_format,
        })
    } else {
        Err(errors)
    }
}

/// The protocol of this name; `native` for any other word.
pub fn protocol(name: &str) -> Protocol {
    if name == "telco" {
        Protocol::Telco
    } else {
        Protocol::Native
    }
}

/// The audio format of this name; `pcm_16000` for any other word.
pub fn audio_format(name: &str) -> AudioFormat {
    if name == "ulaw_8000" {
        AudioFormat::Ulaw8000
    } else {
        AudioFormat::Pcm16000
    }
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

/// The API's word.
pub const fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Inbound => "inbound",
        Direction::Outbound => "outbound",
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
pub fn status(call_status: &str, joined: bool, ended: bool) -> &'static str {
    match (ended, call_status, joined) {
        (true, "failed", _) => "failed",
        (true, ..) => "ended",
        (false, _, true) => "live",
        (false, _, false) => "open",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that fails should stop at once")]

    use serde_json::{Value, json};

    use super::*;

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
        let expected = Plan {
            direction: Direction::Inbound,
            protocol: Protocol::Native,
            audio_format: AudioFormat::Pcm16000,
        };
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
        let expected = Plan {
            direction: Direction::Outbound,
            protocol: Protocol::Telco,
            audio_format: AudioFormat::Ulaw8000,
        };
        assert_eq!(planned(body), Ok(expected));
        let body = json!({"transport": "websocket", "audio_format": "ulaw_8000"});
        assert_eq!(planned(body).unwrap().audio_format, AudioFormat::Ulaw8000);
    }

    #[test]
    fn a_transport_that_is_not_there_is_named() {
        for body in [
            json!({}),
            json!({"transport": null}),
            json!({"transport": "webrtc"}),
        ] {
            assert_eq!(planned(body), Err(vec!["transport".to_owned()]));
        }
    }

    #[test]
    fn telco_takes_mu_law_only() {
        for body in [
            json!({"transport": "websocket", "protocol": "telco"}),
            json!({"transport": "websocket", "protocol": "telco", "audio_format": "pcm_16000"}),
        ] {
            assert_eq!(planned(body), Err(vec!["audio_format".to_owned()]));
        }
        assert_eq!(
            planned(json!({"protocol": "telco"})),
            Err(vec!["transport".to_owned(), "audio_format".to_owned()])
        );
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
        assert_eq!(status("queued", false, false), "open");
        assert_eq!(status("in_progress", true, false), "live");
        assert_eq!(status("completed", true, true), "ended");
        assert_eq!(status("canceled", false, true), "ended");
        assert_eq!(status("failed", true, true), "failed");
    }
}
