//! The worker of a process: takes what is due, fairly, runs its steps beside each other, keeps their claims
//! and writes down their ends.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{Id, JoinSet};
use tracing::Instrument;

use super::kind::{Answer, Ended, Finished, Found, Held, Kind, Left, Plan};
use super::policy::Shares;
use super::store::{self, Look, NOBODY_KNOWS};
use crate::db::{Db, DbError};
use crate::ids::AccountId;
use crate::time::{Clock, Timestamp};

/// How long what another node added, or whose pause is over, waits at most to be seen.
const LOOK: Duration = Duration::from_millis(250);
/// Due rows of one account that are read at once.
const BATCH: u32 = 16;
/// How often an account's due rows are read in one pass. Each time up to [`BATCH`] more lanes are left out;
/// each is a level of the statement's condition, of which SQLite reads a thousand.
const READS: u32 = 32;
/// How long the last steps may take when the process ends; what is left is the next start's.
const GOODBYE: Duration = Duration::from_secs(3);
/// The pause before an end is written down again that the database did not take.
const AGAIN: Duration = Duration::from_millis(100);

/// Works until it is told to stop, then on what is due at that moment.
pub async fn run<K: Kind>(kind: K, db: Db, clock: Clock, mut stop: watch::Receiver<bool>) {
    let jobs = K::TABLE.name;
    if let Some(longest) = kind.longest_wait() {
        match store::mend::<K>(&db, clock.shared(), longest).await {
            Ok(0) => {}
            Ok(count) => {
                tracing::warn!(
                    count,
                    jobs,
                    "jobs waited by a clock that was ahead: they are due now"
                );
            }
            Err(error) => {
                tracing::warn!(%error, jobs, "jobs could not be held against the clock");
            }
        }
    }
    let mut worker = Worker::new(kind, db, clock);
    let kind = worker.kind.clone();
    while !*stop.borrow() {
        worker.fill_or_tell().await;
        tokio::select! {
            () = worker.one_done(), if worker.is_busy() => {}
            () = kind.queue().woken() => {}
            () = tokio::time::sleep(LOOK) => {}
            changed = stop.changed() => if changed.is_err() { break },
        }
    }
    if tokio::time::timeout(GOODBYE, worker.until_quiet())
        .await
        .is_err()
    {
        tracing::warn!(
            jobs,
            "not every job was done before the end; the next start goes on"
        );
    }
}

/// The steps in flight of a process.
pub struct Worker<K: Kind> {
    kind: Arc<K>,
    db: Db,
    clock: Clock,
    tasks: JoinSet<()>,
    shares: Shares<Id, K::Lane>,
}

impl<K: Kind> Worker<K> {
    pub fn new(kind: K, db: Db, clock: Clock) -> Self {
        Self {
            shares: Shares::new(kind.limits()),
            kind: Arc::new(kind),
            db,
            clock,
            tasks: JoinSet::new(),
        }
    }

    pub(super) fn is_busy(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// Works until nothing is in flight and nothing is due.
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
            let jobs = K::TABLE.name;
            tracing::warn!(%error, jobs, "jobs could not be read; trying again");
        }
    }

    /// Starts as many steps as there is room for. Cut off in the middle, it leaves claims that run out.
    pub async fn fill(&mut self) -> Result<(), DbError> {
        let due = store::due_accounts::<K>(&self.db, self.clock.shared()).await?;
        for account in self.shares.turns(due) {
            if self.shares.is_full() {
                break;
            }
            self.shares.serve(account);
            let mut full = self.shares.full(account);
            // Each time something is taken, or another lane is found full, or it is the last.
            for _ in 0..READS {
                if !self.fill_account(account, &mut full).await? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Whether there may be more to start in this account, without the lanes that are `full`. Those that are
    /// found to be are added.
    async fn fill_account(
        &mut self,
        account: AccountId,
        full: &mut Vec<K::Lane>,
    ) -> Result<bool, DbError> {
        if self.shares.room(account) == 0 {
            return Ok(false);
        }
        let look = Look::new::<K>(&self.db, account, self.clock.shared(), BATCH);
        let found = self.kind.due(&look, full).await?;
        let (all, known) = (found.len() < BATCH as usize, full.len());
        let chosen = self.shares.choose(account, found, full);
        let more = !all && (!chosen.is_empty() || full.len() > known);
        if !chosen.is_empty() {
            self.start(account, chosen).await?;
        }
        Ok(more)
    }

    /// Claims and spawns, or closes.
    async fn start(
        &mut self,
        account: AccountId,
        chosen: Vec<Found<K::Lane, K::Status>>,
    ) -> Result<(), DbError> {
        let now = self.clock.shared();
        let lease_end = now.plus(self.kind.lease().length());
        let mut tx = self.db.begin_write().await?;
        let (mut claimed, mut closed) = (Vec::new(), Vec::new());
        for Found { id, plan } in chosen {
            match plan {
                Plan::Run(lane) => {
                    let claim = store::claim::<K>(&mut tx, account, id, now, lease_end).await?;
                    claimed.extend(claim.map(|(held, job)| (held, job, lane)));
                }
                Plan::Close(status) => {
                    closed.extend(store::close::<K>(&mut tx, account, id, status, now).await?);
                }
            }
        }
        tx.commit().await?;
        for status in closed {
            self.kind.ended(status);
        }
        for (held, job, lane) in claimed {
            let span = self.kind.span(&held, &job);
            let running = Running::new(self.kind.clone());
            let claim = Claim {
                db: self.db.clone(),
                clock: self.clock.clone(),
                kind: self.kind.clone(),
                held,
                lease_end,
            };
            let seat = lane.clone();
            let attending = async move {
                attend(&claim, lane, job).await;
                drop(running);
            };
            let task = self.tasks.spawn(attending.instrument(span));
            self.shares.take(task.id(), account, seat);
        }
        Ok(())
    }

    /// Waits for one step to end, and takes all that have ended.
    pub(super) async fn one_done(&mut self) {
        let mut next = self.tasks.join_next_with_id().await;
        while let Some(done) = next {
            let id = match done {
                Ok((id, ())) => id,
                Err(error) => {
                    // Its claim runs out, and the step is repeated.
                    tracing::error!(%error, jobs = K::TABLE.name, "a step of a job broke off");
                    error.id()
                }
            };
            self.shares.give_back(&id);
            next = self.tasks.try_join_next_with_id();
        }
    }
}

/// Counts itself among the steps in flight while it lives.
struct Running<K: Kind>(Arc<K>);

impl<K: Kind> Running<K> {
    fn new(kind: Arc<K>) -> Self {
        kind.queue().began();
        Self(kind)
    }
}

impl<K: Kind> Drop for Running<K> {
    fn drop(&mut self) {
        self.0.queue().ended();
    }
}

/// What a step holds of its job.
pub struct Claim<K: Kind> {
    pub held: Held,
    db: Db,
    clock: Clock,
    kind: Arc<K>,
    /// When the claim ends unless it is renewed.
    lease_end: Timestamp,
}

impl<K: Kind> Claim<K> {
    /// Notes that the next thing the step does must not be repeated. Right before it, and only once a step.
    pub async fn intend(&self) -> Result<(), Left> {
        let now = self.clock.shared();
        let lease_end = now.plus(self.kind.lease().length());
        match store::intend::<K>(&self.db, &self.held, now, lease_end).await? {
            true => Ok(()),
            false => Err(Left::Lost),
        }
    }

    /// Renews the claim, where its kind wants that, until it is lost.
    async fn run_out(&self) {
        let lease = self.kind.lease();
        let Some(every) = lease.renewed_every() else {
            return std::future::pending().await;
        };
        let mut end = self.lease_end;
        loop {
            tokio::time::sleep(every).await;
            let now = self.clock.shared();
            let wanted = now.plus(lease.length());
            let renewing = store::renew::<K>(&self.db, &self.held, wanted);
            match tokio::time::timeout(end.since(now), renewing).await {
                Ok(Ok(true)) => end = wanted,
                Ok(Ok(false)) | Err(_) => return,
                Ok(Err(error)) => {
                    tracing::warn!(%error, job = %self.held.id, "a claim could not be renewed; trying again");
                }
            }
        }
    }
}

/// One step, written down. If it cannot be written the claim runs out and the step is repeated, or asked
/// for.
async fn attend<K: Kind>(claim: &Claim<K>, lane: K::Lane, job: K::Job) {
    let ended = tokio::select! {
        biased;
        ended = work(claim, lane, job) => ended,
        () = claim.run_out() => Err(Left::Lost),
    };
    let (job, attempt) = (claim.held.id, claim.held.attempts);
    let written = match ended {
        Ok(ended) => {
            let status = ended.finished.status;
            write_down(claim, &ended).await.map(|()| status)
        }
        Err(left) => Err(left),
    };
    match written {
        Ok(status) => claim.kind.ended(status),
        Err(Left::Lost) => {
            tracing::warn!(
                %job,
                attempt,
                "a step took longer than its claim: another has the job"
            );
        }
        Err(Left::Database(error)) => {
            tracing::error!(%error, %job, attempt, "the end of a step could not be written down; it will be repeated");
        }
    }
}

/// Asks about the deed of an attempt that nobody finished, or does the step.
async fn work<K: Kind>(
    claim: &Claim<K>,
    lane: K::Lane,
    job: K::Job,
) -> Result<Ended<K::Status, K::Effect>, Left> {
    if let (Some(at), Some(unknown)) = (claim.held.intended_at, K::UNKNOWN) {
        match claim.kind.ask(claim, &job).await? {
            Answer::NotDone => {}
            Answer::Ended(ended) => return Ok(ended),
            Answer::Unknown => {
                tracing::warn!(%at, job = %claim.held.id, "nobody knows whether a job's deed was done; it is not repeated");
                return Ok(Ended::new(Finished {
                    status: unknown,
                    next_attempt_at: None,
                    error: Some(NOBODY_KNOWS.to_owned()),
                }));
            }
        }
    }
    claim.kind.step(claim, lane, job).await
}

/// Writes down the end of a step. What must not be repeated is worth trying for as long as a claim lasts: a
/// database that was away for a moment must not turn what is known into something that nobody knows.
async fn write_down<K: Kind>(
    claim: &Claim<K>,
    ended: &Ended<K::Status, K::Effect>,
) -> Result<(), Left> {
    if K::UNKNOWN.is_none() {
        return write_once(claim, ended).await;
    }
    let trying = async {
        loop {
            match write_once(claim, ended).await {
                Err(Left::Database(error)) if error.is_unavailable() || error.is_conflict() => {
                    tracing::warn!(%error, job = %claim.held.id, "the end of a step could not be written down; trying again");
                    tokio::time::sleep(AGAIN).await;
                }
                written => return written,
            }
        }
    };
    let lasts = claim.kind.lease().length();
    tokio::time::timeout(lasts, trying)
        .await
        .unwrap_or(Err(Left::Lost))
}

/// The end of a step and its effect, both or neither.
async fn write_once<K: Kind>(
    claim: &Claim<K>,
    ended: &Ended<K::Status, K::Effect>,
) -> Result<(), Left> {
    let Ended {
        finished,
        effect,
        then,
    } = ended;
    let (held, now) = (&claim.held, claim.clock.now());
    let Some(effect) = effect else {
        return match store::finish::<K>(&claim.db, held, finished, *then, now).await? {
            true => Ok(()),
            false => Err(Left::Lost),
        };
    };
    let mut tx = claim.db.begin_write().await?;
    if !store::finish_in::<K>(&mut tx, held, finished, *then, now).await? {
        return Err(Left::Lost);
    }
    claim.kind.keep(&mut tx, held, effect).await?;
    Ok(tx.commit().await?)
}
