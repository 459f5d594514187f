//! The record of an inbound call: that it rings, who answers it, and its end where nobody does.

use serde_json::Value;

use super::call_leg::CallLeg;
use super::called::Called;
use super::declined::{Declined, unavailable};
use super::task::InboundTask;
use crate::agents::{self, Agent};
use crate::calls::bridge;
use crate::calls::dial::rules::Unanswered;
use crate::calls::rules::{Channel, Direction, Ending};
use crate::calls::store;
use crate::db::{DbError, Tx};
use crate::ids::{AccountId, AgentId, CallId};
use crate::time::Timestamp;
use crate::webhooks;

/// A call that rings here.
pub(super) struct Ringing {
    pub(super) leg: CallLeg,
    pub(super) since: Timestamp,
    /// Its record stands.
    pub(super) written: bool,
}

impl InboundTask {
    /// Writes the call down as one that this process hosts. `false`: its agent was deleted.
    pub(super) async fn record(
        &self,
        id: CallId,
        agent: &Agent,
        called: &Called,
    ) -> Result<bool, Declined> {
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
    pub(super) async fn record_ringing(
        &self,
        agent: Option<&Agent>,
        called: &Called,
        ringing: &mut Ringing,
        tell: Option<&Agent>,
    ) -> Result<bool, Declined> {
        let (app, account, id) = (&self.app, called.account, ringing.leg.id);
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
    pub(super) async fn note(&self, called: &Called, ringing: &mut Ringing) {
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

    /// The agent is the one that was just asked whether it answers, if somebody could say so.
    async fn write_ringing(&self, called: &Called, ringing: &Ringing) -> Result<(), DbError> {
        let (app, account) = (&self.app, called.account);
        let mut agent = match (&called.read, called.agent) {
            (_, None) => None,
            (Some(agent), Some(id)) if agent.id == id => Some(agent.clone()),
            (_, Some(id)) => agents::store::get(&app.db, account, id).await?,
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
        let (id, since) = (ringing.leg.id, ringing.since);
        // An earlier try may have been committed, and its answer lost.
        if store::get_in(tx, account, id).await?.is_some() {
            return Ok(());
        }
        let none = Value::Object(serde_json::Map::new());
        store::insert(tx, account, &new_call(id, agent, called, &none), since).await?;
        let (node, incarnation) = (&app.config.cluster.node, app.incarnation.number);
        store::rings(tx, account, id, node, incarnation, since).await
    }

    /// Writes the end of a call that rang and that nobody took.
    pub(super) async fn not_taken(
        &self,
        called: &Called,
        mut ringing: Ringing,
        end: &Unanswered,
        error: Option<String>,
    ) {
        self.note(called, &mut ringing).await;
        let mut ending = Ending::unanswered(end);
        ending.errors.extend(error);
        ringing.leg.write(ending).await;
    }
}

/// The call as its record has it: with this agent, or with none.
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
        direction: Direction::Inbound,
        channel: Channel::Sip,
        language: agents::rules::language_name(
            settings.map_or_else(Default::default, |settings| settings.language),
        ),
        from_number: called.from.as_deref(),
        to_number: Some(&called.to),
        phone_number_id: called.number.as_ref().map(|number| number.id),
        trunk_id: called.trunk.as_ref().map(|trunk| trunk.id),
        matched_by: called.matched_by,
        from_withheld: called.withheld,
        dynamic_variables: none,
    }
}
