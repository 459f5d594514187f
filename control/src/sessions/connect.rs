//! Opening a session, and the tokens that open sessions in place of a key.

use std::net::IpAddr;

use media::config::{AudioFormat, Direction, Protocol};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::call_token::{self, Claims};
use super::ice_config::ice_config;
use super::rules::{self, Plan, Transport};
use super::store::{self, NewSession};
use super::token;
use super::wire::{BrowserSession, Connect, Connected, MintToken, Minted, SocketSession};
use crate::admission::State;
use crate::agents::{self, Agent};
use crate::billing;
use crate::calls;
use crate::http::error::Reason;
use crate::http::limits::network;
use crate::http::{ApiError, Caller};
use crate::ids::{AccountId, AgentId, CallId};
use crate::node::Node;
use crate::secret::{self, Purpose};
use crate::webhooks;

/// Where a request comes from.
#[derive(Clone, Debug)]
pub struct Visitor {
    pub ip: IpAddr,
    /// What a browser says of the page; a program that is none says nothing.
    pub origin: Option<String>,
}

/// A visitor with more calls at once than one address may have is asked to wait so long, s.
const VISITOR_RETRY: u32 = 5;

/// Opens a session: a slot, a record, and what its caller needs to join it; with the account whose agent
/// it is.
pub async fn connect(
    app: &Node,
    caller: Option<Caller>,
    visitor: &Visitor,
    body: Connect,
) -> Result<(AccountId, Connected), ApiError> {
    let plan = rules::plan(&body).map_err(ApiError::fields)?;
    let (account, agent) = match &caller {
        Some(caller) => (caller.account, of_caller(app, caller, &body, plan).await?),
        None => of_visitor(app, visitor, &body, plan).await?,
    };
    if agent.status != agents::Status::Active {
        return Err(ApiError::conflict(
            "agent_not_ready",
            format!("The agent is {}", agent.status.name()),
        ));
    }
    calls::bridge::can_speak(app, &agent)?;

    let id = CallId::new(&app.clock);
    let now = app.clock.now();
    let keyless = caller.is_none_or(|caller| caller.token.is_some());
    let state = if keyless {
        State::Keyless
    } else {
        State::Pending
    };
    let opening = Opening {
        id,
        account,
        agent: &agent,
        keyless,
        opened_by: match caller {
            Some(caller) => caller.token.map(|grant| grant.id),
            // The token that it is answered with has the session's id.
            None => Some(id.0),
        },
        visitor: caller.is_none().then(|| seen(app, visitor.ip)),
        state,
    };
    // The variables of who has no key would be anybody's.
    let variables = body
        .dynamic_variables
        .filter(|_| !keyless)
        .unwrap_or_default();
    let expires_at = now.plus(state.ttl());
    let connected = match plan {
        Plan::Browser => {
            let token = match caller {
                Some(_) => None,
                None => Some(session_token(app, &opening)?),
            };
            let how = How {
                transport: Transport::WebRtc,
                protocol: rules::protocol_name(Protocol::WebRtc),
                audio_format: AudioFormat::Opus48000.name(),
                direction: calls::rules::Direction::Inbound,
                from_number: None,
                to_number: None,
                token_hash: "",
            };
            open(app, &opening, &how, &variables).await?;
            Connected::Browser(BrowserSession {
                session_id: id,
                transport: how.transport,
                ice_config: ice_config(&app.config.webrtc, id, now),
                token,
                expires_at,
            })
        }
        Plan::Socket(socket) => {
            let random = secret::random_bytes().map_err(ApiError::internal)?;
            let ticket = token::mint(&app.master_key, id, random);
            let phone = body.caller_phone.as_deref();
            let (from_number, to_number) = match socket.direction {
                Direction::Inbound => (phone, None),
                Direction::Outbound => (None, phone),
            };
            let how = How {
                transport: Transport::WebSocket,
                protocol: rules::protocol_name(socket.protocol),
                audio_format: socket.audio_format.name(),
                direction: rules::direction(socket.direction),
                from_number,
                to_number,
                token_hash: &token::fingerprint(&ticket),
            };
            open(app, &opening, &how, &variables).await?;
            let base = &app.config.server.public_url;
            Connected::Socket(SocketSession {
                session_id: id,
                transport: how.transport,
                ws_url: rules::ws_url(base, socket.protocol, id, &ticket),
                protocol: how.protocol,
                audio_format: how.audio_format,
                direction: how.direction,
                expires_at,
            })
        }
    };
    Ok((account, connected))
}

/// Mints a call token.
pub async fn mint_token(app: &Node, caller: Caller, body: &MintToken) -> Result<Minted, ApiError> {
    let agent = agents::store::get(&app.db, caller.account, body.agent_id)
        .await?
        .ok_or(ApiError::NotFound)?;
    let lifetime = rules::token_lifetime(body.ttl_seconds, longest_call(app, &agent));
    let now = app.clock.now();
    let claims = Claims::minted_by(&caller, agent.id, Uuid::new_v4(), now, lifetime);
    let token = call_token::mint(&app.master_key, &claims)
        .ok_or_else(|| ApiError::internal("a call token could not be signed"))?;
    Ok(Minted {
        token,
        token_type: "Bearer",
        agent_id: agent.id,
        expires_in: lifetime,
        expires_at: crate::time::Timestamp::from_micros(claims.exp.saturating_mul(1_000_000)),
        scopes: claims.scopes.into_iter().collect(),
    })
}

/// A session about to be opened.
struct Opening<'a> {
    id: CallId,
    account: AccountId,
    agent: &'a Agent,
    keyless: bool,
    opened_by: Option<Uuid>,
    visitor: Option<String>,
    state: State,
}

/// How it will be joined.
struct How<'a> {
    transport: Transport,
    protocol: &'static str,
    audio_format: &'static str,
    direction: calls::rules::Direction,
    from_number: Option<&'a str>,
    to_number: Option<&'a str>,
    token_hash: &'a str,
}

/// Takes the slot and writes the records; whatever fails leaves nothing behind.
async fn open(
    app: &Node,
    opening: &Opening<'_>,
    how: &How<'_>,
    variables: &Map<String, Value>,
) -> Result<(), ApiError> {
    let (id, account, agent) = (opening.id, opening.account, opening.agent);
    let now = app.clock.now();
    // Given back when it is dropped.
    let lease = app
        .admit(calls::bridge::wish(app, account, id, opening.state))
        .await?;
    let call = calls::store::NewCall {
        id,
        agent_id: agent.id,
        agent_name: &agent.settings.name,
        direction: how.direction,
        channel: how.transport.into(),
        language: agents::rules::language_name(agent.settings.language),
        from_number: how.from_number,
        to_number: how.to_number,
        phone_number_id: None,
        trunk_id: None,
        matched_by: None,
        from_withheld: false,
        dynamic_variables: &Value::Object(variables.clone()),
    };
    let session = NewSession {
        id,
        transport: how.transport,
        protocol: how.protocol,
        audio_format: how.audio_format,
        token_hash: how.token_hash,
        keyless: opening.keyless,
        opened_by: opening.opened_by,
        visitor: opening.visitor.as_deref(),
        expires_at: app.clock.shared().plus(opening.state.ttl()),
    };
    let mut tx = app.db.begin_write().await?;
    if !agents::store::hold(&mut tx, account, agent.id).await? {
        return Err(ApiError::NotFound);
    }
    if let Some(visitor) = &opening.visitor {
        let open = store::open_of_visitor(&mut tx, visitor).await?;
        let cap = app.config.limits.keyless_calls;
        if open >= cap.into() {
            return Err(ApiError::Capacity {
                reason: Reason::Capacity,
                // The caps that have a name are others.
                resource: None,
                current: u32::try_from(open).ok(),
                cap: Some(cap),
                retry_after: VISITOR_RETRY,
            });
        }
    }
    calls::store::insert(&mut tx, account, &call, now).await?;
    store::insert(&mut tx, account, &session, now).await?;
    // No call is refused over a placeholder that nothing fills; the agent's owner is told.
    let told =
        webhooks::service::tell_unfilled(app, &mut tx, account, agent, variables, id).await?;
    tx.commit().await?;
    if told {
        app.webhooks.wake();
    }
    lease.leave();
    Ok(())
}

/// The agent, for who has a key or a call token.
async fn of_caller(
    app: &Node,
    caller: &Caller,
    body: &Connect,
    plan: Plan,
) -> Result<Agent, ApiError> {
    if let Some(grant) = caller.token {
        if grant.session.is_some() {
            return Err(ApiError::Forbidden {
                code: "forbidden",
                message: "This token belongs to one session and opens no other".to_owned(),
            });
        }
        if grant.agent != body.agent_id {
            return Err(ApiError::NotFound);
        }
        needs_no_key(plan)?;
    }
    agents::store::get(&app.db, caller.account, body.agent_id)
        .await?
        .ok_or(ApiError::NotFound)
}

/// The agent and its account, for who has neither. An agent that is not public is answered like one
/// that is not there: with the lack of a credential.
async fn of_visitor(
    app: &Node,
    visitor: &Visitor,
    body: &Connect,
    plan: Plan,
) -> Result<(AccountId, Agent), ApiError> {
    let (account, agent) = public(app, body.agent_id).await?;
    needs_no_key(plan)?;
    let allowed = &agent.settings.allowed_origins;
    if !rules::origin_may(allowed, visitor.origin.as_deref()) {
        return Err(ApiError::Forbidden {
            code: "origin_not_allowed",
            message: "This page may not call this agent: see its allowed_origins".to_owned(),
        });
    }
    billing::require(app, account).await?;
    Ok((account, agent))
}

async fn public(app: &Node, agent: AgentId) -> Result<(AccountId, Agent), ApiError> {
    let found = agents::store::get_public(&app.db, agent).await?;
    found.ok_or(ApiError::Unauthorized)
}

/// 403 for a WebSocket, which takes an API key.
fn needs_no_key(plan: Plan) -> Result<(), ApiError> {
    match plan {
        Plan::Browser => Ok(()),
        Plan::Socket(_) => Err(ApiError::Forbidden {
            code: "forbidden",
            message: "A session of transport websocket needs an API key".to_owned(),
        }),
    }
}

/// The token that a keyless connect is answered with.
fn session_token(app: &Node, opening: &Opening<'_>) -> Result<String, ApiError> {
    let lifetime = rules::token_lifetime(None, longest_call(app, opening.agent));
    let (agent, now) = (opening.agent.id, app.clock.now());
    let claims = Claims::of_session(opening.account, agent, opening.id, now, lifetime);
    call_token::mint(&app.master_key, &claims)
        .ok_or_else(|| ApiError::internal("a call token could not be signed"))
}

fn longest_call(app: &Node, agent: &Agent) -> u32 {
    let own = agent.settings.max_duration_seconds;
    own.unwrap_or(app.config.engine.max_duration_seconds)
}

/// What a visitor is counted by: not the address itself, which nobody needs to keep.
fn seen(app: &Node, ip: IpAddr) -> String {
    let tag = app
        .master_key
        .sign(Purpose::Visitor, network(ip).to_string().as_bytes());
    base64_simd::URL_SAFE_NO_PAD.encode_to_string(&tag[..16])
}
