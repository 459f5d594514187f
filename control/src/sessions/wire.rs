//! Bodies of the session routes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::ice_config::IceConfig;
use super::rules::{Status as Standing, Transport};
use crate::agents;
use crate::calls::rules::Direction;
pub use crate::cluster::route::SdpType;
use crate::cluster::route::TrickledCandidate;
use crate::http::scope::Scopes;
use crate::http::validate::{Kind, Shape};
use crate::http::wire::body;
use crate::ids::{AgentId, CallId};
use crate::time::Timestamp;

/// The longest session description, characters: those of browsers have about 8,000 with video in them.
const LONGEST_SDP: usize = 64 * 1024;
/// The most candidates of one request: a browser on many networks gathers a few dozen in all.
const MOST_CANDIDATES: usize = 64;
/// The longest result of a tool, bytes of JSON.
pub const TOOL_RESULT_LIMIT: usize = 64 * 1024;

body! {
    /// The body of `POST /conversation/connect`. Null counts as absent, and fields that are not known
    /// here are ignored: browser clients of other servers send such.
    pub open struct Connect = "Connect";
    required agent_id: AgentId, "The agent that answers or calls; one of the account's.";
    nullable dynamic_variables: Map<String, Value> = agents::wire::VARIABLES,
        "Values for the agent's placeholders, in this session only; they go over its own defaults. Ignored without an API key.";
    nullable transport: Transport,
        "How the audio travels. Default webrtc: an offer comes next. websocket needs an API key.";
    nullable direction: Direction,
        "WebSocket only. Default inbound: the agent greets as soon as the socket connects. outbound: the answering person speaks first.";
    nullable protocol: String = Kind::Enum(PROTOCOLS),
        "WebSocket only. Default native: JSON events with the text of what is said. telco: the telephony vendor's media-stream format.";
    nullable audio_format: String = Kind::Enum(AUDIO_FORMATS),
        "WebSocket only. Default pcm_16000: 16-bit PCM, 16 kHz. ulaw_8000: G.711 mu-law, 8 kHz, the only one that telco takes.";
    // Held against E.164 where it counts: on a WebSocket.
    nullable caller_phone: String = Kind::Str { min: 0, max: 1000 },
        "WebSocket only, E.164. Saved as from_number (inbound) or to_number (outbound), and fills system__caller_id or system__called_number.";
}

/// What the messages of a session's socket may be, by the words of the engine's own type.
const PROTOCOLS: &[&str] = &["native", "telco"];
/// How their audio may be coded, by the words of the engine's own type.
const AUDIO_FORMATS: &[&str] = &["pcm_16000", "ulaw_8000"];

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
    #[schemars(extend("enum" = [Transport::WebSocket]))]
    pub transport: Transport,
    /// The WebSocket to join. One holder may join it, once, before `expires_at`; the URL itself is the credential.
    pub ws_url: String,
    /// What the socket's messages are: JSON events, or a telephony vendor's media stream.
    #[schemars(extend("enum" = PROTOCOLS))]
    pub protocol: &'static str,
    /// How the audio is coded, both ways.
    #[schemars(extend("enum" = AUDIO_FORMATS))]
    pub audio_format: &'static str,
    pub direction: Direction,
    pub expires_at: Timestamp,
}

/// A session whose offer is awaited.
#[derive(Serialize, JsonSchema)]
pub struct BrowserSession {
    pub session_id: CallId,
    /// How the audio travels.
    #[schemars(extend("enum" = [Transport::WebRtc]))]
    pub transport: Transport,
    /// The STUN and TURN servers that the browser should use.
    pub ice_config: IceConfig,
    /// A call token, with which a caller without a credential goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    pub expires_at: Timestamp,
}

body! {
    /// The body of `POST /conversation/token`.
    pub struct MintToken = "MintToken";
    required agent_id: AgentId, "The one agent that the token is good for; one of the account's.";
    nullable ttl_seconds: i64 = Kind::int(i64::MIN, i64::MAX),
        "How long it lasts; brought into 60 to 4320. Default: the agent's longest call and a minute.";
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

body! {
    /// The body of `POST /conversation/{id}/offer`. Null counts as absent, and fields that are not known
    /// here are ignored.
    pub open struct Offer = "Offer";
    required sdp: String = Kind::Str { min: 1, max: LONGEST_SDP },
        "The session description (RFC 8866). Candidates may stand in it or come later.";
    required kind as "type": SdpType, "offer; answer only to the server's own offer.";
    nullable pc_id: String = Kind::Str { min: 0, max: 200 },
        "Left out in the first offer; then the id that it was answered with.";
    nullable restart_pc: bool, "Take a new peer connection in place of the one there is.";
}

body! {
    /// The query of both offers.
    pub query WantedEvents;
    optional events: String = Kind::Str { min: 0, max: 1000 },
        "Which opt-in events the data channel carries, with commas between: agent_response_correction, tool_call, turn_metrics, vad. The offer that joins the session decides.";
}

/// A description of this server's, with the id of the peer connection that it is about.
#[derive(Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Description")]
pub struct Described {
    /// The session description (RFC 8866). Left out where the client's answer has settled all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sdp: Option<String>,
    /// What the description is: an answer to the client's offer, or the server's own offer.
    #[serde(rename = "type")]
    #[schemars(extend("enum" = [SdpType::Answer, SdpType::Offer]))]
    pub kind: SdpType,
    /// The id of the peer connection that it is about. Later requests name it.
    pub pc_id: String,
    pub session_id: CallId,
}

body! {
    /// The body of `PATCH /conversation/{id}/ice`. Fields that are not known here are ignored.
    pub open struct Trickle = "Trickle";
    required pc_id: String = Kind::Str { min: 1, max: 200 }, "The id that the offer was answered with.";
    required candidates: Vec<TrickledCandidate> = Kind::list(&TrickledCandidate::KIND, 0, MOST_CANDIDATES),
        "Candidates of the client; an empty one ends them.";
}

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
    pub status: Standing,
    /// How the audio travels.
    pub transport: Transport,
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

body! {
    /// The body of `POST /conversation/{id}/end` and of `POST /calls/{id}/end`; may be left out.
    #[derive(Default)]
    pub struct End = "End";
    nullable reason: String = Kind::Str { min: 0, max: 120 }, "Why, for the server's log.";
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

body! {
    /// The body of `POST /conversation/{id}/tool-result`.
    pub struct ToolResult = "ToolResult";
    required tool_call_id: String = Kind::Str { min: 1, max: 200 }, "The id that the tool call came with.";
    stated result: Value = Kind::Any, "What the tool answers, any JSON up to 64 KiB.";
    default is_error: bool, "The tool failed; result says how.";
}

/// The answer is on its way into the call.
#[derive(Serialize, JsonSchema)]
pub struct ToolAccepted {
    /// Always true.
    pub accepted: bool,
    pub tool_call_id: String,
}
