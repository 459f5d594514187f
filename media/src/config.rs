//! What a call is told at its start. Plain data, made by the control plane; the first line of a tape
//! holds it as JSON, so a replay starts from the same words.

use serde::{Deserialize, Serialize};

use crate::leg::rtp::RtpPlan;

/// Everything that one call needs to know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallConfig {
    /// The id that session, call and conversation share (a UUID in text).
    pub session_id: String,
    pub agent_id: String,
    pub direction: Direction,
    pub protocol: Protocol,
    pub audio_format: AudioFormat,
    pub agent: AgentConfig,
    /// Keep the sound of both sides.
    pub recording: bool,
    /// Which of the opt-in server events the client asked for (`?events=a,b`).
    pub events: OptionalEvents,
    /// How speech is told from noise.
    pub vad: VadKind,
    /// Agent audio is sent at most this far ahead of its playing time, ms (0 to 400).
    pub lead_ms: u32,
}

/// Who called whom. Inbound: the agent greets first. Outbound: the answering person speaks first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    Inbound,
    Outbound,
}

/// What the caller speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    Native,
    Telco,
    /// No WebSocket but WebRTC; the native protocol's events run over its data channel `events`.
    WebRtc,
    /// A telephone call: RTP and no messages.
    Rtp(RtpPlan),
}

/// The audio on the wire, both ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AudioFormat {
    /// 16-bit little-endian PCM, 16 kHz.
    #[serde(rename = "pcm_16000")]
    Pcm16000,
    /// G.711 μ-law, 8 kHz.
    #[serde(rename = "ulaw_8000")]
    Ulaw8000,
    /// Opus in RTP, whose clock always counts 48 kHz (RFC 7587 section 4.1).
    #[serde(rename = "opus_48000")]
    Opus48000,
}

impl AudioFormat {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pcm16000 => "pcm_16000",
            Self::Ulaw8000 => "ulaw_8000",
            Self::Opus48000 => "opus_48000",
        }
    }

    /// Samples a second on the wire, Hz.
    pub const fn sample_rate(self) -> u32 {
        match self {
            Self::Pcm16000 => 16_000,
            Self::Ulaw8000 => 8_000,
            Self::Opus48000 => 48_000,
        }
    }
}

/// The native protocol's opt-in server events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OptionalEvents {
    pub agent_response_correction: bool,
    pub tool_call: bool,
    pub turn_metrics: bool,
    pub vad: bool,
}

/// The detector behind the VAD.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VadKind {
    /// A small neural detector behind an energy gate.
    #[default]
    Neural,
    /// Energy over a tracked noise floor.
    Energy,
}

/// How soon the agent takes the turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Eagerness {
    Patient,
    #[default]
    Normal,
    Eager,
}

/// The language that is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    #[default]
    English,
    French,
}

/// How closely the model follows the prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Adherence {
    #[default]
    Strict,
    Medium,
    Loose,
}

/// Who ends a call besides the caller and the limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndCallBehavior {
    /// The phrases, and the model when it finds that the conversation is over.
    #[default]
    AutoDetect,
    /// The phrases; the model is not offered to. One that hangs up all the same is heeded.
    PhrasesOnly,
}

/// A guardrail of the agent's own that is switched on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guardrail {
    pub name: String,
    pub prompt: String,
}

/// The agent's settings as far as the engine acts on them. Names as in the API; defaults applied. A
/// tape that was written before a setting was known has its default.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentConfig {
    pub name: String,
    /// With every placeholder filled.
    pub system_prompt: String,
    /// `None`: the agent waits for the caller.
    pub first_message: Option<String>,
    pub language: Language,
    pub temperature: Option<f64>,
    pub max_tokens: u32,
    /// What the model is sent and what it answers, tokens: older turns are left out to fit.
    pub max_context_tokens: u32,
    pub frequency_penalty: f64,
    pub presence_penalty: f64,
    /// Drop older turns once there are more than this many; `None`: keep all.
    pub history_max_turns: Option<u32>,
    pub max_duration_seconds: u32,
    pub silence_timeout_seconds: Option<u32>,
    pub max_turns: Option<u32>,
    pub interruption_enabled: bool,
    /// Seconds of voiced speech that interrupt the agent; 0 = the first voiced frame.
    pub barge_in_min_speech_secs: f64,
    pub turn_eagerness: Eagerness,
    pub end_call_enabled: bool,
    pub end_call_phrases: Vec<String>,
    pub end_call_behavior: EndCallBehavior,
    pub focus_guardrail_enabled: bool,
    pub content_guardrail_enabled: bool,
    pub custom_guardrails: Vec<Guardrail>,
    pub script_adherence: Adherence,
    pub keypad_capture_enabled: bool,
    pub idle_check_in_after_secs: f64,
    /// 0 = unlimited.
    pub max_idle_attempts: u32,
    /// `None`: no filler line.
    pub soft_timeout_seconds: Option<f64>,
    pub soft_timeout_message: String,
    pub response_min_sentences: u32,
    pub response_max_sentences: u32,
    pub tools: Vec<ToolSpec>,
    /// Nobody answers: after `first_message` and a tone the caller leaves a message.
    pub message: Option<MessageLimits>,
}

/// How long a caller may speak whose message is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageLimits {
    /// From the tone on.
    pub max_seconds: u32,
    /// A pause of this length ends it.
    pub silence_seconds: u32,
}

impl Default for AgentConfig {
    /// The documented defaults, for tests and demos; the prompt is empty.
    fn default() -> Self {
        Self {
            name: String::new(),
            system_prompt: String::new(),
            first_message: None,
            language: Language::English,
            temperature: None,
            max_tokens: 512,
            max_context_tokens: 32_768,
            frequency_penalty: 0.4,
            presence_penalty: 0.9,
            history_max_turns: None,
            max_duration_seconds: 1800,
            silence_timeout_seconds: None,
            max_turns: None,
            interruption_enabled: true,
            barge_in_min_speech_secs: 0.6,
            turn_eagerness: Eagerness::Normal,
            end_call_enabled: true,
            end_call_phrases: Vec::new(),
            end_call_behavior: EndCallBehavior::AutoDetect,
            focus_guardrail_enabled: true,
            content_guardrail_enabled: false,
            custom_guardrails: Vec::new(),
            script_adherence: Adherence::Strict,
            keypad_capture_enabled: true,
            idle_check_in_after_secs: 15.0,
            max_idle_attempts: 0,
            soft_timeout_seconds: None,
            soft_timeout_message: String::new(),
            response_min_sentences: 2,
            response_max_sentences: 3,
            tools: Vec::new(),
            message: None,
        }
    }
}

/// A tool the model may call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    pub name: String,
    pub description: String,
    /// Who runs it: `client` over the socket, everything else by the control plane.
    pub kind: ToolKind,
    /// JSON Schema of the arguments, as text.
    pub parameters: String,
    pub timeout_ms: u32,
    /// Spoken while the tool runs.
    pub filler_message: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolKind {
    Client,
    Webhook,
    System,
    Automation,
}
