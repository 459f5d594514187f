//! Takes what is due and delivers it, many at a time, fairly: no account has more than its share of
//! what is in flight, and within an account no receiver has more than its own, so that one that does
//! not answer holds up nobody else.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use reqwest::Url;
use tokio::sync::watch;
use tokio::task::{Id, JoinSet};
use tracing::Instrument;

use super::deliver::{self, Outcome};
use super::event::Status;
use super::outbox::{self, Claimed, Due, Target};
use crate::agents;
use crate::app::App;
use crate::calls;
use crate::db::DbError;
use crate::ids::{AccountId, AgentId};

/// How long what another node added, or whose pause is over, waits at most to be seen.
const LOOK: Duration = Duration::from_millis(250);
/// Attempts of this node at the same time: each holds a socket and a body of at most 256 KiB.
const IN_FLIGHT: usize = 128;
/// Due events of one account that are read at once.
const BATCH: u32 = 16;
/// How often an account's due events are read in one pass. Each time up to [`BATCH`] more receivers are
/// left out; each is a level of the statement's condition, of which SQLite reads a thousand.
const READS: u32 = 32;
/// How long the last events may take when the process ends; what is left is the next start's.
const GOODBYE: Duration = Duration::from_secs(3);

/// Delivers until it is told to stop, then what is due at that moment.
pub async fn run(app: App, mut stop: watch::Receiver<bool>) {
    let longest = app.config.webhooks.schedule.longest_wait();
    match outbox::mend(&app.db, app.clock.shared(), longest).await {
        Ok(0) => {}
        Ok(count) => {
            tracing::warn!(
                count,
                "events waited by a clock that was ahead: they are due now"
            );
        }
        Err(error) => tracing::warn!(%error, "events could not be held against the clock"),
    }
    let mut worker = Worker::new(app.clone());
    while !*stop.borrow() {
        worker.fill_or_tell().await;
        tokio::select! {
            () = worker.one_done(), if worker.is_busy() => {}
            () = app.webhooks.woken() => {}
            () = tokio::time::sleep(LOOK) => {}
            changed = stop.changed() => if changed.is_err() { break },
        }
    }
    if tokio::time::timeout(GOODBYE, worker.until_quiet())
        .await
        .is_err()
    {
        tracing::warn!("not every event was delivered before the end; the next start goes on");
    }
}

/// How often settled events are looked through.
const PRUNE_EVERY: Duration = Duration::from_secs(3600);
/// Settled events that go at a time: a bound on one statement, not on the work.
const PRUNED: u32 = 500;

/// Lets go of settled events once they are as old as the setting says, until the process ends.
pub async fn run_pruning(app: App) {
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

/// The attempts in flight.
pub struct Worker {
    app: App,
    tasks: JoinSet<()>,
    slots: HashMap<Id, Slot>,
    /// The account that was served last: the next one comes first.
    last: AccountId,
}

/// Whose attempt it is.
struct Slot {
    account: AccountId,
    host: String,
    target: Target,
}

impl Worker {
    pub fn new(app: App) -> Self {
        Self {
            app,
            tasks: JoinSet::new(),
            slots: HashMap::new(),
            last: AccountId::NIL,
        }
    }

    fn is_busy(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// Delivers until nothing is in flight and nothing is due.
    pub async fn until_quiet(&mut self) {
        loop {
            self.fill_or_tell().await;
            if !self.is_busy() {
                return;
            }
            self.one_done().await;
        }
    }

    async fn fill_or_tell(&mut self) {
        if let Err(error) = self.fill().await {
            tracing::warn!(%error, "events could not be read; trying again");
        }
    }

    /// Starts as many attempts as there is room for. Cut off in the middle, it leaves claims that run
    /// out.
    pub async fn fill(&mut self) -> Result<(), DbError> {
        let mut accounts = outbox::due_accounts(&self.app.db, self.app.clock.shared()).await?;
        let after_last = accounts.partition_point(|account| *account <= self.last);
        accounts.rotate_left(after_last);
        for account in accounts {
            if self.slots.len() >= IN_FLIGHT {
                break;
            }
            self.last = account;
            let mut busy = self.busy(account);
            // Each time something is taken, or another receiver is found busy, or it is the last.
            for _ in 0..READS {
                if !self.fill_account(account, &mut busy).await? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Whether there may be more to start in this account, without the receivers that are `busy`. Those
    /// that are found to be are added: they may stand at a host whose share others have in flight.
    async fn fill_account(
        &mut self,
        account: AccountId,
        busy: &mut Vec<Target>,
    ) -> Result<bool, DbError> {
        let room = self.room(account);
        if room == 0 {
            return Ok(false);
        }
        let now = self.app.clock.shared();
        let found = outbox::due(&self.app.db, account, now, busy, BATCH).await?;
        let all = found.len() < BATCH as usize;
        let mut urls = HashMap::new();
        let mut wanted: Vec<(Due, Option<(String, Slot)>)> = Vec::new();
        let mut attempts = 0;
        let known = busy.len();
        for due in found {
            let Some(url) = self.url(account, &due.target, &mut urls).await? else {
                wanted.push((due, None));
                continue;
            };
            let slot = Slot {
                account,
                host: host(&url),
                target: due.target.clone(),
            };
            let beside = wanted
                .iter()
                .filter_map(|(_, wish)| Some(&wish.as_ref()?.1));
            let at_host = self.slots.values().chain(beside);
            let at_host =
                at_host.filter(|other| other.account == account && other.host == slot.host);
            if at_host.count() >= self.app.config.webhooks.per_host {
                if !busy.contains(&slot.target) {
                    busy.push(slot.target);
                }
            } else if attempts < room {
                attempts += 1;
                wanted.push((due, Some((url, slot))));
            }
        }
        let more = !all && (!wanted.is_empty() || busy.len() > known);
        if !wanted.is_empty() {
            self.start(account, wanted).await?;
        }
        Ok(more)
    }

    /// Claims and spawns.
    async fn start(
        &mut self,
        account: AccountId,
        wanted: Vec<(Due, Option<(String, Slot)>)>,
    ) -> Result<(), DbError> {
        let now = self.app.clock.shared();
        let lease_end = now.plus(self.app.config.webhooks.schedule.lease());
        let mut tx = self.app.db.begin_write().await?;
        let mut claimed = Vec::new();
        for (due, wish) in wanted {
            match wish {
                Some((url, slot)) => {
                    if let Some(event) =
                        outbox::claim(&mut tx, account, due.id, now, lease_end).await?
                    {
                        claimed.push((event, url, slot));
                    }
                }
                None => {
                    if outbox::skip(&mut tx, account, due.id, now).await? {
                        self.app.webhooks.count(Status::Skipped);
                    }
                }
            }
        }
        tx.commit().await?;
        for (event, url, slot) in claimed {
            let in_flight = InFlight::new(self.app.clone());
            let span = match event.call {
                Some(call) => calls::span(account, call),
                None => tracing::error_span!("event", %account),
            };
            let attempting = async move { attempt(&in_flight.0, event, &url).await };
            let task = self.tasks.spawn(attempting.instrument(span));
            self.slots.insert(task.id(), slot);
        }
        Ok(())
    }

    /// Waits for one attempt to end, and takes all that have ended.
    async fn one_done(&mut self) {
        let mut next = self.tasks.join_next_with_id().await;
        while let Some(done) = next {
            let id = match done {
                Ok((id, ())) => id,
                Err(error) => {
                    // Its claim runs out, and the event is tried again.
                    tracing::error!(%error, "an attempt to deliver an event broke off");
                    error.id()
                }
            };
            self.slots.remove(&id);
            next = self.tasks.try_join_next_with_id();
        }
    }

    /// How many more attempts the account may have in flight.
    fn room(&self, account: AccountId) -> usize {
        let own = self.slots.values().filter(|slot| slot.account == account);
        let limit = self.app.config.webhooks.per_account;
        limit
            .saturating_sub(own.count())
            .min(IN_FLIGHT.saturating_sub(self.slots.len()))
    }

    /// Targets of the account whose receivers have their share in flight.
    fn busy(&self, account: AccountId) -> Vec<Target> {
        let mut hosts: HashMap<&str, Vec<&Target>> = HashMap::new();
        for slot in self.slots.values().filter(|slot| slot.account == account) {
            hosts.entry(&slot.host).or_default().push(&slot.target);
        }
        let mut busy: Vec<Target> = Vec::new();
        for target in hosts
            .into_values()
            .filter(|targets| targets.len() >= self.app.config.webhooks.per_host)
            .flatten()
        {
            if !busy.contains(target) {
                busy.push(target.clone());
            }
        }
        busy
    }

    /// The address as it is now; an agent is read once a pass.
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

/// Counts itself among the attempts in flight while it lives.
struct InFlight(App);

impl InFlight {
    fn new(app: App) -> Self {
        app.webhooks
            .counts
            .in_flight
            .fetch_add(1, Ordering::Relaxed);
        Self(app)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0
            .webhooks
            .counts
            .in_flight
            .fetch_sub(1, Ordering::Relaxed);
    }
}

/// One attempt, written down. If it cannot be written the claim runs out and the event is delivered
/// again, under the same id.
async fn attempt(app: &App, event: Claimed, url: &str) {
    let began = Instant::now();
    let outcome = deliver::attempt(app, &event, url).await;
    app.metrics.webhook_attempt(began.elapsed());
    match &outcome {
        Outcome::Taken => {}
        Outcome::Failed(why) | Outcome::Unsafe(why) => {
            tracing::info!(event = %event.id, attempt = event.attempts, why, "an event was not taken");
        }
    }
    let schedule = &app.config.webhooks.schedule;
    let (id, class, attempts) = (event.id, event.class, event.attempts);
    let due_from = app.clock.shared();
    let finished = deliver::settle(id, class, attempts, outcome, schedule, due_from);
    let written = outbox::finish(
        &app.db,
        event.account,
        event.id,
        event.token,
        &finished,
        app.clock.now(),
    )
    .await;
    match written {
        Ok(true) => app.webhooks.count(finished.status),
        Ok(false) => {
            tracing::warn!(event = %event.id, "an attempt took longer than its claim: another has the event");
        }
        Err(error) => {
            tracing::error!(%error, event = %event.id, "an attempt could not be written down; it will be repeated");
        }
    }
}

/// What stands for the receiver when attempts are counted.
fn host(url: &str) -> String {
    Url::parse(url)
        .ok()
        .and_then(|url| Some(url.host_str()?.to_ascii_lowercase()))
        .unwrap_or_default()
}
