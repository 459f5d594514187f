//! The lobby: a call whose number has routing rules rings while no agent can answer, asks again, and is
//! then taken as the rules say ([`routing`]). What rings has a record, which ends whatever becomes of it.

use std::time::Duration;

use serde_json::Value;
use sip::event::{CallId as LineId, Command, Event};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::called::Called;
use super::forward::{NotForwarded, Part, name};
use super::inbound::{Admitted, Declined, Desk, Taken, unavailable};
use crate::admission::{Request, State};
use crate::agents::{self, Agent};
use crate::calls::bridge;
use crate::calls::dial::rules::Unanswered;
use crate::calls::live::{Canceled, Dialling};
use crate::calls::rules::Ending;
use crate::calls::store;
use crate::db::{DbError, Tx};
use crate::http::ApiError;
use crate::http::error::Reason;
use crate::ids::{AccountId, AgentId, CallId};
use crate::phone_numbers;
use crate::phone_numbers::routing::{Happened, Lack, Lobby, Next};
use crate::secret;
use crate::time::Timestamp;
use crate::webhooks;

/// A call that rings here.
pub(super) struct Ringing {
    pub(super) part: Part,
    since: Timestamp,
    /// Its record stands.
    pub(super) written: bool,
}

impl Declined {
    /// Why no agent answers, where one may in a moment.
    const fn lack(self) -> Option<Lack> {
        match self {
            Self::AWAY => Some(Lack::Agent),
            Self::BUSY => Some(Lack::Room),
            Self::UNAVAILABLE => Some(Lack::Server),
            _ => None,
        }
    }
}

impl Desk {
    /// Lets the call in: to an agent, to leave a message, or to somebody else. Where nobody can answer and the number has
    /// rules, it rings for a while first.
    pub(super) async fn admit_or_ring(
        &self,
        line: LineId,
        mut called: Called,
        events: &mut mpsc::Receiver<Event>,
    ) -> Result<Taken, Declined> {
        let began = Instant::now();
        let rules = called.number.as_ref().and_then(|n| n.routing_rules.clone());
        let waits = rules.is_some();
        let mut lobby = Lobby::new(rules, Duration::ZERO);
        let mut happened = match self.ask(&called, None).await? {
            Ok(admitted) => return Ok(Taken::Call(admitted)),
            // It may ring at another server, to which the carrier turns upon this.
            Err(_) if self.app.is_draining() && waits => return Err(Declined::UNAVAILABLE),
            Err(lack) => Happened::Refused(lack),
        };
        let mut next = lobby.handle(began.elapsed(), happened, random());
        if let Next::Refuse(lack) = next {
            return Err(Declined::with(lack.code()));
        }
        let Some(mut ringing) = self.ring(line, &called).await else {
            return Err(Declined::BUSY);
        };
        loop {
            match next {
                Next::Wait(until) => {
                    self.note(&called, &mut ringing).await;
                    let by = &ringing.part.dialling;
                    happened = match self.wait(began + until, by, events).await {
                        Ok(happened) => happened,
                        Err(by) => return Err(self.let_go(&called, ringing, by).await),
                    };
                }
                Next::Ask => {
                    happened = match self.look_again(&mut called).await {
                        Ok(true) => match self.ask(&called, Some(&mut ringing)).await {
                            Ok(Ok(admitted)) => {
                                let rang = Some(Box::new(ringing.part));
                                return Ok(Taken::Call(Admitted { rang, ..admitted }));
                            }
                            Ok(Err(lack)) => Happened::Refused(lack),
                            Err(declined) => {
                                return Err(self.refuse(&called, ringing, declined).await);
                            }
                        },
                        Ok(false) => {
                            return Err(self.refuse(&called, ringing, Declined::NOBODY).await);
                        }
                        // The database may be back before the caller is tired of waiting.
                        Err(error) => {
                            tracing::error!(%error, "who answers a call that rings could not be read");
                            Happened::Refused(Lack::Server)
                        }
                    };
                }
                Next::Drop => {
                    let end = Unanswered::caller_left();
                    self.not_taken(&called, ringing, &end, None).await;
                    return Err(Declined::CANCELED);
                }
                Next::Message(_) => {
                    return match self.take_message(&called, &mut ringing).await {
                        Ok(admitted) => {
                            let rang = Some(Box::new(ringing.part));
                            Ok(Taken::Call(Admitted { rang, ..admitted }))
                        }
                        Err(declined) => Err(self.refuse(&called, ringing, declined).await),
                    };
                }
                Next::Forward(to, lack) => {
                    return match self.forward(&called, &to, lack, ringing, events).await {
                        Ok(forwarded) => Ok(Taken::Forwarded(Box::new(forwarded))),
                        Err(NotForwarded { code, unwritten }) => {
                            if let Some((ringing, error)) = unwritten {
                                let end = Unanswered::not_taken(code);
                                self.not_taken(&called, *ringing, &end, Some(error)).await;
                            }
                            Err(Declined::with(code))
                        }
                    };
                }
                Next::Refuse(lack) => {
                    let declined = Declined::with(lack.code());
                    return Err(self.refuse(&called, ringing, declined).await);
                }
            }
            next = lobby.handle(began.elapsed(), happened, random());
        }
    }

    /// It rings from now on: for the caller, among the calls of this process, and in the records. `None`: too many
    /// do.
    async fn ring(&self, line: LineId, called: &Called) -> Option<Ringing> {
        let mut ringing = Ringing {
            part: Part::ring(&self.app, called)?,
            since: self.app.clock.now(),
            written: false,
        };
        self.tell(line, Command::Ring(line, None));
        let (account, id) = (called.account, ringing.part.id);
        self.carried.part(account, id);
        self.exchange.traces.belongs(line, account, id);
        self.note(called, &mut ringing).await;
        Some(ringing)
    }

    /// Lets the caller hear it ring until then. An error: who let go of it.
    async fn wait(
        &self,
        until: Instant,
        dialling: &Dialling,
        events: &mut mpsc::Receiver<Event>,
    ) -> Result<Happened, Canceled> {
        loop {
            tokio::select! {
                event = events.recv() => {
                    if matches!(event, Some(Event::Ended { .. }) | None) {
                        return Ok(Happened::Left);
                    }
                }
                // No other try can succeed, and another server may take it.
                () = self.app.draining() => return Ok(Happened::Leaving),
                by = dialling.canceled() => return Err(by),
                () = tokio::time::sleep_until(until) => return Ok(Happened::Due),
            }
        }
    }

    /// Whether an agent answers. An error is one that no waiting mends.
    async fn ask(
        &self,
        called: &Called,
        ringing: Option<&mut Ringing>,
    ) -> Result<Result<Admitted, Lack>, Declined> {
        match self.admit(called, ringing).await {
            Ok(admitted) => Ok(Ok(admitted)),
            Err(declined) => declined.lack().map(Err).ok_or(declined),
        }
    }

    /// Who answers the number by now. `false`: nobody any more, for it was released.
    async fn look_again(&self, called: &mut Called) -> Result<bool, DbError> {
        let Some(number) = &called.number else {
            return Ok(true);
        };
        let number = phone_numbers::store::get(&self.app.db, called.account, number.id).await?;
        let Some(number) = number else {
            return Ok(false);
        };
        called.agent = number.agent_id;
        called.number = Some(number);
        Ok(true)
    }

    /// The number's agent, a slot and a record.
    async fn admit(
        &self,
        called: &Called,
        ringing: Option<&mut Ringing>,
    ) -> Result<Admitted, Declined> {
        let (app, account) = (&self.app, called.account);
        if called.agent.is_none() {
            return Err(Declined::AWAY);
        }
        let agent = self.agent(called).await?.ok_or(match called.number {
            Some(_) => Declined::AWAY,
            None => Declined::NOBODY,
        })?;
        if agent.status != agents::Status::Active {
            return Err(Declined::AWAY);
        }
        bridge::can_speak(app, &agent).map_err(|error| refused(&error))?;
        let rang = ringing.as_ref().map(|ringing| ringing.part.id);
        let id = rang.unwrap_or_else(|| CallId::new(&app.clock));
        self.carried.call(account, id);
        let lease = app
            .admit(self.wish(called, id, State::Pending))
            .await
            .map_err(|error| refused(&error))?;
        let recorded = match ringing {
            Some(ringing) => {
                self.record_ringing(Some(&agent), called, ringing, Some(&agent))
                    .await?
            }
            None => self.record(id, &agent, called).await?,
        };
        if !recorded {
            return Err(Declined::AWAY);
        }
        lease.leave();
        Ok(Admitted {
            account,
            id,
            lease: None,
            message: false,
            rang: None,
        })
    }

    /// A slot beyond those of account and agent, and a record: the caller leaves a message.
    async fn take_message(
        &self,
        called: &Called,
        ringing: &mut Ringing,
    ) -> Result<Admitted, Declined> {
        let (app, account, id) = (&self.app, called.account, ringing.part.id);
        let agent = self.agent(called).await?;
        let wish = Request {
            beyond: true,
            ..self.wish(called, id, State::Live)
        };
        let lease = app.admit(wish).await.map_err(|error| refused(&error))?;
        let recorded = match &agent {
            Some(agent) => {
                self.record_ringing(Some(agent), called, ringing, None)
                    .await?
            }
            None => false,
        };
        // The agent was deleted, now or long ago: the message is the number's.
        if !recorded && !self.record_ringing(None, called, ringing, None).await? {
            return Err(Declined::UNAVAILABLE);
        }
        Ok(Admitted {
            account,
            id,
            lease: Some(lease),
            message: true,
            rang: None,
        })
    }

    pub(super) fn wish(&self, called: &Called, id: CallId, state: State) -> Request {
        let trunk = called.trunk.as_ref();
        Request {
            trunk: trunk.map(|trunk| (trunk.id, trunk.max_concurrent_calls)),
            ..bridge::wish(&self.app, called.account, id, state)
        }
    }

    async fn agent(&self, called: &Called) -> Result<Option<Agent>, Declined> {
        let Some(agent) = called.agent else {
            return Ok(None);
        };
        agents::store::get(&self.app.db, called.account, agent)
            .await
            .map_err(|error| unavailable(&error))
    }

    /// Writes the call down as one that this process hosts. `false`: its agent was deleted.
    async fn record(&self, id: CallId, agent: &Agent, called: &Called) -> Result<bool, Declined> {
        let (app, account) = (&self.app, called.account);
        let written = async {
            let now = app.clock.now();
            let mut tx = app.db.begin_write().await?;
            if !agents::store::hold(&mut tx, account, agent.id).await? {
                return Ok(false);
            }
            let none = Value::Object(serde_json::Map::new());
            let call = new_call(id, Some(agent), called, &none);
            store::insert(&mut tx, account, &call, now).await?;
            let (node, incarnation) = (&app.config.cluster.node, app.incarnation.number);
            store::take(&mut tx, account, id, node, incarnation, now).await?;
            let told = self.tell_agent(&mut tx, agent, account, id).await?;
            if let Err(error) = tx.commit().await {
                // The answer may have been lost and not the commit: then nobody would end this call.
                let why = "the database was lost while the call came in";
                bridge::could_not_start(app, account, id, why, false).await;
                return Err(error);
            }
            if told {
                app.webhooks.wake();
            }
            Ok::<_, DbError>(true)
        };
        written.await.map_err(|error| unavailable(&error))
    }

    /// The same of a call that rings: the agent that has it from now on, or has a message. `tell`: the agent that
    /// speaks. `false`: the agent was deleted, or the call is over.
    async fn record_ringing(
        &self,
        agent: Option<&Agent>,
        called: &Called,
        ringing: &mut Ringing,
        tell: Option<&Agent>,
    ) -> Result<bool, Declined> {
        let (app, account, id) = (&self.app, called.account, ringing.part.id);
        let written = async {
            let now = app.clock.now();
            let mut tx = app.db.begin_write().await?;
            if let Some(agent) = agent
                && !agents::store::hold(&mut tx, account, agent.id).await?
            {
                return Ok(false);
            }
            if !ringing.written {
                self.insert_ringing(&mut tx, called, agent, ringing).await?;
            }
            let none = Value::Object(serde_json::Map::new());
            let call = new_call(id, agent, called, &none);
            let incarnation = app.incarnation.number;
            if !store::take_ringing(&mut tx, account, &call, incarnation, now).await? {
                return Ok(false);
            }
            let told = match tell {
                Some(agent) => self.tell_agent(&mut tx, agent, account, id).await?,
                None => false,
            };
            // Where the answer is lost and not the commit, it rings on and is taken or ended later.
            tx.commit().await?;
            ringing.written = true;
            if told {
                app.webhooks.wake();
            }
            Ok::<_, DbError>(true)
        };
        written.await.map_err(|error| unavailable(&error))
    }

    /// Tells an agent's webhook of placeholders that nothing fills. Whether there is something to tell.
    async fn tell_agent(
        &self,
        tx: &mut Tx,
        agent: &Agent,
        account: AccountId,
        id: CallId,
    ) -> Result<bool, DbError> {
        let none = agents::Variables::new();
        webhooks::service::tell_unfilled(&self.app, tx, account, agent, &none, id).await
    }

    /// Writes down that a call rings, unless it is written. A database that is away is asked again later.
    async fn note(&self, called: &Called, ringing: &mut Ringing) {
        if ringing.written {
            return;
        }
        match self.write_ringing(called, ringing).await {
            Ok(()) => ringing.written = true,
            Err(error) => {
                tracing::error!(%error, "that a call rings could not be written down");
            }
        }
    }

    async fn write_ringing(&self, called: &Called, ringing: &Ringing) -> Result<(), DbError> {
        let (app, account) = (&self.app, called.account);
        let mut agent = match called.agent {
            Some(agent) => agents::store::get(&app.db, account, agent).await?,
            None => None,
        };
        let mut tx = app.db.begin_write().await?;
        if let Some(found) = &agent
            && !agents::store::hold(&mut tx, account, found.id).await?
        {
            agent = None;
        }
        self.insert_ringing(&mut tx, called, agent.as_ref(), ringing)
            .await?;
        tx.commit().await
    }

    /// Writes down a call that rings here as one of its number's agent.
    pub(super) async fn insert_ringing(
        &self,
        tx: &mut Tx,
        called: &Called,
        agent: Option<&Agent>,
        ringing: &Ringing,
    ) -> Result<(), DbError> {
        let (app, account) = (&self.app, called.account);
        let (id, since) = (ringing.part.id, ringing.since);
        // An earlier try may have been committed, and its answer lost.
        if store::get_in(tx, account, id).await?.is_some() {
            return Ok(());
        }
        let none = Value::Object(serde_json::Map::new());
        store::insert(tx, account, &new_call(id, agent, called, &none), since).await?;
        let (node, incarnation) = (&app.config.cluster.node, app.incarnation.number);
        store::rings(tx, account, id, node, incarnation, since).await
    }

    /// Somebody let go of a call that rings.
    async fn let_go(&self, called: &Called, ringing: Ringing, by: Canceled) -> Declined {
        let declined = match by {
            Canceled::Api => Declined::AWAY,
            Canceled::Drain => Declined::UNAVAILABLE,
            Canceled::Blocked => Declined::FORBIDDEN,
        };
        let end = Unanswered {
            sip_code: Some(declined.code),
            ..Unanswered::canceled(name(by))
        };
        self.not_taken(called, ringing, &end, None).await;
        declined
    }

    /// A call that rang is refused.
    async fn refuse(&self, called: &Called, ringing: Ringing, declined: Declined) -> Declined {
        let end = Unanswered::not_taken(declined.code);
        self.not_taken(called, ringing, &end, None).await;
        declined
    }

    /// Writes the end of a call that rang and that nobody took.
    async fn not_taken(
        &self,
        called: &Called,
        mut ringing: Ringing,
        end: &Unanswered,
        error: Option<String>,
    ) {
        self.note(called, &mut ringing).await;
        let mut ending = Ending::unanswered(end);
        ending.errors.extend(error);
        ringing.part.write(ending).await;
    }
}

pub(super) fn new_call<'a>(
    id: CallId,
    agent: Option<&'a Agent>,
    called: &'a Called,
    none: &'a Value,
) -> store::NewCall<'a> {
    let settings = agent.map(|agent| &agent.settings);
    store::NewCall {
        id,
        agent_id: agent.map_or(AgentId::NIL, |agent| agent.id),
        agent_name: settings.map_or("", |settings| settings.name.as_str()),
        direction: "inbound",
        channel: "sip",
        language: agents::rules::language_name(
            settings.map_or_else(Default::default, |settings| settings.language),
        ),
        from_number: called.from.as_deref(),
        to_number: Some(&called.to),
        phone_number_id: called.number.as_ref().map(|number| number.id),
        trunk_id: called.trunk.as_ref().map(|trunk| trunk.id),
        matched_by: called.matched_by,
        dynamic_variables: none,
    }
}

/// What the API would say, as a telephone exchange says it.
fn refused(error: &ApiError) -> Declined {
    match is_at_cap(error) {
        true => Declined::BUSY,
        false => Declined::UNAVAILABLE,
    }
}

/// Whether every place is taken, on whichever server one asks. A server that is full or behind is not that, nor
/// is a store of leases that does not answer: the carrier may find room elsewhere.
pub(super) fn is_at_cap(error: &ApiError) -> bool {
    match error {
        ApiError::Capacity {
            reason, resource, ..
        } => *reason == Reason::Capacity && *resource != Some("node"),
        ApiError::TrunkHour { .. } => true,
        _ => false,
    }
}

/// Spreads the tries of calls that wait together; nothing secret hangs on it.
fn random() -> u64 {
    secret::random_bytes().map_or(0, u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_is_busy_at_a_cap_and_unavailable_where_nobody_can_say() {
        let refusal = |reason, resource| ApiError::Capacity {
            reason,
            resource,
            current: None,
            cap: None,
            retry_after: 1,
        };
        for (reason, resource, code) in [
            (Reason::Capacity, Some("account"), 486),
            (Reason::Capacity, Some("trunk"), 486),
            (Reason::Capacity, Some("pool"), 486),
            (Reason::Capacity, Some("node"), 503),
            (Reason::ServiceUnavailable, Some("node"), 503),
            (Reason::RedisUnavailable, Some("pool"), 503),
            (Reason::RedisError, Some("pool"), 503),
            (Reason::RedisError, None, 503),
        ] {
            let told = refused(&refusal(reason, resource));
            assert_eq!(told, Declined::with(code), "{reason:?} of {resource:?}");
        }
    }
}
