//! A turn of a transcript as the API shows it. The rows hold it as JSON ([`crate::calls::rules::turn_json`]); these
//! types tell the OpenAPI document what is in it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Something that was said, by either side.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Turn")]
pub struct TurnRecord {
    /// The place of the turn in its conversation, from 0.
    pub index: u32,
    pub turn_id: String,
    /// Who speaks.
    pub role: Role,
    /// What was said.
    pub text: String,
    /// What the recogniser heard, where a correction changed it; of caller turns only.
    pub text_raw: Option<String>,
    pub language: String,
    /// When it became audible: offset on the call's recording, ms. Null when that was not measured.
    pub start_ms: Option<u64>,
    /// When it was over: offset on the call's recording, ms. Null when that was not measured.
    pub end_ms: Option<u64>,
    /// Whether the other side cut it short.
    pub interrupted: bool,
    /// How long the agent had spoken when it was interrupted, ms.
    pub interrupted_after_ms: Option<u64>,
    /// The part of the text that fits in that time.
    pub estimated_text_spoken: Option<String>,
    /// How it came in.
    pub source: Source,
    /// How sure the recogniser is of the words, from 0 to 1.
    pub confidence: Option<f64>,
    /// How long the caller waited, of the agent's turns that answer one.
    pub latency: Option<Latency>,
    /// The tools that the agent called in it.
    pub tool_calls: Vec<ToolCall>,
}

/// Who speaks.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    User,
    Assistant,
    HumanAgent,
}

/// How a turn came in.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    Speech,
    Keypad,
    Text,
    System,
}

/// From the caller's last voiced sample to the first audible one of the answer, ms.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// All of it: what the caller waited for.
    pub response_ms: u64,
    /// Until the caller's turn was taken to be over.
    pub endpoint_ms: u64,
    /// The part of that in which the voice detector waited for speech to go on.
    pub vad_hangover_ms: u64,
    /// The part of that in which the recogniser's final words were waited for, beyond the silence that is set.
    pub stt_final_ms: Option<u64>,
    /// Until the language model's first token, from its request.
    pub llm_ttft_ms: Option<u64>,
    /// From that token to the first clause that can be spoken.
    pub llm_first_clause_ms: Option<u64>,
    /// Time that tools took.
    pub tool_ms: u64,
    /// Always 0: there are no knowledge bases yet.
    pub rag_ms: u64,
    /// Until the synthesiser's first audio, from its request.
    pub tts_ttfb_ms: Option<u64>,
    /// Silence that the synthesised audio began with, and that was cut off.
    pub tts_leading_silence_ms: u64,
    /// From the first audio until it was heard.
    pub playout_buffer_ms: u64,
    /// The round trip of the network; 0 where it is not measured.
    pub network_rtt_ms: u64,
    /// How long the caller's audio waited in the jitter buffer.
    pub jitter_buffer_ms: u64,
    /// Answers that were begun before the caller's turn was over.
    pub speculative: Speculative,
    /// Where the time went: they touch, and sum to `response_ms`.
    pub contributions: Vec<Contribution>,
}

/// Answers that were begun before the caller's turn was over.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Speculative {
    /// How many were begun.
    pub attempts: u32,
    /// Whether the answer is one of them.
    pub used: bool,
}

/// A piece of a turn's latency.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Contribution {
    /// What took the time, such as `endpoint`, `llm_first_clause` or `tts_ttfb`.
    pub key: String,
    /// Who can make it shorter.
    pub owner: Owner,
    /// When it began: offset from the caller's last voiced sample, ms.
    pub start_ms: u64,
    pub duration_ms: u64,
}

/// Who can make a piece of the latency shorter.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
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

/// A tool that the agent called.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolCall {
    /// The id that the language model gave the call.
    pub id: String,
    /// The name of the tool.
    pub name: String,
    /// What the tool was called with: JSON as the model gave it; text where it is none.
    pub arguments: Value,
    /// What the tool answered: JSON as the tool gave it; text where it is none, or was cut at 4 KiB.
    pub result: Value,
    /// Whether `result` was cut.
    pub result_truncated: bool,
    /// How it ended.
    pub status: ToolStatus,
    /// What went wrong.
    pub error: Option<String>,
    pub started_ms: u64,
    pub duration_ms: u64,
    /// Whether the agent said something to fill the time.
    pub filler_spoken: bool,
    /// The kind of tool: `client`, `webhook`, `system` or `automation`.
    pub r#type: String,
}

/// How a tool call ended.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ToolStatus {
    Ok,
    Error,
    Timeout,
    Canceled,
}
