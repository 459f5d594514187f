//! The live recogniser's messages. Pure.

use serde_json::Value;

use super::super::complaint::{self, Complaint};
use super::session::Recognition;

/// What a message of the server says.
#[derive(Debug, PartialEq)]
pub(super) enum Said {
    /// A result, and what the server calls the connection, if it says so.
    Result(Recognition, Option<String>),
    /// What the server calls the connection.
    Named(String),
    /// The server gives up: why.
    Error(Complaint),
    /// Nothing of interest, or nothing known.
    Other,
}

pub(super) const FINALIZE: &str = r#"{"type":"Finalize"}"#;
pub(super) const KEEP_ALIVE: &str = r#"{"type":"KeepAlive"}"#;
pub(super) const CLOSE_STREAM: &str = r#"{"type":"CloseStream"}"#;

/// Reads one message. What is not JSON is nothing known.
pub(super) fn read(text: &str) -> Said {
    let Ok(message) = serde_json::from_str::<Value>(text) else {
        return Said::Other;
    };
    match message["type"].as_str() {
        Some("Results") => {}
        _ if complaint::is_error(&message) => {
            let mut words = complaint::read(text);
            if words.message == complaint::line(text) {
                words.message = "an error without words".to_owned();
            }
            return Said::Error(words);
        }
        Some("Metadata") => {
            let id = message["request_id"].as_str();
            return id.map_or(Said::Other, |id| Said::Named(id.to_owned()));
        }
        _ => return Said::Other,
    }
    let best = &message["channel"]["alternatives"][0];
    let span = message["start"].as_f64().zip(message["duration"].as_f64());
    let heard = Recognition {
        span: span.filter(|(start, length)| start.is_finite() && length.is_finite()),
        is_final: message["is_final"].as_bool().unwrap_or(false),
        from_finalize: message["from_finalize"].as_bool().unwrap_or(false),
        text: best["transcript"].as_str().unwrap_or_default().to_owned(),
        confidence: best["confidence"].as_f64().map(|value| value as f32),
    };
    let name = message["metadata"]["request_id"].as_str();
    Said::Result(heard, name.map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read() {
        let text = r#"{"type":"Results","channel_index":[0,1],"duration":1.5,"start":2.0,"is_final":true,
            "speech_final":false,"from_finalize":true,
            "channel":{"alternatives":[{"transcript":"two rooms","confidence":0.5,"words":[]}]},
            "metadata":{"request_id":"8f2a","model_info":{}}}"#;
        let heard = Recognition {
            span: Some((2.0, 1.5)),
            is_final: true,
            from_finalize: true,
            text: "two rooms".into(),
            confidence: Some(0.5),
        };
        assert_eq!(read(text), Said::Result(heard, Some("8f2a".into())));
        let bare = Said::Result(Recognition::default(), None);
        assert_eq!(
            read(r#"{"type":"Results","channel":{"alternatives":[]}}"#),
            bare
        );
        for (text, code, words) in [
            (
                r#"{"type":"Error","description":"no such model"}"#,
                None,
                "no such model",
            ),
            (
                r#"{"err_code":"INSUFFICIENT_CREDITS","err_msg":"Out of credits."}"#,
                Some("INSUFFICIENT_CREDITS"),
                "Out of credits.",
            ),
            (
                r#"{"error":{"code":"policy","message":"Not this."}}"#,
                Some("policy"),
                "Not this.",
            ),
            (r#"{"type":"Error"}"#, None, "an error without words"),
        ] {
            let (code, message) = (code.map(str::to_owned), words.to_owned());
            let said = Said::Error(Complaint { code, message });
            assert_eq!(read(text), said, "{text}");
        }
        assert_eq!(
            read(r#"{"type":"Metadata","request_id":"8f2a","duration":0.0,"channels":0}"#),
            Said::Named("8f2a".into())
        );
        for other in ["", "[]", "{}", r#"{"type":"Metadata"}"#, "nonsense"] {
            assert_eq!(read(other), Said::Other);
        }
    }
}
