//! The two protocols of voices behind a socket: what is said to them and what they say. A segment is a
//! context of its own, so several can be under way on one connection. Pure.

use media::config::Language;
use serde_json::{Value, json};

use super::super::complaint::{self, Complaint};
use super::super::settings::ProviderKind;

/// What a voice is told, and how it is recognised what it says.
#[derive(Clone, Debug)]
pub(super) struct Dialect {
    pub(super) kind: ProviderKind,
    pub(super) model: String,
    pub(super) voice: String,
    pub(super) sample_rate: u32,
    pub(super) language: Language,
}

/// One thing that a voice said. A message that names no context is about the only one that is under way.
#[derive(Debug, PartialEq)]
pub(super) enum Said {
    /// Sound of a context.
    Audio(Option<String>, Vec<u8>),
    /// The context is complete.
    Done(Option<String>),
    /// The context, or the whole connection (`None`), failed.
    Failed(Option<String>, Complaint),
    Other,
}

impl Dialect {
    /// Path and query of the socket.
    pub(super) fn address(&self) -> (String, Vec<(&'static str, String)>) {
        match self.kind {
            ProviderKind::ElevenLabs => (
                format!("v1/text-to-speech/{}/multi-stream-input", self.voice),
                vec![
                    ("model_id", self.model.clone()),
                    ("output_format", format!("pcm_{}", self.sample_rate)),
                    ("inactivity_timeout", "180".to_owned()),
                    ("auto_mode", "true".to_owned()),
                ],
            ),
            _ => (
                "tts/websocket".to_owned(),
                vec![("cartesia_version", "2025-04-16".to_owned())],
            ),
        }
    }

    /// The header that carries the key.
    pub(super) const fn header(&self) -> &'static str {
        match self.kind {
            ProviderKind::ElevenLabs => "xi-api-key",
            _ => "X-API-Key",
        }
    }

    /// The messages that have a segment spoken.
    pub(super) fn speak(&self, context: &str, text: &str) -> Vec<String> {
        match self.kind {
            ProviderKind::ElevenLabs => vec![
                // The first message of a context opens it and holds a space.
                json!({"text": " ", "context_id": context}).to_string(),
                json!({"text": format!("{} ", text.trim()), "context_id": context, "flush": true})
                    .to_string(),
                json!({"context_id": context, "close_context": true}).to_string(),
            ],
            _ => {
                let language = match self.language {
                    Language::English => "en",
                    Language::French => "fr",
                };
                let message = json!({
                    "model_id": self.model, "transcript": text, "context_id": context,
                    "voice": {"mode": "id", "id": self.voice}, "language": language,
                    "output_format": {"container": "raw", "encoding": "pcm_s16le",
                        "sample_rate": self.sample_rate},
                    "continue": false,
                });
                vec![message.to_string()]
            }
        }
    }

    /// The message that stops a context.
    pub(super) fn cancel(&self, context: &str) -> String {
        match self.kind {
            ProviderKind::ElevenLabs => {
                json!({"context_id": context, "close_context": true}).to_string()
            }
            _ => json!({"context_id": context, "cancel": true}).to_string(),
        }
    }

    /// The last message of a connection, where there is one.
    pub(super) fn farewell(&self) -> Option<String> {
        (self.kind == ProviderKind::ElevenLabs).then(|| json!({"close_socket": true}).to_string())
    }
}

/// Reads one message of either protocol.
pub(super) fn read(text: &str) -> Vec<Said> {
    let Ok(message) = serde_json::from_str::<Value>(text) else {
        return vec![Said::Other];
    };
    // The same names are written in both ways.
    let context = ["contextId", "context_id"]
        .into_iter()
        .find_map(|name| message[name].as_str())
        .map(str::to_owned);
    let kind = message["type"].as_str().unwrap_or_default();
    if complaint::is_error(&message) || (kind.is_empty() && message["code"].is_i64()) {
        return vec![Said::Failed(context, complaint(&message, text))];
    }
    let mut said = Vec::new();
    let audio = message["audio"].as_str().or(message["data"].as_str());
    if let Some(audio) = audio.filter(|audio| !audio.is_empty()) {
        match base64_simd::STANDARD.decode_to_vec(audio) {
            Ok(bytes) => said.push(Said::Audio(context.clone(), bytes)),
            Err(_) => {
                let message = "the sound is not base64".to_owned();
                let words = Complaint {
                    code: None,
                    message,
                };
                return vec![Said::Failed(context, words)];
            }
        }
    }
    // Some end with a message of its own, and some say it beside the last sound. A flush ends no context.
    let ends = ["isFinal", "is_final", "done"]
        .iter()
        .any(|name| message[*name] == true);
    if kind == "done" || (ends && kind != "flush_done") {
        said.push(Said::Done(context));
    }
    if said.is_empty() {
        said.push(Said::Other);
    }
    said
}

/// What a provider says of a fault, with the status that it gives.
fn complaint(message: &Value, text: &str) -> Complaint {
    let mut words = complaint::read(text);
    if words.message == complaint::line(text) {
        words.message = "an error without words".to_owned();
    }
    if let Some(status) = message["status_code"].as_u64() {
        words.message = format!("status {status}: {}", words.message);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dialect(kind: ProviderKind) -> Dialect {
        Dialect {
            kind,
            model: "m".into(),
            voice: "v".into(),
            sample_rate: 16_000,
            language: Language::French,
        }
    }

    #[test]
    fn what_is_said_to_them() {
        let eleven = dialect(ProviderKind::ElevenLabs);
        assert_eq!(eleven.address().0, "v1/text-to-speech/v/multi-stream-input");
        let messages: Vec<Value> = eleven
            .speak("r1s0", "Bonjour.")
            .iter()
            .filter_map(|text| serde_json::from_str(text).ok())
            .collect();
        assert_eq!(messages[0], json!({"text": " ", "context_id": "r1s0"}));
        assert_eq!(
            messages[1],
            json!({"text": "Bonjour. ", "context_id": "r1s0", "flush": true})
        );
        assert_eq!(
            messages[2],
            json!({"context_id": "r1s0", "close_context": true})
        );
        let cartesia = dialect(ProviderKind::Cartesia);
        let message = &cartesia.speak("r1s0", "Bonjour.")[0];
        assert!(message.contains(r#""continue":false"#) && message.contains(r#""language":"fr""#));
        assert!(message.contains(r#""sample_rate":16000"#), "{message}");
        assert!(cartesia.cancel("r1s0").contains(r#""cancel":true"#));
    }

    #[test]
    fn what_they_say() {
        let audio = |context: &str| Said::Audio(Some(context.into()), vec![1, 0]);
        let done = || Said::Done(Some("c".into()));
        let failed = |context: Option<&str>, code: Option<&str>, message: &str| {
            let (code, message) = (code.map(str::to_owned), message.to_owned());
            [Said::Failed(
                context.map(str::to_owned),
                Complaint { code, message },
            )]
        };
        assert_eq!(
            read(r#"{"audio":"AQA=","contextId":"c","alignment":{"chars":["a"]}}"#),
            [audio("c")]
        );
        assert_eq!(
            read(r#"{"audio":"AQA=","context_id":"c","is_final":true}"#),
            [audio("c"), done()]
        );
        assert_eq!(
            read(r#"{"isFinal":true,"contextId":"c","audio":null}"#),
            [done()]
        );
        assert_eq!(
            read(
                r#"{"type":"chunk","data":"AQA=","done":false,"status_code":206,"context_id":"c"}"#
            ),
            [audio("c")]
        );
        assert_eq!(
            read(r#"{"type":"done","done":true,"status_code":200,"context_id":"c"}"#),
            [done()]
        );
        assert_eq!(
            read(r#"{"type":"error","error":"no such voice","status_code":404,"context_id":"c"}"#),
            failed(Some("c"), None, "status 404: no such voice")
        );
        assert_eq!(
            read(r#"{"message":"quota","error":"quota_exceeded","code":1008}"#),
            failed(None, Some("quota_exceeded"), "quota")
        );
        for (text, code, words) in [
            (
                r#"{"error":{"code":"policy_violation","message":"not this"},"context_id":null}"#,
                Some("policy_violation"),
                "not this",
            ),
            (
                r#"{"detail":{"status":"invalid_api_key","message":"Invalid API key"}}"#,
                Some("invalid_api_key"),
                "Invalid API key",
            ),
            (
                r#"{"type":"error","title":"Out of credits","status_code":402}"#,
                None,
                "status 402: Out of credits",
            ),
            (r#"{"code":1008}"#, None, "an error without words"),
        ] {
            assert_eq!(read(text), failed(None, code, words), "{text}");
        }
        // The end beside the last sound, without a type, without a context.
        for text in [
            r#"{"type":"chunk","data":"AQA=","done":true,"context_id":"c"}"#,
            r#"{"data":"AQA=","done":true,"context_id":"c"}"#,
            r#"{"audio":"AQA=","isFinal":true,"contextId":"c"}"#,
        ] {
            assert_eq!(read(text), [audio("c"), done()], "{text}");
        }
        assert_eq!(read(r#"{"done":true}"#), [Said::Done(None)]);
        assert_eq!(
            read(r#"{"audio":"AQA=","isFinal":null}"#),
            [Said::Audio(None, vec![1, 0])]
        );
        for other in [
            "nonsense",
            "{}",
            r#"{"type":"timestamps","context_id":"c","word_timestamps":{}}"#,
            r#"{"type":"flush_done","done":false,"context_id":"c"}"#,
            r#"{"type":"flush_done","done":true,"context_id":"c"}"#,
        ] {
            assert_eq!(read(other), [Said::Other], "{other}");
        }
    }
}
