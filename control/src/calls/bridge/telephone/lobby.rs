//! The lobby finds who answers an inbound call: the number's agent, an announcement before a message, or another
//! telephone. Where no agent can answer and the number has routing rules, the call rings, asks again, and is then taken
//! as the rules say ([`routing`](crate::phone_numbers::routing)). A call that rings has a record, which ends whatever
//! becomes of the call.

use std::time::Duration;

use serde_json::Value;
use sip::event::{CallId as SipLegId, Command, Event};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::call_leg::{CallLeg, name};
use super::called::Called;
use super::declined::{Declined, refused, unavailable};
use super::forward::{Forwarded, NotForwarded};
use super::record::{Ringing, new_call};
use super::task::InboundTask;
use crate::admission::{Lease, Request, State};
use crate::agents::{self, Agent};
use crate::calls::bridge::{Facts, Prepared};
use crate::calls::dial::rules::Unanswered;
use crate::calls::live::{Canceled, Dialling};
use crate::db::DbError;
use crate::ids::{AccountId, CallId};
use crate::phone_numbers;
use crate::phone_numbers::routing::{Happened, Lack, Lobby, Next};
use crate::secret;

/// The one who answers an inbound call.
pub(super) enum Answerer {
    /// The number's agent, or an announcement after which the caller leaves a message.
    Engine(Box<Admitted>),
    /// The telephone to which the call is forwarded.
    Telephone(Box<Forwarded>),
}

impl Answerer {
    /// The record of the call that came in.
    pub(super) fn whose(&self) -> (AccountId, CallId) {
        match self {
            Self::Engine(admitted) => (admitted.account, admitted.id),
            Self::Telephone(forwarded) => forwarded.whose(),
        }
    }
}

/// A call that was let in, with who speaks in it.
pub(super) struct Admitted {
    pub(super) account: AccountId,
    pub(super) id: CallId,
    pub(super) prepared: Box<Prepared>,
    /// Where it is this process's already; else it is adopted.
    pub(super) lease: Option<Lease>,
    /// It rang, and is among the calls that ring until the engine has it.
    pub(super) rang: Option<Box<CallLeg>>,
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

impl InboundTask {
    /// Lets the call in: to an agent, to leave a message, or to somebody else. Where nobody can answer and the number
    /// has rules, it rings for a while first.
    pub(super) async fn admit_or_ring(
        &self,
        line: SipLegId,
        mut called: Called,
        events: &mut mpsc::Receiver<Event>,
    ) -> Result<Answerer, Declined> {
        let began = Instant::now();
        let rules = called.number.as_ref().and_then(|n| n.routing_rules.clone());
        let waits = rules.is_some();
        let mut lobby = Lobby::new(rules, Duration::ZERO);
        let mut happened = match self.ask(&mut called, None).await? {
            Ok(admitted) => return Ok(Answerer::Engine(Box::new(admitted))),
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
                    let by = &ringing.leg.dialling;
                    happened = match self.wait(began + until, by, events).await {
                        Ok(happened) => happened,
                        Err(by) => return Err(self.let_go(&called, ringing, by).await),
                    };
                }
                Next::Ask => {
                    happened = match self.look_again(&mut called).await {
                        Ok(true) => match self.ask(&mut called, Some(&mut ringing)).await {
                            Ok(Ok(admitted)) => {
                                let rang = Some(Box::new(ringing.leg));
                                return Ok(Answerer::Engine(Box::new(Admitted {
                                    rang,
                                    ..admitted
                                })));
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
                            let rang = Some(Box::new(ringing.leg));
                            Ok(Answerer::Engine(Box::new(Admitted { rang, ..admitted })))
                        }
                        Err(declined) => Err(self.refuse(&called, ringing, declined).await),
                    };
                }
                Next::Forward(to, lack) => {
                    return match self.forward(&called, &to, lack, ringing, events).await {
                        Ok(forwarded) => Ok(Answerer::Telephone(Box::new(forwarded))),
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

    /// Whether an agent answers. An error is one that no waiting mends.
    async fn ask(
        &self,
        called: &mut Called,
        ringing: Option<&mut Ringing>,
    ) -> Result<Result<Admitted, Lack>, Declined> {
        match self.admit(called, ringing).await {
            Ok(admitted) => Ok(Ok(admitted)),
            Err(declined) => declined.lack().map(Err).ok_or(declined),
        }
    }

    /// The number's agent with its speech, a slot and a record.
    async fn admit(
        &self,
        called: &mut Called,
        ringing: Option<&mut Ringing>,
    ) -> Result<Admitted, Declined> {
        let (app, account) = (&self.app, called.account);
        if called.agent.is_none() {
            return Err(Declined::AWAY);
        }
        called.read = self.agent(called).await?;
        let called = &*called;
        let agent = called.read.as_ref().ok_or(match called.number {
            Some(_) => Declined::AWAY,
            None => Declined::NOBODY,
        })?;
        if agent.status != agents::Status::Active {
            return Err(Declined::AWAY);
        }
        let rang = ringing.as_ref().map(|ringing| ringing.leg.id);
        let id = rang.unwrap_or_else(|| CallId::new(&app.clock));
        let none = Value::Object(serde_json::Map::new());
        let call = new_call(id, Some(agent), called, &none);
        let prepared = Prepared::conversation(app, &Facts::from(&call), agent, called.room());
        let prepared = prepared.map(Box::new).map_err(|why| {
            tracing::info!(%why, "the agent of a call that came in cannot speak");
            Declined::UNAVAILABLE
        })?;
        self.carried.call(account, id);
        let lease = app
            .admit(called.wish(app, id, State::Pending))
            .await
            .map_err(|error| refused(&error))?;
        let recorded = match ringing {
            Some(ringing) => {
                self.record_ringing(Some(agent), called, ringing, Some(agent))
                    .await?
            }
            None => self.record(id, agent, called).await?,
        };
        if !recorded {
            return Err(Declined::AWAY);
        }
        lease.leave();
        Ok(Admitted {
            account,
            id,
            prepared,
            lease: None,
            rang: None,
        })
    }

    /// The number's agent, as it stands now.
    async fn agent(&self, called: &Called) -> Result<Option<Agent>, Declined> {
        let Some(agent) = called.agent else {
            return Ok(None);
        };
        agents::store::get(&self.app.db, called.account, agent)
            .await
            .map_err(|error| unavailable(&error))
    }

    /// It rings from now on: for the caller, among the calls of this process, and in the records. `None`: too many
    /// do.
    async fn ring(&self, line: SipLegId, called: &Called) -> Option<Ringing> {
        let mut ringing = Ringing {
            leg: CallLeg::ring(&self.app, called)?,
            since: self.app.clock.now(),
            written: false,
        };
        self.tell(line, Command::Ring(line, None));
        let (account, id) = (called.account, ringing.leg.id);
        self.carried.leg(account, id);
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

    /// A slot beyond those of account and agent, and a record: the caller leaves a message.
    async fn take_message(
        &self,
        called: &Called,
        ringing: &mut Ringing,
    ) -> Result<Admitted, Declined> {
        let (app, account, id) = (&self.app, called.account, ringing.leg.id);
        let agent = self.agent(called).await?;
        let wish = Request {
            beyond: true,
            ..called.wish(app, id, State::Live)
        };
        let lease = app.admit(wish).await.map_err(|error| refused(&error))?;
        let mut agent = agent.as_ref();
        let recorded = match agent {
            Some(_) => self.record_ringing(agent, called, ringing, None).await?,
            None => false,
        };
        if !recorded {
            // The agent was deleted, now or long ago: the message is the number's.
            agent = None;
            if !self.record_ringing(None, called, ringing, None).await? {
                return Err(Declined::UNAVAILABLE);
            }
        }
        let none = Value::Object(serde_json::Map::new());
        let call = new_call(id, agent, called, &none);
        let prepared = Prepared::message(app, &Facts::from(&call), agent, called.room());
        Ok(Admitted {
            account,
            id,
            prepared: Box::new(prepared),
            lease: Some(lease),
            rang: None,
        })
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
}

/// Spreads the tries of calls that wait together; nothing secret hangs on it.
fn random() -> u64 {
    secret::random_bytes().map_or(0, u64::from_le_bytes)
}
