//! The arithmetic of admission, pure: leases, caps, time as an argument.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use super::{
    Counts, GONE_FOR, Held, LIVE_TTL, OpenCall, Owner, PENDING_TTL, Refusal, Renewal, Request,
    State,
};
use crate::config::Limits;
use crate::ids::{AccountId, AgentId, CallId, TrunkId};
use crate::time::Moment;

/// The caps that hold for everybody.
#[derive(Clone, Copy, Debug)]
pub struct Caps {
    pub account: u32,
    pub pool: u32,
    pub node: u32,
}

impl From<&Limits> for Caps {
    fn from(limits: &Limits) -> Self {
        Self {
            account: limits.account_calls,
            pool: limits.pool_calls,
            node: limits.node_calls,
        }
    }
}

/// All leases. Bounded by the pool's cap, but for live calls that are re-asserted; what was released
/// is remembered for [`GONE_FOR`].
#[derive(Clone, Debug)]
pub struct Book {
    caps: Caps,
    leases: HashMap<CallId, Entry>,
    accounts: HashMap<AccountId, u32>,
    agents: HashMap<AgentId, u32>,
    trunks: HashMap<TrunkId, u32>,
    owners: HashMap<Owner, u32>,
    gone: HashMap<CallId, Moment>,
    /// When each of `leases` runs out, the next one first, and when each of `gone` is forgotten: nobody
    /// who takes a slot looks through all the others.
    ends: BTreeSet<(Moment, CallId)>,
    forgotten: BTreeSet<(Moment, CallId)>,
    live: u32,
}

#[derive(Clone, Debug)]
struct Entry {
    owner: Owner,
    account: AccountId,
    agent: Option<AgentId>,
    trunk: Option<TrunkId>,
    state: State,
    since: Moment,
    until: Moment,
}

impl Book {
    pub fn new(caps: Caps) -> Self {
        Self {
            caps,
            leases: HashMap::new(),
            accounts: HashMap::new(),
            agents: HashMap::new(),
            trunks: HashMap::new(),
            owners: HashMap::new(),
            gone: HashMap::new(),
            ends: BTreeSet::new(),
            forgotten: BTreeSet::new(),
            live: 0,
        }
    }

    /// Takes a lease, or says which cap forbids it.
    pub fn acquire(&mut self, request: &Request, now: Moment) -> Result<(), Refusal> {
        self.expire(now);
        if self.is_gone(request.lease, now) {
            return Err(Refusal::duplicate());
        }
        match self.held(request.lease, now) {
            Some(entry) if entry.owner != request.owner => return Err(Refusal::duplicate()),
            Some(entry) => {
                // The same owner again. A live lease does not become pending by asking twice.
                let state = if entry.state == State::Live {
                    State::Live
                } else {
                    request.state
                };
                self.put(request, state, now);
                return Ok(());
            }
            None => {}
        }
        self.within_caps(request)?;
        self.put(request, request.state, now);
        Ok(())
    }

    /// Makes a lease live: a pending one of anybody, or one's own. One that is gone is taken anew.
    pub fn adopt(&mut self, request: &Request, now: Moment) -> Result<(), Refusal> {
        self.expire(now);
        if self.is_gone(request.lease, now) {
            return Err(Refusal::duplicate());
        }
        match self.held(request.lease, now) {
            Some(entry) => {
                if entry.state == State::Live && entry.owner != request.owner {
                    return Err(Refusal::duplicate());
                }
                // The account's and the pool's counts stay as they are; the node's may change hands.
                if entry.owner != request.owner {
                    self.node_has_room(&request.owner)?;
                }
                self.put(request, State::Live, now);
                Ok(())
            }
            None => self.acquire(
                &Request {
                    state: State::Live,
                    ..request.clone()
                },
                now,
            ),
        }
    }

    /// Prolongs live calls; forgotten ones are taken up again whatever the caps say. One that only
    /// waits is taken up when it was forgotten, and not prolonged.
    pub fn renew(&mut self, owner: &Owner, leases: &[Renewal], now: Moment) {
        for renewal in leases {
            let entry = self.held(renewal.lease, now);
            let foreign =
                entry.is_some_and(|entry| entry.state == State::Live && entry.owner != *owner);
            let known = entry.is_some() && renewal.state != State::Live;
            if foreign || known || self.is_gone(renewal.lease, now) {
                continue;
            }
            // Who renews for another does not know its agent and trunk.
            let agent = renewal.agent.or(entry.and_then(|entry| entry.agent));
            let trunk = renewal.trunk.or(entry.and_then(|entry| entry.trunk));
            let request = Request {
                lease: renewal.lease,
                owner: owner.clone(),
                account: renewal.account,
                agent: agent.map(|agent| (agent, u32::MAX)),
                trunk: trunk.map(|trunk| (trunk, u32::MAX)),
                beyond: false,
                state: renewal.state,
            };
            self.put(&request, renewal.state, now);
        }
    }

    /// Gives a lease back, unless another owner holds it live: a pending one belongs to its session.
    /// For a while it cannot be taken again.
    pub fn release(&mut self, lease: CallId, owner: &Owner, now: Moment) {
        let foreign = self
            .held(lease, now)
            .is_some_and(|entry| entry.state == State::Live && entry.owner != *owner);
        if !foreign {
            self.remove(lease);
            let until = now.plus(GONE_FOR);
            if let Some(before) = self.gone.insert(lease, until) {
                self.forgotten.remove(&(before, lease));
            }
            self.forgotten.insert((until, lease));
        }
    }

    /// Takes up a call that the database has and nobody told of, for `left`; `by` holds a session that
    /// waits for somebody.
    pub fn take_up(&mut self, call: &OpenCall, by: &Owner, now: Moment) {
        if self.held(call.lease, now).is_some() || self.is_gone(call.lease, now) {
            return;
        }
        let state = match call.owner {
            Some(_) => State::Live,
            None => State::Pending,
        };
        let request = Request {
            lease: call.lease,
            owner: call.owner.as_ref().unwrap_or(by).clone(),
            account: call.account,
            agent: None,
            trunk: None,
            beyond: false,
            state,
        };
        self.put_for(&request, state, call.left, now);
    }

    /// Forgets what has run out. An end further ahead than any lease lasts was written before the clock
    /// went back (that of a shared store may; moments do not): such a lease lasts once more as long as
    /// one of its state.
    pub fn expire(&mut self, now: Moment) {
        while let Some(&(until, lease)) = self.ends.last()
            && until > now.plus(PENDING_TTL)
        {
            self.ends.pop_last();
            if let Some(entry) = self.leases.get_mut(&lease) {
                entry.until = now.plus(match entry.state {
                    State::Live => LIVE_TTL,
                    State::Pending | State::Keyless => PENDING_TTL,
                });
                self.ends.insert((entry.until, lease));
            }
        }
        while let Some(&(until, lease)) = self.ends.first()
            && until <= now
        {
            self.ends.pop_first();
            self.remove(lease);
        }
        while let Some(&(until, lease)) = self.forgotten.first()
            && until <= now
        {
            self.forgotten.pop_first();
            self.gone.remove(&lease);
        }
    }

    /// Every lease.
    pub fn list(&self, now: Moment) -> Vec<Held> {
        let held = self.leases.iter().map(|(lease, entry)| Held {
            lease: *lease,
            owner: entry.owner.clone(),
            live: entry.state == State::Live,
            age: Duration::from_micros(now.micros().abs_diff(entry.since.micros())),
            left: entry.until.since(now),
        });
        held.collect()
    }

    pub fn counts(&self) -> Counts {
        let all = u32::try_from(self.leases.len()).unwrap_or(u32::MAX);
        Counts {
            pending: all - self.live,
            live: self.live,
        }
    }

    fn within_caps(&self, request: &Request) -> Result<(), Refusal> {
        if !request.beyond {
            let account = self.accounts.get(&request.account).copied().unwrap_or(0);
            below("account", account, self.caps.account)?;
            if let Some((agent, cap)) = request.agent {
                below("agent", self.agents.get(&agent).copied().unwrap_or(0), cap)?;
            }
        }
        if let Some((trunk, cap)) = request.trunk {
            below("trunk", self.trunks.get(&trunk).copied().unwrap_or(0), cap)?;
        }
        below(
            "pool",
            u32::try_from(self.leases.len()).unwrap_or(u32::MAX),
            self.caps.pool,
        )?;
        self.node_has_room(&request.owner)
    }

    fn node_has_room(&self, owner: &Owner) -> Result<(), Refusal> {
        let current = self.owners.get(owner).copied().unwrap_or(0);
        below("node", current, self.caps.node)
    }

    fn held(&self, lease: CallId, now: Moment) -> Option<&Entry> {
        self.leases.get(&lease).filter(|entry| entry.until > now)
    }

    /// Whether the lease was given back a moment ago, and cannot be taken. What is remembered for longer than
    /// [`GONE_FOR`] was written before the clock went back.
    pub fn is_gone(&self, lease: CallId, now: Moment) -> bool {
        let until = self.gone.get(&lease);
        until.is_some_and(|until| *until > now && *until <= now.plus(GONE_FOR))
    }

    fn put(&mut self, request: &Request, state: State, now: Moment) {
        self.put_for(request, state, state.ttl(), now);
    }

    fn put_for(&mut self, request: &Request, state: State, ttl: Duration, now: Moment) {
        let since = self.leases.get(&request.lease).map_or(now, |old| old.since);
        self.remove(request.lease);
        let agent = request.agent.map(|(agent, _)| agent);
        let trunk = request.trunk.map(|(trunk, _)| trunk);
        *self.accounts.entry(request.account).or_insert(0) += 1;
        *self.owners.entry(request.owner.clone()).or_insert(0) += 1;
        if let Some(agent) = agent {
            *self.agents.entry(agent).or_insert(0) += 1;
        }
        if let Some(trunk) = trunk {
            *self.trunks.entry(trunk).or_insert(0) += 1;
        }
        self.live += u32::from(state == State::Live);
        let until = now.plus(ttl);
        let entry = Entry {
            owner: request.owner.clone(),
            account: request.account,
            agent,
            trunk,
            state,
            since,
            until,
        };
        self.leases.insert(request.lease, entry);
        self.ends.insert((until, request.lease));
    }

    fn remove(&mut self, lease: CallId) {
        let Some(entry) = self.leases.remove(&lease) else {
            return;
        };
        self.ends.remove(&(entry.until, lease));
        less(&mut self.accounts, &entry.account);
        less(&mut self.owners, &entry.owner);
        if let Some(agent) = entry.agent {
            less(&mut self.agents, &agent);
        }
        if let Some(trunk) = entry.trunk {
            less(&mut self.trunks, &trunk);
        }
        self.live -= u32::from(entry.state == State::Live);
    }
}

fn below(resource: &'static str, current: u32, cap: u32) -> Result<(), Refusal> {
    if current < cap {
        return Ok(());
    }
    Err(Refusal::full(resource, current, cap))
}

/// Counts one less; a count of nothing is not kept.
fn less<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, u32>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
