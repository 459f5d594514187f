//! Leases that several nodes share, in Redis: the book of [`super::policy`] as scripts (`scripts/`),
//! each of them one step for all nodes. The server's own clock decides what has run out.
//!
//! Redis only counts. A server that lost its data, or serves another's, is cold: its scripts refuse
//! new leases until every live node has told it of its own, which the heart of each node does.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use ::redis::Script;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};

use super::policy::Caps;
use super::{
    Answer, Counts, GONE_FOR, Health, Held, LIVE_TTL, Lease, Leases, Owner, Refusal, Renewal,
    Request, Roll, State,
};
use crate::ids::CallId;
use crate::redis_link::{Link, Trouble};

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

/// The lease clock: the server's, or for tests a key that they write.
pub const SERVER_CLOCK: &str = include_str!("scripts/clock.lua");
/// The clock of tests: microseconds in the key `sidetone:{adm}:now`.
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
    /// What this process holds or is about to: it is told to a server that forgot. Bounded by the
    /// node's cap and the requests under way.
    mine: Mutex<HashMap<CallId, Renewal>>,
    /// How often a cold server was told of them.
    told: AtomicU64,
    health: AtomicU8,
    releases: mpsc::Sender<Release>,
    /// Releases that the server has not answered yet.
    unsettled: watch::Sender<usize>,
    me: Weak<Self>,
}

impl Redis {
    /// Over this link, for the leases of `owner`. Needs a runtime: releases are sent by a task that
    /// ends with the store.
    pub fn start(link: Arc<Link>, caps: Caps, owner: Owner, clock: &str) -> Arc<Self> {
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
            mine: Mutex::default(),
            told: AtomicU64::new(0),
            health: AtomicU8::new(AWAY),
            releases,
            unsettled: watch::Sender::new(0),
            me: me.clone(),
        });
        tokio::spawn(send_releases(Arc::downgrade(&store), queue));
        store
    }

    async fn run(&self, script: &Script, args: &[String]) -> Result<Vec<String>, Refusal> {
        match self.link.run(script, &[PREFIX], args).await {
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

    async fn take(&self, script: &Script, request: Request, new: bool) -> Result<Lease, Refusal> {
        let store = self.me.upgrade().ok_or(Refusal::unavailable())?;
        let told = self.told.load(Ordering::SeqCst);
        // Before it is sent: should the server forget it meanwhile, it is told again.
        let before = self.mine().insert(request.lease, (&request).into());
        let answer = self.run(script, &self.wish(&request)).await;
        let mut unsure = false;
        let refusal = match answer.as_deref().map(Word::read) {
            Ok(Word::Ok) => return Ok(Lease::new(request.lease, request.owner, store)),
            Ok(Word::Full {
                resource,
                current,
                cap,
            }) => Refusal::full(resource, current, cap),
            Ok(Word::Duplicate) => Refusal::duplicate(),
            Ok(Word::Cold) => {
                self.note(Health::Cold);
                // The server was told of it meanwhile, with all else that is held here.
                unsure = self.told.load(Ordering::SeqCst) != told;
                Refusal::unavailable()
            }
            Ok(Word::Other) => Refusal::error(),
            Err(refusal) => {
                unsure = *refusal == Refusal::error();
                *refusal
            }
        };
        match before {
            // What it held before it still holds.
            Some(before) => drop(self.mine().insert(request.lease, before)),
            None => {
                self.mine().remove(&request.lease);
                // A new lease that may have been taken without our hearing of it. One that is adopted
                // has a session, whose end gives it back.
                if unsure && new {
                    self.release(request.lease, &request.owner);
                }
            }
        }
        Err(refusal)
    }

    fn wish(&self, request: &Request) -> Vec<String> {
        let Request {
            lease,
            owner,
            account,
            agent,
            trunk,
            state,
        } = request;
        vec![
            lease.to_string(),
            owner.0.to_string(),
            account.to_string(),
            agent.map_or_else(String::new, |(agent, _)| agent.to_string()),
            trunk.map_or_else(String::new, |(trunk, _)| trunk.to_string()),
            word(*state).to_owned(),
            micros(state.ttl()),
            self.caps.account.to_string(),
            agent.map_or(0, |(_, cap)| cap).to_string(),
            trunk.map_or(0, |(_, cap)| cap).to_string(),
            self.caps.pool.to_string(),
            self.caps.node.to_string(),
            micros(LIVE_TTL),
        ]
    }

    /// One part of a renewal.
    async fn renew_part(
        &self,
        part: &str,
        owner: &Owner,
        leases: &[Renewal],
    ) -> Result<Vec<String>, Refusal> {
        let mut args = vec![part.to_owned(), owner.0.to_string()];
        for renewal in leases {
            args.extend([
                renewal.lease.to_string(),
                renewal.account.to_string(),
                renewal.agent.map_or_else(String::new, |id| id.to_string()),
                renewal.trunk.map_or_else(String::new, |id| id.to_string()),
                word(renewal.state).to_owned(),
                micros(renewal.state.ttl()),
            ]);
        }
        self.run(&self.scripts.renew, &args).await
    }

    /// Tells a cold server of everything that this process holds.
    async fn tell_all(&self) -> Result<(), Refusal> {
        self.told.fetch_add(1, Ordering::SeqCst);
        let mine: Vec<Renewal> = self.mine().values().copied().collect();
        let parts: Vec<&[Renewal]> = if mine.is_empty() {
            vec![&[]]
        } else {
            mine.chunks(BATCH).collect()
        };
        let last = parts.len() - 1;
        for (index, leases) in parts.into_iter().enumerate() {
            let part = match index {
                0 if last == 0 => "only",
                0 => "first",
                _ if index == last => "last",
                _ => "next",
            };
            let answer = self.renew_part(part, &self.owner, leases).await?;
            if answer.first().is_none_or(|word| word != "ok") {
                // It forgot the first parts meanwhile: the next beat begins anew.
                return Err(Refusal::unavailable());
            }
        }
        Ok(())
    }

    async fn call_roll(&self, how: &str, roll: &Roll) -> Result<Vec<String>, Refusal> {
        let mut args = vec![how.to_owned(), roll.owners.len().to_string()];
        args.extend(roll.owners.iter().map(|owner| owner.0.to_string()));
        for call in &roll.open {
            let (owner, state) = match &call.owner {
                Some(owner) => (owner, State::Live),
                None => (&self.owner, State::Pending),
            };
            args.extend([
                call.lease.to_string(),
                owner.0.to_string(),
                call.account.to_string(),
                word(state).to_owned(),
                micros(call.left),
            ]);
        }
        self.run(&self.scripts.open, &args).await
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

    fn mine(&self) -> MutexGuard<'_, HashMap<CallId, Renewal>> {
        // Whole after any panic: each use is one operation.
        self.mine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const READY: u8 = 0;
const COLD: u8 = 1;
const AWAY: u8 = 2;

impl Leases for Redis {
    fn acquire(&self, request: Request) -> Answer<'_, Result<Lease, Refusal>> {
        Box::pin(self.take(&self.scripts.acquire, request, true))
    }

    fn adopt(&self, request: Request) -> Answer<'_, Result<Lease, Refusal>> {
        let request = Request {
            state: State::Live,
            ..request
        };
        Box::pin(self.take(&self.scripts.adopt, request, false))
    }

    fn renew<'a>(
        &'a self,
        owner: &'a Owner,
        leases: &'a [Renewal],
    ) -> Answer<'a, Result<(), Refusal>> {
        Box::pin(async move {
            for part in leases.chunks(BATCH) {
                self.renew_part("plain", owner, part).await?;
            }
            Ok(())
        })
    }

    fn release(&self, lease: CallId, owner: &Owner) {
        self.mine().remove(&lease);
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
        self.mine().remove(&lease);
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
            let answer = self.run(&self.scripts.count, &[]).await?;
            let number = |at: usize| answer.get(at)?.parse().ok();
            match (number(1), number(2)) {
                (Some(pending), Some(live)) => Ok(Counts { pending, live }),
                _ => Err(Refusal::error()),
            }
        })
    }

    fn list(&self) -> Answer<'_, Result<Vec<Held>, Refusal>> {
        Box::pin(async move {
            let answer = self.run(&self.scripts.reap, &[]).await?;
            let fields = answer.get(1..).unwrap_or_default();
            let held = fields.chunks_exact(4).map(|row| {
                Some(Held {
                    lease: row[0].parse().ok()?,
                    owner: Owner(row[1].as_str().into()),
                    live: row[2] == "live",
                    age: Duration::from_micros(row[3].parse().unwrap_or(0)),
                })
            });
            held.collect::<Option<_>>().ok_or(Refusal::error())
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
                match self.run(&self.scripts.beat, &[]).await {
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
            let answer = self.call_roll("ask", roll).await;
            answer.is_ok_and(|answer| is(&answer, "back") || is(&answer, "warm"))
        })
    }

    fn open<'a>(&'a self, roll: &'a Roll) -> Answer<'a, Health> {
        Box::pin(async move {
            let health = match self.call_roll("open", roll).await {
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

/// What acquire and adopt answer.
enum Word {
    Ok,
    Full {
        resource: &'static str,
        current: u32,
        cap: u32,
    },
    Duplicate,
    Cold,
    Other,
}

impl Word {
    fn read(answer: &[String]) -> Self {
        match answer {
            [word] if word == "ok" => Self::Ok,
            [word] if word == "duplicate" => Self::Duplicate,
            [word] if word == "cold" => Self::Cold,
            [word, resource, current, cap] if word == "full" => {
                let resource = ["account", "agent", "trunk", "pool", "node"]
                    .into_iter()
                    .find(|known| known == resource);
                match (resource, current.parse(), cap.parse()) {
                    (Some(resource), Ok(current), Ok(cap)) => Self::Full {
                        resource,
                        current,
                        cap,
                    },
                    _ => Self::Other,
                }
            }
            _ => Self::Other,
        }
    }
}

const fn word(state: State) -> &'static str {
    match state {
        State::Pending | State::Keyless => "pending",
        State::Live => "live",
    }
}

fn micros(duration: Duration) -> String {
    duration.as_micros().to_string()
}

/// Gives leases back one after the other, again and again while the server is away.
async fn send_releases(store: Weak<Redis>, mut queue: mpsc::Receiver<Release>) {
    while let Some(Release {
        lease,
        owner,
        since,
    }) = queue.recv().await
    {
        let args = [lease.to_string(), owner.0.to_string(), micros(GONE_FOR)];
        loop {
            let Some(store) = store.upgrade() else { return };
            let over = store.run(&store.scripts.release, &args).await.is_ok();
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
