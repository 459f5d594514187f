//! States of a call and of its conversation, and how each end maps to them. Pure.

use std::borrow::Cow;
use std::time::Duration;

use media::call::record::{EndReason, EndedBy, Offsets, Summary, Turn};
use media::config::{AudioFormat, Protocol};
use media::peer::MediaTotals;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::dial::rules::Unanswered;
pub use crate::live::Direction;
use crate::live::NetworkLog;
use crate::usage::CallUse;
use crate::vendors::faults::ProviderFaults;
use crate::words::words;

words! {
    /// Where a call stands.
    pub enum CallStatus {
        Queued = "queued",
        Ringing = "ringing",
        InProgress = "in_progress",
        Completed = "completed",
        Failed = "failed",
        /// Files that nodes of an earlier version left have the other spelling.
        NoAnswer = "no-answer" | "no_answer",
        Busy = "busy",
        Canceled = "canceled",
    }

    /// Where a conversation stands.
    pub enum ConversationStatus {
        Created = "created",
        InProgress = "in_progress",
        Completed = "completed",
        Failed = "failed",
        Abandoned = "abandoned",
    }

    /// How the audio of a session travels.
    pub enum Transport { WebRtc = "webrtc", WebSocket = "websocket" }

    /// What a call comes over.
    pub enum Channel {
        Telco = "telco",
        Sip = "sip",
        WebRtc = "webrtc",
        WebSocket = "websocket",
        Collab = "collab",
        ChatApp = "chatapp",
    }
}

/// How a call ended, as it is written down.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ending {
    pub status: CallStatus,
    pub conversation: ConversationStatus,
    pub reason: Cow<'static, str>,
    /// `caller`, `agent`, `system` or `api`.
    pub ended_by: Cow<'static, str>,
    /// Length of the call on the sample clock, ms; `None` when nobody ever joined.
    pub duration_ms: Option<u64>,
    /// As the engine counted; `None`: count the stored turns.
    pub turn_count: Option<u32>,
    /// Worth showing in diagnostics, oldest first.
    pub errors: Vec<String>,
    /// To be metered; `None` when the engine never ran it.
    pub used: Option<CallUse>,
    /// Which of the turns written so far keep their place in the recording.
    #[serde(default)]
    pub offsets: Offsets,
    /// `None` where the channel measures nothing.
    #[serde(default)]
    pub network: Option<Network>,
    /// The carrier's final response to our INVITE, where it ended the call.
    #[serde(default)]
    pub sip_code: Option<u16>,
    /// What the providers call their answers, oldest first.
    #[serde(default)]
    pub provider_request_ids: Vec<String>,
    /// What the providers did wrong, if anything.
    #[serde(default)]
    pub provider_faults: Option<Box<ProviderFaults>>,
    /// It was over before the caller was told of the answer that the record has.
    #[serde(default)]
    pub never_answered: bool,
}

/// How the audio of a call travelled, for diagnostics.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Network {
    /// Mean round trip, ms.
    pub rtt_ms: Option<f64>,
    /// Of the caller's packets, per cent.
    pub loss_pct: Option<f64>,
    /// Mean, ms.
    pub jitter_ms: Option<f64>,
    /// Mean; an estimate.
    pub mos: Option<f64>,
    /// What the caller's packets came to.
    pub media: MediaTotals,
}

/// What is written down of the network; `None` where nothing was measured.
pub fn network(log: NetworkLog, totals: Option<MediaTotals>) -> Option<Network> {
    let media = totals?;
    let [rtt_ms, jitter_ms, mos] = log
        .means()
        .map(|mean| mean.map(|mean| (mean * 100.0).round() / 100.0));
    let sent = media.packets + media.lost;
    // Packets of a call are far below 2^52: exact.
    let loss_pct = (sent > 0).then(|| (media.lost as f64 * 1e4 / sent as f64).round() / 100.0);
    Some(Network {
        rtt_ms,
        loss_pct,
        jitter_ms,
        mos,
        media,
    })
}

impl Ending {
    /// The end that the engine reported.
    pub fn of(summary: &Summary) -> Self {
        let failed = summary.reason.is_failure();
        Self {
            status: if failed {
                CallStatus::Failed
            } else {
                CallStatus::Completed
            },
            conversation: if failed {
                ConversationStatus::Failed
            } else {
                ConversationStatus::Completed
            },
            reason: Cow::Borrowed(summary.reason.name()),
            ended_by: Cow::Borrowed(ended_by(summary.ended_by)),
            duration_ms: Some(summary.duration_ms),
            turn_count: Some(summary.turn_count),
            errors: summary.errors.clone(),
            used: Some(CallUse {
                duration_ms: summary.duration_ms,
                characters: summary.characters,
                heard_ms: summary.heard_ms,
                tokens: 0,
            }),
            offsets: summary.offsets,
            network: None,
            sip_code: None,
            provider_request_ids: Vec::new(),
            provider_faults: None,
            never_answered: false,
        }
    }

    /// The process that hosted the call is gone. `duration_ms` is what its recording still tells.
    pub fn node_lost(duration_ms: Option<u64>) -> Self {
        Self::failed(EndReason::NodeLost, duration_ms, Vec::new())
    }

    /// The call could not start, or the engine dropped it without a word.
    pub fn engine_error(error: String) -> Self {
        Self::failed(EndReason::EngineError, None, vec![error])
    }

    /// A speech provider of the call could not be had.
    pub fn provider_error(error: String) -> Self {
        Self::failed(EndReason::ProviderError, None, vec![error])
    }

    /// Nobody joined in time.
    pub const fn session_expired() -> Self {
        Self::never_joined("session_expired", "system")
    }

    /// An API client ended it before anybody joined.
    pub const fn canceled_by_api() -> Self {
        Self::never_joined("ended_by_api", "api")
    }

    /// The account may not spend: the call never began.
    pub const fn billing_blocked() -> Self {
        Self::never_joined("ended_by_api", "system")
    }

    /// A call that we placed and nobody answered.
    pub fn unanswered(end: &Unanswered) -> Self {
        Self {
            status: end.status,
            conversation: end.conversation(),
            sip_code: end.sip_code,
            never_answered: true,
            ..Self::never_joined(end.reason, end.ended_by)
        }
    }

    /// Two telephones that heard each other through us, for so long.
    pub fn joined(reason: &'static str, ended_by: &'static str, lasted: Duration) -> Self {
        let duration_ms = u64::try_from(lasted.as_millis()).unwrap_or(u64::MAX);
        let (status, conversation) = match reason {
            "media_timeout" | "engine_error" => (CallStatus::Failed, ConversationStatus::Failed),
            _ => (CallStatus::Completed, ConversationStatus::Completed),
        };
        Self {
            status,
            conversation,
            duration_ms: Some(duration_ms),
            used: Some(CallUse {
                duration_ms,
                ..CallUse::default()
            }),
            ..Self::never_joined(reason, ended_by)
        }
    }

    const fn never_joined(reason: &'static str, ended_by: &'static str) -> Self {
        Self {
            status: CallStatus::Canceled,
            conversation: ConversationStatus::Abandoned,
            reason: Cow::Borrowed(reason),
            ended_by: Cow::Borrowed(ended_by),
            duration_ms: None,
            turn_count: None,
            errors: Vec::new(),
            used: None,
            offsets: Offsets::Known,
            network: None,
            sip_code: None,
            provider_request_ids: Vec::new(),
            provider_faults: None,
            never_answered: false,
        }
    }

    fn failed(reason: EndReason, duration_ms: Option<u64>, errors: Vec<String>) -> Self {
        Self {
            status: CallStatus::Failed,
            conversation: ConversationStatus::Failed,
            reason: Cow::Borrowed(reason.name()),
            ended_by: Cow::Borrowed("system"),
            duration_ms,
            turn_count: None,
            errors,
            // Of a call whose process died only the length is known.
            used: duration_ms.map(|duration_ms| CallUse {
                duration_ms,
                ..CallUse::default()
            }),
            offsets: Offsets::Known,
            network: None,
            sip_code: None,
            provider_request_ids: Vec::new(),
            provider_faults: None,
            never_answered: false,
        }
    }
}

/// The turn as the API shows it: arguments and results of tools as JSON, where they are JSON.
pub fn turn_json(turn: &Turn) -> Value {
    let mut value = serde_json::to_value(turn).unwrap_or(Value::Null);
    if let Some(confidence) = turn.confidence {
        // An f32 widened to f64 would show digits nobody measured.
        value["confidence"] = Value::from((f64::from(confidence) * 1000.0).round() / 1000.0);
    }
    if let Some(calls) = value.get_mut("tool_calls").and_then(Value::as_array_mut) {
        for call in calls {
            for key in ["arguments", "result"] {
                let parsed = call
                    .get(key)
                    .and_then(Value::as_str)
                    .and_then(|text| serde_json::from_str(text).ok());
                if let Some(parsed) = parsed {
                    call[key] = parsed;
                }
            }
        }
    }
    value
}

/// Takes the place in the recording from those turns that have lost it. Whether `turn` was one.
pub fn forget_place(turn: &mut Value, offsets: Offsets) -> bool {
    let forgotten = match offsets {
        Offsets::Known => false,
        Offsets::AgentOnly => turn["role"] == "user",
        Offsets::Unknown => true,
    };
    let forgotten = forgotten && !turn["start_ms"].is_null();
    if forgotten {
        turn["start_ms"] = Value::Null;
        turn["end_ms"] = Value::Null;
    }
    forgotten
}

/// The transcript as text: one line a turn, `Agent: … / Caller: … / Human agent: …`.
pub fn transcript_text(turns: &[Value]) -> String {
    let mut text = String::new();
    for turn in turns {
        let words = turn
            .get("text")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .trim();
        if words.is_empty() {
            continue;
        }
        let speaker = match turn.get("role").and_then(Value::as_str) {
            Some("assistant") => "Agent",
            Some("human_agent") => "Human agent",
            _ => "Caller",
        };
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(speaker);
        text.push_str(": ");
        text.push_str(words);
    }
    text
}

const fn ended_by(who: EndedBy) -> &'static str {
    match who {
        EndedBy::Caller => "caller",
        EndedBy::Agent => "agent",
        EndedBy::System => "system",
        EndedBy::Api => "api",
    }
}

/// The protocol of this name; `native` for any other word.
pub fn protocol(name: &str) -> Protocol {
    match name {
        "telco" => Protocol::Telco,
        "webrtc" => Protocol::WebRtc,
        _ => Protocol::Native,
    }
}

/// The audio format of this name; `pcm_16000` for any other word.
pub fn audio_format(name: &str) -> AudioFormat {
    match name {
        "ulaw_8000" => AudioFormat::Ulaw8000,
        "opus_48000" => AudioFormat::Opus48000,
        _ => AudioFormat::Pcm16000,
    }
}

#[cfg(test)]
mod tests {
    use media::call::record::{Role, Source, ToolRecord, ToolStatus};
    use serde_json::json;

    use super::*;

    #[test]
    fn an_end_that_an_earlier_version_wrote_down_is_read() {
        let ending = Ending::node_lost(None);
        let mut written = json!(ending);
        for (word, status) in [
            ("no_answer", CallStatus::NoAnswer),
            ("no-answer", CallStatus::NoAnswer),
            ("in_progress", CallStatus::InProgress),
        ] {
            written["status"] = json!(word);
            let read: Ending = serde_json::from_value(written.clone()).unwrap_or(ending.clone());
            assert_eq!(read.status, status, "{word}");
        }
    }

    fn turn() -> Turn {
        Turn {
            index: 1,
            turn_id: "t1".into(),
            role: Role::User,
            text: " Hello there. ".into(),
            text_raw: None,
            language: "english".into(),
            start_ms: Some(100),
            end_ms: Some(900),
            interrupted: false,
            interrupted_after_ms: None,
            estimated_text_spoken: None,
            source: Source::Speech,
            confidence: Some(0.9),
            latency: None,
            tool_calls: vec![ToolRecord {
                id: "c1".into(),
                name: "weather".into(),
                arguments: r#"{"city":"Lyon"}"#.into(),
                result: Some("plain words".into()),
                result_truncated: false,
                status: ToolStatus::Ok,
                error: None,
                started_ms: 1,
                duration_ms: 2,
                filler_spoken: false,
                r#type: "client".into(),
            }],
        }
    }

    #[test]
    fn a_turn_shows_json_where_there_is_json() {
        let value = turn_json(&turn());
        assert_eq!(value["tool_calls"][0]["arguments"], json!({"city": "Lyon"}));
        assert_eq!(value["tool_calls"][0]["result"], json!("plain words"));
        assert_eq!(value["confidence"], json!(0.9));
        assert_eq!(value["role"], json!("user"));
    }

    #[test]
    fn turns_lose_their_places_as_the_engine_says() {
        let told = || {
            let turn = |role: &str, ms| json!({"role": role, "start_ms": ms, "end_ms": ms});
            [
                turn("user", json!(7)),
                turn("assistant", json!(9)),
                turn("user", Value::Null),
            ]
        };
        for (offsets, changed, places) in [
            (
                Offsets::Known,
                [false, false, false],
                [json!(7), json!(9), Value::Null],
            ),
            (
                Offsets::AgentOnly,
                [true, false, false],
                [Value::Null, json!(9), Value::Null],
            ),
            (
                Offsets::Unknown,
                [true, true, false],
                [Value::Null, Value::Null, Value::Null],
            ),
        ] {
            let mut turns = told();
            assert_eq!(
                turns.each_mut().map(|t| forget_place(t, offsets)),
                changed,
                "{offsets:?}"
            );
            assert_eq!(
                turns.each_ref().map(|t| t["start_ms"].clone()),
                places,
                "{offsets:?}"
            );
            assert_eq!(
                turns.each_ref().map(|t| t["end_ms"].clone()),
                places,
                "{offsets:?}"
            );
        }
    }

    #[test]
    fn the_api_document_knows_all_of_a_turn() {
        let mut turn = turn();
        turn.latency = Some(media::call::record::Latency::default());
        let shown = turn_json(&turn);
        let read: super::super::turn::TurnRecord = serde_json::from_value(shown.clone())
            .unwrap_or_else(|error| unreachable!("{error}: {shown}"));
        assert_eq!(json!(read), shown);
    }

    #[test]
    fn a_transcript_reads_as_lines() {
        let agent = json!({"role": "assistant", "text": "Good day."});
        let human = json!({"role": "human_agent", "text": "Hi."});
        let silent = json!({"role": "assistant", "text": " "});
        assert_eq!(
            transcript_text(&[agent, turn_json(&turn()), silent, human]),
            "Agent: Good day.\nCaller: Hello there.\nHuman agent: Hi."
        );
    }

    #[test]
    fn every_end_of_the_engine_has_its_status() {
        let reasons = [
            (EndReason::CallerHangup, "completed"),
            (EndReason::AgentEndCall, "completed"),
            (EndReason::MaxDuration, "completed"),
            (EndReason::EndedByApi, "completed"),
            (EndReason::MediaTimeout, "failed"),
            (EndReason::ProviderError, "failed"),
            (EndReason::EngineError, "failed"),
            (EndReason::NodeLost, "failed"),
        ];
        for (reason, status) in reasons {
            let summary = Summary {
                reason,
                ended_by: EndedBy::System,
                duration_ms: 5,
                turn_count: 0,
                recording_gap_ms: 0,
                offsets: Offsets::AgentOnly,
                interruptions: 0,
                underruns: 0,
                characters: 12,
                heard_ms: 3,
                media: None,
                errors: Vec::new(),
            };
            let ending = Ending::of(&summary);
            assert_eq!(ending.status.name(), status, "{reason:?}");
            assert_eq!(ending.conversation.name(), status, "{reason:?}");
            assert_eq!(ending.reason, reason.name());
            assert_eq!(ending.offsets, Offsets::AgentOnly);
            let used = ending
                .used
                .map(|used| (used.duration_ms, used.characters, used.heard_ms));
            assert_eq!(used, Some((5, 12, 3)));
        }
    }

    #[test]
    fn a_session_that_nobody_joined_is_canceled() {
        let ending = Ending::session_expired();
        assert_eq!(
            (ending.status.name(), ending.conversation.name()),
            ("canceled", "abandoned")
        );
        assert_eq!(ending.reason, "session_expired");
    }
}
