//! Calls that come in: from an INVITE to an agent, and the end of either side to the other.
//!
//! A call is let in (its number has an agent, trunk and account have room) before it is answered, its
//! ports are bound before they are offered, and the engine has it before the answer is sent. Where the
//! number has routing rules it rings while nobody can answer, for as long as they say.

use std::sync::Arc;
use std::time::Duration;

use media::rtp::sdp::{self, Encryption, Flow, Refusal};
use serde_json::Value;
use sip::event::{CallId as LineId, Command, Event, Incoming};
use sip::message::Body;
use tokio::sync::mpsc;

use super::talking::{Settled, Talking};
use super::{Exchange, Line, SOURCES, trunks};
use crate::admission::{Request, State};
use crate::agents::{self, Agent};
use crate::app::App;
use crate::calls::bridge::{self, NotPlaced};
use crate::calls::store;
use crate::db::DbError;
use crate::http::ApiError;
use crate::ids::{AccountId, AgentId, CallId};
use crate::phone_numbers::{self, PhoneNumber};
use crate::sip_trunks::{self, AuthMode, Trunk, TrunkType};
use crate::webhooks;

/// How long a call whose INVITE had no offer may take to answer ours, and one that is over to end.
const ANSWER_WITHIN: Duration = Duration::from_secs(32);

/// How often a ringing call looks whether somebody can answer now.
const RING_AGAIN: Duration = Duration::from_secs(1);

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
    /// The caller is gone: nobody hears it.
    const CANCELED: Self = Self(487);

    /// Whether somebody may answer in a moment.
    fn may_pass(self) -> bool {
        [Self::AWAY, Self::BUSY, Self::UNAVAILABLE].contains(&self)
    }
}

impl From<Refusal> for Declined {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Malformed(_) => Self::MALFORMED,
            _ => Self::NOT_ACCEPTABLE,
        }
    }
}

/// Who was called, and over what.
struct Called {
    account: AccountId,
    /// As the record has it: the number as it is registered, else as it was dialled.
    to: String,
    from: Option<String>,
    agent: Option<AgentId>,
    number: Option<PhoneNumber>,
    trunk: Option<Trunk>,
    encryption: Encryption,
}

/// A call that was let in.
struct Admitted {
    account: AccountId,
    id: CallId,
}

/// One call, from its INVITE to its end.
pub(super) async fn serve(app: App, exchange: Arc<Exchange>, line: Line, incoming: Box<Incoming>) {
    let Line { id, events } = line;
    Desk { app, exchange }.serve(id, &incoming, events).await;
}

/// Where a call is taken.
struct Desk {
    app: App,
    exchange: Arc<Exchange>,
}

impl Desk {
    fn tell(&self, command: Command) {
        self.exchange.tell(command);
    }

    async fn serve(&self, line: LineId, incoming: &Incoming, mut events: mpsc::Receiver<Event>) {
        match self.take(line, incoming, &mut events).await {
            Ok(talking) => talking.follow(&self.exchange, line, events).await,
            Err(Declined(code)) => {
                tracing::info!(code, "a telephone call is not taken");
                // Refuses a call that rings, and ends one that was answered before both agreed.
                self.tell(Command::Reject(line, code));
                self.tell(Command::HangUp(line, None));
            }
        }
    }

    /// Lets the call in, answers it and puts it on the engine.
    async fn take(
        &self,
        line: LineId,
        incoming: &Incoming,
        events: &mut mpsc::Receiver<Event>,
    ) -> Result<Talking, Declined> {
        // Before anything is spent on it: an offer that cannot be agreed to.
        let offer = incoming.offer.as_ref();
        if offer.is_some_and(|offer| !offer.is("application/sdp")) {
            return Err(Declined::NOT_ACCEPTABLE);
        }
        let called = self.called(incoming).await?;
        let ports = self.exchange.take_ports().map_err(|error| {
            tracing::error!(%error, "no ports for a telephone call");
            Declined::UNAVAILABLE
        })?;
        let local = self
            .exchange
            .local(&ports, called.encryption)
            .map_err(|error| {
                tracing::error!(%error, "no random bytes");
                Declined::UNAVAILABLE
            })?;
        let answer = match offer {
            Some(offer) => Some(sdp::answer(&offer.bytes, &local, Flow::SendRecv)?),
            None => None,
        };
        let admitted = self.admit_or_ring(line, called, events).await?;
        self.exchange
            .traces
            .belongs(line, admitted.account, admitted.id);
        match answer {
            Some((text, agreed)) => {
                let settled = Settled {
                    ports,
                    local,
                    agreed,
                };
                let talking = self.place(&admitted, settled).await?;
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
                    Ok(agreed) => {
                        let settled = Settled {
                            ports,
                            local,
                            agreed,
                        };
                        self.place(&admitted, settled).await
                    }
                    Err(refusal) => Err(self.give_up(&admitted, &refusal.to_string()).await),
                }
            }
        }
    }

    /// A call whose record stands already ends before it began.
    async fn give_up(&self, admitted: &Admitted, why: &str) -> Declined {
        bridge::could_not_start(&self.app, admitted.account, admitted.id, why).await;
        Declined::NOT_ACCEPTABLE
    }

    /// Whose number was called: one of the settings, one that an account registered, or what the
    /// settings have for all others.
    async fn called(&self, incoming: &Incoming) -> Result<Called, Declined> {
        let settings = &self.app.config.sip;
        let dialled = incoming.to.user().unwrap_or_default();
        let from = incoming.asserted.as_ref().unwrap_or(&incoming.from).user();
        let of_settings = |account, agent| Called {
            account,
            to: dialled.clone(),
            from: from.clone(),
            agent: Some(agent),
            number: None,
            trunk: None,
            encryption: settings.encryption,
        };
        let sources = self
            .exchange
            .sources
            .filter(|_| incoming.trunks.contains(&SOURCES));
        if let Some(account) = sources
            && let Some(agent) = settings.numbers.get(&dialled)
        {
            return Ok(of_settings(account, *agent));
        }
        if let Some((number, trunk)) = self.registered(incoming, &dialled).await? {
            return Ok(Called {
                account: number.account,
                to: number.phone_number.clone(),
                from,
                agent: number.agent_id,
                encryption: trunks::encryption(trunk.media_encryption),
                number: Some(number),
                trunk: Some(trunk),
            });
        }
        match (sources, settings.agent) {
            (Some(account), Some(agent)) => Ok(of_settings(account, agent)),
            _ => Err(Declined::NOBODY),
        }
    }

    /// The registered number that was called, and the trunk of its account that the call came over.
    async fn registered(
        &self,
        incoming: &Incoming,
        dialled: &str,
    ) -> Result<Option<(PhoneNumber, Trunk)>, Declined> {
        let db = &self.app.db;
        let known = incoming
            .trunks
            .iter()
            .filter_map(|number| self.exchange.trunks.find(*number));
        let mut came_over = Vec::new();
        for (account, id) in known {
            let trunk = sip_trunks::store::get(db, account, id).await;
            came_over.extend(trunk.map_err(|error| unavailable(&error))?);
        }
        came_over.retain(|trunk| trunk.status == sip_trunks::Status::Active);
        for trunk in &came_over {
            // Where we registered, the carrier calls the user we registered, and tells whom it wants
            // in To.
            let addressed = incoming.addressed.user();
            let wanted = match (&addressed, &trunk.auth_username) {
                (Some(addressed), Some(user))
                    if trunk.auth_mode == AuthMode::Register && user == dialled =>
                {
                    addressed.as_str()
                }
                _ => dialled,
            };
            if trunk.kind == TrunkType::Inbound && !trunk.takes(wanted) {
                continue;
            }
            let number = phone_numbers::find_called(db, trunk.account, trunk.id, wanted)
                .await
                .map_err(|error| unavailable(&error))?;
            // An outbound trunk brings calls to the numbers that are registered on it only.
            let fits = |number: &PhoneNumber| {
                trunk.kind == TrunkType::Inbound || number.trunk_id == Some(trunk.id)
            };
            if let Some(number) = number.filter(fits) {
                return Ok(Some((number, trunk.clone())));
            }
        }
        Ok(None)
    }

    /// Lets the call in. Where nobody can answer and the number has rules, it rings for a while first.
    async fn admit_or_ring(
        &self,
        line: LineId,
        mut called: Called,
        events: &mut mpsc::Receiver<Event>,
    ) -> Result<Admitted, Declined> {
        let refused = match self.admit(&called).await {
            Ok(admitted) => return Ok(admitted),
            Err(refused) => refused,
        };
        let rules = called.number.as_ref().and_then(|n| n.routing_rules.clone());
        let Some(rules) = rules.filter(|_| refused.may_pass() && !self.app.is_draining()) else {
            return Err(refused);
        };
        self.tell(Command::Ring(line, None));
        let rings = rules
            .max_ring_seconds
            .unwrap_or(phone_numbers::rules::MAX_RING_SECONDS);
        let until = tokio::time::Instant::now() + Duration::from_secs(rings.into());
        loop {
            let again = (tokio::time::Instant::now() + RING_AGAIN).min(until);
            tokio::select! {
                event = events.recv() => match event {
                    // The caller gave up.
                    Some(Event::Ended { .. }) | None => return Err(Declined::CANCELED),
                    Some(_) => continue,
                },
                () = tokio::time::sleep_until(again) => {}
            }
            self.look_again(&mut called).await?;
            match self.admit(&called).await {
                Ok(admitted) => return Ok(admitted),
                Err(refused) if !refused.may_pass() || self.app.is_draining() => {
                    return Err(refused);
                }
                // Whatever the rules want then, the call ends: nothing here records a message or
                // calls a third party yet.
                Err(_) if tokio::time::Instant::now() >= until => return Err(Declined::AWAY),
                Err(_) => {}
            }
        }
    }

    /// Who answers the number by now.
    async fn look_again(&self, called: &mut Called) -> Result<(), Declined> {
        let Some(number) = &called.number else {
            return Ok(());
        };
        let number = phone_numbers::store::get(&self.app.db, called.account, number.id)
            .await
            .map_err(|error| unavailable(&error))?
            .ok_or(Declined::NOBODY)?;
        called.agent = number.agent_id;
        called.number = Some(number);
        Ok(())
    }

    /// The number's agent, a slot and a record.
    async fn admit(&self, called: &Called) -> Result<Admitted, Declined> {
        let (app, account) = (&self.app, called.account);
        let agent = called.agent.ok_or(Declined::AWAY)?;
        let agent = agents::store::get(&app.db, account, agent)
            .await
            .map_err(|error| unavailable(&error))?
            .ok_or(Declined::NOBODY)?;
        if agent.status != agents::Status::Active {
            return Err(Declined::AWAY);
        }
        bridge::can_speak(app, &agent).map_err(|error| refused(&error))?;
        let id = CallId::new(&app.clock);
        let trunk = called.trunk.as_ref();
        let wish = Request {
            trunk: trunk.map(|trunk| (trunk.id, trunk.max_concurrent_calls)),
            ..bridge::wish(app, account, id, State::Pending)
        };
        let lease = app.admit(wish).await.map_err(|error| refused(&error))?;
        if !self.record(id, &agent, called).await? {
            return Err(Declined::NOBODY);
        }
        lease.leave();
        Ok(Admitted { account, id })
    }

    /// Writes the call down as one that this process hosts. `false`: its agent was deleted.
    async fn record(&self, id: CallId, agent: &Agent, called: &Called) -> Result<bool, Declined> {
        let (app, account) = (&self.app, called.account);
        let call = store::NewCall {
            id,
            agent_id: agent.id,
            agent_name: &agent.settings.name,
            direction: "inbound",
            channel: "sip",
            language: agents::rules::language_name(agent.settings.language),
            from_number: called.from.as_deref(),
            to_number: Some(&called.to),
            phone_number_id: called.number.as_ref().map(|number| number.id),
            trunk_id: called.trunk.as_ref().map(|trunk| trunk.id),
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

    async fn place(&self, admitted: &Admitted, settled: Settled) -> Result<Talking, Declined> {
        Talking::begin(&self.app, admitted.account, admitted.id, settled, None)
            .await
            .map_err(|why| match why {
                NotPlaced::NoCapacity => Declined::BUSY,
                NotPlaced::Blocked => Declined::FORBIDDEN,
                NotPlaced::Failed => Declined::UNAVAILABLE,
            })
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
