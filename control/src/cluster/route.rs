//! Requests for a live session go on to the node that hosts it, over signed internal HTTP.
//!
//! `POST /internal/v1/sessions/{session_id}/{action}` with the action's arguments as JSON. The query
//! holds a time (of the database, which both share), the body's hash, and an HMAC over both and the session under the installation's master key, so
//! only a node can have made it, and not long ago: that is known before anything of the body is read. Whatever the
//! host answers is the answer; a host that cannot be reached is 502.

use std::sync::LazyLock;
use std::time::Duration;

use axum::extract::Request;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::store;
use crate::calls::store::CallRow;
use crate::http::ApiError;
use crate::http::extract::query_pairs;
use crate::http::validate::{FieldError, Kind};
use crate::http::wire::body;
use crate::ids::{AccountId, SessionId};
use crate::node::Node;
use crate::secret::{Purpose, same, sha256};
use crate::time::Timestamp;
use crate::words::words;

/// How long a request may take to arrive, and how far apart two nodes may take the database's time to be.
const FRESH: Duration = Duration::from_secs(30);
/// How long a node of the same network may take to accept.
const CONNECT: Duration = Duration::from_secs(1);
/// How long the host may take: ending a call waits up to seven seconds for its goodbye.
const ANSWER: Duration = Duration::from_secs(9);
/// A tool's answer or a session's description, escaped, with what is around it.
const BODY: usize = 192 * 1024;

/// What one node asks another.
#[derive(Debug, Deserialize, Serialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum Ask {
    Status,
    End {
        reason: Option<String>,
    },
    Offer {
        sdp: String,
        kind: SdpType,
        pc_id: Option<String>,
        restart_pc: Option<bool>,
    },
    MakeOffer,
    Ice {
        pc_id: String,
        candidates: Vec<TrickledCandidate>,
    },
    ToolResult {
        tool_call_id: String,
        result: Value,
        is_error: bool,
    },
}

words! {
    /// What a description is: an offer, or the answer to one.
    pub enum SdpType { Offer = "offer", Answer = "answer" }
}

body! {
    /// One candidate, as `RTCIceCandidate` has it.
    #[derive(Debug, Serialize)]
    pub open struct TrickledCandidate = "TrickledCandidate";
    required candidate: String = Kind::Str { min: 0, max: 1024 },
        "As RTCIceCandidate.candidate (RFC 8839 section 5.1); empty: there are no more.";
    nullable sdp_mid: String = Kind::Str { min: 0, max: 256 }, "The media section that it belongs to, by its mid.";
    nullable sdp_mline_index: u16 = Kind::int(0, 65_535), "The same by its place.";
}

/// An answer of this node, or of the one that hosts the session.
#[derive(Serialize)]
#[serde(untagged)]
pub enum Answer<T> {
    Here(T),
    There(Value),
}

#[derive(Deserialize, Serialize)]
struct Envelope {
    account: AccountId,
    #[serde(flatten)]
    ask: Ask,
}

/// The answer of a node to another: status and body as a client would have them.
#[derive(Deserialize, Serialize)]
pub struct Reply {
    status: u16,
    body: Value,
}

/// Where a node is asked.
pub const PATH: &str = "/internal/v1/sessions/{session_id}";

/// Whether another process hosts this call now.
pub fn is_elsewhere(app: &Node, call: &CallRow) -> bool {
    call.ended_at.is_none() && call.incarnation != 0 && call.incarnation != app.incarnation.number
}

/// Asks the node that hosts this call.
pub async fn ask(app: &Node, call: &CallRow, ask: Ask) -> Result<Value, ApiError> {
    let unreachable = || ApiError::Upstream {
        code: "session_host_unreachable",
        message: "The node that hosts this session does not answer: try once more".to_owned(),
    };
    let host = store::find(&app.db, call.incarnation)
        .await?
        .ok_or_else(unreachable)?;
    let envelope = Envelope {
        account: call.account,
        ask,
    };
    let body = serde_json::to_vec(&envelope).map_err(ApiError::internal)?;
    let url = format!("{}{}", host.address, signed_path(app, call.id, &body));
    let answer = client()
        .ok_or_else(unreachable)?
        .post(url)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body)
        .send()
        .await;
    let reply: Reply = match answer {
        Ok(answer) if answer.status() == StatusCode::OK => {
            answer.json().await.map_err(|_| unreachable())?
        }
        Ok(answer) => {
            tracing::error!(status = %answer.status(), node = host.name, "a node refused another");
            return Err(unreachable());
        }
        Err(error) => {
            // Its URL holds a signature.
            let error = error.without_url();
            tracing::warn!(%error, node = host.name, "a node does not answer");
            return Err(unreachable());
        }
    };
    understood(reply).ok_or_else(unreachable)?
}

/// The host's answer as this node's own. `None`: it is none that a host gives.
fn understood(reply: Reply) -> Option<Result<Value, ApiError>> {
    let Reply { status, body } = reply;
    if (200..300).contains(&status) {
        return Some(Ok(body));
    }
    let message = body.get("error")?.as_str()?.to_owned();
    let code = body.get("code")?.as_str()?;
    let code = [
        "not_found",
        "tool_call_not_found",
        "tool_call_expired",
        "conflict",
        "service_unavailable",
        "peer_not_found",
        "invalid_sdp",
        "invalid_candidate",
        "session_ended",
        "validation_error",
        "internal_error",
    ]
    .into_iter()
    .find(|known| *known == code)?;
    Some(Err(match status {
        400 => ApiError::BadRequest { code, message },
        422 if code == "validation_error" => ApiError::fields(fields(&body)?),
        422 => ApiError::unprocessable(code, message),
        500 => ApiError::internal("the node that hosts the session failed: see its log"),
        404 if code == "not_found" => ApiError::NotFound,
        404 => ApiError::Missing { code, message },
        409 => ApiError::Conflict { code, message },
        410 => ApiError::Gone { code, message },
        503 => ApiError::Unavailable {
            code,
            message,
            retry_after: 1,
        },
        _ => return None,
    }))
}

/// The wrong fields that a host named. What it says of descriptions is of two kinds.
fn fields(body: &Value) -> Option<Vec<FieldError>> {
    let named = body.get("fields")?.as_array()?.iter().map(|field| {
        let kind = field.get("type")?.as_str()?;
        let kind = ["missing", "enum"]
            .into_iter()
            .find(|known| *known == kind)?;
        let name = field.get("loc")?.get(1)?.as_str()?;
        Some(FieldError::body(name, kind, field.get("msg")?.as_str()?))
    });
    named.collect()
}

/// What another node asks; 404 for whoever is none.
pub async fn asked(app: &Node, request: Request) -> Result<(AccountId, SessionId, Ask), ApiError> {
    let (parts, body) = request.into_parts();
    let id = parts.uri.path().rsplit('/').next().unwrap_or_default();
    let id: SessionId = id.parse().map_err(|_| ApiError::NotFound)?;
    let query = query_pairs(&parts);
    let named = |name: &str| {
        query
            .iter()
            .find(|(key, _)| key == name)
            .map_or("", |(_, value)| value.as_str())
    };
    let bytes = |name: &str| {
        let bytes = base64_simd::URL_SAFE_NO_PAD.decode_to_vec(named(name));
        bytes.unwrap_or_default()
    };
    let at = Timestamp(named("at").parse().unwrap_or_default());
    let now = app.clock.shared();
    let hash = bytes("body");
    let fresh = now.since(at) <= FRESH && at.since(now) <= FRESH;
    // Who is no node learns nothing, not even that there is such a route, and nothing that they send is read.
    if !fresh
        || !app
            .master_key
            .verify(Purpose::Node, &message(id, at, &hash), &bytes("signature"))
    {
        return Err(ApiError::NotFound);
    }
    let body = axum::body::to_bytes(body, BODY)
        .await
        .map_err(|_| ApiError::PayloadTooLarge { limit: BODY })?;
    // Somebody's who saw the query on its way.
    if !same(&sha256(&body), &hash) {
        return Err(ApiError::NotFound);
    }
    let Envelope { account, ask } = serde_json::from_slice(&body).map_err(ApiError::internal)?;
    Ok((account, id, ask))
}

impl Reply {
    /// What a client would have been answered.
    pub fn of(done: Result<Value, ApiError>) -> Self {
        match done {
            Ok(body) => Self { status: 200, body },
            Err(error) => Self {
                status: error.status().as_u16(),
                body: error.body(""),
            },
        }
    }
}

/// Where this body is posted now, signed.
pub(super) fn signed_path(app: &Node, id: SessionId, body: &[u8]) -> String {
    let (at, hash) = (app.clock.shared(), sha256(body));
    let signature = app.master_key.sign(Purpose::Node, &message(id, at, &hash));
    let path = PATH.replace("{session_id}", &id.to_string());
    let [hash, signature] =
        [hash, signature].map(|bytes| base64_simd::URL_SAFE_NO_PAD.encode_to_string(bytes));
    format!("{path}?at={}&body={hash}&signature={signature}", at.0)
}

fn message(id: SessionId, at: Timestamp, hash: &[u8]) -> Vec<u8> {
    let mut message = format!("{id} {} ", at.0).into_bytes();
    message.extend(hash);
    message
}

/// One client for all nodes: its connections are kept. `None` if it cannot be made.
fn client() -> Option<&'static reqwest::Client> {
    static CLIENT: LazyLock<Option<reqwest::Client>> = LazyLock::new(|| {
        // Installed already by whoever was first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        reqwest::Client::builder()
            .no_proxy()
            .connect_timeout(CONNECT)
            .timeout(ANSWER)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .inspect_err(|error| tracing::error!(%error, "no client for the other nodes"))
            .ok()
    });
    CLIENT.as_ref()
}
