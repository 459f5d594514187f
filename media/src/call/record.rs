//! What remains of a call: its turns with their times, and its end. Field names are those of the
//! API's transcript turn; every `*_ms` is milliseconds on the recording's sample clock.

use serde::{Deserialize, Serialize};

use crate::peer::MediaTotals;

/// One turn of the transcript.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    pub index: u32,
    pub turn_id: String,
    pub role: Role,
    pub text: String,
    pub text_raw: Option<String>,
    pub language: String,
    /// When the turn became audible; `None` when its onset was not measured.
    pub start_ms: Option<u64>,
    pub end_ms: Option<u64>,
    pub interrupted: bool,
    pub interrupted_after_ms: Option<u64>,
    pub estimated_text_spoken: Option<String>,
    pub source: Source,
    pub confidence: Option<f32>,
    /// Of agent turns that answer a caller turn.
    pub latency: Option<Latency>,
    pub tool_calls: Vec<ToolRecord>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    User,
    Assistant,
    HumanAgent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    Speech,
    Keypad,
    Text,
    System,
}

/// From the caller's last voiced sample to the agent's first audible one, ms. The contributions are
/// contiguous and sum to `response_ms` exactly.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    pub response_ms: u64,
    pub endpoint_ms: u64,
    pub vad_hangover_ms: u64,
    pub stt_final_ms: Option<u64>,
    pub llm_ttft_ms: Option<u64>,
    pub llm_first_clause_ms: Option<u64>,
    pub tool_ms: u64,
    pub rag_ms: u64,
    pub tts_ttfb_ms: Option<u64>,
    pub tts_leading_silence_ms: u64,
    pub playout_buffer_ms: u64,
    pub network_rtt_ms: u64,
    pub jitter_buffer_ms: u64,
    pub speculative: Speculative,
    pub contributions: Vec<Contribution>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Speculative {
    pub attempts: u32,
    pub used: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contribution {
    pub key: String,
    pub owner: Owner,
    /// Offset from the caller's last voiced sample.
    pub start_ms: u64,
    pub duration_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Owner {
    Engine,
    Setting,
    Stt,
    Llm,
    Tool,
    Tts,
    Transport,
}

/// One tool call of a turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolRecord {
    pub id: String,
    pub name: String,
    /// JSON text as the model gave it.
    pub arguments: String,
    /// JSON text, cut at 4 KiB.
    pub result: Option<String>,
    pub result_truncated: bool,
    pub status: ToolStatus,
    pub error: Option<String>,
    /// On the sample clock.
    pub started_ms: u64,
    pub duration_ms: u64,
    pub filler_spoken: bool,
    /// `client`, `webhook`, `system` or `automation`.
    pub r#type: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolStatus {
    Ok,
    Error,
    Timeout,
    Canceled,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub reason: EndReason,
    pub ended_by: EndedBy,
    /// Length of the call on the sample clock.
    pub duration_ms: u64,
    /// Caller and agent turns.
    pub turn_count: u32,
    /// Sound that was lost on the way to the recording (a full ring), ms.
    pub recording_gap_ms: u64,
    /// Which of the turns' places still hold at the end, those told earlier included.
    #[serde(default)]
    pub offsets: Offsets,
    /// Replies that the caller cut short.
    #[serde(default)]
    pub interruptions: u32,
    /// Gaps within a segment of the agent's speech: its voice was slower than real time.
    #[serde(default)]
    pub underruns: u32,
    /// Characters given to the voice, those of cancelled replies too.
    pub characters: u64,
    /// Caller audio given to the recogniser, ms.
    pub heard_ms: u64,
    /// What the caller's packets came to; `None` where audio does not come in packets.
    #[serde(default)]
    pub media: Option<MediaTotals>,
    /// Errors worth showing in diagnostics, oldest first, at most 32.
    pub errors: Vec<String>,
}

/// Which turns have a known place in the recording (document 2, `start_ms`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Offsets {
    /// All whose onset was measured.
    #[default]
    Known,
    /// Only the agent's: some of the caller's audio is missing at a place that nothing tells.
    AgentOnly,
    /// None: the caller's media was connected anew during the call.
    Unknown,
}

/// Why a call ended; the words of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    CallerHangup,
    AgentEndCall,
    Phrase,
    MaxDuration,
    MaxTurns,
    SilenceTimeout,
    IdleLimit,
    /// Nobody answered, and the caller left a message.
    Voicemail,
    MediaTimeout,
    ProviderError,
    EngineError,
    EndedByApi,
    NodeLost,
}

impl EndReason {
    /// Whether a call that ends so counts as `failed` (else `completed`).
    pub const fn is_failure(self) -> bool {
        matches!(
            self,
            Self::MediaTimeout | Self::ProviderError | Self::EngineError | Self::NodeLost
        )
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::CallerHangup => "caller_hangup",
            Self::AgentEndCall => "agent_end_call",
            Self::Phrase => "phrase",
            Self::MaxDuration => "max_duration",
            Self::MaxTurns => "max_turns",
            Self::SilenceTimeout => "silence_timeout",
            Self::IdleLimit => "idle_limit",
            Self::Voicemail => "voicemail",
            Self::MediaTimeout => "media_timeout",
            Self::ProviderError => "provider_error",
            Self::EngineError => "engine_error",
            Self::EndedByApi => "ended_by_api",
            Self::NodeLost => "node_lost",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EndedBy {
    Caller,
    Agent,
    System,
    Api,
}
