//! Bodies of the session routes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::ice_config::IceConfig;
use crate::cluster::route::TrickledCandidate;
use crate::http::extract::Wire;
use crate::http::scope::Scopes;
use crate::http::validate::{Field, Kind, Schema, Unknown};
use crate::ids::{AgentId, CallId};
use crate::time::Timestamp;

/// The longest session description, characters: those of browsers have about 8,000 with video in them.
const LONGEST_SDP: usize = 64 * 1024;
/// The most candidates of one request: a browser on many networks gathers a few dozen in all.
const MOST_CANDIDATES: usize = 64;
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
                "Values for the agent's placeholders, in this session only; they go over its own defaults. Ignored without an API key.",
            )
            .nullable(),
            Field::opt(
                "transport",
                Kind::Enum(&["webrtc", "websocket"]),
                "How the audio travels. Default webrtc: an offer comes next. websocket needs an API key.",
            )
            .nullable(),
            Field::opt(
                "direction",
                Kind::Enum(&["inbound", "outbound"]),
                "WebSocket only. Default inbound: the agent greets as soon as the socket connects. outbound: the answering person speaks first.",
            )
            .nullable(),
            Field::opt(
                "protocol",
                Kind::Enum(&["native", "telco"]),
                "WebSocket only. Default native: JSON events with the text of what is said. telco: the telephony vendor's media-stream format.",
            )
            .nullable(),
            Field::opt(
                "audio_format",
                Kind::Enum(&["pcm_16000", "ulaw_8000"]),
                "WebSocket only. Default pcm_16000: 16-bit PCM, 16 kHz. ulaw_8000: G.711 mu-law, 8 kHz, the only one that telco takes.",
            )
            .nullable(),
            // Held against E.164 where it counts: on a WebSocket.
            Field::opt(
                "caller_phone",
                Kind::Str { min: 0, max: 1000 },
                "WebSocket only, E.164. Saved as from_number (inbound) or to_number (outbound), and fills system__caller_id or system__called_number.",
            )
            .nullable(),
        ],
    };
}

/// A session that waits for its caller: for a socket, or for a browser's offer.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "Session")]
pub enum Connected {
    Socket(SocketSession),
    Browser(BrowserSession),
}

impl Connected {
    pub const fn session_id(&self) -> CallId {
        match self {
            Self::Socket(session) => session.session_id,
            Self::Browser(session) => session.session_id,
        }
    }
}

/// A session whose socket is awaited.
#[derive(Serialize, JsonSchema)]
pub struct SocketSession {
    pub session_id: CallId,
    /// How the audio travels.
    #[schemars(extend("enum" = ["websocket"]))]
    pub transport: &'static str,
    /// The WebSocket to join. One holder may join it, once, before `expires_at`; the URL itself is the credential.
    pub ws_url: String,
    /// What the socket's messages are: JSON events, or a telephony vendor's media stream.
    #[schemars(extend("enum" = ["native", "telco"]))]
    pub protocol: &'static str,
    /// How the audio is coded, both ways.
    #[schemars(extend("enum" = ["pcm_16000", "ulaw_8000"]))]
    pub audio_format: &'static str,
    #[schemars(extend("enum" = ["inbound", "outbound"]))]
    pub direction: &'static str,
    pub expires_at: Timestamp,
}

/// A session whose offer is awaited.
#[derive(Serialize, JsonSchema)]
pub struct BrowserSession {
    pub session_id: CallId,
    /// How the audio travels.
    #[schemars(extend("enum" = ["webrtc"]))]
    pub transport: &'static str,
    /// The STUN and TURN servers that the browser should use.
    pub ice_config: IceConfig,
    /// A call token, with which a caller without a credential goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    pub expires_at: Timestamp,
}

/// The body of `POST /conversation/token`.
#[derive(Deserialize)]
pub struct MintToken {
    pub agent_id: AgentId,
    pub ttl_seconds: Option<i64>,
}

impl Wire for MintToken {
    const SCHEMA: &'static Schema = &Schema {
        name: "MintToken",
        unknown: Unknown::Refuse,
        fields: &[
            Field::req(
                "agent_id",
                Kind::Uuid,
                "The one agent that the token is good for; one of the account's.",
            ),
            Field::opt(
                "ttl_seconds",
                Kind::Int {
                    min: i64::MIN,
                    max: i64::MAX,
                },
                "How long it lasts; brought into 60 to 4320. Default: the agent's longest call and a minute.",
            )
            .nullable(),
        ],
    };
}

/// A call token.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "CallToken")]
pub struct Minted {
    /// The token, to be sent as `Authorization: Bearer`.
    pub token: String,
    /// How the token is sent.
    #[schemars(extend("enum" = ["Bearer"]))]
    pub token_type: &'static str,
    pub agent_id: AgentId,
    /// How many seconds it lasts.
    pub expires_in: u32,
    pub expires_at: Timestamp,
    /// What the token may do, at most what its key may.
    pub scopes: Scopes,
}

/// The body of `POST /conversation/{id}/offer`. Null counts as absent, and fields that are not known
/// here are ignored.
#[derive(Deserialize)]
pub struct Offer {
    pub sdp: String,
    pub r#type: String,
    pub pc_id: Option<String>,
    pub restart_pc: Option<bool>,
}

impl Wire for Offer {
    const SCHEMA: &'static Schema = &Schema {
        name: "Offer",
        unknown: Unknown::Ignore,
        fields: &[
            Field::req(
                "sdp",
                Kind::Str {
                    min: 1,
                    max: LONGEST_SDP,
                },
                "The session description (RFC 8866). Candidates may stand in it or come later.",
            ),
            Field::req(
                "type",
                Kind::Enum(&["offer", "answer"]),
                "offer; answer only to the server's own offer.",
            ),
            Field::opt(
                "pc_id",
                Kind::Str { min: 0, max: 200 },
                "Left out in the first offer; then the id that it was answered with.",
            )
            .nullable(),
            Field::opt(
                "restart_pc",
                Kind::Bool,
                "Take a new peer connection in place of the one there is.",
            )
            .nullable(),
        ],
    };
}

/// The query of both offers.
#[derive(Deserialize)]
pub struct WantedEvents {
    pub events: Option<String>,
}

impl Wire for WantedEvents {
    const SCHEMA: &'static Schema = &Schema {
        name: "WantedEvents",
        unknown: Unknown::Ignore,
        fields: &[Field::opt(
            "events",
            Kind::Str { min: 0, max: 1000 },
            "Which opt-in events the data channel carries, with commas between: agent_response_correction, tool_call, turn_metrics, vad. The offer that joins the session decides.",
        )],
    };
}

/// A description of this server's, with the id of the peer connection that it is about.
#[derive(Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Description")]
pub struct Described {
    /// The session description (RFC 8866). Left out where the client's answer has settled all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sdp: Option<String>,
    /// What the description is: an answer to the client's offer, or the server's own offer.
    #[schemars(extend("enum" = ["answer", "offer"]))]
    pub r#type: String,
    /// The id of the peer connection that it is about. Later requests name it.
    pub pc_id: String,
    pub session_id: CallId,
}

/// The body of `PATCH /conversation/{id}/ice`. Fields that are not known here are ignored.
#[derive(Deserialize)]
pub struct Trickle {
    pub pc_id: String,
    pub candidates: Vec<TrickledCandidate>,
}

impl Wire for Trickle {
    const SCHEMA: &'static Schema = &Schema {
        name: "Trickle",
        unknown: Unknown::Ignore,
        fields: &[
            Field::req(
                "pc_id",
                Kind::Str { min: 1, max: 200 },
                "The id that the offer was answered with.",
            ),
            Field::req(
                "candidates",
                Kind::List {
                    item: &Kind::OpenObject(CANDIDATE),
                    min: 0,
                    max: MOST_CANDIDATES,
                },
                "Candidates of the client; an empty one ends them.",
            ),
        ],
    };
}

const CANDIDATE: &[Field] = &[
    Field::req(
        "candidate",
        Kind::Str { min: 0, max: 1024 },
        "As RTCIceCandidate.candidate (RFC 8839 section 5.1); empty: there are no more.",
    ),
    Field::opt(
        "sdp_mid",
        Kind::Str { min: 0, max: 256 },
        "The media section that it belongs to, by its mid.",
    )
    .nullable(),
    Field::opt(
        "sdp_mline_index",
        Kind::Int {
            min: 0,
            max: 65_535,
        },
        "The same by its place.",
    )
    .nullable(),
];

/// Candidates that were taken.
#[derive(Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Trickled")]
pub struct Trickled {
    /// Always `ok`.
    #[schemars(extend("enum" = ["ok"]))]
    pub status: String,
    /// How many candidates were taken.
    pub accepted: usize,
}

/// Where a session stands.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SessionStatus")]
pub struct Status {
    pub session_id: CallId,
    pub call_id: CallId,
    /// Where the session stands: waiting to be joined (`created`, `open`), `live`, or over (`ended`, `failed`).
    #[schemars(extend("enum" = ["created", "open", "live", "ended", "failed"]))]
    pub status: &'static str,
    /// How the audio travels.
    #[schemars(extend("enum" = ["webrtc", "websocket"]))]
    pub transport: String,
    pub agent_id: AgentId,
    /// What the agent does now; null outside of a live call.
    #[schemars(extend("enum" = ["listening", "thinking", "speaking", "tool", "on_hold", null]))]
    pub agent_state: Option<&'static str>,
    /// The id of the peer connection, of a live browser's call.
    pub pc_id: Option<String>,
    /// The state of the transport, in the words of `RTCPeerConnection.connectionState`.
    #[schemars(extend("enum" = ["new", "connecting", "connected", "disconnected", "failed", "closed"]))]
    pub connection_state: &'static str,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub duration_seconds: f64,
    pub turn_count: i64,
    pub end_reason: Option<String>,
    /// How well the media travels.
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

impl From<media::peer::Quality> for Quality {
    fn from(quality: media::peer::Quality) -> Self {
        let media::peer::Quality {
            rtt_ms,
            loss_pct,
            jitter_ms,
            remote_loss_pct: _,
            mos,
        } = quality;
        Self {
            rtt_ms,
            loss_pct: Some(loss_pct),
            jitter_ms: Some(jitter_ms),
            mos,
        }
    }
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
    /// Always `ended`.
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
    /// Always true.
    pub accepted: bool,
    pub tool_call_id: String,
}
