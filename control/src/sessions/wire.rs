//! Bodies of the session routes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::http::extract::Wire;
use crate::http::validate::{Field, Kind, Schema, Unknown};
use crate::ids::{AgentId, CallId};
use crate::time::Timestamp;

/// The longest result of a tool, bytes of JSON.
pub const TOOL_RESULT_LIMIT: usize = 64 * 1024;

/// The body of `POST /conversation/connect`. Null counts as absent, and fields that are not known
/// here are ignored: browser clients of other servers send such.
#[derive(Deserialize)]
pub struct Connect {
    pub agent_id: AgentId,
    pub dynamic_variables: Option<Map<String, Value>>,
    pub transport: Option<String>,
    pub direction: Option<String>,
    pub protocol: Option<String>,
    pub audio_format: Option<String>,
    pub caller_phone: Option<String>,
}

impl Wire for Connect {
    const SCHEMA: &'static Schema = &Schema {
        name: "Connect",
        unknown: Unknown::Ignore,
        fields: &[
            Field::req("agent_id", Kind::Uuid, "The agent that answers or calls; one of the account's."),
            Field::opt(
                "dynamic_variables",
                Kind::Scalars {
                    max: 200,
                    key_ok: |key| (1..=64).contains(&key.chars().count()) && !key.starts_with("system__"),
                    key_rule: "1 to 64 characters, not starting with system__",
                },
                "Values for the agent's placeholders, in this session only; they go over its own defaults.",
            )
            .nullable(),
            Field::opt(
                "transport",
                Kind::Enum(&["webrtc", "websocket"]),
                "How the audio travels. Default webrtc, which this server does not offer yet: pass websocket.",
            )
            .nullable(),
            Field::opt(
                "direction",
                Kind::Enum(&["inbound", "outbound"]),
                "Default inbound: the agent greets as soon as the socket connects. outbound: the answering person speaks first.",
            )
            .nullable(),
            Field::opt(
                "protocol",
                Kind::Enum(&["native", "telco"]),
                "Default native: JSON events with the text of what is said. telco: the telephony vendor's media-stream format.",
            )
            .nullable(),
            Field::opt(
                "audio_format",
                Kind::Enum(&["pcm_16000", "ulaw_8000"]),
                "Default pcm_16000: 16-bit PCM, 16 kHz. ulaw_8000: G.711 mu-law, 8 kHz, the only one that telco takes.",
            )
            .nullable(),
            Field::opt(
                "caller_phone",
                Kind::E164,
                "Saved as from_number (inbound) or to_number (outbound), and fills system__caller_id or system__called_number.",
            )
            .nullable(),
        ],
    };
}

/// A session that waits for its caller.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Session")]
pub struct Connected {
    pub session_id: CallId,
    #[schemars(extend("enum" = ["websocket"]))]
    pub transport: &'static str,
    /// One holder may join it, once, before `expires_at`; the URL itself is the credential.
    pub ws_url: String,
    #[schemars(extend("enum" = ["native", "telco"]))]
    pub protocol: &'static str,
    #[schemars(extend("enum" = ["pcm_16000", "ulaw_8000"]))]
    pub audio_format: &'static str,
    #[schemars(extend("enum" = ["inbound", "outbound"]))]
    pub direction: &'static str,
    pub expires_at: Timestamp,
}

/// Where a session stands.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SessionStatus")]
pub struct Status {
    pub session_id: CallId,
    pub call_id: CallId,
    #[schemars(extend("enum" = ["created", "open", "live", "ended", "failed"]))]
    pub status: &'static str,
    #[schemars(extend("enum" = ["webrtc", "websocket"]))]
    pub transport: String,
    pub agent_id: AgentId,
    /// What the agent does now; null outside of a live call.
    #[schemars(extend("enum" = ["listening", "thinking", "speaking", "tool", "on_hold", null]))]
    pub agent_state: Option<&'static str>,
    pub pc_id: Option<String>,
    pub connection_state: &'static str,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub duration_seconds: f64,
    pub turn_count: i64,
    pub end_reason: Option<String>,
    pub quality: Quality,
}

/// How well the media travels; a socket measures none of it.
#[derive(Default, Serialize, JsonSchema)]
pub struct Quality {
    pub rtt_ms: Option<f64>,
    pub loss_pct: Option<f64>,
    pub jitter_ms: Option<f64>,
    pub mos: Option<f64>,
}

/// The body of `POST /conversation/{id}/end` and of `POST /calls/{id}/end`; may be left out.
#[derive(Default, Deserialize)]
pub struct End {
    pub reason: Option<String>,
}

impl Wire for End {
    const SCHEMA: &'static Schema = &Schema {
        name: "End",
        unknown: Unknown::Refuse,
        fields: &[Field::opt(
            "reason",
            Kind::Str { min: 0, max: 120 },
            "Why, for the server's log.",
        )
        .nullable()],
    };
}

/// A session that is over.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SessionEnded")]
pub struct Ended {
    pub session_id: CallId,
    #[schemars(extend("enum" = ["ended"]))]
    pub status: &'static str,
    pub end_reason: Option<String>,
    pub ended_at: Option<Timestamp>,
    /// It had ended before this request.
    pub already_ended: bool,
}

/// The body of `POST /conversation/{id}/tool-result`.
#[derive(Deserialize)]
pub struct ToolResult {
    pub tool_call_id: String,
    #[serde(default)]
    pub result: Value,
    #[serde(default)]
    pub is_error: bool,
}

impl Wire for ToolResult {
    const SCHEMA: &'static Schema = &Schema {
        name: "ToolResult",
        unknown: Unknown::Refuse,
        fields: &[
            Field::req(
                "tool_call_id",
                Kind::Str { min: 1, max: 200 },
                "The id that the tool call came with.",
            ),
            Field::req(
                "result",
                Kind::Any,
                "What the tool answers, any JSON up to 64 KiB.",
            )
            .nullable(),
            Field::opt("is_error", Kind::Bool, "The tool failed; result says how."),
        ],
    };
}

/// The answer is on its way into the call.
#[derive(Serialize, JsonSchema)]
pub struct ToolAccepted {
    pub accepted: bool,
    pub tool_call_id: String,
}
