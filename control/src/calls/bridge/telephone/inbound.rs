//! The way of an inbound call: from its INVITE over whoever answers it to its leg, and the end of either side to the
//! other.
//!
//! Each step hands its result on. `called.rs` says whose number was called, `lobby.rs` who answers: an agent or a
//! message, each with its speech, slot and record, or the telephone that `forward.rs` reached. Only then the call gets
//! ports. They are bound before they are offered, and the engine or the relay has the call before the answer is sent. A
//! step that cannot be done is a refusal (`declined.rs`).

use std::sync::Arc;
use std::time::Duration;

use media::rtp::sdp::{self, Flow};
use sip::event::{CallId as SipLegId, Command, Event, Incoming};
use sip::message::Body;
use tokio::sync::mpsc;

use super::carried::Carried;
use super::declined::Declined;
use super::joined::Joined;
use super::lobby::{Admitted, Answerer};
use super::session::LocalSession;
use super::talking::{How, Settled, Talking};
use super::task::InboundTask;
use super::{Exchange, SipLeg};
use crate::calls::bridge::{self, NotPlaced};
use crate::calls::dial::rules::Unanswered;
use crate::calls::journal::Owner;
use crate::calls::lifecycle;
use crate::calls::rules::Ending;
use crate::calls::store;
use crate::ids::{AccountId, CallId};
use crate::node::Node;
use crate::supervisor;

/// How long a call whose INVITE had no offer may take to answer ours, and one that is over to end.
const ANSWER_WITHIN: Duration = Duration::from_secs(32);

/// Whom the caller hears.
pub(super) enum Conversation {
    Agent(Box<Talking>),
    Joined(Box<Joined>),
}

/// Serves one call, from its INVITE to its end, in a task of its own.
pub(super) fn begin(app: Node, exchange: Arc<Exchange>, line: SipLeg, incoming: Box<Incoming>) {
    let SipLeg { id, events } = line;
    let carried = Carried::default();
    carried.line(id);
    let task = InboundTask {
        app: app.clone(),
        exchange: Arc::clone(&exchange),
        carried: carried.clone(),
    };
    let serving = async move { task.serve(id, &incoming, events).await };
    supervisor::carry("a call that came in", serving, async move |why| {
        carried.put_right(&app, &exchange, &why).await;
    });
}

impl InboundTask {
    async fn serve(&self, line: SipLegId, incoming: &Incoming, mut events: mpsc::Receiver<Event>) {
        match self.take(line, incoming, &mut events).await {
            Ok(Conversation::Agent(talking)) => talking.follow(&self.exchange, line, events).await,
            Ok(Conversation::Joined(joined)) => joined.follow(&self.exchange, line, events).await,
            Err(Declined { code, warning }) => {
                tracing::info!(code, warning, "a telephone call is not taken");
                // Refuses a call that rings, and ends one that was answered before both agreed.
                let warning = warning.map(str::to_owned);
                self.tell(line, Command::Reject(line, code, warning));
                self.tell(line, Command::HangUp(line, None));
            }
        }
    }

    /// Lets the call in, answers it and puts it on the engine.
    pub(super) async fn take(
        &self,
        line: SipLegId,
        incoming: &Incoming,
        events: &mut mpsc::Receiver<Event>,
    ) -> Result<Conversation, Declined> {
        let offer = incoming.offer.as_ref();
        if offer.is_some_and(|offer| !offer.is("application/sdp")) {
            return Err(Declined::NOT_ACCEPTABLE);
        }
        let called = self.called(incoming).await.map_err(|why| match why {
            // A trunk that wants a password may have the number.
            Declined::NOBODY if incoming.may_prove => Declined::UNPROVED,
            why => why,
        })?;
        #[cfg(test)]
        supervisor::faults::reach("a call that comes in", called.account);
        let sources = &self.app.config.sip.sources;
        let at = self.exchange.of_caller(incoming, sources);
        let place = self.exchange.place(&at);
        let local = place.local(called.encryption).map_err(|error| {
            tracing::error!(%error, "no random bytes");
            Declined::UNAVAILABLE
        })?;
        let mut ours = LocalSession {
            local,
            described: String::new(),
            at,
        };
        // Before anything is spent on it: an offer that cannot be agreed to.
        if let Some(offer) = offer {
            ours.answer(offer)?;
        }
        let answerer = self.admit_or_ring(line, called, events).await?;
        let (account, id) = answerer.whose();
        self.exchange.traces.belongs(line, account, id);
        // A line closes with its call: who gave up while the call was let in is not answered any more.
        if events.is_closed() {
            return Err(self.caller_left(answerer).await);
        }
        // Not before: callers whom nobody has room for must not take the ports of those who are let in.
        let mut ports = match place.take_ports() {
            Ok(ports) => ports,
            Err(error) => {
                tracing::error!(%error, "no ports for a telephone call");
                let why = format!("no ports for the audio: {error}");
                let told = Declined::UNAVAILABLE;
                return Err(self.give_up(answerer, &why, told, false).await);
            }
        };
        ours.local.port = ports.port();
        // An offer is answered once the engine has the call; without one, ours is in the answer.
        let answered = offer.is_none();
        let answer = match offer.map(|offer| ours.answer(offer)).transpose() {
            Ok(answer) => answer,
            Err(why) => {
                let told = why.to_string();
                return Err(self.give_up(answerer, &told, why.into(), answered).await);
            }
        };
        match answer {
            Some((text, agreed)) => {
                let settled = Settled {
                    ports,
                    ours,
                    agreed,
                };
                match self.begin(answerer, settled, answered).await {
                    Ok(conversation) => {
                        self.tell(line, Command::Answer(line, Body::sdp(text)));
                        Ok(conversation)
                    }
                    Err(why) => Err(self.refused(account, id, why).await),
                }
            }
            None => {
                let offered = sdp::offer(&ours.local, Flow::SendRecv);
                ports.told();
                let offer = Body::sdp(offered.text.clone());
                self.tell(line, Command::Answer(line, offer));
                let Some(body) = established(events).await else {
                    let why = "the caller did not answer our offer";
                    let told = Declined::NOT_ACCEPTABLE;
                    return Err(self.give_up(answerer, why, told, answered).await);
                };
                match ours.accept(&offered, &body) {
                    Ok(agreed) => {
                        let settled = Settled {
                            ports,
                            ours,
                            agreed,
                        };
                        self.begin(answerer, settled, answered).await
                    }
                    Err(why) => {
                        let why = why.to_string();
                        let told = Declined::NOT_ACCEPTABLE;
                        Err(self.give_up(answerer, &why, told, answered).await)
                    }
                }
            }
        }
    }

    async fn begin(
        &self,
        answerer: Answerer,
        settled: Settled,
        answered: bool,
    ) -> Result<Conversation, Declined> {
        Ok(match answerer {
            Answerer::Engine(admitted) => {
                let placed = self.place(*admitted, settled, answered).await?;
                Conversation::Agent(Box::new(placed))
            }
            Answerer::Telephone(forwarded) => {
                Conversation::Joined(Box::new(forwarded.join(self, settled).await?))
            }
        })
    }

    async fn place(
        &self,
        admitted: Admitted,
        settled: Settled,
        answered: bool,
    ) -> Result<Talking, Declined> {
        let Admitted {
            account,
            id,
            prepared,
            lease,
            rang,
        } = admitted;
        let how = How {
            prepared: Some(prepared),
            lease,
            answered,
        };
        let begun = Talking::begin(&self.app, account, id, settled, how).await;
        drop(rang);
        begun.map_err(|why| match why {
            NotPlaced::Blocked => Declined::FORBIDDEN,
            // Account and trunk had room for it: this server has none.
            NotPlaced::NoCapacity | NotPlaced::Failed => Declined::UNAVAILABLE,
        })
    }

    /// A call whose record stands already ends before it began; `answered`: and after we answered.
    async fn give_up(
        &self,
        answerer: Answerer,
        why: &str,
        declined: Declined,
        answered: bool,
    ) -> Declined {
        let (account, id) = answerer.whose();
        match answerer {
            Answerer::Engine(_) => {
                bridge::could_not_start(&self.app, account, id, why, answered).await;
            }
            Answerer::Telephone(forwarded) => forwarded.give_up(self, why).await,
        }
        match answered {
            true => declined,
            false => self.refused(account, id, declined).await,
        }
    }

    /// A call whose record is that of an answered one is refused after all. A database that is away misses it.
    async fn refused(&self, account: AccountId, id: CallId, why: Declined) -> Declined {
        let written = store::refused(&self.app.db, account, id, why.code).await;
        if let Err(error) = written {
            tracing::warn!(%error, "what a caller was refused with could not be written down");
        }
        why
    }

    /// The caller is gone, and the record stands.
    async fn caller_left(&self, answerer: Answerer) -> Declined {
        match answerer {
            Answerer::Engine(admitted) => {
                let (account, id) = (admitted.account, admitted.id);
                let incarnation = &self.app.incarnation;
                let owner = Owner {
                    account,
                    call: id,
                    incarnation: incarnation.number,
                };
                let ending = Ending::unanswered(&Unanswered::caller_left());
                lifecycle::write_end(&self.app, owner, ending).await;
                self.app.admission.release(id, &incarnation.owner);
            }
            Answerer::Telephone(forwarded) => forwarded.caller_left(self).await,
        }
        Declined::CANCELED
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
