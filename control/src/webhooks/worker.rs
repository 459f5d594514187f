//! Events as jobs: where each goes, and what an attempt is. Within an account no receiver has more than
//! its share of what is in flight, so that one that does not answer holds up nobody else.

use std::collections::HashMap;
use std::convert::Infallible;
use std::time::{Duration, Instant};

use reqwest::Url;

use super::deliver::{self, Outcome};
use super::event::Status;
use super::outbox::{self, Event, Target};
use crate::agents;
use crate::db::{Arg, DbError, Row, Tx};
use crate::ids::{AccountId, AgentId, EventId};
use crate::jobs::{
    Claim, Ended, Found, Held, Kind, Lane, Lease, Left, Limits, Look, Plan, Queue, Table,
};
use crate::node::Node;
use crate::telemetry::span;

/// Attempts of this node at the same time: each holds a socket and a body of at most 256 KiB.
const IN_FLIGHT: usize = 128;

/// The delivery of events.
pub struct Delivery {
    app: Node,
}

/// Where an event goes now: the lane of its attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receiver {
    target: Target,
    url: String,
    /// What stands for the receiver when attempts are counted.
    host: String,
}

impl Lane for Receiver {
    fn scarce(&self) -> Option<&str> {
        Some(&self.host)
    }
}

impl Delivery {
    pub const fn new(app: Node) -> Self {
        Self { app }
    }

    /// The address as it is now; an agent is read once a look.
    async fn url(
        &self,
        account: AccountId,
        target: &Target,
        read: &mut HashMap<AgentId, Option<String>>,
    ) -> Result<Option<String>, DbError> {
        let agent = match target {
            Target::Url(url) => return Ok(Some(url.clone())),
            Target::Agent(agent) => *agent,
        };
        if let Some(url) = read.get(&agent) {
            return Ok(url.clone());
        }
        let found = agents::store::get(&self.app.db, account, agent).await?;
        let url = found.and_then(|agent| agent.settings.webhook_url);
        read.insert(agent, url.clone());
        Ok(url)
    }
}

impl Kind for Delivery {
    type Status = Status;
    type Lane = Receiver;
    type Job = Event;
    type Effect = Infallible;

    const TABLE: &'static Table = &Table {
        name: "events",
        open: outbox::OPEN,
        claimed: Status::Delivering.name(),
        columns: "call_id, type, class, body",
        done: Some((Status::Delivered.name(), "delivered_at")),
    };
    /// An event is sent at least once.
    const UNKNOWN: Option<Status> = None;

    fn word(status: Status) -> &'static str {
        status.name()
    }

    fn read(row: &Row) -> Result<Event, DbError> {
        Ok(Event {
            call: row.opt_parse("call_id")?,
            r#type: row.text("type")?,
            class: row.parse("class")?,
            body: row.text("body")?,
        })
    }

    fn limits(&self) -> Limits {
        let webhooks = &self.app.config.webhooks;
        Limits {
            node: IN_FLIGHT,
            account: webhooks.per_account,
            lane: webhooks.per_host,
        }
    }

    fn lease(&self) -> Lease {
        Lease::Bounded(self.app.config.webhooks.schedule.lease())
    }

    fn longest_wait(&self) -> Option<Duration> {
        Some(self.app.config.webhooks.schedule.longest_wait())
    }

    fn queue(&self) -> &Queue {
        &self.app.webhooks
    }

    async fn due(
        &self,
        look: &Look<'_>,
        full: &[Receiver],
    ) -> Result<Vec<Found<Receiver, Status>>, DbError> {
        let except: String = (Look::FIRST..)
            .zip(full)
            .map(|(place, receiver)| match &receiver.target {
                Target::Agent(_) => format!(" and (agent_id is null or agent_id <> ${place})"),
                Target::Url(_) => format!(" and (url is null or url <> ${place})"),
            })
            .collect();
        let values = full.iter().map(|receiver| match &receiver.target {
            Target::Agent(agent) => Arg::from(*agent),
            Target::Url(url) => Arg::from(url),
        });
        let due = look.rows("id, agent_id, url", &except, values.collect(), |row| {
            let target = match (row.opt_text("url")?, row.opt_parse("agent_id")?) {
                (Some(url), _) => Target::Url(url),
                (None, Some(agent)) => Target::Agent(agent),
                // An agent that is not there has no address: the event will be skipped.
                (None, None) => Target::Agent(AgentId::NIL),
            };
            Ok((row.parse("id")?, target))
        });
        let mut urls = HashMap::new();
        let mut found = Vec::new();
        for (id, target) in due.await? {
            let plan = match self.url(look.account, &target, &mut urls).await? {
                None => Plan::Close(Status::Skipped),
                Some(url) => Plan::Run(Receiver {
                    host: host(&url),
                    target,
                    url,
                }),
            };
            found.push(Found { id, plan });
        }
        Ok(found)
    }

    /// One attempt.
    async fn step(
        &self,
        claim: &Claim<Self>,
        to: Receiver,
        event: Event,
    ) -> Result<Ended<Status, Infallible>, Left> {
        let (app, held) = (&self.app, &claim.held);
        let began = Instant::now();
        let outcome = deliver::attempt(app, held.account, &event, &to.url).await;
        app.metrics.webhook_attempt(began.elapsed());
        match &outcome {
            Outcome::Taken => {}
            Outcome::Failed(why) | Outcome::Unsafe(why) => {
                tracing::info!(event = %held.id, attempt = held.attempts, why, "an event was not taken");
            }
        }
        Ok(Ended::new(deliver::settle(
            EventId(held.id),
            event.class,
            held.attempts,
            outcome,
            &app.config.webhooks.schedule,
            app.clock.shared(),
        )))
    }

    async fn keep(&self, _: &mut Tx, _: &Held, effect: &Infallible) -> Result<(), DbError> {
        match *effect {}
    }

    fn ended(&self, status: Status) {
        self.app.metrics.webhook_ended(status.name());
    }

    fn span(&self, held: &Held, event: &Event) -> tracing::Span {
        let account = held.account;
        match event.call {
            Some(call) => span(account, call),
            None => tracing::error_span!("event", %account),
        }
    }
}

fn host(url: &str) -> String {
    Url::parse(url)
        .ok()
        .and_then(|url| Some(url.host_str()?.to_ascii_lowercase()))
        .unwrap_or_default()
}

/// How often settled events are looked through.
const PRUNE_EVERY: Duration = Duration::from_secs(3600);
/// Settled events that go at a time: a bound on one statement, not on the work.
const PRUNED: u32 = 500;

/// Lets go of settled events once they are as old as the setting says, until the process ends.
pub async fn run_pruning(app: Node) {
    let Some(age) = app.config.webhooks.kept else {
        return;
    };
    let mut ticks = tokio::time::interval(PRUNE_EVERY);
    loop {
        ticks.tick().await;
        let before = app.clock.now().minus(age);
        loop {
            match outbox::prune(&app.db, before, PRUNED).await {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(%error, "settled events could not be let go of");
                    break;
                }
            }
        }
    }
}
