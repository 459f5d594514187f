//! Telephone calls: from an INVITE to an agent, and the end of either side to the other.
//!
//! The SIP stack runs on its own thread; what it tells goes over a bounded line to one task a call. A
//! call is let in (its number has an agent, the account has room) before it is answered, its ports are
//! bound before they are offered, and the engine has it before the answer is sent.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use media::config::{AudioFormat, OptionalEvents, Protocol};
use media::leg::rtp::{RtpLeg, RtpPlan};
use media::rtp::sdp::{self, Agreed, Flow, Local, Offered, Refusal};
use media::shell::{Carrier, PortPair, Ports, RtpCarrier};
use serde_json::Value;
use sip::endpoint::Config as Endpoint;
use sip::event::{CallId as LineId, Command, EndedBy, Event, Incoming};
use sip::message::{Body, Transport};
use sip::shell::{Settings, Sip};
use sip::trunk::{InboundAuth, Trunk, TrunkId};
use tokio::sync::{Notify, mpsc};

use super::{NotPlaced, Way, transports};
use crate::admission::State;
use crate::agents::{self, Agent};
use crate::app::App;
use crate::calls::live::LiveCall;
use crate::calls::store;
use crate::db::DbError;
use crate::http::ApiError;
use crate::ids::{AccountId, AgentId, CallId};
use crate::{accounts, secret, webhooks};

/// Events of all calls on their way to their tasks: as many as the stack itself keeps.
const EVENTS: usize = 16_384;

/// Events of one call that may wait for its task, which is busy only while the call is let in. A caller
/// that makes more of them is not served further.
const CALL_EVENTS: usize = 64;

/// How long a call whose INVITE had no offer may take to answer ours, and one that is over to end.
const ANSWER_WITHIN: Duration = Duration::from_secs(32);

/// The only trunk: the configured sources.
const SOURCES: TrunkId = TrunkId(1);

/// What all telephone calls of this node share.
struct Exchange {
    app: App,
    sip: Arc<Sip>,
    ports: Arc<Ports>,
    account: AccountId,
    /// Where our audio is, as the other side reaches it.
    address: IpAddr,
}

/// Why a call is not taken, as its SIP answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Declined(u16);

impl Declined {
    const NOBODY: Self = Self(404);
    const AWAY: Self = Self(480);
    const BUSY: Self = Self(486);
    const NOT_ACCEPTABLE: Self = Self(488);
    const MALFORMED: Self = Self(400);
    const FORBIDDEN: Self = Self(403);
    const UNAVAILABLE: Self = Self(503);
}

impl From<Refusal> for Declined {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Malformed(_) => Self::MALFORMED,
            _ => Self::NOT_ACCEPTABLE,
        }
    }
}

/// Listens for calls, if some source's are taken. Ends with the process.
pub async fn start(app: &App) -> io::Result<bool> {
    let settings = &app.config.sip;
    let Some(first) = settings
        .listen
        .first()
        .filter(|_| !settings.sources.is_empty())
    else {
        return Ok(false);
    };
    let account = accounts::store::find_by_name(&app.db, &settings.account)
        .await
        .map_err(io::Error::other)?
        .ok_or_else(|| io::Error::other(format!("sip.account: no account {}", settings.account)))?
        .id;
    let (first_port, last_port) = settings.ports;
    let bind = first.addr.ip();
    let ports = Ports::new(bind, first_port, last_port)
        .ok_or_else(|| io::Error::other("rtp.ports: there is no pair of ports among them"))?;
    let address = settings.public_address.unwrap_or(bind);
    let mut endpoint = Endpoint::new(Vec::new());
    endpoint.advertised = transports::advertised(settings);
    let sip = Arc::new(Sip::start(Settings {
        endpoint,
        seed: secret::random_bytes()?,
        listen: settings.listen.clone(),
        tls: Some(transports::tls(settings)?),
        dns: Vec::new(),
    })?);
    let trunk = Trunk {
        id: SOURCES,
        host: None,
        port: None,
        transport: Transport::Udp,
        allowed: settings.sources.clone(),
        inbound: InboundAuth::Address,
        credentials: None,
        domain: None,
        register: None,
        keep_alive: None,
    };
    sip.command(Command::SetTrunk(Box::new(trunk)))
        .map_err(io::Error::other)?;
    for listen in sip.addresses() {
        tracing::info!(transport = ?listen.transport, address = %listen.addr, "telephone calls are taken");
    }
    let exchange = Arc::new(Exchange {
        app: app.clone(),
        sip: Arc::clone(&sip),
        ports,
        account,
        address,
    });
    let (sender, events) = mpsc::channel(EVENTS);
    std::thread::Builder::new()
        .name("sip-events".to_owned())
        .spawn(move || {
            while let Ok(event) = sip.events().recv() {
                if sender.blocking_send(event).is_err() {
                    return;
                }
            }
        })?;
    tokio::spawn(dispatch(exchange, events));
    Ok(true)
}

/// Hands each event to its call's task.
async fn dispatch(exchange: Arc<Exchange>, mut events: mpsc::Receiver<Event>) {
    let mut calls: HashMap<LineId, mpsc::Sender<Event>> = HashMap::new();
    while let Some(event) = events.recv().await {
        if let Event::Incoming(line, incoming) = event {
            let (sender, receiver) = mpsc::channel(CALL_EVENTS);
            calls.insert(line, sender);
            let exchange = Arc::clone(&exchange);
            tokio::spawn(async move { exchange.serve(line, *incoming, receiver).await });
            continue;
        }
        let Some(line) = line_of(&event) else {
            continue;
        };
        let ended = matches!(event, Event::Ended { .. });
        if let Some(sender) = calls.get(&line)
            && let Err(mpsc::error::TrySendError::Full(event)) = sender.try_send(event)
        {
            // An end is never lost: the task has its room back in a moment.
            let sender = sender.clone();
            if ended {
                tokio::spawn(async move { drop(sender.send(event).await) });
            } else {
                exchange.tell(Command::HangUp(line, None));
            }
        }
        if ended {
            calls.remove(&line);
        }
    }
}

/// The call that an event is of.
const fn line_of(event: &Event) -> Option<LineId> {
    match event {
        Event::Progress { call, .. }
        | Event::Answered { call, .. }
        | Event::Established { call, .. }
        | Event::Offer { call, .. }
        | Event::OfferAccepted { call, .. }
        | Event::OfferRefused { call, .. }
        | Event::Digit { call, .. }
        | Event::Referred { call, .. }
        | Event::ReferProgress { call, .. }
        | Event::Ended { call, .. } => Some(*call),
        Event::Incoming(..)
        | Event::Registered { .. }
        | Event::RegistrationFailed { .. }
        | Event::Reachable { .. } => None,
    }
}

/// A call that was let in.
struct Admitted {
    id: CallId,
}

/// A call on the engine.
struct Talking {
    live: Arc<LiveCall>,
    plan: RtpPlan,
    local: Local,
    agreed: Agreed,
}

impl Exchange {
    fn tell(&self, command: Command) {
        if let Err(error) = self.sip.command(command) {
            tracing::error!(%error, "the SIP stack does not take a command");
        }
    }

    /// One call, from its INVITE to its end.
    async fn serve(&self, line: LineId, incoming: Incoming, mut events: mpsc::Receiver<Event>) {
        let over = Arc::new(Notify::new());
        let taken = self.take(line, &incoming, &mut events, &over).await;
        let mut talking = match taken {
            Ok(talking) => talking,
            Err(Declined(code)) => {
                tracing::info!(code, "a telephone call is not taken");
                // Refuses a call that rings, and ends one that was answered before both agreed.
                self.tell(Command::Reject(line, code));
                self.tell(Command::HangUp(line, None));
                return;
            }
        };
        let mut offered = None;
        loop {
            let event = tokio::select! {
                event = events.recv() => event,
                () = over.notified() => {
                    // Normal clearing (ITU-T Q.850): the agent's side is done.
                    self.tell(Command::HangUp(line, Some("Q.850;cause=16".to_owned())));
                    return;
                }
            };
            match event {
                Some(Event::Ended {
                    by, code, reason, ..
                }) => {
                    if by == EndedBy::Network {
                        tracing::warn!(?code, reason, "a telephone call was lost");
                    }
                    talking.live.handle.hung_up();
                    return;
                }
                Some(Event::Offer { body, .. }) => {
                    offered = self.renew(line, &mut talking, body.as_ref());
                }
                Some(Event::Established {
                    body: Some(body), ..
                }) => {
                    if let Some(offered) = offered.take() {
                        self.accept(line, &mut talking, &offered, &body);
                    }
                }
                Some(Event::Referred { .. }) => self.tell(Command::AnswerRefer(line, 603)),
                Some(_) => {}
                // The stack is gone, and with it the other side.
                None => {
                    talking.live.handle.hung_up();
                    return;
                }
            }
        }
    }

    /// Lets the call in, answers it and puts it on the engine.
    async fn take(
        &self,
        line: LineId,
        incoming: &Incoming,
        events: &mut mpsc::Receiver<Event>,
        over: &Arc<Notify>,
    ) -> Result<Talking, Declined> {
        // Before anything is spent on it: an offer that cannot be agreed to.
        let offer = incoming.offer.as_ref();
        if offer.is_some_and(|offer| !offer.is("application/sdp")) {
            return Err(Declined::NOT_ACCEPTABLE);
        }
        let ports = self.ports.take().map_err(|error| {
            tracing::error!(%error, "no ports for a telephone call");
            Declined::UNAVAILABLE
        })?;
        let local = self.local(&ports)?;
        let answer = match offer {
            Some(offer) => Some(sdp::answer(&offer.bytes, &local, Flow::SendRecv)?),
            None => None,
        };
        let admitted = self.admit(incoming).await?;
        match answer {
            Some((text, agreed)) => {
                let talking = self.place(&admitted, ports, local, agreed, over).await?;
                self.tell(Command::Answer(line, Body::sdp(text)));
                Ok(talking)
            }
            None => {
                let offered = sdp::offer(&local, Flow::SendRecv);
                self.tell(Command::Answer(line, Body::sdp(offered.text.clone())));
                let Some(body) = established(events).await else {
                    return Err(self
                        .give_up(&admitted, "the caller did not answer our offer")
                        .await);
                };
                match offered.accept(&body.bytes) {
                    Ok(agreed) => self.place(&admitted, ports, local, agreed, over).await,
                    Err(refusal) => Err(self.give_up(&admitted, &refusal.to_string()).await),
                }
            }
        }
    }

    /// A call whose record stands already ends before it began.
    async fn give_up(&self, admitted: &Admitted, why: &str) -> Declined {
        super::could_not_start(&self.app, self.account, admitted.id, why).await;
        Declined::NOT_ACCEPTABLE
    }

    fn local(&self, ports: &PortPair) -> Result<Local, Declined> {
        let random = secret::random_bytes().map_err(|error| {
            tracing::error!(%error, "no random bytes");
            Declined::UNAVAILABLE
        })?;
        let session: [u8; 4] = secret::random_bytes().map_err(|_| Declined::UNAVAILABLE)?;
        Ok(Local {
            address: self.address,
            port: ports.port(),
            session: u32::from_be_bytes(session).into(),
            version: 1,
            codecs: RtpLeg::CODECS.to_vec(),
            encryption: self.app.config.sip.encryption,
            random,
        })
    }

    /// The number's agent, a slot and a record.
    async fn admit(&self, incoming: &Incoming) -> Result<Admitted, Declined> {
        let (app, account) = (&self.app, self.account);
        let to = incoming.to.user().unwrap_or_default();
        let from = incoming.asserted.as_ref().unwrap_or(&incoming.from).user();
        let agent = self.agent_for(&to).ok_or(Declined::NOBODY)?;
        let agent = agents::store::get(&app.db, account, agent)
            .await
            .map_err(|error| unavailable(&error))?
            .ok_or(Declined::NOBODY)?;
        if agent.status != agents::Status::Active {
            return Err(Declined::AWAY);
        }
        super::can_speak(app, &agent).map_err(|error| refused(&error))?;
        let id = CallId::new(&app.clock);
        let wish = super::wish(app, account, id, State::Pending);
        let lease = app.admit(wish).await.map_err(|error| refused(&error))?;
        if !self.record(id, &agent, from.as_deref(), &to).await? {
            return Err(Declined::NOBODY);
        }
        lease.leave();
        Ok(Admitted { id })
    }

    fn agent_for(&self, number: &str) -> Option<AgentId> {
        let settings = &self.app.config.sip;
        settings.numbers.get(number).copied().or(settings.agent)
    }

    /// Writes the call down as one that this process hosts. `false`: its agent was deleted.
    async fn record(
        &self,
        id: CallId,
        agent: &Agent,
        from: Option<&str>,
        to: &str,
    ) -> Result<bool, Declined> {
        let (app, account) = (&self.app, self.account);
        let call = store::NewCall {
            id,
            agent_id: agent.id,
            agent_name: &agent.settings.name,
            direction: "inbound",
            channel: "sip",
            language: agents::rules::language_name(agent.settings.language),
            from_number: from,
            to_number: Some(to),
            dynamic_variables: &Value::Object(serde_json::Map::new()),
        };
        let written = async {
            let now = app.clock.now();
            let mut tx = app.db.begin_write().await?;
            if !agents::store::hold(&mut tx, account, agent.id).await? {
                return Ok(false);
            }
            store::insert(&mut tx, account, &call, now).await?;
            let (node, incarnation) = (&app.config.cluster.node, app.incarnation.number);
            store::take(&mut tx, account, id, node, incarnation, now).await?;
            let none = agents::Variables::new();
            webhooks::service::tell_unfilled(app, &mut tx, account, agent, &none, id).await?;
            tx.commit().await?;
            app.webhooks.wake();
            Ok::<_, DbError>(true)
        };
        written.await.map_err(|error| unavailable(&error))
    }

    async fn place(
        &self,
        admitted: &Admitted,
        ports: PortPair,
        local: Local,
        agreed: Agreed,
        over: &Arc<Notify>,
    ) -> Result<Talking, Declined> {
        let seed = match secret::random_bytes() {
            Ok(seed) => seed,
            Err(error) => return Err(self.give_up(admitted, &error.to_string()).await),
        };
        let plan = RtpPlan::new(&agreed, seed);
        let carrier = RtpCarrier {
            ports,
            agreed: agreed.clone(),
            ssrc: plan.ssrc,
        };
        let way = Way {
            protocol: Protocol::Rtp(plan),
            // The plan names the codec; there are no messages that would tell another format.
            audio_format: AudioFormat::Ulaw8000,
            events: OptionalEvents::default(),
            carrier: Carrier::Rtp(Box::new(carrier)),
            over: Some(Arc::clone(over)),
        };
        let live = super::run(&self.app, self.account, admitted.id, way, None)
            .await
            .map_err(|why| match why {
                NotPlaced::NoCapacity => Declined::BUSY,
                NotPlaced::Blocked => Declined::FORBIDDEN,
                NotPlaced::Failed => Declined::UNAVAILABLE,
            })?;
        Ok(Talking {
            live,
            plan,
            local,
            agreed,
        })
    }

    /// The other side offers another session, or asks for our offer: then it is returned, to be held
    /// against the answer.
    fn renew(&self, line: LineId, talking: &mut Talking, body: Option<&Body>) -> Option<Offered> {
        talking.local.version += 1;
        let Some(body) = body else {
            let mut local = talking.local.clone();
            local.codecs = vec![talking.agreed.codec];
            let offered = sdp::offer(&local, Flow::SendRecv);
            self.tell(Command::AcceptOffer(line, Body::sdp(offered.text.clone())));
            return Some(offered);
        };
        match sdp::answer(&body.bytes, &talking.local, Flow::SendRecv) {
            Ok((text, agreed)) => {
                self.tell(Command::AcceptOffer(line, Body::sdp(text)));
                talking.agree(agreed);
            }
            Err(refusal) => {
                tracing::info!(%refusal, "a re-INVITE is refused");
                self.tell(Command::RefuseOffer(line, 488));
            }
        }
        None
    }

    fn accept(&self, line: LineId, talking: &mut Talking, offered: &Offered, body: &Body) {
        match offered.accept(&body.bytes) {
            Ok(agreed) => talking.agree(agreed),
            Err(refusal) => {
                // What was agreed before holds no more, and nothing else was agreed (RFC 3261 13.2.2.4).
                tracing::warn!(%refusal, "a call is ended: its answer cannot be used");
                self.tell(Command::HangUp(line, Some("SIP;cause=488".to_owned())));
            }
        }
    }
}

impl Talking {
    fn agree(&mut self, agreed: Agreed) {
        self.plan = self.plan.renewed(&agreed);
        self.agreed = agreed.clone();
        self.live.handle.renew(agreed, self.plan);
    }
}

/// Waits for the ACK with the answer to our offer.
async fn established(events: &mut mpsc::Receiver<Event>) -> Option<Body> {
    let answer = async {
        loop {
            match events.recv().await? {
                Event::Established { body, .. } => return body,
                Event::Ended { .. } => return None,
                _ => {}
            }
        }
    };
    tokio::time::timeout(ANSWER_WITHIN, answer).await.ok()?
}

fn unavailable(error: &DbError) -> Declined {
    tracing::error!(%error, "a telephone call could not be written down");
    Declined::UNAVAILABLE
}

/// What the API would say, as a telephone exchange says it.
fn refused(error: &ApiError) -> Declined {
    match error {
        ApiError::Capacity { resource, .. } if *resource != Some("node") => Declined::BUSY,
        _ => Declined::UNAVAILABLE,
    }
}
