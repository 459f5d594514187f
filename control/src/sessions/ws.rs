//! The socket of a session: `WS /ws/v1/conversation/{session_id}`.
//!
//! Whoever asks gets the upgrade; then the one-time token decides. The winner's connection leaves the
//! HTTP server and goes to a media thread as it is. Everybody else reads one `error` and is closed
//! with 1008 (unknown, expired, used, over), 1013 (no capacity, no database, or the account may not
//! spend) or 1011 (the call could not start). A node that ends gives no upgrade while others live: its
//! answer is 503, and the token is as good as before.
//!
//! A token that opens nothing is a failed authentication of the address that it comes from: beyond those
//! that an address may have there is no upgrade, and the answer is 429. A connection counts among those of
//! its address until it is closed, whatever became of it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{RawPathParams, Request, State};
use axum::response::Response;
use futures_util::{SinkExt, StreamExt};
use http::StatusCode;
use media::config::OptionalEvents;
use media::shell::Carrier;
use tokio::sync::oneshot;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};

use super::{rules, start_token, store, token};
use crate::calls::bridge;
use crate::cluster;
use crate::db::DbError;
use crate::http::auth::ClientAddress;
use crate::http::envelope::RequestId;
use crate::http::extract::query_pairs;
use crate::http::serve::{Slot, Taken};
use crate::http::{Access, ApiError, Class, Endpoint, upgrade};
use crate::ids::CallId;
use crate::node::Node;
use crate::supervisor;

/// How long the peer may take to let go of the HTTP exchange after the 101 answer.
const UPGRADE_PATIENCE: Duration = Duration::from_secs(10);
/// How long a refused peer may take to answer the close.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

/// The routes of the socket. The token may stand in the query or, for vendors that drop the query,
/// in the path.
pub fn endpoints() -> Vec<Endpoint<Node>> {
    vec![
        upgrades(Endpoint::get(
            "/ws/v1/conversation/{session_id}",
            Access::SignedUrl,
            socket,
        ))
        .summary("The live audio of a session; `token` in the query")
        .operation(
            "joinSession",
            "Joins a session over a WebSocket, for the one holder of its `ws_url`; from the \
             upgrade on the call is live. Whoever may not join gets the upgrade too, then one \
             `error` message and a close code: 1008 for a session that cannot be joined, 1013 \
             for one that can be joined later.",
        )
        .class(Class::Exempt)
        .at_root(),
        upgrades(Endpoint::get(
            "/ws/v1/conversation/{session_id}/{token}",
            Access::SignedUrl,
            socket,
        ))
        .summary("The live audio of a session; the token in the path")
        .operation(
            "joinSessionByPath",
            "Does what `joinSession` does, with the token in the path. It is for telephony \
             vendors whose media streams drop the query of a URL.",
        )
        .class(Class::Exempt)
        .at_root(),
    ]
}

/// What the document says of a socket: whoever is not let in learns it from the close code.
fn upgrades(endpoint: Endpoint<Node>) -> Endpoint<Node> {
    endpoint
        .returns(StatusCode::SWITCHING_PROTOCOLS)
        .answers_nothing()
        .refuses(
            StatusCode::UPGRADE_REQUIRED,
            "upgrade_required",
            "the request is no WebSocket handshake",
        )
        .refuses(
            StatusCode::TOO_MANY_REQUESTS,
            "rate_limited",
            "too many tokens from this address opened nothing",
        )
}

/// What a peer presents.
struct Ticket {
    session: Option<CallId>,
    token: String,
    events: OptionalEvents,
    request_id: String,
    ip: IpAddr,
    /// It opens nothing, and is counted as a failed authentication.
    failed: bool,
}

/// Why a peer is not let in.
struct Refusal {
    close: CloseCode,
    code: &'static str,
    message: &'static str,
    /// Seconds.
    retry_after: Option<u32>,
}

impl Refusal {
    /// Not a session that can be joined. One answer for all of its reasons: a stranger learns nothing.
    const UNKNOWN: Self = Self {
        close: CloseCode::Policy,
        code: "session_not_joinable",
        message: "This session is unknown, expired, already joined or over: open a new one",
        retry_after: None,
    };
    const NO_CAPACITY: Self = Self {
        close: CloseCode::Again,
        code: "admission_rejected",
        message: "No capacity for this call: open a new session in a moment",
        retry_after: Some(2),
    };
    const NOT_NOW: Self = Self {
        close: CloseCode::Again,
        code: "service_unavailable",
        message: "Sessions cannot be joined right now: try again in a moment",
        retry_after: Some(2),
    };
    const BLOCKED: Self = Self {
        close: CloseCode::Again,
        code: "billing_blocked",
        message: "This account may not spend: see GET /billing/status",
        retry_after: None,
    };
    const FAILED: Self = Self {
        close: CloseCode::Error,
        code: "call_failed",
        message: "The call could not start",
        retry_after: None,
    };
}

async fn socket(
    State(app): State<Node>,
    params: RawPathParams,
    mut request: Request,
) -> Result<Response, ApiError> {
    let response = upgrade::accept(request.method(), request.headers())?;
    if app.is_draining() && cluster::has_others(&app).await? {
        // Here the call would be cut short. A proxy asks another node for this upgrade.
        return Err(ApiError::Unavailable {
            code: "service_unavailable",
            message: "This node is ending: another one takes the call".to_owned(),
            retry_after: 1,
        });
    }
    let connection = upgrade::take(&mut request);
    let mut ticket = ticket(&params, request);
    if !may_open(&app, &ticket).await {
        ticket.failed = true;
        let failures = app.limits.failed_auth(ticket.ip, app.clock.moment()).await;
        failures.refusal()?;
    }
    supervisor::detached("a socket joins its call", async move {
        match tokio::time::timeout(UPGRADE_PATIENCE, connection).await {
            Ok(Ok(taken)) => join(&app, ticket, taken).await,
            Ok(Err(error)) => tracing::debug!(%error, "an upgrade came to nothing"),
            Err(_) => tracing::debug!("an upgrade was not taken up in time"),
        }
    });
    Ok(response)
}

fn ticket(params: &RawPathParams, request: Request) -> Ticket {
    let (parts, _) = request.into_parts();
    let query = query_pairs(&parts);
    let in_query = |name: &str| {
        query
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    };
    let in_path = |name: &str| {
        params
            .iter()
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value)
    };
    Ticket {
        session: in_path("session_id").and_then(|id| id.parse().ok()),
        token: in_path("token")
            .or_else(|| in_query("token"))
            .unwrap_or_default()
            .to_owned(),
        events: rules::optional_events(in_query("events").unwrap_or_default()),
        request_id: parts
            .extensions
            .get::<RequestId>()
            .map(|id| id.0.to_string())
            .unwrap_or_default(),
        ip: ClientAddress::ip(&parts.extensions),
        failed: false,
    }
}

/// Whether the ticket may open a call: its token is one of the session and not used up, or may yet come in
/// the `start` message of a telephony vendor. A database that does not answer says nothing against it.
async fn may_open(app: &Node, ticket: &Ticket) -> bool {
    let Some(id) = ticket.session else {
        return false;
    };
    let now = app.clock.shared();
    let open = if ticket.token.is_empty() {
        store::is_open_for_telco(&app.db, id, now).await
    } else if token::genuine(&app.master_key, id, &ticket.token) {
        store::is_open(&app.db, id, &token::fingerprint(&ticket.token), now).await
    } else {
        return false;
    };
    open.unwrap_or_else(|error| {
        tracing::error!(%error, "a session could not be looked up");
        true
    })
}

/// What a connection is counted by, given back once it is closed. A media thread only drops the sender: a
/// task gives the slot back, for that takes a lock.
#[derive(Clone)]
struct Counted(#[expect(dead_code, reason = "it is dropped")] Arc<oneshot::Sender<()>>);

impl Counted {
    fn new(slot: Option<Slot>) -> Self {
        let (held, gone) = oneshot::channel();
        supervisor::detached("the slot of a closed socket", async move {
            // Nothing is ever sent.
            gone.await.unwrap_or_default();
            drop(slot);
        });
        Self(Arc::new(held))
    }
}

/// Lets the one winner onto the call and tells everybody else why not.
async fn join(app: &Node, mut ticket: Ticket, taken: Taken) {
    // Declared first, it is dropped last: after the connection.
    let counted = Counted::new(taken.slot);
    let (mut stream, mut leftover) = (taken.stream, taken.leftover);
    if ticket.token.is_empty() && !ticket.failed {
        stream = match read_token(stream, &mut leftover, &mut ticket).await {
            Ok(stream) => stream,
            Err(error) => return tracing::debug!(%error, "a vendor's connection was lost"),
        };
    }
    // A second handle on the connection, to speak on if the engine does not take the call.
    let spare = stream.try_clone();
    let admitted = if ticket.failed {
        Err(Refusal::UNKNOWN)
    } else if app.is_leaving() {
        Err(Refusal::NOT_NOW)
    } else {
        Ok(admit(app, &ticket).await)
    };
    let refused = match admitted {
        Err(refusal) => refusal,
        Ok(Ok(Some(session))) => {
            let carrier = Carrier::Socket {
                stream,
                leftover: leftover.clone(),
                held: Some(Box::new(counted.clone())),
            };
            match bridge::place(app, &session, ticket.events, carrier, None).await {
                Ok(_) => return,
                Err(bridge::NotPlaced::NoCapacity) => Refusal::NO_CAPACITY,
                Err(bridge::NotPlaced::Blocked) => Refusal::BLOCKED,
                Err(bridge::NotPlaced::Failed) => Refusal::FAILED,
            }
        }
        Ok(Ok(None)) => Refusal::UNKNOWN,
        Ok(Err(error)) if error.is_unavailable() || error.is_conflict() => Refusal::NOT_NOW,
        Ok(Err(error)) => {
            tracing::error!(%error, request_id = %ticket.request_id, "a session could not be joined");
            Refusal::FAILED
        }
    };
    // A token from a `start` message, and one that another was quicker with.
    if refused.close == CloseCode::Policy && !ticket.failed {
        app.limits.failed_auth(ticket.ip, app.clock.moment()).await;
    }
    let told = match spare {
        Ok(stream) => refuse(stream, leftover, &refused, &ticket.request_id).await,
        Err(error) => Err(error.into()),
    };
    if let Err(error) = told {
        tracing::debug!(%error, "a refused peer left before it was told");
    }
}

/// Waits for `start` and takes the token out of it.
async fn read_token(
    stream: std::net::TcpStream,
    leftover: &mut Vec<u8>,
    ticket: &mut Ticket,
) -> std::io::Result<std::net::TcpStream> {
    let stream = tokio::net::TcpStream::from_std(stream)?;
    ticket.token = start_token::wait(&stream, leftover)
        .await
        .unwrap_or_default();
    stream.into_std()
}

/// Uses up the token: `None` for everybody but the one who may join.
async fn admit(app: &Node, ticket: &Ticket) -> Result<Option<store::SessionRow>, DbError> {
    let Some(id) = ticket
        .session
        .filter(|id| token::genuine(&app.master_key, *id, &ticket.token))
    else {
        return Ok(None);
    };
    let now = app.clock.shared();
    let mut tx = app.db.begin_write().await?;
    let Some(session) =
        store::consume(&mut tx, id, &token::fingerprint(&ticket.token), now).await?
    else {
        return Ok(None);
    };
    let taken = bridge::take(app, tx, session.account, id).await?;
    Ok(taken.then_some(session))
}

/// Sends the reason and the close code on an upgraded connection, and waits a little for the peer.
async fn refuse(
    stream: std::net::TcpStream,
    leftover: Vec<u8>,
    refusal: &Refusal,
    request_id: &str,
) -> Result<(), tokio_tungstenite::tungstenite::Error> {
    let stream = tokio::net::TcpStream::from_std(stream)?;
    // Whatever it sends now is only read past: small frames are enough.
    let config = WebSocketConfig::default()
        .max_message_size(Some(256 * 1024))
        .max_frame_size(Some(64 * 1024));
    let mut socket =
        WebSocketStream::from_partially_read(stream, leftover, Role::Server, Some(config)).await;
    let talk = async {
        let mut text = serde_json::json!({
            "type": "error",
            "event_id": 1,
            "ts_ms": 0,
            "code": refusal.code,
            "message": refusal.message,
            "request_id": request_id,
        });
        if let Some(seconds) = refusal.retry_after {
            text["retry_after"] = seconds.into();
        }
        socket.send(Message::text(text.to_string())).await?;
        let frame = CloseFrame {
            code: refusal.close,
            reason: refusal.code.into(),
        };
        socket.close(Some(frame)).await?;
        while let Some(Ok(_)) = socket.next().await {}
        Ok(())
    };
    tokio::time::timeout(CLOSE_PATIENCE, talk)
        .await
        .unwrap_or(Ok(()))
}

#[cfg(test)]
#[path = "ws_tests.rs"]
mod tests;
