//! Leases that several nodes share, in Redis: the book of [`super::policy`] as scripts (`scripts/`),
//! each of them one step for all nodes. The server's own clock decides what has run out.
//!
//! Redis only counts. A server that lost its data, or serves another's, is cold: its scripts refuse
//! new leases until every live node has told it of its own, which the heart of each node does.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use ::redis::Script;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};

use super::command::{self, Command, RenewalPart, Word};
use super::ledger::Ledger;
use super::policy::Caps;
use super::{
    Answer, Counts, Health, Held, Lease, Leases, Owner, Refusal, Renewal, Request, Roll, State,
};
use crate::ids::CallId;
use crate::redis_link::{Link, Trouble};
use crate::supervisor::Supervisor;

/// What all keys begin with; the braces put them into one slot of a cluster.
pub const PREFIX: &str = "sidetone:{adm}";
/// Leases that one renewal carries: a script of as many takes a few milliseconds.
const BATCH: usize = 250;
/// Releases that wait for their turn, or for a server that is away. One is about 60 bytes. Beyond
/// it a lease runs out by itself, or the reconciler finds it.
const BACKLOG: usize = 20_000;
/// Pause after a release that failed.
const RELEASE_AGAIN: Duration = Duration::from_millis(250);
/// After this a release is given up: the lease has run out, or the reconciler frees it.
const RELEASE_WITHIN: Duration = Duration::from_secs(60);

macro_rules! script {
    ($clock:expr, $file:literal) => {
        Script::new(&format!(
            "{}\n{}\n{}",
            $clock,
            include_str!("scripts/common.lua"),
            include_str!(concat!("scripts/", $file))
        ))
    };
}

/// The clock of tests, in place of [`SERVER_CLOCK`](crate::redis_link::SERVER_CLOCK): microseconds in the key `sidetone:{adm}:now`.
pub const KEY_CLOCK: &str = include_str!("scripts/clock_key.lua");

struct Scripts {
    acquire: Script,
    adopt: Script,
    renew: Script,
    release: Script,
    count: Script,
    reap: Script,
    beat: Script,
    open: Script,
}

/// A lease that is given back.
struct Release {
    lease: CallId,
    owner: Owner,
    since: Instant,
}

/// The lease store of several nodes.
pub struct Redis {
    link: Arc<Link>,
    caps: Caps,
    owner: Owner,
    scripts: Scripts,
    /// What this process holds or is about to: it is told to a server that forgot.
    ledger: Mutex<Ledger>,
    health: AtomicU8,
    releases: mpsc::Sender<Release>,
    /// Releases that the server has not answered yet.
    unsettled: watch::Sender<usize>,
    me: Weak<Self>,
}

impl Redis {
    /// Over this link, for the leases of `owner`. Needs a runtime: releases are sent by a task that
    /// ends with the store.
    pub fn start(
        link: Arc<Link>,
        caps: Caps,
        owner: Owner,
        clock: &str,
        watch: &Supervisor,
    ) -> Arc<Self> {
        let (releases, queue) = mpsc::channel(BACKLOG);
        let store = Arc::new_cyclic(|me| Self {
            link,
            caps,
            owner,
            scripts: Scripts {
                acquire: script!(clock, "acquire.lua"),
                adopt: script!(clock, "adopt.lua"),
                renew: script!(clock, "renew.lua"),
                release: script!(clock, "release.lua"),
                count: script!(clock, "count.lua"),
                reap: script!(clock, "reap.lua"),
                beat: script!(clock, "beat.lua"),
                open: script!(clock, "open.lua"),
            },
            ledger: Mutex::default(),
            health: AtomicU8::new(AWAY),
            releases,
            unsettled: watch::Sender::new(0),
            me: me.clone(),
        });
        let sending = send_releases(Arc::downgrade(&store), queue);
        watch.once("the sender of releases", sending);
        store
    }

    /// Has the server do one step; its words.
    pub async fn run(&self, command: &Command) -> Result<Vec<String>, Refusal> {
        let script = match command {
            Command::Acquire(_) => &self.scripts.acquire,
            Command::Adopt(_) => &self.scripts.adopt,
            Command::Renew { .. } => &self.scripts.renew,
            Command::Release { .. } => &self.scripts.release,
            Command::Count => &self.scripts.count,
            Command::List => &self.scripts.reap,
            Command::Beat => &self.scripts.beat,
            Command::Ask(_) | Command::Open { .. } => &self.scripts.open,
        };
        let args = command.args(&self.caps);
        match self.link.run(script, &[PREFIX], &args).await {
            Ok(answer) => Ok(answer),
            Err(Trouble::Away) => {
                self.note(Health::Away);
                Err(Refusal::unavailable())
            }
            Err(Trouble::Unsure(why)) => {
                tracing::warn!(why, "a lease operation has no answer");
                Err(Refusal::error())
            }
        }
    }

    async fn take(&self, request: Request, new: bool) -> Result<Lease, Refusal> {
        let store = self.me.upgrade().ok_or(Refusal::unavailable())?;
        let sent = self.ledger().send(&request, new);
        let command = match new {
            true => Command::Acquire(request.clone()),
            false => Command::Adopt(request.clone()),
        };
        let answer = self.run(&command).await.map(|answer| Word::read(&answer));
        if answer == Ok(Word::Cold) {
            self.note(Health::Cold);
        }
        let heard = self.ledger().heard(sent, answer);
        match heard {
            Ok(()) => Ok(Lease::new(request.lease, request.owner, store)),
            Err(denied) => {
                if denied.give_back {
                    self.release(request.lease, &request.owner);
                }
                Err(denied.refusal)
            }
        }
    }

    /// Tells a cold server of everything that this process holds.
    async fn tell_all(&self) -> Result<(), Refusal> {
        let parts = self.ledger().tell(BATCH);
        for (part, leases) in parts {
            let owner = self.owner.clone();
            let renewal = Command::Renew {
                part,
                owner,
                leases,
            };
            if !is(&self.run(&renewal).await?, "ok") {
                // It forgot the first parts meanwhile: the next beat begins anew.
                return Err(Refusal::unavailable());
            }
        }
        Ok(())
    }

    fn note(&self, health: Health) {
        let code = match health {
            Health::Ready => READY,
            Health::Cold => COLD,
            Health::Away => AWAY,
        };
        let before = self.health.swap(code, Ordering::SeqCst);
        if before == READY && code != READY {
            tracing::warn!(?health, "Redis takes no leases");
            self.link.disturb();
        } else if before != READY && code == READY {
            tracing::info!("Redis takes leases");
        }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        // Whole after any panic: each use is one operation.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const READY: u8 = 0;
const COLD: u8 = 1;
const AWAY: u8 = 2;

impl Leases for Redis {
    fn acquire(&self, request: Request) -> Answer<'_, Result<Lease, Refusal>> {
        Box::pin(self.take(request, true))
    }

    fn adopt(&self, request: Request) -> Answer<'_, Result<Lease, Refusal>> {
        let request = Request {
            state: State::Live,
            ..request
        };
        Box::pin(self.take(request, false))
    }

    fn renew<'a>(
        &'a self,
        owner: &'a Owner,
        leases: &'a [Renewal],
    ) -> Answer<'a, Result<(), Refusal>> {
        Box::pin(async move {
            for part in leases.chunks(BATCH) {
                let renewal = Command::Renew {
                    part: RenewalPart::Plain,
                    owner: owner.clone(),
                    leases: part.to_vec(),
                };
                self.run(&renewal).await?;
            }
            Ok(())
        })
    }

    fn release(&self, lease: CallId, owner: &Owner) {
        self.ledger().forget(lease);
        self.unsettled.send_modify(|count| *count += 1);
        let release = Release {
            lease,
            owner: owner.clone(),
            since: Instant::now(),
        };
        if self.releases.try_send(release).is_err() {
            self.unsettled.send_modify(|count| *count -= 1);
            tracing::warn!(%lease, "too many leases wait to be released: one is left to run out");
        }
    }

    fn leave(&self, lease: CallId) {
        self.ledger().forget(lease);
    }

    fn settled(&self) -> Answer<'_, ()> {
        Box::pin(async move {
            let mut unsettled = self.unsettled.subscribe();
            // The sender lives as long as this store.
            let _ = unsettled.wait_for(|count| *count == 0).await;
        })
    }

    fn counts(&self) -> Answer<'_, Result<Counts, Refusal>> {
        Box::pin(async move {
            let answer = self.run(&Command::Count).await?;
            let number = |at: usize| answer.get(at)?.parse().ok();
            match (number(1), number(2)) {
                (Some(pending), Some(live)) => Ok(Counts { pending, live }),
                _ => Err(Refusal::error()),
            }
        })
    }

    fn list(&self) -> Answer<'_, Result<Vec<Held>, Refusal>> {
        Box::pin(async move {
            let answer = self.run(&Command::List).await?;
            command::held(&answer).ok_or(Refusal::error())
        })
    }

    fn health(&self) -> Health {
        match self.health.load(Ordering::SeqCst) {
            READY => Health::Ready,
            COLD => Health::Cold,
            _ => Health::Away,
        }
    }

    fn beat(&self) -> Answer<'_, Health> {
        Box::pin(async move {
            let health = if !self.link.is_up() && !self.link.connect().await {
                Health::Away
            } else {
                match self.run(&Command::Beat).await {
                    Ok(answer) if is(&answer, "warm") => Health::Ready,
                    Ok(_) => match self.tell_all().await {
                        Ok(()) => Health::Cold,
                        Err(refusal) => trouble(refusal),
                    },
                    Err(refusal) => trouble(refusal),
                }
            };
            self.note(health);
            health
        })
    }

    fn is_complete<'a>(&'a self, roll: &'a Roll) -> Answer<'a, bool> {
        Box::pin(async move {
            let answer = self.run(&Command::Ask(roll.clone())).await;
            answer.is_ok_and(|answer| is(&answer, "back") || is(&answer, "warm"))
        })
    }

    fn open<'a>(&'a self, roll: &'a Roll) -> Answer<'a, Health> {
        Box::pin(async move {
            let open = Command::Open {
                roll: roll.clone(),
                by: self.owner.clone(),
            };
            let health = match self.run(&open).await {
                Ok(answer) if is(&answer, "warm") => Health::Ready,
                Ok(_) => Health::Cold,
                Err(refusal) => trouble(refusal),
            };
            self.note(health);
            health
        })
    }

    fn trouble(&self) -> Answer<'_, ()> {
        Box::pin(self.link.disturbed())
    }
}

/// A server that failed once is not away, but its counts are not known to be good.
fn trouble(refusal: Refusal) -> Health {
    if refusal == Refusal::unavailable() {
        Health::Away
    } else {
        Health::Cold
    }
}

fn is(answer: &[String], word: &str) -> bool {
    answer.first().is_some_and(|first| first == word)
}

/// Gives leases back one after the other, again and again while the server is away.
async fn send_releases(store: Weak<Redis>, mut queue: mpsc::Receiver<Release>) {
    while let Some(Release {
        lease,
        owner,
        since,
    }) = queue.recv().await
    {
        let release = Command::Release { lease, owner };
        loop {
            let Some(store) = store.upgrade() else { return };
            let over = store.run(&release).await.is_ok();
            let late = since.elapsed() > RELEASE_WITHIN;
            if late && !over {
                tracing::warn!(%lease, "a lease could not be released: it is left to run out");
            }
            if over || late {
                store.unsettled.send_modify(|count| *count -= 1);
                break;
            }
            drop(store);
            sleep(RELEASE_AGAIN).await;
        }
    }
}

impl std::fmt::Debug for Redis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redis")
            .field("owner", &self.owner)
            .field("health", &self.health())
            .finish_non_exhaustive()
    }
}
