//! The lobby: a call whose number has routing rules rings while no agent can answer, asks again, and is
//! then taken as the rules say ([`routing`]). What is not taken leaves a record.

use std::time::Duration;

use serde_json::Value;
use sip::event::{CallId as LineId, Command, Event};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::forward::NotForwarded;
use super::inbound::{Admitted, Called, Declined, Desk, Taken, unavailable};
use crate::admission::{Request, State};
use crate::agents::{self, Agent};
use crate::calls::bridge;
use crate::calls::dial::rules::Unanswered;
use crate::calls::ending::{self, Also};
use crate::calls::rules::Ending;
use crate::calls::store;
use crate::db::DbError;
use crate::http::ApiError;
use crate::http::error::Reason;
use crate::ids::{AgentId, CallId};
use crate::phone_numbers;
use crate::phone_numbers::routing::{Happened, Lack, Lobby, Next};
use crate::secret;
use crate::time::Timestamp;
use crate::webhooks;

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
        let (began, since) = (Instant::now(), self.app.clock.now());
        let rules = called.number.as_ref().and_then(|n| n.routing_rules.clone());
        let waits = rules.is_some();
        let mut lobby = Lobby::new(rules, Duration::ZERO);
        let mut rings = false;
        let mut happened = match self.ask(&called).await? {
            Ok(admitted) => return Ok(Taken::Call(admitted)),
            // It may ring at another server, to which the carrier turns upon this.
            Err(_) if self.app.is_draining() && waits => return Err(Declined::UNAVAILABLE),
            Err(lack) => Happened::Refused(lack),
        };
        loop {
            match lobby.handle(began.elapsed(), happened, random()) {
                Next::Wait(until) => {
                    if !rings {
                        rings = true;
                        self.tell(Command::Ring(line, None));
                    }
                    happened = self.wait(began + until, events).await;
                }
                Next::Ask => {
                    happened = match self.look_again(&mut called).await {
                        Ok(true) => match self.ask(&called).await? {
                            Ok(admitted) => return Ok(Taken::Call(admitted)),
                            Err(lack) => Happened::Refused(lack),
                        },
                        Ok(false) => {
                            let end = Unanswered::not_taken(Declined::NOBODY.code);
                            self.not_taken(&called, since, &end, None).await;
                            return Err(Declined::NOBODY);
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
                    self.not_taken(&called, since, &end, None).await;
                    return Err(Declined::CANCELED);
                }
                Next::Message(_) => {
                    let taken = self.take_message(&called, since).await;
                    if let Err(Declined { code, .. }) = taken {
                        let end = Unanswered::not_taken(code);
                        self.not_taken(&called, since, &end, None).await;
                    }
                    return taken.map(Taken::Call);
                }
                Next::Forward(to, _) => {
                    return match self.forward(&called, &to, since, events).await {
                        Ok(forwarded) => Ok(Taken::Forwarded(Box::new(forwarded))),
                        Err(NotForwarded { code, unwritten }) => {
                            if let Some(error) = unwritten {
                                let end = Unanswered::not_taken(code);
                                self.not_taken(&called, since, &end, Some(error)).await;
                            }
                            Err(Declined::with(code))
                        }
                    };
                }
                Next::Refuse(lack) => {
                    let code = lack.code();
                    if rings {
                        let end = Unanswered::not_taken(code);
                        self.not_taken(&called, since, &end, None).await;
                    }
                    return Err(Declined::with(code));
                }
            }
        }
    }

    /// Lets the caller hear it ring until then.
    async fn wait(&self, until: Instant, events: &mut mpsc::Receiver<Event>) -> Happened {
        loop {
            tokio::select! {
                event = events.recv() => {
                    if matches!(event, Some(Event::Ended { .. }) | None) {
                        return Happened::Left;
                    }
                }
                () = tokio::time::sleep_until(until) => {
                    return match self.app.is_draining() {
                        true => Happened::Leaving,
                        false => Happened::Due,
                    };
                }
            }
        }
    }

    /// Whether an agent answers. An error is one that no waiting mends.
    async fn ask(&self, called: &Called) -> Result<Result<Admitted, Lack>, Declined> {
        match self.admit(called).await {
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
    async fn admit(&self, called: &Called) -> Result<Admitted, Declined> {
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
        let id = CallId::new(&app.clock);
        let lease = app
            .admit(self.wish(called, id, State::Pending))
            .await
            .map_err(|error| refused(&error))?;
        if !self.record(id, Some(&agent), called, None).await? {
            return Err(Declined::AWAY);
        }
        lease.leave();
        Ok(Admitted {
            account,
            id,
            lease: None,
            message: false,
        })
    }

    /// A slot beyond those of account and agent, and a record: the caller leaves a message.
    async fn take_message(&self, called: &Called, since: Timestamp) -> Result<Admitted, Declined> {
        let (app, account) = (&self.app, called.account);
        let agent = self.agent(called).await?;
        let id = CallId::new(&app.clock);
        let wish = Request {
            beyond: true,
            ..self.wish(called, id, State::Live)
        };
        let lease = app.admit(wish).await.map_err(|error| refused(&error))?;
        let recorded = match &agent {
            Some(agent) => self.record(id, Some(agent), called, Some(since)).await?,
            None => false,
        };
        // The agent was deleted, now or long ago: the message is the number's.
        if !recorded {
            self.record(id, None, called, Some(since)).await?;
        }
        Ok(Admitted {
            account,
            id,
            lease: Some(lease),
            message: true,
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

    /// Writes the call down as one that this process hosts; where it rang before, since when. `false`:
    /// its agent was deleted.
    async fn record(
        &self,
        id: CallId,
        agent: Option<&Agent>,
        called: &Called,
        rang: Option<Timestamp>,
    ) -> Result<bool, Declined> {
        let (app, account) = (&self.app, called.account);
        let written = async {
            let now = app.clock.now();
            let mut tx = app.db.begin_write().await?;
            if let Some(agent) = agent
                && !agents::store::hold(&mut tx, account, agent.id).await?
            {
                return Ok(false);
            }
            let none = Value::Object(serde_json::Map::new());
            let call = new_call(id, agent, called, &none);
            store::insert(&mut tx, account, &call, now).await?;
            let (node, incarnation) = (&app.config.cluster.node, app.incarnation.number);
            store::take(&mut tx, account, id, node, incarnation, now).await?;
            let told = match (agent, rang) {
                (_, Some(since)) => {
                    store::rang(&mut tx, account, id, since).await?;
                    false
                }
                (Some(agent), None) => {
                    let none = agents::Variables::new();
                    webhooks::service::tell_unfilled(app, &mut tx, account, agent, &none, id)
                        .await?
                }
                (None, None) => false,
            };
            if let Err(error) = tx.commit().await {
                // The answer may have been lost and not the commit: then nobody would end this call.
                let why = "the database was lost while the call came in";
                bridge::could_not_start(app, account, id, why).await;
                return Err(error);
            }
            if told {
                app.webhooks.wake();
            }
            Ok::<_, DbError>(true)
        };
        written.await.map_err(|error| unavailable(&error))
    }

    /// Writes down a call that rang and that nobody took.
    async fn not_taken(
        &self,
        called: &Called,
        since: Timestamp,
        end: &Unanswered,
        error: Option<String>,
    ) {
        let written = self.write_not_taken(called, since, end, error).await;
        if let Err(error) = written {
            tracing::error!(%error, "a call that was not taken could not be written down");
        }
    }

    async fn write_not_taken(
        &self,
        called: &Called,
        since: Timestamp,
        end: &Unanswered,
        error: Option<String>,
    ) -> Result<(), DbError> {
        let (app, account) = (&self.app, called.account);
        let agent = match called.agent {
            Some(agent) => agents::store::get(&app.db, account, agent).await?,
            None => None,
        };
        let (id, now) = (CallId::new(&app.clock), app.clock.now());
        let none = Value::Object(serde_json::Map::new());
        let call = new_call(id, agent.as_ref(), called, &none);
        let mut tx = app.db.begin_write().await?;
        store::insert(&mut tx, account, &call, now).await?;
        store::rang(&mut tx, account, id, since).await?;
        let also = Also {
            event: true,
            recording: false,
        };
        // Nobody hosts it: it never was a conversation.
        let mut ending = Ending::unanswered(end);
        ending.errors.extend(error);
        let ended = ending::end_in(app, &mut tx, account, id, 0, &ending, also, now).await?;
        tx.commit().await?;
        if let Some(ended) = ended {
            ended.count(app);
        }
        app.webhooks.wake();
        Ok(())
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
