//! The arithmetic of admission, pure: leases, caps, time as an argument.

use std::collections::HashMap;

use super::{Counts, LIVE_TTL, Owner, PENDING_TTL, Refusal, Renewal, Request, State};
use crate::http::error::Reason;
use crate::ids::{AccountId, AgentId, CallId};
use crate::time::Timestamp;

/// Seconds after which a refused client may try again: a pending lease may have run out by then.
const RETRY_AFTER: u32 = 5;
/// A duplicate lease is a race that is over in a moment.
const RETRY_DUPLICATE: u32 = 1;

/// The caps that hold for everybody.
#[derive(Clone, Copy, Debug)]
pub struct Caps {
    pub account: u32,
    pub pool: u32,
    pub node: u32,
}

/// All leases. Bounded by the pool's cap, but for live calls that are re-asserted.
#[derive(Debug)]
pub struct Book {
    caps: Caps,
    leases: HashMap<CallId, Entry>,
    accounts: HashMap<AccountId, u32>,
    agents: HashMap<AgentId, u32>,
    owners: HashMap<Owner, u32>,
    live: u32,
}

#[derive(Clone, Debug)]
struct Entry {
    owner: Owner,
    account: AccountId,
    agent: Option<AgentId>,
    state: State,
    until: Timestamp,
}

impl Book {
    pub fn new(caps: Caps) -> Self {
        Self {
            caps,
            leases: HashMap::new(),
            accounts: HashMap::new(),
            agents: HashMap::new(),
            owners: HashMap::new(),
            live: 0,
        }
    }

    /// Takes a lease, or says which cap forbids it.
    pub fn acquire(&mut self, request: &Request, now: Timestamp) -> Result<(), Refusal> {
        match self.leases.get(&request.lease) {
            Some(entry) if entry.until > now && entry.owner != request.owner => {
                return Err(duplicate());
            }
            Some(entry) if entry.until > now => {
                // The same owner again. A live lease does not become pending by asking twice.
                let state = if entry.state == State::Live {
                    State::Live
                } else {
                    request.state
                };
                self.put(request, state, now);
                return Ok(());
            }
            _ => {}
        }
        self.expire(now);
        self.within_caps(request)?;
        self.put(request, request.state, now);
        Ok(())
    }

    /// Makes a lease live: a pending one of anybody, or one's own. One that is gone is taken anew.
    pub fn adopt(&mut self, request: &Request, now: Timestamp) -> Result<(), Refusal> {
        match self.leases.get(&request.lease) {
            Some(entry) if entry.until > now => {
                if entry.state == State::Live && entry.owner != request.owner {
                    return Err(duplicate());
                }
                // The account's and the pool's counts stay as they are; the node's may change hands.
                if entry.owner != request.owner {
                    self.node_has_room(&request.owner)?;
                }
                self.put(request, State::Live, now);
                Ok(())
            }
            _ => self.acquire(
                &Request {
                    state: State::Live,
                    ..request.clone()
                },
                now,
            ),
        }
    }

    /// Prolongs live calls; forgotten ones are taken up again whatever the caps say.
    pub fn renew(&mut self, owner: &Owner, leases: &[Renewal], now: Timestamp) {
        for renewal in leases {
            let foreign = self
                .leases
                .get(&renewal.lease)
                .is_some_and(|entry| entry.owner != *owner && entry.until > now);
            if !foreign {
                let agent = renewal.agent.map(|agent| (agent, u32::MAX));
                let Renewal { lease, account, .. } = *renewal;
                self.put(
                    &Request {
                        lease,
                        owner: owner.clone(),
                        account,
                        agent,
                        state: State::Live,
                    },
                    State::Live,
                    now,
                );
            }
        }
    }

    /// Gives a lease back, if this owner holds it.
    pub fn release(&mut self, lease: CallId, owner: &Owner) {
        if self
            .leases
            .get(&lease)
            .is_some_and(|entry| entry.owner == *owner)
        {
            self.remove(lease);
        }
    }

    /// Forgets what has run out.
    pub fn expire(&mut self, now: Timestamp) {
        let gone: Vec<CallId> = self
            .leases
            .iter()
            .filter(|(_, entry)| entry.until <= now)
            .map(|(lease, _)| *lease)
            .collect();
        for lease in gone {
            self.remove(lease);
        }
    }

    pub fn counts(&self) -> Counts {
        let all = u32::try_from(self.leases.len()).unwrap_or(u32::MAX);
        Counts {
            pending: all - self.live,
            live: self.live,
        }
    }

    fn within_caps(&self, request: &Request) -> Result<(), Refusal> {
        let account = self.accounts.get(&request.account).copied().unwrap_or(0);
        below("account", account, self.caps.account)?;
        if let Some((agent, cap)) = request.agent {
            below("agent", self.agents.get(&agent).copied().unwrap_or(0), cap)?;
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
        // Another node may have room: not the client's limit, but this server's.
        below("node", current, self.caps.node).map_err(|refusal| Refusal {
            reason: Reason::ServiceUnavailable,
            ..refusal
        })
    }

    fn put(&mut self, request: &Request, state: State, now: Timestamp) {
        self.remove(request.lease);
        let ttl = match state {
            State::Pending => PENDING_TTL,
            State::Live => LIVE_TTL,
        };
        let agent = request.agent.map(|(agent, _)| agent);
        *self.accounts.entry(request.account).or_insert(0) += 1;
        *self.owners.entry(request.owner.clone()).or_insert(0) += 1;
        if let Some(agent) = agent {
            *self.agents.entry(agent).or_insert(0) += 1;
        }
        self.live += u32::from(state == State::Live);
        let entry = Entry {
            owner: request.owner.clone(),
            account: request.account,
            agent,
            state,
            until: now.plus(ttl),
        };
        self.leases.insert(request.lease, entry);
    }

    fn remove(&mut self, lease: CallId) {
        let Some(entry) = self.leases.remove(&lease) else {
            return;
        };
        less(&mut self.accounts, &entry.account);
        less(&mut self.owners, &entry.owner);
        if let Some(agent) = entry.agent {
            less(&mut self.agents, &agent);
        }
        self.live -= u32::from(entry.state == State::Live);
    }
}

fn below(resource: &'static str, current: u32, cap: u32) -> Result<(), Refusal> {
    if current < cap {
        return Ok(());
    }
    Err(Refusal {
        reason: Reason::Capacity,
        resource: Some(resource),
        current: Some(current),
        cap: Some(cap),
        retry_after: RETRY_AFTER,
    })
}

const fn duplicate() -> Refusal {
    Refusal {
        reason: Reason::DuplicateLease,
        resource: None,
        current: None,
        cap: None,
        retry_after: RETRY_DUPLICATE,
    }
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
